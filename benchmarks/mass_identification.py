"""Link masses of an arm of seven joints from torques with 5 % noise: section masses of identification.py.

What Wang et al. 2026, Batched Differentiable Rigid Body Dynamics in PyTorch (BARD) state in their abstract: a
manipulator of seven joints, its link masses, gradients, 5 % torque noise, a mean error of 1.24 %. Their repository has
no script of it; its only arm is the xArm7, which is taken here. Not stated, and chosen here: the number of samples,
the motions, what 5 % refers to, where the masses begin, and what is done about the first link.

Here the masses begin between 70 % and 130 % of the true ones; centers of mass and inertias are known; joints have no
friction. Data are motions, Fourier series inside the limits of position and speed, sampled at 100 Hz; or poses, at rest
and at random inside the limits. The noise is read in both ways there are:

additive      Gaussian, with a standard deviation of 5 % of the root mean square of each joint's torque
proportional  Gaussian, with a standard deviation of 5 % of each torque

The first link turns about a vertical axis: gravity does not show its mass, only the product of mass and the squared
distance of its center from the axis (29 mm) does, in an inertia of which it is less than a hundredth. Under additive
noise no unbiased estimator knows it from a few thousand samples better than the standard error that is printed. The
rule, for all links alike: a mass counts as identified if the report's standard error is below 10 %. With enough samples
all seven are. In poses gravity alone shows masses, and the report says that nothing depends on the first.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

import adjoin
from adjoin.learn.data import Recording
from adjoin.learn.excitation import fourier_excitation
from adjoin.learn.fit import Fit, fit
from adjoin.learn.modules import Positive
from adjoin.learn.parameters import Parameters

SEEDS = range(10)
SHARE = 0.05
RATE = 100.0
LENGTH = 1024
IDENTIFIED = 0.1
PEER = ("BARD, as printed", 1.24)


def arm() -> adjoin.Model:
    model = adjoin.robots.load("xarm7")
    return model.with_parameters({name: torch.zeros(model.nv) for name in ("damping", "friction", "armature")})


def measured(model: adjoin.Model, kind: str, samples: int, noise: str, generator: torch.Generator) -> Recording:
    """Motions or poses, and their torques with noise."""
    if kind == "poses":
        q = model.random((samples,), generator=generator, dtype=torch.float64)
        data = Recording(model, torch.arange(samples, dtype=q.dtype), q, torch.zeros_like(q), torch.zeros_like(q))
    else:
        moments = torch.arange(min(LENGTH, samples), dtype=torch.float64) / RATE
        data = fourier_excitation(model, moments, (samples // len(moments),), generator=generator).samples()
    v, a = data.need("rnea", "v", "a")
    tau = adjoin.rnea(model, data.q, v, a)
    size = tau.abs() if noise == "proportional" else tau.square().mean(0).sqrt()
    return replace(data, tau=tau + SHARE * size * torch.randn(tau.shape, generator=generator, dtype=tau.dtype))


def identified(model: adjoin.Model, data: Recording, noise: str, generator: torch.Generator, adam: bool) -> Fit:
    """From masses that are off by up to 30 %."""
    true = model.parameters(dtype=torch.float64)["mass"]
    begin = true * (0.7 + 0.6 * torch.rand(len(true), generator=generator, dtype=torch.float64))
    learned = Parameters(model, torch.float64).learn("mass", Positive(begin))
    if adam:
        optimizer = torch.optim.Adam(learned.parameters(), lr=1e-2)
        return fit(
            model, learned, data, optimizer=optimizer, loss=torch.nn.functional.mse_loss, epochs=60, generator=generator
        )
    kind = "proportional" if noise == "proportional" else "joint"
    return fit(model, learned, data, noise=kind, check=False)  # poses show less than motions would, and are meant to


def section(quick: bool) -> Iterator[dict[str, Any]]:
    model = arm()
    true = model.parameters(dtype=torch.float64)["mass"]
    table: dict[str, Any] = {"links": [body.name for body in model.bodies], "runs": []}
    cases = [
        ("additive", "samples", 16_384, False, True),
        ("additive", "poses", 4096, False, True),
        ("proportional", "samples", 4096, False, True),
    ]
    if not quick:
        cases += [("additive", "samples", count, False, False) for count in (1024, 4096)]
        cases += [("additive", "samples", 1_048_576, False, True)]
        cases += [("additive", "samples", 16_384, True, False), ("proportional", "samples", 4096, True, False)]
    for noise, kind, samples, adam, held in cases:
        errors, shares, seconds = [], [], []
        for seed in SEEDS:
            generator = torch.Generator().manual_seed(seed)
            data = measured(model, kind, samples, noise, generator)
            start = time.perf_counter()
            found = identified(model, data, noise, generator, adam)
            seconds.append(time.perf_counter() - start)
            errors.append((found.report.estimate / true - 1.0).abs())
            shares.append(found.report.error / true)
        error, share = torch.stack(errors).mean(0), torch.stack(shares).mean(0)
        counted = share < IDENTIFIED
        how = "Adam on the mean squared error, 60 epochs" if adam else "Gauss-Newton"
        names = ", ".join(body.name for body, good in zip(model.bodies, counted.tolist(), strict=True) if not good)
        worst = (
            f"standard error {100 * float(share.max()):.0f} %" if share.isfinite().all() else "nothing depends on it"
        )
        rest = f"; not identified: {names}, {worst}" if names else ""
        yield {
            "name": f"{noise} noise, {samples} {kind}, {int(counted.sum())} of 7 masses, {how}: mean error",
            "value": 100.0 * float(error[counted].mean()),
            "unit": "%",
            "at_most": 0.6 if held else None,
            "peer": PEER if held else None,
            "note": f"{len(SEEDS)} seeds, {min(seconds):.2f} s each{rest}",
        }
        run = {
            "noise": noise,
            "samples": samples,
            "how": how,
            "error": error.tolist(),
            "standard_error": share.tolist(),
        }
        table["runs"].append(run)
    yield {"table": table}
