"""Tensors of a batch of trajectory optimization problems."""

from collections.abc import Iterable
from typing import NamedTuple

import torch


class ProblemBatch(NamedTuple):
    """Tensors of a batch of problems, by name.

    Attributes:
        per_problem: (batch, ...): initial states, named tensors, "last_q", "last_v" and "cost" of a trajectory, "mu",
            the regularization, and the progress of the iterations.
        per_step: (steps, batch, ...): the states before each step and the controls of a trajectory, and named tensors.
    """

    per_problem: dict[str, torch.Tensor]
    per_step: dict[str, torch.Tensor]

    def select(self, rows: torch.Tensor) -> "ProblemBatch":
        """Return copies of some of the problems."""
        per_problem = {name: x.index_select(0, rows) for name, x in self.per_problem.items()}
        return ProblemBatch(per_problem, {name: x.index_select(1, rows) for name, x in self.per_step.items()})

    def subset(self, names: Iterable[str]) -> "ProblemBatch":
        """Return some of the tensors; of a name that is in both, the one per step."""
        per_step = {name: self.per_step[name] for name in names if name in self.per_step}
        return ProblemBatch({name: self.per_problem[name] for name in names if name not in per_step}, per_step)

    def updated(self, others: "ProblemBatch") -> "ProblemBatch":
        """Return the batch with other tensors of the same problems."""
        return ProblemBatch({**self.per_problem, **others.per_problem}, {**self.per_step, **others.per_step})

    def write(self, others: "ProblemBatch", rows: torch.Tensor) -> None:
        """Write the tensors of others into some rows."""
        for name, x in others.per_problem.items():
            self.per_problem[name].index_copy_(0, rows, x)
        for name, x in others.per_step.items():
            self.per_step[name].index_copy_(1, rows, x)
