"""`adjoin completion`: scripts for the shells, written from the parser itself."""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from adjoin.cli.robot import ROBOT

EXAMPLES = """\
examples:
  source <(adjoin completion bash)                                         in ~/.bashrc
  source <(adjoin completion zsh)                                          in ~/.zshrc, after compinit
  adjoin completion fish > ~/.config/fish/completions/adjoin.fish
"""


@dataclass
class Level:
    """A command, as completion sees it.

    Attributes:
        words: what leads to it, without the program's name.
        commands: name and help of those below it.
        options: of it.
        choices: what its positional arguments may be.
        files: whether they may be files too.
    """

    words: tuple[str, ...]
    commands: dict[str, str] = field(default_factory=dict)
    options: list[argparse.Action] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    files: bool = False


def add(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser(
        "completion", help="print a script that completes commands in a shell", epilog=EXAMPLES
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the script."""
    from adjoin.cli.main import make_parser

    files = [entry.name for entry in (resources.files("adjoin") / "robots").iterdir()]  # shells do not wait for torch
    names = sorted(["pendulum", *[name.removesuffix(".urdf") for name in files if name.endswith(".urdf")]])
    levels = list(_levels(make_parser(), (), names))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](levels))
    return 0


def _levels(parser: argparse.ArgumentParser, words: tuple[str, ...], names: list[str]) -> Iterator[Level]:
    level, below = Level(words), []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            level.commands = {name: helps[name] for name in action.choices}
            below += [_levels(child, (*words, name), names) for name, child in action.choices.items()]
        elif action.option_strings:
            level.options.append(action)
        else:
            level.files = action.metavar == ROBOT
            level.choices += names if level.files else [str(choice) for choice in action.choices or ()]
    yield level
    for levels in below:
        yield from levels


def _bash(levels: list[Level]) -> str:
    """A function that finds the command among the words before, then what can follow it."""
    known = "|".join(f'"{" ".join(level.words)}"' for level in levels if level.words)
    cases, values = [], []
    for level in levels:
        words = [*level.commands, *level.choices, *[flag for action in level.options for flag in action.option_strings]]
        cases.append(f'    "{" ".join(level.words)}") words="{" ".join(words)}"{" files=1" * level.files} ;;')
        for action in level.options:
            if action.choices:
                flags = "|".join(f'"{" ".join(level.words)}:{flag}"' for flag in action.option_strings)
                values.append(f'    {flags}) words="{" ".join(map(str, action.choices))}" files= ;;')
    return "\n".join(
        [
            "_adjoin() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path="" word words files',
            '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            f'    case "${{path:+$path }}$word" in {known}) path="${{path:+$path }}$word" ;; esac',
            "  done",
            '  case "$path" in',
            *cases,
            "  esac",
            '  case "$path:$before" in',
            *values,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "  local IFS=$'\\n'",
            '  if [[ $files ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi',
            "}",
            "complete -o default -o filenames -F _adjoin adjoin",
        ]
    )


def _zsh(levels: list[Level]) -> str:
    """A function a command, each a call of _arguments."""
    lines = ["#compdef adjoin"]
    for level in levels:
        specs = []
        for action in level.options:
            value = f":value:({' '.join(map(str, action.choices))})" if action.choices else ":value:_files"
            takes = "" if action.nargs == 0 else value
            repeated = "*" if isinstance(action, argparse._AppendAction) else ""
            specs += [_quoted(f"{repeated}{flag}[{_described(action)}]{takes}") for flag in action.option_strings]
        if level.commands:
            listed = " ".join(f"{name}\\:{_escaped(text)}" for name, text in level.commands.items())
            specs += [_quoted(f"1:command:(({listed}))"), "'*::argument:->below'"]
        elif level.choices:
            files = " 'files:file:_files'" if level.files else ""
            specs.append(_quoted(f"*:argument: _alternative 'names:name:({' '.join(level.choices)})'{files}"))
        lines += [f"{_function(level.words)}() {{", "  local line state", "  _arguments -C " + " \\\n    ".join(specs)]
        if level.commands:
            lines.append('  [[ $state == below ]] && case "$line[1]" in')
            lines += [f"    {name}) {_function((*level.words, name))} ;;" for name in level.commands]
            lines.append("  esac")
        lines.append("}")
    return "\n".join([*lines, "compdef _adjoin adjoin"])


def _fish(levels: list[Level]) -> str:
    """A line an option, each under the condition that its command was given."""
    lines = []
    for level in levels:
        seen = [f"__fish_seen_subcommand_from {word}" for word in level.words]
        none_below = [f"not __fish_seen_subcommand_from {' '.join(level.commands)}"] if level.commands else []
        head = f"complete -c adjoin -n '{'; and '.join([*seen, *none_below])}'"
        lines += [f"{head} -f -a {name} -d {_quoted(text)}" for name, text in level.commands.items()]
        if level.choices:
            lines.append(f"{head} {'' if level.files else '-f '}-a '{' '.join(level.choices)}'")
        for action in level.options:
            flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in action.option_strings]
            takes = f" -x -a '{' '.join(map(str, action.choices))}'" if action.choices else ""
            takes = takes or ("" if action.nargs == 0 else " -r")
            lines.append(f"{head} {' '.join(flags)} -d {_quoted(_described(action))}{takes}")
    return "\n".join(lines)


def _function(words: tuple[str, ...]) -> str:
    return "_".join(["_adjoin", *words])


def _described(action: argparse.Action) -> str:
    return re.sub(r"[\[\]]", "", action.help or "").replace(":", ",")


def _escaped(text: str) -> str:
    return re.sub(r"([\s:()'])", r"\\\1", text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
