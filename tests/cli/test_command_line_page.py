import re
import shlex
from pathlib import Path

import pytest

from adjoin.cli import main
from adjoin.compiler.runtime.cuda.assembler import find_ptxas

PAGE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_commands_of_the_page_work_and_print_what_it_shows(tmp_path, monkeypatch, capsys):
    pytest.importorskip("viser")

    def wait():
        raise KeyboardInterrupt

    shown, xml = blocks("text"), blocks("xml")
    assert len(shown) == len(xml) == 1
    (tmp_path / "robot.urdf").write_text(xml[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("adjoin.cli.view.wait", wait)
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "cache"))
    commands = {"robots", "info", "view", "check", "simulate", "soft", "heat", "particles", "cloth", "train", "bench"}
    commands |= {"cache", "demo", "completion"}
    lines = "".join(blocks("bash")).splitlines()
    assert {line.split()[1] for line in lines} == commands
    for line in lines:
        if line.startswith("adjoin demo") or ("--gpu" in line and find_ptxas() is None):
            continue  # the demo has a test of its own
        code, out = main(shlex.split(line)[1:]), capsys.readouterr().out
        assert code == (1 if "check" in line else 130 if "view" in line else 0), line
        if "check" in line:
            assert out == shown[0]
        assert out
    for name in ("run.npz", "run.html", "soft.html", "heat.html", "particles.html", "cloth.html"):
        assert (tmp_path / name).stat().st_size > 1000, name
