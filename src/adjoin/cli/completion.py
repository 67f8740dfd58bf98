"""`adjoin completion`: completes commands, options and robots in a shell, with argcomplete."""

import argparse
from typing import Any

from adjoin.extras import needed

EXAMPLES = """\
examples:
  source <(adjoin completion bash)                                         in ~/.bashrc
  source <(adjoin completion zsh)                                          in ~/.zshrc, after compinit
  adjoin completion fish > ~/.config/fish/completions/adjoin.fish
"""
VARIABLE = "_ARGCOMPLETE"
"""What a shell sets when it asks for completions."""


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "completion", help="print a script that completes commands in a shell", epilog=EXAMPLES
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(_argcomplete().shellcode(["adjoin"], shell=arguments.shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Give the shell the completions it asks for, and exit."""
    _argcomplete().autocomplete(parser)


def _argcomplete() -> Any:
    return needed("argcomplete", "completion", "completion in a shell")
