"""Kernels in which several warps work on the same environments have the bits of those in which one does."""

from dataclasses import replace

import pytest
import torch
from random_programs import random_program
from test_lists import compacted
from test_random_programs import INTEGERS, STEPS, make_inputs
from test_warp_emulator import CONTACT, launched, path_and_gradients
from warp_emulator import SUPPORTED, EmulatedKernel, emulate

import adjoin
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.codegen.team import fission, placement
from adjoin.compiler.codegen.team.affinity import affinity_of
from adjoin.compiler.codegen.team.fission import split_loops
from adjoin.compiler.codegen.team.placement import choose_homes, divide
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime.cuda import staging
from adjoin.compiler.runtime.cuda.kernel import CudaKernel
from adjoin.errors import InputError
from adjoin.trace import (
    cos,
    exp,
    loop,
    scratch,
    sin,
    table,
    tanh,
    to_float,
    to_index,
    when,
    while_loop,
)

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="threads are switched by code for x86-64")


def with_groups(program):
    """The same program, with the columns of each input in three groups by turns."""
    inputs = [spec if spec.shared else replace(spec, groups=turns(spec.size)) for spec in program.inputs]
    return replace(program, inputs=tuple(inputs))


def turns(size):
    return tuple(1 + i % 3 for i in range(size))


def check(program, inputs, warps, integers=None):
    """One warp and several compute the same, bit by bit."""
    bits = 64 if inputs[0].dtype == torch.float64 else 32
    alone = launched(EmulatedKernel(program, bits), inputs, integers or {})
    kernel = EmulatedKernel(program, bits, warps=warps)
    for kernel.last_first in (False, True):
        for one, other in zip(alone, launched(kernel, inputs, integers or {}), strict=True):
            assert one.isfinite().all()
            assert torch.equal(one, other)
    return kernel


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("warps", [2, 4])
@pytest.mark.parametrize("loops", ["as it pays", "always"])
def test_random_programs_and_their_gradients(seed, warps, loops, monkeypatch):
    if loops == "always":
        monkeypatch.setattr(placement, "GAIN", -1e9)
    program = random_program(seed, 12)
    inputs = make_inputs(seed, batch=40)
    check(with_groups(program), inputs, warps, INTEGERS)
    gradient = vjp(program, [True] * 4)[0]
    for spec in gradient.inputs[len(inputs) :]:
        inputs.append(torch.ones((STEPS,) * (spec.steps is not None) + (40, spec.size), dtype=torch.float64))
    check(with_groups(gradient), inputs, warps, INTEGERS)


def check_calls(monkeypatch, warps, computed):
    """What calls compute does not depend on how many warps do it."""
    results = []
    for number, last_first in ((1, False), (warps, False), (warps, True)):
        emulated = emulate(monkeypatch, number, last_first)
        results.append(computed())
        assert len(emulated.kernels) >= 2  # there and back
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("robot", ["go2", "panda"])
@pytest.mark.parametrize("name", ["rnea", "aba", "crba"])
def test_dynamics_and_their_gradients(robot, name, dtype, monkeypatch):
    def computed():
        model = adjoin.robots.load(robot)
        generator = torch.Generator().manual_seed(0)
        q = model.random((40,), dtype=dtype, generator=generator)
        v, a = torch.randn(2, 40, model.nv, generator=generator, dtype=dtype)
        leaves = [x.requires_grad_() for x in ((q,) if name == "crba" else (q, v, a))]
        result = getattr(adjoin, name)(model, *leaves)
        return result.detach(), *torch.autograd.grad(result.square().sum(), leaves)

    check_calls(monkeypatch, 4, computed)


