import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.ir.graph import Graph
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.errors import TraceError


def traced(function, size=3):
    return trace("f", function, [TensorSpec("x", (size,))])[0]


def nodes(function, size=3):
    return [node.op for node in traced(function, size).schedule.order if node.op != "input"]


def test_kernels_with_scratch_arrays_of_other_sizes_differ():
    def place(size):
        def function(x):
            array = at.scratch(size)
            array[at.to_index(x[0])] = x[1]  # an index outside is clamped to the size
            return array[at.to_index(x[2])]

        return traced(function)

    assert place(8).digest == place(8).digest
    assert place(8).digest != place(9).digest


def test_equal_terms_are_one_node():
    graph = Graph()
    x, y = (graph.fresh("input", (), i) for i in range(2))
    assert (x + y) is (y + x)
    assert x * y is y * x
    assert x.sin() is at.sin(x)
    assert (x - y) is not (y - x)
    assert graph.const(0.0) is not graph.const(-0.0)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: 0 * x[0] + 1 * x[1] - 0, []),
        (lambda x: x[0] * 0.0 / x[1], ["const"]),
        (lambda x: (-x[0]).__neg__(), []),
        (lambda x: x[0] + -x[1], ["sub"]),
        (lambda x: (-x[0]) * (-x[1]), ["mul"]),
        (lambda x: x[0] - x[0], ["const"]),
        (lambda x: 2.0 * (3.0 * x[0]), ["const", "mul"]),
        (lambda x: x[0] / 4.0, ["const", "mul"]),
        (lambda x: x[0] ** 2, ["mul"]),
        (lambda x: x[0] ** 0, ["const"]),
        (lambda x: x[0] ** 0.5, ["sqrt"]),
        (lambda x: x[0] ** -1, ["const", "div"]),
        (lambda x: at.select(x[0] < x[1], x[2], x[2]), []),
        (lambda x: at.minimum(x[0], x[0]), []),
        (lambda x: at.sin(0.0) + at.cos(0.0) * x[0], []),
        (lambda x: abs(-x[0]), ["abs"]),
    ],
)
def test_folding(function, expected):
    assert sorted(nodes(function)) == sorted(expected)


@pytest.mark.parametrize("name", ["sqrt", "sin", "cos", "tan", "asin", "acos", "exp", "log", "tanh", "sign", "floor"])
@pytest.mark.parametrize("value", [0.3, -0.7, 0.0, 2.0, -3.5, 900.0, math.inf, -math.inf, math.nan])
def test_folding_a_constant_is_what_torch_computes(name, value):
    expected = getattr(torch, name)(torch.tensor(value, dtype=torch.float64)).item()
    for got in (getattr(at, name)(value), at.__dict__[name](Graph().const(value)).value):
        assert got == pytest.approx(expected, rel=1e-15, nan_ok=True) or (math.isnan(value) and math.isnan(got))


def test_functions_work_on_floats_tensors_and_traced_scalars():
    def formula(a, b):
        return at.select(a > b, at.sin(a) * b, at.atan2(a, b)) + at.maximum(a, 0.5) / (1 + at.sqrt(b * b))

    a, b = 0.8, -0.3
    tensors = torch.tensor([a]), torch.tensor([b])
    program = at.function(a=(), b=())(lambda a, b: formula(a, b))
    assert formula(a, b) == pytest.approx(formula(*tensors).item(), rel=1e-6)
    assert formula(a, b) == pytest.approx(program(*tensors).item(), rel=1e-6)


def test_numpy_object_arrays_work():
    program = at.function(x=3)(lambda x: np.sin(x) @ x + np.sum(x**2) + np.dot(np.outer(x, x)[0], x))
    x = torch.randn(5, 3, dtype=torch.float64)
    expected = (x.sin() * x).sum(-1) + (x**2).sum(-1) + x[:, 0] * (x * x).sum(-1)
    torch.testing.assert_close(program(x), expected)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: 1.0 if x[0] > 0 else 2.0, r"use adjoin\.trace\.select"),
        (lambda x: max(x[0], x[1]), "minimum and maximum"),
        (lambda x: math.sin(x[0]), "math functions cannot"),
        (lambda x: float(x[0]), "has no number yet"),
        (lambda x: x[0] + torch.ones(3), "make the tensor a named input"),
        (lambda x: x[0] ** x[1], r"exp\(y \* log\(x\)\)"),
        (lambda x: x[0] & x[1], "'and' got a float"),
        (lambda x: (x[0] > 1) + 1.0, "'add' got a bool"),
        (lambda x: at.select(x[0], x[1], x[2]), r"select\(condition, a, b\) got a float"),
        (lambda x: x[0] + None, "expected a traced scalar or a number, got NoneType"),
        (lambda x: x[0] + "1", "expected a traced scalar or a number, got str"),
        (lambda x: list(x[0]), "cannot be iterated"),
        (lambda x: None, "returned None"),
        (lambda x: at.loop(3, lambda i, c: [c[0], c[0]], [x[0]]), "changed the structure of the carry"),
        (lambda x: at.loop(3, lambda i, c: c > 0, x[0]), "changed a float of the carry to a bool"),
        (lambda x: at.loop(-1, lambda i, c: c, x[0]), "whole number of at least 0"),
        (
            lambda x: at.loop(x[0], lambda i, c: c, x[0]),
            "a traced trip count is an integer",
        ),
        (lambda x: at.scan(lambda i, c, _: c, x[0], length=3), "returns two things"),
        (lambda x: at.scan(lambda i, c, _: (c, None), x[0]), "needs one length"),
        (lambda x: at.scratch([x[0]])[3], "index 3 is outside a scratch array of 1"),
        (lambda x: at.scratch([x[0]]), "returned a scratch array"),
        (lambda x: at.scratch([x[0] > 0]), "holds floats"),
    ],
)
def test_what_cannot_be_traced_says_so(function, message):
    with pytest.raises(TraceError, match=message):
        traced(function)


