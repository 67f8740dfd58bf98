"""Joint limits, joint friction and equalities as MuJoCo's soft constraints: one row each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adjoin.constraints.impedance import LEAST, softness
from adjoin.constraints.inverse_weights import InverseWeights
from adjoin.constraints.joint_equality import JointEquality
from adjoin.constraints.model_rows import equality_rows, is_active, speed, tendon_frictions, tendon_limits
from adjoin.constraints.rows import Equality, equalities, nearest_limits
from adjoin.constraints.soft_contact import same_sign
from adjoin.dynamics.linear import is_zero
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.model.parts import SOLIMP, SOLREF, WORLD
from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, select, sqrt


@dataclass(frozen=True)
class SoftRow:
    """A soft constraint on one combination of accelerations.

    Attributes:
        jacobian: coordinate -> how much it moves the row.
        kind: whether it only pushes, holds, or resists up to a limit.
        reference: the acceleration at which it rests, of the other sign.
        weight: 1 / R.
        limit: the greatest force of one that resists.
    """

    jacobian: Mapping[int, Scalar]
    kind: Literal["push", "hold", "resist"]
    reference: Scalar
    weight: Scalar
    limit: Scalar = 0.0

    def along(self, x: Sequence[Scalar]) -> Scalar:
        """J x."""
        return sum((arm * x[dof] for dof, arm in self.jacobian.items()), 0.0)

    def residual(self, a: Sequence[Scalar]) -> Scalar:
        """J a less the acceleration at which it rests."""
        return self.along(a) + self.reference

    def mode(self, u: Scalar) -> Scalar:
        """Return 0 where it is inactive, 1 where it holds, 2 where it slips."""
        force, stiffness = self.respond(u)
        return select(stiffness > 0.0, 1.0, select(abs(force) > 0.0, 2.0, 0.0))

    def respond(self, u: Scalar) -> tuple[Scalar, Scalar]:
        """The force at a residual, and minus its derivative."""
        pull = -(self.weight * u)
        if self.kind == "hold":
            return pull, self.weight
        if self.kind == "push":
            return maximum(pull, 0.0), select(u < 0.0, self.weight, 0.0)
        force = maximum(-self.limit, minimum(self.limit, pull))
        return force, select(abs(pull) < self.limit, self.weight, 0.0)

    def linear_between(self, u: Scalar, v: Scalar) -> Any:
        """Whether the force is one linear function at both of two residuals."""
        idle = self.weight <= 0.0
        if self.kind == "push":
            return same_sign(u, v) | idle
        one, other = self.weight * u, self.weight * v
        most, least = maximum(one, other), minimum(one, other)
        return (maximum(most, -least) < self.limit) | (least >= self.limit) | (most <= -self.limit) | idle


def soft_rows(
    state: State, constraints: Sequence[Equality], limits: bool, weights: InverseWeights, dt: float
) -> list[SoftRow]:
    """The rows of a state: joint limits, joint friction, equalities."""
    rows = [*_limits(state, weights, dt), *_tendon_limits(state, weights, dt)] if limits else []
    rows += [*_frictions(state, weights, dt), *_tendon_frictions(state, weights, dt)]
    return [*rows, *_equalities(state, constraints, weights, dt), *_model_equalities(state, weights, dt)]


def _tendon_limits(state: State, weights: InverseWeights, dt: float) -> list[SoftRow]:
    rows = []
    solrefs, solimps = map(state.robot.numbers, ("tendon_limit_solref", "tendon_limit_solimp"))
    for index, arms, gap, _ in tendon_limits(state):
        tendon = state.robot.model.tendons[index]
        violation = gap - tendon.margin
        soft = softness(solrefs[index], solimps[index], violation, dt)
        hard = 1.0 / maximum(soft.regularization * weights.tendons[index], LEAST)
        reference = soft.damping * speed(arms, state) + soft.stiffness * violation
        rows.append(SoftRow(arms, "push", reference, select(violation < 0.0, hard, 0.0)))
    return rows


def _tendon_frictions(state: State, weights: InverseWeights, dt: float) -> list[SoftRow]:
    rows = []
    for index, arms, friction in tendon_frictions(state):
        tendon = state.robot.model.tendons[index]
        soft = softness(tendon.friction_solref, tendon.friction_solimp, 0.0, dt)
        hard = 1.0 / maximum(soft.regularization * weights.tendons[index], LEAST)
        rows.append(SoftRow(arms, "resist", soft.damping * speed(arms, state), hard, friction))
    return rows


def _model_equalities(state: State, weights: InverseWeights, dt: float) -> list[SoftRow]:
    rows = []
    solrefs, solimps = map(state.robot.numbers, ("equality_solref", "equality_solimp"))
    for index, equality in enumerate(state.robot.model.equalities):
        active = is_active(state, index)
        if is_zero(active):
            continue
        parts = equality_rows(state, index)
        # How hard a constraint is depends on the error of all its rows together.
        error = parts[0].error
        if len(parts) > 1:
            error = sqrt(maximum(sum((part.error * part.error for part in parts), 0.0), LEAST * LEAST))
        soft = softness(solrefs[index], solimps[index], error, dt)
        light = weights.of_equality(state.robot.model, equality)
        for k, (arms, gap, _, drift) in enumerate(parts):
            hard = active / maximum(soft.regularization * light[int(k >= 3)], LEAST)
            reference = soft.damping * speed(arms, state) + soft.stiffness * gap
            rows.append(SoftRow(arms, "hold", reference + drift, hard))
    return rows


def _limits(state: State, weights: InverseWeights, dt: float) -> list[SoftRow]:
    """Of each joint the limit that is nearer."""
    rows = []
    solrefs, solimps = map(state.robot.numbers, ("limit_solref", "limit_solimp"))
    for body, arms, gap in nearest_limits(state):
        joint, at = state.robot.model.joints[body], state.robot.model.coordinates[body]
        violation = gap - joint.limit_margin
        soft = softness(solrefs[body], solimps[body], violation, dt)
        hard = 1.0 / (soft.regularization * weights.dofs[at.v] * at.multiplier**2)
        speed = sum((arm * state.v[dof] for dof, arm in arms.items()), 0.0)
        reference = soft.damping * speed + soft.stiffness * violation
        rows.append(SoftRow(arms, "push", reference, select(violation < 0.0, hard, 0.0)))
    return rows


def _frictions(state: State, weights: InverseWeights, dt: float) -> list[SoftRow]:
    rows = []
    numbers = state.robot.numbers("friction")
    for joint, at in state.robot.model.independent_joints:
        for dof in range(at.v, at.v + joint.nv):
            if not is_zero(numbers[dof]):
                soft = softness(joint.friction_solref, joint.friction_solimp, 0.0, dt)
                hard = 1.0 / (soft.regularization * weights.dofs[dof])
                rows.append(SoftRow({dof: 1.0}, "resist", soft.damping * state.v[dof], hard, numbers[dof]))
    return rows


def _equalities(state: State, constraints: Sequence[Equality], weights: InverseWeights, dt: float) -> list[SoftRow]:
    rows = []
    for constraint, block in zip(constraints, equalities(state, constraints), strict=True):
        for k, row in enumerate(block.rows):
            light = _lightness(state.robot.model, constraint, weights, turning=k >= 3)
            soft = softness(SOLREF, SOLIMP, row.gap, dt)
            jacobian = {dof: x for dof, x in enumerate(row.jacobian) if not is_zero(x)}
            reference = soft.damping * row.speed + soft.stiffness * row.gap
            rows.append(SoftRow(jacobian, "hold", reference, 1.0 / (soft.regularization * light)))
    return rows


def _lightness(model: Model, constraint: Equality, weights: InverseWeights, turning: bool) -> float:
    if isinstance(constraint, JointEquality):
        places = [model.coordinates[model.joint_index(name)].v for name in (constraint.joint, constraint.other)]
        return sum(weights.dofs[place] for place in places)
    names = [name for name in (constraint.frame, constraint.other) if name is not None]
    bodies = [model.frames[model.frame_index(name)].body for name in names]
    return sum(weights.bodies[body][int(turning)] for body in bodies if body != WORLD)
