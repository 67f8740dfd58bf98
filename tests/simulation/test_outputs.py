"""What a rollout returns besides its states: values of steps, and traced functions of them."""

import functools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from worlds import UPRIGHT, brick, hinge, hopper, simulator, tensor

import adjoin
from adjoin import PerEnvironment, PerStep
from adjoin import trace as at
from adjoin.errors import InputError
from adjoin.simulation.integrators import RK4
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import Contacts
from adjoin.simulation.step import STAGES, STEP_VALUES, step_value

STEPS, COUNT = 15, 3


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@functools.cache
def arm(**options):
    return Simulator(adjoin.robots.load("two_link"), 0.01, pairs=[], limits=False, **options)


@functools.cache
def hopping():
    """Hoppers that land: the simulator, their state and controls."""
    sim = simulator(hopper(), 1e-3)
    q = sim.model.neutral((COUNT,), dtype=torch.float64)
    q[:, 2] = 0.2499 + 1e-4 * torch.arange(COUNT)
    return sim, sim.state(q, 0.3 * random(COUNT, 8)), random(STEPS, COUNT, 2, seed=1)


@functools.cache
def landing():
    """All that there is of their rollout."""
    sim, state, controls = hopping()
    return sim.rollout(state, controls, outputs=list(STEP_VALUES))


def assert_same(one, other):
    torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


# Each value


def test_these_are_the_values_of_a_step():
    assert list(STEP_VALUES) == [
        "q",
        "v",
        "control",
        "next_q",
        "next_v",
        "status",
        "acceleration",
        "contacts",
        "contact_count",
        "constraint_modes",
        "solver_residual",
        "fault",
        "sensors",
    ]
    assert all(function.__doc__ for function in STEP_VALUES.values())
    assert list(landing().outputs) == list(STEP_VALUES)


def test_states_and_controls_are_those_of_the_trajectory():
    path, (_, _, controls) = landing(), hopping()
    assert_same(path.outputs["q"], path.q[:-1])
    assert_same(path.outputs["v"], path.v[:-1])
    assert_same(path.outputs["next_q"], path.q[1:])
    assert_same(path.outputs["next_v"], path.v[1:])
    assert_same(path.outputs["control"], controls)


def test_the_control_is_what_the_controller_returned():
    sim, state, _ = hopping()
    targets = random(STEPS, COUNT, 2, seed=3)
    path = sim.rollout(state, targets, controller=lambda q, control: 2.0 * (control - q[7:]), outputs=["control"])
    torch.testing.assert_close(path.outputs["control"], 2.0 * (targets - path.q[:-1, :, 7:]))


@pytest.mark.parametrize("integrator", [None, RK4()])
def test_the_acceleration_is_the_change_of_velocity_over_time(integrator):
    model = adjoin.robots.load("pendulum", links=2).with_motors()
    sim = Simulator(model, 0.01, pairs=[], limits=False, integrator=integrator)
    torque = random(STEPS, COUNT, 2, seed=1)
    path = sim.rollout(sim.state(random(COUNT, 2)), torque, outputs=["acceleration"])
    torch.testing.assert_close(path.outputs["acceleration"], path.v.diff(dim=0) / sim.dt, rtol=1e-10, atol=1e-10)
    if integrator is None:
        expected = adjoin.aba(model, path.q[:-1], path.v[:-1], torque)
        torch.testing.assert_close(path.outputs["acceleration"], expected, rtol=1e-10, atol=1e-10)


