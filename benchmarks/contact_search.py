"""Ten tasks of contact: how many of 32 random starts, and whether zero, are solved by gradients and by sampling.

    python benchmarks/contact_search.py [--tasks spinner,push] [--starts 32] [--quick] [--json] [--out FILE]

Gradients are L-BFGS with the default `Continuation` from soft contact, whose stages begin with a short search by
samples, beside CMA-ES and MPPI by themselves, which get as much processor time on the same task from the same starts;
L-BFGS without a continuation is the fourth. Kernels are compiled before.
`contact_tasks.py` has the tasks.
"""

import time
import warnings

import torch
from contact_tasks import TASKS, Task
from report import Report, parser

from adjoin.control import CMAES, LBFGS, MPPI, Continuation, optimize
from adjoin.control.optimizers.method import Method
from adjoin.errors import AdjoinWarning

QUICK = ("spinner", "drawer")
ITERATIONS = 40
SAMPLING: dict[str, Method] = {"CMA-ES": CMAES(), "MPPI": MPPI()}


def solved(task: Task, variables: torch.Tensor) -> int:
    """How many of the motions succeed."""
    path = task.objective.rollout(variables)
    with torch.no_grad():
        return int((task.success(path.q[-1], path.v[-1]) & (path.status[-1] == 0)).sum())


def by_gradients(task: Task, starts: torch.Tensor, continuation: bool, quick: bool = False) -> tuple[int, float]:
    """How many starts are solved, and the seconds of processor time that it took."""
    begun = time.process_time()
    stages = (Continuation(iterations=2, search=1) if quick else Continuation()) if continuation else None
    found = optimize(task.objective, LBFGS(), starts=starts, continuation=stages, iterations=2 if quick else ITERATIONS)
    return solved(task, found.variables), time.process_time() - begun


def by_samples(task: Task, starts: torch.Tensor, method: Method, seconds: float) -> int:
    """How many starts are solved within some seconds of processor time."""
    begun, state, best = time.process_time(), None, starts
    while state is None or time.process_time() - begun < seconds:
        found = optimize(task.objective, method, starts=starts, iterations=1, tolerance=0.0, resume=state)
        state, best = found.state, found.variables
        if all(reason != "iterations" for reason in found.stopped):
            break
    return solved(task, best)


def compare(task: Task, count: int, report: Report) -> None:
    """Measure a task and report its figures."""
    sets = {"random starts": task.objective.random(count, seed=7), "zero": task.objective.box.start[None]}
    for name, starts in sets.items():
        by_gradients(task, starts, True, quick=True)  # compiles
        by_samples(task, starts, MPPI(samples=8), 0.0)
        first, seconds = by_gradients(task, starts, True)
        plain, _ = by_gradients(task, starts, False)
        others = {label: by_samples(task, starts, method, seconds) for label, method in SAMPLING.items()}
        share = 100.0 / len(starts)
        best = max(others, key=others.__getitem__)
        report.add(
            f"{task.name}, {name}: solved by gradients with continuation",
            share * first,
            "%",
            at_least=share * others[best],
            peer=(best, share * others[best]),
            note=f"in {seconds:.1f} s",
        )
        for label, value in {"gradients alone": plain, **others}.items():
            report.add(f"{task.name}, {name}: solved by {label}", share * value, "%")
        report.save()


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--tasks", default=",".join(TASKS), help="which, with commas between them")
    made.add_argument("--starts", type=int, default=32, help="random starts")
    arguments = made.parse_args()
    warnings.simplefilter("ignore", AdjoinWarning)  # that zero has no gradient is what this measures
    torch.set_num_threads(1)
    report = Report("contact_search", arguments)
    names = [name for name in arguments.tasks.split(",") if not arguments.quick or name in QUICK]
    for name in names:
        compare(TASKS[name](), 8 if arguments.quick else arguments.starts, report)
    report.finish()


if __name__ == "__main__":
    main()
