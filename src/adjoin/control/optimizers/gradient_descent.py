"""First-order methods, for many starts at once: one launch evaluates all starts, and each takes its own path.

Adam after Kingma and Ba, Adam: a method for stochastic optimization, 2015.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from adjoin.control.optimizers.method import MethodState, ScaledObjective, check
from adjoin.errors import InputError


@dataclass(frozen=True)
class SGD:
    """Gradient descent.

    Attributes:
        rate: of a step, in units of the spread, for a gradient of 1.
        momentum: the share of the last step that is added to each.
        decay: what the rate is multiplied with in each iteration.
        clip: gradients longer than this are shortened to it, for each start.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    rate: float = 0.05
    momentum: float = 0.0
    decay: float = 1.0
    clip: float | None = None
    patience: int = 50

    def __post_init__(self):
        _check(self, fractions=["momentum", "decay"])

    def begin(self, problem: ScaledObjective, z: torch.Tensor, seed: int) -> MethodState:
        """See `Method`."""
        return _begin(problem, z, self.rate, first=torch.zeros_like(z))

    def advance(self, problem: ScaledObjective, state: MethodState) -> MethodState:
        """See `Method`."""
        step = self.momentum * state["first"] + _clipped(state["gradient"], self.clip)
        return _descend(problem, state, step, self.decay, first=step)


@dataclass(frozen=True)
class Adam:
    """Gradient descent with a step size for each variable.

    Attributes:
        rate: of a step, in units of the spread.
        betas: the shares of the mean gradient and of its mean square that are carried to the next iteration.
        decay: what the rate is multiplied with in each iteration.
        clip: gradients longer than this are shortened to it, for each start.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    rate: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 1.0
    clip: float | None = None
    patience: int = 50

    def __post_init__(self):
        _check(self, fractions=["decay"])
        pair = isinstance(self.betas, Sequence) and len(self.betas) == 2
        if not pair or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise InputError(f"Adam: betas must be two numbers from 0 to below 1, got {self.betas!r}")

    def begin(self, problem: ScaledObjective, z: torch.Tensor, seed: int) -> MethodState:
        """See `Method`."""
        return _begin(problem, z, self.rate, first=torch.zeros_like(z), second=torch.zeros_like(z))

    def advance(self, problem: ScaledObjective, state: MethodState) -> MethodState:
        """See `Method`."""
        gradient = _clipped(state["gradient"], self.clip)
        beta, beta_square = self.betas
        count = state["count"] + 1.0
        first = beta * state["first"] + (1.0 - beta) * gradient
        second = beta_square * state["second"] + (1.0 - beta_square) * gradient.square()
        mean = first / (1.0 - beta**count)[:, None]
        size = (second / (1.0 - beta_square**count)[:, None]).sqrt()
        return _descend(problem, state, mean / (size + 1e-8), self.decay, first=first, second=second)


def _check(method: Adam | SGD, fractions: list[str]) -> None:
    positive = ["rate"] if method.clip is None else ["rate", "clip"]
    check(method, positive=positive, fractions=fractions, at_least={"patience": 1})


def _begin(problem: ScaledObjective, z: torch.Tensor, rate: float, **moments: torch.Tensor) -> MethodState:
    loss, gradient = problem.gradients(z)
    zeros = torch.zeros_like(loss)
    return {"z": z, "loss": loss, "gradient": gradient, "rate": zeros + rate, "count": zeros, **moments}


def _descend(
    problem: ScaledObjective, state: MethodState, step: torch.Tensor, decay: float, **moments: torch.Tensor
) -> MethodState:
    """One step; a start whose loss is not finite there stays, forgets its past and halves its rate."""
    z = problem.project(state["z"] - state["rate"][:, None] * step)
    loss, gradient = problem.gradients(z)
    finite = loss.isfinite() & gradient.isfinite().all(-1)
    rows = finite[:, None]
    return {
        "z": torch.where(rows, z, state["z"]),
        "loss": torch.where(finite, loss, state["loss"]),
        "gradient": torch.where(rows, gradient, state["gradient"]),
        "rate": state["rate"] * torch.where(finite, decay, 0.5),
        "count": torch.where(finite, state["count"] + 1.0, 0.0),
        **{name: torch.where(rows, value, 0.0) for name, value in moments.items()},
    }


def _clipped(gradient: torch.Tensor, longest: float | None) -> torch.Tensor:
    if longest is None:
        return gradient
    return gradient * (longest / gradient.norm(dim=-1, keepdim=True).clamp(min=longest))