def test_the_acceleration_of_a_free_body_is_in_the_axes_of_the_beginning():
    sim = Simulator(brick(), 1e-3)
    q, v = tensor(0.0, 0.0, 1.0, 0.6, 0.0, 0.8, 0.0), tensor(1.0, 2.0, 3.0, 2.0, -1.0, 0.5)
    found = sim.rollout(sim.state(q, v), steps=1, outputs=["acceleration"]).outputs["acceleration"][0]
    rate = adjoin.aba(sim.model, q, v, torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(found[:3], rate[:3] + torch.linalg.cross(v[3:], v[:3]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found[3:], rate[3:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("warm", [False, True])
def test_contacts_are_those_of_the_simulator(warm):
    sim = simulator(hopper(), 1e-3, warm=warm)
    _, state, controls = hopping()
    path = sim.rollout(sim.state(state.q, state.v), controls, outputs=["contacts"])
    touching = path.outputs["contacts"]
    assert isinstance(touching, Contacts)
    assert touching.distance.shape == (STEPS, COUNT, len(sim.contact_names))
    assert (touching.force[..., 0, 2] > 0.0).any()
    for k in range(STEPS):
        for one, other in zip(touching, sim.contacts(path.at(k), controls[k]), strict=True):
            assert_same(one[k], other)


def test_contact_forces_change_momentum():
    sim = Simulator(adjoin.robots.load("ball"), 1e-3)
    start = sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT), tensor(1.0, 0.0, -0.2, 0.0, 0.0, 0.0))
    path = sim.rollout(start, steps=10, outputs=["contacts"])
    weight = tensor(0.0, 0.0, -9.81) * sim.model.mass
    speed = rotated(path.q[:, 3:7], path.v[:, :3])
    change = sim.model.mass * speed.diff(dim=0) / sim.dt
    torch.testing.assert_close(change, path.outputs["contacts"].force.sum(-2) + weight, rtol=1e-8, atol=1e-8)


def rotated(q, x):
    """A vector turned by quaternions (w, x, y, z)."""
    w, axis = q[..., :1], q[..., 1:]
    return x + 2.0 * torch.linalg.cross(axis, torch.linalg.cross(axis, x) + w * x)


def test_robots_that_cannot_touch_have_contacts_of_no_points():
    sim = arm()
    for batch in ((), (COUNT,), (2, 3)):
        for every in (1, 4):
            outputs = ["contacts", "constraint_modes"]
            path = sim.rollout(sim.state(batch=batch), steps=STEPS, outputs=outputs, every=every)
            assert {name: tuple(x.shape) for name, x in path.outputs["contacts"]._asdict().items()} == {
                "pair": (STEPS, *batch, 0),
                "distance": (STEPS, *batch, 0),
                "position": (STEPS, *batch, 0, 3),
                "normal": (STEPS, *batch, 0, 3),
                "force": (STEPS, *batch, 0, 3),
            }
            assert path.outputs["constraint_modes"].shape == (STEPS, *batch, 0)
            assert path.outputs["contacts"].force.dtype == path.q.dtype
    assert sim.contacts(sim.state(batch=2)).force.shape == (2, 0, 3)


def test_constraint_modes_are_those_of_the_diagnostics():
    sim, state, controls = hopping()
    found = sim.diagnose(state, controls, lambda path: path.q.sum())
    assert_same(landing().outputs["constraint_modes"].long(), found.modes)
    assert (found.modes[..., 0] > 0).any()
    assert found.modes.shape == (STEPS, COUNT, 5 + 2 + 2)  # contacts, joint limits, joint friction


def test_constraint_modes_of_a_joint():
    sim = Simulator(hinge(0.5, upper=0.01, friction=(1.0,)))
    torque = tensor(0.5, 3.0)[:, None].expand(200, 2, 1)
    state = sim.state(batch=2, dtype=torch.float64)
    modes = sim.rollout(state, torque, outputs=["constraint_modes"]).outputs["constraint_modes"]
    assert modes[-1].tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert modes[0, 1].tolist() == [0.0, 2.0]


def test_faults_and_status_say_what_went_wrong():
    sim, state, controls = hopping()
    spoilt = controls.clone()
    spoilt[4, 1, 0] = math.nan
    path = sim.rollout(state, spoilt, outputs=["fault", "status"])
    fault, status = path.outputs["fault"], path.outputs["status"]
    assert_same(status, path.memory["status"][1:])
    assert not fault[:, [0, 2]].any()
    assert not fault[:4, 1].any()
    assert STAGES[int(fault[4, 1]) - 1] == "control"
    assert status[:, 1].tolist() == [0.0] * 4 + [1.0] * (STEPS - 4)
    assert not landing().outputs["fault"].any()


# Functions


def test_functions_of_values_and_of_named_tensors():
    sim, state, controls = hopping()

    def power(control, v, next_v, efficiency):
        return efficiency * ((control @ v[6:]) + (control @ next_v[6:])) / 2.0

    def effort(control, acceleration, contacts, weight):
        return weight * (control @ control) + 1e-4 * (acceleration @ acceleration) + contacts.force[0, 2]

    efficiency, weight = random(COUNT, seed=4), random(STEPS, seed=5)
    path = sim.rollout(
        state,
        controls,
        outputs={"power": power, "effort": effort, "where": "next_q"},
        tensors={"efficiency": PerEnvironment(efficiency), "weight": PerStep(weight)},
    )
    assert path.outputs.keys() == {"power", "effort", "where"}
    assert_same(path.outputs["where"], path.q[1:])
    mean = 0.5 * (path.v[:-1, :, 6:] + path.v[1:, :, 6:])
    torch.testing.assert_close(path.outputs["power"], efficiency * (controls * mean).sum(-1))
    values = landing().outputs
    expected = weight[:, None] * controls.square().sum(-1) + 1e-4 * values["acceleration"].square().sum(-1)
    torch.testing.assert_close(path.outputs["effort"], expected + values["contacts"].force[:, :, 0, 2])


class Feet(NamedTuple):
    height: object
    speed: object


def test_outputs_may_be_nested():
    sim, state, controls = hopping()

    def nested(next_q, next_v, control):
        return {
            "feet": Feet(next_q[2] - 0.25, (next_v[2], next_v[:2])),
            "table": np.outer(control, control),
            "nothing": (),
            "number": 2.0,
        }

    found = sim.rollout(state, controls, outputs={"all": nested, "pair": lambda q: (q[0], q[1])}).outputs
    path = landing()
    assert isinstance(found["all"]["feet"], Feet)
    assert_same(found["all"]["feet"].height, path.q[1:, :, 2] - 0.25)
    assert_same(found["all"]["feet"].speed[0], path.v[1:, :, 2])
    assert_same(found["all"]["feet"].speed[1], path.v[1:, :, :2])
    assert_same(found["all"]["table"], controls[..., :, None] * controls[..., None, :])
    assert found["all"]["nothing"] == ()
    assert_same(found["all"]["number"], torch.full((STEPS, COUNT), 2.0, dtype=torch.float64))
    assert_same(torch.stack(found["pair"], -1), path.q[:-1, :, :2])


def test_outputs_are_of_all_steps_whichever_states_are_kept():
    sim, state, controls = hopping()
    path = sim.rollout(state, controls, outputs=list(STEP_VALUES), every=4)
    assert path.q.shape[0] == 5
    for name, value in landing().outputs.items():
        other = path.outputs[name]
        assert_same(list(value) if name == "contacts" else value, list(other) if name == "contacts" else other)


def test_gradients_go_through_outputs_like_through_states():
    sim, state, controls = hopping()

    def loss(v, outputs):
        path = sim.rollout(sim.state(state.q, v), controls, outputs=outputs)
        if not outputs:
            return (path.v[1:] * path.q[:-1, :, :8]).sum() + path.v.diff(dim=0)[..., 7].square().sum() / sim.dt**2
        found = path.outputs
        return (found["next_v"] * found["q"][..., :8]).sum() + found["a"].square().sum()

    wanted = {"next_v": "next_v", "q": "q", "a": lambda acceleration: acceleration[7]}
    slopes = []
    for outputs in (wanted, {}):
        v = state.v.clone().requires_grad_()
        slopes.append(torch.autograd.grad(loss(v, outputs), v)[0])
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-9, atol=1e-9)


def test_values_that_nobody_asks_for_are_not_computed():
    def unasked(step):
        """A value that must not be asked for."""
        raise AssertionError

    step_value(unasked)
    try:
        path = arm().rollout(arm().state(), steps=2, outputs={"x": lambda q: q[0] * 3.0, "v": "v"})
        assert path.outputs.keys() == {"x", "v"}
    finally:
        del STEP_VALUES["unasked"]


def test_a_new_value_can_be_registered():
    @step_value
    def height(step):
        """The height of the center of mass after the step, m."""
        masses = [body.mass for body in step.plant.model.bodies]
        return step["next_q"][2] * masses[0] + step.result.q[2] * sum(masses[1:])

    try:
        sim, state, controls = hopping()
        outputs = {"height": "height", "twice": lambda height: 2.0 * height}
        path = sim.rollout(state, controls, outputs=outputs)
        torch.testing.assert_close(path.outputs["height"], 1.5 * path.q[1:, :, 2])
        torch.testing.assert_close(path.outputs["twice"], 3.0 * path.q[1:, :, 2])
        with pytest.raises(InputError, match=r"outputs: q, v, .*, fault, sensors, height"):
            sim.rollout(state, controls, outputs=["hight"])
    finally:
        del STEP_VALUES["height"]


def test_traced_branches_in_outputs():
    path = arm().rollout(
        arm().state(random(COUNT, 2)),
        steps=4,
        outputs={"side": lambda q: at.select(q[0] > 0.0, 1.0, -1.0), "greatest": lambda q: at.maximum(q[0], q[1])},
    )
    assert_same(path.outputs["side"], torch.where(path.q[:-1, :, 0] > 0.0, 1.0, -1.0).double())
    assert_same(path.outputs["greatest"], path.q[:-1].amax(-1))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["forces"], r"rollout: no output 'forces' .*; outputs: q, v, control, next_q, next_v, .*contacts"),
        ({"x": "forces"}, r"rollout: no output 'forces' for 'x'; outputs: q, v"),
        ({"x": 3}, r"rollout: no output 3 for 'x'; outputs: q, v"),
        ("contacts", r"outputs must be a list of names, or a mapping from labels; got 'contacts'"),
    ],
)
def test_what_is_wrong_is_said(outputs, message):
    with pytest.raises(InputError, match=message):
        arm().rollout(arm().state(), steps=2, outputs=outputs)
