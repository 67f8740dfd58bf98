"""Results are, bit for bit, those of before: see make.py."""

import json

import pytest
from digests import make

from adjoin.compiler.runtime.cpu.kernel import host

KNOWN = json.loads(make.FILE.read_text())


@pytest.mark.skipif(not host().fma, reason="the digests are those of processors with fused multiply-add")
@pytest.mark.parametrize("part", [make.dynamics, make.simulation])
def test_results_are_those_of_before(part):
    found = dict(part())
    assert found
    changed = {name: (KNOWN.get(name), value) for name, value in found.items() if KNOWN.get(name) != value}
    assert not changed


def test_every_digest_is_made():
    assert set(KNOWN) >= {"aba go2 float64", "crba panda float32", "rollout go2 implicit", "rollout ball terrain"}
