"""A sample of the files that `mujoco_tables.py` compares with MuJoCo, and forces of a medium."""

from pathlib import Path

import gymnasium
import mujoco_report
import mujoco_tables
import pytest
import torch

import adjoin

FOLDER = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"

SWIMMER = """
<mujoco>
  <option density="1000" viscosity="0.3" wind="0.5 0.2 0.1"/>
  <worldbody>
    <body pos="0 0 1">
      <freejoint/><geom type="box" size="0.2 0.1 0.05"/>
      <body pos="0.3 0 0">
        <joint name="tail" axis="0 0 1"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.04" fluidshape="ellipsoid" fluidcoef="0.5 0.3 1.5 1 1"/>
        <geom type="ellipsoid" size="0.05 0.1 0.02" pos="0.4 0 0" fluidshape="ellipsoid"/>
        <geom type="box" size="0.025 0.01 0.0001" pos="0.4 0 0.1" mass="1e-4" fluidshape="ellipsoid"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("name", ["ant", "humanoid", "swimmer", "pusher_v5"])
def test_quantities_are_mujocos(name):
    worst = mujoco_tables.quantities(FOLDER / f"{name}.xml")
    assert max(worst.values()) < mujoco_tables.ENOUGH, worst


def test_a_medium_acts_as_in_mujoco_and_has_gradients(tmp_path):
    file = tmp_path / "swimmer.xml"
    file.write_text(SWIMMER)
    worst = mujoco_tables.quantities(file)
    assert max(worst.values()) < mujoco_tables.ENOUGH, worst
    model = adjoin.load(SWIMMER)
    assert adjoin.load(adjoin.to_urdf(model)).medium == model.medium
    q = torch.tensor(model.keyframe("qpos0").q, dtype=torch.float64)
    v = torch.linspace(-0.7, 1.0, model.nv, dtype=torch.float64)
    inputs = (q.requires_grad_(), v.requires_grad_())
    assert torch.autograd.gradcheck(lambda q, v: adjoin.passive_forces(model, q, v), inputs, eps=1e-6, atol=1e-5)


def test_the_page_is_up_to_date():
    assert mujoco_report.PAGE.read_text() == mujoco_report.page(), "run: python tests/simulation/mujoco_report.py"
