"""Sensors measure what MuJoCo's measure, with gradients."""

from dataclasses import replace

import mujoco
import mujoco_models
import mujoco_tables
import numpy as np
import pytest
import torch

import adjoin
from adjoin.errors import ModelError, ModelWarning

ROBOT = """
<mujoco>
  <option timestep="0.004" integrator="implicitfast" magnetic="0.1 -0.4 0.2"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" contype="1"/>
    <geom name="post" type="cylinder" size="0.1 0.5" pos="0.9 0.2 0.5"/>
    <geom name="egg" type="ellipsoid" size="0.1 0.2 0.3" pos="-0.8 0 0.4"/>
    <geom name="crate" type="box" size="0.2 0.2 0.2" pos="0 -0.9 0.2"/>
    <camera name="eye" pos="0.3 -1 1" xyaxes="1 0 0 0 0.6 0.8" resolution="64 48" fovy="50"/>
    <camera name="moving" mode="track"/>
    <body name="trunk" pos="0 0 0.19">
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.05" mass="4"/>
      <site name="imu" pos="0.05 0.02 0.03" euler="10 20 30"/>
      <site name="forward" pos="0.1 0 0.05" euler="0 80 10"/>
      <site name="back" pos="-0.1 0 0.05" euler="0 -80 10"/>
      <site name="left" pos="0 -0.1 0.05" euler="85 0 10"/>
      <site name="down" euler="170 5 0"/>
      <body name="leg" pos="0.15 0.12 0">
        <joint name="hip" axis="0 1 0" damping="0.3" actuatorfrcrange="-3 3" range="-5 5" stiffness="2"/>
        <geom name="shank" type="capsule" fromto="0 0 0 0 0 -0.13" size="0.03" mass="0.5"/>
        <geom name="foot" type="sphere" pos="0 0 -0.15" size="0.05" mass="0.1" conaffinity="1"/>
        <site name="sole" pos="0 0 -0.2" type="box" size="0.03 0.03 0.05"/>
        <site name="hip" pos="0 0.01 0"/>
        <body name="pad" pos="0.02 0 -0.1" euler="20 0 0">
          <site name="pad" pos="0.01 0 0" euler="0 30 0"/>
          <geom name="heel" type="sphere" pos="-0.05 0 -0.07" size="0.04" mass="0.2" conaffinity="1"/>
          <body name="nail" pos="0 0.02 0" euler="0 40 0"><geom type="box" size="0.01 0.02 0.03" mass="0.3"/></body>
        </body>
        <body name="toe" pos="0 0 -0.1">
          <joint name="toe" type="ball"/><geom name="toe" type="sphere" size="0.02" mass="0.1" pos="0.05 0 0"/>
        </body>
      </body>
    </body>
    <body name="tool" pos="0.5 0.5 0.5">
      <freejoint/><geom type="box" size="0.1 0.05 0.02" mass="1"/><site name="tool" pos="0 0.03 0"/>
    </body>
    <body name="plumb" pos="0.5 -0.5 0.5">
      <camera name="lens" euler="20 0 0" resolution="64 48" focal="0.03 0.02" sensorsize="0.02 0.03"/>
      <joint name="plumb" axis="0 1 0"/><geom type="box" size="0.1 0.05 0.02" mass="1" pos="0.1 0 0"/>
      <site name="plumb" pos="0 0.03 0"/>
    </body>
  </worldbody>
  <equality>
    <weld body1="world" body2="tool" relpose="0.5 0.5 0.5 1 0 0 0" torquescale="0.4"/>
    <connect body1="leg" body2="world" anchor="0.02 0 0.01"/>
  </equality>
  <tendon>
    <spatial name="string" range="0 0.1" limited="true" margin="0.05"
      frictionloss="0.5" stiffness="3" damping="0.2"><site site="imu"/><site site="plumb"/></spatial>
  </tendon>
  <actuator>
    <motor name="hip" joint="hip" gear="8"/><position name="pull" tendon="string" kp="10" kv="1" gear="2"/>
  </actuator>
  <sensor>
    <jointpos joint="hip"/><jointvel joint="hip"/><jointactuatorfrc joint="hip"/>
    <ballquat joint="toe"/><ballangvel joint="toe"/>
    <tendonpos tendon="string"/><tendonvel tendon="string"/><tendonactuatorfrc tendon="string"/>
    <actuatorpos actuator="pull"/><actuatorvel actuator="pull"/><actuatorfrc actuator="hip"/>
    <framepos objtype="body" objname="leg"/><framepos objtype="geom" objname="foot" reftype="site" refname="imu"/>
    <framequat objtype="xbody" objname="leg" reftype="xbody" refname="trunk"/>
    <framexaxis objtype="site" objname="imu"/><framezaxis objtype="site" objname="sole" reftype="site" refname="imu"/>
    <framelinvel objtype="body" objname="leg"/>
    <framelinvel objtype="geom" objname="foot" reftype="site" refname="imu"/>
    <frameangvel objtype="site" objname="sole" reftype="body" refname="trunk"/>
    <framelinacc objtype="geom" objname="foot"/><frameangacc objtype="body" objname="toe"/>
    <accelerometer name="felt" site="imu"/><gyro site="imu"/><velocimeter site="imu" cutoff="0.5"/>
    <magnetometer site="imu"/>
    <subtreecom body="trunk"/><subtreelinvel body="leg"/><subtreeangmom body="trunk"/>
    <touch site="sole"/>
    <rangefinder site="forward"/><rangefinder site="back"/><rangefinder site="left"/><rangefinder site="down"/>
    <e_kinetic/>
    <force site="hip"/><torque site="hip"/><force site="pad"/><torque site="pad"/>
    <force site="tool"/><torque site="tool"/>
    <jointlimitpos joint="hip"/><jointlimitvel joint="hip"/><jointlimitfrc joint="hip"/>
    <tendonlimitpos tendon="string"/><tendonlimitvel tendon="string"/><tendonlimitfrc tendon="string"/>
    <e_potential/>
    <force site="plumb"/><torque site="plumb"/><force site="imu"/><torque site="imu"/><user dim="3"/>
    <contact body1="leg" num="2" data="found force torque dist pos normal tangent linvel angvel" reduce="mindist"/>
    <camprojection site="imu" camera="eye"/><camprojection site="hip" camera="lens"/>
  </sensor>
</mujoco>
"""