@pytest.mark.parametrize("solver", [adjoin.Newton(), adjoin.PGS()], ids=["Newton", "PGS"])
def test_steps_in_contact_and_their_gradients(solver, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    q = torch.tensor([0.0, 0.0, 0.04, 1.0, 0.0, 0.0, 0.0, 0.2], dtype=torch.float64).repeat(33, 1)
    q[:, 2] += 0.03 * torch.rand(33, generator=generator, dtype=torch.float64)
    v = 0.3 * torch.randn(33, 7, generator=generator, dtype=torch.float64)
    check_calls(monkeypatch, 3, lambda: path_and_gradients(CONTACT, solver, q, v))


def branches_in_a_loop(x, y):
    """A branch that all environments take or none does, and one that some do, in a loop whose end differs."""
    return while_loop(lambda values: abs(values[2]) < 4.0, branches(y), list(x), 9)


def branches(y):
    """A step of a loop."""

    def inside(values):
        total = values[0] + values[1] + values[2]
        return [sin(total) * value for value in values]

    def step(i, values):
        values = when(i == 2, inside, values)
        grown = [value * 1.5 + y[k] for k, value in enumerate(values)]
        return when(values[0] * values[1] > 0.1, inside, grown)

    return step


@pytest.mark.parametrize("loops", ["as it pays", "always"])
@pytest.mark.parametrize("warps", [2, 3])
def test_branches_in_a_loop(warps, loops, monkeypatch):
    if loops == "always":
        monkeypatch.setattr(placement, "GAIN", -1e9)
    program, _ = trace("branches", branches_in_a_loop, [TensorSpec("x", (3,)), TensorSpec("y", (3,))])
    x, y, g = torch.randn(3, 70, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    check(with_groups(program), [x, y], warps)
    program, _ = trace(
        "loop", lambda x, y: loop(4, branches(y), list(x)), [TensorSpec("x", (3,)), TensorSpec("y", (3,))]
    )
    check(with_groups(vjp(program, [True, True])[0]), [x, y, g], warps)


def touching(x, w):
    """Like contacts: numbers of each step, a list of some steps, sums by body and over all, with branches."""
    bodies = table([0, 2, 1, 2, 0, 1, 1, 0])
    found = scratch(16, checked=False)

    def note(step, found):
        found[step * 2] = exp(sin(x[0] + to_float(step)) * w[0]) * tanh(x[1])
        found[step * 2 + 1] = cos(x[1] * to_float(step)) * exp(w[1] * tanh(x[0] + to_float(step)))
        return found

    found = loop(8, note, found)

    def add(step, carry):
        pushed, listed, count, total = carry
        deep = found[step * 2] * found[step * 2 + 1]
        force = [exp(-deep * deep) * (w[k] + tanh(deep * w[k])) for k in range(3)]
        for k in range(3):
            pushed.add(bodies[step] * 3 + k, force[k])

        def append(carry):
            listed, count = carry
            listed[to_index(count)] = sin(force[0] + force[1]) * exp(tanh(force[2] * deep)) + cos(deep) * tanh(force[1])
            return listed, count + 1.0

        listed, count = when(deep > 0.0, append, (listed, count))
        return pushed, listed, count, total + force[0] * force[1]

    start = (scratch(9, checked=False), scratch(8), 0.0 * x[0], x[0])
    pushed, listed, count, total = loop(8, add, start)
    return [*[pushed[k] for k in range(9)], *[listed[k] for k in range(8)], count, total]


def test_steps_of_loops_are_shared():
    program = with_groups(trace("touching", touching, [TensorSpec("x", (2,)), TensorSpec("w", (3,))])[0])
    split = split_loops(program)
    assert len(split.schedule.scans) == len(program.schedule.scans) + 1
    affinity = affinity_of(split)
    divided = divide(split.schedule, affinity, choose_homes(split.schedule, affinity, 4), 4, split.targets)
    assert [scan.spread for scan in divided.scans.values()] == [True, True]
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(70, n, generator=generator, dtype=torch.float64) for n in (2, 3))
    check(program, [x, w], 4)


@pytest.mark.parametrize("steps", [3, 32])
@pytest.mark.parametrize("gain", [100.0, -1e9])
def test_loops_whose_steps_are_taken_a_few_at_a_time(steps, gain, monkeypatch):
    monkeypatch.setattr(fission, "CHUNK", steps)
    monkeypatch.setattr(fission, "LEAST", -1e9)
    monkeypatch.setattr(placement, "GAIN", gain)
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(70, n, generator=generator, dtype=torch.float64) for n in (2, 3))
    check(with_groups(trace("touching", touching, [TensorSpec("x", (2,)), TensorSpec("w", (3,))])[0]), [x, w], 4)
    listed, _ = trace("compacted", compacted, [TensorSpec("x", (8,)), TensorSpec("w", (8,))])
    x, w = torch.randn(2, 70, 8, generator=generator, dtype=torch.float64)
    check(with_groups(listed), [x, w], 4)
    gradient = vjp(listed, [True, True])[0]
    check(with_groups(gradient), [x, w, *[torch.ones(70, s.size, dtype=x.dtype) for s in gradient.inputs[2:]]], 4)


