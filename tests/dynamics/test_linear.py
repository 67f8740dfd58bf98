"""Factors of symmetric matrices over floats and traced scalars; structural zeros are not touched."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import check_kernel
from peers import robot
from reference import apart, on_floats, samples

import adjoin
from adjoin.compiler.ir import graph
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.linear import Factor, is_zero


def positive(size, seed, density=1.0):
    """A random positive definite matrix with zeros, as nested lists; zeros are the number 0."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(size, size)) * (rng.random((size, size)) < density)
    return (half @ half.T + np.eye(size)).tolist()


@settings(max_examples=60, deadline=None)
@given(size=st.integers(0, 9), seed=st.integers(0, 2**20), density=st.sampled_from([0.1, 0.4, 1.0]))
def test_solve_is_the_inverse(size, seed, density):
    matrix = positive(size, seed, density)
    right = np.random.default_rng(seed + 1).normal(size=size)
    expected = np.linalg.solve(np.array(matrix).reshape(size, size), right)
    assert Factor(matrix).solve(right.tolist()) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 7), seed=st.integers(0, 2**20))
def test_the_halves_are_those_of_the_factor(size, seed):
    matrix = positive(size, seed, 0.5)
    factor = Factor(matrix)
    L = np.eye(size)
    for i, row in enumerate(factor.lower):
        L[i, :i] = row
    D = np.diag(1.0 / np.array(factor.inverse))
    assert np.allclose(L.T @ D @ L, matrix, rtol=0, atol=1e-11)
    b, c = np.random.default_rng(seed).normal(size=(2, size))
    assert np.allclose(L.T @ factor.solve_upper(b.tolist()), b, atol=1e-12)
    assert np.allclose(L @ factor.solve_lower(b.tolist()), b, atol=1e-12)
    product = sum(
        x * d * y
        for x, d, y in zip(factor.solve_upper(list(b)), factor.inverse, factor.solve_upper(list(c)), strict=True)
    )
    assert product == pytest.approx(b @ np.linalg.solve(matrix, c), rel=1e-10, abs=1e-12)


def test_the_upper_half_is_not_read_and_nothing_given_is_changed():
    matrix = positive(4, 0)
    broken = [[x if j <= i else float("nan") for j, x in enumerate(row)] for i, row in enumerate(matrix)]
    kept, right = [list(row) for row in broken], [1.0, 2.0, 3.0, 4.0]
    factor = Factor(broken)
    assert factor.solve(right) == Factor(matrix).solve(right)
    assert right == [1.0, 2.0, 3.0, 4.0]
    assert repr(kept) == repr(broken)


@pytest.mark.parametrize("name", ["go2", "humanoid", "allegro"])
def test_the_inertia_matrix_of_a_tree_fills_in_nothing(name):
    model = robot(name)
    q, v, _, _ = (x[0] for x in samples(model, 1))
    lower = Factor(crba_of(on_floats(model, q, v))).lower
    zeros = apart(model)
    assert zeros.any()
    assert all(is_zero(x) for i, row in enumerate(lower) for j, x in enumerate(row) if zeros[i, j])


def test_a_unit_right_side_stays_zero_where_the_tree_does_not_reach():
    model = robot("go2")
    q, v, _, _ = (x[0] for x in samples(model, 1))
    factor = Factor(crba_of(on_floats(model, q, v)))
    last = factor.solve_upper([0.0] * (model.nv - 1) + [1.0])
    reached = [dof for dof, x in enumerate(last) if not is_zero(x)]
    assert reached == [0, 1, 2, 3, 4, 5, 15, 16, 17]


def test_numbers_and_traced_constants_are_known_to_be_zero():
    assert is_zero(0)
    assert is_zero(0.0)
    assert is_zero(-0.0)
    assert not is_zero(1e-300)
    assert not is_zero(float("nan"))
    home = graph.Graph()
    assert is_zero(home.const(0.0))
    assert not is_zero(home.const(2.0))

    @adjoin.function(x=())
    def function(x):
        assert not is_zero(x)
        assert is_zero(0.0 * x)
        assert is_zero(x - x)
        return x

    assert function(torch.tensor(1.0)) == 1.0


def test_zeros_cost_nothing():
    def count(pattern):
        @adjoin.function(m=(4, 4), b=4)
        def function(m, b):
            rows = [[m[i, j] if pattern[i][j] else 0.0 for j in range(4)] for i in range(4)]
            return Factor(rows).solve(b)

        return function.kernel.program.operations

    diagonal = np.eye(4, dtype=bool)
    arrow = diagonal.copy()
    arrow[:, 0] = arrow[0] = True
    assert count(diagonal) == 8  # four inverses and four products
    assert count(diagonal) < count(arrow) < count(np.ones((4, 4), dtype=bool))


def test_the_kernel_of_a_solve_satisfies_what_every_kernel_must():
    @adjoin.function(half=(3, 3), b=3)
    def function(half, b):
        matrix = half @ half.T + 2.0 * np.eye(3)
        return Factor(matrix.tolist()).solve(list(b))

    generator = torch.Generator().manual_seed(0)
    half, b = (torch.randn(5, *size, generator=generator, dtype=torch.float64) for size in ((3, 3), (3,)))
    check_kernel(function.kernel, [half, b])
