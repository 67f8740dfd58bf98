"""Hard contact on a list of what touches: the same steps and gradients as with rows for every point that can touch."""

from dataclasses import replace

import pytest
import torch
from worlds import UPRIGHT, hopper, tensor

import adjoin
from adjoin import PGS, AnticipatingAdjoint, Compliant, FrameConstraint, ImplicitAdjoint
from adjoin.collision import contact_list
from adjoin.simulation.state import FINE, OVERFLOW

PARAMETERS = ("mass", "geometry_friction", "geometry_size", "geometry_position", "friction")


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


PAIRS = [("foot", "ground"), ("trunk", "ground"), ("foot", "trunk")]


def simulators(contact, **options):
    """A hopper, whose foot can touch its trunk, with rows for every point, and with a list."""
    sims = []
    for as_list in (False, True):
        sim = adjoin.Simulator(hopper(), 2e-3, contact, ground=True, pairs=PAIRS, **options)
        # Sweeps visit the pairs in one order.
        sim.world = replace(sim.world, pairs=sim.world.candidates.pairs, as_list=as_list)
        sims.append(sim)
    assert [sim.world.listed for sim in sims] == [False, True]
    return sims


def start(batch=8):
    """Hoppers in all attitudes on the ground or just above it, a joint at its limit, or the foot at the trunk."""
    q = hopper().neutral((batch,), dtype=torch.float64)
    q[:, 2] = torch.linspace(0.2, 0.26, batch)
    q[:, 3:7] = torch.nn.functional.normalize(tensor(*UPRIGHT) + 0.1 * random(batch, 4), dim=-1)
    q[:, 7], q[:, 8] = torch.linspace(-0.9, 0.5, batch), -0.1005
    q[::3, 8] = 0.101
    return q, 0.5 * random(batch, 8, seed=1), random(10, batch, 2, seed=2)


def inputs(steps, **params):
    """The inputs of a rollout by name."""
    q, v, control = start()
    return {"q": q, "v": v, "control": control[:steps], **params}


def roll(sim, given):
    """The state after a rollout, and a weighted sum of it and of the forces on the way."""
    params = {name: value for name, value in given.items() if name in PARAMETERS}
    path = sim.rollout(sim.state(given["q"], given["v"]), given["control"], params=params, outputs=["contacts"])
    assert (path.last.status == FINE).all()
    end = torch.cat([path.last.q, path.last.v], -1)
    forces = path.outputs["contacts"].force.sum(-2)
    return end, (end * random(*end.shape, seed=3)).sum() + 1e-4 * (forces * random(*forces.shape, seed=4)).sum()


def gradients(sim, given):
    """The state after a rollout, and the gradients of the sum."""
    leaves = {name: value.clone().requires_grad_() for name, value in given.items()}
    end, total = roll(sim, leaves)
    return end.detach(), dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))


def assert_equal(found, expected, rtol):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0.0, atol=rtol * float(value.abs().max()), msg=name)


@pytest.mark.parametrize(
    "contact",
    [
        PGS(iterations=7),
        # Anticipation, and the depth of compliance, reach all points here.
        PGS(iterations=5, elliptic=True, warm=True, restitution=0.4, adjoint=AnticipatingAdjoint(0.03)),
        Compliant(depth=0.03),
    ],
    ids=["pyramid", "cone", "compliant"],
)
def test_steps_and_gradients_are_those_of_the_unrolled_step(contact):
    unrolled, listed = (gradients(sim, inputs(10)) for sim in simulators(contact))
    torch.testing.assert_close(listed[0], unrolled[0], rtol=1e-11, atol=1e-11)
    assert_equal(listed[1], unrolled[1], 1e-9)


def test_the_implicit_adjoint_is_the_derivative():
    held = FrameConstraint("leg", kind="point", position=(0.01, 0.0, 0.24))
    sim = simulators(PGS(iterations=3000, softness=1e-3, adjoint=ImplicitAdjoint()), constraints=[held])[1]
    own = sim.model.parameters(dtype=torch.float64)
    given = inputs(2, **{name: own[name] for name in PARAMETERS})
    _, found = gradients(sim, given)
    for name, gradient in found.items():
        direction = random(*gradient.shape, seed=5)
        if name == "friction":
            direction[:6] = 0.0  # of the trunk, which has none, and could not have less
        ahead, behind = (roll(sim, {**given, name: given[name] + side * direction})[1] for side in (1e-7, -1e-7))
        expected = float(ahead - behind) / 2e-7
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-6), name


def test_an_environment_does_not_depend_on_its_neighbors():
    sim = simulators(PGS(warm=True))[1]
    q, v, control = start()
    together = sim.rollout(sim.state(q, v), control).last
    for i in (0, 3):
        alone = sim.rollout(sim.state(q[i : i + 1], v[i : i + 1]), control[:, i : i + 1]).last
        assert torch.equal(alone.v[0], together.v[i])


def test_more_contacts_than_there_is_room_for_are_reported():
    sim = simulators(PGS(), max_contacts=2)[1]
    q = hopper().neutral((2,), dtype=torch.float64)
    q[:, 2] = tensor(0.0, 5.0)
    assert sim.step(sim.state(q)).status.tolist() == [OVERFLOW, FINE]


