"""Named parameters: defaults, shapes, validation, and a model with other numbers."""

import math

import pytest
import torch

import adjoin
from adjoin.errors import InputError, ModelError
from adjoin.model.parameters import PARAMETERS

GEARED = """<robot name="geared">
  <link name="base"/>
  <link name="a"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <link name="b"><inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <joint name="lead" type="revolute"><parent link="base"/><child link="a"/>
    <limit lower="-1" upper="1" velocity="1" effort="1"/><dynamics damping="0.5" friction="0.25"/></joint>
  <joint name="follow" type="revolute"><parent link="a"/><child link="b"/>
    <mimic joint="lead" multiplier="-3" offset="0.1"/>
    <limit lower="-2" upper="2" velocity="1" effort="1"/><dynamics damping="0.2" friction="0.1"/></joint>
  <adjoin version="1">
    <joint name="lead" armature="0.1" stiffness="4" spring_reference="0.2"/>
    <joint name="follow" armature="0.01" stiffness="1" spring_reference="-0.5"/>
  </adjoin>
</robot>"""


def test_every_parameter_has_its_shape_and_is_a_copy():
    model = adjoin.robots.load("go2")
    params = model.parameters(dtype=torch.float64)
    assert list(params) == [parameter.name for parameter in PARAMETERS if not parameter.fixed]
    assert params["mass"].shape == (13,)
    assert params["inertia"].shape == (13, 6)
    assert params["joint_rotation"].shape == (13, 4)
    assert params["damping"].shape == (18,)
    assert params["spring_reference"].shape == (19,)
    assert params["gravity"].tolist() == [0.0, 0.0, -9.81]
    assert params["geometry_size"].shape == (len(model.geometries), 3)
    assert params["actuator_gear"].shape == (12,)
    params["mass"] += 1
    assert model.parameters(dtype=torch.float64)["mass"][0].item() == pytest.approx(7.277)


def test_every_parameter_can_be_baked_in_and_read_back():
    for name in ("panda", "ant", "go2", "humanoid"):
        model = adjoin.robots.load(name)
        params = model.parameters(dtype=torch.float64)
        again = model.with_parameters(params)
        for key, value in again.parameters(dtype=torch.float64).items():
            assert torch.allclose(value, params[key], atol=1e-15), key
        changed = {
            key: value * 1.5 if key not in ("joint_rotation", "frame_rotation", "geometry_rotation") else value
            for key, value in params.items()
        }
        for key, value in model.with_parameters(changed).parameters(dtype=torch.float64).items():
            assert torch.allclose(value, changed[key], atol=1e-15), key


def test_what_a_mimic_joint_adds_to_the_one_it_follows():
    model = adjoin.load(GEARED)
    assert (model.nq, model.nv) == (1, 1)
    params = model.parameters(dtype=torch.float64)
    assert params["damping"].item() == pytest.approx(0.5 + 9 * 0.2)
    assert params["friction"].item() == pytest.approx(0.25 + 3 * 0.1)
    assert params["armature"].item() == pytest.approx(0.1 + 9 * 0.01)
    stiffness, reference = params["stiffness"].item(), params["spring_reference"].item()
    for q in (-0.3, 0.0, 0.7):
        # Virtual work of both springs on the one coordinate.
        torque = -4 * (q - 0.2) - 1 * (-3 * q + 0.1 + 0.5) * -3
        assert -stiffness * (q - reference) == pytest.approx(torque)
    assert model.with_parameters(params).parameters(dtype=torch.float64)["damping"].item() == pytest.approx(2.3)


def test_limits_are_narrowed_by_joints_that_mimic():
    lower, upper = adjoin.load(GEARED).limits()
    # -2 <= -3 q + 0.1 <= 2
    assert lower == pytest.approx((-1.9 / 3,))
    assert upper == pytest.approx((0.7,))


def test_limits_that_leave_no_position_are_an_error():
    model = adjoin.load(GEARED.replace('lower="-2" upper="2"', 'lower="9" upper="10"'))
    with pytest.raises(ModelError, match="joint 'lead' and those that mimic it have no position inside all limits"):
        model.limits()


@pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
def test_batches_that_broadcast_are_accepted(batch):
    model = adjoin.robots.load("two_link")
    for lead in ((), (1,), (4,)):
        if len(lead) <= len(batch):
            checked = model.check_parameters({"mass": torch.ones(*lead, 2)}, batch)
            assert checked["mass"].shape == (*lead, 2)
    assert model.check_parameters(None) == {}


@pytest.mark.parametrize(
    ("params", "batch", "message"),
    [
        ({"mas": torch.ones(2)}, (), r"no parameter 'mas'; parameters: mass, com, inertia, joint_position, "),
        ({"mass": [1.0, 2.0]}, (), r"parameter 'mass' is a list; it must be a torch tensor"),
        ({"mass": torch.ones(2).long()}, (), r"parameter 'mass' has dtype torch.int64; it must be a floating-point"),
        ({"mass": torch.ones(3)}, (), r"parameter 'mass' has shape (3,); it needs (..., 2) after any batch dimensions"),
        (
            {"com": torch.ones(2)},
            (),
            r"parameter 'com' has shape (2,); it needs (..., 2, 3) after any batch dimensions",
        ),
        (
            {"mass": torch.ones(5, 2)},
            (4,),
            r"parameter 'mass' has shape (5, 2); it needs (..., 2) after batch dimensions that broadcast to (4,)",
        ),
        (
            {"mass": torch.ones(4, 2)},
            (),
            r"parameter 'mass' has shape (4, 2); it needs (..., 2) after batch dimensions that broadcast to ()",
        ),
        ({"gravity": torch.ones(2)}, (), r"parameter 'gravity' has shape (2,); it needs (..., 3) after any batch"),
    ],
)
def test_wrong_parameters_are_named(params, batch, message):
    with pytest.raises(InputError) as error:
        adjoin.robots.load("two_link").check_parameters(params, batch)
    assert str(error.value).startswith(message)


def test_what_no_kernel_reads_is_refused_in_a_call_and_acts_in_the_model():
    model = adjoin.robots.load("two_link")
    effort = {"effort_limit": torch.tensor([3.0, 4.0])}
    with pytest.raises(InputError, match="parameter 'effort_limit' has no effect on a call"):
        model.check_parameters(effort)
    servos = model.with_parameters(effort).with_servos(1.0, 1.0)
    assert [actuator.force_range for actuator in servos.actuators] == [(-3.0, 3.0), (-4.0, 4.0)]
    sim = adjoin.Simulator(model, dt=1e-3)
    with pytest.raises(InputError, match="parameter 'effort_limit' has no effect on a call"):
        sim.step(sim.state(), torch.zeros(0), params=effort)


def test_with_parameters_refuses_numbers_no_model_can_have():
    model = adjoin.robots.load("two_link")
    with pytest.raises(ModelError, match="body 'arm1': mass is nan; it must be finite"):
        model.with_parameters({"mass": torch.tensor([math.nan, 1.0])})
    with pytest.raises(ModelError, match="damping is -1; it must be at least 0"):
        model.with_parameters({"damping": torch.tensor([-1.0, 1.0])})
    with pytest.raises(InputError, match="quaternion of length 0"):
        model.with_parameters({"joint_rotation": torch.zeros(2, 4)})
