import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import adjoin
from adjoin.cli import main

SHELLS = ("bash", "zsh", "fish")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
CASES = [
    ("adjoin ca", {"cache"}),
    ("adjoin cache ", {"path", "size", "clear", "prebuild"}),
    ("adjoin cache prebuild --gp", {"--gpu"}),
    ("adjoin simulate go2 --meshes ", {"hull", "exact", "ignore"}),
    ("adjoin info g", {"g1", "go2", "gripper.urdf"}),
    ("adjoin check go2 ./gr", {"./gripper.urdf"}),
    ("adjoin completion z", {"zsh"}),
    ("adjoin bench ", {*adjoin.robots.names(), "gripper.urdf"}),
]


@pytest.fixture
def script(capsys, tmp_path):
    def write(shell):
        if shutil.which(shell) is None:
            pytest.skip(f"needs {shell}")
        assert main(["completion", shell]) == 0
        path = tmp_path / f"completion.{shell}"
        path.write_text(capsys.readouterr().out)
        return path

    return write


def words(text):
    return {word.strip() for word in text.split() if not word.startswith("completion.")} - {"-h", "--help", "--version"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_the_script(shell, script):
    done = subprocess.run([shell, "-n", str(script(shell))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def answered(line, folder):
    """What the program says to a shell that asks."""
    told = folder.parent / "told"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(told), "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    subprocess.run([sys.executable, "-m", "adjoin"], cwd=folder, env={**os.environ, **asked}, check=True)
    return told.read_text()


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_the_program_completes(line, expected, tmp_path):
    (tmp_path / "gripper.urdf").touch()
    found = words(answered(line, tmp_path))
    assert {word for word in found if not (line.endswith(" ") and word.startswith("-"))} == expected


def test_completing_needs_no_torch(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert "go2" in words(answered("adjoin info g", tmp_path))


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_bash_completes(line, expected, script, tmp_path):
    asked = f"source {script('bash')}; COMP_LINE='{line}'; COMP_POINT={len(line)}; COMP_TYPE=9"
    (tmp_path / "gripper.urdf").touch()
    command = ["bash", "-c", f'{asked}; _python_argcomplete adjoin; printf "%s\\n" "${{COMPREPLY[@]}}"']
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "PATH": PATH}
    )
    assert {word for word in words(found.stdout) if not (line.endswith(" ") and word.startswith("-"))} == expected


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_fish_completes(line, expected, script, tmp_path):
    (tmp_path / "gripper.urdf").touch()
    command = ["fish", "--no-config", "-c", f"source {script('fish')}; complete -C '{line}'"]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "PATH": PATH}
    )
    answers = {answer.split("\t")[0].strip() for answer in found.stdout.splitlines()}
    assert {word for word in answers if not (line.endswith(" ") and word.startswith("-"))} >= expected


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'adjoin[completion]'" in capsys.readouterr().err
