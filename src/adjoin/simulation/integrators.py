"""How a step of time is taken: small frozen objects that a simulator takes.

| integrator | order | for |
|---|---|---|
| `SemiImplicit()` | 1 | everything; the default: stable with contacts, stiff gains and damping |
| `RK4()` | 4 | smooth systems, without contacts, stops, dry friction and held frames |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.constraints.blocks import Block, Brake, Hold, Push, Touch
from adjoin.constraints.rows import brakes, contacts
from adjoin.constraints.solver import Free
from adjoin.dynamics.aba import aba_of
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.rnea import inverse_dynamics
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.manifold import integrate, rate
from adjoin.simulation.actuation import effort_of
from adjoin.simulation.euler import move, straight
from adjoin.simulation.plant import Plant
from adjoin.simulation.step import Stepped, other_blocks
from adjoin.spatial.scalar import Scalar
from adjoin.trace import loop, select


@dataclass(frozen=True)
class SemiImplicit:
    """Semi-implicit Euler with impulses: H dv = dt (forces - bias) + Jᵀ impulses, then q moves with v + dv.

    H is the inertia matrix plus dt times the damping of joints and actuators, which makes them implicit. The bias is
    what going on straight takes, and v + dv is in the axes of the beginning: see `euler`.
    """

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Any constraints will do."""

    def advance(
        self, plant: Plant, q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None = None
    ) -> Stepped:
        """One step; see `Integrator`."""
        state, physics = plant.at(q, v)
        dt, robot = physics.dt, state.robot
        effort = effort_of(state, plant.control)
        extra = [dt * d for d in effort.damping]
        inertia = crba_of(state)
        for dof, more in enumerate(extra):
            inertia[dof][dof] = inertia[dof][dof] + more
        onwards = straight(robot.model, state.v)
        right = [dt * (f - b) for f, b in zip(effort.force, inverse_dynamics(state, onwards), strict=True)]
        touching = contacts(state, physics.pairs, physics.contact.elliptic)
        blocks = [*[contact.block for contact in touching], *other_blocks(state, physics)]

        def missing(dv: Sequence[Scalar]) -> list[Scalar]:
            """H dv - right."""
            needed = inverse_dynamics(state, [x / dt + y for x, y in zip(dv, onwards, strict=True)])
            parts = zip(needed, effort.force, extra, dv, strict=True)
            return [dt * (need - force) + more * x for need, force, more, x in parts]

        settled = physics.contact.settle(Free(inertia, right, missing, robot.model.mass, dt), blocks, start)
        following = [a + b for a, b in zip(state.v, settled.change, strict=True)]
        stages = {
            "forces": right,
            "inertia": [x for row in inertia for x in row],
            "impulses": settled.impulses,
        }
        place, velocity = move(robot.model, state.q, following, dt)
        return Stepped(place, velocity, settled.impulses, touching, settled.modes, stages)


@dataclass(frozen=True)
class RK4:
    """The classical Runge-Kutta method of fourth order, on q and v.

    Quaternions are four numbers like any others within a step, and are normalized at its end. Damping and servos are
    explicit, so stiff gains need small steps.
    """

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Raise if there are constraints, which are not smooth."""
        kinds = {Touch: "contacts with friction", Push: "stops or contacts", Brake: "dry friction", Hold: "held frames"}
        found = [what for kind, what in kinds.items() if any(isinstance(block, kind) for block in blocks)]
        if found:
            raise InputError(
                f"RK4 is for smooth systems; {name!r} has {', '.join(found)}. Leave them out, with pairs=[] and "
                "limits=False, or use SemiImplicit()"
            )

    def advance(
        self, plant: Plant, q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None = None
    ) -> Stepped:
        """One step; see `Integrator`."""
        dt, first = plant.physics.dt, [*q, *v]

        def slope(here: Sequence[Scalar]) -> list[Scalar]:
            place, velocity = here[: len(q)], here[len(q) :]
            state, _ = plant.at(place, velocity)
            self.require(plant.model.name, brakes(state, dt))
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
        return Stepped(place, velocity, [], [], [], {})
