"""A process that finds its kernels in the cache neither traces nor differentiates, and never runs another's kernel."""

import functools
import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import adjoin
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime import trace_cache
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.fingerprint import fingerprint
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.compiler.runtime.trace_cache import stored
from adjoin.errors import CompileError

FACTOR = 2.0


def doubled(x):
    return FACTOR * x


def helper(x):
    return x * x


def helped(x):
    return helper(x) + 1.0


def scaled(factor):
    return lambda x: factor * x


def test_functions_are_known_by_their_code_and_by_what_they_read(monkeypatch):
    assert fingerprint(doubled) == fingerprint(doubled)
    assert fingerprint(scaled(2.0)) == fingerprint(scaled(2.0)) != fingerprint(scaled(3.0))
    assert fingerprint(functools.partial(doubled, 1)) != fingerprint(functools.partial(doubled, 2))
    for name, other in (("FACTOR", 3.0), ("helper", doubled)):
        function = doubled if name == "FACTOR" else helped
        before = fingerprint(function)
        monkeypatch.setitem(globals(), name, other)
        assert fingerprint(function) not in (None, before)
    assert fingerprint(np.zeros(3)) != fingerprint(np.zeros(3, dtype=np.float32)) != fingerprint(torch.zeros(3))
    assert fingerprint((1, 2)) != fingerprint((12,)) != fingerprint([12])


class Gain:
    value = 2.0


@pytest.mark.parametrize(
    "unknown",
    [
        Gain(),
        Gain,
        Gain().__init__,
        lambda x: Gain.value * x,
        lambda x: x * np.random.rand(),
        lambda x: x * os.getpid(),
        torch.nn.Linear(1, 1),
    ],
)
def test_what_cannot_be_known_has_no_fingerprint(unknown):
    assert fingerprint(unknown) is None


def test_an_option_of_a_world_gives_another_fingerprint():
    world = adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.02).world
    others = [
        replace(world, dt=0.03),
        replace(world, limits=False),
        replace(world, contact=adjoin.PGS(iterations=7)),
        replace(world, contact=adjoin.PGS(adjoint=adjoin.ImplicitAdjoint())),
        replace(world, integrator=adjoin.RK4()),
        replace(world, model=replace(world.model, gravity=(0.0, 0.0, -3.7))),
        replace(world, residual=scaled(1.0)),
        replace(world, residual=scaled(2.0)),
    ]
    found = [fingerprint(each) for each in (world, *others)]
    assert None not in found
    assert len(set(found)) == len(found)
    assert fingerprint(world) == found[0]


def squared(counted, factor=1.0):
    def make():
        counted.append(factor)
        return trace("squared", lambda x: factor * x * x, [TensorSpec("x", ())])[0], {"places": (0,)}

    return make


def test_a_program_is_made_once_and_its_derivative_when_it_is_wanted():
    made = []
    first, note = stored(("once", 1), squared(made))
    again, same = stored(("once", 1), squared(made))
    assert made == [1.0]
    assert note == same == {"places": (0,)}
    assert (again.key, again.inputs, again.work) == (first.key, first.inputs, first.work)
    x = torch.tensor([3.0])
    Kernel(first).run([x], (), (1,))  # compiles
    assert Kernel(again).run([x], (), (1,))[0].item() == 9.0
    assert made == [1.0]
    pull, _ = Kernel(again).vjp((True,), (True,))
    assert pull.run([x, torch.ones(1)], (), (1,))[0].item() == 6.0
    assert stored(("once", 2), squared(made))[0].key == first.key
    assert made[-1] == 1.0
    assert len(made) >= 2


def test_an_entry_that_is_damaged_is_made_again():
    made = []
    stored(("damaged",), squared(made))
    cache, key = Cache(), fingerprint("damaged")
    for payload in (b"", b"no pickle", b"cnowhere\nNothing\n."):
        cache.put(key, payload, "trace")
        program, note = stored(("damaged",), squared(made))
        assert note == {"places": (0,)}
        assert program.operations == 1
    assert len(made) == 4
    file = cache.folder / f"{key}.trace"
    file.write_bytes(file.read_bytes()[:-1] + b"x")  # as a bad disk would
    stored(("damaged",), squared(made))
    assert len(made) == 5


def test_a_function_that_is_another_when_traced_again_is_an_error():
    stored(("changing",), squared([]))
    again, _ = stored(("changing",), squared([], 2.0))
    with pytest.raises(CompileError, match="traced again, it is another function"):
        again.sources  # noqa: B018


SECOND = """
import sys, torch, adjoin
from adjoin.compiler.ir import program
from adjoin.compiler.autodiff import derivatives

if sys.argv[1] == "second":
    def refuse(*_, **__):
        raise AssertionError("traced or differentiated")
    program.make_program = derivatives.make_program = refuse

model = adjoin.robots.load("two_link")
sim = adjoin.Simulator(model, dt=0.01)
state = sim.state(dtype=torch.float64)
gains = torch.ones(2, dtype=torch.float64, requires_grad=True)
path = sim.rollout(state, steps=3, controller=lambda q, v, gains: -gains * v - 2.0 * q + 1.0, tensors={"gains": gains})
path.q[-1].sum().backward()
print(path.q[-1].tolist(), gains.grad.tolist())
"""


def test_a_second_process_does_not_trace(tmp_path):
    found = []
    script = tmp_path / "second.py"
    script.write_text(SECOND)
    for turn in ("first", "second"):
        environment = {**os.environ, "ADJOIN_CACHE_DIR": str(tmp_path / "cache")}
        run = subprocess.run([sys.executable, str(script), turn], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        found.append(run.stdout)
    assert found[0] == found[1]
    assert math.isfinite(float(found[0].split("[")[1].split(",")[0]))


def test_a_note_that_cannot_be_stored_is_no_error():
    made = []

    def make():
        program, _ = squared(made)()
        return program, lambda: None

    for _ in range(2):
        stored(("unpickled",), make)
    assert len(made) == 2
    assert trace_cache._unpack(b"") is None
