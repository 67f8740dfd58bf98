"""Friction and base mass of a Laikago that is dropped and pushed, from noisy states, by multiple shooting.

    python benchmarks/identification.py --sections contact [--quick]

Each seed draws a mass of the trunk and a coefficient of friction, drops robots with random velocities, pushes each
trunk sideways with a known force until its feet slide, and adds noise to what comes out. The estimate begins with the
mass of the description and a friction of 0.8. Starts of the windows are unknown.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch

import adjoin
from adjoin.learn.data import Recording
from adjoin.learn.modules import Positive
from adjoin.learn.parameters import Parameters
from adjoin.learn.shooting import Shooting

DT, SAMPLED, STEPS = 2e-3, 2, 500  # s, steps a sample, steps a trajectory
TRAJECTORIES, WINDOW = 12, 50  # robots, samples a window
PUSH = slice(200, 350)  # steps
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
POSITION, ANGLE, SPEED, RATE = 1e-3, 5e-3, 0.02, 0.05  # noise: m, rad, m/s, rad/s


class Sliding(torch.nn.Module):
    """One coefficient of sliding friction; torsional and rolling friction stay."""

    def __init__(self, value: float, others: torch.Tensor):
        super().__init__()
        self.value, self.others = Positive(torch.tensor([value], dtype=torch.float64)), others

    def forward(self) -> torch.Tensor:
        return torch.cat([self.value(), self.others])


def world() -> adjoin.Simulator:
    """A Laikago whose servos hold it up."""
    model = adjoin.robots.load("laikago").with_servos(kp=150.0, kd=4.0)
    return adjoin.Simulator(model, dt=DT, pairs=[(foot, "ground") for foot in FEET])


def measure(
    sim: adjoin.Simulator, mass: float, friction: float, trajectories: int, generator: torch.Generator
) -> tuple[Recording, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Robots of a mass and friction, dropped and pushed: their noisy states, the pushes, and the noise."""

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    model = sim.model
    home = torch.tensor(model.keyframe("home").q, dtype=torch.float64)
    q, v = home.repeat(trajectories, 1), 0.3 * normal(trajectories, model.nv)
    q[:, 2] += 0.02 + 0.1 * random(trajectories)
    angle, strength = 2.0 * torch.pi * random(trajectories), 200.0 + 100.0 * random(trajectories)
    push = torch.zeros(STEPS + 1, trajectories, 6, dtype=torch.float64)
    push[PUSH, :, :2] = strength[:, None] * torch.stack([angle.cos(), angle.sin()], -1)
    control = home[7:].expand(STEPS + 1, trajectories, -1)
    own = model.parameters(dtype=torch.float64)
    params = {"mass": own["mass"], "geometry_friction": own["geometry_friction"]}
    params["mass"][0], params["geometry_friction"][:, 0] = mass, friction
    path = sim.rollout(sim.state(q, v), control[:-1], params, external={"trunk": push[:-1]})
    noise = (
        torch.tensor([POSITION] * 3 + [ANGLE] * (model.nv - 3), dtype=torch.float64),
        torch.tensor([SPEED] * 3 + [RATE] * (model.nv - 3), dtype=torch.float64),
    )
    seen_q = model.integrate(path.q, noise[0] * normal(*path.v.shape))
    seen_v = path.v + noise[1] * normal(*path.v.shape)
    clock = (DT * torch.arange(STEPS + 1, dtype=torch.float64)).expand(trajectories, -1)
    q, v, control, push = (x[::SAMPLED].transpose(0, 1).contiguous() for x in (seen_q, seen_v, control, push))
    return Recording(model, clock[:, ::SAMPLED], q, v, control=control), push, noise


def identify(
    sim: adjoin.Simulator, recording: Recording, push: torch.Tensor, noise: Any, progress: bool = False
) -> tuple[Shooting, Parameters, list[float]]:
    """Trunk mass and friction, from the description's mass and 0.8."""
    own = sim.model.parameters(dtype=torch.float64)
    sliding = Sliding(0.8, own["geometry_friction"][0, 1:])
    learned = Parameters(sim.model, dtype=torch.float64).learn("mass", Positive, of="trunk")
    learned.learn("geometry_friction", sliding)
    shooting = Shooting(sim, learned, recording, WINDOW, noise=noise, external={"trunk": push}, free=True, robust=3.0)
    return shooting, learned, shooting.solve(30, tolerance=1e-4, progress=progress)


def section(quick: bool) -> Iterator[dict[str, Any]]:
    """Of the driver `identification.py`."""
    sim, seeds = world(), range(1 if quick else 5)
    note = f"noise {POSITION * 1e3:g} mm, {ANGLE:g} rad, {SPEED:g} m/s, {RATE:g} rad/s; {len(seeds)} seeds"
    worst, rows, seconds = {"mass": 0.0, "friction": 0.0}, [], 0.0
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        mass, friction = (torch.rand(2, generator=generator, dtype=torch.float64) * 0.4 + 0.8).tolist()
        truth = {"mass": 13.733 * mass, "friction": 0.45 * friction}
        data = measure(sim, truth["mass"], truth["friction"], 4 if quick else TRAJECTORIES, generator)
        start = time.perf_counter()
        _, learned, _ = identify(sim, *data)
        seconds += time.perf_counter() - start
        with torch.no_grad():
            params = learned()
        found = {"mass": float(params["mass"][0]), "friction": float(params["geometry_friction"][0, 0])}
        errors = {name: 100.0 * abs(found[name] / truth[name] - 1.0) for name in found}
        worst = {name: max(worst[name], errors[name]) for name in worst}
        rows.append({"seed": seed, "truth": truth, "found": found, "error": errors})
    bar = {} if quick else {"at_most": 1.0}
    yield {"name": "base mass, worst error", "value": worst["mass"], "unit": "%", "note": note, **bar}
    yield {"name": "friction, worst error", "value": worst["friction"], "unit": "%", "note": note, **bar}
    yield {"name": "time of an identification", "value": seconds / len(seeds), "unit": "s"}
    yield {"table": {"seeds": rows}}
