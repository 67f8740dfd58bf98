"""Low-pass filters without delay; velocities and accelerations of measured positions.

`low_pass` has the gain of a Butterworth filter that runs forwards and backwards, 1 / (1 + (f / cutoff)^(2 order)), and
no phase. `differentiate` fits a polynomial to the neighbors of each sample (Savitzky and Golay 1964, Smoothing and
differentiation of data by simplified least squares procedures), in coordinates around that sample, so that quaternions
stay on their sphere.
"""

import torch

from adjoin.errors import InputError
from adjoin.learn.data import Recording
from adjoin.learn.local_coordinates import local_coordinates, motion
from adjoin.model.model import Model


def low_pass(x: torch.Tensor, dt: float, cutoff: float, order: int = 4) -> torch.Tensor:
    """Remove frequencies above a cutoff from signals.

    Args:
        x: (..., samples, n).
        dt: time from one sample to the next, s.
        cutoff: where half of the amplitude is left, Hz.
        order: how steep the filter is.

    Returns:
        (..., samples, n), without delay; gradients pass.
    """
    if not 0.0 < cutoff < 0.5 / dt:
        raise InputError(f"low_pass: cutoff must be above 0 and below {0.5 / dt:g} Hz, half the rate; got {cutoff:g}")
    if order < 1:
        raise InputError(f"low_pass: order must be at least 1, got {order}")
    if x.ndim < 2 or x.shape[-2] < 2:
        raise InputError(f"low_pass: x must be (..., samples, n) of two samples at least, got {tuple(x.shape)}")
    count = x.shape[-2]
    # Reflected about its ends, the signal goes on smoothly; reflected as a whole, it is periodic.
    before = 2.0 * x[..., :1, :] - x[..., 1:, :].flip(-2)
    after = 2.0 * x[..., -1:, :] - x[..., :-1, :].flip(-2)
    line = torch.linspace(0.0, 1.0, 3 * count - 2, dtype=x.dtype, device=x.device)[:, None]
    extended = torch.cat([before, x, after], -2)
    drift = extended[..., :1, :] + line * (extended[..., -1:, :] - extended[..., :1, :])
    periodic = (extended - drift)[..., :-1, :]
    frequency = torch.fft.rfftfreq(3 * count - 3, dt, dtype=x.dtype, device=x.device)
    gain = 1.0 / (1.0 + (frequency / cutoff) ** (2 * order))
    smooth = torch.fft.irfft(torch.fft.rfft(periodic, dim=-2) * gain[:, None], n=3 * count - 3, dim=-2)
    part = slice(count - 1, 2 * count - 1)
    return smooth[..., part, :] + drift[..., part, :]


def low_pass_positions(model: Model, q: torch.Tensor, dt: float, cutoff: float, order: int = 4) -> torch.Tensor:
    """Remove frequencies above a cutoff from configurations, on the manifold.

    Args:
        model: the robot.
        q: (..., samples, nq).
        dt: time from one sample to the next, s.
        cutoff: where half of the amplitude is left, Hz.
        order: how steep the filter is.

    Returns:
        (..., samples, nq).
    """
    parts = []
    for joint, at in model.independent_joints:
        values = q[..., at.q_slice]
        if joint.type.has_quaternion:
            turn = values[..., -4:]
            flips = (turn[..., 1:, :] * turn[..., :-1, :]).sum(-1, keepdim=True) < 0.0
            sign = torch.where(flips, -1.0, 1.0).to(q)
            sign = torch.cat([torch.ones_like(sign[..., :1, :]), sign], -2).cumprod(-2)
            values = torch.cat([values[..., :-4], turn * sign], -1)
        elif joint.type.wraps:
            step = values[..., -1:].diff(dim=-2)
            turns = torch.round(step / (2.0 * torch.pi)).cumsum(-2)
            turns = torch.cat([torch.zeros_like(turns[..., :1, :]), turns], -2)
            values = torch.cat([values[..., :-1], values[..., -1:] - 2.0 * torch.pi * turns], -1)
        values = low_pass(values, dt, cutoff, order)
        if joint.type.has_quaternion:
            values = torch.cat([values[..., :-4], torch.nn.functional.normalize(values[..., -4:], dim=-1)], -1)
        parts.append(values)
    return torch.cat(parts, -1) if parts else q


def differentiate(model: Model, time: torch.Tensor, q: torch.Tensor, *, window: int = 11, degree: int = 4) -> Recording:
    """Return velocities and accelerations of measured positions, and the positions smoothed a little.

    Args:
        model: the robot.
        time: (..., samples), s, in even steps.
        q: (..., samples, nq).
        window: how many neighboring samples a polynomial is fitted to, odd.
        degree: of the polynomial.

    Returns:
        time, q, v and a; at the ends of the motion from windows that lie on one side.
    """
    count = q.shape[-2]
    if window % 2 == 0 or not 2 <= degree < window:
        raise InputError(
            f"differentiate: window must be odd and above the degree, which is at least 2; got {window} and {degree}"
        )
    if count < window:
        raise InputError(f"differentiate: a window of {window} needs as many samples, got {count}")
    recording = Recording(model, time.expand(q.shape[:-1]), q)
    dt = recording.check_time("differentiate")
    half = window // 2
    middle = torch.arange(count, device=q.device).clamp(half, count - 1 - half)
    around = middle[:, None] + torch.arange(-half, half + 1, device=q.device)
    # Coordinates of the window around each sample itself, and the polynomial in time from that sample.
    near = local_coordinates(model, q.unsqueeze(-2), q[..., around, :])
    offset = (around - torch.arange(count, device=q.device)[:, None]).to(q)
    powers = (offset / half)[..., None] ** torch.arange(degree + 1, device=q.device)
    fitted = torch.linalg.pinv(powers) @ near
    scale = dt * half
    value, rate, second = fitted[..., 0, :], fitted[..., 1, :] / scale, 2.0 * fitted[..., 2, :] / scale**2
    return Recording(model, recording.time, *motion(model, q, value, rate, second))
