"""Forward and inverse dynamics, inertia matrices and pushes for thousands of robots in one call, and how long it takes.

One learns: the model goes first, then tensors with any batch shape; one call is one kernel; `compute` shares work
between quantities; and every physical number may differ from robot to robot.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin


def microseconds(call: Callable[[], object], least: float) -> float:
    """How long a call takes, the best of several within about so many seconds."""
    call()  # the first one compiles
    best, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < least:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    go2 = adjoin.robots.load("go2")
    sizes = (1, 16, 256) if quick else (1, 4, 16, 64, 256, 1024, 4096, 16384)
    count = sizes[-1]
    generator = torch.Generator().manual_seed(0)
    q = go2.random((count,), dtype=torch.float64, generator=generator)
    v, tau = torch.randn(2, count, go2.nv, dtype=torch.float64, generator=generator)

    # Forward dynamics, and back by inverse dynamics.
    a = adjoin.aba(go2, q, v, tau)
    off = (adjoin.rnea(go2, q, v, a) - tau).abs().max()
    print(f"{count} robots: rnea of what aba gives differs from tau by {off:.1e}")

    # Two quantities in one kernel. A robot is M a + h = tau.
    both = adjoin.compute(go2, q, v, quantities={"M": "crba", "h": "bias_forces"})
    rest = torch.einsum("bij,bj->bi", both["M"], a) + both["h"] - tau
    print(f"{count} robots: M a + h differs from tau by {rest.abs().max():.1e}")

    # Each robot carries a load of its own. What holds it still is its weight, and a push from below replaces that.
    mass = go2.parameters(dtype=torch.float64)["mass"].repeat(count, 1)
    mass[:, 0] += torch.linspace(0.0, 10.0, count, dtype=torch.float64)
    upright = torch.tensor(go2.keyframe("home").q, dtype=torch.float64)
    held = adjoin.gravity_forces(go2, upright, params={"mass": mass})[:, 2]
    print(f"to be held still takes {held[0]:.1f} N without a load and {held[-1]:.1f} N with 10 kg")
    push = torch.zeros(count, 6, dtype=torch.float64)
    push[:, 2] = held
    still = adjoin.bias_forces(
        go2,
        upright,
        torch.zeros_like(v),
        external={"base": push},
        reference="local_world_aligned",
        params={"mass": mass},
    )
    print(f"with that push at the base, the base needs {still[:, :3].abs().max():.1e} N more")

    # How long a call takes.
    calls: dict[str, Callable[..., object]] = {
        "forward_kinematics, one foot": lambda q, v, tau: adjoin.forward_kinematics(go2, q, "FL_foot"),
        "rnea": lambda q, v, tau: adjoin.rnea(go2, q, v, tau),
        "crba": lambda q, v, tau: adjoin.crba(go2, q),
        "aba": lambda q, v, tau: adjoin.aba(go2, q, v, tau),
    }
    least = 0.01 if quick else 0.2
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        for size in sizes:
            some = [x[:size] for x in (q, v, tau)]
            times[name].append(microseconds(lambda call=call, some=some: call(*some), least))
        one, many = times[name][0], times[name][-1]
        print(f"{name:<29} {one:5.0f} us for one, {many:6.0f} us for {count}: {many / count:.3f} us a robot")

    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, found in times.items():
        axes.loglog(sizes, [each / n for each, n in zip(found, sizes, strict=True)], ".-", label=name)
    axes.set(
        title="Dynamics of a Go2 on this CPU, float64", xlabel="robots in a call", ylabel="time for each robot, µs"
    )
    axes.grid(alpha=0.3)
    axes.legend()
    picture = folder / "dynamics.png"
    figure.savefig(picture, dpi=100)
    print(f"time against batch size: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="smaller batches")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
