"""Robots from their makers' MJCF files in the default simulator: all shapes, self-collision, steps as MuJoCo's.

    python benchmarks/robots.py --save FOLDER FILE.xml ...     models and states in contact, which needs MuJoCo
    python benchmarks/robots.py --save FOLDER --three humanoid.xml --clutter aloha/scene.xml       worlds of many bodies
    python benchmarks/robots.py --models FOLDER [--device cuda] [--json] [--out FILE]

A state is where MuJoCo is 0.3 s after the first keyframe, under its controls. Kernels are compiled with all cores, and
with ADJOIN_CACHE_DIR=off for sure; then steps take one core, in float64, one environment and a batch, beside MuJoCo
from the same state, which steps one at a time. On a GPU it is float32, from states whose velocities differ by 0.01
under the same control, or, "moving", by 0.3 and with noise in the controls, after 64 steps; steps there are
semi-implicit, whatever the file says. Gradients are those of the sum of all states.
"""

import json
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import Report, parser

import adjoin

CORES = torch.get_num_threads()
STEPS = 32
BATCHES = (4096, 8192)
TOGETHER = 256  # environments of a batch on one core
BARS = {  # name of the file of the model: batch, millions of steps a second forward, with gradient
    "ant": (4096, 80.0, 15.0),
    "humanoid": (8192, 40.0, 6.0),
    "g1mjx": (8192, 20.0, 4.0),
    "anymal": (8192, 60.0, None),
    "h1": (8192, 40.0, None),
    "panda": (8192, 150.0, None),
    "three_robots": (8192, 8.0, None),
    "clutter": (8192, 2.5, None),
}
THINGS = ("BOX", "SPHERE", "CYLINDER", "CAPSULE", "ELLIPSOID")


def three_robots(file: Path) -> Any:
    """Return a MuJoCo specification of three of a file's robots beside one another."""
    import mujoco

    world = mujoco.MjSpec.from_file(str(file))  # pyright: ignore[reportAttributeAccessIssue]
    for number in (1, 2):
        other = mujoco.MjSpec.from_file(str(file))  # pyright: ignore[reportAttributeAccessIssue]
        for geometry in list(other.worldbody.geoms):
            other.delete(geometry)
        world.attach(other, prefix=f"{number}_", frame=world.worldbody.add_frame(pos=[0.0, 1.2 * number, 0.0]))
    for key in list(world.keys):
        world.delete(key)
    return world


