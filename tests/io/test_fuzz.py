"""8,000 mutated files a run; `python tests/io/fuzz.py 1000000` for more. Only ModelError may come out."""

import pytest
from fuzz import BYTES, FILES, MJCF, URDF, Fuzzer

import adjoin

COUNT, PARTS = 8_000, 2


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_files(part, tmp_path):
    pytest.importorskip("mujoco")
    fuzzer = Fuzzer(tmp_path)
    for number in range(part * COUNT // PARTS, (part + 1) * COUNT // PARTS):
        fuzzer.run(number)
    assert fuzzer.grown() < BYTES
    assert sum(fuzzer.outcomes.values()) == COUNT // PARTS
    assert {kind.split()[0] for kind in fuzzer.outcomes} == {"urdf", "mjcf", "saved", "mesh"}
    assert all(fuzzer.outcomes[f"{kind} loaded"] > 0 for kind in ("urdf", "mjcf", "saved", "mesh"))


def test_the_seeds_themselves_load(tmp_path):
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    model = adjoin.load(URDF, folder=tmp_path, packages={"pkg": tmp_path})
    assert (model.nq, len(model.geometries)) == (1, 4)
    assert adjoin.load(MJCF, folder=tmp_path).nq == 13
