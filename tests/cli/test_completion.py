import shutil
import subprocess

import pytest

import adjoin
from adjoin.cli import main

SHELLS = ("bash", "zsh", "fish")


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


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_the_script(shell, script):
    done = subprocess.run([shell, "-n", str(script(shell))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


CASES = [
    ("adjoin ca", {"cache"}),
    ("adjoin cache ", {"path", "size", "clear", "prebuild"}),
    ("adjoin cache prebuild --gp", {"--gpu"}),
    ("adjoin simulate go2 --meshes ", {"hull", "ignore"}),
    ("adjoin info g", {"g1", "go2", "gripper.urdf"}),
    ("adjoin completion z", {"zsh"}),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_bash_completes(line, expected, script, tmp_path):
    words = " ".join(f"'{word}'" for word in line.split(" "))
    asked = f"source {script('bash')}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _adjoin"
    (tmp_path / "gripper.urdf").touch()
    command = ["bash", "-c", f'{asked}; printf "%s\\n" "${{COMPREPLY[@]}}"']
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert {word for word in found if word not in ("-h", "--help")} == expected


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_fish_completes(line, expected, script, tmp_path):
    (tmp_path / "gripper.urdf").touch()
    command = ["fish", "--no-config", "-c", f"source {script('fish')}; complete -C '{line}'"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {answer.split("\t")[0] for answer in found} == expected


def test_names_of_robots_are_those_that_ship(capsys):
    assert main(["completion", "fish"]) == 0
    assert f"-a '{' '.join(adjoin.robots.names())}'" in capsys.readouterr().out
