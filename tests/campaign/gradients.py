"""How far is the gradient of a rollout from finite differences, on every robot that ships? On demand.

    python tests/campaign/gradients.py [--only go2,ant] [--adjoint implicit] [--out tests/campaign/gradients.json]

Each robot is simulated with the defaults, in float64. From rest: it was set down in its home and settled for half a
second. From a fall: it begins up to 1 cm above the ground, turned at random, its joints moving, and falls at 1 m/s, so
that it lands within the rollout; a robot with a fixed base only moves. The gradient of a random weighting of the last
state to the first velocity is compared with central differences, as the length of the error over that of the
differences; of steps of two sizes the better one for each environment, since across a change of contact a difference
says nothing.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

import adjoin

STEPS = 20
SETTLING = 500
SIZES = (1e-6, 1e-7)
SMALLEST = 1e-6
"""Gradients shorter than this are zero to differences, which rounding blurs: errors are over this at least."""
BAR = 0.01
"""What the 90th percentile of the error may be."""


def starts(sim: adjoin.Simulator, count: int, seed: int) -> dict[str, adjoin.SimulatorState]:
    """States at rest, and such that fall."""
    generator = torch.Generator().manual_seed(seed)
    model = sim.model
    home = sim.state("home" if any(key.name == "home" for key in model.keyframes) else None, dtype=torch.float64)
    set_down = sim.drop(home.q.expand(count, -1))
    turned = 0.02 * torch.randn(count, model.nv, generator=generator, dtype=torch.float64)
    begin = sim.drop(model.integrate(set_down.q, turned, 1.0))
    begin = begin.replace(start={**begin.start, **{k: x for k, x in home.start.items() if k == "control"}})
    rest = sim.rollout(begin, steps=SETTLING).last
    falling = begin.q.clone()
    floating = model.nq > model.nv
    if floating:
        falling[:, 2] += 0.01 * torch.rand(count, generator=generator, dtype=torch.float64)
    v = 0.3 * torch.randn(count, model.nv, generator=generator, dtype=torch.float64)
    if floating:
        down = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64).expand(count, 3)
        v[:, :3] = adjoin.transforms.quaternion_rotate_inverse(falling[:, 3:7], down)
    return {"rest": rest, "fall": begin.replace(q=falling, v=v)}


def errors(sim: adjoin.Simulator, start: adjoin.SimulatorState, seed: int) -> torch.Tensor:
    """Of each environment, the error of its gradient over the length of the differences."""
    generator = torch.Generator().manual_seed(seed)
    model, count = sim.model, len(start.q)
    weights = torch.randn(2, model.nv, generator=generator, dtype=torch.float64)

    def loss(v: torch.Tensor, reference: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        def wide(x: torch.Tensor) -> torch.Tensor:
            return x.expand(*v.shape[:-2], *x.shape)

        memory, origin = ({name: wide(x) for name, x in part.items()} for part in (start.memory, start.start))
        last = sim.rollout(adjoin.SimulatorState(wide(start.q), v, memory, origin), steps=STEPS).last
        end = last.q.detach() if reference is None else reference
        moved = model.difference(end.expand_as(last.q), last.q) / sim.dt
        return (moved * weights[0]).sum(-1) + (last.v * weights[1]).sum(-1), last.q.detach()

    v = start.v.detach().requires_grad_()
    value, end = loss(v)
    (gradient,) = torch.autograd.grad(value.sum(), v)
    best = torch.full((count,), torch.inf, dtype=torch.float64)
    for size in SIZES:
        nudge = size * torch.eye(model.nv, dtype=torch.float64)[:, None]
        with torch.no_grad():
            both = loss(torch.stack([start.v + nudge, start.v - nudge]), end)[0]
        difference = ((both[0] - both[1]) / (2.0 * size)).T
        length = difference.norm(dim=-1).clamp(min=SMALLEST)
        best = torch.minimum(best, (gradient - difference).norm(dim=-1) / length)
    return best


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=64, help="environments of each robot")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default=",".join(adjoin.robots.names()))
    options.add_argument("--adjoint", choices=("unrolled", "implicit"), default="unrolled")
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    contact = adjoin.PGS(adjoint=adjoin.ImplicitAdjoint()) if arguments.adjoint == "implicit" else None
    found: dict[str, dict[str, dict[str, float]]] = {}
    holds = True
    for name in arguments.only.split(","):
        began = time.perf_counter()
        sim = adjoin.Simulator(adjoin.robots.load(name), contact=contact)
        found[name] = {}
        for label, start in starts(sim, arguments.count, arguments.seed).items():
            error = errors(sim, start, arguments.seed)
            levels = torch.tensor([0.5, 0.9], dtype=torch.float64)
            median, ninth = error.quantile(levels).tolist()
            found[name][label] = {"median": median, "90th percentile": ninth}
            holds &= ninth < BAR
            print(f"{name:<18} from {label}: median {median:.1e}, 90th percentile {ninth:.1e}", flush=True)
        print(f"{name:<18} took {time.perf_counter() - began:.0f} s", flush=True)
    if arguments.out:
        setup = {"environments": arguments.count, "steps": STEPS, "seed": arguments.seed, "adjoint": arguments.adjoint}
        arguments.out.write_text(json.dumps({**setup, "robots": found}, indent=1) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
