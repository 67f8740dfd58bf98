"""The backward pass of differential dynamic programming: from the cost's and the steps' derivatives to gains.

Mayne 1966. With V the cost to go from the next step, Q = l + V o step to second order in (dx, du), and mu the
regularization, `box_qp` gives k and K:

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
from adjoin.control.ilqr.box_qp import Bounds, solve_box_qp
from adjoin.control.ilqr.local_model import LocalModel, Rows, identity_rows
from adjoin.control.ilqr.problem_batch import ProblemBatch
from adjoin.dynamics.linear import dot
from adjoin.simulation.rollout import Values
from adjoin.spatial.scalar import Scalar
from adjoin.trace import scan, select

MAX_FUSED_SIZE = 28
"""The size of dx and du together up to which the whole pass is one launch."""


class Gains(NamedTuple):
    """The result of a backward pass.

    Attributes:
        feedforward: k, (steps, batch, nu).
        gain: K, (steps, batch, nu, 2 nv).
        linear: the expected change of the cost to first order in the step length, (batch,).
        quadratic: and to second order, (batch,).
        positive: 1 where all Hessians were positive definite, else 0, (batch,).
    """

    feedforward: torch.Tensor
    gain: torch.Tensor
    linear: torch.Tensor
    quadratic: torch.Tensor
    positive: torch.Tensor


class BackwardStep(NamedTuple):
    """One step of the pass, over scalars.

    Attributes:
        feedforward: k.
        gain: K.
        gradient: V_x.
        hessian: V_xx, on and above the diagonal, row by row.
        linear: the expected change of the cost to first order.
        quadratic: and to second order.
        positive: whether the Hessian was positive definite.
    """

    feedforward: list[Scalar]
    gain: Rows
    gradient: list[Scalar]
    hessian: list[Scalar]
    linear: Scalar
    quadratic: Scalar
    positive: Any


class FusedBackwardPass:
    """The whole pass as one launch.

    Args:
        local: model of steps and costs.
        bounds: of the controls.
        second_order: whether the steps' second derivatives count.
    """

    def __init__(self, local: LocalModel, bounds: Bounds, second_order: bool):
        self.local, self.bounds, self.second_order = local, bounds, second_order
        streams = {name: PerStep(shape) for name, shape in local.inputs.items() if name not in local.constant_inputs}
        ends = {f"last_{name}": local.states[name] for name in ("q", "v")}

        def backward(**values: Any) -> Any:
            return self._backward(values)

        backward.__name__ = f"riccati({local.model.name})"
        self._streams, self._fixed = tuple(streams), tuple(local.constant_inputs)
        inputs = {**streams, **ends, "mu": (), **local.constant_inputs}
        self._inputs, self._function = tuple(inputs), Function(backward, inputs)

    def __call__(self, problems: ProblemBatch, shared: Mapping[str, torch.Tensor], into: Gains | None = None) -> Gains:
        """Return the gains along the trajectories of problems.

        Args:
            problems: with trajectories.
            shared: parameters and named tensors that are the same for all problems.
            into: contiguous tensors for the results.
        """
        per_problem, per_step = {**shared, **problems.per_problem}, problems.per_step
        tensors = [per_step[name] if name in self._streams else per_problem[name] for name in self._inputs]
        kernel, batch, tensors = arrange(self._function.kernel, tensors)
        return Gains(*kernel.run(tensors, (len(per_step["control"]),), batch, into))

    def _backward(self, values: Values) -> dict[str, Any]:
        local, mu = self.local, values["mu"]
        fixed = {name: values[name] for name in self._fixed}
        end = {"q": values["last_q"], "v": values["last_v"], **fixed}
        value_x, value_xx = local.quadratic(end, controlled=False)

        def body(_: Any, carry: Any, elements: list[Any]) -> tuple[Any, Any]:
            inputs = {**dict(zip(self._streams, elements, strict=True)), **fixed}
            value_x, value_xx, v_after, linear, quadratic, positive = carry
            step = self._step(inputs, v_after, value_x, symmetric(value_xx, local.size), mu)
            linear, quadratic = linear + step.linear, quadratic + step.quadratic
            positive = select(step.positive, positive, 0.0)
            carry = (step.gradient, step.hessian, list(inputs["v"]), linear, quadratic, positive)
            return carry, {"feedforward": step.feedforward, "gain": step.gain}

        upper = [value_xx[i][j] for i in range(len(value_x)) for j in range(i, len(value_x))]
        start = (value_x, upper, list(end["v"]), 0.0, 0.0, 1.0)
        last, gains = scan(body, start, [values[name] for name in self._streams], reverse=True)
        return {**gains, **dict(zip(("linear", "quadratic", "positive"), last[3:], strict=True))}

    def _step(
        self, inputs: Values, v_after: list[Scalar], value_x: list[Scalar], value_xx: Rows, mu: Scalar
    ) -> BackwardStep:
        """One step back: `v_after` is the velocity after it, value_x and value_xx are V_x and V_xx there."""
        local, n = self.local, self.local.size
        columns, value_x, value_xx = self._linearize(inputs, value_x, value_xx)
        cost_gradient, hessian = self._costs(inputs, value_x)
        gradient = [g + dot(column, value_x) for g, column in zip(cost_gradient, columns, strict=True)]
        # Q = l + JᵀVJ. The rows of J that are the identity's cost next to nothing, and only they need those of VJ.
        same = local.model.nv if local.semi_implicit else 0
        products = [[dot(row, column) for row in value_xx[same:]] for column in columns]

        def entry(i: int, j: int) -> Scalar:
            q = hessian[i][j] + dot(products[i], columns[j][same:])
            return q + dot(value_xx[j], columns[i]) if j < same else q

        controls = range(n, local.width)
        mixed = [[entry(i, j) for i in range(n)] for j in controls]
        q_uu = symmetric([entry(i, j) for i in controls for j in controls[i - n :]], len(controls))
        feedforward, gain, positive = solve_box_qp(q_uu, mixed, gradient[n:], list(inputs["control"]), mu, self.bounds)
        gain_columns = [list(column) for column in zip(*gain, strict=True)]
        pulls = [[m[i] - mu * g for m, g in zip(mixed, gain_columns[i], strict=True)] for i in range(n)]
        before_x = [gradient[i] + dot(pulls[i], feedforward) for i in range(n)]
        before_xx = [entry(i, j) + dot(pulls[i], gain_columns[j]) for i in range(n) for j in range(i, n)]
        linear = dot(gradient[n:], feedforward)
        quadratic = 0.5 * dot(feedforward, [dot(row, feedforward) for row in q_uu])
        return BackwardStep(feedforward, gain, before_x, before_xx, linear, quadratic, positive)

    def _linearize(self, inputs: Values, value_x: list[Scalar], value_xx: Rows) -> tuple[Rows, list[Scalar], Rows]:
        """The columns of a step's Jacobian, and the cost to go as a function of what its rows stand for."""
        local = self.local
        rows = local.jacobian(inputs)
        if local.semi_implicit:
            value_x, value_xx = semi_implicit_value(value_x, value_xx, local.world.dt)
            rows = [*identity_rows(local.width)[: local.model.nv], *rows]
        return [list(column) for column in zip(*rows, strict=True)], value_x, value_xx

    def _costs(self, inputs: Values, value_x: list[Scalar]) -> tuple[list[Scalar], Rows]:
        """Gradient and Hessian of the running cost; the Hessian with that of the step, if it counts."""
        gradient, hessian = self.local.quadratic(inputs)
        if self.second_order:
            weights = value_x[self.local.model.nv :] if self.local.semi_implicit else value_x
            of_step = self.local.second_derivatives(inputs, weights)
            hessian = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(hessian, of_step, strict=True)]
        return gradient, hessian


