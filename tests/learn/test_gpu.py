from dataclasses import replace

import pytest
import torch

import adjoin
from adjoin.compat.differentiable_robot_model import rigid_body_params, train_epoch
from adjoin.compat.differentiable_robot_model.robot_model import DifferentiableRobotModel
from adjoin.learn import Recording, Shooting, fit, fourier_excitation
from adjoin.learn.modules import Bounded, LogCholesky, Positive, Rotation, Triangular, Unconstrained
from adjoin.learn.parameters import Parameters

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
F64 = torch.float64


def learned(device):
    arm = adjoin.robots.load("two_link")
    found = Parameters(arm, F64, device)
    found.learn("inertial", LogCholesky, of="arm2").learn("inertia", Triangular, of="arm1")
    found.learn("joint_rotation", Rotation).learn("damping", lambda value: Positive(value + 0.1))
    return arm, found.learn("com", lambda value: Bounded(value, value - 1.0, value + 1.0), of="arm1")


def test_parameters_on_the_gpu_give_what_they_give_on_the_cpu():
    q, v, a = torch.randn(3, 16, 2, dtype=F64).unbind()
    gradients = []
    for device in ("cpu", "cuda"):
        arm, parameters = learned(device)
        tau = adjoin.rnea(arm, q.to(device), v.to(device), a.to(device), params=parameters(), passive=True)
        tau.square().sum().backward()
        gradients.append([raw.grad.cpu() for raw in parameters.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


def test_values_per_environment_are_checked_on_the_gpu():
    arm = adjoin.robots.load("two_link")
    mass = torch.ones(4, 2, device="cuda")
    mass[3, 1] = -1.0
    with pytest.raises(adjoin.errors.InputError, match="environment 3: mass of 'arm2'"):
        Parameters(arm, device="cuda").learn("mass", Unconstrained(mass))


def test_epochs_on_the_gpu_are_those_on_the_cpu():
    q, qd, f, qdd = torch.randn(4, 64, 2, dtype=F64).unbind()
    losses = []
    for device in ("cpu", "cuda"):
        robot = DifferentiableRobotModel(adjoin.robots.source("two_link"), device=device)
        robot.make_link_param_learnable(
            "arm1", "mass", rigid_body_params.PositiveScalar(init_param=torch.tensor([0.5], dtype=F64))
        )
        inertia = 0.1 * torch.eye(3, dtype=F64)
        robot.make_link_param_learnable(
            "arm2", "inertia_mat", rigid_body_params.TriangParam3DInertiaMatrixNet(1e-7, init_param=inertia).double()
        )
        data = [tensor.to(device) for tensor in (q, qd, f, qdd)]
        optimizer = torch.optim.Adam(robot.parameters(), lr=0.1)
        losses.append(train_epoch(robot, optimizer, "forward_dynamics", *data, batch_size=10).cpu())
        position, quaternion = robot.compute_forward_kinematics(data[0], "endEffector")
        assert position.device.type == quaternion.device.type == device
    torch.testing.assert_close(*losses, rtol=1e-8, atol=0.0)


def test_a_fit_on_the_gpu_is_that_on_the_cpu():
    arm = adjoin.robots.load("two_link")
    motion = fourier_excitation(
        arm, torch.arange(0.0, 4.0, 0.02, dtype=F64), generator=torch.Generator().manual_seed(1)
    )
    motion = replace(motion, tau=adjoin.rnea(arm, motion.q, motion.v, motion.a, passive=True))
    masses = []
    for device in ("cpu", "cuda"):
        parameters = Parameters(arm, F64, device).learn(
            "mass", Positive(torch.ones(1, dtype=F64, device=device)), of="arm2"
        )
        report = fit(arm, parameters, motion.to(device)).report
        assert report.residuals.device.type == device
        masses.append(parameters()["mass"].detach().cpu())
    torch.testing.assert_close(*masses, rtol=1e-9, atol=0.0)
    assert masses[0][1].item() == pytest.approx(arm.parameters(dtype=F64)["mass"][1].item(), rel=1e-8)


def test_shooting_on_the_gpu_finds_what_it_finds_on_the_cpu():
    sim = adjoin.Simulator(adjoin.robots.load("pendulum", links=2), dt=0.01, pairs=[])
    q, v = torch.randn(2, 5, 2, dtype=F64, generator=torch.Generator().manual_seed(0)).unbind()
    own = sim.model.parameters(dtype=F64)
    own["mass"][1] = 1.4
    path = sim.rollout(sim.state(q, v), torch.zeros(80, 0, dtype=F64), {"mass": own["mass"]})
    time = (0.01 * torch.arange(81, dtype=F64)).expand(5, -1)
    data = Recording(sim.model, time, *[x.movedim(0, -2).contiguous() for x in (path.q, path.v)])
    masses = []
    for device in ("cpu", "cuda"):
        start = Positive(torch.ones(1, dtype=F64, device=device))
        parameters = Parameters(sim.model, F64, device).learn("mass", start, of="link2")
        Shooting(sim, parameters, data.to(device), 20).solve()
        masses.append(parameters()["mass"].detach().cpu())
    torch.testing.assert_close(*masses, rtol=1e-7, atol=0.0)
    assert masses[1][1].item() == pytest.approx(1.4, rel=1e-6)
