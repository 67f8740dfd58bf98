"""Exciting motions for identification: sines, Fourier series and random moves inside the limits of the joints.

Velocities and accelerations are exact derivatives in time. Joints of several degrees of freedom move in all of them;
a floating base rests unless it is asked to move. Fourier series after Swevers et al. 1997, Optimal robot excitation and
identification; the moves between random places are those of least jerk (Flash and Hogan 1985, The coordination of arm
movements).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from adjoin.errors import InputError
from adjoin.learn import local_coordinates
from adjoin.learn.data import Recording
from adjoin.model.joint_types.base import finite_range
from adjoin.model.model import Model

_SAMPLES_PER_PERIOD = 64
"""Of the highest harmonic, to find the peak of a series."""


@dataclass(frozen=True)
class _Workspace:
    """Where a robot may move: a center (nq), how far and fast each coordinate around it may go (nv), and randomness."""

    model: Model
    center: torch.Tensor
    reach: torch.Tensor
    speed: torch.Tensor
    generator: torch.Generator | None

    def recording(self, time: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor) -> Recording:
        q, v, a = local_coordinates.motion(self.model, self.center, value, rate, second)
        return Recording(self.model, time.expand(q.shape[:-1]), q, v, a)

    def draw(self, kind: Callable[..., torch.Tensor], *shape: int) -> torch.Tensor:
        """Random numbers (*shape, nv) by torch.rand or torch.randn."""
        device = torch.device("cpu") if self.generator is None else self.generator.device
        numbers = kind(*shape, self.model.nv, generator=self.generator, dtype=self.reach.dtype, device=device)
        return numbers.to(self.reach.device)


def sine_excitation(
    model: Model,
    time: torch.Tensor,
    batch: Sequence[int] = (),
    *,
    frequency: tuple[float, float] = (0.1, 0.5),
    margin: float = 0.9,
    center: torch.Tensor | None = None,
    still: Iterable[str] | None = None,
    generator: torch.Generator | None = None,
) -> Recording:
    """Return a motion of one sine for each degree of freedom, with frequency, amplitude, phase and middle at random.

    Args:
        model: the robot.
        time: (samples,), s.
        batch: how many such motions, as a leading shape.
        frequency: least and greatest, Hz.
        margin: the share of the range of positions and of the greatest speed that is used.
        center: q to move around, (nq,); the middle of the limits by default.
        still: names of joints that rest in `center`; floating bases by default.
        generator: of random numbers.

    Returns:
        time, q, v and a, (*batch, samples, ...).
    """
    space = _workspace("sine_excitation", model, time, margin, center, still, generator)
    low, high = frequency
    if not 0.0 < low <= high:
        raise InputError(f"sine_excitation: frequency must be two positive numbers in order, got {frequency}")

    def uniform() -> torch.Tensor:
        return space.draw(torch.rand, *batch, 1)

    omega = 2.0 * math.pi * (low + (high - low) * uniform())
    amplitude = torch.minimum(space.reach, space.speed / omega) * (0.5 + 0.5 * uniform())
    middle = (space.reach - amplitude) * (2.0 * uniform() - 1.0)
    angle = omega * time[:, None] + 2.0 * math.pi * uniform()
    s, c = angle.sin(), angle.cos()
    return space.recording(time, middle + amplitude * s, amplitude * omega * c, -amplitude * omega**2 * s)


def fourier_excitation(
    model: Model,
    time: torch.Tensor,
    batch: Sequence[int] = (),
    *,
    harmonics: int = 5,
    period: float = 10.0,
    margin: float = 0.9,
    center: torch.Tensor | None = None,
    still: Iterable[str] | None = None,
    generator: torch.Generator | None = None,
) -> Recording:
    """Return a Fourier series with random coefficients for each degree of freedom, as large as the limits allow.

    Args:
        model: the robot.
        time: (samples,), s.
        batch: how many such motions, as a leading shape.
        harmonics: how many.
        period: s.
        margin: see `sine_excitation`, like all that follows.
        center: see `sine_excitation`.
        still: see `sine_excitation`.
        generator: see `sine_excitation`.

    Returns:
        time, q, v and a, (*batch, samples, ...).
    """
    space = _workspace("fourier_excitation", model, time, margin, center, still, generator)
    if harmonics < 1 or not period > 0.0:
        raise InputError(f"fourier_excitation: harmonics and period must be positive, got {harmonics} and {period}")
    order = torch.arange(1, harmonics + 1, dtype=time.dtype, device=time.device)
    omega = 2.0 * math.pi / period * order

    sines, cosines = (space.draw(torch.randn, *batch, harmonics) / order[:, None] for _ in range(2))

    def series(at: torch.Tensor, derivative: int) -> torch.Tensor:
        angle = at[:, None] * omega + 0.5 * math.pi * derivative
        return (angle.sin() * omega**derivative) @ sines + (angle.cos() * omega**derivative) @ cosines

    # Between samples that are 1/64 of a period apart, a series of that degree exceeds them by 1 / cos(pi / 64) at most.
    points = _SAMPLES_PER_PERIOD * harmonics
    dense = torch.arange(points, dtype=time.dtype, device=time.device) * period / points
    peaks = [series(dense, k).abs().amax(-2, keepdim=True) / math.cos(math.pi / _SAMPLES_PER_PERIOD) for k in (0, 1)]
    size = torch.minimum(space.reach / peaks[0], space.speed / peaks[1])
    middle = (space.reach - size * peaks[0]) * (2.0 * space.draw(torch.rand, *batch, 1) - 1.0)
    return space.recording(time, middle + size * series(time, 0), size * series(time, 1), size * series(time, 2))


def random_excitation(
    model: Model,
    time: torch.Tensor,
    batch: Sequence[int] = (),
    *,
    seconds: float = 1.0,
    margin: float = 0.9,
    center: torch.Tensor | None = None,
    still: Iterable[str] | None = None,
    generator: torch.Generator | None = None,
) -> Recording:
    """Return smooth moves from one random configuration to the next, at rest in each.

    Args:
        model: the robot.
        time: (samples,), s, growing.
        batch: how many such motions, as a leading shape.
        seconds: that a move takes; where the greatest speed is too low for it, the move is shorter.
        margin: see `sine_excitation`, like all that follows.
        center: see `sine_excitation`.
        still: see `sine_excitation`.
        generator: see `sine_excitation`.

    Returns:
        time, q, v and a, (*batch, samples, ...).
    """
    space = _workspace("random_excitation", model, time, margin, center, still, generator)
    if not seconds > 0.0:
        raise InputError(f"random_excitation: seconds must be positive, got {seconds}")
    phase = (time - time[0]) / seconds
    which = phase.floor().long()
    longest = space.speed * seconds / 1.875  # the peak of the move of least jerk
    places = [space.reach * 0.0]
    for _ in range(int(which[-1]) + 2):
        low = torch.maximum(-space.reach, places[-1] - longest)
        high = torch.minimum(space.reach, places[-1] + longest)
        places.append(low + (high - low) * space.draw(torch.rand, *batch))
    points = torch.stack(places[1:], -2)
    start = points[..., which, :]
    way = points[..., which + 1, :] - start
    x = (phase - which)[:, None]
    moved = x**3 * (10.0 - 15.0 * x + 6.0 * x**2)
    rate = 30.0 * x**2 * (1.0 - x) ** 2 / seconds
    second = 60.0 * x * (1.0 - x) * (1.0 - 2.0 * x) / seconds**2
    return space.recording(time, start + way * moved, way * rate, way * second)


def random_states(model: Model, count: int, like: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return q, v, a and tau (count, n) that leave nothing out, always the same, of the dtype and device of `like`."""
    generator, options = torch.Generator().manual_seed(0), {"dtype": like.dtype, "device": "cpu"}
    states = {"q": model.random((count,), generator=generator, **options)}
    states |= {name: torch.randn(count, model.nv, generator=generator, **options) for name in ("v", "a", "tau")}
    return {name: x.to(like.device) for name, x in states.items()}


