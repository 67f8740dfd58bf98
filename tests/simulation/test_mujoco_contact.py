"""Robots that fall, stand and are pushed, against MuJoCo on the same files.

MuJoCo's contacts are springs with a time constant, ours are impulses. So in the air the two go the same way to within
the error of a step; how bodies land differs for a few milliseconds; where they come to rest is the same again but for
the depth to which MuJoCo's sink in. Its free joint has the linear velocity in world axes.
"""

import functools
import importlib.resources
import math
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from worlds import FEET, simulator, tensor

import adjoin
from adjoin.errors import ModelWarning
from adjoin.model.parts import Actuator
from adjoin.simulation.simulator import Simulator

mujoco = pytest.importorskip("mujoco")

DT, STEPS = 1e-3, 1500


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    # MuJoCo writes MUJOCO_LOG.TXT into the working folder when a file uses deprecated attributes.
    monkeypatch.chdir(tmp_path)


class Case(NamedTuple):
    """A robot in both simulators.

    Attributes:
        sim: ours.
        mj: MuJoCo's model.
        q: where it stands or lies, and what its servos hold.
        drop: how far it falls before that, m.
    """

    sim: Simulator
    mj: Any
    q: torch.Tensor
    drop: float

    @property
    def target(self):
        model = self.sim.model
        return torch.stack([self.q[model.coordinates[model.joint_index(drive.joint)].q] for drive in model.actuators])


def with_servos(model, kp, kd):
    drives = [Actuator(j.name, j.name, gain=kp, bias=(0.0, -kp, -kd)) for j in model.joints if j.nv == 1]
    return replace(model, actuators=tuple(drives))


def compiled(spec, model):
    """With the same servos, and contacts as stiff as the step lets them be: time constants of two steps."""
    for old in list(spec.actuators):
        spec.delete(old)
    for drive in model.actuators:
        added = spec.add_actuator(name=drive.name, target=drive.joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        added.gainprm[0] = drive.gain
        added.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        added.biasprm[:3] = drive.bias
    spec.option.timestep = DT
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    mj = spec.compile()
    mj.geom_solref[:] = (2.0 * DT, 1.0)
    mj.geom_solimp[:, :3] = (0.95, 0.99, 0.001)
    return mj


def touching_only(mj, pairs):
    """MuJoCo's model in which only these pairs touch."""
    named = {name for pair in pairs for name in pair}
    for i in range(mj.ngeom):
        if mj.geom(i).name not in named:
            mj.geom_contype[i] = mj.geom_conaffinity[i] = 0
    return mj


def quadruped(name, drop):
    plain = adjoin.robots.load(name)
    model = with_servos(plain, 200.0, 10.0)
    spec = mujoco.MjSpec.from_string(adjoin.to_urdf(plain))
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 1.0])
    pairs = [(f"{foot}/0", ground) for foot, ground in FEET[name]]
    mj = touching_only(compiled(spec, model), pairs)
    return Case(simulator(model, DT, pairs), mj, tensor(*model.keyframe("home").q), drop)


def from_gymnasium(name, kp, kd, pairs, q, drop, **contact):
    file = str(importlib.resources.files("gymnasium") / "envs" / "mujoco" / "assets" / f"{name}.xml")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = replace(with_servos(adjoin.load(file, unsupported="warn"), kp, kd), integrator="implicitfast")
    mj = touching_only(compiled(mujoco.MjSpec.from_file(file), model), pairs)
    return Case(simulator(model, DT, pairs, **contact), mj, tensor(*q), drop)


def ant():
    """On the tips of its legs, which float on the margins of its shapes.

    Its joints have more inertia than it weighs, so that feet push against each other: more sweeps are needed.
    """
    ankles = [(f"{name}_ankle_geom", "floor") for name in ("left", "right", "third", "fourth")]
    legs = (0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)
    return from_gymnasium("ant", 40.0, 4.0, ankles, (0.0, 0.0, 0.576, 1.0, 0.0, 0.0, 0.0, *legs), 0.15, iterations=100)


