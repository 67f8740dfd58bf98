"""Every MJCF of some folders next to MuJoCo: quantities of random states, steps, and sensors.

    python tests/simulation/mujoco_tables.py FOLDER ... [--steps] [--heights] [--heights-alone] [--largest 30]
        [--seconds 120] [--json FILE] [--match "*.xml"]

Quantities are computed over Python floats, and with --steps one step with contact from each of a few states on the way
of a fall by the reference interpreter, so that nothing is compiled. With --heights, how high the first floating body is
within a second from the first key frame is compared too, by a compiled kernel, and with --heights-alone nothing else:
the table then has a row for each file with a key frame and a floating body. Both are for models with at most so many
degrees of freedom, and as long as a file takes no more processor time than given. Meshes touch as exact hulls.
"""

import argparse
import contextlib
import json
import signal
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import mujoco
import mujoco_models
import numpy as np
import torch

import adjoin
from adjoin.compiler.runtime import backend, interpreter
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.rnea import inverse_dynamics
from adjoin.errors import AdjoinError
from adjoin.simulation.actuation import effort_of
from adjoin.simulation.euler import straight
from adjoin.simulation.sensors import Reading

STATES = 2
ENOUGH = 1e-10
ENOUGH_STEP = 1e-6
ENOUGH_HEIGHT = 1e-3  # m
FORCES = ("touch", "force", "torque", "contact", "tactile", "jointlimitfrc", "tendonlimitfrc")
FORCES += ("geomdist", "geomnormal", "geomfromto")
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


