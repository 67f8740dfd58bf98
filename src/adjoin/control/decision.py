"""What an optimizer may decide: controls, splines of them, a robot's parameters, or anything that a function makes.

A decision stands for a vector of numbers. It says where they start, how far apart starts are, within which limits they
stay, and what a rollout gets for them.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from adjoin.errors import InputError
from adjoin.learn.gauss_newton import flatten, raw_numbers
from adjoin.learn.parameters import Parameters
from adjoin.simulation.simulator import Simulator

Limits = tuple[float | Sequence[float] | torch.Tensor, float | Sequence[float] | torch.Tensor]


class Box(NamedTuple):
    """The numbers of a decision, (n,) each.

    Attributes:
        lower: limits.
        start: where they start by default.
        upper: limits.
        spread: the unit of rates and of random starts.
    """

    lower: torch.Tensor
    start: torch.Tensor
    upper: torch.Tensor
    spread: torch.Tensor


class Decision(Protocol):
    """What an optimizer may decide."""

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """Its numbers, in the dtype and on the device of `like`."""
        ...

    def inputs(self, numbers: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """What a rollout gets for numbers (batch, n): "state", "controls", "params" or "tensors"."""
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
        """See `Decision`."""
        return _control_box(self, sim, steps, like)

    def inputs(self, numbers: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `Decision`."""
        return {"controls": numbers.unflatten(-1, (steps, -1)).transpose(0, 1)}


@dataclass(frozen=True)
class Spline:
    """Controls that follow a B-spline over the steps: smooth, and few numbers. They stay within their limits.

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
        """See `Decision`."""
        return _control_box(self, sim, self.knots, like)

    def inputs(self, numbers: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `Decision`."""
        points = numbers.unflatten(-1, (self.knots, -1))
        basis = _basis(steps, self.knots, self.degree, points.dtype, points.device)
        return {"controls": torch.einsum("sk,bku->sbu", basis, points)}


