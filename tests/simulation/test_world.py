"""The world of a simulator: the traced step as an object, its signature, and the parameters of its contacts."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from worlds import UPRIGHT, hinge, hopper, row_of_balls, simulator, tensor

import adjoin
from adjoin import PGS, RK4, Compliant, FrameConstraint, Heightfield, JointEquality, World
from adjoin.compiler.runtime.function import Table
from adjoin.errors import AdjoinWarning, InputError
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.world import GROUND
from adjoin.trace import tanh


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@functools.cache
def standing(warm=False):
    """Hoppers with a foot on the ground, and controls."""
    sim = simulator(hopper(), 1e-3, pairs=[("foot", "ground")], warm=warm)
    q = sim.model.neutral((4,), dtype=torch.float64)
    q[:, 2] = 0.2497
    return sim, sim.state(q, 0.3 * random(4, 8)), random(4, 2, seed=1)


WORLDS = {
    "contact": lambda: Simulator(adjoin.robots.load("ball")),
    "compliant": lambda: Simulator(hopper(), 2e-3, Compliant()),
    "smooth": lambda: Simulator(hinge(), integrator=RK4(), limits=False),
    "terrain": lambda: Simulator(adjoin.robots.load("ball"), terrain=Heightfield(torch.zeros(3, 4), 0.5)),
    "equalities": lambda: Simulator(
        row_of_balls(2, 0.1), constraints=[JointEquality("ball0", "ball1"), FrameConstraint("ball0", "ball1")]
    ),
    "residual": lambda: Simulator(hinge(), residual=drag),
}


def drag(v):
    return {"force": -0.1 * v}


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_frozen_and_hashable(name):
    world = WORLDS[name]().world
    assert isinstance(world, World)
    with pytest.raises(dataclasses.FrozenInstanceError):
        world.dt = 1.0
    assert hash(world) == hash(dataclasses.replace(world))
    assert world == dataclasses.replace(world)
    assert world != dataclasses.replace(world, dt=2.0 * world.dt)
    assert {world: 1}[dataclasses.replace(world)] == 1


def test_a_world_has_what_the_simulator_was_made_with():
    contact, integrator = PGS(iterations=7), adjoin.SemiImplicit()
    held = FrameConstraint("trunk", kind="point")
    sim = Simulator(hopper(), 2e-3, contact, constraints=[held], limits=False, integrator=integrator, residual=drag)
    world = sim.world
    assert world.model is sim.model
    assert world.dt == sim.dt == 2e-3
    assert (world.contact, world.integrator, world.constraints) == (contact, integrator, (held,))
    assert (world.limits, world.terrain, world.residual) == (False, None, drag)
    assert [shape.name for shape in world.model.geometries][-1] == GROUND
    shapes = [world.model.geometries[pair.first].name for pair in world.pairs]
    assert shapes == ["foot", "foot", "trunk"]
    assert len(world.contacts) == len(sim.contact_names) == 6
    made = World.of(
        hopper(), 2e-3, contact=contact, constraints=(held,), limits=False, integrator=integrator, residual=drag
    )
    assert made == world


def test_the_signature_of_a_step():
    sim, _, _ = standing()
    assert sim.world.carry == {"q": (9,), "v": (8,), "status": ()}
    assert standing(warm=True)[0].world.carry == {"q": (9,), "v": (8,), "status": (), "impulses": (3,)}
    assert sim.world.inputs == {"control": (2,)}
    own = sim.model.parameters()
    names = [name for name in sim.world.parameters if not name.startswith("contact_")]
    assert {name: sim.world.parameters[name] for name in names} == {name: tuple(x.shape) for name, x in own.items()}
    contact = {"contact_error_reduction", "contact_recovery", "contact_softness", "contact_restitution"}
    assert sim.world.parameters.keys() - own.keys() == {*contact, "contact_threshold"}
    assert all(sim.world.parameters[name] == () for name in contact)
    soft = {"stiffness", "dissipation", "depth", "transition", "lever"}
    assert WORLDS["compliant"]().world.parameters.keys() - own.keys() == {f"contact_{name}" for name in soft}
    hills = WORLDS["terrain"]().world
    assert hills.parameters["terrain"] == Table((3, 4))
    assert hills.carry.keys() == {"q", "v", "status"}


@pytest.mark.parametrize("warm", [False, True])
def test_a_step_inside_a_function_has_the_bits_of_the_simulator(warm):
    sim, state, controls = standing(warm)
    names = sim.world.carry

    @adjoin.function(**names, control=sim.model.nu, mass=len(sim.model.bodies))
    def stepped(control, mass, **carry):
        after, step = sim.world.step(sim.world.plant(control, {"mass": mass}), carry)
        return after, step["acceleration"], step["contacts"].force

    masses = sim.model.parameters(dtype=torch.float64)["mass"]
    carry = {"q": state.q, "v": state.v, **state.memory}
    after, acceleration, force = stepped(**carry, control=controls, mass=masses)
    expected = sim.step(state, controls, {"mass": masses})
    for name, value in {"q": expected.q, "v": expected.v, **expected.memory}.items():
        assert torch.equal(after[name], value), name
    path = sim.rollout(state, controls[None], {"mass": masses}, outputs=["acceleration", "contacts"])
    assert torch.equal(acceleration, path.outputs["acceleration"][0])
    assert torch.equal(force, path.outputs["contacts"].force[0])


def test_a_step_inside_a_function_can_be_controlled_and_repeated():
    sim, state, _ = standing()

    @adjoin.function(q=9, v=8, status=(), weights=(2, 8))
    def twice(q, v, status, weights):
        carry = {"q": q, "v": v, "status": status}
        for _ in range(2):
            control = [tanh(x) for x in np.array(weights) @ np.array(carry["v"])]
            carry, _ = sim.world.step(sim.world.plant(control), carry)
        return carry

    weights = random(2, 8, seed=3).requires_grad_()
    found = twice(state.q, state.v, state.memory["status"], weights)
    expected = state
    for _ in range(2):
        expected = sim.step(expected, torch.tanh(expected.v @ weights.T))
    torch.testing.assert_close(found["q"], expected.q, rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(found["v"].square().sum(), weights)
    (other,) = torch.autograd.grad(expected.v.square().sum(), weights)
    torch.testing.assert_close(slope, other, rtol=1e-9, atol=1e-9)


def test_a_world_with_another_part_takes_other_steps():
    sim, state, controls = standing()
    slower = dataclasses.replace(sim.world, dt=2e-3)
    step = adjoin.function(q=9, v=8, control=2)(
        lambda q, v, control: slower.step(slower.plant(control), {"q": q, "v": v, "status": 0.0})[0]
    )
    other = simulator(hopper(), 2e-3, pairs=[("foot", "ground")])
    assert torch.equal(step(state.q, state.v, controls)["q"], other.step(state, controls).q)


# Softness and compliance are shares of the robot's mass


def soft(contact, mass=1.0):
    """A ball on the ground: PGS lets it sink in by its softness, Compliant by its stiffness."""
    model = adjoin.robots.load("ball")
    model = model.with_parameters({"mass": torch.tensor([mass], dtype=torch.float64)})
    return Simulator(model, 2e-3, contact)


CONTACTS = {
    "pgs": PGS(softness=0.3),
    "elliptic": PGS(softness=0.3, elliptic=True),
    "compliant": Compliant(),
    "compliant and steep": Compliant(stiffness=1e4, depth=2e-4),
}


@pytest.mark.parametrize("name", CONTACTS)
def test_softness_is_of_the_mass_that_is_passed(name):
    contact = CONTACTS[name]
    sim = soft(contact)
    q, v = tensor(0.0, 0.0, 0.0995, *UPRIGHT), tensor(0.3, 0.0, -0.4, 0.0, 0.0, 0.0)
    masses = tensor(0.3, 1.0, 4.0)
    path = sim.rollout(sim.state(q.expand(3, 7), v), steps=40, params={"mass": masses[:, None]}, outputs=["contacts"])
    for i, mass in enumerate(masses.tolist()):
        own = soft(contact, mass)
        alone = own.rollout(own.state(q, v), steps=40, outputs=["contacts"])
        torch.testing.assert_close(path.q[:, i], alone.q, rtol=0.0, atol=1e-12)
        torch.testing.assert_close(path.v[:, i], alone.v, rtol=0.0, atol=1e-11)
        force, expected = path.outputs["contacts"].force[:, i], alone.outputs["contacts"].force
        torch.testing.assert_close(force, expected, rtol=1e-10, atol=1e-9)
    shared = sim.rollout(sim.state(q, v), steps=40, params={"mass": masses[2:]})
    torch.testing.assert_close(shared.q, path.q[:, 2], rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("name", CONTACTS)
def test_gradients_to_the_mass_count_softness(name):
    sim = soft(CONTACTS[name])
    start = sim.state(tensor(0.0, 0.0, 0.0995, *UPRIGHT).repeat(2, 1), tensor(0.3, 0.0, -0.4, 0.0, 0.0, 0.0))

    def end(mass):
        path = sim.rollout(start, steps=8, params={"mass": mass})
        return path.q[-1, :, :3], path.v[-1]

    assert gradcheck(end, tensor([0.8], [2.0]).requires_grad_(), eps=1e-6, rtol=1e-5, atol=1e-8)


def test_the_mass_of_all_robots_counts():
    sim = Simulator(row_of_balls(2, -1e-3), 1e-3, PGS(softness=0.3))
    heavy = Simulator(sim.model.with_parameters({"mass": tensor(1.0, 3.0)}), 1e-3, PGS(softness=0.3))
    state = sim.state(v=tensor(1.0, 0.0))
    path, expected = sim.rollout(state, steps=20, params={"mass": tensor(1.0, 3.0)}), heavy.rollout(state, steps=20)
    torch.testing.assert_close(path.v, expected.v, rtol=1e-11, atol=1e-12)


# Numbers of the contact solver as parameters


def falling(contact):
    """Balls that rest a little inside the ground, deep inside, and that hit it, all sliding."""
    sim = Simulator(adjoin.robots.load("ball"), 2e-3, contact)
    q, v = tensor(0.0, 0.0, 0.1, *UPRIGHT).repeat(3, 1), torch.zeros(3, 6, dtype=torch.float64)
    q[:, 2] += tensor(-1e-4, -5e-3, 1e-3)
    v[:, 0], v[:, 2] = tensor(0.2, 0.1, 0.4), tensor(0.0, 0.0, -1.0)
    return sim, sim.state(q, v)


def turning(contact):
    """Joints that rest at their limits, one beyond them, and one that is driven into them against friction."""
    sim = Simulator(hinge(0.05, upper=0.2, friction=(0.3,)), 2e-3, contact)
    return sim, sim.state(tensor([0.2], [0.21], [0.19]), tensor([0.1], [0.0], [3.0]))


# Solver, parameter, a value to differentiate at, world, which of the three environments depend on it.
PARAMETERS = [
    (PGS(), "error_reduction", 0.2, falling, [0, 2]),
    (PGS(), "recovery", 0.1, falling, [1]),
    (PGS(), "softness", 1e-2, falling, [0, 1, 2]),
    (PGS(), "restitution", 0.5, falling, [2]),
    (PGS(restitution=0.5), "threshold", 0.1, falling, []),
    (PGS(elliptic=True), "softness", 1e-2, falling, [0, 1, 2]),
    (PGS(), "softness", 1e-2, turning, [1, 2]),
    (Compliant(), "stiffness", 2500.0, falling, [0, 1, 2]),
    (Compliant(), "dissipation", 5.0, falling, [0, 1, 2]),
    (Compliant(), "depth", 1e-3, falling, [0, 1, 2]),
    (Compliant(), "transition", 0.01, falling, [0, 1, 2]),
    (Compliant(), "stiffness", 2500.0, turning, [0, 1, 2]),
    (Compliant(), "lever", 0.3, turning, [0, 1, 2]),
]


def label(case):
    contact, name, _, world, _ = case
    return f"{type(contact).__name__}-{name}-{world.__name__}{'-elliptic' if contact.elliptic else ''}"


CASES = pytest.mark.parametrize("case", PARAMETERS, ids=label)


def test_every_number_of_both_solvers_is_among_them():
    for contact in (PGS(), Compliant()):
        fields = {each.name for each in dataclasses.fields(contact) if isinstance(each.default, float)}
        assert set(contact.parameters) == fields
        assert {name for solver, name, *_ in PARAMETERS if type(solver) is type(contact)} == fields


@CASES
def test_gradients_to_contact_parameters_are_those_of_finite_differences(case):
    contact, name, value, world, depending = case
    sim, state = world(contact)

    def end(factor):
        path = sim.rollout(state, steps=8, params={f"contact_{name}": value * factor})
        return path.q[-1], path.v[-1]

    ones = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(end, ones, eps=1e-6, rtol=1e-5, atol=1e-9)
    q, v = end(ones)
    (slope,) = torch.autograd.grad(q.square().sum() + v.square().sum(), ones)
    assert slope.nonzero().flatten().tolist() == depending
    shared = torch.ones((), dtype=torch.float64, requires_grad=True)
    q, v = end(shared)
    (total,) = torch.autograd.grad(q.square().sum() + v.square().sum(), shared)
    torch.testing.assert_close(total, slope.sum(), rtol=1e-10, atol=1e-12)


@CASES
def test_the_default_of_a_contact_parameter_changes_nothing(case):
    contact, name, _, world, _ = case
    sim, state = world(contact)
    default = torch.tensor(float(getattr(contact, name)), dtype=torch.float64)
    plain = sim.rollout(state, steps=20)
    passed = sim.rollout(state, steps=20, params={f"contact_{name}": default})
    torch.testing.assert_close(passed.q, plain.q, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(passed.v, plain.v, rtol=0.0, atol=1e-11)


@CASES
def test_a_contact_parameter_of_each_environment_is_that_of_a_solver_of_its_own(case):
    contact, name, value, world, _ = case
    sim, state = world(contact)
    values = value * tensor(0.7, 1.0, 1.3)
    path = sim.rollout(state, steps=20, params={f"contact_{name}": values})
    after = sim.step(state, params={f"contact_{name}": values})
    for i, own in enumerate(values.tolist()):
        other, _ = world(dataclasses.replace(contact, **{name: own}))
        torch.testing.assert_close(path.q[:, i], other.rollout(state[i], steps=20).q, rtol=0.0, atol=1e-12)
        torch.testing.assert_close(after.v[i], other.step(state[i]).v, rtol=0.0, atol=1e-12)


def test_the_threshold_decides_what_bounces():
    sim, state = falling(PGS(restitution=0.5))
    path = sim.rollout(state, steps=20, params={"contact_threshold": tensor(0.1, 0.1, 0.1)})
    assert path.v[..., 2].amax(0)[2] > 0.4
    path = sim.rollout(state, steps=20, params={"contact_threshold": tensor(0.1, 0.1, 2.0)})
    assert path.v[..., 2].amax(0)[2] < 0.1  # the speed of recovery


def test_contact_parameters_are_named_where_one_is_wrong():
    sim, state = falling(PGS())
    with pytest.raises(InputError, match=r"'contact_stiffness' is not .*; its own are contact_error_reduction"):
        sim.step(state, params={"contact_stiffness": tensor(1.0)})
    with pytest.raises(InputError, match=r"'contact_softness' has shape \(2,\)"):
        sim.step(state, params={"contact_softness": tensor(1.0, 2.0)})
    soft, _ = falling(Compliant())
    with pytest.raises(InputError, match=r"its own are contact_stiffness, contact_dissipation, contact_depth"):
        soft.step(state, params={"contact_softness": tensor(1.0)})


def test_a_ground_that_would_touch_nothing_is_not_added():
    ball = adjoin.robots.load("ball")
    assert adjoin.Simulator(ball).contact_names
    alone = tuple(dataclasses.replace(shape, contype=0, conaffinity=0) for shape in ball.geometries)
    lonely = adjoin.Simulator(dataclasses.replace(ball, geometries=alone))
    assert "ground" not in [shape.name for shape in lonely.model.geometries]


def test_pairs_without_a_closed_form_are_named():
    pytest.importorskip("mujoco")
    body = '<body name="{0}"><freejoint/><geom name="{0}" type="cylinder" size="1 1"/></body>'
    model = adjoin.load(f"<mujoco><worldbody>{body.format('a')}{body.format('b')}</worldbody></mujoco>")
    with pytest.warns(AdjoinWarning, match="1 of 3 pairs of shapes do not touch.*'a' with 'b'") as caught:
        adjoin.Simulator(model, contact=PGS(), as_list=False, ground=True)
    assert caught[0].filename == __file__


def test_an_mjcf_file_without_a_floor_has_none():
    pytest.importorskip("mujoco")
    ball = '<body name="ball"><freejoint/><geom name="ball" type="sphere" size="0.1"/></body>'
    model = adjoin.load(f"<mujoco><worldbody>{ball}</worldbody></mujoco>")
    assert adjoin.Simulator(model).contact_names == []
    for options in ({"ground": True}, {"pairs": [("ball", "ground")]}):
        assert adjoin.Simulator(model, **options).contact_names == [("ball", "ground")]


def test_two_planes_that_would_touch_are_named():
    ball = adjoin.robots.load("ball")
    tray = dataclasses.replace(ball.geometries[0], name="tray", kind="plane", size=(0.0, 0.0, 0.0))
    model = dataclasses.replace(ball, geometries=(tray,))
    with pytest.warns(AdjoinWarning, match="'tray' with 'ground' do not touch"):
        assert adjoin.Simulator(model).contact_names == []
    assert adjoin.Simulator(model, ignore=[("tray", "ground")]).contact_names == []
