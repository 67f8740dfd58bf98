import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def numbers(pattern, text):
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, text
    return [float(number) for number in found.groups()]


def test_examples_are_short_numbered_without_gaps_and_listed():
    files = sorted(EXAMPLES.glob("[0-9]*.py"))
    assert [int(file.name[:2]) for file in files] == list(range(1, len(files) + 1))
    listed = re.findall(r"\]\((\d\d_\w+\.py)\)", (EXAMPLES / "README.md").read_text())
    assert listed == [file.name for file in files]
    for file in files:
        assert len(file.read_text().splitlines()) < 120, file.name


def test_load(run_example):
    said = run_example("01_load.py")
    assert "refused: <text>:16: <limit>: joint 'shoulder': lower=-1.5 is above upper=-2" in said
    assert "Model('world': 15 bodies" in said


def test_kinematics(run_example):
    said = run_example("02_kinematics.py")
    assert numbers(r"targets +(\d+).*reached +(\d+)", said) == [100.0, 100.0]
    assert "inside the limits             True" in said
    same, apart = numbers(r"(\d+) of 60 found the same pose .* up to (\S+) m apart", said)
    assert same >= 58
    assert apart > 0.3


def test_dynamics(run_example):
    said = run_example("03_dynamics.py")
    assert max(float(x) for x in re.findall(r"differs from tau by (\S+)", said)) < 1e-11
    light, heavy = numbers(r"takes (\S+) N without a load and (\S+) N", said)
    assert heavy - light == pytest.approx(98.1, abs=0.11)
    assert numbers(r"base needs (\S+) N more", said)[0] < 1e-11


def test_gradients(run_example):
    said = run_example("04_gradients.py")
    differences = [float(x) for x in re.findall(r" (\S+e-\d\d)\n", said)]
    assert len(differences) == 4
    assert max(differences) < 1e-7
    best, typical = numbers(r"best (\S+), typical (\S+)\n", said)
    assert best < 0.3
    assert best < typical


def test_simulate(run_example):
    said = run_example("05_simulate.py")
    landings = re.findall(r"\.\d m +(\S+) s +(\S+) weights +(\S+) weights +(\S+) m", said)
    assert len(landings) == 3
    assert [float(each[0]) for each in landings] == pytest.approx([0.0, 0.14, 0.2], abs=0.003)
    assert all(0.95 < float(each[2]) < 1.05 for each in landings)
    assert "; 0 states are bad" in said


def test_rollout(run_example):
    said = run_example("06_rollout.py")
    slope, numeric = numbers(r"along it (\S+), by finite differences (\S+)\n", said)
    assert slope == pytest.approx(numeric, rel=1e-3)
    first, last = numbers(r"loss (\S+) to (\S+)\n", said)
    assert last < 0.3 * first


def test_mpc(run_example):
    said = run_example("09_mpc.py")
    (blind,) = numbers(r"plan, no feedback +median error +(\S+) mm", said)
    typical, heaviest = numbers(r"MPC +median error +(\S+) mm, of the arm with 3 kg +(\S+) mm", said)
    assert blind > 100.0
    assert typical < 10.0
    assert heaviest < 15.0


def test_randomize(run_example):
    said = run_example("10_randomize.py")
    single, many = (float(share) for share in re.findall(r"\]: (\S+) %", said))
    assert single < 70.0
    assert many > 95.0


def test_fuse(run_example):
    said = run_example("11_fuse.py")
    motion, gradient = numbers(r"differ by (\S+) in the motion and (\S+) in the gradient", said)
    assert motion < 1e-12
    assert gradient < 1e-10
    costs = [float(cost) for cost in re.findall(r"cost (\S+):", said)]
    assert costs[-1] < 0.7 * costs[0]


def test_peers_that_are_installed_agree(run_example):
    said = run_example("12_coming_from.py", picture=False)
    differences = {
        name: float(x) for name, x in re.findall(r"^  (\S+) +adjoin\..* differ by (\S+)$", said, re.MULTILINE)
    }
    single = differences.pop("compute_inverse_dynamics", 0.0)
    assert single < 1e-5
    assert all(x < 1e-12 for x in differences.values())
    assert len(differences) + said.count("not run: No module") >= 3
