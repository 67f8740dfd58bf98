"""A G1 lies down on its back, rests and gets up again under a table of postures, here and in MuJoCo.

Contact is the default, with all shapes of the robot. Nothing is fed back, so that what contact does decides.
"""

import re

import get_up
import mujoco_models
import numpy as np
import pytest
import torch

import adjoin

mujoco = pytest.importorskip("mujoco")

REST, END = (11.4, 12.4), (-2.0, None)  # s


@pytest.fixture(scope="module")
def sim():
    return adjoin.Simulator(get_up.robot())


def simulated(sim, script):
    """What happens in each step, by name, and the last state."""
    parts, path = [], None
    for path in get_up.perform(sim, get_up.targets(sim.model, *get_up.table(script), sim.dt)):
        parts.append(get_up.measured(sim, path))
    assert path is not None
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, path.last


def during(found, seconds, dt=1e-3):
    first, last = (None if x is None else round(x / dt) for x in seconds)
    return {name: x[first:last] for name, x in found.items()}


def rests_on_its_back(found):
    low = bool((found["head"] < 0.15).all() and (found["pelvis"] < 0.12).all())
    return low and bool((found["chest"] > 0.98).all() and (found["speed"] < 0.01).all())


def stands(found, height):
    upright = bool((found["head"] > 0.9 * height).all() and (found["upright"] > 0.98).all())
    return upright and bool((found["speed"] < 0.2).all() and (found["other contacts"] == 0).all())


def test_it_lies_down_and_gets_up_again(sim):
    found, last = simulated(sim, get_up.SCRIPT)
    height = float(found["head"][0])
    assert int(last.status) == 0
    assert stands(during(found, (0.3, 0.5)), height)
    assert rests_on_its_back(during(found, REST))
    assert stands(during(found, END), height)
    assert found["depth"].max() < 0.005
    # Neither is so of what comes between.
    assert not rests_on_its_back(during(found, (8.0, 8.5)))
    assert not stands(during(found, (17.6, 18.1)), height)


def test_the_example_says_so(run_example):
    said = run_example("31_get_up.py")
    found = re.search(r"rests on its back: head at (\S+) m.*vertical (\S+), speed", said)
    assert found is not None
    assert float(found[1]) < 0.15
    assert float(found[2]) > 0.98
    found = re.search(r"stands for 2 s: head at (\S+) m.* (\d+) contacts other", said)
    assert found is not None
    assert float(found[1]) > 1.1
    assert found[2] == "0"


def test_it_does_not_get_up_by_going_straight_to_where_its_joints_are_when_it_stands(sim):
    found, last = simulated(sim, (*get_up.DOWN, (15.4, "stand"), (18.4, "stand")))
    assert int(last.status) == 0
    assert rests_on_its_back(during(found, REST))
    assert not stands(during(found, END), float(found["head"][0]))
    assert found["head"][-2000:].max() < 0.6


def mujocos_robot(model, dt):
    """MuJoCo's specification of the same robot, from the same file, on a floor and with the same servos."""
    spec = mujoco.MjSpec.from_string(adjoin.robots.source("g1").decode())
    spec.compiler.inertiafromgeom = 0  # what has no mass in the file has none
    spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5.0, 5.0, 1.0])
    spec.option.timestep, spec.option.integrator = dt, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for drive in model.actuators:
        servo = spec.add_actuator(name=drive.name, target=drive.joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=drive.gain, kv=-drive.bias[2])
    return spec


def test_mujocos_robot_lies_down_and_gets_up_under_the_same_control(sim):
    model = mujocos_robot(sim.model, sim.dt).compile()
    data = mujoco.MjData(model)
    controls = get_up.targets(sim.model, *get_up.table(get_up.SCRIPT), sim.dt)
    q = sim.model.neutral(dtype=torch.float64)
    q[2], q[7:] = 1.0, controls[0]
    data.qpos[:] = sim.drop(q).q
    torso = model.body("torso_link").id
    feet = {k for k in range(model.ngeom) if "ankle_roll" in model.geom(k).name}
    ground, rows, torques = model.geom("ground").id, [], []
    for control in controls.numpy():
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
        touching = [{int(contact.geom1), int(contact.geom2)} for contact in data.contact]
        others = sum(not (pair & feet and ground in pair) for pair in touching)
        torques.append(data.qfrc_actuator[6:].copy())
        turn = data.xmat[torso].reshape(3, 3)
        head = data.xpos[torso][2] + turn[2] @ get_up.HEAD[:3].numpy()
        rows.append((head, data.qpos[2], turn[2, 0], turn[2, 2], abs(data.qvel).max(), others))
    limits = [joint.effort_limit for joint in adjoin.robots.load("g1").joints if joint.kind == "revolute"]
    assert (np.abs(torques).max(0) <= np.array(limits) * (1.0 + 1e-12)).all()
    names = ("head", "pelvis", "chest", "upright", "speed", "other contacts")
    found = dict(zip(names, torch.tensor(np.array(rows)).unbind(1), strict=True))
    assert rests_on_its_back(during(found, REST))
    assert stands(during(found, END), float(found["head"][0]))


def test_steps_are_mujocos_where_the_model_of_contact_is(sim):
    controls = get_up.targets(sim.model, *get_up.table(get_up.SCRIPT), sim.dt)
    model, ours = mujoco_models.engines(mujocos_robot(sim.model, sim.dt).to_xml())
    q = sim.model.neutral(dtype=torch.float64)
    q[2], q[7:] = 1.0, controls[0]
    start = sim.drop(q).q
    path = ours.rollout(ours.state(start), controls)
    data, expected = mujoco.MjData(model), [start.numpy()]
    data.qpos[:] = start
    for control in controls.numpy():
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
        expected.append(data.qpos.copy())
    difference = (path.q - torch.tensor(np.array(expected))).abs().amax(-1)
    assert path.q[:, 2].min() < 0.1
    assert path.q[-1, 2] > 0.7
    # All 25 s: the servos and friction damp what differs. A start that is 1e-9 rad off in a joint ends 3e-10 off.
    assert difference.max() < 1e-10
