"""The learned parameters of a model: a `torch.nn.Module` that returns the `params` of every call."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adjoin.errors import InputError, unknown_name
from adjoin.learn.modules import Covariance, LogCholesky, Positive, Rotation, Triangular, symmetric_numbers
from adjoin.model import parameters
from adjoin.model.flaws import ROUNDING
from adjoin.model.model import Model
from adjoin.spatial.inertia import second_moment
from adjoin.trace import Function, minimum, select

INERTIAL = "inertial"
"""The name of the group of mass, com and inertia."""

GROUPS: dict[str, tuple[str, ...]] = {INERTIAL: ("mass", "com", "inertia")}

_NOT_NEGATIVE = ("mass", "damping", "friction", "armature", "stiffness", "geometry_size", "geometry_friction")
_NOT_NEGATIVE += ("tendon_stiffness", "tendon_damping", "tendon_friction", "fluid_density", "fluid_viscosity")
_ROTATIONS = ("joint_rotation", "frame_rotation", "geometry_rotation", "equality_rotation")
_INFINITE = ("lower", "upper", "tendon_lower", "tendon_upper")
_ONLY_NAN_IS_WRONG: dict[str, Any] = {
    **dict.fromkeys(_NOT_NEGATIVE, Positive),
    **dict.fromkeys(_ROTATIONS, Rotation),
    "mass": (Positive, LogCholesky),
    "inertia": (Covariance, Triangular, LogCholesky),
    **dict.fromkeys(_INFINITE, ()),
}
"""Modules whose values are valid unless they are NaN; for parameters that are not here, those are all modules."""


@dataclass(frozen=True)
class ModuleTarget:
    """Where the numbers of one module go.

    Attributes:
        name: of the parameter or group.
        items: names of what it was chosen for.
        indices: along the first dimension, one a number; empty for parameters of the world.
        owners: which item each of the indices belongs to.
    """

    name: str
    items: tuple[str, ...]
    indices: tuple[int, ...]
    owners: tuple[str, ...]


class Parameters(torch.nn.Module):
    """The learned parameters of a model, by name, for `params` of every call and of the simulator.

    Args:
        model: the robot.
        dtype: of the parameters; torch's default if not given.
        device: of the parameters; torch's default if not given.
        check: whether values are checked at each call: NaN, negative masses, unphysical inertias, quaternions that are
            not of unit length. Shapes always are.

    Example:
        learned = Parameters(model).learn("mass", Positive, of=["link3"])
        adjoin.rnea(model, q, v, a, params=learned())
    """

    def __init__(
        self,
        model: Model,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        check: bool = True,
    ):
        super().__init__()
        if not isinstance(model, Model):
            raise InputError(f"Parameters: the model must be an adjoin.Model, got a {type(model).__name__}")
        self.check = check
        self.parts = torch.nn.ModuleDict()
        self._model = model
        self._targets: dict[str, list[ModuleTarget]] = {}
        self._indices: dict[tuple[str, torch.device], torch.Tensor | None] = {}
        for name, value in model.parameters(dtype=dtype, device=device).items():
            self.register_buffer(_buffer(name), value, persistent=False)

    def learn(
        self,
        name: str,
        module: torch.nn.Module | Callable[..., torch.nn.Module],
        of: str | Sequence[str] | None = None,
    ) -> "Parameters":
        """Learn a parameter.

        Args:
            name: of the parameter, see `Model.parameters`, or "inertial" for mass, com and inertia together.
            module: its `forward()` gives (*batch, k, ...) for the k numbers chosen, or (*batch, 1, ...) or (...) for
                one value that they share; inertias as (..., 6) or (..., 3, 3); for "inertial" the tuple (mass, com,
                inertia). A class, or a function that makes a module, is called with the model's own values.
            of: names of bodies, joints (for damping, friction, armature, stiffness, spring_reference and limits),
                geometries, actuators or frames; all by default.

        Returns:
            Itself.
        """
        members = GROUPS.get(name, (name,))
        if name not in GROUPS and parameters.find(name) is None and name not in parameters.FIXED:
            raise InputError(unknown_name("parameter", "parameters", name, [*GROUPS, *parameters.names()]))
        items, indices, owners = self._chosen(name, parameters.named(members[0]), of)
        for other in (part for member in members for part in self._targets.get(member, [])):
            twice = sorted(set(other.indices) & set(indices)) or (None if indices else [None])
            if twice:
                whose = f" of {owners[indices.index(twice[0])]!r}" if twice[0] is not None else ""
                raise InputError(f"learn: {name!r}{whose} is learned already, as {other.name!r}")
        like = self._start(members[0])
        if not isinstance(module, torch.nn.Module):
            if not callable(module):
                raise InputError(
                    f"learn: {name!r} needs a torch.nn.Module, or a class of them; got a {type(module).__name__}"
                )
            starts = [self._start(member) for member in members]
            module = module(*[start[list(indices)] if indices else start for start in starts])
        module.to(device=like.device, dtype=like.dtype)
        part = ModuleTarget(name, items, indices, owners)
        values = self._values(part, module)
        if self.check:
            _check([(part, member, value, module) for member, value in values.items()])
        if name not in self.parts:
            self.parts[name] = torch.nn.ModuleList()
        modules: Any = self.parts[name]
        modules.append(module)
        for member in members:
            self._targets.setdefault(member, []).append(part)
        self._indices.clear()
        return self

    def forward(self) -> dict[str, torch.Tensor]:
        """Return the learned parameters, of the model's full shape; what is not learned has the model's value.

        Returns:
            parameter name -> (*batch, ...), to be passed as `params`.
        """
        by_name: dict[str, list[torch.Tensor]] = {}
        checked: list[tuple[ModuleTarget, str, torch.Tensor, torch.nn.Module]] = []
        for name, modules in self.parts.items():
            for module, part in zip(modules, self._parts_of(name), strict=True):  # type: ignore[arg-type]
                for member, value in self._values(part, module).items():
                    by_name.setdefault(member, []).append(value)
                    checked.append((part, member, value, module))
        if self.check:
            _check(checked)
        return {name: self._full(name, values) for name, values in by_name.items()}

    def model(self) -> Model:
        """Return the model with the learned values; they must not be per environment."""
        with torch.no_grad():
            return self._model.with_parameters(self())

    def _parts_of(self, name: str) -> list[ModuleTarget]:
        return [part for part in self._targets[GROUPS.get(name, (name,))[0]] if part.name == name]

    def _start(self, name: str) -> torch.Tensor:
        return getattr(self, _buffer(name))

    def _chosen(
        self, name: str, parameter: parameters.Parameter, of: str | Sequence[str] | None
    ) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
        """The chosen items, the indices of their numbers, and the item of each index."""
        model = self._model
        if parameter.owner == "world":
            if of is not None:
                raise InputError(f"learn: {name!r} belongs to the world; leave `of` out")
            return (), (), ()
        what, ranges = ranges_of(model, parameter)
        wanted = list(ranges) if of is None else [of] if isinstance(of, str) else list(of)
        for item in wanted:
            if item not in ranges:
                welded = next((frame for frame in model.frames if frame.name == item and frame.body >= 0), None)
                hint = f" ({item!r} is welded to the body {model.bodies[welded.body].name!r})" if welded else ""
                plural = {"body": "bodies", "geometry": "geometries"}.get(what, f"{what}s")
                raise InputError(f"learn: {name!r}: {unknown_name(what, plural, item, ranges)}{hint}")
        if len(set(wanted)) != len(wanted) or not wanted:
            raise InputError(f"learn: {name!r}: `of` must name each {what} once, and at least one; got {wanted}")
        indices = [(index, item) for item in wanted for index in ranges[item]]
        if not indices:
            raise InputError(f"learn: {name!r}: {', '.join(wanted)} has no numbers of its own, as it follows another")
        return tuple(wanted), tuple(index for index, _ in indices), tuple(item for _, item in indices)

    def _values(self, part: ModuleTarget, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """The values of a module by parameter, each with the dimension of indices if the parameter has it."""
        values: Any = module()
        if part.name in GROUPS:
            names = GROUPS[part.name]
            if not isinstance(values, tuple) or len(values) != len(names):
                raise InputError(
                    f"{_whose(part)}: {type(module).__name__} must return the tuple ({', '.join(names)}), "
                    f"got a {type(values).__name__}"
                )
        else:
            names, values = (part.name,), (values,)
        pairs = zip(names, values, strict=True)
        return {name: self._shaped(part, name, value, module) for name, value in pairs}

    def _shaped(self, part: ModuleTarget, name: str, value: Any, module: torch.nn.Module) -> torch.Tensor:
        tail = parameters.named(name).tail
        count = len(part.indices)
        prefix = f"{_whose(part, name)}: {type(module).__name__} returned"
        if not isinstance(value, torch.Tensor):
            raise InputError(f"{prefix} a {type(value).__name__}; it must return a torch tensor")
        like = self._start(name)
        if value.dtype != like.dtype or value.device != like.device:
            raise InputError(
                f"{prefix} {value.dtype} on {value.device}; the parameters are {like.dtype} on {like.device}"
            )
        if name == "inertia" and value.shape[-2:] == (3, 3):
            value = symmetric_numbers(value)
        lead = value.ndim - len(tail)
        fits = lead >= 0 and tuple(value.shape[lead:]) == tail
        if not count and fits:
            return value
        if fits and lead == 0:
            return value.unsqueeze(0)
        if fits and value.shape[lead - 1] in (1, count):
            return value
        sizes = "".join(f", {size}" for size in tail)
        choices = f"(..., {count}{sizes})" if count else f"(...{sizes})"
        shared = f" or {tail} shared by all" if count > 1 else ""
        raise InputError(f"{prefix} shape {tuple(value.shape)}; it must return {choices}{shared}")

    def _full(self, name: str, values: list[torch.Tensor]) -> torch.Tensor:
        """The values at their indices among the model's."""
        start = self._start(name)
        indices = [part.indices for part in self._targets[name]]
        if not indices[0]:
            return values[0]
        depth = 1 + len(parameters.named(name).tail)
        leads = [value.shape[: value.ndim - depth] for value in values]
        try:
            batch = torch.broadcast_shapes(*leads)
        except RuntimeError:
            listed = ", ".join(str(tuple(lead)) for lead in leads)
            raise InputError(f"the modules for {name!r} have batch shapes that do not broadcast: {listed}") from None
        tail = start.shape[1:]
        parts = [value.expand(*batch, len(at), *tail) for value, at in zip(values, indices, strict=True)]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, -depth)
        index = self._index(name, start.device)
        if index is None:
            return joined
        return start.expand(*batch, *start.shape).index_copy(joined.ndim - depth, index, joined)

    def _index(self, name: str, device: torch.device) -> torch.Tensor | None:
        """Where the values of all modules go; None if they are all there are, in order."""
        key = (name, device)
        if key not in self._indices:
            indices = [index for part in self._targets[name] for index in part.indices]
            complete = indices == list(range(self._start(name).shape[0]))
            self._indices[key] = None if complete else torch.tensor(indices, device=device)
        return self._indices[key]


