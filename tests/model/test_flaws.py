"""Inertias that no body has, bodies without mass, ranges without ends, faces of hulls that are none."""

import math

import numpy as np
import pytest
import torch

import adjoin
from adjoin.errors import ModelError, ModelWarning
from adjoin.model.flaws import ROUNDING, is_clearly_physical, moments, repaired
from adjoin.model.joint_types.base import finite_range
from adjoin.model.regularity import mass_matrix
from adjoin.spatial.inertia import to_matrix

ROBOT = """<robot name="r"><link name="base"/>
<link name="middle"><inertial><mass value="{mass}"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>
</inertial></link>
<link name="tip"><inertial><mass value="1"/><origin xyz="0.1 0.2 0.3"/>
<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="a" type="continuous"><parent link="base"/><child link="middle"/><axis xyz="0 0 1"/></joint>
<joint name="b" type="continuous"><parent link="middle"/><child link="tip"/><axis xyz="0 1 0"/></joint></robot>"""


def test_a_point_mass_on_its_axis_leaves_the_mass_matrix_singular():
    point = '<inertial><mass value="1"/><inertia ixx="0" iyy="0" izz="0" ixy="0" ixz="0" iyz="0"/></inertial>'
    start = ROBOT.index('<link name="tip">')
    tip = ROBOT[start : ROBOT.index("</link>", start)]
    with pytest.warns(ModelWarning, match="joint 'b'.*singular"):
        adjoin.load(ROBOT.format(mass=1.0).replace(tip, f'<link name="tip">{point}'))


def test_a_repaired_inertia_is_the_nearest_physical_one():
    good = (2.0, 0.1, 0.2, 2.2, -0.3, 2.5)
    np.testing.assert_allclose(repaired(good), good, rtol=1e-12)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    bad = turn @ np.diag([1.0, 1.0, 4.0]) @ turn.T  # 1 + 1 < 4
    fixed = np.array(to_matrix(repaired(tuple(bad[i, j] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))))))
    np.testing.assert_allclose(turn.T @ fixed @ turn, np.diag([2.0, 2.0, 4.0]), atol=1e-4)


def test_an_inertia_that_is_clearly_physical_has_moments_that_are():
    random = np.random.default_rng(0)
    clear = 0
    for _ in range(3000):
        # Second moments from far above rounding to negative, of bodies from dust to planets.
        second = random.choice([-1.0, 1.0, 1.0], size=3) * 10.0 ** random.uniform(-18.0, 0.0, size=3)
        second = 10.0 ** random.uniform(-30.0, 30.0) * np.where(random.random(3) < 0.5, np.abs(second), second)
        turn = np.linalg.qr(random.normal(size=(3, 3)))[0]
        matrix = turn @ (second.sum() * np.eye(3) - np.diag(second)) @ turn.T
        inertia = tuple(float(matrix[i, j]) for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))
        a, b, c = moments(inertia)
        if is_clearly_physical(inertia):
            clear += 1
            assert a > 1e-12 * c > 0.0
            assert a + b >= c * (1.0 - ROUNDING)
        else:
            assert second.min() < 1e-4 * second.max()  # no body of ordinary shape is left to the slower check
    assert 100 < clear < 2000


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e200, 1e-200])
def test_an_inertia_of_odd_numbers_is_not_clearly_physical(entry):
    assert not is_clearly_physical((entry, 0.0, 0.0, entry, 0.0, entry))
    assert not is_clearly_physical((1.0, entry or 2.0, 0.0, 1.0, 0.0, 1.0)) or entry == 1e-200


def test_missing_ends_of_a_range():
    assert finite_range(-math.inf, math.inf, 3.0) == (-3.0, 3.0)
    assert finite_range(-math.inf, 1.0, 3.0) == (-5.0, 1.0)
    assert finite_range(1.0, math.inf, 3.0) == (1.0, 7.0)


def test_the_matrix_that_shows_singular_joints_is_that_of_the_dynamics():
    for name in ("panda", "hopper"):
        model = adjoin.robots.load(name)
        q: list[float] = []
        for joint, _ in model.independent_joints:
            q += joint.type.integrate(joint.type.neutral, [0.4 + 0.1 * k for k in range(joint.type.nv)])
        expected = adjoin.crba(model, torch.tensor(q, dtype=torch.float64))
        np.testing.assert_allclose(mass_matrix(model), expected.numpy(), rtol=1e-9, atol=1e-12)


def test_a_link_without_mass_that_another_moves_loads_unless_reading_is_strict():
    with pytest.warns(ModelWarning, match="it has inertia but no mass"):
        assert adjoin.load(ROBOT.format(mass=0)).nv == 2
    assert adjoin.load(ROBOT.format(mass=1), strict=True).nv == 2
    with pytest.raises(ModelError, match="it has inertia but no mass"):
        adjoin.load(ROBOT.format(mass=0), strict=True)


def test_faces_with_an_index_beyond_the_vertices_are_refused():
    corners = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    rings = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]

    def hull(rings):
        faces = tuple(float(i) for ring in rings for i in (*ring, -1))
        shape = adjoin.Geometry("h", "hull", 0, "b", vertices=corners, faces=faces)
        joint = adjoin.Joint("free", "free")
        body = adjoin.Body("b", -1, joint, mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
        return adjoin.Model("m", (body,), (adjoin.Frame("b", 0),), geometries=(shape,))

    hull(rings)
    with pytest.raises(ModelError, match="faces are not those of its vertices"):
        hull([tuple(4 if i == 3 else i for i in ring) for ring in rings])
