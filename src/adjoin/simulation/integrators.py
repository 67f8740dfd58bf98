"""How a step of time is taken: small frozen objects that a simulator takes.

| integrator | order | for |
|---|---|---|
| `SemiImplicit()` | 1 | everything; the default: stable with contacts, stiff gains and damping |
| `RK4()` | 4 | smooth systems, without contacts, joint limits, joint friction and equalities |
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from adjoin.collision.contact_list import find_contacts
from adjoin.constraints.blocks import Block, ContactBlock, EqualityBlock, JointFrictionBlock, UnilateralBlock
from adjoin.constraints.rows import Contact, contacts, joint_frictions
from adjoin.constraints.solver import FreeMotion, Scene, Solver
from adjoin.dynamics.aba import aba_of
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.linear import Rows, dot, eliminate, is_zero
from adjoin.dynamics.rnea import inverse_dynamics
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.manifold import integrate, rate
from adjoin.model.parts import WORLD
from adjoin.simulation.activation import next_activations
from adjoin.simulation.actuation import Effort, effort_of
from adjoin.simulation.adhesion import WithinGap, arms_of_contacts, arms_of_list, has_adhesion
from adjoin.simulation.euler import move, straight, turned
from adjoin.simulation.step import Listed, StepResult
from adjoin.spatial import vector
from adjoin.spatial.inertia import to_matrix
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.trace import loop, select

if TYPE_CHECKING:
    from adjoin.simulation.world import Plant, World


class Equations(NamedTuple):
    """The equations of a semi-implicit step.

    Attributes:
        state: The robot as the step begins.
        free: The step without constraints.
        contacts: The contacts.
        blocks: All constraints, contacts first.
        solver: What solves them.
    """

    state: State
    free: FreeMotion
    contacts: list[Contact]
    blocks: list[Block]
    solver: Solver


@dataclass(frozen=True)
class SemiImplicit:
    """Semi-implicit Euler with impulses: H dv = dt (forces - bias) + Jᵀ impulses, then q moves with v + dv.

    H is the inertia matrix plus dt times the damping that is implicit. The bias is what going on straight takes, and
    v + dv is in the axes of the beginning: see `euler`.

    Attributes:
        implicit: which damping is implicit: "all", that of joints and actuators, as MuJoCo's implicitfast has it;
            "joints", as its Euler has it; or "none".
        gyroscopic: whether the velocity of bodies that move freely and carry nothing acts implicitly too, as in
            MuJoCo's implicitfast; it keeps bodies that spin fast from gaining energy.
    """

    implicit: Literal["all", "joints", "none"] = "all"
    gyroscopic: bool = False

    def __post_init__(self):
        if self.implicit not in ("all", "joints", "none"):
            raise InputError(f"SemiImplicit: implicit must be 'all', 'joints' or 'none', got {self.implicit!r}")

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Accept any constraints."""

    def free_motion(self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar]) -> tuple[State, Any, FreeMotion]:
        """Return the robot, what solves its constraints, and a step without them."""
        state, solver = plant.at(q, v)
        dt, robot = plant.world.dt, state.robot
        if has_adhesion(robot.model):
            self._note_adhesion(plant.world, state, solver)
        effort = effort_of(state, plant.control, plant.activation, dt)
        state.computed["effort"] = effort
        inertia = crba_of(state)
        damping = self._damping(effort, dt, robot)
        inertia = [
            [m if is_zero(d) else m + d for m, d in zip(*rows, strict=True)]
            for rows in zip(inertia, damping, strict=True)
        ]
        onwards = straight(robot.model, state.v)
        # Armature resists what changes the straight motion, not what turns the axes that it is written in.
        coasting = [m * x for m, x in zip(robot.numbers("armature"), onwards, strict=True)]
        force = [f if is_zero(c) else f + c for f, c in zip(effort.force, coasting, strict=True)]
        rhs = [dt * (f - b) for f, b in zip(force, inverse_dynamics(state, onwards), strict=True)]

        def residual(dv: Sequence[Scalar]) -> list[Scalar]:
            """H dv - rhs."""
            needed = inverse_dynamics(state, [x / dt + y for x, y in zip(dv, onwards, strict=True)])
            parts = zip(needed, force, damping, strict=True)
            return [dt * (need - given) + dot(row, dv) for need, given, row in parts]

        masses = robot.numbers("mass")
        mass = math.fsum(masses) if all(map(is_number, masses)) else sum(masses, 0.0)
        return state, solver, FreeMotion(inertia, damping, rhs, residual, mass, dt)

    def _note_adhesion(self, world: "World", state: State, solver: Any) -> None:
        """Find what touches before the forces are known, since actuators pull there."""
        if not world.listed:
            found = contacts(state, world.pairs, solver.elliptic)
            state.computed["adhesion"] = arms_of_contacts(world.model, found)
            return
        candidates, listed = world.candidates, None
        if candidates.pairs:
            listed = find_contacts(
                state, candidates, solver.tangent, lambda shapes: WithinGap(candidates.pairs, shapes)
            )
        scene = Scene(state, candidates, listed, world.constraints, world.limits, world.inverse_weights)
        state.computed["adhesion"], state.computed["contact list"] = arms_of_list(scene), listed

    def _moved(
        self, state: State, free: FreeMotion, change: Sequence[Scalar], late: Sequence[Scalar] = ()
    ) -> tuple[list[Scalar], list[Scalar], list[Scalar]]:
        """Return q and v after the step, and the acceleration; q moves with what of the change was not late."""
        change = gyroscopic_change(state, free, change) if self.gyroscopic else change
        following = [a + b for a, b in zip(state.v, change, strict=True)]
        moving = [x - y for x, y in zip(following, late, strict=True)] if late else following
        place, velocity = move(state.robot.model, state.q, moving, free.dt)
        if late:
            velocity = turned(state.robot.model, state.q, place, following)
        return place, velocity, [x / free.dt for x in change]

    def _damping(self, effort: Effort, dt: float, robot: Robot) -> Rows:
        """Return dt times the damping that is implicit, between coordinates of which one carries the other."""
        rows: Rows = [[0.0] * robot.nv for _ in range(robot.nv)]
        if self.implicit == "none":
            return rows
        for i, damping in enumerate(effort.joint_damping):
            rows[i][i] = damping
        if self.implicit == "all":
            for body, directions in enumerate(robot.subspaces):
                related = {dof for other in robot.ancestors(body) for dof, _ in robot.subspaces[other]}
                for (i, _), j in itertools.product(directions, sorted(related)):
                    rows[i][j] = rows[j][i] = effort.coupled_damping[i][j]
            for i, damping in enumerate(effort.joint_damping):
                rows[i][i] = damping + effort.coupled_damping[i][i]
        return [[dt * x for x in row] for row in rows]

    def equations(self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar]) -> Equations:
        """Return the equations of a step: what a solver gets."""
        state, solver, free = self.free_motion(plant, q, v)
        touching = contacts(state, plant.world.pairs, solver.elliptic)
        blocks = [*[contact.block for contact in touching], *plant.world.other_blocks(state)]
        return Equations(state, free, touching, blocks, solver)

    def advance(
        self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None = None
    ) -> StepResult:
        """Take one step; see `Integrator`."""
        if plant.world.listed:
            return self._advance_listed(plant, q, v, start)
        state, free, touching, blocks, solver = self.equations(plant, q, v)
        solution = solver.solve(free, blocks, start)
        place, velocity, acceleration = self._moved(state, free, solution.change, solution.late)
        stages = {**_stages(free), "impulses": solution.impulses}
        result = StepResult(place, velocity, acceleration, solution.impulses, touching, solution.modes, stages)
        result = result._replace(
            beginning_acceleration=acceleration, kept=solution.impulses, residual=solution.residual
        )
        return self._with_activation(result, plant, state)

    def _advance_listed(
        self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None
    ) -> StepResult:
        """One step whose contacts are a list."""
        state, solver, free = self.free_motion(plant, q, v)
        world = plant.world
        candidates, contacts = world.candidates, None
        reach = solver.reach(free, state, candidates) if candidates.pairs else None
        if reach is None and "contact list" in state.computed:
            contacts = state.computed["contact list"]
        elif candidates.pairs:
            contacts = find_contacts(state, candidates, solver.tangent, reach)
        scene = Scene(state, candidates, contacts, world.constraints, world.limits, world.inverse_weights, start)
        solution = solver.solve_listed(free, scene)
        place, velocity, acceleration = self._moved(state, free, solution.change)
        touching = Listed(contacts, candidates.max_contacts, solution.visit)
        result = StepResult(place, velocity, acceleration, [], touching, solution.modes, _stages(free))
        beginning = solution.acceleration or acceleration
        result = result._replace(beginning_acceleration=beginning, kept=solution.kept, residual=solution.residual)
        return self._with_activation(result, plant, state)

    def _with_activation(self, result: StepResult, plant: "Plant", state: State) -> StepResult:
        """Return a result with the activations after the step, and the forces of its beginning."""
        effort: Effort = state.computed["effort"]
        following = next_activations(state, plant.activation, effort.activation_rates, plant.world.dt)
        return result._replace(activation=following, effort=effort)