def load(path, meshes="ignore"):
    """MuJoCo's model and ours; what ours leaves out counts as a difference where it matters."""
    theirs = mujoco.MjModel.from_xml_path(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return theirs, adjoin.load(str(path), meshes=meshes)


def quantities(path):
    """The largest difference of each quantity, over its own size where that is more than 1."""
    m, ours = load(path)
    if any(actuator.body for actuator in ours.actuators):
        m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT  # adhesion pulls at contacts, which steps compare
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
    kinds = ("touch", "force", "torque", "rangefinder", "framequat", "ballquat", "clock", *FORCES)
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
    m, ours = load(path, "exact")
    mujoco_models.tighten(m)
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
    path = sim.rollout(state, control[None] if m.nu else None, steps=1, outputs=["sensors"] if names else [])
    scale = max((v - state.v).abs().max().item(), 1e-3)
    worst = float(torch.max((path.last.q - q).abs().max(), (path.last.v - v).abs().max())) / scale
    for k, name in enumerate(names):
        measured = path.outputs["sensors"][0, ..., ours.sensor_slices[name]].numpy()
        theirs = np.array([row[k] for row in expected])
        worst = max(worst, float(np.abs(measured - theirs).max() / max(1.0, np.abs(theirs).max())))
    return worst


@contextlib.contextmanager
def interpreted():
    """Run programs without compiling them: quicker where they run once."""
    before = dict(backend._registered)
    backend.register("cpu", interpreter)
    try:
        yield
    finally:
        backend._registered.clear()
        backend._registered.update(before)


def is_grazing(data):
    """Whether a contact is just at its margin, so that rounding decides whether it acts."""
    return any(abs(contact.dist - contact.includemargin) < 1e-12 for contact in data.contact)


def standing_difference(path):
    """How far apart the heights of the first floating body are within a second from the first key frame, m.

    Only while MuJoCo's stands: within 10 cm of where it begins. None for models without a key frame or such a body.
    """
    m, ours = load(path, "exact")
    free = np.flatnonzero(m.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    if not m.nkey or not len(free):
        return None
    mujoco_models.tighten(m)  # files for MJX ask for an iteration or a few
    height, data = int(m.jnt_qposadr[free[0]]) + 2, mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, data, 0)
    key = ours.keyframes[min(1, len(ours.keyframes) - 1)]  # the first is MuJoCo's initial state
    sim = adjoin.Simulator(ours, m.opt.timestep, adjoin.Newton(), ground=False, self_collision=True)
    steps, heights = round(1.0 / m.opt.timestep), []
    start = data.qpos[height]
    for _ in range(steps):
        mujoco.mj_step(m, data)
        heights.append(data.qpos[height])
    path = sim.rollout(sim.state(key.name, dtype=torch.float64), steps=steps)
    stands = np.logical_and.accumulate(np.abs(np.array(heights) - start) < 0.1)
    apart = np.abs(path.q[1:, height].numpy() - np.array(heights))
    return float(apart[stands].max()) if stands.any() else 0.0


def models_of(folder, match="*.xml"):
    """The models of a folder; those that are parts of others or have flexes do not count."""
    for path in sorted(folder.rglob(match)):
        try:
            m = mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            continue
        if m.nq and not m.nflex:
            yield path, m


def compare(path, m, options):
    """Everything that is compared of a file: the errors by name, and what failed."""
    try:
        found = {} if options.heights_alone else quantities(path)
        if m.nv <= options.largest:
            # First: what has been interpreted once is not compiled later.
            if options.heights or options.heights_alone:
                found["height"] = within(options.seconds, standing_difference, path)
            if options.steps:
                with interpreted():
                    found["step"] = within(options.seconds, step_difference, path)
    except AdjoinError as error:
        return {"failed": str(error)[:200]}
    return {name: error for name, error in found.items() if error is not None}


def within(seconds, compare, path):
    """What a comparison finds, or None if it takes more processor time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return compare(path)
    except TimeoutError:
        print(f"{path}: takes too long", file=sys.stderr, flush=True)
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


BARS = {"step": ENOUGH_STEP, "height": ENOUGH_HEIGHT}
"""What is enough, where it is not `ENOUGH`."""


def differs(found):
    """What of a file's comparison is not enough."""
    wrong = {name: error for name, error in found.items() if name != "failed"}
    wrong = {name: error for name, error in wrong.items() if not error < BARS.get(name, ENOUGH)}
    return {**wrong, **{name: error for name, error in found.items() if name == "failed"}}


def _give_up(*_):
    raise TimeoutError


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--heights", action="store_true")
    parser.add_argument("--heights-alone", action="store_true")
    parser.add_argument("--match", default="*.xml", help="names of files")
    parser.add_argument("--largest", type=int, default=30)
    parser.add_argument("--seconds", type=int, default=0, help="how long steps of a file may take; 0 for any time")
    parser.add_argument("--json", type=Path, help="adds the results to this file")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGPROF, _give_up)
    print("| collection | files | quantities agree | steps | agree | heights | agree |\n|---|---|---|---|---|---|---|")
    for folder in options.folders:
        results = {}
        for path, m in models_of(folder, options.match):
            if options.heights_alone and not (m.nkey and (m.jnt_type == mujoco.mjtJoint.mjJNT_FREE).any()):
                continue
            results[str(path.relative_to(folder))] = found = compare(path, m, options)
            if options.heights_alone and "height" in found:
                print(f"| {path.relative_to(folder)} | {found['height']:.1e} m |", flush=True)
            if wrong := differs(found):
                print(f"{path}: {wrong}", file=sys.stderr, flush=True)
        print(row(folder.name, results), flush=True)
        if options.json:
            before = json.loads(options.json.read_text()) if options.json.exists() else {}
            options.json.write_text(json.dumps({**before, folder.name: summary(results)}, indent=1) + "\n")


def summary(results):
    """Counts of a collection, and what differs by file."""
    wrong = {path: differs(found) for path, found in results.items()}
    counts = {"files": len(results)}
    alone = [path for path, found in results.items() if set(found) <= {"height"}]  # other quantities were not compared
    others = [path for path in results if path not in alone]
    counts["agree"] = sum(not set(wrong[path]) - set(BARS) for path in others) if others else None
    for name in BARS:
        tried = [path for path, found in results.items() if name in found]
        counts[name] = [len(tried), sum(name not in wrong[path] for path in tried)]
    return {**counts, "differs": {path: rounded(parts) for path, parts in wrong.items() if parts}}


def rounded(parts):
    """Errors with two digits."""
    return {name: x if isinstance(x, str) else float(f"{x:.1e}") for name, x in parts.items()}


def row(name, results):
    """A row of the table."""
    counts = summary(results)
    parts = [name, counts["files"], counts["agree"], *counts["step"], *counts["height"]]
    return f"| {' | '.join(map(str, parts))} |"


if __name__ == "__main__":
    main(sys.argv[1:])
