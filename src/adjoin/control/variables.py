"""Decision variables of an optimization: controls, splines of them, a robot's parameters, or any others.

Each kind stands for a vector of variables. It knows where they start, how far apart starts are, within which limits
they stay, and what a rollout gets for them.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from adjoin.errors import InputError
from adjoin.learn.jacobian import assign, flatten, raw_numbers
from adjoin.learn.parameters import Parameters
from adjoin.simulation.simulator import Simulator

Limits = tuple[float | Sequence[float] | torch.Tensor, float | Sequence[float] | torch.Tensor]


class Box(NamedTuple):
    """Limits, start and unit of decision variables, (n,) each.

    Attributes:
        lower: the lower limits.
        start: where the variables start by default.
        upper: the upper limits.
        spread: the unit of rates and of random starts.
    """

    lower: torch.Tensor
    start: torch.Tensor
    upper: torch.Tensor
    spread: torch.Tensor


class DecisionVariables(Protocol):
    """What an optimizer may decide."""

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """Return limits, start and unit in the dtype and on the device of `like`."""
        ...

    def inputs(self, values: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """Return what a rollout gets for values (batch, n): "state", "controls", "params" or "tensors"."""
        ...


@dataclass(frozen=True)
class Controls:
    """Every control of every step.

    Attributes:
        start: where they start, one number or (width,) or (steps, width); by default 0, or the limit nearest to it.
        limits: least and greatest, one number or (width,) each; by default the actuators' control ranges, and none for
            what a controller gets. Where controls are beyond the actuators' ranges, gradients are 0.
        spread: how far random starts are apart at most, and the unit of rates; by default half of the way between the
            limits, and 1 where there are none.
        width: numbers a step; by default nu. A controller may get another number of them.
    """

    start: float | Sequence[Any] | torch.Tensor = 0.0
    limits: Limits | None = None
    spread: float | Sequence[float] | torch.Tensor | None = None
    width: int | None = None

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """See `DecisionVariables`."""
        return _control_box(self, sim, steps, like)

    def inputs(self, values: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `DecisionVariables`."""
        return {"controls": values.unflatten(-1, (steps, -1)).transpose(0, 1)}