def _workspace(
    who: str,
    model: Model,
    time: torch.Tensor,
    margin: float,
    center: torch.Tensor | None,
    still: Iterable[str] | None,
    generator: torch.Generator | None,
) -> _Workspace:
    if not isinstance(time, torch.Tensor) or time.ndim != 1 or not time.dtype.is_floating_point:
        raise InputError(f"{who}: time must be a floating-point tensor (samples,)")
    if not 0.0 < margin <= 1.0:
        raise InputError(f"{who}: margin must be above 0 and at most 1, got {margin}")
    middle = model.neutral(dtype=torch.float64).tolist() if center is None else center.tolist()
    if len(middle) != model.nq:
        raise InputError(f"{who}: center must have {model.nq} numbers, got {len(middle)}")
    if still is None:
        resting = {joint.name for joint in model.joints if joint.type.floating}
    else:
        resting = {model.joints[model.joint_index(name)].name for name in still}
    reach, lower, upper = [0.0] * model.nv, *model.limits()
    for joint, at in model.independent_joints:
        reach[at.v_slice] = joint.type.reach(joint)
        if joint.type.limited == "coordinate":
            low, high = finite_range(lower[at.q], upper[at.q], reach[at.v])
            if center is None:
                middle[at.q] = 0.5 * (low + high)
            elif not lower[at.q] <= middle[at.q] <= upper[at.q]:
                raise InputError(
                    f"{who}: center of joint {joint.name!r} is {middle[at.q]:g}, outside its limits "
                    f"{lower[at.q]:g} to {upper[at.q]:g}"
                )
            reach[at.v] = min(high - middle[at.q], middle[at.q] - low)
        if joint.name in resting:
            reach[at.v_slice] = [0.0] * joint.nv
    like = {"dtype": time.dtype, "device": time.device}
    speed = margin * _speeds(model).to(**like)
    return _Workspace(model, torch.tensor(middle, **like), margin * torch.tensor(reach, **like), speed, generator)


def _speeds(model: Model) -> torch.Tensor:
    """The greatest speed of each degree of freedom, narrowed by the joints that mimic it."""
    speeds = torch.full((model.nv,), torch.inf, dtype=torch.float64)
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        if at.multiplier != 0.0:
            limit = joint.velocity_limit / abs(at.multiplier) / math.sqrt(min(joint.type.nv, 3))
            speeds[at.v_slice] = speeds[at.v_slice].clamp(max=limit)
    return speeds
