"""The backward pass of differential dynamic programming: from the cost's and the steps' derivatives to gains.

Mayne 1966. With V the cost to go from the next step, Q = l + V o step to second order in (dx, du), and mu the
regularization, `limited` gives k and K:

    k = argmin of half k.(Q_uu + mu) k + Q_u.k within the limits,    K = -(Q_uu + mu)⁻¹ Q_ux for controls not at one,
    V_x = Q_x + Q_xu k - mu Kᵀk,    V_xx = Q_xx + Q_xu K - mu KᵀK.

Small systems take one launch: a loop over the steps in which derivatives, Q and gains are computed one after the other
and nothing but the gains is written. Large ones, and those whose steps have loops of their own, take a launch for all
derivatives, then torch's products of matrices for Q, and a launch a step for the gains.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from adjoin.compiler.runtime.function import Function, PerStep
from adjoin.compiler.runtime.operator import arrange
from adjoin.control.expansion import Expansion, Rows, units
from adjoin.control.limited import Bounds, gains
from adjoin.control.problems import Problems
from adjoin.dynamics.linear import dot
from adjoin.simulation.rollout import Values
from adjoin.spatial.scalar import Scalar
from adjoin.trace import scan, select

SMALL = 28
"""Numbers of dx and du together up to which the whole pass is one launch."""


class Gains(NamedTuple):
    """What a backward pass gives.

    Attributes:
        feed: k, (steps, batch, nu).
        gain: K, (steps, batch, nu, 2 nv).
        first: the change of the cost to first order in the length of the step, (batch,).
        second: and to second order, (batch,).
        fine: 1 where all systems were positive definite, else 0, (batch,).
    """

    feed: torch.Tensor
    gain: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    fine: torch.Tensor


class Step(NamedTuple):
    """One step of the pass, over scalars.

    Attributes:
        feed: k.
        gain: K.
        slope: V_x.
        bend: V_xx, on and above the diagonal, row by row.
        first: the change of the cost to first order.
        second: and to second order.
        fine: whether the system was positive definite.
    """

    feed: list[Scalar]
    gain: Rows
    slope: list[Scalar]
    bend: list[Scalar]
    first: Scalar
    second: Scalar
    fine: Any


class Fused:
    """The whole pass as one launch.

    Args:
        expansion: of steps and costs.
        bounds: of the controls.
        second_order: whether the steps' second derivatives count.
    """

    def __init__(self, expansion: Expansion, bounds: Bounds, second_order: bool):
        self.expansion, self.bounds, self.second_order = expansion, bounds, second_order
        streams = {name: PerStep(shape) for name, shape in expansion.here.items() if name not in expansion.fixed}
        ends = {f"last_{name}": expansion.states[name] for name in ("q", "v")}

        def backward(**values: Any) -> Any:
            return self._backward(values)

        backward.__name__ = f"riccati({expansion.model.name})"
        self._streams, self._fixed = tuple(streams), tuple(expansion.fixed)
        inputs = {**streams, **ends, "mu": (), **expansion.fixed}
        self._inputs, self._function = tuple(inputs), Function(backward, inputs)

    def __call__(self, problems: Problems, shared: Mapping[str, torch.Tensor], into: Gains | None = None) -> Gains:
        """The gains along the paths of problems.

        Args:
            problems: with paths.
            shared: parameters and named tensors that are the same for all problems.
            into: contiguous tensors for the results.
        """
        once, each = {**shared, **problems.once}, problems.each
        tensors = [each[name] if name in self._streams else once[name] for name in self._inputs]
        kernel, batch, tensors = arrange(self._function.kernel, tensors)
        return Gains(*kernel.run(tensors, (len(each["control"]),), batch, into))

    def _backward(self, values: Values) -> dict[str, Any]:
        expansion, mu = self.expansion, values["mu"]
        fixed = {name: values[name] for name in self._fixed}
        end = {"q": values["last_q"], "v": values["last_v"], **fixed}
        slope, bend = expansion.quadratic(end, controlled=False)

        def body(_: Any, carry: Any, elements: list[Any]) -> tuple[Any, Any]:
            here = {**dict(zip(self._streams, elements, strict=True)), **fixed}
            slope, bend, after, first, second, fine = carry
            found = self._step(here, after, slope, symmetric(bend, expansion.size), mu)
            first, second = first + found.first, second + found.second
            carry = (found.slope, found.bend, list(here["v"]), first, second, select(found.fine, fine, 0.0))
            return carry, {"feed": found.feed, "gain": found.gain}

        upper = [bend[i][j] for i in range(len(slope)) for j in range(i, len(slope))]
        start = (slope, upper, list(end["v"]), 0.0, 0.0, 1.0)
        last, found = scan(body, start, [values[name] for name in self._streams], reverse=True)
        return {**found, **dict(zip(("first", "second", "fine"), last[3:], strict=True))}

    def _step(self, here: Values, after: list[Scalar], slope: list[Scalar], bend: Rows, mu: Scalar) -> Step:
        """One step back: `after` is the velocity after it, slope and bend are of the cost to go from there."""
        expansion, n = self.expansion, self.expansion.size
        columns, slope, bend = self._carried(here, slope, bend)
        slopes, hessian = self._costs(here, slope)
        slopes = [g + dot(column, slope) for g, column in zip(slopes, columns, strict=True)]
        # Q = l + JᵀVJ. The rows of J that are the identity's cost next to nothing, and only they need those of VJ.
        same = expansion.model.nv if expansion.straight else 0
        carried = [[dot(row, column) for row in bend[same:]] for column in columns]

        def entry(i: int, j: int) -> Scalar:
            found = hessian[i][j] + dot(carried[i], columns[j][same:])
            return found + dot(bend[j], columns[i]) if j < same else found

        controls = range(n, expansion.width)
        mixed = [[entry(i, j) for i in range(n)] for j in controls]
        corner = symmetric([entry(i, j) for i in controls for j in controls[i - n :]], len(controls))
        feed, gain, fine = gains(corner, mixed, slopes[n:], list(here["control"]), mu, self.bounds)
        across = [list(column) for column in zip(*gain, strict=True)]
        pulls = [[m[i] - mu * g for m, g in zip(mixed, across[i], strict=True)] for i in range(n)]
        following = [slopes[i] + dot(pulls[i], feed) for i in range(n)]
        bent = [entry(i, j) + dot(pulls[i], across[j]) for i in range(n) for j in range(i, n)]
        second = 0.5 * dot(feed, [dot(row, feed) for row in corner])
        return Step(feed, gain, following, bent, dot(slopes[n:], feed), second, fine)

    def _carried(self, here: Values, slope: list[Scalar], bend: Rows) -> tuple[Rows, list[Scalar], Rows]:
        """The columns of a step's Jacobian, and the cost to go in terms of what its rows are."""
        expansion = self.expansion
        rows = expansion.jacobian(here)
        if expansion.straight:
            slope, bend = straightened(slope, bend, expansion.world.dt)
            rows = [*units(expansion.width)[: expansion.model.nv], *rows]
        return [list(column) for column in zip(*rows, strict=True)], slope, bend

    def _costs(self, here: Values, slope: list[Scalar]) -> tuple[list[Scalar], Rows]:
        """Gradient and Hessian of the running cost; the Hessian with that of the step, if it counts."""
        slopes, hessian = self.expansion.quadratic(here)
        if self.second_order:
            weights = slope[self.expansion.model.nv :] if self.expansion.straight else slope
            more = self.expansion.bent(here, weights)
            hessian = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(hessian, more, strict=True)]
        return slopes, hessian


