import math

import numpy as np
import pytest

from adjoin.spatial import inertia, mass_moments
from adjoin.spatial.mass_moments import MassMoments
from adjoin.spatial.rotation import from_quaternion, quaternion_exp


def cloud(seed=0):
    """A cloud of points, and its moments."""
    random = np.random.default_rng(seed)
    points, masses = random.normal(size=(5, 3)), random.uniform(0.1, 1.0, 5)
    return points, masses, gathered(points, masses)


def gathered(points, masses):
    second = np.einsum("k,ki,kj->ij", masses, points, points)
    return MassMoments(float(masses.sum()), tuple(masses @ points), inertia.from_matrix(tuple(map(tuple, second))))


def flat(m):
    return np.array([m[0], *m[1], *m[2]])


def test_rotational_inertia_undoes_the_second_moment():
    _, _, moments = cloud()
    np.testing.assert_allclose(inertia.second_moment(moments.rotational_inertia), moments.second, atol=1e-14)


def test_moments_move_and_add_like_their_points():
    points, masses, m = cloud()
    rotation, position = from_quaternion(quaternion_exp((0.3, -0.7, 0.5))), (0.4, -1.2, 0.9)
    moved = points @ np.array(rotation).T + np.array(position)
    np.testing.assert_allclose(
        flat(mass_moments.to_parent((rotation, position), m)), flat(gathered(moved, masses)), atol=1e-13
    )
    both = gathered(np.concatenate([points, moved]), np.concatenate([masses, masses]))
    np.testing.assert_allclose(flat(mass_moments.add(m, gathered(moved, masses))), flat(both), atol=1e-13)


@pytest.mark.parametrize("axis", [(0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1 / math.sqrt(3),) * 3])
def test_what_is_on_an_axis_is_the_same_after_any_turn_about_it(axis):
    m = cloud()[2]
    left, line = mass_moments.split_off_axis(m, axis)
    np.testing.assert_allclose(flat(left) + flat(line), flat(m), atol=1e-14)
    assert left[0] == 0.0
    turn = from_quaternion(quaternion_exp(tuple(1.1 * x for x in axis)))
    np.testing.assert_allclose(flat(mass_moments.to_parent((turn, (0.0, 0.0, 0.0)), line)), flat(line), atol=1e-14)
    if axis[2] == 1.0:
        assert left[1][2] == left[2][5] == 0.0