def test_a_value_must_not_leave_its_loop():
    kept = []

    def leak(x):
        at.loop(3, lambda i, c: kept.append(c * 2) or c, x[0])
        return kept[0] + x[0]

    with pytest.raises(TraceError, match=r"left its loop|after the loop ended"):
        traced(leak)


def test_two_functions_do_not_mix():
    kept = []
    traced(lambda x: kept.append(x[0]) or x[0])
    with pytest.raises(TraceError, match="two traced functions were mixed"):
        traced(lambda x: x[0] + kept[0])


def test_a_body_must_carry_the_scratch_it_writes():
    def wrong(x):
        memory = at.scratch([x[0], x[1]])

        def body(i, c):
            memory[0] = c
            return c

        return at.loop(2, body, x[0])

    with pytest.raises(TraceError, match="make it part of the carry"):
        traced(wrong)


def test_loops_outside_a_trace_are_refused():
    with pytest.raises(TraceError, match="inside a traced function only"):
        at.loop(3, lambda i, c: c, 1.0)


def test_dead_code_vanishes():
    def function(x):
        at.loop(5, lambda i, c: c * x[1], x[0])
        carried = at.loop(5, lambda i, c: [c[0] * 2, c[1] + c[0], c[2].exp()], [x[0], x[1], x[2]])
        return carried[0]

    (loop,) = traced(function).schedule.scans.values()
    assert loop.carry == [0]


def test_code_does_not_grow_with_the_trip_count():
    def make(count):
        return traced(lambda x: at.loop(count, lambda i, c: c * x[1] + x[2].sin(), x[0]))

    short, long = make(3), make(3000)
    assert short.operations == long.operations
    pairs = [vjp(program, [True])[0] for program in (short, long)]
    assert pairs[0].operations == pairs[1].operations


def test_the_digest_is_of_what_is_computed():
    def make(factor, name="f"):
        return trace(name, lambda x: factor * at.loop(3, lambda i, c: c * x[1], x[0]), [TensorSpec("x", (3,))])[0]

    assert make(2.0).digest == make(2.0, "g").digest
    assert make(2.0).digest != make(3.0).digest
    assert make(2.0).digest != make(2.0).with_shared([True]).digest
    assert traced(lambda x: x[0] + 0 * x[1]).digest == traced(lambda x: x[0]).digest
    assert traced(lambda x: x[0]).digest != traced(lambda x: x[1]).digest


DESCRIBE = """
import hashlib, sys
sys.path[:0] = sys.argv[1:]
from random_programs import random_program
import adjoin
from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.runtime.cpu.kernel import CpuTarget

target = CpuTarget("x86_64-unknown-linux-gnu", "haswell", "", 256, True)
model = adjoin.robots.load("two_link")
aba = at.function(q=2, v=2, tau=2)(lambda q, v, tau: adjoin.aba(model, q, v, tau))  # has an implicit rule
for program in (random_program(3, 20), aba.kernel.program):
    inputs = [True] * len(program.inputs)
    for one in (program, vjp(program, inputs)[0], jvp(program, inputs)[0]):
        texts = [target.render(one, lane).text for lane in target.lanes(64)]
        print(one.digest, one.key, *[hashlib.sha256(text.encode()).hexdigest() for text in texts])
"""


def test_digests_and_code_are_the_same_in_every_process():
    here = str(Path(__file__).parent)
    outputs = set()
    for seed in ("0", "1", "2"):
        command = [sys.executable, "-c", DESCRIBE, here, *sys.path]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        outputs.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(outputs) == 1
    lines = outputs.pop().split("\n")[:-1]
    assert len(lines) == len({line.split()[0] for line in lines}) == 6
