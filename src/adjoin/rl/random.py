"""Random numbers of environments, and physical parameters that differ from one environment to the next."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import torch

from adjoin.errors import InputError, unknown_name
from adjoin.learn.parameters import ranges_of
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.rl.ranges import NotNegative, Number, Positive, Range, check_attributes
from adjoin.simulation.simulator import Simulator

MASS, GAINS, TERRAIN = "mass", "gains", "terrain"
TOGETHER = {MASS: (MASS, "inertia"), GAINS: ("actuator_gain", "actuator_bias")}


@lru_cache(maxsize=256)
def constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return numbers as a tensor; it is made once, so that it may be part of a CUDA graph."""
    return torch.tensor(values, dtype=dtype, device=device)


@dataclass(frozen=True)
class Random:
    """Draws tensors on one device, of one dtype, from one generator.

    Attributes:
        generator: Where the numbers come from; None for torch's own.
        device: Where the tensors go.
        dtype: Their dtype.
    """

    generator: torch.Generator | None
    device: torch.device
    dtype: torch.dtype

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        """Return numbers that are spread evenly between two bounds."""
        unit = torch.rand(shape, generator=self.generator, device=self.device, dtype=self.dtype)
        return low + (high - low) * unit

    def normal(self, *shape: int) -> torch.Tensor:
        """Return numbers of the standard normal distribution."""
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def constant(self, values: Sequence[float]) -> torch.Tensor:
        """Return numbers as a tensor; it is made once, so that it may be part of a CUDA graph."""
        return constant(tuple(values), self.dtype, self.device)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Return whole numbers from `low` to `high`, both included."""
        return torch.randint(low, high + 1, shape, generator=self.generator, device=self.device)


@dataclass(frozen=True)
class Uniform:
    """Numbers that are spread evenly between `low` and `high`."""

    low: Number
    high: Number

    def __post_init__(self):
        _check(self)

    def sample(self, random: Random, *shape: int) -> torch.Tensor:
        """Draw a tensor."""
        return random.uniform(self.low, self.high, *shape)


@dataclass(frozen=True)
class LogUniform:
    """Numbers between `low` and `high`, both positive, whose logarithms are spread evenly."""

    low: Positive
    high: Positive

    def __post_init__(self):
        _check(self)

    def sample(self, random: Random, *shape: int) -> torch.Tensor:
        """Draw a tensor."""
        return random.uniform(math.log(self.low), math.log(self.high), *shape).exp()


@dataclass(frozen=True)
class Normal:
    """Numbers of a normal distribution."""

    mean: Number
    deviation: NotNegative

    def __post_init__(self):
        _check(self)

    def sample(self, random: Random, *shape: int) -> torch.Tensor:
        """Draw a tensor."""
        return self.mean + self.deviation * random.normal(*shape)


def _check(distribution: Any) -> None:
    what = type(distribution).__name__
    check_attributes(f"{what}: ", distribution, type(distribution).__annotations__)
    if not isinstance(distribution, Normal) and distribution.low > distribution.high:
        raise InputError(f"{what}: low must be at most high, got {distribution.low!r} and {distribution.high!r}")


Distribution = Annotated[
    Uniform | LogUniform | Normal,
    Range("a distribution such as Uniform(-0.1, 0.1)", lambda x: hasattr(x, "sample") and not isinstance(x, type)),
]


@dataclass(frozen=True)
class Randomize:
    """A parameter that gets a value of its own in each environment, drawn anew when the environment is reset.

    Attributes:
        parameter: A name of `adjoin.model.parameters`, a number of the contact solver as "contact_<name>", "gains",
            which stands for all gains of a servo together, or "terrain". The inertia follows where "mass" is scaled.
        scale: What the model's value is multiplied by.
        add: What is added to it.
        sample: A function that draws the value itself: of a `Random` and the number of environments, to a tensor
            (environments, ...).
        of: The bodies, joints, geometries or actuators by name; by default all of them.
        shared: Whether one factor or addend serves all of those; otherwise each number gets its own.
    """

    parameter: str
    scale: Distribution | None = None
    add: Distribution | None = None
    sample: Callable[[Random, int], torch.Tensor] | None = None
    of: str | Sequence[str] | None = None
    shared: bool = False

    def __post_init__(self):
        if sum(x is not None for x in (self.scale, self.add, self.sample)) != 1:
            raise InputError(f"Randomize({self.parameter!r}): pass one of scale, add and sample")
        if self.parameter == GAINS and self.sample is not None:
            raise InputError(f"Randomize({GAINS!r}): pass scale or add, or sample {' and '.join(TOGETHER[GAINS])}")
        check_attributes(f"Randomize({self.parameter!r}): ", self, type(self).__annotations__)


def draw_parameters(
    simulator: Simulator, randomized: Sequence[Randomize], random: Random, n: int
) -> dict[str, torch.Tensor]:
    """Return parameters for a simulator's calls, (n, ...) each, of which some numbers are drawn."""
    model, values = simulator.model, {}
    own = _own(model, random.dtype, random.device) if randomized else {}
    for each in randomized:
        names = TOGETHER.get(each.parameter, (each.parameter,))
        names = names[:1] if each.parameter == MASS and each.scale is None else names
        if each.sample is not None:
            value = each.sample(random, n)
            if not isinstance(value, torch.Tensor):
                got = type(value).__name__
                raise InputError(f"Randomize({each.parameter!r}): sample must return a tensor, got a {got}")
            values[each.parameter] = value.to(random.device, random.dtype)
            continue
        drawn = None
        for name in names:
            base = values.get(name, _default(simulator, own, name, random))
            base = base if name in values else base.expand(n, *base.shape)
            names_of = each.of if each.of is None or isinstance(each.of, str) else tuple(each.of)
            mask = _mask(model, name, names_of, base.shape[1:], base.device)
            count = 1 if each.shared else base.shape[1] if base.dim() > 1 else 1
            distribution = each.scale or each.add
            assert distribution is not None
            drawn = distribution.sample(random, n, count) if drawn is None else drawn
            change = drawn.reshape(n, *([count] if base.dim() > 1 else []), *[1] * max(0, base.dim() - 2))
            values[name] = torch.where(mask, base * change if each.scale else base + change, base)
    return values


