"""Newton's method for soft contact: steps as MuJoCo takes them, gradients by finite differences, lists of contacts."""

import functools
import pickle

import mujoco
import numpy as np
import pytest
import torch

import adjoin
from adjoin.constraints.packed import Envelope, Packed, structure
from adjoin.errors import InputError
from adjoin.simulation.state import FINE, OVERFLOW

QUADRUPED = """
<mujoco>
  <option timestep="0.004" integrator="implicitfast" {option}/>
  <default><geom {geom}/><joint damping="0.3" armature="0.02" {joint}/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" {floor}/>
    <body name="trunk" pos="0 0 0.32">
      <freejoint/>
      <geom name="trunk" type="box" size="0.2 0.1 0.05" mass="4"/>
      <body name="left" pos="0.15 0.12 0">
        <joint name="hip" axis="0 1 0" range="-60 30"/>
        <geom name="thigh" type="capsule" fromto="0 0 0 0 0 -0.15" size="0.03" mass="0.5"/>
        <body name="shank" pos="0 0 -0.15">
          <joint name="knee" axis="0 1 0" range="-10 100"/>
          <geom name="shank" type="capsule" fromto="0 0 0 0 0 -0.13" size="0.025" mass="0.3"/>
          <geom name="foot" type="sphere" pos="0 0 -0.15" size="0.035" mass="0.1"/>
        </body>
      </body>
      <body name="right" pos="-0.15 -0.12 0">
        <joint name="other hip" axis="0 1 0" range="-20 20"/>
        <geom name="stump" type="ellipsoid" pos="0 0 -0.1" size="0.04 0.05 0.16" mass="0.5"/>
      </body>
    </body>
    <body name="ball" pos="0.25 0.12 0.1"><freejoint/><geom name="ball" type="sphere" size="0.08" mass="0.4"/></body>
  </worldbody>
  <actuator><motor joint="hip" gear="8"/><position joint="knee" kp="40" kv="1"/></actuator>
</mujoco>
"""

VARIANTS = {
    "pyramidal": {},
    "elliptic": {"option": 'cone="elliptic" impratio="3"'},
    "torsion": {"option": 'cone="elliptic"', "geom": 'condim="4" friction="0.8 0.02 0.003"'},
    "rolling": {"geom": 'condim="6" friction="0.8 0.02 0.003"'},
    "rolling cone": {"option": 'cone="elliptic" impratio="10"', "geom": 'condim="6" friction="0.8 0.02 0.003"'},
    "frictionless": {"geom": 'condim="1"'},
    "mixed": {"geom": 'condim="1"', "floor": 'condim="3" priority="1"'},
    "margin": {"geom": 'margin="0.01" gap="0.004"'},
    "soft": {"geom": 'solref="0.03 0.7" solimp="0.3 0.8 0.01 0.4 3"', "joint": 'solreflimit="0.05 1"'},
    "direct": {"geom": 'solref="-3000 -60"'},
    "dry": {"joint": 'frictionloss="0.6"'},
}


def xml(name):
    blank = dict.fromkeys(("option", "geom", "joint", "floor"), "")
    return QUADRUPED.format(**{**blank, **VARIANTS[name]})


@functools.cache
def engines(name):
    """MuJoCo's model with tight tolerances, and a simulator of the same file."""
    model = mujoco.MjModel.from_xml_string(xml(name))
    model.opt.tolerance, model.opt.ls_tolerance = 1e-15, 1e-9
    model.opt.iterations = model.opt.ls_iterations = 200
    sim = adjoin.Simulator(adjoin.load(xml(name)), model.opt.timestep, adjoin.Newton(), self_collision=True)
    return model, sim


def rotation(quaternion):
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)


def in_body_axes(q, v):
    """MuJoCo's velocity, with that of floating bodies in their own axes."""
    v = v.copy()
    for at, start in ((0, 0), (10, 9)):
        v[start : start + 3] = rotation(q[at + 3 : at + 7]).T @ v[start : start + 3]
    return v


