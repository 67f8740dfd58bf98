"""A double pendulum with friction and a coupling that its model lacks: augmented, beside the model and a pure network.

    python benchmarks/identification.py --sections augmentation [--quick]

The real pendulum has viscous and dry friction in both joints, and a torque that pulls the joints toward one another.
The analytical model has neither. The augmented model is the analytical one with a network that adds forces. The pure
network gives the accelerations themselves; it has twice the neurons and more than twice the iterations. Both learn from
the same noisy states, through the same windows, by the same optimizer. The error is that of q over two seconds from
starts that nobody has seen.

How well the pure network trains differs much from seed to seed, so the median over the seeds is held against the bar,
and the worst seed stands beside it.
"""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

import adjoin
from adjoin import trace
from adjoin.learn.data import Recording
from adjoin.learn.residual_network import ResidualNetwork
from adjoin.learn.shooting import Shooting
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Body

DT, SAMPLED, STEPS, WINDOW = 0.01, 2, 200, 20  # s, steps a sample, steps a trajectory, samples a window
TRAJECTORIES, NOISE = 12, (1e-3, 1e-2)  # rad, rad/s
NEURONS = 16


def hidden(q: Any, v: Any, control: Any) -> dict[str, Any]:
    """What the analytical model does not know."""
    pull = 1.5 * trace.sin(q[0] - q[1])
    drag = -(0.15 * v) - 0.25 * trace.tanh(8.0 * v)
    return {"force": [drag[0] - pull, drag[1] + pull]}


def simulator(model: adjoin.Model, residual: Any = None) -> adjoin.Simulator:
    return adjoin.Simulator(model, dt=DT, integrator=adjoin.RK4(), pairs=[], limits=False, residual=residual)


def analytical() -> adjoin.Model:
    return adjoin.robots.load("pendulum", links=2)


def blank() -> adjoin.Model:
    """Two axles that know no gravity and nothing of one another: forces are accelerations."""
    bodies = [
        Body(name, WORLD, Joint(name, "revolute"), mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
        for name in ("joint1", "joint2")
    ]
    return adjoin.Model("blank", tuple(bodies))


def motions(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """q and v of the real pendulum from random starts, (samples, count, 2)."""
    real = simulator(analytical(), hidden)
    q = 3.0 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1.5
    v = 4.0 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 2.0
    path = real.rollout(real.state(q, v), torch.zeros(STEPS, 0, dtype=torch.float64))
    return path.q[::SAMPLED], path.v[::SAMPLED]


def recorded(model: adjoin.Model, q: torch.Tensor, v: torch.Tensor, generator: torch.Generator) -> Recording:
    """Motions with noise."""
    noisy = [
        x + s * torch.randn(*x.shape, generator=generator, dtype=x.dtype) for x, s in zip((q, v), NOISE, strict=True)
    ]
    clock = (DT * SAMPLED * torch.arange(len(q), dtype=torch.float64)).expand(q.shape[1], -1)
    return Recording(model, clock, *[x.transpose(0, 1).contiguous() for x in noisy])


def learn(recording: Recording, neurons: int, scale: float, seed: int, iterations: int) -> Any:
    """A network on top of the recording's model that gives forces of some scale, and how the loss fell."""
    options: Any = {"like": recording, "dtype": torch.float64, "generator": torch.Generator().manual_seed(seed)}
    network = ResidualNetwork(recording.model, ["force"], (neurons,), scale=scale, **options)
    sim = simulator(recording.model, network)
    shooting = Shooting(sim, network, recording, WINDOW, noise=NOISE, free=True)
    history = shooting.solve(iterations, tolerance=1e-5)
    return sim, network, history


def error(sim: adjoin.Simulator, q: torch.Tensor, v: torch.Tensor, network: ResidualNetwork | None = None) -> float:
    """Root mean square of the error of q, rad."""
    constants = {} if network is None else network.weights()
    with torch.no_grad():
        path = sim.rollout(sim.state(q[0], v[0]), torch.zeros(STEPS, 0, dtype=q.dtype), tensors=constants)
    return float((path.q[::SAMPLED] - q).square().mean().sqrt())


def section(quick: bool) -> Iterator[dict[str, Any]]:
    """Of the driver `identification.py`."""
    rows, iterations = [], 15 if quick else 60
    for seed in range(1 if quick else 5):
        generator = torch.Generator().manual_seed(seed)
        q, v = motions(4 if quick else TRAJECTORIES, generator)
        test = motions(24, generator)
        start = time.perf_counter()
        augmented, network, _ = learn(recorded(analytical(), q, v, generator), NEURONS, 1.0, seed, iterations)
        seconds = time.perf_counter() - start
        data = recorded(blank(), q, v, generator)
        pure, alone, _ = learn(data, 2 * NEURONS, 10.0, seed, 5 * iterations // 2)
        rows.append(
            {
                "seed": seed,
                "augmented": error(augmented, *test, network),
                "analytical": error(simulator(analytical()), *test),
                "pure": error(pure, *test, alone),
                "seconds": seconds,
            }
        )
    means = {
        name: sum(row[name] for row in rows) / len(rows) for name in ("augmented", "analytical", "pure", "seconds")
    }
    note = f"mean of {len(rows)} seeds; noise {NOISE[0]:g} rad, {NOISE[1]:g} rad/s"
    for name, peer in (("augmented", None), ("analytical", "the model alone"), ("pure", "a pure network")):
        yield {"name": f"test error, {peer or 'augmented'}", "value": 1e3 * means[name], "unit": "mrad", "note": note}
    bar = {} if quick else {"at_least": 10.0}
    for name, peer in (("analytical", "the model alone"), ("pure", "a pure network")):
        ratios = [row[name] / row["augmented"] for row in rows]
        yield {"name": f"times below {peer}, median", "value": median(ratios), "unit": "x", **bar}
        yield {"name": f"times below {peer}, worst seed", "value": min(ratios), "unit": "x"}
    yield {"name": "time of training", "value": means["seconds"], "unit": "s"}
    yield {"table": {"seeds": rows}}
