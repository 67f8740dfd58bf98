"""Tendons, equalities, transmissions, activations and gravity compensation act as in MuJoCo."""

import mujoco_models
import mujoco_tables
import numpy as np
import pytest
import torch

import adjoin
from adjoin.dynamics.tendon import _through_ring

ROBOT = """
<mujoco>
  <option timestep="0.004" integrator="{integrator}"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="w0" pos="0.1 0.1 1.5"/>
    <site name="w1" pos="-0.3 0.2 1.2"/>
    <body name="a" pos="0 0 1" gravcomp="0.7">
      <joint name="a" axis="0 1 0" damping="0.2" actuatorgravcomp="true" actuatorfrcrange="-9 9"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.04"/>
      <geom name="drum" type="cylinder" size="0.08 0.1" pos="0.25 0.02 0.04" euler="80 10 0" mass="0"/>
      <geom name="knob" type="sphere" size="0.12" pos="0.25 0.02 0.04" mass="0"/>
      <site name="sa" pos="0.2 0.05 0.03" euler="10 20 30"/>
      <site name="side" pos="0.25 0.02 0.3"/>
      <body name="b" pos="0.3 0 0">
        <joint name="b" axis="0 0.6 0.8" ref="0.2" damping="0.1"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
        <site name="sb" pos="0.2 0.02 0.1" euler="-30 20 5"/>
        <body name="c" pos="0.3 0 0" gravcomp="1.2">
          <joint name="c" type="slide" axis="1 0 0"/>
          <geom type="sphere" size="0.05"/>
          <site name="sc" pos="0.1 0 0.05"/>
        </body>
      </body>
    </body>
    <body name="f" pos="0.5 0.5 1">
      <freejoint/><geom type="box" size="0.1 0.08 0.05"/><site name="sf" pos="0.05 0.05 0.05"/>
    </body>
    <body name="d" pos="-0.6 0 1">
      <joint name="d" type="ball"/><geom type="capsule" fromto="0 0 0 0.3 0.1 0" size="0.03"/>
    </body>
  </worldbody>
  {parts}
</mujoco>
"""

HELD = """
<tendon>
  <fixed name="fixed" stiffness="20" damping="2" springlength="0.1 0.2" range="-0.2 0.1" frictionloss="0.5">
    <joint joint="a" coef="0.5"/><joint joint="c" coef="-2"/>
  </fixed>
  <spatial name="string" stiffness="50" damping="3" springlength="0.3" range="0 0.9" frictionloss="0.4">
    <site site="w0"/><site site="sa"/><site site="sb"/><pulley divisor="2"/><site site="w1"/><site site="sf"/>
  </spatial>
  <spatial name="around" stiffness="50" damping="3"><site site="w0"/><geom geom="drum"/><site site="sb"/></spatial>
  <spatial name="above" stiffness="50" damping="3">
    <site site="w1"/><geom geom="drum" sidesite="side"/><site site="sb"/>
  </spatial>
  <spatial name="over" stiffness="50" damping="3"><site site="w1"/><geom geom="knob"/><site site="sb"/></spatial>
</tendon>
<equality>
  <joint joint1="a" joint2="b" polycoef="0.1 0.5 0.3 0.2 0.1"/>
  <joint joint1="c" polycoef="0.02 1 0 0 0" solref="0.05 0.8"/>
  <tendon tendon1="fixed" tendon2="string" polycoef="0.1 0.4 0.2 0 0"/>
  <connect body1="c" body2="f" anchor="0.1 0.02 0.03"/>
  <connect site1="sa" site2="w0"/>
  <weld body1="b" body2="f" torquescale="0.3" solimp="0.8 0.9 0.1 0.5 2"/>
  <weld body1="d" active="false"/>
</equality>
"""

DRIVEN = """
<tendon>
  <spatial name="string" actuatorfrcrange="-1 1"><site site="w0"/><site site="sa"/><site site="sb"/></spatial>
</tendon>
<actuator>
  <motor tendon="string" gear="2"/>
  <position tendon="string" kp="30" kv="3"/>
  <general site="sb" gear="1 2 3 0.4 0.5 0.6" gainprm="3"/>
  <position site="sc" refsite="sa" gear="1 2 0 0.3 0 0.5" kp="5" kv="1"/>
  <general site="sf" gear="0 0 1 0 0 0"/>
  <general cranksite="sb" slidersite="w0" cranklength="0.9" gear="2" gainprm="3" biastype="affine" biasprm="0 -4 -2"/>
  <motor joint="d" gear="1 2 3"/>
  <position jointinparent="d" gear="3 2 1" kp="4" kv="0.3"/>
  <general joint="a" dyntype="filter" dynprm="0.05" gainprm="4"/>
  <general joint="b" dyntype="filterexact" dynprm="0.02" gainprm="4" biastype="affine" biasprm="0 -2 -1"
    actearly="true"/>
  <intvelocity joint="c" kp="30" actrange="-0.5 0.5"/>
  <general joint="a" dyntype="integrator" gaintype="affine" gainprm="1 2 3" actrange="0 0.3"/>
  <damper joint="b" kv="3" ctrlrange="0 1"/>
  <cylinder joint="c" timeconst="0.1" area="2"/>
  <muscle tendon="string" lengthrange="0.4 1.1"/>
  <muscle joint="a" lengthrange="-1 1" force="20" tausmooth="0.1"/>
</actuator>
"""


@pytest.mark.parametrize("parts", [HELD, DRIVEN], ids=["held", "driven"])
def test_steps_are_mujocos(parts):
    xml = ROBOT.format(integrator="implicitfast", parts=parts)
    assert mujoco_models.difference(xml, count=16) < 1e-10
    model = adjoin.load(xml)
    assert adjoin.load(adjoin.to_urdf(model)).equalities == model.equalities