@dataclass(frozen=True)
class _Extreme(Random):
    """Draws the least numbers in the place of random ones, or the greatest; of a normal distribution, what one draw in
    30,000 exceeds."""

    greatest: bool = False

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.full(shape, high if self.greatest else low, device=self.device, dtype=self.dtype)

    def normal(self, *shape: int) -> torch.Tensor:
        return self.uniform(-4.0, 4.0, *shape)


def check_randomized(
    task: str, simulator: Simulator, randomized: Sequence[Randomize], dtype: torch.dtype, device: torch.device
) -> None:
    """Raise where a parameter can get a value that nothing physical has, such as a negative mass."""
    own = _own(simulator.model, dtype, device) if randomized else {}
    for greatest in (False, True):
        extreme = _Extreme(torch.Generator(device).manual_seed(0), device, dtype, greatest)
        for name, value in draw_parameters(simulator, randomized, extreme, 1).items():
            usual, what = _default(simulator, own, name, extreme), f"task {task!r}: Randomize({name!r}): "
            if value.shape != (1, *usual.shape):
                raise InputError(f"{what}sample must return {('n', *usual.shape)}; with n = 1 got {tuple(value.shape)}")
            wrong = _unphysical(name, value[0]) & ~_unphysical(name, usual)
            if wrong.any():
                parameter = parameters.find(name)
                right = parameter.range if parameter and parameter.range != "any" else "finite"
                raise InputError(f"{what}a value can be {value[0][wrong][0].tolist()}; it must be {right}")


def _unphysical(name: str, value: torch.Tensor) -> torch.Tensor:
    """Return which numbers of a parameter nothing physical has, or which rows of it."""
    parameter = parameters.find(name)
    parts = value.unbind(-1) if parameter and parameter.tail else [value]
    kind = parameter.range if parameter else "any"
    return torch.stack([*(~x.isfinite() for x in parts), *parameters.unphysical(kind, parts)]).any(0)


@lru_cache(maxsize=64)
def _own(model: Model, dtype: torch.dtype, device: torch.device) -> dict[str, torch.Tensor]:
    return model.parameters(dtype=dtype, device=device)


def _default(simulator: Simulator, own: dict[str, torch.Tensor], name: str, random: Random) -> torch.Tensor:
    if name in own:
        return own[name]
    prefix = "contact_"
    if name.startswith(prefix) and name in simulator.world.parameters:
        number = getattr(simulator.world.contact, name.removeprefix(prefix))
        return random.constant([float(number)])[0]
    if name == TERRAIN and simulator.world.terrain is not None:
        return simulator.world.terrain.heights_like(torch.empty(0, dtype=random.dtype, device=random.device))
    known = [*simulator.world.parameters, GAINS]
    raise InputError(f"Randomize: {unknown_name('parameter', 'parameters', name, known)}")


@lru_cache(maxsize=256)
def _mask(
    model: Model, name: str, of: str | tuple[str, ...] | None, shape: torch.Size, device: torch.device
) -> torch.Tensor:
    """Return which numbers of a parameter change, in a shape that broadcasts to it."""
    if of is None:
        return torch.ones((), dtype=torch.bool, device=device)
    parameter = parameters.find(name)
    if parameter is None or parameter.owner == "world":
        raise InputError(f"Randomize({name!r}): it has no parts; leave out `of`")
    what, ranges = ranges_of(model, parameter)
    mask = torch.zeros(shape[0], dtype=torch.bool)
    for item in [of] if isinstance(of, str) else of:
        if item not in ranges:
            raise InputError(f"Randomize({name!r}): {unknown_name(what, f'{what}s', item, ranges)}")
        mask[list(ranges[item])] = True
    return mask.to(device).reshape(-1, *[1] * (len(shape) - 1))
