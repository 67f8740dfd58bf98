"""What a simulator adds to a model: residuals, restitution and external forces."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck
from worlds import brick, hinge, hopper, nothing, simulator, tensor

import adjoin
from adjoin import PerEnvironment
from adjoin import trace as at
from adjoin.errors import InputError, ModelError
from adjoin.model.parts import Frame
from adjoin.simulation.integrators import RK4
from adjoin.simulation.simulator import Simulator

STEPS = 40


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def nothing_more(q, v, control):
    return {"force": 0.0 * v}


def network(q, v, control, inner, outer):
    """Torques, and friction of the ground, by what the robot does."""
    found = outer @ at.tanh(inner @ np.concatenate([v, control]))
    return {"force": found[:8], "geometry_friction": np.outer([0.0, 0.0, 1.0], [0.1 * at.tanh(found[8]), 0.0, 0.0])}


@functools.cache
def hopping(residual=None):
    """A hopper that stands on its foot and falls over, and its state."""
    sim = Simulator(hopper(), 2e-3, pairs=[("foot", "ground")], residual=residual)
    q = tensor(0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0, 0.1, 0.02).repeat(3, 1)
    q[:, 2] += 1e-3 * torch.arange(3)
    return sim, sim.state(q, 0.3 * random(3, 8)), 0.5 * random(STEPS, 3, 2, seed=1)


def per_environment(tensors):
    return {name: PerEnvironment(x) for name, x in tensors.items()}


def weights(seed=2):
    return {"inner": random(4, 10, seed=seed), "outer": 0.5 * random(9, 4, seed=seed + 1)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_residual_of_zero_changes_no_bits(dtype):
    found = []
    for residual in (None, nothing_more):
        sim, state, controls = hopping(residual)
        state, controls = state.to(dtype), controls.to(dtype)
        results = sim.rollout(state, controls), sim.step(state, controls[0])
        found.append([x for result in results for x in (result.q, result.v, result.status)])
    for without, zero in zip(*found, strict=True):
        assert torch.equal(without, zero)


def test_a_force_of_the_residual_acts_like_a_motor():
    def pull(q, v, control, strength):
        return {"force": strength + 0.5 * control}

    sim, state = Simulator(hinge(), 1e-2, residual=pull), tensor(0.0)
    one = sim.rollout(sim.state(state), tensor(2.0).expand(50, 1), tensors={"strength": tensor(3.0)})
    motor = Simulator(hinge(), 1e-2)
    other = motor.rollout(motor.state(state), tensor(6.0).expand(50, 1))
    torch.testing.assert_close(one.q, other.q, rtol=1e-13, atol=0.0)


def test_additions_to_parameters_are_those_parameters():
    def more(q, v, control, extra, heavier):
        return {"geometry_friction": extra, "mass": heavier, "damping": np.array([0.0] * 6 + [0.3, 0.0])}

    sim, state, controls = hopping(more)
    added = {"extra": 0.1 * random(3, 3).abs(), "heavier": random(3).abs()}
    plain, _, _ = hopping()
    own = plain.model.parameters(dtype=torch.float64)
    own["damping"][6] += 0.3
    params = {"geometry_friction": own["geometry_friction"] + added["extra"], "mass": own["mass"] + added["heavier"]}
    path = sim.rollout(state, controls, tensors=added)
    other = plain.rollout(state, controls, params={**params, "damping": own["damping"]})
    torch.testing.assert_close(path.q, other.q, rtol=0.0, atol=1e-11)
    torch.testing.assert_close(
        sim.contacts(path.last, tensors=added).force,
        plain.contacts(other.last, params={**params, "damping": own["damping"]}).force,
        rtol=1e-6,
        atol=1e-6,
    )


def test_additions_join_parameters_that_are_passed():
    def lighter(q, v, control):
        return {"mass": np.array([-0.5, 0.0, 0.0])}

    sim, state, controls = hopping(lighter)
    heavy = sim.model.parameters(dtype=torch.float64)["mass"] + tensor(0.5, 0.0, 0.0)
    plain, _, _ = hopping()
    own = {"mass": plain.model.parameters(dtype=torch.float64)["mass"]}
    one, other = sim.rollout(state, controls, {"mass": heavy}), plain.rollout(state, controls, own)
    torch.testing.assert_close(one.q, other.q, rtol=0.0, atol=1e-12)


def test_gradients_of_weights_are_those_of_finite_differences():
    sim, state, controls = hopping(network)
    names = list(weights())

    def rolled(*tensors):
        path = sim.rollout(state, controls, tensors=dict(zip(names, tensors, strict=True)))
        return path.q[-1], path.v[-1]

    assert gradcheck(rolled, [w.requires_grad_() for w in weights().values()], eps=1e-6, atol=1e-6, fast_mode=True)

    def stepped(*tensors):
        return sim.step(state, controls[0], tensors=dict(zip(names, tensors, strict=True))).v

    assert gradcheck(stepped, [w.requires_grad_() for w in weights().values()], eps=1e-6, atol=1e-7, fast_mode=True)


def test_runge_kutta_evaluates_the_residual_where_its_stages_are():
    def spring(q, v, control, stiffness):
        return {"force": -stiffness * q}

    model = hinge(moment=0.5)
    sim = Simulator(model, 0.05, integrator=RK4(), limits=False, residual=spring)
    stiffness = tensor(2.0)
    path = sim.rollout(
        sim.state(tensor(1.0)), torch.zeros(40, 1, dtype=torch.float64), tensors={"stiffness": stiffness}
    )
    time = 0.05 * torch.arange(41, dtype=torch.float64)
    torch.testing.assert_close(path.q[:, 0], torch.cos(2.0 * time), rtol=0.0, atol=1e-5)
    assert gradcheck(
        lambda k: (
            sim.rollout(sim.state(tensor(1.0)), torch.zeros(40, 1, dtype=torch.float64), tensors={"stiffness": k}).q
        ),
        stiffness.requires_grad_(),
    )


def test_linearization_has_the_residual_in_it():
    def spring(q, v, control):
        return {"force": -2.0 * q - 0.1 * v}

    sim = Simulator(hinge(moment=0.5), 0.01, residual=spring)
    A, _ = sim.linearize(sim.state(tensor(0.3)))
    expected = tensor([1.0 - 0.01 * 0.01 * 4.0, 0.01 * (1.0 - 0.01 * 0.2)], [-0.01 * 4.0, 1.0 - 0.01 * 0.2])
    torch.testing.assert_close(A, expected)


def test_weights_by_environment_and_one_of_them_bad():
    sim, state, controls = hopping(network)
    own = {name: w.repeat(3, 1, 1) for name, w in weights().items()}
    fine = sim.rollout(state, controls, tensors=per_environment(own))
    bad = {name: w.clone() for name, w in own.items()}
    bad["outer"][1, 0, 0] = torch.nan
    bad = {name: w.requires_grad_() for name, w in bad.items()}
    path = sim.rollout(state, controls, tensors=per_environment(bad))
    assert path.status[-1].tolist() == [0, 1, 0]
    assert torch.equal(path.q[:, [0, 2]], fine.q[:, [0, 2]])
    found = torch.autograd.grad(path.v[-1].square().sum(), list(bad.values()))
    for gradient in found:
        assert gradient.isfinite().all()
        assert not gradient[1].any()
        assert gradient[0].any()
        assert gradient[2].any()


def test_shared_weights_and_weights_by_environment_agree():
    sim, state, controls = hopping(network)
    one = sim.rollout(state, controls, tensors=weights())
    repeated = {name: w.repeat(3, 1, 1) for name, w in weights().items()}
    assert torch.equal(one.q, sim.rollout(state, controls, tensors=per_environment(repeated)).q)


def test_functions_get_only_what_they_take():
    def toward(q, control, gain):
        return gain * (control - q)

    def speed(next_v):
        return next_v @ next_v

    def drag(v, drag):
        return {"force": -drag * v}

    sim = Simulator(hinge(), 1e-2, residual=drag)
    controls = tensor(1.0).expand(20, 1)
    named = {"gain": tensor(5.0), "drag": tensor(0.1)}
    path = sim.rollout(sim.state(tensor(0.0)), controls, controller=toward, outputs={"cost": speed}, tensors=named)
    torch.testing.assert_close(path.outputs["cost"], path.v[1:, 0].square())
    with pytest.raises(InputError, match=r"no function here takes tensors\['gian'\]"):
        sim.rollout(sim.state(tensor(0.0)), controls, controller=toward, tensors={**named, "gian": named["gain"]})


def test_a_residual_that_is_wrong_is_told_how():
    def tried(answer):
        return Simulator(hinge(), 1e-2, residual=lambda q, v, control: answer).step

    state = Simulator(hinge(), 1e-2).state(tensor(0.0))
    with pytest.raises(InputError, match="'force' has the shape \\(2,\\); it must be \\(1,\\)"):
        tried({"force": np.zeros(2)})(state)
    known = r"no parameter is called 'torque'; it can add to: force, mass, .*contact_restitution"
    with pytest.raises(InputError, match=known):
        tried({"torque": np.zeros(1)})(state)
    with pytest.raises(InputError, match="must return a dict of additions by name, got a list"):
        tried([0.0])(state)
    with pytest.raises(InputError, match="residual must be a traced function"):
        Simulator(hinge(), residual=3.0)
    with pytest.raises(InputError, match=r"tensors\['w'\] must be a torch tensor, got a float"):
        Simulator(hinge(), residual=lambda q, v, control, w: {}).step(state, tensors={"w": 1.0})
    rough = Simulator(hinge(), integrator=RK4(), limits=False, residual=lambda q, v, control: {"friction": v * v})
    with pytest.raises(InputError, match="RK4 is for smooth systems; 'wheel' has joint friction"):
        rough.step(state)


@functools.cache
def dropped(**contact):
    sim = simulator(adjoin.robots.load("ball"), 1e-3, **contact)
    q = tensor(0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0).repeat(4, 1)
    return sim, sim.state(q, 0.1 * random(4, 6))


def test_restitution_as_a_parameter_is_that_of_the_contact_model():
    sim, state = dropped()
    coefficients = tensor(0.0, 0.25, 0.5, 0.75)
    path = sim.rollout(state, nothing(600), {"contact_restitution": coefficients})
    for i, restitution in enumerate(coefficients.tolist()):
        fixed, _ = dropped(restitution=restitution)
        assert torch.equal(path.q[:, i], fixed.rollout(state, nothing(600)).q[:, i])
        alike = sim.rollout(state, nothing(600), {"contact_restitution": tensor(restitution).squeeze()})
        assert torch.equal(path.q[:, i], alike.q[:, i])


def test_gradients_to_restitution_are_those_of_finite_differences():
    sim, state = dropped()
    coefficients = tensor(0.2, 0.4, 0.6, 0.8).requires_grad_()

    def end(e):
        return sim.rollout(state, nothing(400), {"contact_restitution": e}).q[-1]

    assert gradcheck(end, coefficients, eps=1e-6, atol=1e-6)


def test_a_residual_adds_to_restitution():
    sim, state = dropped()
    livelier = Simulator(
        adjoin.robots.load("ball"), 1e-3, residual=lambda q, e: {"contact_restitution": e + 0.0 * q[0]}
    )
    path = livelier.rollout(state, nothing(400), tensors={"e": tensor(0.5).squeeze()})
    other = sim.rollout(state, nothing(400), {"contact_restitution": tensor(0.5).squeeze()})
    torch.testing.assert_close(path.q, other.q, rtol=0.0, atol=1e-12)


def test_restitution_must_be_a_number_of_projected_gauss_seidel():
    sim, state = dropped()
    with pytest.raises(InputError, match=r"'contact_restitution' is a float; it must be a torch tensor"):
        sim.step(state, params={"contact_restitution": 0.5})
    with pytest.raises(InputError, match=r"'contact_restitution' has shape \(3,\); .* that broadcast to \(4,\)"):
        sim.step(state, params={"contact_restitution": tensor(0.1, 0.2, 0.3)})
    soft = Simulator(adjoin.robots.load("ball"), contact=adjoin.Compliant())
    with pytest.raises(
        InputError, match=r"'contact_restitution' is not a parameter of this simulator; its own are contact_stiffness"
    ):
        soft.step(state, params={"contact_restitution": tensor(0.5)})


def test_a_restitution_that_is_not_finite_stops_its_environment():
    sim, state = dropped()
    path = sim.rollout(state, nothing(10), {"contact_restitution": tensor(0.1, torch.nan, 0.2, 0.3)})
    assert path.status[-1].tolist() == [0, 1, 0, 0]


def test_an_external_force_changes_momentum_by_its_impulse():
    sim = Simulator(replace(brick(), frames=(Frame("brick", 0),)), 1e-3)
    turned = tensor(0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5)
    push = tensor(1.0, -2.0, 3.0 + 9.81, 0.0, 0.0, 0.0)
    path = sim.rollout(sim.state(turned), nothing(100), external={"brick": push.expand(100, 6)})
    torch.testing.assert_close(path.q[-1, :3], 0.5 * 0.1 * 0.101 * tensor(1.0, -2.0, 3.0))
    force = tensor(0.0, 0.0, 9.81, 0.0, 0.0, 0.06)
    spun = sim.step(sim.state(tensor(0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)), external={"brick": force})
    torch.testing.assert_close(spun.v, tensor(0.0, 0.0, 0.0, 0.0, 0.0, 1e-3), rtol=1e-9, atol=1e-15)


def test_gradients_to_an_external_force_are_those_of_finite_differences():
    sim, state, controls = hopping()

    def pushed(push):
        path = sim.rollout(state, controls, external={"leg": push})
        return path.q[-1], path.v[-1]

    assert gradcheck(pushed, random(STEPS, 3, 6, seed=5).requires_grad_(), eps=1e-6, atol=1e-6, fast_mode=True)


def test_an_external_force_on_a_frame_that_is_not_there_lists_those_that_are():
    sim, state, controls = hopping()
    with pytest.raises(ModelError, match="no link 'tail'; links: trunk"):
        sim.step(state, controls[0], external={"tail": tensor(1.0)})
    with pytest.raises(InputError, match=r"external\['leg'\]' has 7 steps"):
        sim.rollout(state, controls, external={"leg": torch.zeros(7, 6, dtype=torch.float64)})


@pytest.mark.parametrize("every", [1, 7])
def test_forward_mode_of_a_rollout_is_that_of_finite_differences(every):
    sim, state, controls = hopping(network)
    mass = sim.model.parameters(dtype=torch.float64)["mass"]
    inputs = {"q": state.q, "controls": controls, "mass": mass, **weights()}
    along = {name: random(*x.shape, seed=9) for name, x in inputs.items()}

    def rolled(q, controls, mass, inner, outer):
        named = {"inner": inner, "outer": outer}
        start = sim.state(q, state.v)
        path = sim.rollout(start, controls, {"mass": mass}, tensors=named, outputs=["contacts"], every=every)
        return path.q, path.v, path.outputs["contacts"].force

    with forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(x, along[name]) for name, x in inputs.items()}
        found = [forward_ad.unpack_dual(x).tangent for x in rolled(**duals)]
    step = 1e-7
    sides = [rolled(**{name: x + sign * step * along[name] for name, x in inputs.items()}) for sign in (1.0, -1.0)]
    for tangent, (after, before) in zip(found, zip(*sides, strict=True), strict=True):
        difference = (after - before) / (2.0 * step)
        torch.testing.assert_close(tangent, difference, rtol=0.0, atol=1e-5 * float(difference.abs().max()))


def test_tangents_of_an_environment_that_stopped_are_zero():
    sim, state, controls = hopping()
    mass = sim.model.parameters(dtype=torch.float64)["mass"].repeat(3, 1)
    push = torch.zeros(STEPS, 3, 6, dtype=torch.float64)
    push[20, 1, 0] = torch.nan
    with forward_ad.dual_level():
        path = sim.rollout(
            state, controls, {"mass": forward_ad.make_dual(mass, torch.ones_like(mass))}, external={"leg": push}
        )
        tangent = forward_ad.unpack_dual(path.v).tangent
    assert tangent.isfinite().all()
    assert not tangent[21:, 1].any()
    assert tangent[20, 1].any()
    assert tangent[-1, 0].any()
