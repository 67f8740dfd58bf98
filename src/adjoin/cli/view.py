"""`adjoin view`: a robot in the browser."""

import argparse
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adjoin.cli.robot import add_robot, load, options, visuals
from adjoin.cli.setup import count
from adjoin.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from adjoin.model.model import Model

EXAMPLES = """\
examples:
  adjoin view go2
  adjoin view robot.urdf --port 9000
  adjoin view go2 --trajectory run.npz

The page is on 127.0.0.1, which only this machine reaches. A trajectory has q, (steps, nq) or (steps, environments, nq),
and time, as `adjoin simulate --out` writes it.
"""


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("view", help="look at a robot in the browser, and play trajectories", epilog=EXAMPLES)
    add_robot(parser)
    parser.add_argument("--port", type=int, default=8080, help="of the page (default 8080); if taken, the next")
    parser.add_argument("--environments", type=count, default=1, metavar="N", help="how many, in a grid (default 1)")
    parser.add_argument("--trajectory", type=Path, metavar="FILE.npz", help="play this motion")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Open the page, and keep it open until Ctrl-C."""
    model = load(arguments.robot, **options(arguments))
    motion = None if arguments.trajectory is None else trajectory(arguments.trajectory, model)
    from adjoin.viewer import Viewer

    environments = arguments.environments if motion is None or motion[0].ndim == 2 else motion[0].shape[1]
    viewer = Viewer(model, environments=environments, port=arguments.port, source=visuals(model, arguments))
    try:
        if motion is not None:
            viewer.play(*motion)
        print(f"{model.name} is at {viewer.url}; Ctrl-C ends it", flush=True)
        wait()
    finally:
        viewer.close()
    return 0


def wait() -> None:
    """Wait until Ctrl-C."""
    threading.Event().wait()


def trajectory(path: Path, model: "Model") -> "tuple[np.ndarray, float]":
    """Return configurations over time, and seconds between them, as a file has them."""
    from adjoin.learn.archive import read_npz

    arrays = read_npz(path)
    if not {"q", "time"} <= set(arrays):
        raise InputError(f"{path} is not an NPZ file with q and time, as `adjoin simulate --out` writes")
    q, time = arrays["q"], arrays["time"]
    if q.ndim not in (2, 3) or q.shape[-1] != model.nq or time.shape != q.shape[:1]:
        raise InputError(
            f"{path}: q has the shape {q.shape} and time {time.shape}; for {model.name!r} they must be "
            f"(steps, environments, {model.nq}) and (steps,)"
        )
    return q, float(time[-1] - time[0]) / max(1, len(time) - 1)