def test_activations_follow_the_control_in_four_stages():
    xml = """
    <mujoco>
      <option timestep="0.01" integrator="RK4"/>
      <worldbody><body><joint name="a"/><geom size="0.1" pos="0.2 0 0" mass="1"/></body></worldbody>
      <actuator>
        <general joint="a" dyntype="filterexact" dynprm="0.05" gainprm="4"/><muscle joint="a" lengthrange="-1 1"/>
      </actuator>
    </mujoco>
    """
    assert mujoco_models.difference(xml) < 1e-12


def test_parameters_of_tendons_and_equalities_have_gradients():
    parts = """
    <tendon><spatial name="t" stiffness="50" damping="3"><site site="w0"/><geom geom="drum"/><site site="sb"/></spatial>
    </tendon>
    <equality><joint joint1="c" joint2="b"/></equality>
    <actuator><general tendon="t" dyntype="filter" dynprm="0.05" gainprm="4"/></actuator>
    """
    sim = adjoin.Simulator(adjoin.load(ROBOT.format(integrator="Euler", parts=parts)), 4e-3, adjoin.Newton(), pairs=[])
    generator = torch.Generator().manual_seed(1)
    state = sim.state(v=torch.randn(sim.model.nv, dtype=torch.float64, generator=generator))
    names = ("tendon_stiffness", "equality_coefficients", "compensated_mass", "actuator_dynamics")
    defaults = sim.model.parameters(dtype=torch.float64)

    def end(control, *values):
        last = sim.rollout(state, control.expand(5, 1), dict(zip(names, values, strict=True))).last
        return torch.cat([last.q, last.v, last.memory["activation"]])

    inputs = [torch.tensor([0.3], dtype=torch.float64), *[defaults[name] for name in names]]
    assert torch.autograd.gradcheck(end, [x.requires_grad_() for x in inputs], eps=1e-6, atol=1e-6, rtol=1e-5)


def test_hard_contact_keeps_equalities_and_limits_of_tendons():
    parts = """
    <tendon><fixed name="t" range="-0.1 0.1"><joint joint="a" coef="1"/></fixed></tendon>
    <equality><joint joint1="c" joint2="b" polycoef="0 0.1 0 0 0"/></equality>
    """
    sim = adjoin.Simulator(adjoin.load(ROBOT.format(integrator="Euler", parts=parts)), 2e-3, adjoin.PGS(), pairs=[])
    path = sim.rollout(sim.state("qpos0", dtype=torch.float64), steps=300)
    assert path.q[:, 0].abs().max() < 0.12
    assert (path.q[:, 2] - 0.1 * (path.q[:, 1] - path.q[0, 1])).abs().max() < 1e-3
    assert path.q[:, 1].std() > 0.01


def test_gradients_pass_a_limit_of_a_tendon_over_several_joints():
    body = '<body name="{0}"><joint name="{0}" axis="0 1 0"/><geom size="0.1" pos="0.3 {1} 0" mass="1"/></body>'
    xml = f"""
    <mujoco><worldbody>{body.format("a", 0)}{body.format("b", 1)}</worldbody>
    <tendon><fixed name="t" range="-0.1 0.1"><joint joint="a" coef="1"/><joint joint="b" coef="0.7"/></fixed></tendon>
    </mujoco>
    """
    contact = adjoin.PGS(iterations=50, adjoint=adjoin.ImplicitAdjoint())
    sim = adjoin.Simulator(adjoin.load(xml), 2e-3, contact, pairs=[])
    q, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in ([0.06, 0.06], [1.0, 0.5]))
    held = sim.step(sim.state(q, v))
    assert held.v[0] < 0.5 * v[0]
    assert torch.autograd.gradcheck(lambda q, v: sim.step(sim.state(q, v)).v, [q, v], atol=1e-6)


RING = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <site name="begin" pos="0.4 0.05 0.02"/>
    <body>
      <joint axis="0 1 0"/><joint axis="0 0 1"/><joint type="slide" axis="0 1 0"/>
      <geom name="ring" type="{}" size="0.1 0.2" mass="1"/><site name="within" pos="0.02 0.01 0"/>
      <body>
        <joint axis="0 0 1"/><joint axis="1 0 0"/>
        <geom type="box" size="0.1 0.1 0.1" pos="-0.3 0 0"/><site name="end" pos="-0.3 0.15 0.02"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <spatial name="string" stiffness="30" damping="3" springlength="0.1">
      <site site="begin"/><geom geom="ring" sidesite="within"/><site site="end"/>
    </spatial>
  </tendon>
</mujoco>
"""


@pytest.mark.parametrize("shape", ["sphere", "cylinder"])
def test_a_tendon_runs_through_a_ring_as_mujocos(shape):
    model, sim = mujoco_models.engines(RING.format(shape))
    held = []

    def states():
        for data in mujoco_models.random_states(model, 12, spread=0.6, speed=0.3):
            held.append(data.ten_wrapnum[0] > 2)
            yield data

    with mujoco_tables.interpreted():
        state, _, (_, v, _) = mujoco_models.states_of(sim, model, states())
        after = sim.step(state)
    assert 2 < sum(held) < 12
    assert (after.v - v).abs().max() < 1e-6 * (v - state.v).abs().max()  # MuJoCo's search ends at 1e-6


def test_where_a_string_touches_a_ring_has_gradients():
    @adjoin.function(x=4)
    def touch(x):
        _, places, straights, _ = _through_ring((x[0], x[1]), (x[2], x[3]), 0.0, 0.1)
        return np.array([*places[0], *straights], dtype=object)

    x = torch.tensor([0.4, 0.05, -0.2, 0.33], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(touch, (x,), eps=1e-6, atol=1e-7)
