"""Readings as a robot gets them: late, and with noise."""

import math

import torch

from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.model.sensor import Sensor


def measure(
    model: Model, readings: torch.Tensor, dt: float, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Return readings of a rollout with the noise, the delay and the interval that the sensors of a model declare.

    Delays are not rounded to steps: readings in between are interpolated, or held if they are taken at intervals. What
    is asked for before the first reading is the first one. Gradients pass.

    Args:
        model: The model whose sensors were read; `Sensor.noise`, `delay` and `interval` say how well.
        readings: The output "sensors" of a rollout, (steps, ..., n).
        dt: The time step, s.
        generator: Where noise comes from; by default torch's own.

    Returns:
        The readings that have arrived as each step begins, (steps, ..., n).
    """
    if not (math.isfinite(dt) and dt > 0.0):
        raise InputError(f"measure: dt must be a positive number of seconds, got {dt}")
    slices = model.sensor_slices
    size = sum(sensor.count for sensor in model.sensors)
    if readings.dim() < 2 or readings.shape[-1] != size:
        raise InputError(f"measure: readings are {tuple(readings.shape)}; the sensors of {model.name!r} have {size}")
    parts = []
    for sensor in model.sensors:
        part = readings[..., slices[sensor.name]]
        if sensor.interval:
            part = part[_held(len(part), sensor, dt).to(part.device)]
        elif sensor.delay:
            part = _delayed(part, sensor.delay / dt)
        if sensor.noise:
            drawn = torch.randn(part.shape, generator=generator, dtype=part.dtype, device=part.device)
            part = part + sensor.noise * drawn
        parts.append(part)
    return torch.cat(parts, -1) if parts else readings


def _held(count: int, sensor: Sensor, dt: float) -> torch.Tensor:
    """Of each step, the one in which the latest reading that has arrived was taken: the first not before its time."""
    times = torch.arange(count, dtype=torch.float64) * dt
    number = torch.arange(1, int(times[-1] / sensor.interval) + 2, dtype=torch.float64)
    taken = ((number * sensor.interval + sensor.phase) / dt - 1e-6).ceil().clamp(min=0.0)
    taken = torch.cat([torch.zeros(1, dtype=torch.float64), taken])
    arrived = torch.searchsorted(taken * dt + sensor.delay, times + 1e-6 * dt, right=True) - 1
    return taken[arrived.clamp(min=0)].long()


def _delayed(part: torch.Tensor, steps: float) -> torch.Tensor:
    """Readings of so many steps before."""
    late = (torch.arange(len(part), dtype=torch.float64) - steps).clamp(min=0.0)
    before = late.floor().long()
    share = (late - before).to(part).reshape(-1, *[1] * (part.dim() - 1))
    after = (before + 1).clamp(max=len(part) - 1)
    return torch.lerp(part[before.to(part.device)], part[after.to(part.device)], share)
