"""What a method of optimization is given, and what it keeps.

Numbers are counted from the decision's start in units of its spread, and kept within their limits by projection.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from adjoin.control.objective import Objective
from adjoin.errors import InputError

Rows = dict[str, Any]
"""What a method keeps between iterations: tensors and lists, one row for each start."""

FAILURES = 5
"""Iterations in a row in which no step helps, after which a start stops; counted in a row called "failures"."""


def check(
    method: object,
    *,
    positive: Sequence[str] = (),
    shares: Sequence[str] = (),
    least: Mapping[str, int] | None = None,
) -> None:
    """Raise where an attribute of a method is not a positive number, not between 0 and 1, or not a whole number."""
    label = type(method).__name__
    for name in (*positive, *shares):
        value = getattr(method, name)
        wanted = "a number from 0 to 1" if name in shares else "a positive number"
        number = value if isinstance(value, int | float) else math.nan
        if not (0.0 <= number <= 1.0 if name in shares else 0.0 < number < math.inf):
            raise InputError(f"{label}: {name} must be {wanted}, got {value!r}")
    for name, bound in (least or {}).items():
        value = getattr(method, name)
        if not isinstance(value, int) or value < bound:
            raise InputError(f"{label}: {name} must be a whole number of at least {bound}, got {value!r}")


class Problem:
    """An objective in units of the spread; counts what is simulated."""

    def __init__(self, objective: Objective):
        self.objective, self.rollouts = objective, 0
        box = objective.box
        self.lower, self.upper = ((limit - box.start) / box.spread for limit in (box.lower, box.upper))

    def numbers(self, z: torch.Tensor) -> torch.Tensor:
        """The numbers that are decided."""
        box = self.objective.box
        return (box.start + z * box.spread).clamp(box.lower, box.upper)

    def project(self, z: torch.Tensor) -> torch.Tensor:
        """The nearest within the limits."""
        return z.clamp(self.lower, self.upper)

    def free(self, z: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Which numbers no limit holds back from going down."""
        return ~(((z <= self.lower) & (gradient > 0.0)) | ((z >= self.upper) & (gradient < 0.0)))

    def losses(self, z: torch.Tensor) -> torch.Tensor:
        """Losses (...,) of (..., size), in one launch."""
        flat = z.reshape(-1, z.shape[-1])
        self.rollouts += len(flat)
        return self.objective.losses(self.numbers(flat)).reshape(z.shape[:-1])

    def residuals(self, z: torch.Tensor) -> torch.Tensor:
        """Residuals (..., m) of (..., size), in one launch."""
        flat = z.reshape(-1, z.shape[-1])
        self.rollouts += len(flat)
        return self.objective.residuals(self.numbers(flat)).reshape(*z.shape[:-1], -1)

    def gradients(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses and gradients; each counts as one rollout."""
        self.rollouts += len(z)
        losses, found = self.objective.gradients(self.numbers(z))
        return losses, found * self.objective.box.spread

    def jacobians(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Residuals and derivatives; a rollout for each number or each residual, whichever are fewer."""
        values, found = self.objective.jacobians(self.numbers(z))
        self.rollouts += len(z) * min(found.shape[1:])
        return values, found * self.objective.box.spread


class Method(Protocol):
    """A way to go down."""

    @property
    def patience(self) -> int:
        """Iterations that may gain less than the tolerance before a start stops."""
        ...

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """What is kept, with "z" and "loss"."""
        ...

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """One iteration; "best" says where the "loss" is, if it is not of "z"."""
        ...