def test_the_library_chooses_a_list_where_more_than_a_few_points_can_touch():
    go2 = adjoin.robots.load("go2")
    feet = [(f"{leg}_foot", "ground") for leg in ("FL", "FR", "RL", "RR")]
    assert adjoin.Simulator(go2).world.listed
    assert not adjoin.Simulator(go2, pairs=feet).world.listed
    assert adjoin.Simulator(go2, pairs=feet, as_list=True).world.listed
    assert not adjoin.Simulator(go2, as_list=False).world.listed
    flat = adjoin.Heightfield(torch.zeros(3, 3), 1.0)
    assert not adjoin.Simulator(go2, terrain=flat).world.listed
    assert adjoin.Simulator(go2, terrain=flat, as_list=True).world.listed


STACK = """<mujoco><option timestep="0.004"/><worldbody><geom type="plane" size="1 1 1"/>
  <body name="low" pos="0 0 0.099"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="1"/>
    <body name="arm" pos="0 0 0.1"><joint axis="0 1 0" damping="1"/>
      <geom type="capsule" size="0.02" fromto="0.2 0 0 0.4 0 0" mass="0.1"/>
      <body pos="0.4 0 0"><joint axis="0 1 0" damping="1"/><geom size="0.03" mass="0.1"/></body></body></body>
</worldbody></mujoco>"""


def test_a_model_from_an_mjcf_file_steps_as_mujoco_does():
    mujoco = pytest.importorskip("mujoco")
    theirs = mujoco.MjModel.from_xml_string(STACK)
    data = mujoco.MjData(theirs)
    sim = adjoin.Simulator(adjoin.load(STACK))
    assert isinstance(sim.world.contact, adjoin.Newton)
    assert len(sim.contact_names) == 4  # of shapes of one robot too, but not of parents and children
    state = sim.state("qpos0", dtype=torch.float64)
    mujoco.mj_step(theirs, data, nstep=5)
    found = sim.rollout(state, steps=5).last.q
    torch.testing.assert_close(found, torch.tensor(data.qpos), rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("contact", [PGS(), PGS(adjoint=ImplicitAdjoint())])
def test_a_contact_that_nothing_moves_along_its_normal_does_nothing(contact):
    pytest.importorskip("mujoco")
    ball = '<body pos="0 -0.04 0"><joint type="slide" axis="1 0 0"/><geom type="sphere" size="0.05"/></body>'
    wall = '<geom type="box" size="1 0.1 1" pos="0 0.1 0"/>'
    model = adjoin.load(f'<mujoco><option gravity="0 0 0"/><worldbody>{wall}{ball}</worldbody></mujoco>')
    sim = adjoin.Simulator(model, contact=contact, as_list=True)
    v = tensor(0.3).requires_grad_()
    last = sim.rollout(sim.state(v=v), steps=3).last  # 1 cm inside the wall, which its rail does not leave
    assert (last.status.item(), last.v.item()) == (FINE, pytest.approx(0.3))
    last.v.sum().backward()
    assert v.grad.item() == pytest.approx(1.0)


@pytest.mark.parametrize("contact", [PGS(), adjoin.Newton(), Compliant()], ids=lambda solver: type(solver).__name__)
def test_code_for_each_pair_finds_the_contacts_that_a_loop_over_tables_finds(contact, monkeypatch):
    found = []
    for unrolled in (0, contact_list.UNROLLED):
        monkeypatch.setattr(contact_list, "UNROLLED", unrolled)
        sim = adjoin.Simulator(hopper(), 2e-3, contact, ground=True, self_collision=True, as_list=True)
        given = inputs(6, geometry_size=sim.world.model.parameters()["geometry_size"].double())
        assert sim.world.listed
        found.append(gradients(sim, given))
    (end, first), (other, second) = found
    assert torch.equal(end, other)
    assert all(torch.equal(first[name], second[name]) for name in given)


def test_code_for_each_of_many_pairs_finds_the_same_contacts(monkeypatch):
    bodies = "".join(
        f"<body pos='{0.12 * (i % 3)} {0.1 * (i // 3)} {0.09 + 0.05 * i}'><freejoint/>"
        f"<geom type='{kind}' size='{size}'/></body>"
        for i, (kind, size) in enumerate([("sphere", "0.06"), ("capsule", "0.05 0.04"), ("box", "0.05 0.06 0.04")] * 2)
    )
    ground = "<geom type='plane' size='1 1 1'/>"
    paths = []
    for unrolled in (0, contact_list.UNROLLED):
        monkeypatch.setattr(contact_list, "UNROLLED", unrolled)
        sim = adjoin.Simulator(adjoin.load(f"<mujoco><worldbody>{ground}{bodies}</worldbody></mujoco>"))
        state = sim.state(batch=5, dtype=torch.float64)
        v = random(5, 36, seed=7)
        paths.append(sim.rollout(state.replace(v=v), torch.zeros(40, 5, 0, dtype=torch.float64), outputs=["contacts"]))
    one, other = paths
    assert torch.equal(one.q, other.q)
    assert (one.outputs["contacts"].distance < 0.0).any(-1).sum() > 20