def test_readings_are_mujocos():
    model, sim = mujoco_models.engines(ROBOT)
    expected, touching = [], 0

    def states():
        nonlocal touching
        for data in mujoco_models.random_states(model, 16, spread=0.1):
            expected.append(data.sensordata.copy())
            touching += data.sensor(28).data[0] > 0.0
            yield data

    state, control, _ = mujoco_models.states_of(sim, model, states())
    outputs = sim.rollout(state, control[None], outputs=["sensors"]).outputs["sensors"][0].numpy()
    expected = np.array(expected)
    assert outputs.shape == expected.shape
    assert touching > 2
    places = sim.model.sensor_slices
    quaternion = places["sensor13"]
    outputs[:, quaternion] *= np.sign((outputs[:, quaternion] * expected[:, quaternion]).sum(-1, keepdims=True))
    for name, place in places.items():
        scale = max(np.abs(expected[:, place]).max(), 1.0)
        assert np.abs(outputs[:, place] - expected[:, place]).max() < 1e-9 * scale, name
    ranges = expected[:, places["sensor29"].start : places["sensor32"].stop]
    assert (ranges > 0.0).any(0).all()  # every ray meets something


def test_readings_have_gradients():
    names = ("felt", "sensor6", "sensor16", "sensor27", "sensor31")
    model = adjoin.load(ROBOT)
    model = replace(model, sensors=tuple(sensor for sensor in model.sensors if sensor.name in names))
    sim = adjoin.Simulator(model, 4e-3, adjoin.Newton(), pairs=[])
    places = [sim.model.sensor_slices[name] for name in names]
    control = torch.tensor([[0.2, 0.3]], dtype=torch.float64)

    def read(q, v):
        readings = sim.rollout(sim.state(q, v), control, outputs=["sensors"]).outputs["sensors"]
        return torch.cat([readings[0, place] for place in places])

    q = torch.tensor(sim.model.keyframe("qpos0").q, dtype=torch.float64)
    v = torch.linspace(-1.0, 1.0, sim.model.nv, dtype=torch.float64)
    q[7] = 0.3
    assert torch.autograd.gradcheck(read, (q.requires_grad_(), v.requires_grad_()), eps=1e-6, atol=1e-5, rtol=1e-4)


def test_sensors_that_are_left_out_are_named():
    head, tail = ROBOT.split("<sensor>")
    seen = '<sensor><framepos name="own" objtype="camera" objname="moving"/><rangefinder name="far" camera="eye"/>'
    text = f"{head}{seen}{tail}"
    with pytest.warns(ModelWarning, match=r"sensors of kind framepos \(own\)[\s\S]*kind rangefinder \(far\)"):
        model = adjoin.load(text)
    assert len(model.sensors) == len(adjoin.load(ROBOT).sensors)
    with pytest.raises(ModelError, match=r"sensors of kind framepos \(own\)"):
        adjoin.load(text, strict=True)


