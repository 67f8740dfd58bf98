"""Compliant contact: every constraint is a smooth force, and nothing is solved but one linear system.

A shape that overlaps another is pushed out like by a spring, whose force begins softly (a softplus of the overlap) and
is greater on the way in than on the way out (Hunt and Crossley, Coefficient of restitution interpreted as damping in
vibroimpact, 1975). Friction grows with the speed of slip up to Coulomb's bound. Joint limits push in the same way,
joint friction is friction, and equalities are springs with dampers.

Stiff forces would need tiny steps if they were taken as they are when a step begins. They are taken as they are when
it ends, to first order: f - D J dv, D = -(∂f/∂u + dt ∂f/∂gap) >= 0, which adds dt Jᵀ D J to the inertia matrix. What
touches only the world keeps the zeros of that matrix, and costs little; between two branches of the tree they fill in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from adjoin.collision.broad_phase import Shapes
from adjoin.collision.contact_list import Candidates, Reach
from adjoin.constraints.blocks import Block, ContactBlock, EqualityBlock, JointFrictionBlock, Row, UnilateralBlock
from adjoin.constraints.compliant_contacts import CompliantContacts
from adjoin.constraints.rows import other_blocks
from adjoin.constraints.solver import ConstraintSolution, FreeMotion, ListedSolution, Scene
from adjoin.constraints.speculative_reach import SpeculativeReach
from adjoin.dynamics.linear import Factor, Rows, dot, is_zero
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Expr, exp, implicit, log, maximum, minimum, select, sqrt

REACH = 20.0  # depths at which the force of a contact has vanished
FADING = 5.0  # parting speed times dissipation from which the force of a contact fades; at twice that it is gone
STRAIGHT = 30.0  # beyond this x, log(1 + exp(x)) is x
TINY = 1e-30  # keeps friction finite where its coefficient and its bound are 0


class Force(NamedTuple):
    """What a row does at the end of a step: strength - damping times the change of its speed.

    Attributes:
        jacobian: nv scalars.
        strength: if the velocity did not change, N.
        damping: N s/m.
    """

    jacobian: Sequence[Scalar]
    strength: Scalar
    damping: Scalar


@dataclass(frozen=True, kw_only=True)
class Compliant:
    """Contact by smooth forces, for gradients that vary smoothly; a solver like `PGS`.

    Use it where an optimizer has to find contacts, or where gradients through `PGS` jump too much. Contacts sink in
    (four feet of a robot by 1 mm with the constants below) and creep where friction holds them, at up to `transition`
    and a little more, so for exact impacts and true sticking use `PGS`. It is also cheaper, the more so with many
    contacts: its cost grows with their number, that of `PGS` with the square.

    Attributes:
        stiffness: of a contact, N/m for each kg of the robot.
        dissipation: by which share of it the force grows for each m/s of approach, and falls as things part, s/m. What
            comes at a speed u bounces off at less than (u / dissipation²)^(1/3). What begins inside of another shape,
            however deep, comes out at no more than 10 / dissipation.
        depth: over which a contact begins, m. The force is felt at a distance of a few times as much.
        transition: speed of slip at which friction is at 0.7 of its bound, m/s.
        lever: at which limits and friction of revolute joints, and equalities of angles, are as stiff as a contact, m.
    """

    stiffness: Scalar = 2500.0
    dissipation: Scalar = 5.0
    depth: Scalar = 1e-3
    transition: Scalar = 0.01
    lever: Scalar = 0.3

    def __post_init__(self):
        for name in self.parameters:
            value = getattr(self, name)
            if isinstance(value, Expr):
                continue
            if name != "dissipation" and not 0.0 < value < float("inf"):
                raise InputError(f"Compliant: {name} must be positive, got {value!r}")
            if not 0.0 <= value < float("inf"):
                raise InputError(f"Compliant: {name} must not be negative, got {value!r}")

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the numbers that calls may pass as `params`."""
        return ("stiffness", "dissipation", "depth", "transition", "lever")

    @property
    def warm(self) -> bool:
        """Nothing of a step is kept for the next."""
        return False

    @property
    def elliptic(self) -> bool:
        """Friction works against the slip, in all directions alike."""
        return True

    def solve(self, free: FreeMotion, blocks: Sequence[Block], start: Sequence[Scalar] | None) -> ConstraintSolution:
        """The step with its constraints; see `Solver`."""
        scaled, forces = self._scaled_forces(blocks, free)
        matrix, right = _assembled(free, forces)
        factor = Factor(matrix)

        def residual(dv: Sequence[Scalar]) -> list[Scalar]:
            return _unbalanced(free.residual(dv), forces, dv, free.dt)

        change = implicit(factor.solve(right), residual, factor.solve)
        levers = [self.lever if row.turning else 1.0 for block in blocks for row in block.rows]
        found = [impulse * lever for impulse, lever in zip(_impulses(forces, change, free.dt), levers, strict=True)]
        return ConstraintSolution(change, found, [self._mode(block) for block in scaled])

    @property
    def tangent(self) -> None:
        """The directions of friction are those of `basis`."""

    def reach(self, free: FreeMotion, state: State, candidates: Candidates) -> Callable[[Shapes], Reach]:
        """What is further away pushes with less than exp(-20) of its stiffness."""
        return lambda shapes: SpeculativeReach(state, candidates, free, shapes, REACH * self.depth, 1.0)

    def memory(self, candidates: Candidates) -> dict[str, tuple[int, ...]]:
        """A step keeps nothing for the next."""
        return {}

    def solve_listed(self, free: FreeMotion, scene: Scene) -> ListedSolution:
        """The step with its constraints; see `ListedSolver`."""
        scaled, forces = self._scaled_forces(other_blocks(scene.state, free.dt, scene.limits, scene.constraints), free)
        contacts = CompliantContacts(self, scene, free.mass, free.dt)
        inertia, right = _assembled(free, forces)
        pushed, solve = contacts.assemble(inertia)

        def residual(dv: Sequence[Scalar]) -> list[Scalar]:
            rest = _unbalanced(free.residual(dv), forces, dv, free.dt)
            return [r - p for r, p in zip(rest, contacts.generalized(dv), strict=True)]

        change = implicit(solve([r + p for r, p in zip(right, pushed, strict=True)]), residual, solve)
        return ListedSolution(
            change, lambda write, carry: contacts.report(change, write, carry), [self._mode(block) for block in scaled]
        )

    def _scaled_forces(self, blocks: Sequence[Block], free: FreeMotion) -> tuple[list[Block], list[Force]]:
        """The blocks in meters, and the forces of their rows."""
        scaled = [replace(block, rows=tuple(map(self._in_meters, block.rows))) for block in blocks]
        return scaled, [force for block in scaled for force in self._forces(block, free.mass, free.dt)]

    def _in_meters(self, row: Row) -> Row:
        """A row about an angle as one about the way at the end of the lever."""
        if not row.turning:
            return row
        jacobian = [x if is_zero(x) else self.lever * x for x in row.jacobian]
        return Row(jacobian, self.lever * row.speed, self.lever * row.gap, turning=True)

    def _forces(self, block: Block, mass: Scalar, dt: float) -> list[Force]:
        first, *others = block.rows
        match block:
            case UnilateralBlock():
                return [self.push(first, mass, dt)]
            case ContactBlock():
                normal = self.push(first, mass, dt)
                return [normal, *self.friction(others, block.friction, normal.strength)]
            case JointFrictionBlock():
                return self.friction([first], [1.0], block.limit / (dt * (self.lever if first.turning else 1.0)))
            case EqualityBlock():
                return [self._hold(row, mass, dt) for row in block.rows]

    def push(self, row: Row, mass: Scalar, dt: float) -> Force:
        """Of a spring that only pushes, at the gap that the present speed leads to."""
        stiffness = self.stiffness * mass
        x = (row.gap + dt * row.speed) * (-1.0 / self.depth)
        grown = exp(minimum(x, STRAIGHT))
        overlap = self.depth * select(x > STRAIGHT, x, log(1.0 + grown))
        slope = grown / (1.0 + grown)
        parting = self.dissipation * row.speed
        root = sqrt(1.0 + parting * parting)
        share = select(parting > 0.0, 1.0 / (root + parting), root - parting)
        faded = minimum(maximum(2.0 - parting * (1.0 / FADING), 0.0), 1.0)
        fading = select((parting > FADING) & (parting < 2.0 * FADING), 1.0 / FADING, 0.0)
        steady = dt * slope + overlap * self.dissipation / root
        damping = stiffness * share * (steady * faded + overlap * self.dissipation * fading)
        return Force(row.jacobian, stiffness * overlap * share * faded, damping)

    def friction(self, rows: Sequence[Row], coefficients: Sequence[Scalar], normal: Scalar) -> list[Force]:
        """Under a normal force: against the slip, so that it dissipates the most that Coulomb's bounds allow."""
        if not rows:
            return []
        slip = self._slip(rows, coefficients)
        least = self.transition * coefficients[0]
        share = normal / sqrt(slip + least * least + TINY)
        drags = [coefficient * coefficient * share for coefficient in coefficients]
        return [Force(row.jacobian, -(drag * row.speed), drag) for row, drag in zip(rows, drags, strict=True)]

    def _slip(self, rows: Sequence[Row], coefficients: Sequence[Scalar]) -> Scalar:
        """The square of what friction would dissipate for each N."""
        parts = [c * row.speed for row, c in zip(rows, coefficients, strict=True)]
        return sum((x * x for x in parts), 0.0)

    def _hold(self, row: Row, mass: Scalar, dt: float) -> Force:
        """Of a spring and a damper that would stop the whole robot without bouncing."""
        stiffness, damping = self.stiffness * mass, 2.0 * self.stiffness**0.5 * mass
        damping += dt * stiffness
        return Force(row.jacobian, -stiffness * row.gap - damping * row.speed, damping)

    def _mode(self, block: Block) -> Scalar:
        first, *others = block.rows
        match block:
            case UnilateralBlock():
                return select(first.gap < 0.0, 1.0, 0.0)
            case ContactBlock():
                return select(first.gap < 0.0, self.slips(others, block.friction), 0.0)
            case JointFrictionBlock():
                return self.slips([first], [1.0])
            case EqualityBlock():
                return 1.0

    def slips(self, rows: Sequence[Row], coefficients: Sequence[Scalar]) -> Scalar:
        """2 where rows slip, 1 where they only creep."""
        least = self.transition * coefficients[0]
        return select(self._slip(rows, coefficients) > least * least, 2.0, 1.0)


def _assembled(free: FreeMotion, forces: Sequence[Force]) -> tuple[Rows, list[Scalar]]:
    """H with dt Jᵀ D J, and the impulses of a velocity that does not change."""
    matrix, right = [list(row) for row in free.inertia], list(free.rhs)
    for jacobian, strength, damping in forces:
        places = [i for i, x in enumerate(jacobian) if not is_zero(x)]
        for i in places:
            right[i] = right[i] + free.dt * strength * jacobian[i]
            pull = free.dt * damping * jacobian[i]
            for j in places:
                if j <= i:
                    matrix[i][j] = matrix[i][j] + pull * jacobian[j]
    return matrix, right


def _impulses(forces: Sequence[Force], dv: Sequence[Scalar], dt: float) -> list[Scalar]:
    return [dt * (force.strength - force.damping * dot(force.jacobian, dv)) for force in forces]


def _unbalanced(rest: list[Scalar], forces: Sequence[Force], dv: Sequence[Scalar], dt: float) -> list[Scalar]:
    for impulse, force in zip(_impulses(forces, dv, dt), forces, strict=True):
        rest = [r if is_zero(x) else r - x * impulse for r, x in zip(rest, force.jacobian, strict=True)]
    return rest
