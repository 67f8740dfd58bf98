"""What contacts add to a matrix, body by body, is Jᵀ S J with the Jacobians of their points."""

import pytest
import torch

import adjoin
from adjoin.constraints.body_stiffness import BodyStiffness
from adjoin.constraints.contact_rows import ContactFrame
from adjoin.constraints.motions import Motions
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State

MIMIC = """<robot name="gripper"><link name="palm"/>
<link name="left"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
</link><link name="tip"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
</link><joint name="a" type="revolute"><parent link="palm"/><child link="left"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
<joint name="b" type="revolute"><parent link="left"/><child link="tip"/><origin xyz="0.3 0 0.1"/><axis xyz="0 0 1"/>
<mimic joint="a" multiplier="0.5"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""
MODELS = {
    "go2": lambda: adjoin.robots.load("go2"),
    "panda": lambda: adjoin.robots.load("panda"),
    "mimic": lambda: adjoin.load(MIMIC),
}


def contacts_of(generator, bodies, rows):
    """Random contacts: of which body, where, along which axes, and how stiff."""
    found = []
    for body in bodies:
        axes, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
        root = torch.randn(rows, rows, generator=generator, dtype=torch.float64)
        position = 3.0 * torch.randn(3, generator=generator, dtype=torch.float64)
        found.append((body, position, axes, root @ root.mT))
    return found


def rows_of(model, q, body, position, axes, rows):
    """The Jacobian of the rows of a contact."""
    link = model.bodies[body].name
    linear, angular = adjoin.jacobian(model, q, link, reference="local_world_aligned").split(3)
    arm = position - adjoin.forward_kinematics(model, q, frames=[link])[0, :3, 3]
    point = linear + torch.linalg.cross(angular, arm[:, None].expand_as(angular), dim=0)
    return torch.cat([axes @ point, axes @ angular])[:rows]


@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_over_contacts_is_that_of_their_jacobians(name, rows):
    model, generator = MODELS[name](), torch.Generator().manual_seed(rows)
    count = len(model.bodies)
    contacts = contacts_of(generator, [count - 1, count - 1, count // 2, 0], rows)
    bodies = sorted({body for body, *_ in contacts})

    def matrix(q):
        stiffness = BodyStiffness(Motions(State(Robot(model), q), bodies), bodies)
        array = stiffness.array()
        for body, position, axes, s in contacts:
            frame = ContactFrame(0, 0, tuple(map(tuple, axes.tolist())), tuple(position.tolist()))
            stiffness.add(array, bodies.index(body), frame, s.tolist())
        full = [[0.0] * model.nv for _ in range(model.nv)]
        for (i, j), x in zip(stiffness.places, stiffness.entries(array), strict=True):
            full[i][j] = full[j][i] = x
        return [x for line in full for x in line]

    q = model.random((5,), generator=generator, dtype=torch.float64)
    found = adjoin.function(q=model.nq)(matrix)(q).reshape(5, model.nv, model.nv)
    for one, got in zip(q, found, strict=True):
        jacobians = [(rows_of(model, one, body, position, axes, rows), s) for body, position, axes, s in contacts]
        torch.testing.assert_close(got, sum(j.mT @ s @ j for j, s in jacobians), rtol=1e-10, atol=1e-9)
