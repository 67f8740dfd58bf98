"""Reaching with an arm of seven joints by iLQR: 256 problems at once with ours, one after the other with Crocoddyl.

An iiwa without damping starts at rest, holding itself, and has a second to bring its end to a target. Cost, horizon,
step of time (semi-implicit Euler), first guess and Hessian (Gauss and Newton's) are the same, both compute in double
precision, and both stop when the next iteration is expected to lower the cost by less than 1e-9. Times are processor
time of the one thread that works, the least of several: ours of the whole batch, before Crocoddyl's turn and after it,
Crocoddyl's of each problem by itself, with the better of its two solvers, DDP and FDDP.

Crocoddyl runs in a Python of its own, because its wheel crashes beside the Pinocchio that we test against. Its path is
given as CROCODDYL; these versions work together:

    pip install crocoddyl==3.2.0 pin==3.9.0 cmeel-urdfdom==4.0.1 cmeel-tinyxml2==10.0.0
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import adjoin
from adjoin.control.ilqr import ILQR, ILQRResult

DT, STEPS, FRAME = 1e-2, 100, "iiwa_link_ee"
START = (0.0, 0.5, 0.0, -1.2, 0.0, 0.8, 0.0)
SPREAD = 0.5  # rad: how far from the start, joint by joint, the configurations are whose ends are the targets
RUNNING = {"reach": 1.0, "state": 1e-2, "control": 1e-4}
TERMINAL = {"reach": 1e3, "state": 1e-1}
TOLERANCE, ITERATIONS = 1e-9, 200


def arm() -> adjoin.Model:
    """An iiwa without damping, which Crocoddyl has not."""
    return adjoin.robots.load("iiwa7").with_parameters({"damping": torch.zeros(7, dtype=torch.float64)})


def targets(model: adjoin.Model, count: int) -> torch.Tensor:
    """Where the end is to go, (count, 3)."""
    away = 2.0 * torch.rand(count, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1.0
    return adjoin.forward_kinematics(model, torch.tensor(START, dtype=torch.float64) + SPREAD * away, FRAME)[:, :3, 3]


def solver(model: adjoin.Model, limits: bool = False) -> ILQR:
    """Ours for these problems."""
    start = np.array(START)

    def residuals(weights: dict[str, float], scale: float, q: Any, v: Any, control: Any, target: Any) -> Any:
        reach = adjoin.forward_kinematics(model, q, FRAME)[:3, 3] - target
        parts = {"reach": reach, "state": np.concatenate([q - start, v]), "control": control}
        return np.concatenate([math.sqrt(weight * scale) * parts[name] for name, weight in weights.items()])

    return ILQR(
        adjoin.Simulator(model, dt=DT, pairs=[], limits=False),
        lambda q, v, control, target: residuals(RUNNING, DT, q, v, control, target),
        lambda q, v, target: residuals(TERMINAL, 1.0, q, v, None, target),
        limits=limits,
    )


def solve(ours: ILQR, goals: torch.Tensor, dtype: torch.dtype = torch.float64) -> ILQRResult:
    model = ours.sim.model
    q = torch.tensor(START, dtype=dtype, device=goals.device).expand(len(goals), -1)
    holding = adjoin.gravity_forces(model, q).expand(STEPS, -1, -1)
    return ours.solve(
        ours.sim.state(q),
        holding,
        tensors={"target": adjoin.PerEnvironment(goals.to(dtype))},
        iterations=ITERATIONS,
        tolerance=TOLERANCE,
        feedback=False,
    )


def crocoddyl(model: adjoin.Model, goals: torch.Tensor, repetitions: int) -> dict[str, Any]:
    """What Crocoddyl finds."""
    if "CROCODDYL" not in os.environ:
        raise SystemExit(f"set CROCODDYL to a Python that has it.{(__doc__ or '').partition('given as CROCODDYL;')[2]}")
    asked = {
        "urdf": adjoin.to_urdf(model, shapes=False),
        "frame": FRAME,
        "q": START,
        "targets": goals.tolist(),
        "weights": {"running": RUNNING, "terminal": TERMINAL},
        "dt": DT,
        "steps": STEPS,
        "tolerance": TOLERANCE,
        "iterations": ITERATIONS,
        "repetitions": repetitions,
    }
    ran = subprocess.run(
        [os.environ["CROCODDYL"], str(Path(__file__).with_name("crocoddyl_solve.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if ran.returncode:
        raise SystemExit(f"Crocoddyl failed:\n{ran.stderr}")
    return json.loads(ran.stdout.splitlines()[-1])


def section(quick: bool) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    model, count = arm(), 256
    ours, goals = solver(model), targets(model, count)
    found = solve(ours, goals)  # compiles
    repetitions, some = (2, 16) if quick else (5, count)

    def seconds() -> list[float]:
        times = [time.thread_time()]
        for _ in range(repetitions):
            solve(ours, goals)
            times.append(time.thread_time())
        return [b - a for a, b in pairwise(times)]

    before = seconds()
    peer = crocoddyl(model, goals[:some], repetitions)
    least = min(*before, *seconds())  # a machine may be slower at one time than at another
    name, best = min(((n, peer[n]) for n in ("SolverFDDP", "SolverDDP")), key=lambda pair: sum(pair[1]["seconds"]))
    label = f"{peer['version']}, {name}"
    costs = torch.tensor(best["cost"], dtype=torch.float64)
    apart = (found.cost[:some] / costs - 1.0).abs()
    yield {
        "name": "reaching: greatest relative difference of the optimum",
        "value": apart.max().item(),
        "unit": "",
        "at_most": 1e-6,
        "note": f"{some} problems; {label}",
    }
    yield {"name": "reaching: converged", "value": found.converged.double().mean().item(), "unit": "", "at_least": 1.0}
    own, other = least / count, sum(best["seconds"]) / some
    yield {
        "name": "reaching: a problem, 256 at once",
        "value": own * 1e3,
        "unit": "ms",
        "peer": (label, other * 1e3),
    }
    yield {"name": "reaching: throughput against Crocoddyl", "value": other / own, "unit": "times", "at_least": 20.0}
    mean = found.iterations.double().mean().item()
    yield {
        "name": "reaching: iterations of a problem",
        "value": mean,
        "unit": "",
        "peer": (label, sum(best["iterations"]) / some),
    }


def on_gpu(quick: bool) -> Iterator[dict[str, Any]]:
    """The same problems on a GPU, and many more of them at once."""
    model = arm()
    on_cpu = solve(solver(model), targets(model, 256)).cost
    for dtype, label in ((torch.float64, "f64"), (torch.float32, "f32")):
        for count in (256, 4096) if quick else (256, 4096, 16384):
            ours, goals = solver(model), targets(model, count).cuda()
            found = solve(ours, goals, dtype)  # compiles
            seconds = []
            for _ in range(2 if quick else 5):
                torch.cuda.synchronize()
                start = time.perf_counter()
                found = solve(ours, goals, dtype)
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - start)
            least, name = min(seconds), f"reaching on a GPU, {label}, {count} at once"
            note = f"{1e3 * least:.1f} ms, {found.iterations.double().mean().item():.2f} iterations"
            yield {"name": name, "value": count / least, "unit": "problems/s", "note": note}
            if count == 256:
                apart = (found.cost.cpu().double() / on_cpu - 1.0).abs().max().item()
                yield {"name": f"{name}, relative difference to the CPU's optimum", "value": apart, "unit": ""}


if __name__ == "__main__":
    for figure in section("--quick" in sys.argv):
        print(figure)
