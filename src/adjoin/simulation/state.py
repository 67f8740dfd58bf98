"""What a simulator takes and returns: states, trajectories, contacts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils import _pytree

FINE, NOT_FINITE, EXPLODED, OVERFLOW = 0, 1, 2, 3
"""The values of a status."""

T = TypeVar("T", bound="Tensors")


@dataclass(frozen=True, eq=False)
class Tensors:
    """Tensors of a batch of environments, that move, copy and index together.

    Attributes:
        q: The configurations, (..., nq).
        v: The velocities, (..., nv).
        memory: What else a step hands to the next, by name: "status" as a float, "impulses" of a solver that starts
            warm, ...
    """

    q: torch.Tensor
    v: torch.Tensor
    memory: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def status(self) -> torch.Tensor:
        """Return what went wrong, as integers.

        0 is fine, 1 says that a number was not finite, 2 that something moved too fast or too far, 3 that there were
        more contacts than `max_contacts`. Such an environment stays as it was before, until it is reset.
        """
        return self.memory["status"].to(torch.int32)

    def map(self: T, function: Callable[[torch.Tensor], torch.Tensor]) -> T:
        """Return the same structure with a function applied to every tensor."""
        return replace(self, **{each.name: map_structure(function, getattr(self, each.name)) for each in fields(self)})

    def replace(self: T, **changes: Any) -> T:
        """Return a copy in which some of the attributes are replaced."""
        return replace(self, **changes)

    def detach(self: T) -> T:
        """Cut the graph of gradients."""
        return self.map(torch.Tensor.detach)

    def clone(self: T) -> T:
        """Copy every tensor."""
        return self.map(torch.clone)

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move every tensor to a device or dtype, with the arguments of `torch.Tensor.to`."""
        return self.map(lambda x: x.to(*args, **kwargs))


def map_structure(function: Callable[[Any], Any], value: Any) -> Any:
    """Return nested dicts and tuples with a function applied to everything that is neither."""
    if isinstance(value, dict):
        return {name: map_structure(function, part) for name, part in value.items()}
    if isinstance(value, tuple):
        parts = [map_structure(function, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return function(value)


@dataclass(frozen=True, eq=False)
class SimulatorState(Tensors):
    """The state of a batch of environments; indices and masks select among the batch."""

    @property
    def batch(self) -> torch.Size:
        """Return the shape of the batch."""
        return self.q.shape[:-1]

    def __getitem__(self, index: Any) -> "SimulatorState":
        return self.map(lambda x: x[index])

    def __len__(self) -> int:
        return len(self.q)

    @staticmethod
    def cat(states: Sequence["SimulatorState"], dim: int = 0) -> "SimulatorState":
        """Join states along a dimension of the batch."""
        return _joined(torch.cat, states, dim)

    @staticmethod
    def stack(states: Sequence["SimulatorState"], dim: int = 0) -> "SimulatorState":
        """Join states along a new dimension of the batch."""
        return _joined(torch.stack, states, dim)


def _joined(join: Callable[..., torch.Tensor], states: Sequence[SimulatorState], dim: int) -> SimulatorState:
    memory = {name: join([state.memory[name] for state in states], dim) for name in states[0].memory}
    return SimulatorState(join([s.q for s in states], dim), join([s.v for s in states], dim), memory)


@dataclass(frozen=True, eq=False)
class Trajectory(Tensors):
    """States over time, which is the first dimension of everything; indices and masks select among the batch.

    Attributes:
        q: The configurations, (steps + 1, ..., nq).
        v: The velocities, (steps + 1, ..., nv).
        memory: What steps hand to the next, (steps + 1, ...) each.
        outputs: What the call asked for besides, by name, (steps, ...) each.
    """

    outputs: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, index: Any) -> "Trajectory":
        return self.map(lambda x: x[(slice(None), *(index if isinstance(index, tuple) else (index,)))])

    def __len__(self) -> int:
        return len(self.q)

    def at(self, step: int) -> SimulatorState:
        """Return one of the states."""
        return SimulatorState(self.q[step], self.v[step], {name: x[step] for name, x in self.memory.items()})

    @property
    def last(self) -> SimulatorState:
        """Return the state at the end."""
        return self.at(-1)


class Contacts(NamedTuple):
    """Points of contact.

    Attributes:
        pair: which of `Simulator.contact_names` it is between, -1 in a slot without a contact, (..., n).
        distance: between the surfaces, negative where they overlap; 1000 in a slot without a point. (..., n), m.
        position: in the world, (..., n, 3), m.
        normal: unit vector toward the first shape, (..., n, 3).
        force: on the first shape, averaged over the step, (..., n, 3), N.
    """

    pair: torch.Tensor
    distance: torch.Tensor
    position: torch.Tensor
    normal: torch.Tensor
    force: torch.Tensor


for _kind in (SimulatorState, Trajectory):
    _pytree.register_pytree_node(
        _kind,
        lambda x: ([getattr(x, each.name) for each in fields(x)], None),
        lambda values, _, kind=_kind: kind(*values),
        serialized_type_name=f"adjoin.{_kind.__name__}",
    )
torch.serialization.add_safe_globals([SimulatorState, Trajectory, Contacts])
