import math
import subprocess
import sys

import pytest
import torch
from kernel_checks import check_kernel

import adjoin
from adjoin import trace as at
from adjoin.compiler.runtime.cpu import frame
from adjoin.errors import TraceError


@adjoin.function(x=3, y=1)
def sometimes(x, y):
    def inside(values):
        return at.loop(5, lambda _, z: [0.5 * z[0] + at.exp(y[0]), 0.3 * z[0] * z[1] + y[0]], values)

    found = at.when(x[0] > 0.0, inside, [x[0], x[1] * y[0]])
    return [found[0] + x[2], found[1] * found[1]]


@adjoin.function(x=2, n=adjoin.Integer)
def in_a_loop(x, n):
    def step(i, z):
        return at.when((z[0] < 1.0) | (i == 2), lambda z: [z[0] * z[0] + x[0], z[1] / x[1]], [z[0] - 0.1, z[1]])

    return at.loop(n, step, [x[0], x[1]])


@adjoin.function(x=2)
def one_in_another(x):
    def outer(z):
        low = at.when(z < 0.5, lambda a: at.sin(a) * x[1], z * x[0])
        return at.when(low > 0.0, lambda a: at.sqrt(a), low)

    return at.when(x[0] > -0.5, outer, x[1])


def mixed(*shape):
    """Numbers of both signs, so that vectors have environments of both kinds, of one kind and of the other."""
    found = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found[:16, 0] = -found[:16, 0].abs() - 0.6
    found[16:32, 0] = found[16:32, 0].abs()
    return found


def test_values_and_derivatives_pass_the_common_checks_to_second_order():
    check_kernel(sometimes.kernel, [mixed(43, 3), mixed(43, 1)])


def test_in_a_loop_it_passes_the_common_checks():
    check_kernel(in_a_loop.kernel, [0.3 * mixed(43, 2) + 1.0], (4,))


def test_one_in_another_passes_the_common_checks():
    check_kernel(one_in_another.kernel, [mixed(43, 2)])


LONG = """
import torch
from adjoin import trace as at

def repeated(depth, z):
    return 0.5 * at.sin(z) if depth == 0 else at.loop(10_000, lambda _, z: repeated(depth - 1, z), z)

function = at.function(x=1)(lambda x: at.when(x[0] > 0.0, lambda z: repeated(3, z), x[0]))
for batch in (1, 100):
    x = -torch.ones(batch, 1, dtype=torch.float64, requires_grad=True)
    result = function(x)
    assert torch.equal(result, x[:, 0])
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.ones_like(x))
"""


def test_what_no_environment_needs_is_skipped_forward_and_backward():
    # The function takes 10^12 steps, which is hours, unless it is skipped.
    subprocess.run([sys.executable, "-c", LONG], check=True, timeout=240)


def test_what_is_not_taken_has_no_influence():
    @adjoin.function(x=1)
    def fails(x):
        return at.when(x[0] > 0.0, lambda z: at.log(z), x[0])

    x = torch.tensor([[-1.0], [2.0], [-2.0]], dtype=torch.float64, requires_grad=True)
    result = fails(x)
    assert result.tolist() == [-1.0, pytest.approx(math.log(2.0)), -2.0]
    assert torch.autograd.grad(result.sum(), x)[0].tolist() == [[1.0], [0.5], [1.0]]


def test_a_bad_environment_does_not_reach_its_neighbors_through_a_branch():
    x, y = mixed(16, 3), mixed(16, 1)
    good = sometimes(x, y)
    x[3] = torch.nan
    x[5, 0] = torch.inf
    others = [i for i in range(16) if i not in (3, 5)]
    assert torch.equal(sometimes(x, y)[others], good[others])


@pytest.mark.parametrize("registers", [8, 32])
def test_values_that_wait_in_memory_are_read_inside_of_the_branch(registers, monkeypatch):
    monkeypatch.setattr(frame, "LARGE_PROGRAM", 0)
    monkeypatch.setattr(frame, "REGISTERS", registers)

    @adjoin.function(x=48)
    def many(x):
        held = [at.exp(0.1 * a) for a in x]
        total = x[0]
        for a in held:
            total = 0.9 * total + 0.1 * at.sin(a)
        taken = at.when(total > 0.0, lambda z: sum((0.1 * a * z for a in held), z), total)
        return [taken, sum((a * a for a in held), 0.0)]

    check_kernel(many.kernel, [mixed(43, 48)])


def test_a_condition_that_is_known_makes_no_branch():
    @adjoin.function(x=1)
    def known(x):
        return [at.when(True, lambda z: 2.0 * z, x[0]), at.when(False, lambda z: 2.0 * z, x[0])]

    assert known(torch.tensor([3.0])).tolist() == [6.0, 3.0]


def test_another_structure_than_that_of_the_values_is_an_error():
    with pytest.raises(TraceError, match="when: the function gave"):
        adjoin.function(x=2)(lambda x: at.when(x[0] > 0.0, lambda z: z[0], [x[0], x[1]]))
