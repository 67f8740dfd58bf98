"""Sliders for the joints of a robot."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from adjoin.model.joint import Joint
from adjoin.model.model import Model

SLIDER_REACH = 2.0  # m, of a base from where it was first


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
            values = joint.type.to_sliders(q[self._environment.value, start : start + joint.nq].tolist())
            for slider, value in zip(sliders, values, strict=True):
                slider.value = min(max(value, slider.min), slider.max)
        self._following = False

    def _add(self, gui: Any, joint: Joint, start: int, lower: float, upper: float) -> None:
        if joint.type.slider_names:
            here = joint.type.to_sliders(self._q[0, start : start + joint.nq].tolist())
            numbers = zip(joint.type.slider_names, joint.type.units, here, strict=True)
            with gui.add_folder(f"{joint.name} ({joint.kind})", expand_by_default=False):
                sliders = [
                    _slider(gui, name, value - SLIDER_REACH, value + SLIDER_REACH, unit)
                    if unit == "m"
                    else _slider(gui, name, -math.pi, math.pi, unit)
                    for name, unit, value in numbers
                ]
        else:
            reach = joint.type.reach(joint)[0]
            lower = lower if math.isfinite(lower) else min(-reach, upper - 2 * reach)
            upper = upper if math.isfinite(upper) else max(reach, lower + 2 * reach)
            sliders = [_slider(gui, joint.name, lower, upper, joint.type.units[0])]
        for slider in sliders:
            slider.on_update(lambda _: self._dragged(joint, start, sliders))
        self._joints.append((joint, start, sliders))

    def _dragged(self, joint: Joint, start: int, sliders: Sequence[Any]) -> None:
        if not self._following:
            values = joint.type.from_sliders(joint, [slider.value for slider in sliders])
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
