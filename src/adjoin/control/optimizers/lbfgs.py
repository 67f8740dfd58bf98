"""Quasi-Newton with limited memory, for many starts at once.

The two loops after Nocedal, Updating quasi-Newton matrices with limited storage, 1980, on the variables that no limit
holds, as in Bertsekas, Projected Newton methods for optimization problems with simple constraints, 1982.
"""

from dataclasses import dataclass

import torch

from adjoin.control.optimizers.method import MethodState, ScaledObjective, check, row_at


@dataclass(frozen=True)
class LBFGS:
    """Quasi-Newton with limited memory, and a line search that tries all its lengths in one launch.

    Attributes:
        memory: how many past steps are kept; with 0 it is steepest descent with a line search.
        trials: lengths that a line search tries, each half of the one before.
        first: how far a variable moves at most in a step without memory, in units of the spread.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    memory: int = 10
    trials: int = 8
    first: float = 0.1
    patience: int = 8

    def __post_init__(self):
        check(self, positive=["first"], at_least={"memory": 0, "trials": 1, "patience": 1})

    def begin(self, problem: ScaledObjective, z: torch.Tensor, seed: int) -> MethodState:
        """See `Method`."""
        loss, gradient = problem.gradients(z)
        past, zeros = z.new_zeros(len(z), self.memory, z.shape[1]), torch.zeros_like(loss)
        state = {"z": z, "loss": loss, "gradient": gradient, "rate": zeros + self.first, "failures": zeros}
        return {**state, "steps": past, "changes": past.clone()}

    def advance(self, problem: ScaledObjective, state: MethodState) -> MethodState:
        """See `Method`."""
        z, loss, gradient, rate = (state[name] for name in ("z", "loss", "gradient", "rate"))
        free = problem.free(z, gradient)
        projected = torch.where(free, gradient, 0.0)
        steepest = projected * (rate / projected.abs().amax(-1).clamp(min=torch.finfo(z.dtype).tiny))[:, None]
        newton, has_past = _two_loops(projected, state["steps"] * free[:, None], state["changes"] * free[:, None])
        downhill = has_past & (_dot(newton, projected) > 0.0) & newton.isfinite().all(-1)
        direction = torch.where(downhill[:, None], newton, steepest)
        lengths = 2.0 ** (1.0 - torch.arange(self.trials, dtype=z.dtype, device=z.device))
        trials = problem.project(z[:, None] - lengths[:, None] * direction[:, None])
        lower, best = problem.losses(trials).nan_to_num(torch.inf).min(1)
        moved = row_at(trials, best)
        _, moved_gradient = problem.gradients(moved)
        better = (lower < loss) & moved_gradient.isfinite().all(-1)
        step, change = moved - z, moved_gradient - gradient
        curved = better & (_dot(step, change) > 1e-10 * _dot(step, step).sqrt() * _dot(change, change).sqrt())
        steps, changes = (
            torch.where(curved[:, None, None], torch.cat([past[:, 1:], new[:, None]], 1)[:, : self.memory], past)
            for past, new in ((state["steps"], step), (state["changes"], change))
        )
        return {
            **state,
            "z": torch.where(better[:, None], moved, z),
            "loss": torch.where(better, lower, loss),
            "gradient": torch.where(better[:, None], moved_gradient, gradient),
            "steps": torch.where(better[:, None, None], steps, 0.0),
            "changes": torch.where(better[:, None, None], changes, 0.0),
            "rate": torch.where(better, (2.0 * rate).clamp(max=self.first), torch.where(downhill, rate, 0.01 * rate)),
            "failures": torch.where(better, 0.0, state["failures"] + 1.0),
        }


def _two_loops(gradient: torch.Tensor, steps: torch.Tensor, changes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient times the inverse Hessian that past steps and changes of the gradient tell, and whether they do."""
    products, squares = _dot(steps, changes), _dot(changes, changes)
    used = products > 1e-10 * (_dot(steps, steps) * squares).sqrt()
    weights = torch.where(used, 1.0 / torch.where(used, products, 1.0), 0.0)
    direction, shares = gradient, []
    for k in reversed(range(steps.shape[1])):
        share = weights[:, k] * _dot(steps[:, k], direction)
        direction = direction - share[:, None] * changes[:, k]
        shares.append(share)
    scale = torch.ones_like(gradient[:, 0])
    for k in range(steps.shape[1]):
        scale = torch.where(used[:, k], products[:, k] / torch.where(used[:, k], squares[:, k], 1.0), scale)
    direction = direction * scale[:, None]
    for k, share in enumerate(reversed(shares)):
        direction = direction + (share - weights[:, k] * _dot(changes[:, k], direction))[:, None] * steps[:, k]
    return direction, used.any(1)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(-1)
