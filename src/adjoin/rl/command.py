"""Training on the command line: the arguments, and what they do."""

import argparse
import ast
import inspect
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adjoin.errors import AdjoinError, InputError
from adjoin.extras import needed

EXAMPLES = """\
examples:
  adjoin train cartpole
  adjoin train pendulum --task-option links=3 --iterations 300
  adjoin train ant --algorithm shac --environments 64 --folder runs/ant
  adjoin train ant --folder runs/ant --resume
  torchrun --nproc-per-node 2 -m adjoin.rl.train ant --folder runs/ant --resume

The folder gets last.safetensors, from which --resume goes on, best.safetensors, log.csv and returns.png.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of training."""
    parser.add_argument("task", metavar="TASK", help="the name of a task; a wrong one lists all")
    parser.add_argument("--algorithm", default="shac", metavar="NAME", help="a learner (default shac)")
    parser.add_argument("--environments", type=int, metavar="N", help="how many at once, in each process")
    parser.add_argument("--iterations", type=int, metavar="N", help="how many")
    parser.add_argument("--seed", type=int, help="of all random numbers (default 0)")
    parser.add_argument("--device", help="cpu or cuda; by default a GPU if there is one")
    parser.add_argument("--folder", type=Path, help="where checkpoints and logs go (default runs/TASK-ALGORITHM)")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the folder")
    parser.add_argument("--tensorboard", action="store_true", help="write logs for TensorBoard too")
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="N", help="iterations (default 25)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the learner; repeatable"
    )
    parser.add_argument(
        "--task-option", action="append", default=[], metavar="NAME=VALUE", help="of the task; repeatable"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(arguments: argparse.Namespace) -> int:
    """Train, draw the returns and print what was reached."""
    from adjoin.rl import distributed
    from adjoin.rl.log import PLOT, plot_returns
    from adjoin.rl.training import BEST, train

    needed("matplotlib.figure", "rl", "a plot of returns")  # better said now than after an hour
    options = _pairs("--option", arguments.option)
    for name in options.keys() & inspect.signature(train).parameters:
        raise InputError(f"--option {name}: this is no option of a learner; see --help")
    options |= {
        name: value
        for name in ("environments", "iterations", "seed")
        if (value := getattr(arguments, name)) is not None
    }
    folder = arguments.folder or Path("runs", f"{arguments.task}-{arguments.algorithm}")
    result = train(
        arguments.task,
        arguments.algorithm,
        folder=folder,
        resume=arguments.resume,
        device=arguments.device,
        checkpoint_every=arguments.checkpoint_every,
        tensorboard=arguments.tensorboard,
        progress=not arguments.quiet and not arguments.json,
        task_options=_pairs("--task-option", arguments.task_option),
        **options,
    )
    if distributed.worker() == 0:
        last = result.rows[-1] if result.rows else {}
        if result.rows:
            plot_returns({arguments.algorithm: result.rows}, folder / PLOT)
        if arguments.json:
            numbers = {**last, "best": result.best}
            print(json.dumps({name: None if math.isnan(x) else x for name, x in numbers.items()}))
        else:
            steps, seconds = last.get("steps", 0.0), last.get("seconds", 0.0)
            print(f"best mean return {result.best:.4g}, after {steps:,.0f} actions in {seconds:.0f} s: {folder / BEST}")
    if result.interrupted:
        print("adjoin train: interrupted; the best policy is kept", file=sys.stderr)
    return 130 if result.interrupted else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m adjoin.rl.train`."""
    parser = argparse.ArgumentParser("adjoin.rl.train", description="Train a policy.", epilog=EXAMPLES)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except (AdjoinError, OSError) as error:
        print(f"adjoin.rl.train: {error}", file=sys.stderr)
        return 1


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InputError(f"{flag} {text!r} must be NAME=VALUE")
        try:
            values[name.replace("-", "_")] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[name.replace("-", "_")] = value
    return values
