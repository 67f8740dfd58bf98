import math

import numpy as np
import pytest

from adjoin.spatial import inertia
from adjoin.spatial import mass_moments as matter
from adjoin.spatial.rotation import from_quaternion, quaternion_exp


def some_matter(seed=0):
    """A cloud of points, and what it amounts to."""
    random = np.random.default_rng(seed)
    points, masses = random.normal(size=(5, 3)), random.uniform(0.1, 1.0, 5)
    return points, masses, gathered(points, masses)


def gathered(points, masses):
    second = np.einsum("k,ki,kj->ij", masses, points, points)
    return float(masses.sum()), tuple(masses @ points), inertia.from_matrix(tuple(map(tuple, second)))


def flat(m):
    return np.array([m[0], *m[1], *m[2]])


def test_rotational_inertia_undoes_the_second_moment():
    _, _, (_, _, second) = some_matter()
    np.testing.assert_allclose(inertia.second_moment(matter.rotational(second)), second, atol=1e-14)


def test_matter_moves_and_adds_like_its_points():
    points, masses, m = some_matter()
    rotation, position = from_quaternion(quaternion_exp((0.3, -0.7, 0.5))), (0.4, -1.2, 0.9)
    moved = points @ np.array(rotation).T + np.array(position)
    np.testing.assert_allclose(
        flat(matter.to_parent((rotation, position), m)), flat(gathered(moved, masses)), atol=1e-13
    )
    both = gathered(np.concatenate([points, moved]), np.concatenate([masses, masses]))
    np.testing.assert_allclose(flat(matter.together(m, gathered(moved, masses))), flat(both), atol=1e-13)


@pytest.mark.parametrize("axis", [(0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1 / math.sqrt(3),) * 3])
def test_what_is_on_an_axis_is_the_same_after_any_turn_about_it(axis):
    m = some_matter()[2]
    left, line = matter.without_axis(m, axis)
    np.testing.assert_allclose(flat(left) + flat(line), flat(m), atol=1e-14)
    assert left[0] == 0.0
    turn = from_quaternion(quaternion_exp(tuple(1.1 * x for x in axis)))
    np.testing.assert_allclose(flat(matter.to_parent((turn, (0.0, 0.0, 0.0)), line)), flat(line), atol=1e-14)
    if axis[2] == 1.0:
        assert left[1][2] == left[2][5] == 0.0
