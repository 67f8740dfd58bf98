import numpy as np
import pinocchio
import pytest
import torch
from kernel_checks import check_kernel
from kinds import ALL, branched, every_kind, floating, named
from peers import close, robot, states
from reference import Reference

import adjoin
from adjoin.dynamics.call import compute
from adjoin.dynamics.crba import crba
from adjoin.dynamics.energy import kinetic_energy, mechanical_energy, potential_energy
from adjoin.dynamics.passive import passive_forces
from adjoin.dynamics.rnea import gravity_forces, rnea
from adjoin.model import manifold


@pytest.mark.parametrize("name", ALL)
def test_energies_agree_with_pinocchio(name):
    model = named(name)
    q, v, _ = states(model, 20, spin=10.0)
    found = compute(model, q, v, quantities=["kinetic_energy", "potential_energy", "mechanical_energy"])
    peer = Reference(model)
    pin, data, full = peer.peer.pin, peer.peer.data, peer.ratios
    pin.armature = np.zeros(pin.nv)  # it leaves those of some kinds of joints out
    armature = model.parameters(dtype=torch.float64)["armature"]
    for k in range(len(q)):
        at = peer.q(q[k])
        kinetic = pinocchio.computeKineticEnergy(pin, data, at, full @ v[k].numpy())
        kinetic += 0.5 * float((armature * v[k] * v[k]).sum())
        potential = pinocchio.computePotentialEnergy(pin, data, at)
        close(found["kinetic_energy"][k], kinetic)
        close(found["potential_energy"][k], potential)
        close(found["mechanical_energy"][k], kinetic + potential)


@pytest.mark.parametrize("name", ["every_kind", "panda"])
def test_kinetic_energy_is_that_of_the_inertia_matrix_with_armature(name):
    model = named(name)
    q, v, _ = states(model, 20)
    armature = torch.rand(model.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    M = crba(model, q, {"armature": armature})
    expected = 0.5 * (v[:, None] @ M @ v[..., None])[:, 0, 0]
    close(kinetic_energy(model, q, v, {"armature": armature}), expected)


def slopes(function, model, q):
    """The derivative of a scalar function of q along each degree of freedom."""
    q = q.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(function(q).sum(), q)
    columns = []
    for dof in range(model.nv):
        unit = torch.zeros(len(q), model.nv, dtype=q.dtype)
        unit[:, dof] = 1.0
        rate = manifold.on_tensors(model, manifold.rate, (q.detach(), "q", model.nq), (unit, "v", model.nv))
        columns.append((gradient * rate).sum(-1))
    return torch.stack(columns, -1)


def test_the_slope_of_potential_energy_is_the_force_that_holds_the_robot_up():
    model = every_kind()
    q, _, _ = states(model, 10)
    close(slopes(lambda q: potential_energy(model, q), model, q), gravity_forces(model, q))


def test_springs_push_down_the_slope_of_their_energy():
    model = branched()
    q, _, _ = states(model, 10)
    spring = slopes(lambda q: potential_energy(model, q, springs=True) - potential_energy(model, q), model, q)
    close(spring, -passive_forces(model, q, torch.zeros(10, model.nv, dtype=torch.float64)))
    assert spring.abs().min() > 1e-3
    close(mechanical_energy(model, q, 0 * q[:, : model.nv], springs=True), potential_energy(model, q, springs=True))


def test_energy_changes_by_the_power_of_the_forces():
    model = every_kind()
    q, v, a = states(model, 10)
    tau = rnea(model, q, v, a)
    step = 1e-5
    before, after = (
        mechanical_energy(model, model.integrate(q, v + 0.5 * time * a, time), v + time * a) for time in (-step, step)
    )
    close((after - before) / (2 * step), (tau * v).sum(-1), 1e-8)


def test_potential_energy_follows_gravity():
    model = floating()
    q, _, _ = states(model, 4)
    gravity = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    lifted = q.clone()
    lifted[:, :3] += torch.tensor([1.0, 2.0, 3.0])
    rise = potential_energy(model, lifted, {"gravity": gravity}) - potential_energy(model, q, {"gravity": gravity})
    close(rise, -model.mass * (gravity @ torch.tensor([1.0, 2.0, 3.0]).double()))


def test_gradients_reach_every_input_and_every_parameter():
    model = floating()
    q, v, _ = states(model, 2)
    parameters = model.parameters(dtype=torch.float64)
    given = ("mass", "com", "inertia", "armature", "gravity", "joint_position", "joint_rotation", "stiffness")

    def energies(q, v, *values):
        asked = {"kinetic": "kinetic_energy", "potential": ("potential_energy", {"springs": True})}
        return tuple(compute(model, q, v, quantities=asked, params=dict(zip(given, values, strict=True))).values())

    inputs = [q, v, *[parameters[name] for name in given]]
    assert torch.autograd.gradcheck(energies, [value.requires_grad_() for value in inputs])


def test_kernels_pass_every_check():
    model = robot("two_link")
    q, v, _ = states(model, 5)

    @adjoin.function(q=model.nq, v=model.nv)
    def everything(q, v):
        return {
            "kinetic": kinetic_energy(model, q, v),
            "potential": potential_energy(model, q),
            "mechanical": mechanical_energy(model, q, v, springs=True),
        }

    check_kernel(everything.kernel, [q, v])