def gyroscopic_change(state: State, free: FreeMotion, change: Sequence[Scalar]) -> list[Scalar]:
    """The change of velocity where the gyroscopic forces of single bodies, which depend on it, are those of the end."""
    robot, found = state.robot, list(change)
    for body in range(robot.count):
        links = [frame for frame in robot.model.frames if frame.body == body and frame.kind == "link"]
        alone = robot.parents[body] == WORLD and body not in robot.parents and len(links) <= 1
        if not alone or not robot.joint(body).type.floating:
            continue
        at = robot.model.coordinates[body].v_slice
        omega = vector.vector3(state.v[at][3:])
        _, first, about = robot.regrouped_inertias[body]
        matrix = to_matrix(about)
        block = [row[at] for row in free.inertia[at]]
        impulse = [dot(row, change[at]) for row in block]
        for k, axis in enumerate(vector.AXES):
            # d/dω of ω x (ω x m c), and of ω x I ω.
            swing = vector.add(
                vector.cross(axis, vector.cross(omega, first)), vector.cross(omega, vector.cross(axis, first))
            )
            turn = vector.add(
                vector.cross(axis, vector.apply(matrix, omega)), vector.cross(omega, vector.apply(matrix, axis))
            )
            for row, slope in enumerate((*swing, *turn)):
                block[row][3 + k] = block[row][3 + k] + free.dt * slope
        found[at] = eliminate(block, impulse)
    return found


