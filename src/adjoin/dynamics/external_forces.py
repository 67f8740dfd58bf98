"""External forces in the frames of `subtrees`, and how they change when their bodies move.

A force given in axes of the body is carried along by it: a small motion m of the body changes it by m x* f. One that
keeps its direction or its place in the world changes by something else, which is linear in m too.
"""

from typing import NamedTuple

from adjoin.dynamics.state import ExternalForce
from adjoin.dynamics.subtrees import Subtrees, force_from, matrix_add, outer
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import ZERO_SPATIAL, Spatial, force_to_child, force_to_parent, spatial_add
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Matrix3, Vector3


class SubtreeForce(NamedTuple):
    """External forces on a body, or on a subtree, and how they change as it moves.

    A motion (mu, nu) of what they act on adds (turning mu + arm x nu, pull x mu) to m x* f.
    """

    wrench: Spatial = ZERO_SPATIAL
    turning: Matrix3 = (ZERO, ZERO, ZERO)
    arm: Vector3 = ZERO
    pull: Vector3 = ZERO

    def change(self, m: Spatial) -> Spatial:
        """Return what a motion adds to m x* f."""
        moment = vector.add(vector.apply(self.turning, m[0]), vector.cross(self.arm, m[1]))
        return moment, vector.cross(self.pull, m[0])

    def change_transposed(self, m: Spatial) -> Spatial:
        """Return the force w with w . n = m . change(n)."""
        moment = vector.subtract(vector.apply_transposed(self.turning, m[0]), vector.cross(self.pull, m[1]))
        return moment, vector.cross(m[0], self.arm)


def _add(a: SubtreeForce, b: SubtreeForce) -> SubtreeForce:
    return SubtreeForce(
        spatial_add(a.wrench, b.wrench),
        matrix_add(a.turning, b.turning),
        vector.add(a.arm, b.arm),
        vector.add(a.pull, b.pull),
    )


def _shift(offset: Vector3, a: SubtreeForce) -> SubtreeForce:
    """Return the same about another origin, from which the old one is at `offset`."""
    moved = vector.subtract(a.arm, a.pull)
    # arm x (mu x offset) + offset x (pull x mu)
    turning = matrix_add(outer(a.pull, offset), outer(vector.negate(offset), a.arm))
    turning = matrix_add(turning, _multiple(vector.dot(moved, offset)))
    return SubtreeForce(force_from(offset, a.wrench), matrix_add(a.turning, turning), a.arm, a.pull)


def _multiple(x: Scalar) -> Matrix3:
    return ((x, 0.0, 0.0), (0.0, x, 0.0), (0.0, 0.0, x))


def subtree_forces(subtrees: Subtrees) -> list[SubtreeForce]:
    """Return the external forces on each body and all that it carries."""
    forces = [SubtreeForce()] * subtrees.robot.count
    for force in subtrees.state.external:
        if force.body != WORLD:
            forces[force.body] = _add(forces[force.body], _of_body(subtrees, force))
    return subtrees.subtree_sums(forces, _add, _shift)


def _of_body(subtrees: Subtrees, external: ExternalForce) -> SubtreeForce:
    wrench = (vector.vector3(external.wrench[3:]), vector.vector3(external.wrench[:3]))
    turn, path = subtrees.rotations[external.body], subtrees.paths[external.body]
    if external.reference == "local":
        wrench = force_to_parent(external.placement, wrench)
        return SubtreeForce((vector.apply(turn, wrench[0]), vector.apply(turn, wrench[1])))
    root = subtrees.state.transforms[path[-1]]
    if external.reference == "world":
        wrench = force_to_child(root, wrench)
        for body in reversed(path[:-1]):
            wrench = force_from(vector.negate(subtrees.offsets[body]), wrench)
        return SubtreeForce(wrench, vector.skew(wrench[0]), wrench[1], wrench[1])
    moment, force = vector.apply_transposed(root[0], wrench[0]), vector.apply_transposed(root[0], wrench[1])
    point = vector.apply(turn, external.placement[1])
    # It is not turned with the body: -mu x moment - point x (mu x force) = ([moment]x + force pointᵀ - force.point) mu.
    turning = matrix_add(outer(force, point), _multiple(-vector.dot(point, force)))
    turning = matrix_add(vector.skew(moment), turning)
    return SubtreeForce(force_from(point, (moment, force)), turning, pull=force)
