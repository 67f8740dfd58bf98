"""What a method of `optimize` gets, and what it carries from one iteration to the next.

Methods see scaled decision variables z: the difference from the variables' start in units of their spread, kept within
the limits by projection.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from adjoin.control.objective import Objective
from adjoin.errors import InputError

MethodState = dict[str, Any]
"""What a method carries between iterations: "z", "loss" and others, tensors and lists with one row for each start."""

MAX_FAILURES = 5
"""A start stops after this many iterations in a row in which no step helps, counted in the row "failures"."""


def check(
    method: object,
    *,
    positive: Sequence[str] = (),
    fractions: Sequence[str] = (),
    at_least: Mapping[str, int] | None = None,
) -> None:
    """Raise where an attribute of a method is not a positive number, not between 0 and 1, or not a whole number."""
    label = type(method).__name__
    for name in (*positive, *fractions):
        value = getattr(method, name)
        wanted = "a number from 0 to 1" if name in fractions else "a positive number"
        number = value if isinstance(value, int | float) else math.nan
        if not (0.0 <= number <= 1.0 if name in fractions else 0.0 < number < math.inf):
            raise InputError(f"{label}: {name} must be {wanted}, got {value!r}")
    for name, bound in (at_least or {}).items():
        value = getattr(method, name)
        if not isinstance(value, int) or value < bound:
            raise InputError(f"{label}: {name} must be a whole number of at least {bound}, got {value!r}")


class ScaledObjective:
    """An objective as a function of scaled variables; `rollouts` counts what is simulated."""

    def __init__(self, objective: Objective):
        self.objective, self.rollouts = objective, 0
        box = objective.box
        self.lower, self.upper = ((limit - box.start) / box.spread for limit in (box.lower, box.upper))

    def unscale(self, z: torch.Tensor) -> torch.Tensor:
        """Return the decision variables of scaled ones."""
        box = self.objective.box
        return (box.start + z * box.spread).clamp(box.lower, box.upper)

    def project(self, z: torch.Tensor) -> torch.Tensor:
        """Return the nearest point within the limits."""
        return z.clamp(self.lower, self.upper)

    def free(self, z: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Return which variables may move against the gradient without leaving the limits."""
        return ~(((z <= self.lower) & (gradient > 0.0)) | ((z >= self.upper) & (gradient < 0.0)))

    def losses(self, z: torch.Tensor) -> torch.Tensor:
        """Return the losses (...,) of (..., size), in one launch."""
        flat = z.reshape(-1, z.shape[-1])
        self.rollouts += len(flat)
        return self.objective.losses(self.unscale(flat)).reshape(z.shape[:-1])

    def residuals(self, z: torch.Tensor) -> torch.Tensor:
        """Return the residuals (..., m) of (..., size), in one launch."""
        flat = z.reshape(-1, z.shape[-1])
        self.rollouts += len(flat)
        return self.objective.residuals(self.unscale(flat)).reshape(*z.shape[:-1], -1)

    def gradients(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return losses and gradients; each counts as one rollout."""
        self.rollouts += len(z)
        losses, gradients = self.objective.gradients(self.unscale(z))
        return losses, gradients * self.objective.box.spread

    def jacobians(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return residuals and Jacobians; a rollout for each variable or each residual, whichever are fewer."""
        residuals, jacobians = self.objective.jacobians(self.unscale(z))
        self.rollouts += len(z) * min(jacobians.shape[1:])
        return residuals, jacobians * self.objective.box.spread


class Method(Protocol):
    """A method of optimization."""

    @property
    def patience(self) -> int:
        """Iterations that may gain less than the tolerance before a start stops."""
        ...

    def begin(self, problem: ScaledObjective, z: torch.Tensor, seed: int) -> MethodState:
        """Return the state at the starts z, (starts, size)."""
        ...

    def advance(self, problem: ScaledObjective, state: MethodState) -> MethodState:
        """Return the state after one iteration; "best" is where the "loss" is, if that is not "z"."""
        ...


def row_at(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the values (starts, ...) at one index of the second dimension for each start."""
    return values[torch.arange(len(values), device=values.device), index]
