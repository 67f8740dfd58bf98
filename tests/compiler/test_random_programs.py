"""Four thousand random graphs a run: every way of running them agrees, and their derivatives are derivatives.

`ADJOIN_RANDOM_PROGRAMS=1000 pytest tests/compiler/test_random_programs.py` for more: fifty graphs a program.
"""

import itertools
import os

import pytest
import torch
from kernel_checks import close, host_targets, run_on
from random_programs import STEPS, random_program

from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime.cpu import frame
from adjoin.compiler.runtime.interpreter import interpret
from adjoin.trace import loop

PROGRAMS = int(os.environ.get("ADJOIN_RANDOM_PROGRAMS", "80"))
GRAPHS = 50
BATCH = 21
INTEGERS = {"steps": STEPS}


def make_inputs(seed, dtype=torch.float64, batch=BATCH):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, 6), (batch, 3), (1, 2), (STEPS, batch, 2)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_graphs(seed):
    program = random_program(seed, GRAPHS)
    check_values(program, seed)
    check_derivatives(program, seed)


@pytest.fixture(params=[0, 12], ids=["stored", "computed again"])
def _hardly_any_registers(monkeypatch, request):
    """What large kernels do, on small ones: values wait in memory or are computed again, inside of loops too."""
    for name, value in (("LARGE_PROGRAM", 0), ("REGISTERS", 8), ("BLOCK", 32), ("REPEATS", request.param)):
        monkeypatch.setattr(frame, name, value)
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "off")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.usefixtures("_hardly_any_registers")
def test_random_graphs_with_hardly_any_registers(seed):
    check_values(random_program(seed, GRAPHS), seed)


@pytest.mark.usefixtures("_hardly_any_registers")
def test_a_loop_that_carries_more_than_there_are_registers():
    def many(x):
        def body(_, carry):
            mixed = [a + 0.1 * b for a, b in zip(carry, carry[::-1], strict=True)]
            return [0.5 * (a + b * sum(mixed)) for a, b in zip(carry, mixed, strict=True)]

        last = loop(3, body, list(0.1 * x))
        return [a * b for a, b in itertools.pairwise(last)]

    program, _ = trace("many", many, [TensorSpec("x", (20,))])
    x = torch.linspace(-1, 1, BATCH * 20, dtype=torch.float64).reshape(BATCH, 20)
    for each, inputs in ((program, [x]), (vjp(program, [True])[0], [x, x[:, 1:].contiguous()])):
        (got,) = run_on(host_targets()[0], each, inputs, {})
        assert close(interpret(each, inputs, {})[0], got, 1e3).all()


def check_values(program, seed):
    """Interpreter = compiled, f32 and f64, at every vector width; equal bits where the operations are equal."""
    targets = host_targets()
    for dtype in (torch.float64, torch.float32):
        inputs = make_inputs(seed, dtype)
        reference = interpret(program, inputs, INTEGERS)
        exact = interpret(program, [t.double() for t in inputs], INTEGERS)
        # A program is not stable where rounding its inputs moves its result: near a jump or a pole.
        nudged = interpret(program, [t.double() * (1 + 1e-6) for t in inputs], INTEGERS)
        stable = [close(a, b, 1e11) for a, b in zip(exact, nudged, strict=True)]
        widest = run_on(targets[0], program, inputs, INTEGERS)
        for a, b, ok in zip(reference, widest, stable, strict=True):
            assert (close(a, b, 3e3) | ~ok).all()
            assert ok.double().mean() > 0.8
        variants = [run_on(targets[0], program, inputs, INTEGERS, scalar=True)]
        variants += [run_on(target, program, inputs, INTEGERS) for target in targets[1:]]
        for target, results in zip([targets[0], *targets[1:]], variants, strict=True):
            for a, b, ok in zip(widest, results, stable, strict=True):
                if target.fma == targets[0].fma:
                    assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
                else:
                    assert (close(a, b, 3e3) | ~ok).all()


def check_derivatives(program, seed):
    """Forward mode = finite differences, reverse mode = transposed forward mode, each order over each."""
    target = host_targets()[0]
    inputs = make_inputs(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    tangents = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in inputs]
    pushed, positions = jvp(program, [True] * 4)
    assert positions == [0, 1]
    forward = run_on(target, pushed, [*inputs, *tangents], INTEGERS)

    def shifted(step):
        return interpret(program, [x + step * t for x, t in zip(inputs, tangents, strict=True)], INTEGERS)

    def slope(step):
        return [(a - b) / (2 * step) for a, b in zip(shifted(step), shifted(-step), strict=True)]

    for moved, coarse, fine in zip(forward, slope(2e-6), slope(1e-6), strict=True):
        smooth = (coarse - fine).abs() <= 1e-5 * (1 + fine.abs())  # no kink or jump within reach
        assert smooth.double().mean() > 0.8
        assert (((moved - fine).abs() <= 1e-4 * (1 + fine.abs())) | ~smooth).all()

    cotangents = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in forward]
    pulled, positions = vjp(program, [True] * 4)
    backward = run_on(target, pulled, [*inputs, *cotangents], INTEGERS)
    assert all(g.isfinite().all() for g in backward)
    duality([(cotangents, forward)], [(backward, [tangents[i] for i in positions])])

    if seed % 10:
        return  # second order, ten times the code, for every tenth program
    more = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in [*inputs, *cotangents]]
    weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in backward]
    over_forward, moving = jvp(pulled, [True] * len(more))
    second = run_on(target, over_forward, [*inputs, *cotangents, *more], INTEGERS)
    over_reverse, positions = vjp(pulled, [True] * len(more))
    twice = run_on(target, over_reverse, [*inputs, *cotangents, *weights], INTEGERS)
    duality([([weights[i] for i in moving], second)], [(twice, [more[i] for i in positions])])


def duality(left, right):
    """<c, J d> = <J' c, d>."""
    a, b = (sum((x * y).sum() for xs, ys in side for x, y in zip(xs, ys, strict=True)) for side in (left, right))
    size = sum((x * y).abs().sum() for xs, ys in left for x, y in zip(xs, ys, strict=True))
    assert abs(a - b) <= 1e-9 * (1 + size)
