"""States and trajectories: tensors of a batch that move, copy, index and travel together."""

import copy
import dataclasses
import functools
import io
import pickle
from typing import NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree
from worlds import UPRIGHT, simulator, tensor

import adjoin
from adjoin.simulation.state import EXPLODED, FINE, NOT_FINITE, Contacts, SimulatorState, Trajectory, map_structure

STEPS, COUNT = 6, 4


@functools.cache
def ball():
    return simulator(adjoin.robots.load("ball"), 1e-3, warm=True)


def begin(*batch):
    """Balls on the ground; the last one of the first dimension is not a number."""
    sim = ball()
    q = tensor(0.0, 0.0, 0.0999, *UPRIGHT).repeat(*batch, 1)
    q[..., 0] += torch.arange(q[..., 0].numel(), dtype=torch.float64).reshape(batch)
    q[-1, ..., 0] = torch.nan
    return sim.state(q, tensor(1.0, 0.5, 0.0, 0.0, 0.0, 2.0).expand(*batch, 6))


@functools.cache
def state():
    """After a few steps, with impulses and a status that are not all 0."""
    return path().last


@functools.cache
def path():
    outputs = {"contacts": "contacts", "pair": lambda q, next_v: (q[0], {"speed": next_v[:3]})}
    return ball().rollout(begin(COUNT), steps=STEPS, outputs=outputs)


def parts(thing, place=""):
    """All tensors, by where they are."""
    if dataclasses.is_dataclass(thing):
        thing = {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing)}
    if isinstance(thing, torch.Tensor):
        return {place: thing}
    items = thing.items() if isinstance(thing, dict) else enumerate(thing)
    return {name: x for key, value in items for name, x in parts(value, f"{place}/{key}").items()}