def straightened(slope: list[Scalar], bend: Rows, dt: float) -> tuple[list[Scalar], Rows]:
    """A cost to go in terms of (q before, v after), of which the state after is (q + dt v, v)."""
    nv = len(slope) // 2
    above, below = range(nv), range(nv, 2 * nv)
    side = [[dt * bend[i][j - nv] + bend[i][j] for j in below] for i in above]
    corner = [dt * (side[i][j] + bend[j][nv + i]) + bend[nv + i][nv + j] for i in above for j in above[i:]]
    square = symmetric(corner, nv)
    left = [[*bend[i][:nv], *side[i]] for i in above]
    right = [[*[side[j][i] for j in above], *square[i]] for i in above]
    return [*slope[:nv], *[dt * a + b for a, b in zip(slope[:nv], slope[nv:], strict=True)]], [*left, *right]


def symmetric(upper: Sequence[Scalar], size: int) -> Rows:
    """A matrix from its entries on and above the diagonal, row by row."""
    entries = iter(upper)
    found: Rows = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i, size):
            found[i][j] = found[j][i] = next(entries)
    return found


class Wide:
    """The pass in several launches: all derivatives, then step by step.

    Args:
        expansion: of steps and costs.
        bounds: of the controls.
        second_order: whether the steps' second derivatives count.
    """

    def __init__(self, expansion: Expansion, bounds: Bounds, second_order: bool):
        self.expansion, self.bounds, self.second_order = expansion, bounds, second_order
        size, nu = expansion.size, expansion.model.nu
        ends = {name: shape for name, shape in expansion.here.items() if name in ("q", "v", *expansion.fixed)}
        here = {name: shape for name, shape in expansion.here.items() if name != "impulses"}

        def running(**values: Any) -> Any:
            return expansion.quadratic({"impulses": [], **values})

        def terminal(**values: Any) -> Any:
            return expansion.quadratic(values, controlled=False)

        def feedback(hessian: Any, mixed: Any, slope: Any, control: Any, mu: Any) -> Any:
            feed, gain, fine = gains(hessian.tolist(), mixed.tolist(), list(slope), list(control), mu, bounds)
            return np.array(feed, dtype=object), np.array(gain, dtype=object), select(fine, 1.0, 0.0)

        self._running, self._terminal = Function(running, here), Function(terminal, ends)
        shapes = {"hessian": (nu, nu), "mixed": (nu, size), "slope": (nu,), "control": (nu,), "mu": ()}
        self._feedback = Function(feedback, shapes)
        self._here, self._ends = tuple(here), tuple(ends)
        self._bent: Function | None = None
        if second_order:
            weights = expansion.model.nv if expansion.straight else size

            def bent(weights: Any, **values: Any) -> Any:
                return np.array(expansion.bent(values, list(weights)), dtype=object)

            self._bent = Function(bent, {"weights": (weights,), **expansion.here})

    def __call__(self, problems: Problems, shared: Mapping[str, torch.Tensor], into: Gains | None = None) -> Gains:
        """See `Fused`; the results are new tensors."""
        expansion, n = self.expansion, self.expansion.size
        once, path = {**shared, **problems.once}, problems.each
        mu, fixed = once["mu"], {name: once[name] for name in expansion.fixed}
        end = {"q": once["last_q"], "v": once["last_v"], **fixed}
        slope, bend = self._terminal(*[end[name] for name in self._ends])
        slopes, hessians = self._running(*[{**path, **fixed}[name] for name in self._here])
        jacobians = expansion.jacobians(path, fixed)
        steps, batch = path["control"].shape[:2]
        slopes, hessians = slopes.expand(steps, batch, -1), hessians.expand(steps, batch, -1, -1)
        first, second, fine = torch.zeros_like(mu), torch.zeros_like(mu), torch.ones_like(mu)
        feeds, all_gains = [], []
        for t in reversed(range(steps)):
            jacobian = jacobians[t]
            linear = slopes[t] + (slope.unsqueeze(-2) @ jacobian).squeeze(-2)
            q = hessians[t] + jacobian.mT @ bend @ jacobian
            if self._bent is not None:
                q = q + self._curved(path, fixed, slope, t)
            corner, mixed = q[:, n:, n:], q[:, n:, :n]
            feed, gain, good = self._feedback(
                corner.contiguous(), mixed.contiguous(), linear[:, n:].contiguous(), path["control"][t], mu
            )
            pulls = mixed - mu[:, None, None] * gain
            slope = linear[:, :n] + (feed.unsqueeze(-2) @ pulls).squeeze(-2)
            bend = q[:, :n, :n] + pulls.mT @ gain
            bend = 0.5 * (bend + bend.mT)
            first = first + (linear[:, n:] * feed).sum(-1)
            second = second + 0.5 * (feed.unsqueeze(-2) @ corner @ feed.unsqueeze(-1)).squeeze((-2, -1))
            fine = fine * good
            feeds.append(feed)
            all_gains.append(gain)
        return Gains(torch.stack(feeds[::-1]), torch.stack(all_gains[::-1]), first, second, fine)

    def _curved(
        self, path: Mapping[str, torch.Tensor], fixed: Mapping[str, torch.Tensor], slope: torch.Tensor, t: int
    ) -> torch.Tensor:
        """The second derivatives of a step, weighted with the slope of the cost to go."""
        assert self._bent is not None
        expansion, nv = self.expansion, self.expansion.model.nv
        if expansion.straight:
            slope = expansion.world.dt * slope[:, :nv] + slope[:, nv:]
        here = [fixed[name] if name in fixed else path[name][t] for name in expansion.here]
        return self._bent(slope, *here)
