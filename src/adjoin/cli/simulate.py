"""`adjoin simulate`: run a robot forward, one or thousands, and keep the motion."""

import argparse
import importlib.util
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adjoin.cli.output import number, print_json, writable
from adjoin.cli.robot import add_robot, load, options, visuals
from adjoin.errors import InputError

if TYPE_CHECKING:
    from adjoin.model.model import Model
    from adjoin.simulation.simulator import Simulator
    from adjoin.simulation.state import Trajectory

EXAMPLES = """\
examples:
  adjoin simulate ball --drop 1 --html ball.html
  adjoin simulate go2 --servos 100 3 --touching FL_foot FR_foot RL_foot RR_foot --out run.npz
  adjoin simulate go2 --environments 4096 --random 0.3 --drop 0.2 --device cuda

A robot starts at its keyframe home, where it has one, and with the controls of that keyframe. The file has time, q, v
and status of the states that are kept, and mass and friction where they are random.
"""
SHOWN = 16  # environments in a replay at most


def positive(text: str) -> float:
    """A number above 0, of an option."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def count(text: str) -> int:
    """A whole number above 0, of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def add(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser("simulate", help="simulate a robot, to NPZ and HTML", epilog=EXAMPLES)
    add_robot(parser)
    parser.add_argument("--seconds", type=positive, default=1.0, help="how long (default 1)")
    parser.add_argument("--dt", type=positive, default=0.002, help="seconds a step (default 0.002)")
    parser.add_argument("--environments", type=count, default=1, metavar="N", help="how many at once (default 1)")
    parser.add_argument("--drop", type=float, default=0.0, metavar="M", help="metres to lift free bases at the start")
    parser.add_argument(
        "--servos", type=positive, nargs=2, metavar=("KP", "KD"), help="servos on every joint, in place of its motors"
    )
    parser.add_argument("--touching", nargs="+", metavar="LINK", help="links that touch the ground; by default all")
    parser.add_argument(
        "--random", type=positive, metavar="SPREAD", help="vary mass and friction by up to this share, such as 0.3"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is random (default 0)")
    parser.add_argument("--device", help="cpu or cuda; by default a GPU if there is one")
    parser.add_argument("--double", action="store_true", help="float64 in place of float32")
    parser.add_argument("--every", type=count, metavar="K", help="keep every K-th state; by default one in 0.01 s")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write the motion")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help=f"write a replay of up to {SHOWN} environments")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulates, writes and says how fast it went."""
    for path in (arguments.out, arguments.html):
        writable(path)
    if arguments.html and importlib.util.find_spec("viser") is None:
        raise InputError("--html needs viser; install it with: pip install 'adjoin[viewer]'")
    model = load(arguments.robot, **options(arguments))
    if arguments.servos:
        model = model.with_servos(*arguments.servos)
    made = _Run(arguments, model)
    path, compiling, seconds = made.rolled()
    done = made.frames(len(path.q))
    steps = made.steps if len(done) == made.kept else arguments.every * (len(done) - 1)
    frozen = int((path.status[-1] != 0.0).sum())
    rate = steps * arguments.environments / seconds
    written = [str(made.save(path, done))] if arguments.out else []
    written += [str(made.replay(path))] if arguments.html else []
    result = {
        "model": model.name, "environments": arguments.environments, "steps": steps, "dt": arguments.dt,
        "device": str(path.q.device), "compile_seconds": compiling, "seconds": seconds, "steps_per_second": rate,
        "times_real_time": rate * arguments.dt, "frozen": frozen, "written": written,
    }  # fmt: skip
    if arguments.json:
        print_json(result)
        return 0 if steps == made.steps else 130
    times = "once" if arguments.environments == 1 else f"{arguments.environments:,} times"
    print(f"{model.name}: {steps * arguments.dt:g} s, {times}, on {path.q.device}: {seconds:.3g} s, "
          f"{number(rate)} steps a second, {number(rate * arguments.dt)} times real time "
          f"(compiling and loading took {compiling:.3g} s)")  # fmt: skip
    if frozen:
        print(f"{frozen} environments went wrong and were frozen at their last good state; see status in the file")
    for name in written:
        print(f"wrote {name}")
    if steps < made.steps:
        print("adjoin: interrupted; this is what was done by then", file=sys.stderr)
    return 0 if steps == made.steps else 130


@dataclass
class _Run:
    """One simulation: what goes in, and what is written."""

    arguments: argparse.Namespace
    model: "Model"

    def __post_init__(self):
        import torch

        arguments, model = self.arguments, self.model
        self.steps = max(1, round(arguments.seconds / arguments.dt))
        arguments.every = min(self.steps, arguments.every or max(1, round(0.01 / arguments.dt)))
        self.kept = -(-self.steps // arguments.every) + 1
        kind = {"dtype": torch.float64 if arguments.double else torch.float32, "device": device(arguments.device)}
        self.sim = self._simulator()
        home = next((key for key in model.keyframes if key.name == "home"), None)
        q = model.neutral(**kind) if home is None else torch.tensor(home.q, **kind)
        for body, at in zip(model.bodies, model.coordinates, strict=True):
            if body.joint.kind == "free":
                q[at.q + 2] += arguments.drop
        control = home.control if home and home.control else [0.0] * model.nu
        self.start = self.sim.state(q.repeat(arguments.environments, 1))
        self.control = torch.tensor(control, **kind).reshape(1, 1, -1)
        self.params = self._random(torch.Generator().manual_seed(arguments.seed))

    def _simulator(self) -> "Simulator":
        from adjoin.simulation.simulator import Simulator

        pairs = self.arguments.touching and [(link, "ground") for link in self.arguments.touching]
        return Simulator(self.model, self.arguments.dt, pairs=pairs, ground=True if pairs else None)

    def _random(self, generator: Any) -> dict[str, Any]:
        """Masses, with inertias to match, and friction, by environment."""
        import torch

        spread = self.arguments.random
        if spread is None:
            return {}
        if spread >= 1.0:
            raise InputError(f"--random {spread:g} would give masses below 0; it must be below 1")
        usual = self.sim.model.parameters(dtype=self.start.q.dtype, device=self.start.q.device)
        factors = 1.0 + spread * (2.0 * torch.rand(2, self.arguments.environments, generator=generator) - 1.0)
        mass, friction = factors.to(usual["mass"])[..., None]
        return {
            "mass": usual["mass"] * mass,
            "inertia": usual["inertia"] * mass[..., None],
            "geometry_friction": usual["geometry_friction"] * friction[..., None],
        }

    def rolled(self) -> tuple["Trajectory", float, float]:
        """The states that are kept; seconds that compiling took, and the steps."""
        import torch

        def timed(steps: int, every: int, progress: bool) -> tuple[Any, float]:
            began = time.perf_counter()
            controls = self.control.expand(steps, self.arguments.environments, self.model.nu)
            path = self.sim.rollout(self.start, controls, self.params, every=every, progress=progress)
            if path.q.is_cuda:
                torch.cuda.synchronize()
            return path, time.perf_counter() - began

        try:
            _, compiling = timed(1, 1, False)
            path, seconds = timed(self.steps, self.arguments.every, not self.arguments.json)
        except (RuntimeError, MemoryError) as error:
            if "memory" not in str(error):
                raise
            raise InputError(
                f"{self.arguments.environments} environments with {self.kept} states each do not fit into memory; "
                "fewer --environments, or a larger --every"
            ) from None
        return path, compiling, seconds

    def frames(self, kept: int) -> list[float]:
        """The times of the states that are kept, in seconds."""
        every = self.arguments.every
        return [min(k * every, self.steps) * self.arguments.dt for k in range(kept)]

    def save(self, path: "Trajectory", times: list[float]) -> Path:
        """Writes the NPZ."""
        import numpy as np

        arrays = {name: getattr(path, name).cpu().numpy() for name in ("q", "v", "status")}
        more = {name: tensor.cpu().numpy() for name, tensor in self.params.items() if name != "inertia"}
        target = self.arguments.out.with_suffix(".npz")
        np.savez_compressed(
            target, time=np.array(times), control=self.control.reshape(-1).cpu().numpy(), **arrays, **more
        )
        return target

    def replay(self, path: "Trajectory") -> Path:
        """Writes the HTML, with the forces of contact."""
        from adjoin.viewer import record

        shown = min(self.arguments.environments, SHOWN)
        q, v = (part[:, :shown].contiguous() for part in (path.q, path.v))
        params = {name: tensor[:shown] for name, tensor in self.params.items()}
        contacts = None
        if self.sim.contact_names:
            contacts = self.sim.contacts(self.sim.state(q, v), self.control.expand(*q.shape[:2], -1), params)
        dt, file = self.arguments.every * self.arguments.dt, visuals(self.arguments.robot)
        return record(self.sim.model, q, dt, self.arguments.html, contacts, title=self.model.name, source=file)


def device(name: str | None) -> Any:
    """The torch device of that name; by default a GPU if there is one."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise InputError(f"--device {name!r} is not cpu, cuda or cuda:N")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise InputError(f"--device {name}: torch sees {torch.cuda.device_count()} GPUs here")
    return found