def in_contact(model, count, seed=0):
    """Random states with contacts, on the way of a fall."""
    data, generator = mujoco.MjData(model), np.random.default_rng(seed)
    for _ in range(count):
        mujoco.mj_resetData(model, data)
        data.qvel[:] = generator.standard_normal(model.nv)
        data.ctrl[:] = generator.uniform(-1.0, 1.0, model.nu)
        mujoco.mj_step(model, data, nstep=int(generator.integers(10, 120)))
        data.ctrl[:] = generator.uniform(-1.0, 1.0, model.nu)
        mujoco.mj_forward(model, data)
        yield data


@pytest.mark.parametrize("name", VARIANTS)
def test_accelerations_and_forces_are_mujocos(name):
    model, sim = engines(name)
    states, expected, touching = [], [], 0
    for data in in_contact(model, 24):
        states.append((data.qpos.copy(), in_body_axes(data.qpos, data.qvel), data.ctrl.copy()))
        forces, force = {}, np.zeros(6)
        for k, contact in enumerate(data.contact):
            if contact.efc_address >= 0:
                mujoco.mj_contactForce(model, data, k, force)
                pair = frozenset(model.geom(g).name for g in contact.geom)
                forces[pair] = forces.get(pair, 0.0) + np.linalg.norm(force[0])
        touching += len(forces)
        mujoco.mj_step(model, data)
        expected.append((data.qpos.copy(), in_body_axes(data.qpos, data.qvel), forces))
    assert touching > 24
    q, v, control = (torch.tensor(np.array(x)) for x in zip(*states, strict=True))
    state = sim.state(q, v)
    after, contacts = sim.step(state, control), sim.contacts(state, control)
    assert (after.status == FINE).all()
    for i, (place, velocity, forces) in enumerate(expected):
        scale = max(np.abs(velocity - v[i].numpy()).max(), 1e-3)
        np.testing.assert_allclose(after.v[i], velocity, rtol=0.0, atol=1e-6 * scale)
        np.testing.assert_allclose(after.q[i], place, rtol=0.0, atol=1e-6 * scale)
        found = {}
        for k in range(contacts.pair.shape[1]):
            if contacts.pair[i, k] >= 0.0 and contacts.distance[i, k] < 1e3:
                pair = frozenset(sim.contact_names[int(contacts.pair[i, k])])
                found[pair] = found.get(pair, 0.0) + float(contacts.force[i, k] @ contacts.normal[i, k])
        for pair, strength in forces.items():
            assert found[pair] == pytest.approx(strength, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["pyramidal", "rolling cone"])
