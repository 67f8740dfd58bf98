"""Digests of results, to the last bit: dynamics with gradients, steps, rollouts with gradients.

A change of structure must leave them alone. A change that means to alter results makes them anew and says why:
`python tests/digests/make.py` writes digests.json beside this file.

The bits hold for every processor with fused multiply-add; vector width and threads do not change them.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from dynamics.small import tree

import adjoin

FILE = Path(__file__).with_name("digests.json")

MODELS = {
    "fork": tree,
    "two_link": lambda: adjoin.robots.load("two_link"),
    "panda": lambda: adjoin.robots.load("panda"),
    "go2": lambda: adjoin.robots.load("go2"),
}
OF_Q = ("crba", "minverse", "gravity_forces", "potential_energy", "center_of_mass", "forward_kinematics")
OF_V = ("bias_forces", "kinetic_energy", "coriolis_matrix", "centroidal_momentum", "passive_forces")


def digest(tensors) -> str:
    """Of tensors, bit by bit; both zeros count as one."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update((tensor.detach().contiguous() + 0.0).numpy().tobytes())
    return sha.hexdigest()[:16]


def leaves(value):
    """The tensors of nested tuples."""
    return [value] if isinstance(value, torch.Tensor) else [x for part in value for x in leaves(part)]


def with_gradients(function, inputs):
    """Digests of the results and of the gradients of their weighted sum."""
    tracked = [x.clone().requires_grad_() for x in inputs]
    results = leaves(function(*tracked))
    weights = [torch.linspace(-1.0, 1.0, x.numel(), dtype=x.dtype).reshape(x.shape) for x in results]
    total = sum((x * w).sum() for x, w in zip(results, weights, strict=True))
    gradients = torch.autograd.grad(total, tracked, allow_unused=True, materialize_grads=True)
    return {"results": digest(results), "gradients": digest(gradients)}


def dynamics():
    """name -> digests of every algorithm, in both precisions."""
    for robot, make in MODELS.items():
        model = make()
        for dtype in (torch.float64, torch.float32):
            generator = torch.Generator().manual_seed(7)
            q = model.random((5,), generator=generator, dtype=torch.float64).to(dtype)
            v, a, tau = torch.randn(3, 5, model.nv, generator=generator, dtype=torch.float64).to(dtype)
            calls = {name: (getattr(adjoin, name), (q,)) for name in OF_Q}
            calls.update({name: (getattr(adjoin, name), (q, v)) for name in OF_V})
            calls.update({"rnea": (adjoin.rnea, (q, v, a)), "aba": (adjoin.aba, (q, v, tau))})
            if dtype == torch.float64 and robot in ("fork", "two_link"):
                calls["rnea_derivatives"] = (adjoin.rnea_derivatives, (q, v, a))
                calls["aba_derivatives"] = (adjoin.aba_derivatives, (q, v, tau))
            for name, (function, inputs) in calls.items():
                yield (
                    f"{name} {robot} {str(dtype)[6:]}",
                    with_gradients(lambda *x, f=function, m=model: f(m, *x), inputs),
                )


def worlds():
    """name -> (simulator, first state, controls)."""
    legs = [(f"{leg}_foot", "ground") for leg in ("FL", "FR", "RL", "RR")]
    go2 = adjoin.robots.load("go2").with_servos(kp=100.0, kd=3.0)
    for label, solver in {
        "unrolled": adjoin.PGS(),
        "implicit": adjoin.PGS(adjoint=adjoin.ImplicitAdjoint()),
        "elliptic": adjoin.PGS(elliptic=True, restitution=0.3),
        "compliant": adjoin.Compliant(),
    }.items():
        yield f"go2 {label}", adjoin.Simulator(go2, 2e-3, solver, pairs=legs), "home"
    box = adjoin.robots.load("box")
    for label, solver in {
        "cold": adjoin.PGS(warm=False),
        "anticipating": adjoin.PGS(adjoint=adjoin.AnticipatingAdjoint()),
    }.items():
        yield f"box {label}", adjoin.Simulator(box, 1e-3, solver), None
    heights = 0.05 * torch.sin(torch.arange(64.0, dtype=torch.float64)).reshape(8, 8)
    yield "ball terrain", adjoin.Simulator(adjoin.robots.load("ball"), 1e-3, terrain=adjoin.Heightfield(heights)), None
    pendulum = adjoin.robots.load("pendulum", links=3).with_motors()
    yield "pendulum rk4", adjoin.Simulator(pendulum, 1e-2, integrator=adjoin.RK4(), limits=False, pairs=[]), None
    panda = adjoin.robots.load("panda").with_motors()
    yield "panda", adjoin.Simulator(panda, 1e-3, pairs=[]), None


def simulation():
    """name -> digests of rollouts of every solver, integrator and adjoint."""
    for name, sim, key in worlds():
        generator = torch.Generator().manual_seed(3)
        state = sim.state(key, batch=3, dtype=torch.float64) if key else sim.state(batch=3, dtype=torch.float64)
        q = state.q.clone()
        if key is None and sim.model.nq == 7 and sim.model.nv == 6:
            q[:, 2] = 0.099
        v = state.v + 0.1 * torch.randn(state.v.shape, generator=generator, dtype=torch.float64)
        controls = 0.1 * torch.randn(12, 3, sim.model.nu, generator=generator, dtype=torch.float64)
        if key:
            controls = controls + torch.tensor(sim.model.keyframe(key).control, dtype=torch.float64)

        def roll(q, v, controls, sim=sim, state=state):
            path = sim.rollout(state.replace(q=q, v=v), controls)
            return path.q, path.v

        yield f"rollout {name}", with_gradients(roll, (q, v, controls))


def make():
    """All of them."""
    return dict(sorted([*dynamics(), *simulation()]))


if __name__ == "__main__":
    FILE.write_text(json.dumps(make(), indent=0) + "\n")
    print(f"{len(json.loads(FILE.read_text()))} digests in {FILE.name}")
