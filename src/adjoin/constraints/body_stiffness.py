"""What contacts with what does not move add to the matrix of a step, body by body.

Such a contact adds Jᵀ S J, where J has the directions of all coordinates that carry its body. That is J_bᵀ K J_b with
the Jacobian J_b of the body and a symmetric K of 6 x 6: the stiffness of the contact against motions of the body. These
matrices add up over the contacts of a body, and along the tree as inertias do in the composite-rigid-body algorithm
(Featherstone, chapter 6.2). So a contact costs the same however long its chain is.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adjoin.constraints.motions import Motions
from adjoin.dynamics.linear import dot
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import Spatial
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Matrix3
from adjoin.trace import Scratch, scratch

if TYPE_CHECKING:
    from adjoin.constraints.contact_rows import ContactFrame

LOWER = [(i, j) for i in range(3) for j in range(i + 1)]
NUMBERS = 2 * len(LOWER) + 9
"""Of a stiffness: its angular and its linear block, of which the lower halves, and the block between them."""


class BodyStiffness:
    """The stiffness of bodies, in an array of the kernel.

    Motions are those of the point of a body that is at the base of its tree, so that it does not matter how far from
    the origin of the world a robot is.

    Args:
        motions: the directions of the coordinates.
        bodies: those that have contacts with what does not move.

    Attributes:
        places: where in the lower half of a matrix something is added.
    """

    def __init__(self, motions: Motions, bodies: Sequence[int]):
        self.motions, self.bodies = motions, list(bodies)
        state = motions.state
        ways = {body: state.robot.ancestors(body) for body in self.bodies}
        self._moving = sorted({body for way in ways.values() for body in way})
        bases = {body: state.poses[state.robot.ancestors(body)[-1]][1] for body in self._moving}
        self.base = scratch([x for body in self.bodies for x in bases[body]] or [0.0], checked=False)
        self._directions: dict[int, list[tuple[int, Spatial]]] = {
            body: [
                (dof, (angular, vector.add(linear, vector.cross(angular, bases[body]))))
                for dof, (angular, linear) in motions.directions[body]
            ]
            for body in self._moving
        }
        dofs = [
            (dof, other)
            for body in self._moving
            for k, (dof, _) in enumerate(self._directions[body])
            for other, _ in self._before(body, k)
        ]
        self.places = sorted({(max(both), min(both)) for both in dofs})

    def array(self) -> Scratch:
        """Room for the stiffness of every body, all zero."""
        return scratch(NUMBERS * max(1, len(self.bodies)), checked=False)

    def add(self, array: Scratch, place: Any, contact: "ContactFrame", stiffness: Sequence[Sequence[Scalar]]) -> None:
        """Add a contact's.

        Args:
            array: what has been added so far.
            place: of its body among the bodies.
            contact: where it is.
            stiffness: of its rows, the lower half of a symmetric matrix.
        """
        linear, angular = range(min(3, len(stiffness))), range(3, len(stiffness))

        def block(rows: Sequence[int], columns: Sequence[int]) -> Matrix3:
            """Some entries of the stiffness as a matrix in world axes."""
            total = [[0.0] * 3 for _ in range(3)]
            for r in rows:
                line = vector.ZERO
                for s in columns:
                    line = vector.add(line, vector.scale(stiffness[max(r, s)][min(r, s)], contact.axes[s % 3]))
                for i in range(3):
                    for j in range(3 if rows != columns else i + 1):
                        total[i][j] = total[i][j] + contact.axes[r % 3][i] * line[j]
            return vector.matrix3(total) if rows != columns else _mirrored(total)

        # The point of the body at the contact moves by v - d x w, where v is the motion at the base.
        d = vector.subtract(contact.position, vector.vector3([self.base[place * 3 + k] for k in range(3)]))

        def crossed(matrix: Matrix3) -> Matrix3:
            return vector.matrix3([vector.cross(d, row) for row in matrix])

        pushing, turning, mixed = block(linear, linear), block(angular, angular), block(angular, linear)
        between = _sum(mixed, vector.transpose(crossed(pushing)))
        turning = _sum(turning, _sum(crossed(between), vector.transpose(crossed(mixed))))
        numbers = [*[turning[i][j] for i, j in LOWER], *sum(between, ()), *[pushing[i][j] for i, j in LOWER]]
        for k, x in enumerate(numbers):
            array.add(place * NUMBERS + k, x)

    def entries(self, array: Scratch) -> list[Scalar]:
        """What is added to a matrix of nv rows, at `places`."""
        robot = self.motions.state.robot
        totals = {body: [array[NUMBERS * place + k] for k in range(NUMBERS)] for place, body in enumerate(self.bodies)}
        sums: dict[tuple[int, int], Scalar] = dict.fromkeys(self.places, 0.0)
        for body in reversed(self._moving):
            total, parent = totals[body], robot.parents[body]
            if parent != WORLD:
                below = totals.get(parent, [0.0] * NUMBERS)
                totals[parent] = [x + y for x, y in zip(below, total, strict=True)]
            for k, (dof, motion) in enumerate(self._directions[body]):
                force = _times(total, motion)
                for other, moving in self._before(body, k):
                    value = dot([*moving[0], *moving[1]], force)
                    twice = dof == other and moving is not motion  # a coordinate that is in a chain twice
                    place = max(dof, other), min(dof, other)
                    sums[place] = sums[place] + (2.0 * value if twice else value)
        return list(sums.values())

    def _before(self, body: int, direction: int) -> list[tuple[int, Spatial]]:
        """The directions up to one of a body's, of it and of what it hangs on."""
        others = [own for other in self.motions.state.robot.ancestors(body)[1:] for own in self._directions[other]]
        return [*self._directions[body][: direction + 1], *others]


def _mirrored(lower: Sequence[Sequence[Scalar]]) -> Matrix3:
    return vector.matrix3([[lower[max(i, j)][min(i, j)] for j in range(3)] for i in range(3)])


def _sum(a: Matrix3, b: Matrix3) -> Matrix3:
    return vector.matrix3([vector.add(x, y) for x, y in zip(a, b, strict=True)])


def _times(numbers: Sequence[Scalar], motion: Spatial) -> list[Scalar]:
    """A stiffness times a motion: moment and force."""
    blocks = [dict(zip(LOWER, values, strict=True)) for values in (numbers[:6], numbers[15:])]
    turning, pushing = (_mirrored([[x[i, j] for j in range(i + 1)] for i in range(3)]) for x in blocks)
    between = vector.matrix3([numbers[6 + 3 * i : 9 + 3 * i] for i in range(3)])
    angular, linear = motion
    moment = [dot([*row, *other], [*angular, *linear]) for row, other in zip(turning, between, strict=True)]
    across = vector.transpose(between)
    return [*moment, *[dot([*row, *other], [*angular, *linear]) for row, other in zip(across, pushing, strict=True)]]