def test_readings_arrive_late_and_with_noise():
    model = adjoin.robots.load("two_link")
    for sensor in (
        adjoin.Sensor("a", "jointpos", model.joints[0].name, delay=0.015),
        adjoin.Sensor("b", "jointvel", model.joints[1].name, noise=0.2),
    ):
        model = model.with_sensor(sensor)
    true = torch.linspace(0.0, 1.0, 4001, dtype=torch.float64)[:, None].expand(4001, 2).requires_grad_()
    measured = adjoin.measure(model, true, 0.01, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(measured[5:, 0], true[5:, 0] - 1.5 / 4000)
    assert measured[0, 0] == measured[1, 0] == true[0, 0]
    noise = (measured - true)[:, 1]
    assert abs(noise.std() - 0.2) < 0.01
    assert abs(noise.mean()) < 0.02
    (slope,) = torch.autograd.grad(measured[100].sum(), true)
    assert torch.equal(slope[98:101], torch.tensor([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]], dtype=torch.float64))
    with pytest.raises(adjoin.errors.InputError, match="the sensors of 'two_link' have 2"):
        adjoin.measure(model, true[:, :1], 0.01)
    with pytest.raises(adjoin.errors.InputError, match=r"dt must be a positive number of seconds, got 0\.0"):
        adjoin.measure(model, true, 0.0)
    with pytest.raises(adjoin.errors.InputError, match="readings are"):
        adjoin.measure(model, true[0], 0.01)


ALL = "found force torque dist pos normal tangent linvel angvel"
TOUCHING = f"""
<mujoco>
  <option cone="elliptic"/>
  <default><geom condim="6" friction="1 0.02 0.01"/></default>
  <worldbody>
    <site name="zone" type="cylinder" size="0.08 0.05" pos="0.1 0.1 0"/>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body name="crate" pos="0 0 0.098"><freejoint/><geom name="crate" type="box" size="0.1 0.1 0.1"/>
      <body name="lid" pos="0 0 0.15"><joint type="ball"/><geom name="lid" type="sphere" size="0.04"/></body>
    </body>
    <body name="ball" pos="0.195 0 0.098"><freejoint/><geom name="ball" type="sphere" size="0.1"/></body>
  </worldbody>
  <sensor>
    <contact geom1="crate" geom2="floor" num="2" data="found dist pos normal" reduce="mindist"/>
    <contact subtree1="crate" body2="world" data="found force pos" reduce="netforce"/>
    <contact body1="ball" num="3" data="found dist normal" reduce="maxforce"/>
    <contact body1="world" subtree2="ball" data="found force" reduce="netforce"/>
    <contact geom1="lid" num="2" data="found dist"/>
    <contact geom1="crate" geom2="ball" data="{ALL}"/><contact geom1="ball" geom2="crate" data="{ALL}"/>
    <contact geom1="floor" geom2="crate" num="4" data="{ALL}" reduce="mindist"/>
    <contact subtree1="crate" data="found force torque dist pos normal tangent" reduce="netforce"/>
    <contact site="zone" num="2" data="{ALL}" reduce="mindist"/>
    <contact site="zone" geom2="crate" num="2" data="{ALL}" reduce="mindist"/>
    <contact num="2" data="found force dist tangent" reduce="maxforce"/>
    <contact subtree1="crate" subtree2="crate" data="{ALL}"/>
  </sensor>
</mujoco>
"""
SKIN = """
<mujoco>
  <asset>
    <mesh name="pad" builtin="plate" params="5 4" scale="0.1 0.1 1"/>
    <mesh name="ball" builtin="sphere" params="1" scale="0.1 0.1 0.1"/>
  </asset>
  <default><geom condim="6" friction="1 0.02 0.01"/></default>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="ball" pos="0 0 0.08"><freejoint/><geom name="ball" size="0.1"/></body>
    <body pos="2 0 0.1" euler="10 20 30"><geom type="ellipsoid" size="0.1 0.2 0.1"/></body>
    <body name="egg" pos="2 0 0.28"><freejoint/><geom name="egg" size="0.1"/></body>
    <body pos="-2 0 0.1"><geom type="cylinder" size="0.1 0.1"/></body>
    <body name="can" pos="-2 0 0.28"><freejoint/><geom name="can" size="0.1"/></body>
    <body pos="0 2 0.1"><geom type="capsule" size="0.1 0.1" euler="0 90 0"/></body>
    <body name="rod" pos="0 2 0.28"><freejoint/><geom name="rod" size="0.1" euler="20 30 40"/>
      <site name="rod" pos="0 0.1 0"/></body>
    <body pos="0 -2 0.1"><geom type="box" size="0.1 0.1 0.1"/></body>
    <body name="block" pos="0 -2 0.26"><freejoint/><geom name="block" size="0.1" euler="20 30 40"/></body>
  </worldbody>
  <sensor>
    <tactile mesh="ball" geom="egg"/><tactile mesh="ball" geom="can"/><tactile mesh="ball" geom="rod"/>
    <tactile mesh="ball" geom="ball"/><tactile mesh="pad" geom="block"/>
    <force site="rod"/><torque site="rod"/>
  </sensor>
</mujoco>
"""