def _whose(part: ModuleTarget, name: str | None = None, item: str | None = None) -> str:
    items = part.items if item is None else (item,)
    listed = f" of {', '.join(map(repr, items[:4]))}{', ...' if len(items) > 4 else ''}" if items else ""
    return f"{name or part.name}{listed}"


def _check(values: Sequence[tuple[ModuleTarget, str, torch.Tensor, torch.nn.Module]]) -> None:
    """Raise `InputError` for a value that no robot has; what can only be NaN is looked at all at once."""
    unless_nan = [_is_valid_unless_nan(name, module) for _, name, _, module in values]
    total = sum(value.detach().sum() for (_, _, value, _), valid in zip(values, unless_nan, strict=True) if valid)
    finite = math.isfinite(float(total))
    for item, valid in zip(values, unless_nan, strict=True):
        if not (valid and finite):
            _check_one(*item)


def _is_valid_unless_nan(name: str, module: torch.nn.Module) -> bool:
    return isinstance(module, _ONLY_NAN_IS_WRONG.get(name, torch.nn.Module))


def _check_one(part: ModuleTarget, name: str, value: torch.Tensor, module: torch.nn.Module) -> None:
    value = value.detach()
    valid, rule = _valid(name, value)
    if bool(valid.all()):
        return
    index = tuple((~valid).nonzero()[0].tolist())
    flaw = "it must not be NaN" if bool(value[index].isnan().any()) else rule
    shared = not part.indices or valid.shape[-1] != len(part.indices)
    whose = _whose(part, name, None if shared else part.owners[index[-1]])
    batch = index if not part.indices else index[:-1]
    where = f"environment {', '.join(map(str, batch))}: " if batch else ""
    raise InputError(f"{where}{whose}: {type(module).__name__} returned {value[index].tolist()}; {flaw}")


