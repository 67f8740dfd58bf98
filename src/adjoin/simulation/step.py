"""One step of time over scalars: what an integrator computes, and everything that outputs can ask of it."""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from adjoin.collision.contact_list import ContactList, Visit
from adjoin.collision.point import FAR
from adjoin.compiler.runtime.fingerprint import is_ours
from adjoin.constraints.blocks import Block
from adjoin.constraints.newton import across
from adjoin.constraints.rows import Contact
from adjoin.constraints.solver import exact
from adjoin.dynamics.quantity import added_quantities
from adjoin.simulation.state import Contacts
from adjoin.spatial.scalar import Scalar
from adjoin.trace import detach, select, to_float

if TYPE_CHECKING:
    from adjoin.simulation.actuation import Effort
    from adjoin.simulation.world import Plant

STAGES = ("state", "control", "parameters", "forces", "inertia", "impulses", "velocity", "configuration")
"""The stages of a step, in the order in which they are computed."""


class StepResult(NamedTuple):
    """What an integrator computes.

    Attributes:
        q: The configuration after the step, nq scalars.
        v: The velocity after it, nv scalars.
        acceleration: The change of velocity over dt, in the axes of the beginning, nv scalars.
        impulses: The impulses of all constraint rows, contacts first.
        contacts: The contacts: one after the other, or a list.
        modes: What each constraint does, see `ConstraintSolution`.
        stages: Intermediate results by name, see `STAGES`.
        activation: The activations after the step, na scalars.
        effort: The forces of actuators and other parts, as the step begins.
        beginning_acceleration: The acceleration as the step begins, without implicit damping where the solver tells it.
        kept: What the next step may start from: impulses of contacts, or accelerations.
        residual: Computes how far the solver got, see `solver_residual`.
    """

    q: list[Scalar]
    v: list[Scalar]
    acceleration: list[Scalar]
    impulses: list[Scalar]
    contacts: "list[Contact] | Listed"
    modes: list[Scalar]
    stages: dict[str, list[Scalar]]
    activation: Sequence[Scalar] = ()
    effort: "Effort | None" = None
    beginning_acceleration: Sequence[Scalar] = ()
    kept: Sequence[Scalar] = ()
    residual: Callable[[], Scalar] = exact


@dataclass(frozen=True)
class Listed:
    """The contacts of a step as a list.

    Attributes:
        contacts: What touches; None if nothing can.
        size: How many there may be.
        visit: See `ListedSolution`.
    """

    contacts: ContactList | None
    size: int
    visit: Visit

    @property
    def needed(self) -> Scalar:
        """Return how many contacts there are."""
        return 0.0 if self.contacts is None else self.contacts.needed

    @cached_property
    def rows(self) -> list[list[Scalar]]:
        """Return pair, distance, position, normal, mode and force of each contact, in order."""

        def described(listed: ContactList, slot: Any, numbers: Sequence[Scalar]) -> list[Scalar]:
            point = listed.point(slot)
            return [to_float(listed.pair[slot]), point.distance, *point.position, *point.normal, *numbers[:4]]

        return self._compacted(described, [-1.0, FAR, *[0.0] * 10])

    @cached_property
    def details(self) -> list[list[Scalar]]:
        """Return the moment of each contact on its first shape, and the first direction across its normal."""

        def described(listed: ContactList, slot: Any, numbers: Sequence[Scalar]) -> list[Scalar]:
            tangent = across(listed.point(slot).normal) if listed.tangent is None else listed.axes(slot)[1]
            return [*numbers[4:7], *tangent]

        return self._compacted(described, [0.0] * 6)

    def _compacted(self, described: Callable[..., list[Scalar]], defaults: Sequence[float]) -> list[list[Scalar]]:
        listed = self.contacts
        if listed is None:
            return []

        def visit(write: Callable[..., Any], carry: Any) -> Any:
            def act(slot: Any, numbers: Sequence[Scalar], carry: Any) -> Any:
                return write(slot, described(listed, slot, numbers), carry)

            return self.visit(act, carry)

        return listed.compacted(self.size, visit, defaults)


