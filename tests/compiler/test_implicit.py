import pytest
import torch
from kernel_checks import check_kernel

import adjoin
from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.errors import TraceError


@adjoin.function(p=1)
def square_root(p):
    x = at.loop(40, lambda _, x: 0.5 * (x + p[0] / x), 1.0)
    return at.implicit([x], lambda x: [x[0] * x[0] - p[0]], lambda b: [b[0] / (2.0 * x)])


def curves_meet(p, transposed=True):
    """Where x + p1 y² = p0 meets y³ + x = 2, by Newton's method: a derivative matrix that is not symmetric."""

    def residual(x, y):
        return x + p[1] * y * y - p[0], y * y * y + x - 2.0

    def solve(y, b):
        determinant = 3.0 * y * y - 2.0 * p[1] * y
        return [(3.0 * y * y * b[0] - 2.0 * p[1] * y * b[1]) / determinant, (b[1] - b[0]) / determinant]

    def solve_transposed(y, b):
        determinant = 3.0 * y * y - 2.0 * p[1] * y
        return [(3.0 * y * y * b[0] - b[1]) / determinant, (b[1] - 2.0 * p[1] * y * b[0]) / determinant]

    def step(_, carry):
        x, y = carry
        dx, dy = solve(y, residual(x, y))
        return x - dx, y - dy

    x, y = at.loop(20, step, (0.5, 1.2))
    return at.implicit(
        [x, y],
        lambda found: residual(*found),
        lambda b: solve(y, b),
        (lambda b: solve_transposed(y, b)) if transposed else None,
    )


@adjoin.function(p=1, n=adjoin.Integer)
def nested_roots(p, n):
    def step(_, x):
        y = at.sqrt(p[0] * x)
        return at.implicit([y], lambda s: [s[0] * s[0] - p[0] * x], lambda b: [b[0] / (2.0 * y)])[0]

    return at.loop(n, step, 2.0)


def positive(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5


def test_a_scalar_root_passes_the_common_checks_to_second_order():
    check_kernel(square_root.kernel, [positive(5, 1)])


def test_a_system_without_symmetry_passes_the_common_checks():
    check_kernel(adjoin.function(p=2)(curves_meet).kernel, [positive(5, 2)], scale=512)


def test_the_transposed_solve_matters():
    wrong = adjoin.function(p=2)(lambda p: curves_meet(p, transposed=False))
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(wrong, positive(2, 2).requires_grad_())


def test_inside_a_loop():
    check_kernel(nested_roots.kernel, [positive(5, 1)], integers=(4,))


def test_third_derivative():
    p = positive(4, 1).requires_grad_()
    value = square_root(p)
    for _ in range(3):
        value = torch.autograd.grad(value.sum(), p, create_graph=True)[0]
    torch.testing.assert_close(value, 0.375 * p**-2.5)


def test_the_gradient_does_not_run_the_loop_backwards():
    program = square_root.kernel.program
    gradient, _ = vjp(program, [True])
    assert sum(node.op == "scan" for node in gradient.schedule.order) == 1
    assert gradient.operations <= program.operations + 4


def test_equal_values_with_other_rules_are_other_kernels():
    def double(residual):
        return adjoin.function(p=1)(lambda p: at.implicit([2.0 * p[0]], residual(p), lambda b: b))

    kept, cut = double(lambda p: lambda x: [x[0] - 2.0 * p[0]]), double(lambda p: lambda x: x)
    p = positive(3, 1).requires_grad_()
    assert torch.equal(kept(p), cut(p))
    assert torch.equal(torch.autograd.grad(kept(p).sum(), p)[0], torch.full_like(p, 2.0))
    assert torch.equal(torch.autograd.grad(cut(p).sum(), p)[0], torch.zeros_like(p))


def test_numbers_come_back_as_they_are():
    assert at.implicit([1.5], lambda x: x, lambda b: b) == [1.5]


def test_a_residual_of_the_wrong_length_is_refused():
    with pytest.raises(TraceError, match="2 values need as many residuals"):
        adjoin.function(p=2)(lambda p: at.implicit(list(p), lambda x: [x[0]], lambda b: b))


def test_guarded_gradients_are_zero_where_the_condition_does_not_hold():
    @adjoin.function(x=2, scale=())
    def ratio(x, scale):
        value = scale * x[0] / x[1]
        at.guard(abs(value) < 100.0)
        return value

    x = torch.tensor([[1.0, 2.0], [1.0, 0.0], [torch.nan, 1.0], [3.0, -1.5]], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    value = ratio(x, scale)
    gradient, shared = torch.autograd.grad(value.nan_to_num(0.0, 0.0, 0.0).sum(), [x, scale], create_graph=True)
    expected = torch.tensor([[1.0, -0.5], [0.0, 0.0], [0.0, 0.0], [-4.0 / 3.0, -8.0 / 3.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(shared, torch.tensor(-1.5, dtype=torch.float64))
    (second,) = torch.autograd.grad(gradient.sum() + shared, x)
    assert (second[1:3] == 0.0).all()
    assert (second[3] != 0.0).all()
