"""One poisoned environment among others, and many steps."""

import math
import random

import torch

import adjoin

POISON = (math.nan, math.inf, -math.inf, 1e30, -1e30)


def poison(count: int, seed: int) -> dict[str, int]:
    """Spoil a number of one environment: values and gradients of the others keep their bits."""
    rng = random.Random(seed)
    model = adjoin.robots.load("ant")
    sim = adjoin.Simulator(model, 2e-3)
    home = torch.tensor(model.keyframes[0].q).repeat(8, 1)

    def run(name: str, environment: int, value: float | None) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = {"q": home.clone(), "v": torch.zeros(8, model.nv), "control": torch.zeros(10, 8, model.nu)}
        if value is not None:
            tensor = tensors[name]
            tensor[..., environment, rng.randrange(tensor.shape[-1])] = value
        tensors["control"].requires_grad_()
        path = sim.rollout(sim.state(tensors["q"], tensors["v"]), tensors["control"])
        path.q[-1].nan_to_num().sum().backward()
        grad = tensors["control"].grad
        assert grad is not None
        return path.q.detach(), grad

    clean = run("q", 0, None)
    for case in range(count):
        environment = rng.randrange(8)
        found = run(rng.choice(("q", "v", "control")), environment, rng.choice(POISON))
        others = torch.arange(8) != environment
        assert all(torch.equal(a[:, others], b[:, others]) for a, b in zip(found, clean, strict=True)), f"case {case}"
    return {"others untouched": count}


def steps(count: int, seed: int) -> dict[str, int]:
    """A robot that stands, for many steps: finite, without a status, and still standing."""
    model = adjoin.robots.load("go2").with_servos(100.0, 3.0)
    sim = adjoin.Simulator(model, 2e-3)
    state = sim.state("home", batch=1)
    height = float(state.q[0, 2])
    control = torch.tensor(model.keyframes[0].control)
    done = 0
    while done < count:
        size = min(10_000, count - done)
        state = sim.rollout(state, control.expand(size, 1, -1), every=size).last
        done += size
        assert bool(state.q.isfinite().all())
        assert int(state.status) == 0
        assert abs(float(state.q[0, 2]) - height) < 0.1
    return {"steps": done}
