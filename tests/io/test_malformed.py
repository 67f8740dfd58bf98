"""Every malformed file gets its exact message; `python tests/io/test_malformed.py` writes them down anew."""

import re
import sys
import tempfile
from pathlib import Path

import pytest
from malformed import CASES

from adjoin.errors import ModelError
from adjoin.io.load import load

MESSAGES = Path(__file__).with_name("malformed_messages.txt")


def told(name, folder):
    source, options = CASES[name]
    if callable(source):
        source = source(folder)
    options = dict(options)
    if "packages" in options:
        options["packages"] = {key: folder / value for key, value in options["packages"].items()}
    with pytest.raises(ModelError) as error:
        load(source, **options, strict=True)
    return str(error.value).replace(str(folder.resolve()), "FOLDER").replace(str(folder), "FOLDER")


def expected():
    lines = MESSAGES.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" => ", 1) for line in lines if " => " in line)


def test_there_are_at_least_150():
    assert len(CASES) >= 150
    assert set(expected()) == set(CASES)


LIBRARY = re.compile("(not a valid safetensors file: |it cannot be read )")  # what follows are words of a library


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("mjcf")])
def test_message(name, tmp_path):
    assert LIBRARY.split(told(name, tmp_path))[:2] == LIBRARY.split(expected()[name])[:2]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("mjcf")])
def test_mjcf_message(name, tmp_path):
    mujoco = pytest.importorskip("mujoco")
    message, wanted = told(name, tmp_path), expected()[name]
    if "MuJoCo:" in wanted and not mujoco.__version__.startswith("4."):
        # The words of the compiler itself change from version to version; where it points does not.
        assert message.split("MuJoCo:")[0] == wanted.split("MuJoCo:")[0]
    else:
        assert message == wanted


if __name__ == "__main__":
    out = []
    for case_name in CASES:
        with tempfile.TemporaryDirectory() as place:
            out.append(f"{case_name} => {told(case_name, Path(place))}")
    MESSAGES.write_text("\n".join(out) + "\n", encoding="utf-8")
    sys.stdout.write(MESSAGES.read_text(encoding="utf-8"))
