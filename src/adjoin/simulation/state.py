"""What a simulator takes and returns: states, trajectories, contacts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils import _pytree

from adjoin.errors import InputError

FINE, NOT_FINITE, EXPLODED, OVERFLOW, UNPHYSICAL = 0, 1, 2, 3, 4
"""The values of a status."""

T = TypeVar("T", bound="Tensors")


@dataclass(frozen=True, eq=False, repr=False)
class Tensors:
    """Tensors of a batch of environments, that move, copy and index together.

    Attributes:
        q: The configurations, (..., nq).
        v: The velocities, (..., nv).
        memory: What else a step hands to the next, by name: "status" as a float, "impulses" of a solver that starts
            warm, ...
        start: "q", "v", activations, and the control of a key frame, of the state in which each environment began,
            (..., n) each; empty if not known.
    """

    q: torch.Tensor
    v: torch.Tensor
    memory: dict[str, torch.Tensor] = field(default_factory=dict)
    start: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def status(self) -> torch.Tensor:
        """Return what went wrong, as integers.

        0 is fine, 1 says that a number was not finite, 2 that something moved too fast or too far, 3 that there were
        more contacts than `max_contacts`, 4 that a parameter has a value that nothing physical has, such as a
        negative friction. Such an environment stays as it was before, until it is reset.
        """
        return self.memory["status"].to(torch.int32)

    def __repr__(self) -> str:
        memory = ", ".join(f"{name} {tuple(x.shape)}" for name, x in self.memory.items())
        outputs = ", ".join(getattr(self, "outputs", ()))
        wrong = "not known" if "status" not in self.memory else "fine"
        if "status" in self.memory and not torch._C._are_functorch_transforms_active() and self.status.any():
            wrong = f"{int((self.status != FINE).sum())} not fine"
        return (
            f"{type(self).__name__}(q {tuple(self.q.shape)}, v {tuple(self.v.shape)}, memory: {memory or 'none'}"
            f"{f', outputs: {outputs}' if outputs else ''}; {self.q.dtype}, {self.q.device}, status: {wrong})"
        )

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

    def __len__(self) -> int:
        return len(self.q)

    def _select(self: T, index: tuple[Any, ...]) -> T:
        """Index the leading dimensions of every tensor, which are those that q has before its last."""
        leading = self.q.dim() - 1

        def selected(x: torch.Tensor) -> torch.Tensor:
            # After an ellipsis, the dimensions of one state would be indexed instead of those of the batch.
            own = x.dim() - leading if any(part is Ellipsis for part in index) else 0
            return x[(*index, *[slice(None)] * own)]

        return self.map(selected)


def map_structure(function: Callable[[Any], Any], value: Any) -> Any:
    """Return nested dicts and tuples with a function applied to everything that is neither."""
    if isinstance(value, dict):
        return {name: map_structure(function, part) for name, part in value.items()}
    if isinstance(value, tuple):
        parts = [map_structure(function, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return function(value)


@dataclass(frozen=True, eq=False, repr=False)
class SimulatorState(Tensors):
    """The state of a batch of environments; indices and masks select among the batch."""

    @property
    def batch(self) -> torch.Size:
        """Return the shape of the batch."""
        return self.q.shape[:-1]

    @property
    def mocap(self) -> torch.Tensor:
        """Return position and quaternion [w x y z] of the model's mocap links, (..., n, 7)."""
        poses = self.memory.get("mocap", self.q.new_zeros((*self.batch, 0)))
        return poses.unflatten(-1, (-1, 7)) if poses.shape[-1] else poses.reshape(*self.batch, 0, 7)

    def with_mocap(self, poses: torch.Tensor) -> "SimulatorState":
        """Return the state with the mocap links elsewhere, from where the next steps find them.

        Args:
            poses: position and quaternion [w x y z] of each, (..., n, 7), which expands to the batch.
        """
        shape = self.mocap.shape
        if not isinstance(poses, torch.Tensor):
            raise InputError(
                f"with_mocap: poses must be a tensor of the shape {tuple(shape)}, got {type(poses).__name__}"
            )
        if poses.shape[-2:] != shape[-2:] or shape[-2] == 0:
            raise InputError(f"with_mocap: poses must be of the shape {tuple(shape)}, got {tuple(poses.shape)}")
        memory = {**self.memory, "mocap": poses.to(self.q).expand(shape).flatten(-2)}
        return self.replace(memory=memory)

    def expand_start(self, shape: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return where the environments began, expanded to a shape of the batch."""
        return {name: x if x.shape[:-1] == shape else x.expand(*shape, -1) for name, x in self.start.items()}

    def __getitem__(self, index: Any) -> "SimulatorState":
        return self._select(index if isinstance(index, tuple) else (index,))

    @staticmethod
    def cat(states: Sequence["SimulatorState"], dim: int = 0) -> "SimulatorState":
        """Join states along a dimension of the batch; negative ones count from the last of the batch."""
        return _joined("cat", SimulatorState, states, dim)

    @staticmethod
    def stack(states: Sequence["SimulatorState"], dim: int = 0) -> "SimulatorState":
        """Join states along a new dimension of the batch; negative ones count from the last of the batch."""
        return _joined("stack", SimulatorState, states, dim)


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Tensors):
    """States over time, which is the first dimension of everything; indices and masks select among the batch.

    Attributes:
        q: The configurations, (steps + 1, ..., nq).
        v: The velocities, (steps + 1, ..., nv).
        memory: What steps hand to the next, (steps + 1, ...) each.
        start: "q", "v" and activations of the state in which each environment began, the same at all times,
            (steps + 1, ...) each.
        outputs: What the call asked for besides, by name, (steps, ...) each.
    """

    outputs: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, index: Any) -> "Trajectory":
        return self._select((slice(None), *(index if isinstance(index, tuple) else (index,))))

    @staticmethod
    def cat(trajectories: Sequence["Trajectory"], dim: int = 0) -> "Trajectory":
        """Join trajectories of the same steps along a dimension of the batch, counted without time."""
        return _joined("cat", Trajectory, trajectories, dim)

    @staticmethod
    def stack(trajectories: Sequence["Trajectory"], dim: int = 0) -> "Trajectory":
        """Join trajectories of the same steps along a new dimension of the batch, counted without time."""
        return _joined("stack", Trajectory, trajectories, dim)

    def at(self, step: int) -> SimulatorState:
        """Return one of the states."""
        memory, start = ({name: x[step] for name, x in part.items()} for part in (self.memory, self.start))
        return SimulatorState(self.q[step], self.v[step], memory, start)

    @property
    def last(self) -> SimulatorState:
        """Return the state at the end."""
        return self.at(-1)


def _joined(how: str, kind: type[T], parts: Sequence[T], dim: int) -> T:
    """Join tensors of the batch: `torch.cat` or `torch.stack` along a dimension of the batch."""
    parts = list(parts)
    for part in parts:
        if not isinstance(part, kind):
            raise InputError(f"{how}: these must be of the kind {kind.__name__}, got a {type(part).__name__}")
    if not parts:
        raise InputError(f"{how}: pass at least one {kind.__name__}")
    time = 1 if kind is Trajectory else 0
    rank = parts[0].q.dim() - 1 - time + (how == "stack")
    if not -rank <= dim < rank:
        raise InputError(f"{how}: the batch has no dimension {dim}; it is of the shape {tuple(parts[0].q.shape[:-1])}")
    if not all(part.start for part in parts):
        parts = [part.replace(start={}) for part in parts]
    leaves, structure = zip(*[_pytree.tree_flatten(part) for part in parts], strict=True)
    if any(other != structure[0] for other in structure):
        names = " and ".join(sorted({", ".join(part.memory) for part in parts}))
        raise InputError(f"{how}: these do not have the same tensors; their memory is {names}")
    join = torch.cat if how == "cat" else torch.stack
    joined = [join(column, dim % rank + time) for column in zip(*leaves, strict=True)]
    return _pytree.tree_unflatten(joined, structure[0])


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
