"""Do the intervals of identification hold what they promise? Repeats of the examples with other noise, on demand.

    python tests/campaign/coverage.py [--repeats 100] [--only contact,forward]

For each estimate: in how many repeats the truth is within 1.96 standard errors of it, and how much greater than the
reported error the actual one is (the root of the mean square of error over reported error). An honest 95 % interval
holds the truth 90 to 99 times of 100.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import adjoin
from adjoin.learn import Bounded, NamedParameters, Parameters, Positive, Report, Shooting, fit

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


def contact(repeats: int) -> Iterator[Deviations]:
    """Example 14: friction, restitution and mass of a ball that bounces and slides, by shooting."""
    shown = example("14_identify_contact")
    sim = shown.simulator()
    for seed in range(repeats):
        recording, push = shown.measure(sim, 4, seed)
        learned = Parameters(sim.model, dtype=torch.float64).learn("mass", Positive(torch.tensor([1.0])), of="ball")
        learned.learn("geometry_friction", shown.Sliding(0.1))
        bounce = NamedParameters(contact_restitution=Bounded(torch.tensor(0.1, dtype=torch.float64), 0.0, 1.0))
        options = {"noise": shown.NOISE, "external": {"ball": push}, "free": True, "robust": 3.0}
        shooting = Shooting(sim, [learned, bounce], recording, 10, **options)
        shooting.solve()
        names = {"geometry_friction x of ground": "friction", "contact_restitution": "restitution"}
        names["mass of ball"] = "mass"
        yield deviations(shooting.report(), {name: shown.TRUTH[key] for name, key in names.items()})


def forward(repeats: int) -> Iterator[Deviations]:
    """Example 13: payload and damping of an arm, from accelerations, by Gauss-Newton."""
    shown = example("13_identify_forward_dynamics")
    arm = adjoin.robots.load("iiwa7")
    true = shown.loaded(arm)
    values = true.parameters(dtype=torch.float64)
    truth = {f"mass of {shown.LAST}": float(values["mass"][-1])}
    truth |= {f"damping of {joint.name}": float(x) for joint, x in zip(true.joints, values["damping"], strict=True)}
    for seed in range(repeats):
        found = fit(arm, shown.begin(arm), shown.measure(true, 4.0, seed), target="acceleration")
        yield deviations(found.report, truth)


PARTS: dict[str, Callable[[int], Iterator[Deviations]]] = {"contact": contact, "forward": forward}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=100)
    options.add_argument("--only", default=",".join(PARTS))
    arguments = options.parse_args()
    honest = True
    for part in arguments.only.split(","):
        found = list(PARTS[part](arguments.repeats))
        for name in found[0]:
            scaled = torch.tensor([each[name] for each in found])
            share = 100.0 * float((scaled.abs() < 1.96).double().mean())
            honest &= 90.0 <= share <= 99.0
            ratio = float(scaled.square().mean().sqrt())
            print(f"{part:<9} {name:<32} holds the truth {share:5.1f} % of {len(found)}, error / reported {ratio:.2f}")
    return 0 if honest else 1


if __name__ == "__main__":
    sys.exit(main())
