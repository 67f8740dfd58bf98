"""Sliders for the joints of a robot."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.spatial.rotation import (
    from_quaternion,
    from_rpy,
    quaternion_exp,
    quaternion_log,
    quaternion_normalize,
    to_quaternion,
    to_rpy,
)

ANGLES = ("roll", "pitch", "yaw")
NUMBERS: dict[str, tuple[str, ...]] = {"free": ("x", "y", "z", *ANGLES), "ball": ANGLES, "planar": ("x", "y", "angle")}
"""What sliders of joints with several degrees of freedom are called."""
FARTHEST = 2.0  # m, of a base from where it was first
LONGEST = 1.0  # m, of a sliding joint without limits


class Sliders:
    """Sliders that follow a configuration, and change it when they are dragged.

    Args:
        gui: of a viser server.
        model: the robot; joints that mimic others have no sliders.
        q: to begin with, (environments, nq).
        moved: called with the new q.
    """

    def __init__(self, gui: Any, model: Model, q: torch.Tensor, moved: Callable[[torch.Tensor], None]):
        self._model, self._q, self._moved = model, q, moved
        self._following = False
        self._joints: list[tuple[Joint, int, list[Any]]] = []
        poses = {"neutral": model.neutral(), **{key.name: torch.tensor(key.q) for key in model.keyframes[:4]}}
        with gui.add_folder("Joints"):
            self._environment = gui.add_slider("Environment", 0, len(q) - 1, 1, 0, visible=len(q) > 1)
            self._environment.on_update(lambda _: self.follow(self._q))
            pose = gui.add_button_group("Pose", tuple(poses))
            pose.on_click(lambda event: self._set(slice(0, model.nq), poses[event.target.value]))
            lower, upper = model.limits()
            for joint, where in zip(model.joints, model.coordinates, strict=True):
                if joint.mimic is None:
                    self._add(gui, joint, where.q, lower[where.q], upper[where.q])
        self.follow(q)

    def follow(self, q: torch.Tensor) -> None:
        """Show other values."""
        self._q = q
        self._following = True
        for joint, start, sliders in self._joints:
            values = _numbers(joint.kind, q[self._environment.value, start : start + joint.nq].tolist())
            for slider, value in zip(sliders, values, strict=True):
                slider.value = min(max(value, slider.min), slider.max)
        self._following = False

    def _add(self, gui: Any, joint: Joint, start: int, lower: float, upper: float) -> None:
        here = self._q[0, start : start + joint.nq].tolist()
        if joint.kind in NUMBERS:
            names = NUMBERS[joint.kind]
            with gui.add_folder(f"{joint.name} ({joint.kind})", expand_by_default=False):
                sliders = [
                    _slider(gui, name, value - FARTHEST, value + FARTHEST, "m")
                    if name in ("x", "y", "z")
                    else _slider(gui, name, -math.pi, math.pi, "rad")
                    for name, value in zip(names, _numbers(joint.kind, here), strict=True)
                ]
        else:
            unit, free = ("m", LONGEST) if joint.kind == "prismatic" else ("rad", math.pi)
            lower = lower if math.isfinite(lower) else min(-free, upper - 2 * free)
            upper = upper if math.isfinite(upper) else max(free, lower + 2 * free)
            sliders = [_slider(gui, joint.name, lower, upper, unit)]
        for slider in sliders:
            slider.on_update(lambda _: self._dragged(joint, start, sliders))
        self._joints.append((joint, start, sliders))

    def _dragged(self, joint: Joint, start: int, sliders: Sequence[Any]) -> None:
        if not self._following:
            values = _coordinates(joint, [slider.value for slider in sliders])
            self._set(slice(start, start + joint.nq), torch.tensor(values))

    def _set(self, which: slice, values: torch.Tensor) -> None:
        q = self._q.clone()
        q[self._environment.value, which] = values.to(q.dtype)
        self._q = q
        self._moved(q)
        if which == slice(0, self._model.nq):
            self.follow(q)


def _slider(gui: Any, name: str, lower: float, upper: float, unit: str) -> Any:
    digits = 3 if upper - lower > 0.2 else 5
    inner = (math.ceil(lower * 10**digits - 1e-6) / 10**digits, math.floor(upper * 10**digits + 1e-6) / 10**digits)
    least, most = inner if inner[0] <= inner[1] else (lower, upper)
    hint = f"{name}, {lower:.4g} to {upper:.4g} {unit}"
    return gui.add_slider(name, least, most, 10.0**-digits, min(max(0.0, least), most), hint=hint)


def _numbers(kind: str, q: Sequence[float]) -> list[float]:
    """What the sliders of a joint say."""
    if kind not in ("free", "ball"):
        return list(q)
    w, x, y, z = q[-4:]
    return [*q[:-4], *to_rpy(from_quaternion(quaternion_normalize((w, x, y, z))))]


def _coordinates(joint: Joint, numbers: Sequence[float]) -> list[float]:
    """The other way round; a ball joint turns no farther than its greatest angle."""
    if joint.kind not in ("free", "ball"):
        return list(numbers)
    roll, pitch, yaw = numbers[-3:]
    turn = to_quaternion(from_rpy(roll, pitch, yaw))
    if joint.kind == "ball":
        vector = quaternion_log(turn)
        angle = math.hypot(*vector)
        if angle > joint.upper:
            x, y, z = (joint.upper / angle * v for v in vector)
            turn = quaternion_exp((x, y, z))
    return [*numbers[:-3], *turn]
