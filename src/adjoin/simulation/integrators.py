"""How a step of time is taken: small frozen objects that a simulator takes.

| integrator | order | for |
|---|---|---|
| `SemiImplicit()` | 1 | everything; the default: stable with contacts, stiff gains and damping |
| `RK4()` | 4 | smooth systems, without contacts, joint limits, joint friction and equalities |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from adjoin.collision.contact_list import find_contacts
from adjoin.constraints.blocks import Block, ContactBlock, EqualityBlock, JointFrictionBlock, UnilateralBlock
from adjoin.constraints.rows import Contact, contacts, joint_frictions
from adjoin.constraints.solver import FreeMotion, Scene, Solver
from adjoin.dynamics.aba import aba_of
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.rnea import inverse_dynamics
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.manifold import integrate, rate
from adjoin.simulation.actuation import effort_of
from adjoin.simulation.euler import move, straight
from adjoin.simulation.step import Listed, StepResult
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.trace import loop, select

if TYPE_CHECKING:
    from adjoin.simulation.world import Plant


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

    H is the inertia matrix plus dt times the damping of joints and actuators, which makes them implicit. The bias is
    what going on straight takes, and v + dv is in the axes of the beginning: see `euler`.
    """

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Accept any constraints."""

    def free_motion(self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar]) -> tuple[State, Any, FreeMotion]:
        """Return the robot, what solves its constraints, and a step without them."""
        state, solver = plant.at(q, v)
        dt, robot = plant.world.dt, state.robot
        effort = effort_of(state, plant.control)
        extra = [dt * d for d in effort.damping]
        inertia = crba_of(state)
        for dof, more in enumerate(extra):
            inertia[dof][dof] = inertia[dof][dof] + more
        onwards = straight(robot.model, state.v)
        rhs = [dt * (f - b) for f, b in zip(effort.force, inverse_dynamics(state, onwards), strict=True)]

        def residual(dv: Sequence[Scalar]) -> list[Scalar]:
            """H dv - rhs."""
            needed = inverse_dynamics(state, [x / dt + y for x, y in zip(dv, onwards, strict=True)])
            parts = zip(needed, effort.force, extra, dv, strict=True)
            return [dt * (need - force) + more * x for need, force, more, x in parts]

        masses = robot.numbers("mass")
        mass = math.fsum(masses) if all(map(is_number, masses)) else sum(masses, 0.0)
        return state, solver, FreeMotion(inertia, extra, rhs, residual, mass, dt)

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
            return self._advance_listed(plant, q, v)
        state, free, touching, blocks, solver = self.equations(plant, q, v)
        solution = solver.solve(free, blocks, start)
        following = [a + b for a, b in zip(state.v, solution.change, strict=True)]
        place, velocity = move(plant.model, state.q, following, free.dt)
        acceleration = [x / free.dt for x in solution.change]
        stages = {**_stages(free), "impulses": solution.impulses}
        return StepResult(place, velocity, acceleration, solution.impulses, touching, solution.modes, stages)

    def _advance_listed(self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar]) -> StepResult:
        """One step whose contacts are a list."""
        state, solver, free = self.free_motion(plant, q, v)
        world = plant.world
        contacts = find_contacts(state, world.candidates, solver.tangent) if world.candidates.pairs else None
        scene = Scene(state, world.candidates, contacts, world.constraints, world.limits, world.inverse_weights)
        solution = solver.solve_listed(free, scene)
        following = [a + b for a, b in zip(state.v, solution.change, strict=True)]
        place, velocity = move(plant.model, state.q, following, free.dt)
        acceleration = [x / free.dt for x in solution.change]
        touching = Listed(contacts, world.candidates.max_contacts, solution.visit)
        return StepResult(place, velocity, acceleration, [], touching, solution.modes, _stages(free))


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
        dt, first = plant.world.dt, [*q, *v]

        def slope(here: Sequence[Scalar]) -> list[Scalar]:
            place, velocity = here[: len(q)], here[len(q) :]
            state, _ = plant.at(place, velocity)
            self.require(plant.model.name, joint_frictions(state, dt))
            forces = effort_of(state, plant.control).force
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
        return StepResult(place, velocity, acceleration, [], [], [], {})