class Integrator(Protocol):
    """A frozen object that takes steps."""

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Raise if it cannot serve a model with these constraints."""

    def advance(
        self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None = None
    ) -> StepResult:
        """Take one step.

        Args:
            plant: What is stepped.
            q: The configuration, nq scalars.
            v: The velocity, nv scalars.
            start: What the step before kept, if the solver starts warm.
        """
        ...


class Step(Mapping[str, Any]):
    """One traced step: its values by name, each computed when first asked for.

    An output of a rollout is one of these values, or a traced function of them. `step_value` adds more.

    Args:
        plant: What was stepped.
        before: The carry before the step, by name.
        after: The carry after it.
        result: What the integrator computed.
    """

    def __init__(self, plant: "Plant", before: Mapping[str, Any], after: Mapping[str, Any], result: StepResult):
        self.plant, self.before, self.after, self.result = plant, before, after, result
        self._computed: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._computed:
            self._computed[name] = STEP_VALUES[name](self)
        return self._computed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(STEP_VALUES)

    def __len__(self) -> int:
        return len(STEP_VALUES)


STEP_VALUES: dict[str, Callable[[Step], Any]] = {}
"""Everything that can be computed of a step, by name."""


def step_value(function: Callable[[Step], Any]) -> Callable[[Step], Any]:
    """Register a function of a step under its own name: outputs and traced functions may then ask for it."""
    STEP_VALUES[function.__name__] = function
    return function


def added_functions() -> tuple[Callable[..., Any], ...]:
    """Return the functions of steps and of states that are registered and not this library's."""
    return (*added_quantities(), *[function for function in STEP_VALUES.values() if not is_ours(function)])


def array(values: Any) -> np.ndarray:
    """Return scalars as an array of objects."""
    return np.array(values, dtype=object)


@step_value
def q(step: Step) -> Any:
    """The configuration before the step, (nq,)."""
    return array(step.before["q"])


@step_value
def v(step: Step) -> Any:
    """The velocity before the step, (nv,)."""
    return array(step.before["v"])


@step_value
def control(step: Step) -> Any:
    """The control of the step, (nu,)."""
    return array(step.plant.control)


@step_value
def next_q(step: Step) -> Any:
    """The configuration after the step, (nq,)."""
    return array(step.after["q"])


@step_value
def next_v(step: Step) -> Any:
    """The velocity after the step, (nv,)."""
    return array(step.after["v"])


@step_value
def status(step: Step) -> Any:
    """The status after the step, see `SimulatorState`."""
    return step.after["status"]


@step_value
def acceleration(step: Step) -> Any:
    """The generalized acceleration, averaged over the step, in the axes of its beginning, (nv,)."""
    return array(step.result.acceleration)


@step_value
def contacts(step: Step) -> Any:
    """Where shapes touch as the step begins, and with what force: `Contacts`."""
    points = step.result.contacts
    if isinstance(points, Listed):
        numbers: Any = array(points.rows).reshape(len(points.rows), 12)
        return Contacts(numbers[:, 0], numbers[:, 1], numbers[:, 2:5], numbers[:, 5:8], numbers[:, 9:12])
    forces, first = [], 0
    for contact in points:
        impulses = step.result.impulses[first : first + len(contact.block.rows)][:3]
        first += len(contact.block.rows)
        force: list[Scalar] = [0.0, 0.0, 0.0]
        for impulse, axis in zip(impulses, contact.axes, strict=False):
            force = [f + impulse * x / step.plant.world.dt for f, x in zip(force, axis, strict=True)]
        forces.append(force)
    parts: list[Any] = [array([float(k) for k in range(len(points))])]
    parts.append(array([contact.point.distance for contact in points]).reshape(len(points)))
    for part in ([c.point.position for c in points], [c.point.normal for c in points], forces):
        parts.append(array(part).reshape(len(points), 3))
    return Contacts(*parts)


@step_value
def contact_count(step: Step) -> Any:
    """How many contacts there are as the step begins; the step fails if they are more than `max_contacts`."""
    points = step.result.contacts
    if isinstance(points, Listed):
        return points.needed
    return sum((select(contact.point.distance < 0.0, 1.0, 0.0) for contact in points), 0.0)


@step_value
def constraint_modes(step: Step) -> Any:
    """What each contact, then joint limit, joint friction and equality does: 0 inactive, 1 holding, 2 slipping."""
    points = step.result.contacts
    listed = [row[8] for row in points.rows] if isinstance(points, Listed) else []
    return array([*listed, *step.result.modes])


@step_value
def solver_residual(step: Step) -> Any:
    """How far the constraint solver was from its solution, m/s, or rad/s where a joint turns; without derivative.

    Of `PGS`, the greatest speed that one more relaxation would take from a row; of `Newton`, the greatest speed that
    the forces out of balance would give a coordinate alone. 0 where nothing is iterated.
    """
    return detach([step.result.residual()])[0]


@step_value
def fault(step: Step) -> Any:
    """Which of the `STAGES` was not finite first, counted from 1; 0 if all were."""
    parts: dict[str, list[Scalar]] = {
        "state": [*step.before["q"], *step.before["v"]],
        "control": list(step.plant.control),
        "parameters": step.plant.finite_parameters,
        **step.result.stages,
        "velocity": step.result.v,
        "configuration": step.result.q,
    }
    first: Scalar = 0.0
    for code, name in reversed([*enumerate(STAGES, 1)]):
        if parts.get(name):
            finite = functools.reduce(operator.and_, [abs(x) < torch.inf for x in parts[name]])
            first = select(finite, first, float(code))
    return first
