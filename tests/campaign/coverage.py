"""Do the intervals of identification hold what they promise? Repeats of the examples with other noise, on demand.

    python tests/campaign/coverage.py --repeats 100 [--first 0] --jobs 2 [--only contact] [--out FILE]

For each estimate: in how many repeats the truth is within 1.96 standard errors of it, and how much greater than the
reported error the actual one is (the root of the mean square of error over reported error). An honest 95 % interval
holds the truth 90 to 99 times of 100.
"""

import argparse
import importlib.util
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import adjoin
from adjoin.learn import Bounded, NamedParameters, Parameters, Positive, Report, Shooting, fit, least_squares

EXAMPLES = Path(__file__).parents[2] / "examples"
Deviations = dict[str, float]
"""By name: estimate less truth, over the reported standard error."""


def example(name: str) -> Any:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def deviations(report: Report, truth: dict[str, float]) -> Deviations:
    return {name: (report[name][0] - true) / report[name][1] for name, true in truth.items()}


def regression(seed: int) -> Deviations:
    """Example 07: damping and dry friction of an arm, from torques, by linear least squares."""
    shown = example("07_identify")
    true, model = shown.robots()
    with tempfile.TemporaryDirectory() as folder:
        shown.measure(true, 10.0, Path(folder) / "log.csv", seed)
        motion = shown.motion_of(model, Path(folder) / "log.csv")
    report = least_squares(model, motion, learn=shown.LEARN).report
    truth = {"damping": 0.5, "friction": 0.8}
    return deviations(
        report, {f"{name} of {joint.name}": value for name, value in truth.items() for joint in model.joints}
    )


def forward(seed: int) -> Deviations:
    """Example 13: payload and damping of an arm, from accelerations, by Gauss-Newton."""
    shown = example("13_identify_forward_dynamics")
    arm = adjoin.robots.load("iiwa7")
    true = shown.loaded(arm)
    values = true.parameters(dtype=torch.float64)
    truth = {f"mass of {shown.LAST}": float(values["mass"][-1])}
    truth |= {f"damping of {joint.name}": float(x) for joint, x in zip(true.joints, values["damping"], strict=True)}
    return deviations(fit(arm, shown.begin(arm), shown.measure(true, 4.0, seed), target="acceleration").report, truth)


def contact(seed: int) -> Deviations:
    """Example 14: friction, restitution and mass of a ball that bounces and slides, by shooting."""
    shown = example("14_identify_contact")
    sim = shown.simulator()
    recording, push = shown.measure(sim, 4, seed)
    learned = Parameters(sim.model, dtype=torch.float64).learn("mass", Positive(torch.tensor([1.0])), of="ball")
    learned.learn("geometry_friction", shown.Sliding(0.1))
    bounce = NamedParameters(contact_restitution=Bounded(torch.tensor(0.1, dtype=torch.float64), 0.0, 1.0))
    options = {"noise": shown.NOISE, "external": {"ball": push}, "free": True, "robust": 3.0}
    shooting = Shooting(sim, [learned, bounce], recording, 10, **options)
    losses = shooting.solve()
    names = {"geometry_friction x of ground": "friction", "contact_restitution": "restitution", "mass of ball": "mass"}
    truth = {name: shown.TRUTH[key] for name, key in names.items()}
    return {**deviations(shooting.report(), truth), "loss": losses[-1]}


PARTS: dict[str, Callable[[int], Deviations]] = {"regression": regression, "forward": forward, "contact": contact}


def repeat(part: str, seed: int) -> Deviations:
    torch.set_num_threads(1)
    return PARTS[part](seed)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="the seed of the first repeat")
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--minutes", type=float, default=float("inf"), help="begin no further repeat after this long")
    options.add_argument("--out", type=Path, help="write the results as JSON")
    arguments = options.parse_args()
    began, results = time.perf_counter(), {}

    def run(case: tuple[str, int]) -> tuple[str, Deviations] | None:
        late = time.perf_counter() - began > 60.0 * arguments.minutes
        return None if late else (case[0], pool.submit(repeat, *case).result())

    cases = [
        (part, seed) for part in arguments.only for seed in range(arguments.first, arguments.first + arguments.repeats)
    ]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, spawn) as pool, ThreadPoolExecutor(arguments.jobs) as starters:
        done = [each for each in starters.map(run, cases) if each]
    honest = True
    for part in arguments.only:
        found = [deviations for name, deviations in done if name == part]
        results[part] = {"repeats": len(found), "estimates": {}, "deviations": found}
        for name in [name for name in (found[0] if found else {}) if name != "loss"]:
            scaled = torch.tensor([each[name] for each in found])
            share = 100.0 * float((scaled.abs() < 1.96).double().mean())
            honest &= 90.0 <= share <= 99.0
            ratio = float(scaled.square().mean().sqrt())
            results[part]["estimates"][name] = {"holds the truth, %": share, "error / reported": ratio}
            print(f"{part:<10} {name:<32} holds the truth {share:5.1f} % of {len(found)}, error / reported {ratio:.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if honest else 1


if __name__ == "__main__":
    sys.exit(main())
