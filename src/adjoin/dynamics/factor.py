"""The factor of the inertia matrix from articulated inertias, and its inverse for many right sides.

Factoring M loses digits that it need not lose: its entries are sums over all that a joint carries. For joints of one
direction, the D and L of M = Lᵀ D L are those of the articulated-body algorithm (Featherstone, chapter 7): D = Sᵀ U and
L_ki = S_i . U_k / D_k with U = I S, lifted to the origin of each body that carries the joint. A joint of several
directions has a small factor of its own on the diagonal.
"""

from collections.abc import Sequence

from adjoin.dynamics.aba import require_inertia
from adjoin.dynamics.linear import Factor, Rows, is_zero
from adjoin.dynamics.subtrees import Subtrees
from adjoin.model.parts import WORLD
from adjoin.spatial import articulated
from adjoin.spatial.articulated import Articulated
from adjoin.spatial.inertia import from_matrix
from adjoin.spatial.motion import Spatial, spatial_dot
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import IDENTITY


class InertiaFactor(Factor):
    """The factor of the inertia matrix with armature. For joints that follow others, M is factored."""

    def __init__(self, subtrees: Subtrees):
        nv = subtrees.robot.nv
        if subtrees.robot.coupled:
            super().__init__(_matrix(subtrees))
        else:
            self.lower: Rows = [[0.0] * dof for dof in range(nv)]
            self.inverse: list[Scalar] = [0.0] * nv
            self._recurse(subtrees)

    def _recurse(self, subtrees: Subtrees) -> None:
        robot, armature = subtrees.robot, subtrees.robot.numbers("armature")
        inertias: list[Articulated] = []
        for moments, operators in zip(subtrees.bodies, subtrees.alone, strict=True):
            inertias.append(articulated.from_rigid(moments.mass, moments.first, from_matrix(operators.about)))
        for body in reversed(range(robot.count)):
            directions = subtrees.directions[body]
            U = [articulated.apply(inertias[body], s) for _, s in directions]
            D = [[spatial_dot(s, u) for u in U] for _, s in directions]
            for k, (dof, _) in enumerate(directions):
                D[k][k] = D[k][k] + armature[dof]
                require_inertia(robot, dof, D[k][k])
            joint = Factor(D)
            self._enter(subtrees, body, joint, U)
            parent = robot.parents[body]
            if parent != WORLD:
                left = articulated.through_joint(inertias[body], (), U, joint, 0.0)
                moved = articulated.to_parent((IDENTITY, subtrees.offsets[body]), left)
                inertias[parent] = articulated.add(inertias[parent], moved)

    def _enter(self, subtrees: Subtrees, body: int, joint: Factor, U: list[Spatial]) -> None:
        """Enter the rows of one joint."""
        directions = subtrees.directions[body]
        for k, ((dof, _), u) in enumerate(zip(directions, _halves(joint, U), strict=True)):
            self.inverse[dof] = joint.inverse[k]
            for (place, _), entry in zip(directions, joint.lower[k], strict=False):
                self.lower[dof][place] = entry
            for other, force in zip(subtrees.paths[body][1:], subtrees.lifted(body, u)[1:], strict=True):
                for place, s in subtrees.directions[other]:
                    self.lower[dof][place] = spatial_dot(s, force) * joint.inverse[k]


def _halves(joint: Factor, U: list[Spatial]) -> list[Spatial]:
    """Return L⁻ᵀ U with the L of a joint's own factor."""
    rows = [joint.solve_upper(row) for row in zip(*[(*u[0], *u[1]) for u in U], strict=True)]
    return [((a, b, c), (d, e, f)) for a, b, c, d, e, f in zip(*rows, strict=True)]


def _matrix(subtrees: Subtrees) -> Rows:
    matrix = subtrees.inertia()
    for dof, armature in enumerate(subtrees.robot.numbers("armature")):
        matrix[dof][dof] = matrix[dof][dof] + armature
        require_inertia(subtrees.robot, dof, matrix[dof][dof])
    return matrix


class FactoredInverse:
    """The inverse of a factored matrix, for many right sides: W D⁻¹ Wᵀ, where W = L⁻¹ is zero wherever L is.

    With W instead of L, a row of the result does not wait for the rows before it, and reads fewer numbers.
    """

    def __init__(self, factor: Factor):
        self.factor = factor
        self.W: Rows = []
        for k, entries in enumerate(factor.lower):
            row: list[Scalar] = [0.0] * k
            for i in (i for i, entry in enumerate(entries) if not is_zero(entry)):
                row[i] = row[i] - entries[i]
                for j, other in enumerate(self.W[i]):
                    if not is_zero(other):
                        row[j] = row[j] - entries[i] * other
            self.W.append(row)

    def matrix(self) -> Rows:
        """Return M⁻¹, both halves."""
        n = len(self.W)
        scaled = [[w * d for w, d in zip(row, self.factor.inverse, strict=False)] for row in self.W]
        inverse: Rows = [[0.0] * n for _ in range(n)]
        for i in range(n):
            for k in range(i + 1):
                start = self.factor.inverse[i] if i == k else scaled[i][k]
                inverse[i][k] = inverse[k][i] = _plus_product(start, self.W[k], scaled[i])
        return inverse

    def times(self, matrix: Sequence[Sequence[Scalar]], scale: float = 1.0) -> Rows:
        """Return scale M⁻¹ B."""
        scaled = [scale * d for d in self.factor.inverse]
        columns = []
        for right in zip(*matrix, strict=True):
            x = [0.0 if is_zero(z) else z * d for z, d in zip(self.factor.solve_upper(right), scaled, strict=True)]
            columns.append([_plus_product(x[i], row, x) for i, row in enumerate(self.W)])
        return [list(row) for row in zip(*columns, strict=True)]


def _plus_product(start: Scalar, row: Sequence[Scalar], x: Sequence[Scalar]) -> Scalar:
    """Return start + row . x, over the length of the shorter."""
    for w, value in zip(row, x, strict=False):
        if not is_zero(w) and not is_zero(value):
            start = start + w * value
    return start
