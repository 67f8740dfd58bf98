"""Would sweeps that stop when they have converged pay? How many sweeps a step needs, on demand.

    python tests/campaign/sweeps.py [--robots go2 ant hopper] [--out tests/campaign/sweeps.json]

Robots fall and stand under random controls. A step has converged after n sweeps if its velocity is that after 40
sweeps, to 1e-5 of the greatest velocity. On a CPU a vector of 16 environments goes on until its last one has converged;
on a GPU a warp of 32 does.
"""

import argparse
import json
from pathlib import Path

import torch

import adjoin

COUNTS = (5, 10, 15, 20)
ENVIRONMENTS, STEPS, EVERY = 256, 400, 20


def measure(name: str) -> dict[str, dict[str, float]]:
    model = adjoin.robots.load(name)
    generator = torch.Generator().manual_seed(0)
    sim = adjoin.Simulator(model, 2e-3, contact=adjoin.PGS(iterations=COUNTS[-1]))
    state = sim.drop(batch=ENVIRONMENTS)
    state = state.replace(v=0.3 * torch.randn(state.v.shape, generator=generator))
    controls = 0.3 * torch.randn(STEPS, ENVIRONMENTS, model.nu, generator=generator)
    path = sim.rollout(state, controls)
    before = sim.state(path.q[:-1:EVERY], path.v[:-1:EVERY])
    found = {}
    exact = adjoin.Simulator(model, 2e-3, contact=adjoin.PGS(iterations=2 * COUNTS[-1])).step(before, controls[::EVERY])
    touching = (sim.step(before, controls[::EVERY]).v - exact.v).abs().amax(-1) > 0.0
    for count in COUNTS:
        other = adjoin.Simulator(model, 2e-3, contact=adjoin.PGS(iterations=count)).step(before, controls[::EVERY])
        scale = exact.v.abs().amax(-1).clamp(min=1e-3)
        done = (other.v - exact.v).abs().amax(-1) <= 1e-5 * scale
        groups = {width: done.unflatten(-1, (-1, width)).all(-1).double().mean() for width in (1, 16, 32)}
        found[str(count)] = {f"{width} together": round(float(share), 3) for width, share in groups.items()}
    return {**found, "still moving at 20": {"share": round(float(touching.double().mean()), 3)}}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--robots", nargs="+", default=["hopper", "ant", "go2"])
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    results = {name: measure(name) for name in arguments.robots}
    print(json.dumps(results, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