def assert_same(one, other):
    assert type(one) is type(other)
    one, other = parts(one), parts(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        torch.testing.assert_close(value, other[name], rtol=0.0, atol=0.0, equal_nan=True, msg=name)


THINGS = pytest.mark.parametrize("thing", [state, path], ids=["state", "trajectory"])


def test_a_state_has_what_a_step_hands_to_the_next():
    found = state()
    assert found.memory.keys() == {"status", "impulses"}
    assert found.memory["impulses"].shape == (COUNT, 3)
    assert (found.memory["impulses"][:-1, 0] > 0.0).all()
    assert found.batch == (COUNT,)
    assert len(found) == COUNT


def test_a_status_is_a_whole_number():
    assert (FINE, NOT_FINITE, EXPLODED) == (0, 1, 2)
    for thing in (state(), path(), begin(COUNT)):
        assert thing.status.dtype == torch.int32
        assert thing.memory["status"].dtype == torch.float64
        assert torch.equal(thing.status, thing.memory["status"].to(torch.int32))
    assert state().status.tolist() == [FINE, FINE, FINE, NOT_FINITE]
    assert path().status.shape == (STEPS + 1, COUNT)


@THINGS
def test_it_is_frozen(thing):
    with pytest.raises(dataclasses.FrozenInstanceError):
        thing().q = torch.zeros(3)


@THINGS
def test_replace_changes_what_it_names(thing):
    moved = thing().replace(q=2.0 * thing().q)
    torch.testing.assert_close(moved.q, 2.0 * thing().q, equal_nan=True)
    assert_same(moved.replace(q=thing().q), thing())
    with pytest.raises(TypeError, match="status"):
        thing().replace(status=torch.zeros(3))


@THINGS
def test_detach_cuts_the_graph_and_clone_keeps_it(thing):
    tracked = thing().map(lambda x: x.clone().requires_grad_())
    assert all(x.requires_grad for x in parts(tracked).values())
    cut = tracked.detach()
    assert not any(x.requires_grad for x in parts(cut).values())
    assert_same(cut, thing())
    copied = tracked.clone()
    assert all(x.grad_fn is not None for x in parts(copied).values())
    for one, other in zip(parts(copied).values(), parts(tracked).values(), strict=True):
        assert one.data_ptr() != other.data_ptr()
    assert_same(copied.detach(), thing())


@THINGS
def test_to_moves_every_tensor(thing):
    single = thing().to(torch.float32)
    assert {x.dtype for x in parts(single).values()} == {torch.float32}
    torch.testing.assert_close(single.q, thing().q.float(), equal_nan=True)
    assert {x.device.type for x in parts(thing().to("meta")).values()} == {"meta"}
    assert_same(thing().to(torch.device("cpu"), torch.float64), thing())


def test_map_goes_everywhere():
    twice = path().map(lambda x: 2.0 * x)
    for name, value in parts(path()).items():
        torch.testing.assert_close(parts(twice)[name], 2.0 * value, equal_nan=True)
    assert isinstance(twice.outputs["contacts"], Contacts)
    assert isinstance(twice.outputs["pair"], tuple)


INDICES = [
    1,
    -1,
    slice(1, 3),
    slice(None, None, 2),
    torch.tensor([3, 0, 0]),
    [2, 1],
    torch.tensor([True, False, True, False]),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices_select_among_the_batch(index):
    chosen = state()[index]
    assert isinstance(chosen, SimulatorState)
    for name, value in parts(state()).items():
        torch.testing.assert_close(parts(chosen)[name], value[index], rtol=0.0, atol=0.0, equal_nan=True)
    assert chosen.batch == torch.empty(COUNT)[index].shape
    along = path()[index]
    assert isinstance(along, Trajectory)
    for name, value in parts(path()).items():
        torch.testing.assert_close(parts(along)[name], value[:, index], rtol=0.0, atol=0.0, equal_nan=True)
    assert_same(along.last, path().last[index])


def test_indices_of_batches_of_several_dimensions():
    wide = ball().rollout(begin(2, 3), steps=2, outputs=["contacts", "acceleration"])
    assert wide.at(1).batch == (2, 3)
    assert wide.at(1)[1].batch == (3,)
    assert wide.at(1)[1, 2].batch == ()
    assert wide.at(1)[:, 1:].batch == (2, 2)
    assert_same(wide[1, 2].at(0), wide.at(0)[1, 2])
    assert wide[:, 1].outputs["contacts"].force.shape == (2, 2, 1, 3)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert wide.at(2)[mask].batch == (2,)
    assert wide[mask].q.shape == (3, 2, 7)


def test_a_part_of_a_state_can_be_stepped():
    alone = ball().step(state()[1])
    assert_same(alone, ball().step(state())[1])


def test_states_are_joined_along_the_batch():
    one, two = state()[:1], state()[1:]
    assert_same(SimulatorState.cat([one, two]), state())
    assert_same(SimulatorState.stack([state()[i] for i in range(COUNT)]), state())
    wide = SimulatorState.stack([state(), state()], dim=1)
    assert wide.batch == (COUNT, 2)
    assert_same(wide[:, 1], state())
    longer = SimulatorState.cat([wide, wide[:, :1]], dim=1)
    assert longer.batch == (COUNT, 3)
    assert_same(longer[:, 2], state())


def test_a_trajectory_has_a_state_for_each_step():
    assert len(path()) == STEPS + 1
    assert_same(path().at(0), begin(COUNT))
    assert_same(path().last, path().at(STEPS))
    stepped = path().at(2)
    for _ in range(2):
        stepped = ball().step(stepped)
    assert_same(stepped, path().at(4))


@THINGS
def test_torch_saves_it_and_loads_it_with_default_settings(thing):
    file = io.BytesIO()
    torch.save({"kept": thing()}, file)
    file.seek(0)
    assert_same(torch.load(file)["kept"], thing())


@THINGS
def test_it_is_pickled_and_copied(thing):
    assert_same(pickle.loads(pickle.dumps(thing())), thing())
    copied = copy.deepcopy(thing())
    assert_same(copied, thing())
    assert copied.q.data_ptr() != thing().q.data_ptr()
    assert_same(copy.copy(thing()), thing())


@THINGS
def test_it_is_a_tree_for_torch(thing):
    doubled = pytree.tree_map(lambda x: 2.0 * x, thing())
    assert_same(doubled, thing().map(lambda x: 2.0 * x))
    leaves, structure = pytree.tree_flatten(thing())
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    assert_same(pytree.tree_unflatten(leaves, structure), thing())


class Pair(NamedTuple):
    first: object
    second: object


def test_structures_are_dicts_and_tuples_of_any_depth():
    nested = {"a": (1, Pair(2, {"b": 3})), "c": ()}
    assert map_structure(lambda x: 10 * x, nested) == {"a": (10, Pair(20, {"b": 30})), "c": ()}


def test_a_state_of_another_simulator_is_told_what_is_missing():
    cold = simulator(adjoin.robots.load("ball"), 1e-3)
    start = cold.state(batch=2, dtype=torch.float64)
    with pytest.raises(adjoin.errors.InputError, match="the state has no 'impulses'; it was made by another simulator"):
        ball().step(start)
    with pytest.raises(adjoin.errors.InputError, match=r"state must be one of Simulator.state, got a Tensor"):
        ball().rollout(start.q, steps=2)
    assert torch.equal(cold.step(state()[:2]).q, cold.step(cold.state(state().q[:2], state().v[:2])).q)


def test_indices_after_an_ellipsis_and_negative_dimensions_are_those_of_the_batch():
    wide = SimulatorState.stack([state(), state()])
    assert_same(wide[..., 0], wide[:, 0])
    assert_same(path()[..., 0], path()[0])
    assert_same(SimulatorState.stack([state(), state()], dim=-1), SimulatorState.stack([state(), state()], dim=1))
    assert_same(SimulatorState.cat([state(), state()], dim=-1), SimulatorState.cat([state(), state()]))
    with pytest.raises(adjoin.errors.InputError, match="the batch has no dimension 1"):
        SimulatorState.cat([state(), state()], dim=1)


def test_trajectories_are_joined_along_the_batch():
    assert_same(Trajectory.cat([path()[:1], path()[1:]]), path())
    assert_same(Trajectory.stack([path()[i] for i in range(COUNT)], dim=-1), path())
    with pytest.raises(adjoin.errors.InputError, match="of the kind Trajectory, got a SimulatorState"):
        Trajectory.cat([state()])  # pyright: ignore[reportArgumentType]


def test_steps_from_a_key_frame_take_its_control_and_the_time_step_is_that_of_the_file():
    pytest.importorskip("mujoco")
    model = adjoin.load(
        """<mujoco><option timestep="0.004"/><worldbody><body><joint name="j"/><geom size="1"/></body></worldbody>
        <actuator><position joint="j" kp="10"/></actuator><keyframe><key name="up" qpos="0.5" ctrl="0.7"/></keyframe>
        </mujoco>"""
    )
    assert (model.timestep, adjoin.Simulator(model).dt, adjoin.Simulator(model, 0.001).dt) == (0.004, 0.004, 0.001)
    assert adjoin.Simulator(adjoin.robots.load("ball")).dt == 0.001
    sim = adjoin.Simulator(model, pairs=[])
    up = sim.state("up", batch=2, dtype=torch.float64)
    control = torch.full((2, 1), 0.7, dtype=torch.float64)
    twice = sim.step(sim.step(up))
    assert torch.equal(twice.q, sim.step(sim.step(up, control), control).q)
    path = sim.rollout(up, steps=2)
    assert torch.equal(path.last.q, twice.q)
    assert torch.equal(sim.step(path.last).q, sim.step(twice, control).q)
    fresh = sim.reset(path.last, torch.tensor([True, False]), sim.state(batch=2, dtype=torch.float64))
    assert fresh.start["control"].tolist() == [[0.0], [0.7]]
    again = sim.reset(path.last, torch.tensor([True, False]))
    assert again.start["control"].tolist() == [[0.7], [0.7]]
    assert torch.equal(again.q[0], up.q[0])
