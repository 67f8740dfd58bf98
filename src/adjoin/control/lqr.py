"""Linear-quadratic regulators: the best feedback for a linear system with a quadratic cost, in closed form.

Over an infinite horizon the Riccati equation is solved by doubling, each iteration of which stands for twice as many
steps as the one before (Chu, Fan, Lin and Wang 2004, Structure-preserving algorithms for periodic discrete-time
algebraic Riccati equations).
"""

from typing import NamedTuple

import torch

from adjoin.errors import InputError

DOUBLINGS = 60


class Regulator(NamedTuple):
    """A feedback du = K dx (with a plus; many textbooks have a minus), and what it costs.

    Attributes:
        gain: K, (..., m, n); over a finite horizon (steps, ..., m, n).
        value: P, (..., n, n): half dx.P dx is the cost from dx on; over a finite horizon (steps + 1, ..., n, n).
    """

    gain: torch.Tensor
    value: torch.Tensor


def lqr(
    A: torch.Tensor,
    B: torch.Tensor,
    Q: torch.Tensor,
    R: torch.Tensor,
    *,
    steps: int | None = None,
    terminal: torch.Tensor | None = None,
) -> Regulator:
    """Return the feedback that minimizes the sum of half dx.Q dx + half du.R du, where dx becomes A dx + B du.

    Args:
        A: (..., n, n), for example of `Simulator.linearize`.
        B: (..., n, m).
        Q: (..., n, n), symmetric, not negative.
        R: (..., m, m), symmetric and positive.
        steps: of the horizon; by default it is infinite.
        terminal: Q of the last state of a finite horizon; by default Q.

    Returns:
        The gains, and the cost to go.
    """
    for name, matrix in {"A": A, "B": B, "Q": Q, "R": R, "terminal": Q if terminal is None else terminal}.items():
        if not isinstance(matrix, torch.Tensor) or matrix.dim() < 2:
            raise InputError(f"lqr: {name} must be a tensor of at least two dimensions, got {matrix!r}")
        if matrix.dtype != A.dtype or matrix.device != A.device:
            raise InputError(f"lqr: A is {A.dtype} on {A.device}, {name} {matrix.dtype} on {matrix.device}")
    n, m = B.shape[-2:]
    square = {"A": (A, n), "Q": (Q, n), "R": (R, m), "terminal": (Q if terminal is None else terminal, n)}
    for name, (matrix, size) in square.items():
        if tuple(matrix.shape[-2:]) != (size, size):
            got = tuple(matrix.shape)
            raise InputError(f"lqr: with B {(n, m)}, {name} must be (..., {size}, {size}), got {got}")
    if steps is None:
        if terminal is not None:
            raise InputError("lqr: terminal is for a finite horizon; pass steps=")
        value = _infinite_horizon(A, B, Q, R)
        return Regulator(_gain(A, B, R, value), value)
    if not isinstance(steps, int) or steps < 1:
        raise InputError(f"lqr: steps must be a whole number of at least 1, got {steps!r}")
    values, gains = [Q if terminal is None else terminal], []
    for _ in range(steps):
        gain = _gain(A, B, R, values[-1])
        after = A + B @ gain
        gains.append(gain)
        values.append(Q + gain.mT @ R @ gain + after.mT @ values[-1] @ after)
    values[0] = values[0].expand_as(values[-1])
    return Regulator(torch.stack(gains[::-1]), torch.stack(values[::-1]))


def _gain(A: torch.Tensor, B: torch.Tensor, R: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return -torch.linalg.solve(R + B.mT @ value @ B, B.mT @ value @ A)


def _infinite_horizon(A: torch.Tensor, B: torch.Tensor, Q: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
    """Return P of the infinite horizon."""
    one = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    reach = B @ torch.linalg.solve(R, B.mT)
    value, across = Q, A
    close = 10.0 * torch.finfo(A.dtype).eps
    for _ in range(DOUBLINGS):
        left = torch.linalg.solve(one + reach @ value, across)
        right = torch.linalg.solve(one + reach @ value, reach)
        more = across.mT @ value @ left
        reach = reach + across @ right @ across.mT
        across = across @ left
        value = value + 0.5 * (more + more.mT)
        if bool((more.abs().amax((-2, -1)) <= close * value.abs().amax((-2, -1))).all()):
            return value
    raise InputError(
        "lqr: the infinite horizon has no finite cost; can the controls stabilize every motion that Q sees?"
    )