@dataclass(frozen=True)
class Numbers:
    """Numbers of any meaning.

    Attributes:
        start: where they start, (n,).
        make: from the numbers (batch, n) to what a rollout gets, by torch operations: a dictionary with any of "state",
            a `SimulatorState` of the batch; "controls", (steps, batch, ...); "params" and "tensors", dictionaries
            of tensors (batch, ...).
        limits: least and greatest, one number or (n,) each.
        spread: see `Controls`; by default half of the way between the limits, and 1 where there are none.
    """

    start: Sequence[float] | torch.Tensor
    make: Callable[[torch.Tensor], dict[str, Any]]
    limits: Limits = (-torch.inf, torch.inf)
    spread: float | Sequence[float] | torch.Tensor | None = None

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """See `Decision`."""
        start = _tensor("Numbers", "start", self.start, like)
        if start.ndim != 1 or not len(start):
            raise InputError(f"Numbers: start must be (n,), at least one number; got {tuple(start.shape)}")
        if not callable(self.make):
            raise InputError(f"Numbers: make must be a function of the numbers, got {self.make!r}")
        return _box("Numbers", start, self.limits, self.spread)

    def inputs(self, numbers: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `Decision`."""
        return self.make(numbers)


@dataclass(frozen=True)
class Learned:
    """The raw numbers of a module that gives `params`, such as `adjoin.learn.parameters.Parameters`.

    The module itself stays as it is; `assign` gives it what was found.

    Attributes:
        module: whose parameters that require gradients are decided.
        spread: of the raw numbers; see `Controls`.
    """

    module: torch.nn.Module
    spread: float = 1.0
    _own: torch.nn.Module = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if not isinstance(self.module, torch.nn.Module):
            raise InputError(f"Learned: the module must be a torch.nn.Module, got a {type(self.module).__name__}")
        if not raw_numbers(self.module):
            raise InputError("Learned: the module has no parameters that require gradients")
        own = copy.deepcopy(self.module)
        if isinstance(own, Parameters):
            own.check = False
        object.__setattr__(self, "_own", own)

    def box(self, sim: Simulator, steps: int, like: torch.Tensor) -> Box:
        """See `Decision`."""
        self._own.to(like)
        return _box("Learned", flatten(raw_numbers(self.module)).to(like), (-torch.inf, torch.inf), self.spread)

    def inputs(self, numbers: torch.Tensor, sim: Simulator, steps: int) -> dict[str, Any]:
        """See `Decision`."""
        like = raw_numbers(self._own)
        parts = numbers.split([value.numel() for value in like.values()], -1)
        values = {
            name: part.unflatten(-1, value.shape) if value.ndim else part[:, 0]
            for (name, value), part in zip(like.items(), parts, strict=True)
        }
        return {"params": torch.func.vmap(lambda raw: torch.func.functional_call(self._own, raw, ()))(values)}

    def assign(self, numbers: torch.Tensor) -> None:
        """Give the module these raw numbers, (n,)."""
        like = raw_numbers(self.module)
        sizes = [value.numel() for value in like.values()]
        if numbers.shape != (sum(sizes),):
            raise InputError(f"Learned: numbers must be ({sum(sizes)},), got {tuple(numbers.shape)}")
        parts = numbers.split(sizes)
        with torch.no_grad():
            for name, part in zip(like, parts, strict=True):
                own = self.module.get_parameter(name)
                own.copy_(part.reshape(own.shape))


def b_spline(steps: int, knots: int, degree: int) -> torch.Tensor:
    """The weight of each control point at each step, (steps, knots): never negative, and 1 in sum.

    By the recursion of de Boor, A practical guide to splines, 1978; the first and the last point are met.
    """
    inner = torch.linspace(0.0, 1.0, knots - degree + 1, dtype=torch.float64)
    places = torch.cat([inner.new_zeros(degree), inner, inner.new_ones(degree)])
    time = torch.linspace(0.0, 1.0, steps, dtype=torch.float64)[:, None]
    left, right = places[:-1], places[1:]
    last = (time == 1.0) & (right == 1.0) & (left < 1.0)
    basis = (((time >= left) & (time < right)) | last).double()
    for order in range(1, degree + 1):
        width = places[order:] - places[:-order]
        share = torch.where(width > 0.0, (time - places[:-order]) / width.clamp(min=1e-30), 0.0)
        basis = share[:, :-1] * basis[:, :-1] + torch.where(width > 0.0, 1.0 - share, 0.0)[:, 1:] * basis[:, 1:]
    return basis


@functools.lru_cache(maxsize=64)
def _basis(steps: int, knots: int, degree: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return b_spline(steps, knots, degree).to(device, dtype)


def _control_box(decision: "Controls | Spline", sim: Simulator, rows: int, like: torch.Tensor) -> Box:
    label, width = type(decision).__name__, sim.model.nu if decision.width is None else decision.width
    if not isinstance(width, int) or width < 0:
        raise InputError(f"{label}: width must be a whole number, got {width!r}")
    if not width:
        raise InputError(f"{label}: {sim.model.name!r} has no actuators; try `Model.with_motors`, or Numbers")
    limits = decision.limits
    _check_limits(label, limits)
    if limits is None:
        ranges = [actuator.control_range for actuator in sim.model.actuators]
        free = (-torch.inf, torch.inf)
        limits = ([x[0] for x in ranges], [x[1] for x in ranges]) if decision.width is None else free
    start = _spread_out(label, "start", decision.start, (rows, width), like)
    spread = decision.spread
    if spread is not None:
        spread = _spread_out(label, "spread", spread, (rows, width), like).flatten()
    edges = tuple(_spread_out(label, "limits", limit, (rows, width), like).flatten() for limit in limits)
    return _box(label, start.flatten(), (edges[0], edges[1]), spread)


def _box(label: str, start: torch.Tensor, limits: Limits, spread: Any) -> Box:
    _check_limits(label, limits)
    lower, upper = (_spread_out(label, "limits", limit, tuple(start.shape), start) for limit in limits)
    if bool((lower > upper).any()) or bool((lower.isnan() | upper.isnan()).any()):
        raise InputError(f"{label}: each lower limit must be at most the upper one")
    if spread is None:
        half = 0.5 * (upper - lower)
        spread = torch.where(half.isfinite() & (half > 0.0), half, 1.0)
    spread = _spread_out(label, "spread", spread, tuple(start.shape), start)
    if not bool((spread > 0.0).all() and spread.isfinite().all() and start.isfinite().all()):
        raise InputError(f"{label}: start must be finite, spread finite and positive")
    return Box(lower, start.clamp(lower, upper), upper, spread)


def _spread_out(label: str, what: str, value: Any, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    given = _tensor(label, what, value, like)
    try:
        return given.expand(shape).contiguous()
    except RuntimeError:
        raise InputError(f"{label}: {what} of the shape {tuple(given.shape)} does not fit {shape}") from None


def _tensor(label: str, what: str, value: Any, like: torch.Tensor) -> torch.Tensor:
    try:
        return torch.as_tensor(value, dtype=like.dtype).to(like)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{label}: {what} must be numbers, got {value!r}") from None


def _check_limits(label: str, limits: Any) -> None:
    if limits is not None and (not isinstance(limits, Sequence) or isinstance(limits, str) or len(limits) != 2):
        raise InputError(f"{label}: limits must be a pair, the least and the greatest, got {limits!r}")
