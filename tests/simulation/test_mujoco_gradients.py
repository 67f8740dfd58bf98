"""Parameters of what MJCF files have beside bodies and joints: gradients of steps, beside finite differences."""

import re

import mujoco_models
import pytest
import torch
from test_mujoco_mechanisms import DRIVEN, HELD, ROBOT

import adjoin

TENDONS = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <site name="post" pos="0 0 1.3"/>
    <body pos="0 0 1"><joint name="a" axis="0 1 0"/><geom type="capsule" size="0.03" fromto="0 0 0 0.3 0 0"/>
      <body pos="0.3 0 0"><joint name="b" axis="0 1 0"/><geom type="capsule" size="0.03" fromto="0 0 0 0.3 0 0"/>
        <site name="tip" pos="0.3 0 0"/></body></body>
  </worldbody>
  <tendon>
    <spatial name="string" range="0 0.6" frictionloss="0.4" solreflimit="0.03 0.9" solimplimit="0.7 0.9 0.02 0.4 3">
      <site site="post"/><site site="tip"/></spatial>
    <fixed name="sum" range="0.1 0.5" frictionloss="0.2">
      <joint joint="a" coef="1"/><joint joint="b" coef="0.6"/></fixed>
  </tendon>
</mujoco>
"""
FLUID = """
<mujoco>
  <option density="1.2" viscosity="0.05" wind="0.3 -0.2 0.1"/>
  <worldbody><body><freejoint/><geom type="ellipsoid" size="0.3 0.2 0.1" mass="0.1" {shape}/>
    <body pos="0.3 0 0"><joint axis="0 1 0"/><geom type="box" size="0.2 0.1 0.05" mass="0.05" {shape}/></body>
  </body></worldbody>
</mujoco>
"""
SOFT = """
<mujoco>
  <option timestep="0.002" cone="{cone}"/>
  <worldbody>
    <geom type="plane" size="5 5 1" solref="0.01 0.9" solimp="0.8 0.9 0.002 0.5 2"/>
    <body pos="0 0 0.108"><freejoint/><geom type="box" size="0.1 0.1 0.02" mass="2"/>
      <geom type="sphere" size="0.05" pos="0.1 0 -0.06" solref="0.03 1.2" solimp="0.02 0.98 0.036 0.4 3" solmix="2"/>
      <geom type="sphere" size="0.05" pos="-0.1 0.1 -0.06" solref="0.05 1.1" solimp="0.1 0.95 0.01 0.6 2.5"
        priority="1"/>
      <geom type="sphere" size="0.05" pos="-0.1 -0.1 -0.06" solref="-800 -30"/>
      <body pos="0.2 0 0">
        <joint axis="0 1 0" range="-10 6" ref="11.5" solreflimit="0.04 0.8" solimplimit="0.7 0.9 0.01 0.5 2"/>
        <geom size="0.03" mass="0.4" pos="0.1 0 0.1"/></body>
    </body>
  </worldbody>
</mujoco>
"""
SOFTNESS = ("geometry_solref", "geometry_solimp", "limit_solref", "limit_solimp")
CASES = {
    "held": (
        ROBOT.format(integrator="implicitfast", parts=HELD),
        (
            *("tendon_stiffness", "tendon_damping", "tendon_spring_length", "compensated_mass"),
            *("equality_position", "equality_other_position", "equality_rotation", "equality_coefficients"),
            *("equality_solref", "equality_solimp"),
        ),
    ),
    "driven": (
        ROBOT.format(integrator="implicitfast", parts=DRIVEN),
        ("actuator_gain", "actuator_bias", "actuator_gear", "actuator_gain_slope", "actuator_dynamics"),
    ),
    "tendons": (
        TENDONS,
        ("tendon_friction", "tendon_lower", "tendon_upper", "tendon_limit_solref", "tendon_limit_solimp"),
    ),
    "boxes in wind": (FLUID.format(shape=""), ("fluid_density", "fluid_viscosity", "wind")),
    "ellipsoids in wind": (FLUID.format(shape='fluidshape="ellipsoid"'), ("fluid_density", "fluid_viscosity", "wind")),
    "pyramids": (SOFT.format(cone="pyramidal"), SOFTNESS),
    "cones": (SOFT.format(cone="elliptic"), SOFTNESS),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_to_parameters(case):
    document, names = CASES[case]
    assert mujoco_models.difference(document, count=4) < 1e-9  # boxes that are sunk in a plane, too
    sim = adjoin.Simulator(adjoin.load(document))
    model = sim.model
    generator = torch.Generator().manual_seed(1)
    rates = 0.4 * torch.randn(model.nv, dtype=torch.float64, generator=generator)
    state = sim.state("qpos0", dtype=torch.float64).replace(v=rates)
    control = torch.full((4, model.nu), 0.4, dtype=torch.float64)
    weights = torch.randn(3, model.nq + model.nv, dtype=torch.float64, generator=generator)

    def end(*values):
        last = sim.rollout(state, control, dict(zip(names, values, strict=True))).last
        return weights @ torch.cat([last.q, last.v])

    values = [model.parameters(dtype=torch.float64)[name].requires_grad_() for name in names]
    for name, gradient in zip(names, torch.autograd.grad(end(*values)[0], values), strict=True):
        assert gradient.any(), name
    assert torch.autograd.gradcheck(end, values, eps=1e-6, atol=2e-5, rtol=1e-5)


def test_what_is_passed_takes_the_place_of_the_file_s():
    """Softness, wind and welds as parameters of a call step as those of a file that has them."""
    soft, plain = SOFT.format(cone="elliptic"), re.sub(r' (solref|solimp)\w*="[^"]*"', "", SOFT.format(cone="elliptic"))
    for document, other, names in (
        (soft, plain, SOFTNESS),
        (FLUID.format(shape=""), FLUID.format(shape="").replace('wind="0.3 -0.2 0.1"', ""), ("wind",)),
        (
            ROBOT.format(integrator="Euler", parts=HELD),
            ROBOT.format(integrator="Euler", parts=HELD.replace('solref="0.05 0.8"', "")),
            ("equality_solref",),
        ),
    ):
        expected, sim = adjoin.Simulator(adjoin.load(document)), adjoin.Simulator(adjoin.load(other))
        own = expected.model.parameters(dtype=torch.float64)
        params = {name: own[name] for name in names}
        state = expected.state("qpos0", dtype=torch.float64)
        wanted = expected.rollout(state, steps=10).last.q
        assert (sim.rollout(state, steps=10).last.q - wanted).abs().max() > 1e-6
        torch.testing.assert_close(sim.rollout(state, params=params, steps=10).last.q, wanted, rtol=0.0, atol=1e-12)
        torch.testing.assert_close(
            adjoin.Simulator(sim.model.with_parameters(params)).rollout(state, steps=10).last.q,
            wanted,
            rtol=0.0,
            atol=1e-12,
        )
