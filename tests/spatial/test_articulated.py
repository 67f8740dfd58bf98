"""Articulated inertias as blocks, against the 6x6 matrices they stand for."""

import math
import random

import numpy as np
import pytest

from adjoin.dynamics.linear import Factor
from adjoin.spatial import articulated, inertia, rotation, vector

SIX = range(6)


def matrix(blocks):
    """The 6x6 matrix on (angular, linear)."""
    a, b, m = blocks
    return np.block([[np.array(inertia.to_matrix(a)), np.array(b)], [np.array(b).T, np.array(inertia.to_matrix(m))]])


def flat(spatial):
    return np.array([*spatial[0], *spatial[1]])


def spatial(rng):
    return tuple(tuple(rng.gauss(0, 1) for _ in range(3)) for _ in range(2))


def unit(rng, size):
    values = [rng.gauss(0, 1) for _ in range(size)]
    return tuple(x / math.hypot(*values) for x in values)


def some(rng):
    """An articulated inertia that is positive definite, and has all its entries."""
    half = np.array([[rng.gauss(0, 1) for _ in SIX] for _ in SIX])
    whole = (half @ half.T + 0.1 * np.eye(6)).tolist()
    a = inertia.from_matrix(vector.matrix3([row[:3] for row in whole[:3]]))
    m = inertia.from_matrix(vector.matrix3([row[3:] for row in whole[3:]]))
    return a, vector.matrix3([row[3:] for row in whole[:3]]), m


def transform(rng):
    return rotation.from_quaternion(unit(rng, 4)), tuple(rng.uniform(-1, 1) for _ in range(3))


def adjoint(x):
    """The matrix that takes a motion in the parent frame to the child frame."""
    turn, shift = np.array(x[0]).T, np.array(vector.skew(x[1]))
    return np.block([[turn, np.zeros((3, 3))], [-turn @ shift, turn]])


def test_a_rigid_body_has_the_momentum_of_its_mass_and_inertia():
    rng = random.Random(0)
    mass, com = 2.5, (0.1, -0.2, 0.3)
    central = (0.2, 0.01, -0.02, 0.3, 0.03, 0.25)
    moment = vector.scale(mass, com)
    blocks = articulated.from_rigid(mass, moment, inertia.about_origin((mass, com, central)))
    for _ in range(5):
        m = spatial(rng)
        expected = inertia.times_motion((mass, com, central), m)
        assert np.allclose(flat(articulated.apply(blocks, m)), flat(expected), atol=1e-14)
    assert np.allclose(matrix(blocks), matrix(blocks).T)


def test_apply_add_and_to_parent_are_those_of_the_matrices():
    rng = random.Random(1)
    for _ in range(20):
        a, b, m, x = some(rng), some(rng), spatial(rng), transform(rng)
        assert np.allclose(flat(articulated.apply(a, m)), matrix(a) @ flat(m), atol=1e-13)
        assert np.allclose(matrix(articulated.add(a, b)), matrix(a) + matrix(b), atol=1e-13)
        expected = adjoint(x).T @ matrix(a) @ adjoint(x)
        assert np.allclose(matrix(articulated.to_parent(x, a)), expected, atol=1e-12)


STILL, X, Y, Z = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
ODD = (0.48, -0.6, 0.64)
JOINTS = {
    "turning": [(ODD, STILL)],
    "sliding": [(STILL, ODD)],
    "turning about y": [(Y, STILL)],
    "turning back about y": [((0.0, -1.0, 0.0), STILL)],
    "turning twice as fast about z": [((0.0, 0.0, 2.0), STILL)],
    "sliding along x": [(STILL, X)],
    "sliding back along z": [(STILL, (0.0, 0.0, -1.0))],
    "screw": [(ODD, (0.1, 0.2, 0.3))],
    "ball": [(X, STILL), (Y, STILL), (Z, STILL)],
    "free": [(STILL, X), (STILL, Y), (STILL, Z), (X, STILL), (Y, STILL), (Z, STILL)],
}


@pytest.mark.parametrize("armature", [0.0, 0.7])
@pytest.mark.parametrize("kind", JOINTS)
def test_what_a_parent_feels_through_a_joint(kind, armature):
    rng = random.Random(2)
    for _ in range(10):
        whole, S = some(rng), JOINTS[kind]
        U = [articulated.apply(whole, s) for s in S]
        D = np.array([[flat(s) @ flat(u) for u in U] for s in S]) + armature * np.eye(len(S))
        left = articulated.through_joint(whole, S, U, Factor(D.tolist()), armature)
        stacked = np.array([flat(u) for u in U]).T
        expected = matrix(whole) - stacked @ np.linalg.solve(D, stacked.T)
        assert np.allclose(matrix(left), expected, atol=1e-11)


def test_nothing_is_felt_along_a_joint_without_armature_to_the_bit():
    rng = random.Random(3)
    for place, s in ((1, ((0.0, -1.0, 0.0), (0.0, 0.0, 0.0))), (3, ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0)))):
        whole = some(rng)
        U = [articulated.apply(whole, s)]
        D = Factor([[float(flat(s) @ flat(U[0]))]])
        left = matrix(articulated.through_joint(whole, [s], U, D, 0.0))
        assert not left[place].any()
        assert not left[:, place].any()
