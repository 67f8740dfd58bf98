import pytest
import torch

import adjoin
from adjoin.errors import InputError

PAIR = """<robot name="pair"><link name="base"/>
<link name="a"><inertial><origin xyz="0.2 0 0"/><mass value="1"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="b"><inertial><origin xyz="0.1 0 0"/><mass value="0.5"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="first" type="continuous"><parent link="base"/><child link="a"/><axis xyz="0 1 0"/></joint>
<joint name="second" type="continuous"><parent link="base"/><child link="b"/><axis xyz="0 1 0"/>
<origin xyz="0 1 0"/></joint></robot>"""


def falls(solver, start, steps=400):
    """Two arms, of which the second turns by -2 times the first's angle and 0.3 more."""
    model = adjoin.load(PAIR)
    coupling = adjoin.JointEquality("second", "first", multiplier=-2.0, offset=0.3)
    sim = adjoin.Simulator(model, 1e-3, solver, constraints=[coupling])
    return sim.rollout(sim.state(start), torch.zeros(steps, model.nu, dtype=torch.float64))


def test_coupled_joints_move_as_one_with_the_inertia_of_both():
    path = falls(adjoin.PGS(iterations=30), torch.tensor([0.4, -0.5], dtype=torch.float64))
    torch.testing.assert_close(path.q[:, 1], 0.3 - 2.0 * path.q[:, 0], atol=1e-5, rtol=0)
    joint = '<joint name="second" type="continuous">'
    urdf = PAIR.replace(joint, f'{joint}<mimic joint="first" multiplier="-2" offset="0.3"/>')
    mimic = adjoin.load(urdf)
    sim = adjoin.Simulator(mimic, 1e-3)
    exact = sim.rollout(sim.state(torch.tensor([0.4], dtype=torch.float64)), torch.zeros(400, mimic.nu).double())
    torch.testing.assert_close(path.q[:, 0], exact.q[:, 0], atol=1e-4, rtol=0)


def test_gradients_are_those_of_finite_differences():
    q = torch.tensor([0.4, -0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q: falls(adjoin.PGS(iterations=10), q, 5).q[-1], q)


def test_an_error_is_pulled_back():
    path = falls(adjoin.PGS(iterations=30), torch.tensor([0.4, -0.4], dtype=torch.float64), 60)
    error = path.q[:, 1] - 0.3 + 2.0 * path.q[:, 0]
    assert abs(float(error[0])) == pytest.approx(0.1)
    assert abs(float(error[-1])) < 1e-4


def test_joints_of_several_axes_are_refused():
    model = adjoin.robots.load("ball")
    with pytest.raises(InputError, match="is free; only joints with one axis are coupled"):
        adjoin.Simulator(model, constraints=[adjoin.JointEquality(model.joints[0].name, model.joints[0].name)])