def measured_and_expected(xml, count, spread):
    """A simulator, and what its sensors and MuJoCo's measure in some states."""
    model, sim = mujoco_models.engines(xml)
    expected = []

    def states():
        for data in mujoco_models.random_states(model, count, spread=spread, speed=0.1):
            expected.append(data.sensordata.copy())
            yield data

    with mujoco_tables.interpreted():
        state, _, _ = mujoco_models.states_of(sim, model, states())
        measured = sim.rollout(state, steps=1, outputs=["sensors"]).outputs["sensors"][0].numpy()
    expected = np.array(expected)
    assert expected.shape == measured.shape
    for name, place in sim.model.sensor_slices.items():
        scale = max(1.0, np.abs(expected[:, place]).max())
        assert np.abs(measured[:, place] - expected[:, place]).max() < 1e-8 * scale, name
    return sim, expected


def test_skin_feels_as_mujocos():
    sim, expected = measured_and_expected(SKIN, 2, 0.01)
    felt = [expected[:, sim.model.sensor_slices[s.name]] for s in sim.model.sensors if s.kind == "tactile"]
    assert all((numbers != 0.0).any() for numbers in felt)
    assert (felt[4][:, 20:] != 0.0).any()  # it slides


def test_contacts_are_measured_as_mujocos():
    sim, expected = measured_and_expected(TOUCHING, 5, 0.004)
    found = [place.start for place in sim.model.sensor_slices.values()]
    assert (expected[:, found].max(0)[:4] > 0).all()
    assert adjoin.load(adjoin.to_urdf(sim.model)).sensors == sim.model.sensors
    for change, problem in (
        ({"data": "linvel", "reduce": "netforce"}, "reduce must not be 'netforce'"),
        ({"data": "force", "slots": 0}, "slots is 0"),
        ({"data": "force", "site": "nowhere"}, "no frame 'nowhere'"),
        ({"kind": "tactile", "target": "ball", "rays": (0.0,) * 8}, "rays has 8 numbers"),
        ({"kind": "user", "phase": 0.1}, "phase is 0.1"),
    ):
        with pytest.raises(ModelError, match=problem):
            sim.model.with_sensor(replace(adjoin.Sensor("s", "contact", "ball", slots=1), **change))


TIMED = """
<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody><body><joint name="j" type="slide"/><geom size="0.1"/></body></worldbody>
  <sensor>
    <jointpos joint="j"/>
    <jointpos joint="j" interval="0.03" nsample="3"/>
    <jointpos joint="j" interval="0.04 -0.01" nsample="3"/>
    <jointpos joint="j" delay="0.025" nsample="10" interp="linear"/>
    <jointpos joint="j" delay="0.025" interval="0.02" nsample="10"/>
  </sensor>
</mujoco>
"""


def test_readings_are_delayed_and_held_as_mujocos():
    m, ours = mujoco.MjModel.from_xml_string(TIMED), adjoin.load(TIMED)
    data = mujoco.MjData(m)
    data.qvel[0] = 1.0
    expected = []
    for _ in range(9):
        mujoco.mj_step(m, data)
        expected.append(data.sensordata.copy())
    true = 0.01 * torch.arange(9, dtype=torch.float64)[:, None].expand(9, 5)
    assert np.abs(adjoin.measure(ours, true, 0.01).numpy() - np.array(expected)).max() < 1e-12


ROLLING = """
<mujoco>
  <option cone="elliptic"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body><freejoint/><geom name="ball" size="0.1" condim="4"/></body>
  </worldbody>
  <sensor><contact geom1="floor" geom2="ball" data="force torque pos linvel" reduce="mindist"/></sensor>
</mujoco>
"""


def test_contact_readings_have_gradients():
    sim = adjoin.Simulator(adjoin.load(ROLLING))
    turned = torch.nn.functional.normalize(torch.tensor([0.9, 0.1, 0.3, 0.2], dtype=torch.float64), dim=0)

    def read(place, v):
        path = sim.rollout(sim.state(torch.cat([place, turned]), v), steps=1, outputs=["sensors"])
        return path.outputs["sensors"][0]

    place = torch.tensor([0.1, 0.2, 0.0985], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([0.1, 0.2, -0.05, 0.3, 0.2, 0.4], dtype=torch.float64, requires_grad=True)
    assert (read(place, v)[:3].detach().abs() > 1.0).all()
    assert torch.autograd.gradcheck(read, (place, v), eps=1e-7, atol=1e-4, rtol=1e-4)