def _stages(free: FreeMotion) -> dict[str, list[Scalar]]:
    return {"forces": free.rhs, "inertia": [x for row in free.inertia for x in row]}


@dataclass(frozen=True)
class RK4:
    """The classical Runge-Kutta method of fourth order, on q and v.

    Quaternions are four numbers like any others within a step, and are normalized at its end. Damping and servos are
    explicit, so stiff gains need small steps.
    """

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Raise if there are constraints, which are not smooth."""
        kinds = {
            ContactBlock: "contacts with friction",
            UnilateralBlock: "joint limits or contacts",
            JointFrictionBlock: "joint friction",
            EqualityBlock: "equalities",
        }
        present = [what for kind, what in kinds.items() if any(isinstance(block, kind) for block in blocks)]
        if present:
            raise InputError(
                f"RK4 is for smooth systems; {name!r} has {', '.join(present)}. Leave them out, with pairs=[] and "
                "limits=False, or use SemiImplicit()"
            )

    def advance(
        self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None = None
    ) -> StepResult:
        """Take one step; see `Integrator`."""
        if plant.model.na:
            raise InputError(f"RK4: {plant.model.name!r} has actuators with activations; use ConstrainedRK4()")
        dt, first = plant.world.dt, [*q, *v]

        def slope(here: Sequence[Scalar]) -> list[Scalar]:
            place, velocity = here[: len(q)], here[len(q) :]
            state, _ = plant.at(place, velocity)
            self.require(plant.model.name, joint_frictions(state, dt))
            forces = effort_of(state, plant.control, plant.activation, dt).force
            coasting = zip(state.robot.numbers("armature"), straight(plant.model, velocity), strict=True)
            forces = [f if is_zero(m * x) else f + m * x for f, (m, x) in zip(forces, coasting, strict=True)]
            acted = State(state.robot, place, velocity, tau=forces, external=state.external)
            return [*rate(plant.model, place, velocity), *aba_of(acted)]

        def stage(index: Any, carry: tuple[list[Scalar], list[Scalar]]) -> tuple[list[Scalar], list[Scalar]]:
            before, total = carry
            ends, far = (index == 0) | (index == 3), select(index == 3, dt, select(index == 0, 0.0, 0.5 * dt))
            weight = select(ends, dt / 6.0, dt / 3.0)
            here = slope([x + far * k for x, k in zip(first, before, strict=True)])
            return here, [x + weight * k for x, k in zip(total, here, strict=True)]

        _, last = loop(4, stage, ([0.0] * len(first), first))
        place, velocity = integrate(plant.model, last[: len(q)], [0.0] * len(v)), last[len(q) :]
        acceleration = [(b - a) / dt for a, b in zip(v, velocity, strict=True)]
        result = StepResult(place, velocity, acceleration, [], [], [], {}, plant.activation)
        return result._replace(kept=start or ())