def pushes(x, w):
    """Forces on bodies, and what only some of the steps add to another array."""
    bodies = table([0, 2, 1, 2, 0, 1, 1, 0])

    def add(step, carry):
        pushed, rare = carry
        for k in range(4):
            pushed.add(bodies[step] * 4 + k, exp(tanh(x[0] + to_float(step))) * w[k])

        def more(rare):
            rare.add(bodies[step], x[1])
            return rare

        return pushed, when(sin(x[0] + to_float(step)) > 0.0, more, rare)

    pushed, rare = loop(8, add, (scratch(12, checked=False), scratch(3, checked=False)))
    return [*[pushed[k] for k in range(12)], *[rare[k] for k in range(3)]]


def test_sums_of_loops_are_shared(monkeypatch):
    monkeypatch.setattr(placement, "GAIN", 0.0)
    program = with_groups(trace("pushes", pushes, [TensorSpec("x", (2,)), TensorSpec("w", (4,))])[0])
    split = split_loops(program)
    affinity = affinity_of(split)
    divided = divide(split.schedule, affinity, choose_homes(split.schedule, affinity, 4), 4, split.targets)
    assert sorted((scan.apart, scan.spread) for scan in divided.scans.values()) == [(True, False), (True, True)]
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(70, n, generator=generator, dtype=torch.float64) for n in (2, 4))
    check(program, [x, w], 4)


def limbs_and_their_sum(x):
    """A sum over what is computed from each of three numbers, and what one of them makes of it."""
    own = [sin(value) * value for value in x]
    total = own[0] + own[1] + own[2]
    return [*own, total, total * x[0]]


def test_values_that_find_no_room_in_shared_memory_pass_through_the_workspace(monkeypatch):
    program = with_groups(trace("sums", limbs_and_their_sum, [TensorSpec("x", (3,))])[0])
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shared = check(program, [x], 3)
    monkeypatch.setattr(staging, "EXCHANGE", 0)
    elsewhere = check(program, [x], 3)
    assert elsewhere.rendered.shared < shared.rendered.shared
    assert elsewhere.rendered.workspace[""] > shared.rendered.workspace[""]


def beyond_the_end(x):
    """Elements and sums of which many are the last one, since their indices are too large."""
    written, added = scratch(4), scratch(6)

    def step(i, carry):
        written, added = carry
        written[i] = exp(tanh(x[0] * to_float(i))) * x[1]
        for k in range(3):
            added.add(i * 3 + k, exp(x[2] * to_float(i + k)) * x[1])
        return written, added

    written, added = loop(8, step, (written, added))
    return [*[written[k] for k in range(4)], *[added[k] for k in range(6)]]


def test_indices_beyond_the_end_are_in_order(monkeypatch):
    monkeypatch.setattr(placement, "GAIN", -1e9)
    program = with_groups(trace("beyond", beyond_the_end, [TensorSpec("x", (3,))])[0])
    check(program, [torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)], 4)


def test_how_many_warps_is_said_by_a_variable(monkeypatch):
    inputs = [TensorSpec("x", (3,), groups=turns(3))]
    program = trace("sums", limbs_and_their_sum, inputs)[0]
    cuda = CudaKernel(program, 32, torch.device("cuda", 0))
    assert cuda.warps(64) == 1
    monkeypatch.setenv("ADJOIN_WARPS", "4")
    assert (cuda.warps(64), cuda.warps(1 << 20)) == (4, 1)
    assert CudaKernel(trace("sums", limbs_and_their_sum, [TensorSpec("x", (3,))])[0], 32, cuda.device).warps(64) == 1
    for wrong in ("0", "17", "many"):
        monkeypatch.setenv("ADJOIN_WARPS", wrong)
        with pytest.raises(InputError, match="ADJOIN_WARPS must be a number of warps from 1 to 16"):
            cuda.warps(64)
