"""Balls are thrown, bounce and slide before they roll: friction, restitution and mass from noisy motions.

One learns: multiple shooting fits whole motions through contact, with standard errors, when states are measured.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.learn import Bounded, NamedParameters, Parameters, Positive, Recording, Shooting

DT, SAMPLED, STEPS = 2e-3, 5, 300  # s, steps a sample, steps a throw
TRUTH = {"friction": 0.35, "restitution": 0.4, "mass": 1.4}
NOISE = (1e-3, 1e-2)  # m and rad; m/s and rad/s
DOUBLE = torch.float64


class Sliding(torch.nn.Module):
    """One coefficient of sliding friction for all shapes; torsional and rolling friction stay."""

    def __init__(self, value: float):
        super().__init__()
        self.value = Positive(torch.tensor([value], dtype=DOUBLE))

    def forward(self) -> torch.Tensor:
        return torch.cat([self.value(), torch.tensor([0.005, 1e-4], dtype=DOUBLE)])


def simulator() -> adjoin.Simulator:
    """A ball on the ground. Impacts act when they happen: else motions would jump with the step that they fall into."""
    return adjoin.Simulator(adjoin.robots.load("ball"), dt=DT, contact=adjoin.PGS(time_of_impact=True))


def measure(sim: adjoin.Simulator, throws: int, seed: int = 0) -> tuple[Recording, torch.Tensor]:
    """What a camera would see of some throws, and the known push that each ball gets on its way."""
    model, generator = sim.model, torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=DOUBLE)

    q, v = model.neutral((throws,), dtype=DOUBLE), normal(throws, 6)
    q[:, 2] = 0.3 + 0.03 * normal(throws)
    v[:, :2] += 6.0 * torch.nn.functional.normalize(normal(throws, 2), dim=-1)
    push = torch.zeros(STEPS + 1, throws, 6, dtype=DOUBLE)
    push[100:140, :, 1] = 5.0
    own = model.parameters(dtype=DOUBLE)
    own["mass"][0], own["geometry_friction"][:, 0] = TRUTH["mass"], TRUTH["friction"]
    params = {name: own[name] for name in ("mass", "geometry_friction")}
    params["contact_restitution"] = torch.tensor(TRUTH["restitution"], dtype=DOUBLE)
    controls = torch.zeros(STEPS, 0, dtype=DOUBLE)
    path = sim.rollout(sim.state(q, v), controls, params, external={"ball": push[:-1]})
    seen = model.integrate(path.q, NOISE[0] * normal(*path.v.shape)), path.v + NOISE[1] * normal(*path.v.shape)
    time = (DT * torch.arange(STEPS + 1, dtype=DOUBLE)).expand(throws, -1)
    q, v, push = (x[::SAMPLED].transpose(0, 1).contiguous() for x in (*seen, push))
    return Recording(model, time[:, ::SAMPLED], q, v), push


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    sim = simulator()
    recording, push = measure(sim, 4 if quick else 12)

    learned = Parameters(sim.model, dtype=DOUBLE).learn("mass", Positive(torch.tensor([1.0])), of="ball")
    learned.learn("geometry_friction", Sliding(0.1))  # too little: what sticks does not say how much more would hold
    bounce = NamedParameters(contact_restitution=Bounded(torch.tensor(0.1, dtype=DOUBLE), 0.0, 1.0))

    def replay() -> torch.Tensor:
        """The first throw, from where it was seen to begin, with what is thought of the ball now."""
        known = push[:1].repeat_interleave(SAMPLED, 1)[:, :STEPS].transpose(0, 1)
        start = sim.state(recording.q[:1, 0], recording.need("replay", "v")[0][:1, 0])
        with torch.no_grad():
            params = {**learned(), **bounce()}
            return sim.rollout(start, torch.zeros(STEPS, 0, dtype=DOUBLE), params, external={"ball": known}).q[:, 0]

    before = replay()

    # Windows of 10 samples whose starts are unknown too. Impacts between two samples make outliers: a robust loss.
    shooting = Shooting(
        sim, [learned, bounce], recording, 10, noise=NOISE, external={"ball": push}, free=True, robust=3.0
    )
    history = shooting.solve(progress=not quick)
    report = shooting.report()
    print(f"loss {history[0]:.1f} to {history[-1]:.2f} in {len(history) - 1} iterations\n\n{report}\n")
    names = {"friction": "geometry_friction x of ground", "restitution": "contact_restitution", "mass": "mass of ball"}
    for name, key in names.items():
        print("{:<12} {:8.4f} +- {:.4f}   truth {}".format(name, *report[key], TRUTH[name]))

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, q, look in (
        ("at first", before, "C1--"),
        ("identified", replay(), "C0-"),
        ("seen", recording.q[0], "k."),
    ):
        times = DT * torch.arange(len(q)) * (SAMPLED if name == "seen" else 1)
        left.plot(times, q[:, 2], look, label=name)
        right.plot(times, (q[:, :2] - q[0, :2]).norm(dim=-1), look, label=name)
    left.set(title="A throw: height of the ball", xlabel="time, s", ylabel="m")
    right.set(title="How far it went", xlabel="time, s", ylabel="m")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    picture = folder / "identify_contact.png"
    figure.savefig(picture, dpi=100)
    print(f"a throw, before and after: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer throws")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
