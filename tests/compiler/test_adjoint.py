"""Derivatives: the conventions at singular points, and kernels with loops through torch's own checks."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from kernel_checks import DEVICES, check_kernel
from random_programs import random_program

from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.ir.program import TensorSpec


def gradient(function, *values, device="cpu"):
    names = [f"x{i}" for i in range(len(values))]
    kernel = at.function(**dict.fromkeys(names, ()))(lambda **inputs: function(*inputs.values()))
    leaves = [torch.tensor(v, dtype=torch.float64, device=device, requires_grad=True) for v in values]
    return [g.item() for g in torch.autograd.grad(kernel(*leaves), leaves)]


INF = math.inf
CONVENTIONS = [
    (lambda x: at.sqrt(x), (0.0,), [0.0]),
    (lambda x, y, z: at.sqrt(x * x + y * y + z * z), (0.0, 0.0, 0.0), [0.0, 0.0, 0.0]),
    (lambda x: at.asin(x), (1.0,), [0.0]),
    (lambda x: at.acos(x), (-1.0,), [0.0]),
    (lambda y, x: at.atan2(y, x), (0.0, 0.0), [0.0, 0.0]),
    (lambda x: abs(x), (0.0,), [0.0]),
    (lambda x: at.sign(x), (0.5,), [0.0]),
    (lambda x: at.floor(x), (0.5,), [0.0]),
    (lambda x, y: at.minimum(x, y), (1.0, 1.0), [1.0, 0.0]),
    (lambda x, y: at.maximum(x, y), (1.0, 1.0), [1.0, 0.0]),
    (lambda x: at.maximum(x, 0.0), (0.0,), [1.0]),
    # What a select does not take has no influence, however singular it is.
    (lambda x: at.select(x > 0.0, at.sqrt(x), 0.0), (0.0,), [0.0]),
    (lambda x: at.select(x > 0.0, at.log(x), x), (0.0,), [1.0]),
    (lambda x: at.select(x > 0.0, 1.0 / x, 2.0 * x), (0.0,), [2.0]),
    (lambda x, y: at.select(x != 0.0, (y / x) * y, y), (0.0, 3.0), [0.0, 1.0]),
    (lambda x: at.select(x < 1.0, x, at.exp(1e4 * x)), (0.9,), [1.0]),
    (lambda x: at.select(x > 0.0, at.sqrt(x), 0.0) + at.select(x > 1.0, 1.0 / x, 0.0), (0.0,), [0.0]),
    (lambda x: at.select(x > 0.0, at.log(x) * 2, 0.0) + at.select(x > 1.0, at.log(x), 0.0) + x, (0.0,), [1.0]),
    (lambda x: at.select(x > 0.0, at.loop(2, lambda i, c: c / x, x), x), (0.0,), [1.0]),
    (lambda x: at.select(x > 0.0, at.loop(2, lambda i, c: at.select(x > 1.0, c / x, c), 1.0 / x), x), (0.0,), [1.0]),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("function", "point", "expected"), CONVENTIONS)
def test_singular_points(function, point, expected, device):
    assert gradient(function, *point, device=device) == expected


@pytest.mark.parametrize(("function", "point", "expected"), CONVENTIONS[:20])
def test_forward_mode_has_the_same_conventions(function, point, expected):
    names = [f"x{i}" for i in range(len(point))]
    kernel = at.function(**dict.fromkeys(names, ()))(lambda **inputs: function(*inputs.values()))
    point = torch.tensor(point, dtype=torch.float64)
    got = torch.func.jacfwd(lambda p: kernel(*p))(point)
    assert got.tolist() == expected


def test_a_masked_gradient_stays_linear_in_the_cotangent():
    """Its derivative at a zero cotangent is the local slope, not zero: second derivatives need that."""
    kernel = at.function(x=())(lambda x: at.select(x > 0.0, at.log(x), 0.0))
    x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    cotangent = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(kernel(x), x, cotangent, create_graph=True)
    (back,) = torch.autograd.grad(slope, cotangent)
    assert back.item() == 0.5


def straight(x, y):
    rotated = np.array([[y[0], -y[1]], [y[1], y[0]]]) @ x[:2]
    return {"a": at.sin(rotated) * x[2], "b": at.atan2(x[0], y[0]) / (2 + at.cos(x[1])), "c": np.outer(x, y)}


def newton(x, y):
    """A square root by iteration: a carried scalar and captures."""
    return at.loop(
        6, lambda i, r: 0.5 * (r + (1.0 + x[0] * x[0]) / r) + 0.01 * at.to_float(i) * y[0], 1.0 + y[1] * y[1]
    )


def sweeps(x, y):
    """Projected Gauss-Seidel: a loop over rows inside a loop of sweeps, on a scratch array."""
    rows = at.scratch([0.1 * x[0], 0.2 * x[1], 0.3 * x[2]])
    matrix = at.scratch([2.0 + y[0] * y[0], 0.3, 0.1, 0.3, 2.0 + x[0] * x[0], 0.2, 0.1, 0.2, 2.0])

    def row(i, z):
        residual = x[0] + 0.1 * at.to_float(i) - y[1]
        for j in range(3):
            residual = residual + matrix[3 * i + j] * z[j]
        z[i] = at.maximum(z[i] - residual / matrix[4 * i], -0.6)
        return z

    solved = at.loop(4, lambda s, z: at.loop(3, row, z), rows)
    matrix[0] = x[2]  # overwritten after the loop that read it, whose adjoint reads it again
    return [solved[i] for i in range(3)] + [matrix[0] * solved[1]]


def flags(x, y):
    """A condition in the carry."""

    def body(i, carry):
        value, hit = carry
        following = value * 1.3 + 0.2 * x[1]
        return at.select(hit, value, following), hit | (following > y[0] + 1.0)

    value, hit = at.loop(5, body, (x[0], x[0] > 10.0))
    return [value, at.select(hit, value * value, x[2])]


def histories(x, y):
    """Arrays so large that loops record and restore them, carried by a loop in a loop and by a branch."""
    size = 35
    values = at.scratch([x[i % 3] * (1.0 + 0.1 * i) + 0.01 * y[i % 2] for i in range(size)])

    def mix(i, z):
        other = i * 3
        z[i] = at.sin(z[i] * y[0] + 0.3 * z[other])
        return z

    def sweep(s, carry):
        z, total = carry
        z = at.loop(11, mix, z)
        z = at.when(total > x[1], lambda z: at.loop(3, mix, z), z)
        return z, total + z[s] * z[30]

    values, total = at.loop(4, sweep, (values, x[0]))
    return [total, values[3], values[10] * values[34]]


@pytest.mark.parametrize("function", [straight, newton, sweeps, flags, histories])
def test_kernels_through_every_check(function):
    kernel = at.function(x=3, y=2)(function).kernel
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn((37, n), generator=generator, dtype=torch.float64) for n in (3, 2)]
    check_kernel(kernel, inputs, scale=256)


def test_a_rollout_through_every_check():
    """A pendulum with a controller, integrated over a stream of controls, gives the states as a stream."""

    def rollout(state, gain, controls):
        def step(t, carry, u):
            angle, speed = carry
            torque = u[0] - gain[0] * at.tanh(speed)
            for_each = at.loop(2, lambda k, c: c + 0.05 * (torque - at.sin(angle) - 0.1 * c), speed)
            following = (angle + 0.1 * for_each, for_each)
            return following, [*following, torque * torque + u[1]]

        last, states = at.scan(step, (state[0], state[1]), controls)
        (total,), _ = at.scan(lambda t, c, s: ([c[0] + s[2]], None), [0.0], states)
        return {"last": list(last), "states": states, "cost": total}

    function = at.function(state=2, gain=1, controls=at.PerStep(2))(rollout)
    generator = torch.Generator().manual_seed(4)
    shapes = [(19, 2), (19, 1), (7, 19, 2)]
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    check_kernel(function.kernel, inputs, (7,), scale=256)
    out = function(*inputs)
    torch.testing.assert_close(out["states"][-1, :, :2], out["last"])
    torch.testing.assert_close(out["states"][..., 2].sum(0), out["cost"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [0, 1, 300])
def test_run_time_trip_counts(steps, device):
    """The history of a run-time loop needs a workspace of run-time size."""
    power = at.function(x=2, n=at.Integer)(lambda x, n: at.loop(n, lambda i, c: c * x[0] + x[1], x[1]))
    x = torch.tensor([[0.9, 0.1]] * 70, dtype=torch.float64, device=device, requires_grad=True)
    (got,) = torch.autograd.grad(power(x, steps).sum(), x)
    y = x.detach().clone().requires_grad_()
    value = y[:, 1]
    for _ in range(steps):
        value = value * y[:, 0] + y[:, 1]
    (expected,) = torch.autograd.grad(value.sum(), y)
    torch.testing.assert_close(got, expected)


def test_a_long_history_leaves_the_stack():
    """More than fits on a stack goes to the workspace."""
    kernel = at.function(x=3)(
        lambda x: at.loop(20_000, lambda i, c: [c[0] * 0.999 + c[1] * 1e-3, c[1] * c[0], c[2]], list(x))
    )
    x = torch.tensor([0.5, 0.9, 0.1], dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(kernel(x)[0], x)
    a, b, ga = 0.5, 0.9, torch.eye(3, dtype=torch.float64)
    for _ in range(20_000):
        ga = torch.stack([ga[0] * 0.999 + ga[1] * 1e-3, ga[1] * a + ga[0] * b, ga[2]])
        a, b = a * 0.999 + b * 1e-3, b * a
    torch.testing.assert_close(got, ga[0])


def test_unwanted_gradients_cost_nothing():
    function = at.function(x=2, y=2)(lambda x, y: at.loop(3, lambda i, c: c * x[0] + y[1].sin(), x[1]))
    both, _ = vjp(function.kernel.program, [True, True])
    one, positions = vjp(function.kernel.program, [False, True])
    assert positions == [1]
    assert one.operations < both.operations
    none, positions = vjp(at.function(x=2, y=2)(lambda x, y: x[0] * 2).kernel.program, [False, True])
    assert positions == []
    assert none.operations == 0


def test_a_stream_used_twice_sums_its_gradients():
    def function(u):
        (a,), first = at.scan(lambda t, c, e: ([c[0] + e[0] * e[1]], [c[0] * e[0]]), [0.0], u)
        (b,), _ = at.scan(lambda t, c, es: ([c[0] * 0.5 + es[0][1] * es[1][0]], None), [1.0], [u, first], reverse=True)
        return a * b

    kernel = at.function(u=at.PerStep(2))(function).kernel
    check_kernel(
        kernel, [torch.randn(4, 9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))], (4,), 1e4
    )


def test_slots_are_plain_values():
    assert TensorSpec("x", (2, 3)).size == 6
    assert TensorSpec("x", ()) == TensorSpec("x", ())


def described(graph):
    """Everything in a graph that somebody could change, bodies of loops included."""
    bodies = [node.data for node in graph.nodes if node.op == "scan"]
    parts = [f"{x.carry} {x.captures} {x.results} {x.outputs} {x.recorded} {described(x.graph)}" for x in bodies]
    return [(node.op, str(node.args), node.width) for node in graph.nodes], list(graph.captures), graph.closed, parts


def test_differentiating_leaves_the_graph_alone_and_may_be_done_by_many_threads():
    program = random_program(5, 20)
    graph = program.targets[0][0].graph
    before = described(graph)
    choices = [[bool(i & 1 << k) for k in range(4)] for i in range(1, 16)]

    def differentiate(wanted):
        return vjp(program, wanted)[0].digest, jvp(program, wanted)[0].digest

    expected = [differentiate(wanted) for wanted in choices]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(15) as pool:
            for _ in range(3):
                assert list(pool.map(differentiate, choices)) == expected
    finally:
        sys.setswitchinterval(interval)
    assert str(described(graph)) == str(before)


def test_a_stream_of_conditions_and_counters_is_one_of_numbers():
    @at.function(x=2)
    def signs(x):
        def step(i, z, _):
            return 0.5 * z - x[1], [z > 0.0, i, z * z]

        return at.scan(step, x[0], length=3)[1]

    x = torch.tensor([[1.0, 0.6], [-1.0, -2.0], [0.0, 0.1]], dtype=torch.float64)
    assert signs(x)[:, :, 0].tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    assert signs(x)[:, 0, 1].tolist() == [0.0, 1.0, 2.0]
    check_kernel(signs.kernel, [torch.randn(21, 2, dtype=torch.float64)])