def humanoid():
    """On its back, knees and hips bent a little."""
    body = ("torso1", "head", "uwaist", "lwaist", "butt")
    limbs = [f"{side}_{part}" for side in SIDES for part in ("thigh1", "shin1", "foot", "uarm1", "larm", "hand")]
    leg = (0.0, 0.0, -0.3, -0.3)
    lying = (0.0, 0.0, 0.125, math.sqrt(0.5), 0.0, -math.sqrt(0.5), 0.0)
    pairs = [(name, "floor") for name in (*body, *limbs)]
    return from_gymnasium("humanoid", 200.0, 20.0, pairs, (*lying, 0.0, 0.0, 0.0, *leg, *leg, *[0.0] * 6), 0.3)


SIDES = ("right", "left")
CASES = {
    "go2": lambda: quadruped("go2", 0.05),
    "laikago": lambda: quadruped("laikago", 0.05),
    "ant": ant,
    "humanoid": humanoid,
}


def theirs(case, q, v, steps):
    """MuJoCo's configurations, and the sum of contact forces."""
    mj, data = case.mj, mujoco.MjData(case.mj)
    turn = np.zeros(9)
    data.qpos[:] = q
    mujoco.mju_quat2Mat(turn, data.qpos[3:7])
    data.qvel[:] = v
    data.qvel[:3] = turn.reshape(3, 3) @ v[:3].numpy()
    data.ctrl[:] = case.target
    places, forces = [np.array(data.qpos)], []
    for _ in range(steps):
        mujoco.mj_step(mj, data)
        places.append(np.array(data.qpos))
        forces.append(np.array(data.qfrc_constraint[:3]))
    return torch.tensor(np.array(places)), torch.tensor(np.array(forces))


@functools.cache
def both(name):
    """Drop, stance and push by both simulators: configurations (steps + 1, 3, nq) and forces (steps, 3, 3), twice."""
    case = CASES[name]()
    q = case.q.expand(3, -1).clone()
    v = torch.zeros(3, case.sim.model.nv, dtype=torch.float64)
    q[0, 2] += case.drop
    v[2, :2] = tensor(0.2, 0.4)
    path = case.sim.rollout(case.sim.state(q, v), case.target.expand(STEPS, -1), outputs=["contacts"])
    assert (path.status == 0).all()
    on_robot = tensor(*[-1.0 if first in ("floor", "ground") else 1.0 for first, _ in case.sim.contact_names])
    contacts = path.outputs["contacts"]
    assert (contacts.force[contacts.pair < 0] == 0.0).all()  # places of the list that hold no contact
    ours = path.q, (contacts.force * on_robot[contacts.pair.long().clamp(min=0)][..., None]).sum(-2)
    other = [theirs(case, *start, STEPS) for start in zip(q, v, strict=True)]
    return ours, (torch.stack([x for x, _ in other], 1), torch.stack([f for _, f in other], 1))


@pytest.mark.parametrize("name", CASES)
def test_in_the_air_the_motion_is_the_same(name):
    (q, force), (other, other_force) = both(name)
    for case in range(3):
        alone = (force[:, case] == 0.0).all(-1) & (other_force[:, case] == 0.0).all(-1)
        until = int((~alone).double().argmax())
        assert until > 50 or case > 0
        torch.testing.assert_close(q[:until, case], other[:until, case], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_landing_standing_and_pushed_the_motion_stays_close(name):
    (q, _), (other, _) = both(name)
    apart = (q - other).abs()
    assert apart[..., :3].max() < 5e-3
    assert apart[..., 3:7].max() < 5e-3
    assert apart[..., 7:].max() < 0.02


@pytest.mark.parametrize("name", CASES)
def test_at_rest_the_height_and_the_total_force_are_the_same(name):
    (q, force), (other, other_force) = both(name)
    assert (q[-1, :, 2] - other[-1, :, 2]).abs().max() < 2e-3
    apart = (force[-1] - other_force[-1]).norm(dim=-1)
    assert (apart < 0.01 * other_force[-1].norm(dim=-1)).all()
