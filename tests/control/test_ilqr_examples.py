import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def said(name: str, folder: Path, capsys: pytest.CaptureFixture[str], pattern: str) -> list[float]:
    pytest.importorskip("matplotlib")
    picture = runpy.run_path(str(EXAMPLES / name))["main"](quick=True, folder=folder)
    assert picture.stat().st_size > 10_000
    found = re.search(pattern, capsys.readouterr().out, re.DOTALL)
    assert found is not None
    return [float(number) for number in found.groups()]


def test_most_boxes_are_pushed_to_their_poses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (there,) = said("16_push.py", tmp_path, capsys, r"(\d+) of 8 boxes are within")
    assert there >= 7


def test_go2_stands_up_and_trots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = r"base at (\S+) m of (\S+) m,.*status (\d).*speed (\S+) m/s of.*more than (\S+) degrees"
    height, wanted, status, speed, tilt = said("17_trot.py", tmp_path, capsys, pattern)
    assert status == 0.0
    assert abs(height - wanted) < 0.01
    assert 0.45 < speed < 0.55
    assert tilt < 5.0