def semi_implicit_value(value_x: list[Scalar], value_xx: Rows, dt: float) -> tuple[list[Scalar], Rows]:
    """The cost to go as a function of (q before, v after), of which the state after is (q + dt v, v)."""
    nv = len(value_x) // 2
    above, below = range(nv), range(nv, 2 * nv)
    side = [[dt * value_xx[i][j - nv] + value_xx[i][j] for j in below] for i in above]
    corner = [dt * (side[i][j] + value_xx[j][nv + i]) + value_xx[nv + i][nv + j] for i in above for j in above[i:]]
    square = symmetric(corner, nv)
    left = [[*value_xx[i][:nv], *side[i]] for i in above]
    right = [[*[side[j][i] for j in above], *square[i]] for i in above]
    return [*value_x[:nv], *[dt * a + b for a, b in zip(value_x[:nv], value_x[nv:], strict=True)]], [*left, *right]


def symmetric(upper: Sequence[Scalar], size: int) -> Rows:
    """Return the matrix with these entries on and above the diagonal, row by row."""
    entries = iter(upper)
    matrix: Rows = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i, size):
            matrix[i][j] = matrix[j][i] = next(entries)
    return matrix


class StepwiseBackwardPass:
    """The pass in several launches: all derivatives at once, then step by step.

    Args:
        local: model of steps and costs.
        bounds: of the controls.
        second_order: whether the steps' second derivatives count.
    """

    def __init__(self, local: LocalModel, bounds: Bounds, second_order: bool):
        self.local, self.bounds, self.second_order = local, bounds, second_order
        size, nu = local.size, local.model.nu
        ends = {name: shape for name, shape in local.inputs.items() if name in ("q", "v", *local.constant_inputs)}
        inputs = {name: shape for name, shape in local.inputs.items() if name not in local.world.memory}

        def running(**values: Any) -> Any:
            return local.quadratic({**dict.fromkeys(local.world.memory, ()), **values})

        def terminal(**values: Any) -> Any:
            return local.quadratic(values, controlled=False)

        def feedback(hessian: Any, mixed: Any, gradient: Any, control: Any, mu: Any) -> Any:
            feedforward, gain, positive = solve_box_qp(
                hessian.tolist(), mixed.tolist(), list(gradient), list(control), mu, bounds
            )
            return np.array(feedforward, dtype=object), np.array(gain, dtype=object), select(positive, 1.0, 0.0)

        self._running, self._terminal = Function(running, inputs), Function(terminal, ends)
        shapes = {"hessian": (nu, nu), "mixed": (nu, size), "gradient": (nu,), "control": (nu,), "mu": ()}
        self._feedback = Function(feedback, shapes)
        self._inputs, self._ends = tuple(inputs), tuple(ends)
        self._curvature: Function | None = None
        if second_order:
            weights = local.model.nv if local.semi_implicit else size

            def curvature(weights: Any, **values: Any) -> Any:
                return np.array(local.second_derivatives(values, list(weights)), dtype=object)

            self._curvature = Function(curvature, {"weights": (weights,), **local.inputs})

    def __call__(self, problems: ProblemBatch, shared: Mapping[str, torch.Tensor], into: Gains | None = None) -> Gains:
        """Return the gains, as `FusedBackwardPass` does; the results are new tensors."""
        local, n = self.local, self.local.size
        per_problem, path = {**shared, **problems.per_problem}, problems.per_step
        mu, fixed = per_problem["mu"], {name: per_problem[name] for name in local.constant_inputs}
        end = {"q": per_problem["last_q"], "v": per_problem["last_v"], **fixed}
        value_x, value_xx = self._terminal(*[end[name] for name in self._ends])
        gradients, hessians = self._running(*[{**path, **fixed}[name] for name in self._inputs])
        jacobians = local.jacobians(path, fixed)
        steps, batch = path["control"].shape[:2]
        gradients, hessians = gradients.expand(steps, batch, -1), hessians.expand(steps, batch, -1, -1)
        linear, quadratic, positive = torch.zeros_like(mu), torch.zeros_like(mu), torch.ones_like(mu)
        feedforwards, all_gains = [], []
        for t in reversed(range(steps)):
            jacobian = jacobians[t]
            gradient = gradients[t] + (value_x.unsqueeze(-2) @ jacobian).squeeze(-2)
            q = hessians[t] + jacobian.mT @ value_xx @ jacobian
            if self._curvature is not None:
                q = q + self._step_curvature(path, fixed, value_x, t)
            q_uu, mixed = q[:, n:, n:], q[:, n:, :n]
            feedforward, gain, step_positive = self._feedback(
                q_uu.contiguous(), mixed.contiguous(), gradient[:, n:].contiguous(), path["control"][t], mu
            )
            pulls = mixed - mu[:, None, None] * gain
            value_x = gradient[:, :n] + (feedforward.unsqueeze(-2) @ pulls).squeeze(-2)
            value_xx = q[:, :n, :n] + pulls.mT @ gain
            value_xx = 0.5 * (value_xx + value_xx.mT)
            linear = linear + (gradient[:, n:] * feedforward).sum(-1)
            curvature = (feedforward.unsqueeze(-2) @ q_uu @ feedforward.unsqueeze(-1)).squeeze((-2, -1))
            quadratic = quadratic + 0.5 * curvature
            positive = positive * step_positive
            feedforwards.append(feedforward)
            all_gains.append(gain)
        return Gains(torch.stack(feedforwards[::-1]), torch.stack(all_gains[::-1]), linear, quadratic, positive)

    def _step_curvature(
        self, path: Mapping[str, torch.Tensor], fixed: Mapping[str, torch.Tensor], value_x: torch.Tensor, t: int
    ) -> torch.Tensor:
        """The second derivatives of a step, weighted with V_x."""
        assert self._curvature is not None
        local, nv = self.local, self.local.model.nv
        if local.semi_implicit:
            value_x = local.world.dt * value_x[:, :nv] + value_x[:, nv:]
        inputs = [fixed[name] if name in fixed else path[name][t] for name in local.inputs]
        return self._curvature(value_x, *inputs)
