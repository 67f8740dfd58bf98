"""Files that are not trusted: loaded by a worker with bounds, and without traces in the working folder."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import adjoin
from adjoin.errors import ModelError, ModelWarning
from adjoin.io.budget import Budget, answer, read_answer

mujoco = pytest.importorskip("mujoco")
ROBOT = """<mujoco><worldbody><body name="b"><joint name="j"/><geom size="0.1"/></body></worldbody>{}</mujoco>"""
CONE = "<asset><mesh name='m' builtin='cone' params='100000000 0.5'/></asset>"


def test_the_answer_of_a_worker_has_the_model_and_its_flaws():
    text = ROBOT.format("<actuator><general joint='j' dyntype='user' actdim='1'/></actuator>")
    with pytest.warns(ModelWarning) as caught:
        model = adjoin.load(text)
    answered, findings = read_answer(answer(text, {}), "<text>")
    assert answered == model
    assert str(ModelWarning("<text>", findings)) == str(caught[0].message)


def test_the_answer_of_a_worker_has_the_error():
    text = ROBOT.format("<actuator><motor joint='x'/></actuator>")
    with pytest.raises(ModelError) as here:
        adjoin.load(text)
    with pytest.raises(ModelError) as there:
        read_answer(answer(text, {}), "<text>")
    assert str(there.value) == str(here.value)


def test_a_compiler_that_hangs_ends_in_an_error(tmp_path, monkeypatch):
    # The bounds of the scan are lifted in the worker alone: it imports a copy of the library.
    package = Path(adjoin.__file__).parent
    (tmp_path / "adjoin" / "io").mkdir(parents=True)
    for part in package.iterdir():
        if part.name != "io":
            (tmp_path / "adjoin" / part.name).symlink_to(part)
    for part in (package / "io").glob("*.py"):
        (tmp_path / "adjoin" / "io" / part.name).write_text(part.read_text().replace("1_000_000", "10**30"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"^<text>: loading it takes more than 2 s; .* a larger budget$"):
        adjoin.load(ROBOT.format(CONE), budget=Budget(seconds=2.0, memory=2**36))


@pytest.mark.parametrize("budget", [3.0, Budget(seconds=0.0), Budget(memory=-1)])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(adjoin.errors.InputError, match=r"budget must be an adjoin\.Budget with positive numbers"):
        adjoin.load(ROBOT.format(""), budget=budget)


def test_what_the_compiler_warns_of_is_in_our_warning(monkeypatch):
    def compile_loudly(*arguments, compile=mujoco.MjModel.from_xml_string):
        mujoco.get_mju_user_warning()("this is deprecated")
        return compile(*arguments)

    before = mujoco.get_mju_user_warning()
    monkeypatch.setattr(mujoco, "MjModel", SimpleNamespace(from_xml_string=compile_loudly))
    with pytest.warns(ModelWarning, match="<text>: MuJoCo: this is deprecated; taken as it is"):
        adjoin.load(ROBOT.format(""))
    assert mujoco.get_mju_user_warning() is before


def test_an_exception_of_the_compiler_is_an_error_and_leaves_no_log(tmp_path):
    mesh = "<asset><mesh name='m' builtin='supersphere' params='100000 1 1'/></asset>"
    program = (
        "import adjoin\n"
        "from adjoin.io import mjcf_scan\n"
        "mjcf_scan.MAX_NUMBERS = 10**30\n"
        "try:\n"
        f"    adjoin.load({ROBOT.format(mesh)!r})\n"
        "except adjoin.errors.ModelError as error:\n"
        "    print(error)\n"
    )
    # In a process of its own: MuJoCo may hang at the next file after this one.
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert "MuJoCo: Caught an unknown exception" in done.stdout
    assert list(tmp_path.iterdir()) == []
