"""`adjoin simulate`: run a robot forward, one or thousands, and keep the motion."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adjoin.cli.output import number, show, writable
from adjoin.cli.robot import visuals
from adjoin.cli.setup import Setup, add_setup, count, device, make, positive, seed
from adjoin.errors import InputError
from adjoin.extras import needed

if TYPE_CHECKING:
    import torch

    from adjoin.simulation.state import SimulatorState, Trajectory

EXAMPLES = """\
examples:
  adjoin simulate ball --drop 1 --html ball.html
  adjoin simulate go2 --servos 100 3 --touching FL_foot FR_foot RL_foot RR_foot --out run.npz
  adjoin simulate go2 --environments 4096 --random 0.3 --drop 0.2 --device cuda

A robot starts at its keyframe home, or its first one, with the controls of that keyframe. The file has time, q, v and
status of the states that are kept, and mass and friction where they are random.
"""
SHOWN = 16  # environments in a replay at most
USUAL = 0.01  # seconds between states that are kept
MANY = 50_000_000  # numbers up to which all states of a launch are computed and some of them taken
MOST_STEPS = 1_000_000_000
STATE = ("q", "v", "status")


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("simulate", help="simulate a robot, to NPZ and HTML", epilog=EXAMPLES)
    add_setup(parser)
    parser.add_argument("--seconds", type=positive, default=1.0, help="how long (default 1)")
    parser.add_argument("--environments", type=count, default=1, metavar="N", help="how many at once (default 1)")
    parser.add_argument("--drop", type=float, default=0.0, metavar="M", help="meters to lift free bases at the start")
    parser.add_argument("--seed", type=seed, default=0, help="of what is random (default 0)")
    parser.add_argument("--device", help="cpu or cuda; by default a GPU if there is one")
    parser.add_argument("--every", type=count, metavar="K", help=f"keep every K-th state; by default one in {USUAL} s")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write the motion")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help=f"write a replay of up to {SHOWN} environments")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write the files and print how fast it went."""
    writable(arguments.out)
    writable(arguments.html)
    if arguments.html:
        needed("viser", "viewer", "--html")
    try:
        return _simulate(arguments)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error):
            raise
        raise InputError(
            f"{arguments.environments:,} environments over {arguments.seconds:g} s do not fit into memory; "
            "fewer of them, or a larger --every"
        ) from None


class Run(NamedTuple):
    """The states that are kept.

    Attributes:
        states: q, v and status, (states, environments, ...).
        steps: after which step each of them is.
        compiling: seconds until the first step was done.
        seconds: that all the steps took.
    """

    states: "dict[str, torch.Tensor]"
    steps: list[int]
    compiling: float
    seconds: float


def _simulate(arguments: argparse.Namespace) -> int:
    if not arguments.seconds / arguments.dt <= MOST_STEPS:
        limit = f"the limit is {MOST_STEPS:,}"
        raise InputError(f"--seconds {arguments.seconds:g} in steps of {arguments.dt:g} s is too many; {limit}")
    setup = make(arguments, arguments.environments, device(arguments.device), arguments.drop, arguments.seed)
    steps = max(1, round(arguments.seconds / arguments.dt))
    every = min(steps, arguments.every or max(1, round(USUAL / arguments.dt)))
    motion = _motion(setup, steps, every, not arguments.json)
    done = motion.steps[-1]
    written = [_save(setup, motion, arguments)] if arguments.out else []
    written += [_replay(setup, motion, every * arguments.dt, arguments)] if arguments.html else []
    rate = done * arguments.environments / motion.seconds
    name, place, wrong = setup.model.name, setup.start.q.device, int((motion.states["status"][-1] != 0.0).sum())
    data = {
        "model": name, "environments": arguments.environments, "steps": done, "dt": arguments.dt, "device": place,
        "compile_seconds": motion.compiling, "seconds": motion.seconds, "steps_per_second": rate,
        "times_real_time": rate * arguments.dt, "frozen": wrong, "written": written,
    }  # fmt: skip
    copies = f", {arguments.environments:,} times" if arguments.environments > 1 else ""
    lines = [
        f"{name}: {done * arguments.dt:g} s{copies}, in {motion.seconds:.3g} s on {place}: {number(rate)} steps a "
        f"second, {number(rate * arguments.dt)} times real time; {motion.compiling:.3g} s to get ready"
    ]
    if wrong:
        lines.append(f"{wrong} environments went wrong and were frozen at their last good state; status says which")
    show(arguments, data, *lines, *[f"wrote {file}" for file in written])
    if done < steps:
        print(f"adjoin: interrupted after {done} of {steps} steps", file=sys.stderr)
    return 0 if done == steps else 130


def _motion(setup: Setup, steps: int, every: int, shown: bool) -> Run:
    """Simulate, and keep every so many states; Ctrl-C ends it with the steps that are done."""
    import torch

    from adjoin.progress import Progress

    def launch(start: "SimulatorState", count: int, stride: int) -> "Trajectory":
        path = setup.sim.rollout(start, setup.control.expand(count, len(start.q), -1), setup.params, every=stride)
        if path.q.is_cuda:
            torch.cuda.synchronize()
        return path

    began = time.perf_counter()
    launch(setup.start, 1, 1)
    compiled = time.perf_counter()
    numbers = len(setup.start.q) * (setup.model.nq + setup.model.nv)  # in a state of all environments
    stride = (
        1 if every * numbers <= MANY else every
    )  # long launches are fastest, where all their states fit into memory
    size = every * max(1, min(-(-steps // 100) if shown else steps, MANY // numbers) // every)
    state, steps_kept, chosen = setup.start, [0], [[getattr(setup.start, name)[None] for name in STATE]]
    try:
        for start, end in Progress([(k, min(k + size, steps)) for k in range(0, steps, size)], shown):
            path = launch(state, end - start, stride)
            after = [*range(every, end - start, every), end - start]
            chosen.append([getattr(path, name)[[-(-k // stride) for k in after]] for name in STATE])
            steps_kept += [start + k for k in after]
            state = path.last
    except KeyboardInterrupt:
        if len(steps_kept) == 1:
            raise
    states = {name: torch.cat(parts) for name, parts in zip(STATE, zip(*chosen, strict=True), strict=True)}
    return Run(states, steps_kept, compiled - began, time.perf_counter() - compiled)


def _save(setup: Setup, motion: Run, arguments: argparse.Namespace) -> Path:
    import numpy as np

    target = arguments.out.with_suffix(".npz")
    tensors = {**motion.states, "control": setup.control, **setup.params}
    arrays: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
    np.savez_compressed(target, time=np.array(motion.steps) * arguments.dt, **arrays)
    return target


def _replay(setup: Setup, motion: Run, dt: float, arguments: argparse.Namespace) -> Path:
    """Return the HTML, with the forces of contact."""
    from adjoin.viewer import record

    q, v = (motion.states[name][:, :SHOWN].contiguous() for name in ("q", "v"))
    params = {name: tensor[:SHOWN] for name, tensor in setup.params.items()}
    contacts = None
    if setup.sim.contact_names:
        contacts = setup.sim.contacts(setup.sim.state(q, v), setup.control.expand(*q.shape[:2], -1), params)
    shapes = visuals(setup.sim.model, arguments)
    return record(setup.sim.model, q, dt, arguments.html, contacts, source=shapes)
