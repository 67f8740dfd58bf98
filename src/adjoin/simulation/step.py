"""One step of time, over scalars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adjoin.contact.blocks import Block
from adjoin.contact.constraints import Contact, brakes, contacts, holds, stops
from adjoin.contact.pairs import Pair
from adjoin.contact.solver import Free, Solver
from adjoin.dynamics.constraint import FrameConstraint
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.rnea import inverse_dynamics
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.simulation.actuation import effort_of
from adjoin.simulation.euler import move, straight
from adjoin.spatial.scalar import Scalar


@dataclass(frozen=True)
class Physics:
    """What a simulator simulates: constants of its kernels.

    Attributes:
        dt: s.
        contact: the solver.
        pairs: shapes that can touch.
        constraints: frames that are held.
        limits: whether joints have stops.
    """

    dt: float
    contact: Solver
    pairs: tuple[Pair, ...]
    constraints: tuple[FrameConstraint, ...] = ()
    limits: bool = True


class Stepped(NamedTuple):
    """A state after a step.

    Attributes:
        q: nq scalars.
        v: nv scalars.
        impulses: of all constraint rows, contacts first.
        contacts: in order.
    """

    q: list[Scalar]
    v: list[Scalar]
    impulses: list[Scalar]
    contacts: list[Contact]


def other_blocks(state: State, physics: Physics) -> list[Block]:
    """All constraints but contacts."""
    stopped = stops(state) if physics.limits else []
    return [*stopped, *brakes(state, physics.dt), *holds(state, physics.constraints)]


def advance(
    robot: Robot,
    physics: Physics,
    q: Sequence[Scalar],
    v: Sequence[Scalar],
    control: Sequence[Scalar],
    start: Sequence[Scalar] | None = None,
) -> Stepped:
    """Semi-implicit Euler with impulses: H dv = dt (forces - bias) + Jᵀ impulses, then q moves with v + dv.

    H is the inertia matrix plus dt times the damping of joints and actuators, which makes them implicit. The bias is
    what going on straight takes, and v + dv is in the axes of the beginning: see `euler`.
    """
    dt, state = physics.dt, State(robot, q, v)
    effort = effort_of(state, control)
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
    return Stepped(*move(robot.model, state.q, following, dt), settled.impulses, touching)
