import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "16_push.py"


def test_most_boxes_arrive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = runpy.run_path(str(EXAMPLE))["main"](quick=True, folder=tmp_path)
    said = capsys.readouterr().out
    there = re.search(r"(\d+) of 8 boxes are within", said)
    assert there is not None
    assert int(there[1]) >= 7
    assert picture.stat().st_size > 10_000