@dataclass(frozen=True)
class Spline:
    """Controls that follow a B-spline over the steps: smooth, and few variables. They stay within their limits.

    Attributes:
        knots: control points of each control.
        degree: 3 smooth, 1 straight lines, 0 held constant.
        start: see `Controls`, like all that follows; (knots, width) at most.
        limits: see `Controls`.
        spread: see `Controls`.
        width: see `Controls`.
    """

    knots: int
    degree: int = 3
    start: float | Sequence[Any] | torch.Tensor = 0.0
    limits: Limits | None = None
    spread: float | Sequence[float] | torch.Tensor | None = None
    width: int | None = None

    def __post_init__(self):
        if not isinstance(self.knots, int) or not isinstance(self.degree, int):
            raise InputError(f"Spline: knots and degree must be whole numbers, got {self.knots!r} and {self.degree!r}")
        if self.degree < 0 or self.knots <= self.degree:
            raise InputError(
                f"Spline: of degree {self.degree} it needs at least {self.degree + 1} knots, got {self.knots}"
            )

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """See `DecisionVariables`."""
        return _control_box(self, sim, self.knots, like)

    def inputs(self, values: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `DecisionVariables`."""
        points = values.unflatten(-1, (self.knots, -1))
        basis = _basis(steps, self.knots, self.degree, points.dtype, points.device)
        return {"controls": torch.einsum("sk,bku->sbu", basis, points)}


@dataclass(frozen=True)
class Variables:
    """Variables of any meaning.

    Attributes:
        start: where they start, (n,).
        decode: a function from values (batch, n) to what a rollout gets, by torch operations: a dictionary with any of
            "state", a `SimulatorState` of the batch; "controls", (steps, batch, ...); "params" and "tensors",
            dictionaries of tensors (batch, ...).
        limits: least and greatest, one number or (n,) each.
        spread: see `Controls`; by default half of the way between the limits, and 1 where there are none.
    """

    start: Sequence[float] | torch.Tensor
    decode: Callable[[torch.Tensor], dict[str, Any]]
    limits: Limits = (-torch.inf, torch.inf)
    spread: float | Sequence[float] | torch.Tensor | None = None

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """See `DecisionVariables`."""
        start = _tensor("Variables", "start", self.start, like)
        if start.ndim != 1 or not len(start):
            raise InputError(f"Variables: start must be (n,), at least one number; got {tuple(start.shape)}")
        if not callable(self.decode):
            raise InputError(f"Variables: decode must be a function of the variables, got {self.decode!r}")
        return _box("Variables", start, self.limits, self.spread)

    def inputs(self, values: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `DecisionVariables`."""
        return self.decode(values)


@dataclass(frozen=True)
class ModuleParameters:
    """The raw numbers of a module that returns `params`, such as `adjoin.learn.Parameters`.

    The module itself stays as it is; `assign` writes a result into it.

    Attributes:
        module: whose parameters that require gradients are the variables.
        spread: of the raw numbers; see `Controls`.
    """

    module: torch.nn.Module
    spread: float = 1.0
    _copy: torch.nn.Module = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if not isinstance(self.module, torch.nn.Module):
            raise InputError(
                f"ModuleParameters: the module must be a torch.nn.Module, got a {type(self.module).__name__}"
            )
        if not raw_numbers(self.module):
            raise InputError("ModuleParameters: the module has no parameters that require gradients")
        module = copy.deepcopy(self.module)
        if isinstance(module, Parameters):
            module.check = False
        object.__setattr__(self, "_copy", module)

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """See `DecisionVariables`."""
        self._copy.to(like)
        start = flatten(raw_numbers(self.module)).to(like)
        return _box("ModuleParameters", start, (-torch.inf, torch.inf), self.spread)

    def inputs(self, values: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `DecisionVariables`."""
        like = raw_numbers(self._copy)
        parts = values.split([value.numel() for value in like.values()], -1)
        raw = {
            name: part.unflatten(-1, value.shape) if value.ndim else part[:, 0]
            for (name, value), part in zip(like.items(), parts, strict=True)
        }
        return {"params": torch.func.vmap(lambda raw: torch.func.functional_call(self._copy, raw, ()))(raw)}

    def assign(self, values: torch.Tensor) -> None:
        """Write raw numbers (n,) into the module."""
        size = len(flatten(raw_numbers(self.module)))
        if values.shape != (size,):
            raise InputError(f"ModuleParameters: values must be ({size},), got {tuple(values.shape)}")
        assign(self.module, values)


def b_spline(steps: int, knots: int, degree: int) -> torch.Tensor:
    """Return the weight of each control point at each step, (steps, knots): never negative, and 1 in sum.

    By the recursion of de Boor, A practical guide to splines, 1978; the first and the last point are met.
    """
    inner = torch.linspace(0.0, 1.0, knots - degree + 1, dtype=torch.float64)
    sites = torch.cat([inner.new_zeros(degree), inner, inner.new_ones(degree)])
    time = torch.linspace(0.0, 1.0, steps, dtype=torch.float64)[:, None]
    left, right = sites[:-1], sites[1:]
    last = (time == 1.0) & (right == 1.0) & (left < 1.0)
    basis = (((time >= left) & (time < right)) | last).double()
    for order in range(1, degree + 1):
        width = sites[order:] - sites[:-order]
        share = torch.where(width > 0.0, (time - sites[:-order]) / width.clamp(min=1e-30), 0.0)
        basis = share[:, :-1] * basis[:, :-1] + torch.where(width > 0.0, 1.0 - share, 0.0)[:, 1:] * basis[:, 1:]
    return basis


@functools.lru_cache(maxsize=64)
def _basis(steps: int, knots: int, degree: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return b_spline(steps, knots, degree).to(device, dtype)


def _control_box(variables: "Controls | Spline", sim: Simulator, rows: int, like: torch.Tensor) -> Box:
    label, width = type(variables).__name__, sim.model.nu if variables.width is None else variables.width
    if not isinstance(width, int) or width < 0:
        raise InputError(f"{label}: width must be a whole number, got {width!r}")
    if not width:
        raise InputError(f"{label}: {sim.model.name!r} has no actuators; try `Model.with_motors`, or Variables")
    limits = variables.limits
    _check_limits(label, limits)
    if limits is None:
        ranges = [actuator.control_range for actuator in sim.model.actuators]
        unlimited = (-torch.inf, torch.inf)
        limits = ([x[0] for x in ranges], [x[1] for x in ranges]) if variables.width is None else unlimited
    start = _expand(label, "start", variables.start, (rows, width), like)
    spread = variables.spread
    if spread is not None:
        spread = _expand(label, "spread", spread, (rows, width), like).flatten()
    edges = tuple(_expand(label, "limits", limit, (rows, width), like).flatten() for limit in limits)
    return _box(label, start.flatten(), (edges[0], edges[1]), spread)


def _box(label: str, start: torch.Tensor, limits: Limits, spread: Any) -> Box:
    _check_limits(label, limits)
    lower, upper = (_expand(label, "limits", limit, tuple(start.shape), start) for limit in limits)
    if bool((lower > upper).any()) or bool((lower.isnan() | upper.isnan()).any()):
        raise InputError(f"{label}: each lower limit must be at most the upper one")
    if spread is None:
        half = 0.5 * (upper - lower)
        spread = torch.where(half.isfinite() & (half > 0.0), half, 1.0)
    spread = _expand(label, "spread", spread, tuple(start.shape), start)
    if not bool((spread > 0.0).all() and spread.isfinite().all() and start.isfinite().all()):
        raise InputError(f"{label}: start must be finite, spread finite and positive")
    return Box(lower, start.clamp(lower, upper), upper, spread)


def _expand(label: str, what: str, value: Any, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    tensor = _tensor(label, what, value, like)
    try:
        return tensor.expand(shape).contiguous()
    except RuntimeError:
        raise InputError(f"{label}: {what} of the shape {tuple(tensor.shape)} does not fit {shape}") from None


def _tensor(label: str, what: str, value: Any, like: torch.Tensor) -> torch.Tensor:
    try:
        return torch.as_tensor(value, dtype=like.dtype).to(like)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{label}: {what} must be numbers, got {value!r}") from None


def _check_limits(label: str, limits: Any) -> None:
    if limits is not None and (not isinstance(limits, Sequence) or isinstance(limits, str) or len(limits) != 2):
        raise InputError(f"{label}: limits must be a pair, the least and the greatest, got {limits!r}")
