"""What is around a robot in an MJCF: surfaces that stick, links that are moved by hand, height fields."""

import mujoco
import numpy as np
import pytest
import torch
from mujoco_models import engines, random_states, states_of

import adjoin
from adjoin.errors import InputError, ModelError
from adjoin.simulation.clearance import clearance

STICKY = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="ceiling" type="box" size="1 1 0.05" pos="0 0 0.35"/>
    <body name="gecko" pos="0 0 0.199">
      <freejoint/>
      <geom name="torso" type="sphere" size="0.02" pos="0 0 -0.08"/>
      <geom name="hand" type="sphere" size="0.1" margin="0.01" gap="0.02"/>
      <geom name="paw" type="sphere" size="0.1" pos="0.15 0 0"/>
    </body>
  </worldbody>
  <actuator><adhesion name="stick" body="gecko" ctrlrange="0 1" gain="500"/></actuator>
  <sensor><clock name="clock"/><actuatorfrc name="pull" actuator="stick"/></sensor>
</mujoco>
"""


def test_adhesion_is_mujocos():
    model, sim = engines(STICKY)
    state, control, (q, v, _) = states_of(sim, model, random_states(model, 8, speed=0.05, spread=0.002))
    assert sim.model.nu == 1
    path = sim.rollout(state, control[None], steps=1, outputs=["sensors"])
    assert float((path.last.q - q).abs().max()) < 1e-9
    assert float((path.last.v - v).abs().max()) < 1e-6 * float((v - state.v).abs().max())
    assert float((v - state.v).abs().max()) > 0.1
    pull = path.outputs["sensors"][0, :, 1]
    torch.testing.assert_close(pull, 500.0 * control[:, 0].clamp(0.0, 1.0))
    assert float(path.outputs["sensors"][0, 0, 0]) == 0.0
    assert float(path.last.memory["time"][0, 0]) == pytest.approx(0.002)


LED = """
<mujoco>
  <option timestep="0.002" integrator="implicitfast"/>
  <worldbody>
    <body name="hand" mocap="true" pos="0.1 0 0.5">
      <geom name="grip" type="box" size="0.02 0.02 0.02" contype="0" conaffinity="0"/>
      <site name="palm" pos="0 0 -0.05" size="0.1 0.2 0.3" type="box"/>
    </body>
    <body name="load" pos="0.1 0 0.4">
      <freejoint/>
      <geom name="ball" type="sphere" size="0.03" mass="0.5" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <equality><weld body1="hand" body2="load" solref="0.05 1"/></equality>
  <sensor>
    <framepos name="where" objtype="site" objname="palm"/>
    <insidesite name="inside" objtype="body" objname="load" site="palm"/>
    <distance name="distance" geom1="grip" geom2="ball" cutoff="2"/>
    <normal name="normal" geom1="grip" geom2="ball" cutoff="2"/>
    <fromto name="fromto" geom1="grip" geom2="ball" cutoff="2"/>
    <distance name="short" geom1="grip" geom2="ball" cutoff="0.01"/>
  </sensor>
  <keyframe><key name="away" mpos="0.3 0.1 0.6" mquat="0.8 0 0.6 0" qpos="0.3 0.1 0.5 1 0 0 0"/></keyframe>
