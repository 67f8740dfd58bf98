"""`adjoin train`: learn a policy for a task."""

from typing import Any

from adjoin.rl.command import EXAMPLES, add_arguments, run


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("train", help="train a policy for a task", epilog=EXAMPLES)
    add_arguments(parser)
    parser.set_defaults(run=run)
