"""What is simulated: the options that say it, and the simulator, state, controls and parameters that they make."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adjoin.cli.robot import add_robot, load, options
from adjoin.errors import InputError

if TYPE_CHECKING:
    import torch

    from adjoin.model.model import Model
    from adjoin.simulation.simulator import Simulator
    from adjoin.simulation.state import SimulatorState


def positive(text: str) -> float:
    """Return a number above 0, of an option."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def count(text: str) -> int:
    """Return a whole number above 0, of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def seed(text: str) -> int:
    """Return a whole number that a generator of random numbers takes, of an option."""
    if not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2^63 - 1")
    return int(text)


def add_setup(parser: argparse.ArgumentParser, robot: str | None = None) -> None:
    """Add what decides the kernels: robot, step and contact, what is random, and the format of numbers.

    Args:
        parser: of a command.
        robot: the one that is used by default; without it the robot must be named.
    """
    add_robot(parser, default=robot)
    parser.add_argument("--dt", type=positive, default=0.002, help="seconds a step (default 0.002)")
    parser.add_argument(
        "--servos", type=positive, nargs=2, metavar=("KP", "KD"), help="servos on every joint, in place of its motors"
    )
    parser.add_argument("--touching", nargs="+", metavar="LINK", help="links that touch the ground; by default all")
    parser.add_argument(
        "--random", type=positive, metavar="SPREAD", help="vary mass and friction by up to this share, such as 0.3"
    )
    parser.add_argument("--double", action="store_true", help="float64 in place of float32")


@dataclass
class Setup:
    """A simulation that can begin.

    Attributes:
        model: the robot.
        sim: the simulator, whose model may also have a ground.
        start: of all environments: the keyframe home, else the first one, else neutral.
        control: that of the keyframe, (nu,).
        params: what is random, by environment.
    """

    model: "Model"
    sim: "Simulator"
    start: "SimulatorState"
    control: "torch.Tensor"
    params: dict[str, "torch.Tensor"]


def make(
    arguments: argparse.Namespace, environments: int, device: "torch.device", drop: float = 0.0, seed: int = 0
) -> Setup:
    """Return what the options of `add_setup` say.

    Args:
        arguments: the options.
        environments: how many.
        device: where.
        drop: how far to lift free bases at the start, m.
        seed: of what is random.
    """
    import torch

    from adjoin.simulation.simulator import Simulator

    model = load(arguments.robot, **options(arguments))
    if not model.nv:
        raise InputError(f"{model.name!r} has no joints, so nothing moves; --floating-base puts a URDF on a free joint")
    if arguments.servos:
        model = model.with_servos(*arguments.servos)
    pairs = arguments.touching and [(link, "ground") for link in arguments.touching]
    sim = Simulator(model, arguments.dt, pairs=pairs, ground=True if pairs else None)
    kind: dict[str, Any] = {"dtype": torch.float64 if arguments.double else torch.float32, "device": device}
    home = next((key for key in model.keyframes if key.name == "home"), next(iter(model.keyframes), None))
    q = torch.tensor(home.q, **kind) if home else model.neutral(**kind)
    for body, at in zip(model.bodies, model.coordinates, strict=True):
        if body.joint.type.floating:
            q[at.q + 2] += drop
    control = torch.tensor(home.control if home and home.control else (0.0,) * model.nu, **kind)
    params = _random(sim, arguments.random, environments, seed, kind) if arguments.random else {}
    return Setup(model, sim, sim.state(q.repeat(environments, 1)), control, params)


def _random(sim: "Simulator", spread: float, environments: int, seed: int, kind: dict[str, Any]) -> dict[str, Any]:
    """Masses, with inertias to match, and friction, by environment."""
    import torch

    if spread >= 1.0:
        raise InputError(f"--random {spread:g} would give masses of 0 and less; it must be below 1")
    usual = sim.model.parameters(**kind)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(2, environments, 1, generator=generator, device="cpu").to(**kind)
    mass, friction = 1.0 + spread * (2.0 * drawn - 1.0)
    return {
        "mass": usual["mass"] * mass,
        "inertia": usual["inertia"] * mass[..., None],
        "geometry_friction": usual["geometry_friction"] * friction[..., None],
    }


def device(name: str | None) -> "torch.device":
    """Return the torch device of that name; by default a GPU if there is one."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise InputError(f"--device {name!r} is not cpu, cuda or cuda:N")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(f"--device {name}: torch sees {torch.cuda.device_count()} GPUs here")
    return chosen
