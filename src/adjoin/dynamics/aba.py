"""Forward dynamics: the accelerations under given torques, by the articulated-body algorithm.

Featherstone, chapter 7, in terms of what the torques add to the motion with a = 0: velocity and gravity enter only in
the forces that this motion needs, which inverse dynamics gives, and the rest is a product with the inverse of the
inertia matrix. So the articulated inertias serve `minverse` and the constrained dynamics too.

Derivatives do not go through this recursion. Since M a + bias = tau, those of a are M⁻¹ times those of inverse dynamics
at constant a, which is a fifth less work.
"""

from collections.abc import Mapping, Sequence

from adjoin.dynamics.call import Array, Reference, call
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.linear import Factor, is_zero
from adjoin.dynamics.passive import passive_forces_of
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.rnea import bias_forces_of, body_forces, inverse_dynamics
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import articulated, vector
from adjoin.spatial.articulated import Articulated
from adjoin.spatial.motion import (
    ZERO_SPATIAL,
    Spatial,
    force_to_parent,
    motion_to_child,
    spatial_add,
    spatial_dot,
)
from adjoin.spatial.scalar import Scalar
from adjoin.trace import implicit


class ArticulatedBodies:
    """The articulated inertias of a state, ready to solve M a = b. Not for joints that follow others.

    In the notation of Featherstone's table 7.1: U = I S and D = Sᵀ U for each joint.
    """

    def __init__(self, state: State):
        self.state, robot = state, state.robot
        inertias: list[Articulated] = [articulated.from_rigid(*rigid) for rigid in robot.regrouped_inertias]
        armature = robot.numbers("armature")
        self.U: list[list[Spatial]] = [[] for _ in inertias]
        self.D: list[Factor] = [Factor([])] * robot.count
        for body in reversed(range(robot.count)):
            directions = robot.subspaces[body]
            inertia = inertias[body]
            U = self.U[body] = [articulated.apply(inertia, s) for _, s in directions]
            D = [[spatial_dot(s, u) for u in U] for _, s in directions]
            for k, (dof, _) in enumerate(directions):
                D[k][k] = D[k][k] + armature[dof]
                require_inertia(robot, dof, D[k][k])
            self.D[body] = Factor(D)
            parent = robot.parents[body]
            if parent != WORLD:
                remaining = articulated.through_joint(
                    inertia, [s for _, s in directions], U, self.D[body], armature[dof]
                )
                moved = articulated.to_parent(state.transforms[body], remaining)
                inertias[parent] = articulated.add(inertias[parent], moved)

    def solve(self, tau: Sequence[Scalar], forces: Sequence[Spatial] | None = None) -> list[Scalar]:
        """Return the accelerations that torques add, and that forces on the bodies (own frames) take away."""
        robot, transforms = self.state.robot, self.state.transforms
        p = list(forces or [ZERO_SPATIAL] * robot.count)
        u: list[list[Scalar]] = [[] for _ in p]
        for body in reversed(range(robot.count)):
            u[body] = [tau[dof] - spatial_dot(s, p[body]) for dof, s in robot.subspaces[body]]
            parent = robot.parents[body]
            if parent != WORLD:
                passed = p[body]
                for effort, U in zip(self.D[body].solve(u[body]), self.U[body], strict=True):
                    passed = spatial_add(passed, (vector.scale(effort, U[0]), vector.scale(effort, U[1])))
                p[parent] = spatial_add(p[parent], force_to_parent(transforms[body], passed))
        a: list[Scalar] = [0.0] * robot.nv

        def step(body: int, parent: Spatial) -> Spatial:
            moved = motion_to_child(transforms[body], parent)
            effort_left = [x - spatial_dot(moved, U) for x, U in zip(u[body], self.U[body], strict=True)]
            for (dof, _), x in zip(robot.subspaces[body], self.D[body].solve(effort_left), strict=True):
                a[dof] = x
            return spatial_add(moved, self.state.joint_motion(body, a))

        self.state.outward(ZERO_SPATIAL, step)
        return a


def require_inertia(robot: Robot, dof: int, inertia: Scalar) -> None:
    """Raise if a degree of freedom is known to move nothing: forces on it have no finite effect."""
    if is_zero(inertia):
        places = zip(robot.model.joints, robot.model.coordinates, strict=True)
        joint = next(joint for joint, at in places if at.v <= dof < at.v + joint.nv)
        raise InputError(
            f"forward dynamics of {robot.model.name!r}: joint {joint.name!r} moves no mass and has no armature, so its "
            "acceleration is not determined; give it armature or lock it"
        )


def inertia_factor(state: State) -> Factor:
    """Return the factor of the joint-space inertia matrix; serves joints that follow others too."""
    matrix = crba_of(state)
    for dof in range(state.robot.nv):
        require_inertia(state.robot, dof, matrix[dof][dof])
    return Factor(matrix)


@quantity("aba", "q", "v", "tau")
def aba_of(state: State, passive: bool = False) -> list[Scalar]:
    """Compute `aba` over scalars."""
    tau = state.tau
    if passive:
        tau = [t + p for t, p in zip(tau, passive_forces_of(state), strict=True)]
    if state.robot.coupled:
        solve = inertia_factor(state).solve
        a = solve([t - b for t, b in zip(tau, bias_forces_of(state), strict=True)])
    else:
        solve = ArticulatedBodies(state).solve
        a = solve(tau, body_forces(state, [0.0] * state.robot.nv))

    def residual(a: Sequence[Scalar]) -> list[Scalar]:
        return [needed - t for needed, t in zip(inverse_dynamics(state, a), tau, strict=True)]

    return implicit(a, residual, solve)


@quantity("minverse", "q", square=True)
def minverse_of(state: State) -> list[list[Scalar]]:
    """Compute `minverse` over scalars: one solve for each unit torque; by symmetry half of each is enough."""
    nv = state.robot.nv
    solve = inertia_factor(state).solve if state.robot.coupled else ArticulatedBodies(state).solve
    columns = [solve([1.0 if i == k else 0.0 for i in range(nv)]) for k in range(nv)]
    return [[columns[max(i, k)][min(i, k)] for k in range(nv)] for i in range(nv)]


def aba(
    model: Model,
    q: Array,
    v: Array,
    tau: Array,
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    *,
    reference: Reference = "local",
    passive: bool = False,
    out: Array | None = None,
) -> Array:
    """Compute forward dynamics: the accelerations under the generalized forces `tau`.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        tau: generalized forces, (..., nv).
        external: external forces: frame name -> (..., 6) [force; moment], or one tensor (..., bodies, 6).
        params: parameters to take the place of the model's, each for the batch or one per environment.
        reference: axes of `external`, and the point its moments are about: "local", "world", or
            "local_world_aligned" (the frame's origin, world axes).
        passive: whether springs, damping and dry friction of the joints act too.
        out: a tensor that the result is written into; no gradients pass.

    Returns:
        a = dv/dt, (..., nv).
    """
    return call(
        "aba", model, q, v, tau, external=external, params=params, reference=reference, passive=passive, out=out
    )


def minverse(model: Model, q: Array, params: Mapping[str, Array] | None = None, *, out: Array | None = None) -> Array:
    """Return the inverse of the joint-space inertia matrix, without forming that matrix.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        params: parameters to take the place of the model's.
        out: a tensor that the result is written into; no gradients pass.

    Returns:
        M⁻¹, (..., nv, nv), symmetric, both halves.
    """
    return call("minverse", model, q, params=params, out=out)
