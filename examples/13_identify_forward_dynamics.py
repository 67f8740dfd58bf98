"""Learning forward dynamics: an arm with a payload and worn joints, from measured accelerations.

Mass, center of mass and inertia of the last link are learned together, so that they stay physical, and the damping of
all joints; by Adam on minibatches, as one trains a network, and by Gauss-Newton, which needs six steps.
One learns: parameters are torch modules that keep them physical, and any optimizer trains them.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.learn import Fit, LogCholesky, Parameters, Positive, Recording, fit, sine_excitation

LAST = "iiwa_link_7"


def loaded(arm: adjoin.Model) -> adjoin.Model:
    """The arm as it is: 2 kg in its hand, and joints that are worn."""
    values = arm.parameters()
    mass, com, inertia = (values[name].clone() for name in ("mass", "com", "inertia"))
    mass[-1] += 2.0
    com[-1] += torch.tensor([0.01, 0.02, 0.05])
    inertia[-1] *= 4.0
    damping = torch.linspace(0.5, 0.1, arm.nv)
    return arm.with_parameters({"mass": mass, "com": com, "inertia": inertia, "damping": damping})


def measure(true: adjoin.Model, seconds: float, seed: int = 0) -> Recording:
    """Sines, the torques that were given, and noisy accelerations."""
    generator = torch.Generator().manual_seed(seed)
    moments = torch.arange(0.0, seconds, 0.02, dtype=torch.float64)
    motion = sine_excitation(true, moments, (8,), generator=generator)
    v, a = motion.need("rnea", "v", "a")
    tau = adjoin.rnea(true, motion.q, v, a, passive=True)
    noise = 0.02 * a.flatten(0, 1).std(0) * torch.randn(a.shape, generator=generator, dtype=a.dtype)
    return replace(motion, a=a + noise, tau=tau)


def begin(arm: adjoin.Model) -> Parameters:
    learned = Parameters(arm, torch.float64).learn("inertial", LogCholesky, of=[LAST])
    return learned.learn("damping", Positive(torch.full((arm.nv,), 0.05)))


def draw(fits: dict[str, Fit], path: Path) -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, found in fits.items():
        left.semilogy(found.training, ".-", label=name)
    left.set(title="How fast it learns", xlabel="epoch or step", ylabel="normalized mean squared error")
    left.legend()
    rest = fits["Gauss-Newton"].report.residuals.detach()
    right.boxplot([own.numpy() for own in rest.T], showfliers=False)
    right.set(title="What is left: noise", xlabel="joint", ylabel="residual, rad/s²")
    figure.savefig(path, dpi=100)
    print(f"losses and residuals: {path}")


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    arm = adjoin.robots.load("iiwa7")
    true = loaded(arm)
    data = measure(true, 4.0 if quick else 20.0)

    fits = {}
    for name in ("Adam", "Gauss-Newton"):
        learned = begin(arm)
        optimizer = torch.optim.Adam(learned.parameters(), lr=1e-2) if name == "Adam" else None
        start = time.perf_counter()
        fits[name] = fit(
            arm,
            learned,
            data,
            target="acceleration",
            optimizer=optimizer,
            epochs=5 if quick else 60,
            batch=100,
            progress=True,
            generator=torch.Generator().manual_seed(1),
        )
        seconds = time.perf_counter() - start
        print(f"{name}: {len(fits[name].training) - 1} epochs or steps, {seconds:.1f} s, {fits[name].training[-1]:.2e}")
    print(fits["Gauss-Newton"].report)
    last = true.bodies[-1]
    print(f"true mass of {LAST}: {last.mass:.3f} kg, center of mass: {[round(x, 4) for x in last.com]} m\n")
    picture = folder / "identify_forward_dynamics.png"
    draw(fits, picture)
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="less data and fewer epochs")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