def clutter(file: Path) -> Any:
    """Return a MuJoCo specification of a file's robot in its first keyframe, and ten things on its table."""
    import mujoco

    world = mujoco.MjSpec.from_file(str(file))  # pyright: ignore[reportAttributeAccessIssue]
    alone = world.compile()
    kinds = [getattr(mujoco.mjtGeom, f"mjGEOM_{kind}") for kind in THINGS]  # pyright: ignore[reportAttributeAccessIssue]
    for number in range(10):
        thing = world.worldbody.add_body(pos=[0.1 * (number % 5) - 0.2, 0.15 * (number // 5) - 0.1, 0.05])
        thing.add_freejoint()
        thing.add_geom(type=kinds[number % len(kinds)], size=[0.02] * 3, density=500.0)
    for key in list(world.keys):
        world.delete(key)
    start = world.compile().qpos0.copy()
    start[: alone.nq] = alone.key_qpos[0]
    world.add_key(name="start", qpos=start.tolist(), ctrl=alone.key_ctrl[0].tolist())
    return world


def save(folder: Path, files: list[Path], allow: list[Path]) -> None:
    """Write models and states in contact; files may read from folders that are allowed."""
    import mujoco

    for file in files:
        model = adjoin.load(file, allow=allow)
        theirs = mujoco.MjModel.from_xml_path(str(file))  # pyright: ignore[reportAttributeAccessIssue]
        data = mujoco.MjData(theirs)  # pyright: ignore[reportAttributeAccessIssue]
        if theirs.nkey:
            mujoco.mj_resetDataKeyframe(theirs, data, 0)  # pyright: ignore[reportAttributeAccessIssue]
            data.ctrl[:] = theirs.key_ctrl[0]
        mujoco.mj_step(theirs, data, nstep=int(0.3 / theirs.opt.timestep))  # pyright: ignore[reportAttributeAccessIssue]
        q, v = data.qpos.copy(), data.qvel.copy()
        for joint, at in model.independent_joints:
            if joint.type.floating:  # MuJoCo has the velocity of its origin in world axes
                turn = np.zeros(9)
                mujoco.mju_quat2Mat(turn, q[at.q : at.q + 7][3:])  # pyright: ignore[reportAttributeAccessIssue]
                v[at.v : at.v + 3] = turn.reshape(3, 3).T @ v[at.v : at.v + 3]
        name = file.stem if file.stem not in ("scene", "scene_mjx") else f"{file.parent.name}_{file.stem}"
        adjoin.save(model, folder / f"{name}.safetensors")
        state = {"q": q.tolist(), "v": v.tolist(), "mujoco_v": data.qvel.tolist(), "control": data.ctrl.tolist()}
        (folder / f"{name}.json").write_text(json.dumps({**state, "file": str(file)}))


class Robot:
    """A robot and its state."""

    def __init__(self, path: Path, device: str, dtype: torch.dtype):
        self.name, self.device, self.dtype = path.stem, device, dtype
        self.model, self.start = adjoin.load(path), json.loads(path.with_suffix(".json").read_text())
        self.sim = adjoin.Simulator(self.model, integrator=adjoin.SemiImplicit() if device == "cuda" else None)

    def state(self, batch: int, velocity: float, control: float) -> tuple[Any, torch.Tensor]:
        """States that differ, and controls."""
        generator = torch.Generator().manual_seed(0)
        q, v, u = (torch.tensor(self.start[key], dtype=self.dtype) for key in ("q", "v", "control"))
        v = v + velocity * torch.randn(batch, len(v), generator=generator, dtype=self.dtype)
        u = u + control * torch.randn(STEPS, batch, len(u), generator=generator, dtype=self.dtype)
        q = q.expand(batch, -1).contiguous()
        return self.sim.state(q.to(self.device), v.to(self.device)), u.to(self.device)

    def gradient(self, state: Any, controls: torch.Tensor) -> None:
        """A rollout and its gradient."""
        q, v, u = (x.detach().clone().requires_grad_() for x in (state.q, state.v, controls))
        path = self.sim.rollout(state.replace(q=q, v=v), u)
        (path.q.sum() + path.v.sum()).backward()


def seconds(function: Callable[[], Any], device: str, repetitions: int = 7) -> float:
    """The median of several runs on a GPU; the least of the processor time on a CPU."""
    times = []
    for _ in range(repetitions):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter() if device == "cuda" else time.thread_time()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() if device == "cuda" else time.thread_time()) - began)
    return sorted(times)[len(times) // 2] if device == "cuda" else min(times)


def mujoco_seconds(robot: Robot) -> float:
    """The least that MuJoCo takes for as many steps from the same state."""
    import mujoco

    model = mujoco.MjModel.from_xml_path(robot.start["file"])  # pyright: ignore[reportAttributeAccessIssue]
    data = mujoco.MjData(model)  # pyright: ignore[reportAttributeAccessIssue]

    def steps() -> None:
        data.qpos, data.qvel = robot.start["q"], robot.start["mujoco_v"]
        data.ctrl = robot.start["control"]
        mujoco.mj_step(model, data, nstep=STEPS)  # pyright: ignore[reportAttributeAccessIssue]

    return seconds(steps, "cpu", 30)


def measure(report: Report, robot: Robot) -> None:
    """Compile with all cores, then time, on one."""
    torch.set_num_threads(CORES)
    first, controls = robot.state(1 if robot.device == "cpu" else 64, 0.01, 0.0)
    began = time.perf_counter()
    robot.gradient(first, controls)
    most = 10.0 if robot.device == "cpu" else 20.0
    report.add(f"{robot.name}: cold compile", time.perf_counter() - began, "s", at_most=most)
    torch.set_num_threads(1)
    if robot.device == "cpu":
        theirs = mujoco_seconds(robot)
        report.add(f"{robot.name}: a step of MuJoCo", 1e6 * theirs / STEPS, "µs")
        for label, batch, bars in (("alone", 1, (1.0, 3.0)), (f"batch {TOGETHER}", TOGETHER, (0.2, 0.6))):
            state, controls = robot.state(batch, 0.01, 0.0)
            forward = seconds(lambda s=state, u=controls: robot.sim.rollout(s, u), "cpu", 10) / batch
            both = seconds(lambda s=state, u=controls: robot.gradient(s, u), "cpu", 10) / batch
            for way, took, bar in zip(("forward", "backward"), (forward, both - forward), bars, strict=True):
                report.add(f"{robot.name}: a step {label}, f64, {way}", 1e6 * took / STEPS, "µs")
                report.add(f"{robot.name}: {way} over MuJoCo's step, {label}", took / theirs, "", at_most=bar)
        return
    for label, velocity, control in (("", 0.01, 0.0), (", moving", 0.3, 0.1)):
        for batch in BATCHES:
            state, controls = robot.state(batch, velocity, control)
            for _ in range(2):
                state = robot.sim.rollout(state, controls).last
            rates = [
                batch * STEPS / seconds(lambda f=f, s=state, u=controls: f(s, u), "cuda") / 1e6
                for f in (robot.sim.rollout, robot.gradient)
            ]
            held, *bars = BARS.get(robot.name, (0, None, None))
            bars = bars if held == batch and not label else [None, None]
            for kind, rate, bar in zip(("", ", with gradient"), rates, bars, strict=True):
                report.add(f"{robot.name}{label}, batch {batch}{kind}", rate, "M/s", at_least=bar)


def run(arguments: Namespace) -> None:
    """All models of the folder."""
    report = Report("robots", arguments)
    dtype = torch.float32 if arguments.device == "cuda" else torch.float64
    for path in sorted(arguments.models.glob("*.safetensors")):
        measure(report, Robot(path, arguments.device, dtype))
        report.save()
    report.finish()


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("files", nargs="*", type=Path, help="MJCF files, to save")
    options.add_argument("--save", type=Path, help="write models and states to this folder")
    options.add_argument("--three", type=Path, help="an MJCF file of which three stand in one world, to save")
    options.add_argument("--clutter", type=Path, help="an MJCF file of arms at a table, with ten things on it, to save")
    options.add_argument("--models", type=Path, help="the folder that has them")
    options.add_argument("--device", default="cpu")
    chosen = options.parse_args()
    if chosen.save:
        chosen.save.mkdir(parents=True, exist_ok=True)
        for make, file in ((three_robots, chosen.three), (clutter, chosen.clutter)):
            if file is not None:
                made = chosen.save / f"{make.__name__}.xml"
                world = make(file)
                world.meshdir = world.texturedir = str(file.resolve().parent / world.meshdir)
                made.write_text(world.to_xml())
                chosen.files.append(made)
        save(chosen.save, chosen.files, [file.resolve().parent for file in (chosen.three, chosen.clutter) if file])
    else:
        run(chosen)