</mujoco>
"""


def test_mocap_links_lead_what_is_welded_to_them():
    model, sim = engines(LED, ground=False)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    state = sim.state("away", dtype=torch.float64)
    torch.testing.assert_close(state.mocap[0], torch.tensor([0.3, 0.1, 0.6, 0.8, 0.0, 0.6, 0.0], dtype=torch.float64))
    for _ in range(20):
        mujoco.mj_step(model, data)
    path = sim.rollout(state, steps=20, outputs=["sensors"])
    assert np.abs(path.last.q.numpy() - data.qpos).max() < 1e-9
    data.mocap_pos[0], data.mocap_quat[0] = [0.25, 0.0, 0.7], [0.6, 0.0, 0.0, 0.8]
    pose = torch.tensor([[0.25, 0.0, 0.7, 0.6, 0.0, 0.0, 0.8]], dtype=torch.float64)
    moved = path.last.with_mocap(pose)
    mujoco.mj_forward(model, data)
    expected = data.sensordata.copy()
    for _ in range(20):
        mujoco.mj_step(model, data)
    path = sim.rollout(moved, steps=20, outputs=["sensors"])
    assert np.abs(path.last.q.numpy() - data.qpos).max() < 1e-9
    assert np.abs(path.outputs["sensors"][0].numpy() - expected).max() < 1e-9
    with pytest.raises(InputError, match="poses must be of the shape"):
        moved.with_mocap(torch.zeros(2, 7))
    with pytest.raises(InputError, match=r"poses must be a tensor of the shape .*, got dict"):
        moved.with_mocap({"M": torch.zeros(7)})
    again = sim.reset(path.last, torch.tensor(True))
    torch.testing.assert_close(again.mocap, state.mocap)


def test_gradients_reach_mocap_poses():
    _, sim = engines(LED, ground=False)
    poses = sim.state("away", dtype=torch.float64).mocap.clone().requires_grad_()
    start = sim.state("away", dtype=torch.float64)

    def height(poses):
        return sim.rollout(start.with_mocap(poses), steps=20).last.q[2]

    (slope,) = torch.autograd.grad(height(poses), poses)
    step = torch.zeros(1, 7, dtype=torch.float64)
    step[0, 2] = 1e-5
    numeric = (height(poses + step) - height(poses - step)) / 2e-5
    torch.testing.assert_close(slope[0, 2], numeric.detach(), rtol=1e-4, atol=1e-8)


HILLS = """
<mujoco>
  <option timestep="0.002"/>
  <asset><hfield name="hills" nrow="5" ncol="7" size="3 2 0.5 0.1"
    elevation="0 0 0 0 0 0 0  0 .1 .2 .3 .2 .1 0  0 .1 .2 .3 .2 .1 0  0 .1 .2 .3 .2 .1 0  1 1 1 1 1 1 1"/></asset>
  <worldbody>
    <geom name="ground" type="hfield" hfield="hills" pos="0 0 0.2" margin="1e-9" friction="0.7 0.005 0.0001"/>
    <body name="ball" pos="-2.5 0 0.6"><freejoint/><geom name="ball" size="0.1" mass="1"/></body>
    <body name="brick" pos="2.5 0.3 0.6"><freejoint/><geom name="brick" type="box" size="0.2 0.1 0.1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def test_height_fields_are_terrain():
    model = adjoin.load(HILLS, strict=True)
    (grid,) = model.terrain
    assert grid.name == "ground"
    assert grid.spacing == (1.0, 1.0)
    assert grid.origin == (-3.0, -2.0, 0.0)
    expected = np.array(mujoco.MjModel.from_xml_string(HILLS).hfield_data).reshape(5, 7) * 0.5
    np.testing.assert_allclose(np.array(grid.heights), expected, rtol=1e-6)
    theirs, sim = engines(HILLS)
    assert sim.world.listed
    assert isinstance(adjoin.Simulator(model).world.contact, adjoin.Newton)
    assert sim.dt == 0.002
    data = mujoco.MjData(theirs)
    path = sim.rollout(sim.state("qpos0", dtype=torch.float64), steps=400)
    for _ in range(400):
        mujoco.mj_step(theirs, data)
    assert int(path.status.max()) == 0
    np.testing.assert_allclose(path.last.q[:7], data.qpos[:7], atol=1e-9)
    np.testing.assert_allclose(path.last.q[7:], data.qpos[7:], atol=5e-3)  # any point of a face may be the nearest
    assert data.qpos[0] < -2.55  # the ball rolls
    names, above = clearance(sim.world, path.last.q)
    assert names == ["ball", "brick"]
    assert float(above.abs().max()) < 2e-3


def test_other_height_fields_are_named():
    tilted = HILLS.replace('pos="0 0 0.2"', 'pos="0 0 0.2" euler="10 0 0"')
    with pytest.raises(ModelError, match=r"height fields that move or are not level.*\(ground\)"):
        adjoin.load(tilted, strict=True)
