"""The backward pass by inverse dynamics, for robots whose controls follow from their motion.

Where each degree of freedom has an actuator of its own without limits, and nothing is in contact, a change of the
control is du = T (dq, dv, dw), with w the velocity after the step. In (dq, dv, dw) the state after it, (q + dt w, w),
needs no derivatives, those of inverse dynamics cost less than those of forward dynamics, and with x = (q, v)

    Q = l_xx + l_xu T + Tᵀ l_ux + Tᵀ (l_uu + mu) T + V,    k = T_w k_w,    k_w = -Q_ww⁻¹ Q_w,
    K = T_x + T_w K_w,    K_w = -Q_ww⁻¹ Q_wx,    V_x = Q_x + Q_xw k_w - mu Kᵀk,    V_xx = Q_xx + Q_xw K_w - mu KᵀK.

T grows with 1/dt, and much of Tᵀ l_uu T cancels in V_xx, for which single precision is not enough.
"""

import functools
import operator
from typing import Any

import numpy as np

from adjoin.compiler.autodiff.derivatives import jvp
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime.function import Table
from adjoin.control.ilqr.backward_pass import BackwardStep, FusedBackwardPass, semi_implicit_value
from adjoin.control.ilqr.local_model import LocalModel, Rows, identity_rows, inlined, jacobian, unwrapped
from adjoin.dynamics.linear import Factor
from adjoin.simulation.integrators import Equations, SemiImplicit
from adjoin.simulation.rollout import Values, flat
from adjoin.simulation.world_rollout import plant_of
from adjoin.spatial.scalar import Scalar
from adjoin.trace import when


class InverseDynamics:
    """The equation of a step in (q, v, control) and the velocity after it, and its derivatives.

    Args:
        local: model of the step.

    Attributes:
        scale: what a control must change by for each unit that is missing; empty where controls do not follow from the
            motion like this.
    """

    def __init__(self, local: LocalModel):
        self._expansion = local
        self.scale: list[float] = []
        nv, nu = local.model.nv, local.model.nu
        if not local.semi_implicit or nv != nu or local.loops:
            return
        if any(isinstance(shape, Table) for shape in local.inputs.values()):
            return
        specs = [*[TensorSpec(name, shape) for name, shape in local.inputs.items()], TensorSpec("after", (nv,))]
        columns: Rows = []
        constrained: list[bool] = []

        def missing(change: Any, **values: Any) -> Any:
            values = local.displaced(values, change)
            equations = self._equations(values)
            constrained.append(bool(equations.blocks))
            return np.array(equations.free.residual(list(values["after"] - values["v"])), dtype=object)

        self._program, _ = trace("inverse_dynamics", missing, [*specs, TensorSpec("change", (local.width,))])
        push, _ = jvp(self._program, [False] * len(specs) + [True])

        def control_columns(**values: Any) -> Any:
            arguments = self._arguments(values)
            columns.extend(
                unwrapped(inlined(push, [*arguments, unit])[0]) for unit in identity_rows(local.width)[2 * nv :]
            )
            return values["after"]

        trace("inverse_dynamics", control_columns, specs)
        diagonal = [column[i] for i, column in enumerate(columns)]
        decoupled = all(x == 0.0 for i, column in enumerate(columns) for j, x in enumerate(column) if i != j)
        if not any(constrained) and decoupled and all(isinstance(x, float) and x != 0.0 for x in diagonal):
            self.scale = [-1.0 / x for x in diagonal]

    def _equations(self, values: Values) -> Equations:
        """The equations of one step."""
        world = self._expansion.world
        assert isinstance(world.integrator, SemiImplicit)
        return world.integrator.equations(plant_of(world, values), list(values["q"]), list(values["v"]))

    def columns(self, values: Values) -> Rows:
        """Return the derivatives of the residual to dq, dv and the velocity after the step, column by column."""
        rows = jacobian(self._program, self._arguments(values))
        before = [list(column) for column in zip(*rows, strict=True)][: self._expansion.size]
        return [*before, *self._equations(values).free.inertia]

    def _arguments(self, values: Values) -> list[list[Any]]:
        *inputs, change = self._program.inputs
        return [*[flat(values[spec.name]) for spec in inputs], [0.0] * change.size]


class InverseDynamicsBackwardPass(FusedBackwardPass):
    """The whole pass as one launch; see `FusedBackwardPass`. The inverse_dynamics must have a scale."""

    def __init__(self, local: LocalModel, inverse_dynamics: InverseDynamics):
        self._inverse_dynamics = inverse_dynamics
        super().__init__(local, [(-np.inf, np.inf)] * local.model.nu, False)

    def _step(
        self, inputs: Values, v_after: list[Scalar], value_x: list[Scalar], value_xx: Rows, mu: Scalar
    ) -> BackwardStep:
        """See `FusedBackwardPass`. What is zero, or not used, costs nothing: numpy need not know."""
        local, n = self.local, self.local.size
        where = [*range(local.model.nv), *range(n, local.width)]  # of q and w
        value_x, value_xx = semi_implicit_value(value_x, value_xx, local.world.dt)
        gradient, hessian = (np.array(x, dtype=object) for x in local.quadratic(inputs))
        # T, and derivatives to the control, are in units of the residual instead of the control.
        scale = np.array(self._inverse_dynamics.scale)
        T = np.array(
            self._inverse_dynamics.columns({**inputs, "after": np.array(v_after, dtype=object)}), dtype=object
        ).T
        square = scale[:, None] * hessian[n:, n:] * scale + mu * np.diag(scale**2)
        mixed = np.zeros(T.shape, dtype=object)
        mixed[:, :n] = scale[:, None] * hessian[n:, :n]
        q_gradient = T.T @ (scale * gradient[n:])
        q_gradient[:n] += gradient[:n]
        q_gradient[where] += value_x
        Q = T.T @ (square @ T + mixed) + mixed.T @ T
        Q[:n, :n] += hessian[:n, :n]
        Q[np.ix_(where, where)] += value_xx

        factor = Factor(Q[n:, n:].tolist())
        positive = functools.reduce(operator.and_, [x > 0.0 for x in factor.inverse])
        step = np.array(factor.solve((-q_gradient[n:]).tolist()), dtype=object)
        step_gain = np.array([factor.solve((-side).tolist()) for side in Q[:n, n:]], dtype=object).T
        feedforward, gain = scale * (T[:, n:] @ step), scale[:, None] * (T[:, :n] + T[:, n:] @ step_gain)
        before_x = q_gradient[:n] + Q[:n, n:] @ step
        upper = np.triu_indices(n)
        before_xx = (Q[:n, :n] + Q[:n, n:] @ step_gain)[upper]

        def unregularized(values: Any) -> Any:
            before_x, before_xx, feedforward, gain, mu = values
            return before_x - mu * (feedforward @ gain), before_xx - mu * (gain.T @ gain)[upper], feedforward, gain, mu

        before_x, before_xx, *_ = when(mu > 0.0, unregularized, (before_x, before_xx, feedforward, gain, mu))
        linear = q_gradient[n:] @ step
        quadratic = -0.5 * (linear + mu * (feedforward @ feedforward))
        value = list(before_x), list(before_xx)
        return BackwardStep(list(feedforward), gain.tolist(), *value, linear, quadratic, positive)