def test_a_fall_is_mujocos(name):
    model, sim = engines(name)
    data = mujoco.MjData(model)
    data.ctrl[:] = 0.3
    start = sim.state(torch.tensor(data.qpos.copy()), torch.tensor(data.qvel.copy()))
    places = []
    for _ in range(150):
        mujoco.mj_step(model, data)
        places.append(data.qpos.copy())
    path = sim.rollout(start, torch.full((150, 2), 0.3, dtype=torch.float64))
    np.testing.assert_allclose(path.q[1:], np.array(places), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("name", ["pyramidal", "elliptic", "rolling cone", "soft", "dry"])
def test_gradients_are_those_of_finite_differences(name):
    model, sim = engines(name)
    rows = [(d.qpos.copy(), in_body_axes(d.qpos, d.qvel), d.ctrl.copy()) for d in in_contact(model, 6, seed=3)]
    q, v, control = (torch.tensor(np.array(x)) for x in zip(*rows, strict=True))
    own = sim.model.parameters((6,), dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    friction = own["geometry_friction"]  # of two that are equal, neither is the greater
    friction *= 1.0 + 0.2 * torch.rand(friction.shape, generator=generator, dtype=torch.float64)
    inputs = {"q": q, "v": v, "control": control}
    inputs |= {key: own[key] for key in ("mass", "geometry_friction", "geometry_size", "geometry_position", "damping")}
    weights = torch.randn(6, sim.model.nv, generator=generator, dtype=torch.float64)

    def value(given):
        params = {key: given[key] for key in list(given)[3:]}
        after = sim.step(sim.state(given["q"], given["v"]), given["control"], params)
        return (after.v * weights).sum(-1)

    leaves = {key: x.clone().requires_grad_() for key, x in inputs.items()}
    slopes = dict(zip(leaves, torch.autograd.grad(value(leaves).sum(), list(leaves.values())), strict=True))
    for key, x in inputs.items():
        direction = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        if key == "q":  # along the manifold
            rate = torch.randn(6, sim.model.nv, generator=generator, dtype=torch.float64)
            direction = (sim.model.integrate(x, 1e-7 * rate) - x) / 1e-7
        estimates = []
        for step in (1e-6, 3e-7):
            ends = [value({**inputs, key: x + sign * step * direction}) for sign in (1.0, -1.0)]
            estimates.append((ends[0] - ends[1]) / (2.0 * step))
        slope = (slopes[key] * direction).flatten(1).sum(-1)
        # On a kink the two steps do not agree, and there is nothing to compare with.
        smooth = (estimates[0] - estimates[1]).abs() < 1e-4 * (1.0 + estimates[1].abs())
        assert smooth.sum() >= 4, key
        torch.testing.assert_close(
            slope[smooth], estimates[1][smooth], rtol=2e-4, atol=2e-4, msg=lambda m, k=key: f"{k}: {m}"
        )


def test_bits_do_not_depend_on_neighbors():
    model, sim = engines("pyramidal")
    rows = [(d.qpos.copy(), in_body_axes(d.qpos, d.qvel)) for d in in_contact(model, 24, seed=5)]
    q, v = (torch.tensor(np.array(x)) for x in zip(*rows, strict=True))
    for dtype in (torch.float64, torch.float32):

        def run(order, dtype=dtype):
            state = sim.state(q[order].to(dtype).requires_grad_(), v[order].to(dtype))
            path = sim.rollout(state, torch.zeros(5, len(order), 2, dtype=dtype), outputs=["contacts"])
            (slope,) = torch.autograd.grad(path.v[-1].sum(), state.q)
            return [path.q[-1], path.v[-1], path.outputs["contacts"].force[-1], slope]

        first = run(list(range(24)))
        order = torch.randperm(24, generator=torch.Generator().manual_seed(2)).tolist()
        for a, b in zip(first, run(order), strict=True):
            assert torch.equal(a[order], b)


def test_more_contacts_than_there_is_room_for_are_a_status():
    model, _ = engines("pyramidal")
    sim = adjoin.Simulator(adjoin.load(xml("pyramidal")), 0.004, adjoin.Newton(), self_collision=True, max_contacts=2)
    rows = [(d.qpos.copy(), d.qvel.copy()) for d in in_contact(model, 16, seed=7)]
    q, v = torch.tensor(np.array([row[0] for row in rows])), torch.tensor(np.array([row[1] for row in rows]))
    state = sim.state(q, v)
    path = sim.rollout(state, torch.zeros(1, 16, 2, dtype=torch.float64), outputs=["contact_count"])
    needed = path.outputs["contact_count"][0]
    assert needed.max() > 2 >= needed.min()
    expected = torch.where(needed > 2, OVERFLOW, FINE)
    assert path.status[-1].tolist() == expected.tolist()
    frozen = needed > 2
    assert torch.equal(path.q[-1][frozen], q[frozen])


def test_a_world_without_contacts_steps():
    joint, geom = "<joint axis='0 1 0' range='-10 10' limited='true'/>", "<geom size='0.1' pos='0.5 0 0'/>"
    text = f"<mujoco><worldbody><body>{joint}{geom}</body></worldbody></mujoco>"
    model, sim = mujoco.MjModel.from_xml_string(text), adjoin.Simulator(adjoin.load(text), 0.002, adjoin.Newton())
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, nstep=200)
    path = sim.rollout(sim.state(torch.zeros(1, dtype=torch.float64)), steps=200)
    assert path.q[-1].item() == pytest.approx(data.qpos[0], abs=1e-8)


def test_a_warm_start_changes_the_work_but_not_the_step():
    _, sim = engines("elliptic")
    state = sim.rollout(sim.state(batch=9, dtype=torch.float64), torch.zeros(60, 9, 2, dtype=torch.float64)).last
    cold = state.replace(memory={**state.memory, "acceleration": torch.zeros_like(state.v)})
    control = torch.zeros(9, 2, dtype=torch.float64)
    warm, cold = sim.step(state, control), sim.step(cold, control)
    assert not torch.equal(state.memory["acceleration"], torch.zeros_like(state.v))
    torch.testing.assert_close(warm.v, cold.v, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(warm.memory["acceleration"], cold.memory["acceleration"], rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("n", [1, 4, 6, 9])
def test_a_dense_matrix_is_solved_tile_by_tile(n):
    def solve(half, right):
        rows = [[half[i * (i + 1) // 2 + j] if j <= i else 0.0 for j in range(n)] for i in range(n)]
        return Packed(rows, envelope=Envelope(n, structure(rows))).solve(list(right))

    root = torch.randn(9, n, n, dtype=torch.float64)
    matrix, right = root @ root.mT + torch.eye(n), torch.randn(9, n, dtype=torch.float64)
    i, j = torch.tril_indices(n, n)
    found = adjoin.function(half=n * (n + 1) // 2, right=n)(solve)(matrix[:, i, j], right)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right))


def test_a_matrix_is_solved_within_its_envelope():
    n, blocks = 18, ((0, 6), (6, 12), (12, 18))
    places = {(i, j) for start, end in blocks for i in range(start, end) for j in range(start, i + 1)}
    places |= {(i, j) for i in range(12, 18) for j in range(6)}  # the last body touches the first

    def solve(half, right):
        rows = [[half[i * (i + 1) // 2 + j] if (i, j) in places else 0.0 for j in range(n)] for i in range(n)]
        return Packed(rows, envelope=Envelope(n, places)).solve(list(right))

    mask = torch.zeros(n, n, dtype=torch.bool)
    mask[tuple(torch.tensor(sorted(places)).T)] = True
    root = torch.randn(9, n, n, dtype=torch.float64)
    matrix = (root @ root.mT + 20.0 * torch.eye(n)) * (mask | mask.T)
    right = torch.randn(9, n, dtype=torch.float64)
    i, j = torch.tril_indices(n, n)
    found = adjoin.function(half=n * (n + 1) // 2, right=n)(solve)(matrix[:, i, j], right)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right))


BOXES = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
    <body pos="1 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
    <body pos="2 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def test_what_touches_in_one_environment_does_not_change_another():
    model = adjoin.load(BOXES)
    sim = adjoin.Simulator(model)
    q = sim.state("qpos0", batch=3, dtype=torch.float64).q.clone()
    q[:, 2::7] -= 1e-4
    q[1, 14:17] = torch.tensor([0.02, 0.03, 0.2995])  # the last box stands on the first
    q[2, 7:10] = torch.tensor([0.199, 0.01, 0.0999])  # the second leans on the first
    together = sim.rollout(sim.state(q), steps=20)
    for k in range(3):
        alone = sim.rollout(sim.state(q[k : k + 1]), steps=20)
        assert torch.equal(alone.q[:, 0], together.q[:, k])


def test_what_is_not_a_solver_is_refused():
    with pytest.raises(InputError, match="iterations must be a whole number"):
        adjoin.Newton(iterations=0)
    with pytest.raises(InputError, match="impratio must be positive"):
        adjoin.Newton(impratio=-1.0)
    model = adjoin.load(xml("pyramidal"))
    with pytest.raises(InputError, match="RK4 is for smooth systems"):
        adjoin.Simulator(model, 0.004, adjoin.Newton(), integrator=adjoin.RK4())
    with pytest.raises(InputError, match="max_contacts"):
        adjoin.Simulator(model, 0.004, adjoin.Newton(), max_contacts=0)


def test_what_a_file_says_about_softness_is_saved(tmp_path):
    model = adjoin.load(xml("soft")).with_motors([])
    adjoin.save(model, tmp_path / "soft.safetensors")
    assert adjoin.load(tmp_path / "soft.safetensors") == model
    assert pickle.loads(pickle.dumps(model)) == model
    assert model.joints[1].limit_solref == (0.05, 1.0)
    assert model.geometries[-1].solimp == (0.3, 0.8, 0.01, 0.4, 3.0)
