"""Simulators, rollouts, objectives and models in other processes: pickled, copied, spawned, forked, and in loaders."""

import copy
import multiprocessing
import pickle

import torch
from torch.utils.data import DataLoader, Dataset

import adjoin
from adjoin.control import ILQR, Controls, Objective
from adjoin.simulation.rollout import Rollout

STEPS = 4


def cost(q, control):
    return 0.5 * (q @ q) + 1e-2 * (control @ control)


def terminal(q, v):
    return [10.0 * (q[0] - 0.5), 10.0 * (q[1] + 1.0), v[0], v[1]]


def grow(carry, elements, constants):
    return {"x": carry["x"] * constants["rate"] + elements["u"]}, {"twice": 2.0 * carry["x"]}


def positive(carry):
    return carry["x"] > 0.0


def objective():
    sim = adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.02, pairs=[])
    return Objective(sim, sim.state(), STEPS, cost=cost, terminal=terminal, variables=Controls())


def growth():
    return Rollout("growth", grow, {"x": ()}, {"u": ()}, {"rate": ()}, positive)


def losses(task):
    values = torch.linspace(-1.0, 1.0, 2 * task.size).reshape(2, task.size)
    return [x.tolist() for x in task.gradients(values)]


def grown(rollout):
    x = torch.tensor(0.5, requires_grad=True)
    states, outputs = rollout({"x": x}, {"u": torch.ones(3)}, {"rate": torch.tensor(2.0)})
    (states["x"][-1] + outputs["twice"].sum()).backward()
    assert x.grad is not None
    return states["x"].tolist(), x.grad.item()


def answer(connection, task, rollout):
    connection.send((losses(task), grown(rollout)))


class Paths(Dataset):
    """Simulated motions: each is a rollout in the process of a worker."""

    def __init__(self, sim):
        self.sim = sim

    def __len__(self):
        return 4

    def __getitem__(self, index):
        control = 0.1 * index * torch.ones(STEPS, 2)
        return self.sim.rollout(self.sim.state(), control).last.q


def test_they_are_pickled_and_copied_before_and_after_use():
    task, rollout = objective(), growth()
    expected = losses(task), grown(rollout)
    for made in (objective(), task):  # that has no kernels yet; that has
        for copied in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
            assert losses(copied) == expected[0]
            assert copied.sim is not made.sim
            assert copied.sim.model == made.sim.model
    for copied in (pickle.loads(pickle.dumps(rollout)), copy.deepcopy(rollout)):
        assert grown(copied) == expected[1]
    assert isinstance(pickle.loads(pickle.dumps(ILQR(task.sim, cost, terminal))), ILQR)


def test_they_cross_to_other_processes():
    task, rollout = objective(), growth()
    expected = losses(task), grown(rollout)
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        here, there = context.Pipe()
        process = context.Process(target=answer, args=(there, task, rollout))
        process.start()
        assert here.poll(120.0), method
        assert here.recv() == expected
        process.join(60.0)
        assert process.exitcode == 0


def test_a_data_loader_simulates_in_its_workers():
    paths = Paths(objective().sim)
    alone = torch.stack([paths[i] for i in range(len(paths))])
    loaded = torch.cat([*DataLoader(paths, batch_size=2, num_workers=1, timeout=120.0)])
    assert torch.equal(loaded, alone)