def _buffer(name: str) -> str:
    return f"own_{name}"


def ranges_of(model: Model, parameter: parameters.Parameter) -> tuple[str, dict[str, range]]:
    """Return what a parameter belongs to, and the indices of each owner by name."""
    if parameter.owner in ("dofs", "configuration"):
        dofs, pairs = parameter.owner == "dofs", zip(model.joints, model.coordinates, strict=True)
        starts = {joint.name: (at.v, joint.nv) if dofs else (at.q, joint.nq) for joint, at in pairs}
        return "joint", {name: range(start, start + size) for name, (start, size) in starts.items()}
    if parameter.name == "actuator_gear":
        ranges, start = {}, 0
        for actuator in model.actuators:
            ranges[actuator.name] = range(start, start + len(actuator.gear))
            start += len(actuator.gear)
        return "actuator", ranges
    what = {"bodies": "body", "joints": "joint", "geometries": "geometry", "actuators": "actuator", "frames": "frame"}
    what |= {"tendons": "tendon", "equalities": "equality"}
    owners = getattr(model, parameter.owner)
    return what[parameter.owner], {item.name: range(k, k + 1) for k, item in enumerate(owners)}


def _valid(name: str, value: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Which values are physical, without the tail, and what they must be."""
    if name == "inertia":
        return _physical(value), "it must be a physical inertia: positive, and within the triangle inequality"
    if name in _ROTATIONS:
        off = (value.square().sum(-1) - 1.0).abs()
        return off < 1e-4, "a quaternion must be of unit length"
    tail = parameters.named(name).tail
    if name in _NOT_NEGATIVE:
        valid, rule = (value >= 0.0) & (value < torch.inf), "it must not be negative, and finite"
    elif name in _INFINITE:
        valid, rule = ~value.isnan(), "it must be a number"
    else:
        valid, rule = value.isfinite(), "it must be finite"
    return (valid.all(-1) if tail else valid), rule


def _physical(inertia: torch.Tensor) -> torch.Tensor:
    """Whether the second moments of mass are positive, up to rounding; the inertia of a point is 0."""
    margin = max(ROUNDING, 16.0 * torch.finfo(inertia.dtype).eps)
    numbers = inertia.double()
    return _positive()(numbers, numbers.new_tensor(margin)) > 0.0


@functools.cache
def _positive() -> Function:
    """Positive for second moments that are positive, by Sylvester's criterion, as a fused kernel."""

    def positive(inertia: Any, margin: Any) -> Any:
        a, b, c, d, e, f = second_moment(tuple(inertia))
        trace = a + d + f
        a, d, f = (x + margin * trace for x in (a, d, f))
        two = a * d - b * b
        three = f * two + c * (b * e - d * c) - e * (a * e - b * c)
        point = inertia @ inertia == 0.0
        return select(point, 1.0, minimum(minimum(a, two), three))

    return Function(positive, {"inertia": 6, "margin": ()})
