"""Every MJCF of some folders next to MuJoCo: quantities of random states, steps, and sensors.

    python tests/simulation/mujoco_tables.py FOLDER ... [--steps] [--largest 30]

Quantities are computed over Python floats, so that nothing is compiled. With --steps, one step with contact from each
of a few states on the way of a fall is compared too, for models with at most so many degrees of freedom.
"""

import argparse
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import mujoco
import mujoco_models
import numpy as np
import torch

import adjoin
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.rnea import inverse_dynamics
from adjoin.errors import AdjoinError
from adjoin.simulation.actuation import effort_of
from adjoin.simulation.euler import straight
from adjoin.simulation.sensors import Reading

STATES = 2
ENOUGH = 1e-10
ENOUGH_STEP = 1e-6
FORCES = ("touch", "force", "torque", "jointlimitfrc", "tendonlimitfrc")
"""Sensors that are compared after a step with contact."""


def rotations(model, q):
    """The matrix that takes our velocities to MuJoCo's: those of floating bodies in world axes."""
    matrix = np.eye(model.nv)
    for j in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        place, start = model.jnt_qposadr[j], model.jnt_dofadr[j]
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, q[place + 3 : place + 7])
        matrix[start : start + 3, start : start + 3] = turn.reshape(3, 3)
    return matrix


def load(path):
    """MuJoCo's model and ours; what ours leaves out counts as a difference where it matters."""
    theirs = mujoco.MjModel.from_xml_path(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return theirs, adjoin.load(str(path), meshes="ignore")


def quantities(path):
    """The largest difference of each quantity, over its own size where that is more than 1."""
    m, ours = load(path)
    worst = {"sizes": float((ours.nq, ours.nv, ours.nu, ours.na) != (m.nq, m.nv, m.nu, m.na))}
    if worst["sizes"]:
        return worst
    world = adjoin.World.of(ours, 1e-3, pairs=[], contact=adjoin.Newton())
    for data in mujoco_models.random_states(m, STATES):
        turn = rotations(m, data.qpos)
        v = (turn.T @ data.qvel).tolist()
        control, activation = data.ctrl.tolist(), data.act.tolist()
        state, _ = world.plant(control).at(data.qpos.tolist(), v)
        inertia = np.array(crba_of(state), dtype=float)
        onwards = straight(ours, v)
        coasting = np.array(state.robot.numbers("armature")) * np.array(onwards)
        effort = effort_of(state, control, activation, m.opt.timestep)
        expected = np.zeros((m.nv, m.nv))
        mujoco.mj_fullM(m, data, expected)
        measured = readings(world, data, v, effort, (turn.T @ data.qacc).tolist())
        pairs = {
            "M": (np.tril(inertia) + np.tril(inertia, -1).T, turn.T @ expected @ turn),
            "bias": (np.array(inverse_dynamics(state, onwards)) - coasting, turn.T @ data.qfrc_bias),
            "passive": (np.array(effort.force) - np.array(effort.actuated), turn.T @ data.qfrc_passive),
            "actuators": (effort.actuated, turn.T @ data.qfrc_actuator),
            "sensors": (measured, [x for name in sensor_names(ours) for x in data.sensor(name).data]),
        }
        for name, (one, other) in pairs.items():
            one, other = np.array(one, dtype=float), np.array(other, dtype=float)
            if other.size:
                error = np.abs(one - other).max() / max(1.0, np.abs(other).max())
                worst[name] = max(worst.get(name, 0.0), float(error))
    return worst


def sensor_names(model):
    """Sensors that do not depend on what touches, and whose names are the file's."""
    kinds = ("touch", "force", "torque", "rangefinder", "framequat", "ballquat")
    kept = [sensor for sensor in model.sensors if sensor.kind not in kinds and "limit" not in sensor.kind]
    return [sensor.name for sensor in kept if not sensor.name.startswith("sensor")]


def readings(world, data, v, effort, acceleration):
    """Our sensors at MuJoCo's accelerations."""
    plant = world.plant(data.ctrl.tolist())
    result = SimpleNamespace(effort=effort, beginning_acceleration=acceleration)
    step = {"q": data.qpos.tolist(), "v": v}
    fake = type("FakeStep", (dict,), {"plant": plant, "result": result})(step)
    reading = Reading(fake)
    named = {sensor.name: sensor for sensor in world.model.sensors}
    return [x for name in sensor_names(world.model) for x in reading.of(named[name])]


def step_difference(path, count=4):
    """The largest difference after one step with contact, over how much the velocity changes."""
    m, ours = load(path)
    m.opt.tolerance, m.opt.ls_tolerance = 1e-16, 1e-10
    m.opt.iterations = m.opt.ls_iterations = 200
    sim = adjoin.Simulator(ours, m.opt.timestep, adjoin.Newton(), ground=False, self_collision=True)
    generator = np.random.default_rng(0)

    def falling():
        for data in mujoco_models.random_states(m, count, speed=0.3, spread=0.03):
            mujoco.mj_step(m, data, nstep=int(generator.integers(5, 60)))
            mujoco.mj_forward(m, data)
            if not is_grazing(data):
                expected.append([data.sensor(name).data.copy() for name in names])
                yield data

    names = [s.name for s in ours.sensors if s.kind in FORCES and not s.name.startswith("sensor")]
    expected = []
    state, control, (q, v, _) = mujoco_models.states_of(sim, m, falling())
    path = sim.rollout(state, control[None] if m.nu else None, steps=1, outputs=["sensors"] if names else None)
    scale = max((v - state.v).abs().max().item(), 1e-3)
    worst = float(torch.max((path.last.q - q).abs().max(), (path.last.v - v).abs().max())) / scale
    for k, name in enumerate(names):
        measured = path.outputs["sensors"][0, ..., ours.sensor_slices[name]].numpy()
        theirs = np.array([row[k] for row in expected])
        worst = max(worst, float(np.abs(measured - theirs).max() / max(1.0, np.abs(theirs).max())))
    return worst


def is_grazing(data):
    """Whether a contact is just at its margin, so that rounding decides whether it acts."""
    return any(abs(contact.dist - contact.includemargin) < 1e-12 for contact in data.contact)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--largest", type=int, default=30)
    options = parser.parse_args(arguments)
    print("| folder | files | agree |" + " steps | agree |" * options.steps)
    print("|---|---|---|" + "---|---|" * options.steps)
    for folder in options.folders:
        count = agree = steps = steps_agree = 0
        for path in sorted(folder.rglob("*.xml")):
            try:
                m = mujoco.MjModel.from_xml_path(str(path))
            except ValueError:
                continue  # not a model of its own
            if m.nq == 0 or m.nflex:
                continue
            count += 1
            try:
                worst = quantities(path)
            except AdjoinError as error:
                print(f"{path}: {str(error)[:200]}", file=sys.stderr)
                continue
            wrong = {name: f"{error:.1e}" for name, error in worst.items() if not error < ENOUGH}
            agree += not wrong
            if wrong:
                print(f"{path}: {wrong}", file=sys.stderr)
            elif options.steps and m.nv <= options.largest:
                steps += 1
                difference = step_difference(path)
                steps_agree += difference < ENOUGH_STEP
                if not difference < ENOUGH_STEP:
                    print(f"{path}: a step {difference:.1e}", file=sys.stderr)
        print(f"| {folder.name} | {count} | {agree} |" + f" {steps} | {steps_agree} |" * options.steps, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
