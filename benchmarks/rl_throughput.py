"""Simulation steps a second with a policy in the loop, and dynamics of a humanoid in every step."""

import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

import adjoin
from adjoin.rl import SHAC, Environment, make_task
from adjoin.rl.capture import Captured

HORIZON = 32
BARS = {"collection": 40.0, "gradient": 8.0}  # M simulation steps a second


def seconds(function: Callable[[], Any], device: torch.device, repetitions: int = 3) -> float:
    """The least time of a call, which has been called before."""
    best = float("inf")
    for _ in range(repetitions):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def throughput(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    place, n = torch.device(device), 64 if quick else 4096
    environment = Environment(make_task("ant"), device=place)
    learner = SHAC(environment, SHAC.Options(environments=n, horizon=HORIZON))
    steps = n * HORIZON * environment.task.decimation / 1e6
    state = learner.vector.tensors()

    @torch.no_grad()
    def collect() -> torch.Tensor:
        """What PPO needs of a rollout: observations, actions, values, rewards, ends."""
        total = torch.zeros(n, device=place)
        observation = learner.vector.observe()
        for _ in range(HORIZON):
            normal = learner.moments(observation)
            learner.critic(normal)
            transition = learner.vector.step(learner.actor.sample(normal, learner.generator))
            total += transition.reward
            observation = transition.observation
        learner.vector.store(state)
        return total

    recorded = Captured(collect, place, [learner.generator], lambda: state)
    start = time.perf_counter()
    recorded()
    yield {"name": f"{n} ants, first collection (compile, capture)", "value": time.perf_counter() - start, "unit": "s"}
    rate = steps / seconds(recorded, place)
    bar = {} if quick else {"at_least": BARS["collection"]}
    yield {"name": f"{n} ants, collection with policy", "value": rate, "unit": "M/s", **bar}
    roll = learner._graph(HORIZON)
    start = time.perf_counter()
    roll()
    yield {"name": f"{n} ants, first gradient (compile, capture)", "value": time.perf_counter() - start, "unit": "s"}
    rate = steps / seconds(roll, place)
    bar = {} if quick else {"at_least": BARS["gradient"]}
    peer = ("DiffRL: 12,950 control steps of 16 substeps", 0.2)
    yield {"name": f"{n} ants, SHAC forward and backward", "value": rate, "unit": "M/s", "peer": peer, **bar}
    if place.type == "cuda":
        yield {"name": "memory at most", "value": torch.cuda.max_memory_allocated() / 2**30, "unit": "GiB"}


# Dynamics in the loop ------------------------------------------------------------------------------------------------

WANTED = ("rnea", "crba", "operational inertia")


def _pinocchio(arguments: Sequence[Any]) -> float:
    """One process: the same quantities for a part of the states, one state after the other."""
    pinocchio: Any = importlib.import_module("pinocchio")
    urdf, q, v, a = arguments
    model = pinocchio.buildModelFromXML(urdf, pinocchio.JointModelFreeFlyer())
    data, frame = model.createData(), model.getFrameId("right_wrist_yaw_link")
    start = time.perf_counter()
    for k in range(len(q)):
        pinocchio.rnea(model, data, q[k], v[k], a[k])
        mass = pinocchio.crba(model, data, q[k])
        pinocchio.computeJointJacobians(model, data, q[k])
        jacobian = pinocchio.getFrameJacobian(model, data, frame, pinocchio.LOCAL_WORLD_ALIGNED)
        full = np.triu(mass) + np.triu(mass, 1).T
        np.linalg.inv(jacobian @ np.linalg.solve(full, jacobian.T))
    return time.perf_counter() - start


def dynamics(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """Motion imitation: each step tracks a reference by inverse dynamics, and weighs errors by inertias."""
    place, n = torch.device(device), 256 if quick else 4096
    model = adjoin.robots.load("g1")
    frame = "right_wrist_yaw_link"
    generator = torch.Generator().manual_seed(0)
    q = model.random((n,), generator=generator, dtype=torch.float64)
    v, a = torch.randn(2, n, model.nv, generator=generator, dtype=torch.float64)
    floats = [x.to(place, torch.float32) for x in (q, v, a)]

    def ours() -> tuple[torch.Tensor, ...]:
        tau = adjoin.rnea(model, floats[0], floats[1], floats[2])
        mass = adjoin.crba(model, floats[0])
        jacobian = adjoin.jacobian(model, floats[0], frame, reference="local_world_aligned")
        inverse = jacobian @ adjoin.minverse(model, floats[0]) @ jacobian.mT
        return tau, mass, torch.linalg.inv_ex(inverse).inverse

    ours()
    recorded = Captured(ours, place)
    recorded()
    mine = seconds(recorded, place, 10)
    label = f"G1, {n} environments, {', '.join(WANTED)}"
    if importlib.util.find_spec("pinocchio") is None:
        yield {"name": label, "value": 1e6 * mine, "unit": "us"}
        return
    count = min(n, 64 if quick else 1024)
    order = [*range(3), 4, 5, 6, 3, *range(7, model.nq)]  # Pinocchio's quaternions end in w
    parts = [(x[:count, order] if x.shape[-1] == model.nq else x[:count]).numpy() for x in (q, v, a)]
    halves = [(_plain_urdf(), *[part[k::2] for part in parts]) for k in range(2)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        theirs = max(pool.map(_pinocchio, halves)) * n / count
    yield {"name": label, "value": 1e6 * mine, "unit": "us", "peer": ("Pinocchio, 2 processes", 1e6 * theirs)}
    yield {"name": f"{label}: times faster", "value": theirs / mine, "unit": "", "at_least": 100.0}


def _plain_urdf() -> str:
    """The G1 for Pinocchio: without its free joint, which it adds itself."""
    import re

    text = adjoin.robots.source("g1").decode()
    return re.sub(r'<joint name="root_joint".*?</joint>|<link name="world"/>|<adjoin.*?</adjoin>', "", text, flags=re.S)
