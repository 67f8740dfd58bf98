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
from adjoin.control.expansion import Expansion, Rows, folded, jacobian, plain, units
from adjoin.control.riccati import Fused, Step, straightened
from adjoin.dynamics.linear import Factor
from adjoin.simulation.integrators import Equations, SemiImplicit
from adjoin.simulation.rollout import Values, flat
from adjoin.simulation.world_rollout import plant_of
from adjoin.spatial.scalar import Scalar
from adjoin.trace import when


class Balance:
    """What a motion takes: the equation of a step in (q, v, control) and the velocity after it.

    Args:
        expansion: of the step.

    Attributes:
        scale: what a control must change by for each unit that is missing; empty where controls do not follow from the
            motion like this.
    """

    def __init__(self, expansion: Expansion):
        self._expansion = expansion
        self.scale: list[float] = []
        nv, nu = expansion.model.nv, expansion.model.nu
        if not expansion.straight or nv != nu or expansion.loops:
            return
        if any(isinstance(shape, Table) for shape in expansion.here.values()):
            return
        slots = [*[TensorSpec(name, shape) for name, shape in expansion.here.items()], TensorSpec("after", (nv,))]
        columns: list[list[Scalar]] = []
        constrained: list[bool] = []

        def missing(change: Any, **values: Any) -> Any:
            values = expansion._changed(values, change)
            equations = self._equations(values)
            constrained.append(bool(equations.blocks))
            return np.array(equations.free.residual(list(values["after"] - values["v"])), dtype=object)

        self._program, _ = trace("balance", missing, [*slots, TensorSpec("change", (expansion.width,))])
        push, _ = jvp(self._program, [False] * len(slots) + [True])

        def block(**values: Any) -> Any:
            arguments = self._arguments(values)
            columns.extend(plain(folded(push, [*arguments, unit])[0]) for unit in units(expansion.width)[2 * nv :])
            return values["after"]

        trace("balance", block, slots)
        diagonal = [column[i] for i, column in enumerate(columns)]
        apart = all(x == 0.0 for i, column in enumerate(columns) for j, x in enumerate(column) if i != j)
        if not any(constrained) and apart and all(isinstance(x, float) and x != 0.0 for x in diagonal):
            self.scale = [-1.0 / x for x in diagonal]

    def _equations(self, values: Values) -> Equations:
        """The equations of one step."""
        world = self._expansion.world
        assert isinstance(world.integrator, SemiImplicit)
        return world.integrator.equations(plant_of(world, values), list(values["q"]), list(values["v"]))

    def columns(self, values: Values) -> Rows:
        """The derivatives of what is missing to dq, dv and the velocity after the step, column by column."""
        rows = jacobian(self._program, self._arguments(values))
        before = [list(column) for column in zip(*rows, strict=True)][: self._expansion.size]
        return [*before, *self._equations(values).free.inertia]

    def _arguments(self, values: Values) -> list[list[Any]]:
        *given, change = self._program.inputs
        return [*[flat(values[slot.name]) for slot in given], [0.0] * change.size]


class Inverse(Fused):
    """The whole pass as one launch; see `Fused`. The balance must have a scale."""

    def __init__(self, expansion: Expansion, balance: Balance):
        self._balance = balance
        super().__init__(expansion, [(-np.inf, np.inf)] * expansion.model.nu, False)

    def _step(self, here: Values, after: list[Scalar], slope: list[Scalar], bend: Rows, mu: Scalar) -> Step:
        """See `Fused`. What is zero, or not used, costs nothing: numpy need not know."""
        expansion, n = self.expansion, self.expansion.size
        where = [*range(expansion.model.nv), *range(n, expansion.width)]  # of q and w
        slope, bend = straightened(slope, bend, expansion.world.dt)
        slopes, hessian = (np.array(x, dtype=object) for x in expansion.quadratic(here))
        # T, and derivatives to the control, are in units of what is missing instead of the control.
        scale = np.array(self._balance.scale)
        T = np.array(self._balance.columns({**here, "after": np.array(after, dtype=object)}), dtype=object).T
        square = scale[:, None] * hessian[n:, n:] * scale + mu * np.diag(scale**2)
        mixed = np.zeros(T.shape, dtype=object)
        mixed[:, :n] = scale[:, None] * hessian[n:, :n]
        linear = T.T @ (scale * slopes[n:])
        linear[:n] += slopes[:n]
        linear[where] += slope
        Q = T.T @ (square @ T + mixed) + mixed.T @ T
        Q[:n, :n] += hessian[:n, :n]
        Q[np.ix_(where, where)] += bend

        factor = Factor(Q[n:, n:].tolist())
        fine = functools.reduce(operator.and_, [x > 0.0 for x in factor.inverse])
        step = np.array(factor.solve((-linear[n:]).tolist()), dtype=object)
        turn = np.array([factor.solve((-side).tolist()) for side in Q[:n, n:]], dtype=object).T
        feed, gain = scale * (T[:, n:] @ step), scale[:, None] * (T[:, :n] + T[:, n:] @ turn)
        following = linear[:n] + Q[:n, n:] @ step
        upper = np.triu_indices(n)
        bent = (Q[:n, :n] + Q[:n, n:] @ turn)[upper]

        def unregularized(values: Any) -> Any:
            following, bent, feed, gain, mu = values
            return following - mu * (feed @ gain), bent - mu * (gain.T @ gain)[upper], feed, gain, mu

        following, bent, *_ = when(mu > 0.0, unregularized, (following, bent, feed, gain, mu))
        fall = linear[n:] @ step
        second = -0.5 * (fall + mu * (feed @ feed))
        return Step(list(feed), gain.tolist(), list(following), list(bent), fall, second, fine)
