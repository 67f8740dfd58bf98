"""What does an arm weigh? Inertial parameters, damping and friction of an iiwa from noisy torques, in one pass.

The model that it begins with is wrong by 30 %. Linear least squares finds the base parameters; the ten inertial
parameters of each link stay physical. One learns: from a log of positions and torques to a model that predicts, with
standard errors, and with what the torques cannot tell named.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

import adjoin
from adjoin.learn import (
    Recording,
    differentiate,
    fourier_excitation,
    least_squares,
    load_csv,
    low_pass_positions,
    nmse,
    sine_excitation,
)

RATE = 200.0
LEARN = ("inertial", "damping", "friction")


def robots() -> tuple[adjoin.Model, adjoin.Model]:
    """The true arm, which nobody knows, and what its data sheet says."""
    arm = adjoin.robots.load("iiwa7")
    friction = {"damping": torch.full((7,), 0.5), "friction": torch.full((7,), 0.8)}
    true = arm.with_parameters(friction)
    values = true.parameters()
    off = 1.0 + 0.3 * (2.0 * torch.rand(7, generator=torch.Generator().manual_seed(1)) - 1.0)
    wrong = {"mass": values["mass"] * off, "inertia": values["inertia"] * off[:, None]}
    return true, arm.with_parameters({**wrong, **{name: 0.5 * x for name, x in friction.items()}})


def measure(true: adjoin.Model, seconds: float, path: Path, seed: int = 0) -> None:
    """A log as a robot writes it: positions and torques, both with noise."""
    generator = torch.Generator().manual_seed(seed)
    moments = torch.arange(0.0, seconds, 1.0 / RATE, dtype=torch.float64)
    motion = fourier_excitation(true, moments, harmonics=8, generator=generator)
    v, a = motion.need("rnea", "v", "a")
    tau = adjoin.rnea(true, motion.q, v, a, passive=True)
    tau = tau + 0.05 * tau.std(0) * torch.randn(tau.shape, generator=generator, dtype=tau.dtype)
    q = motion.q + 1e-5 * torch.randn(motion.q.shape, generator=generator, dtype=tau.dtype)
    Recording(true, moments, q, tau=tau).save_csv(path)


def motion_of(model: adjoin.Model, log: Path) -> Recording:
    """Positions become velocities and accelerations.

    Torques stay as they are: least squares averages their noise, and a filter would smooth the steps of dry friction.
    """
    raw = load_csv(log, model, dtype=torch.float64)
    dt, (tau,) = raw.check_time(str(log)), raw.need("main", "tau")
    q = low_pass_positions(model, raw.q, dt, cutoff=8.0)
    return replace(differentiate(model, raw.time, q), tau=tau).at(slice(50, -50))


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    true, model = robots()
    log = folder / "log.csv"
    measure(true, 10.0 if quick else 40.0, log)

    inside = motion_of(model, log)
    start = time.perf_counter()
    found = least_squares(model, inside, learn=LEARN)
    (folder / "report.txt").write_text(str(found.report))
    seconds = time.perf_counter() - start
    print(f"{len(inside.time)} samples, {len(found.base.expressions)} base parameters, {seconds:.1f} s\n")
    print("joint            damping, N m s/rad (truth 0.5)    dry friction, N m (truth 0.8)")
    for joint in (each.name for each in model.joints):
        pairs = [found.report[f"{name} of {joint}"] for name in ("damping", "friction")]
        print(f"{joint:<16}" + "".join(f"{value:11.3f} +- {error:<18.3f}" for value, error in pairs).rstrip())
    print("\nMasses are not among them: torques tell combinations only. All estimates, and which these are, are in")
    print(f"{folder / 'report.txt'}\n")

    # Does it predict a motion it has not seen?
    moments = torch.arange(0.0, 10.0, 0.01, dtype=torch.float64)
    other = sine_excitation(true, moments, generator=torch.Generator().manual_seed(5))
    v, a = other.need("rnea", "v", "a")
    expected = adjoin.rnea(true, other.q, v, a, passive=True)
    for name, params in (("data sheet", None), ("identified", found.params)):
        error = nmse(adjoin.rnea(model, other.q, v, a, params=params, passive=True), expected)
        print(f"{name:<12} normalized error on another motion {float(error):.2e}")

    picture = folder / "identify.png"
    found.report.plot().savefig(picture, dpi=100)
    print(f"fit and residuals: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="a shorter motion")
    options.add_argument("--folder", type=Path, help="where the log and the picture go")
    main(**vars(options.parse_args()))
