"""Motors and servos on the joints of a model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from adjoin.errors import ModelError
from adjoin.model.parts import Actuator

if TYPE_CHECKING:
    from adjoin.model.model import Model


def with_motors(model: "Model", joints: Iterable[str] | None) -> "Model":
    """Implement `Model.with_motors`."""
    motors = []
    for name in _driven(model, joints):
        joint = model.joints[model.joint_index(name)]
        effort = (-joint.effort_limit, joint.effort_limit)
        motors.append(Actuator(name, name, gear=(1.0,) * joint.type.nv, control_range=effort))
    return replace(model, actuators=tuple(motors), keyframes=tuple(replace(k, control=()) for k in model.keyframes))


def with_servos(
    model: "Model", kp: float | Sequence[float], kd: float | Sequence[float], joints: Iterable[str] | None
) -> "Model":
    """Implement `Model.with_servos`."""
    names = _driven(model, joints)
    gains = [_per_joint("kp", kp, names), _per_joint("kd", kd, names)]
    servos, places = [], []
    for name, stiffness, damping in zip(names, *gains, strict=True):
        index = model.joint_index(name)
        joint = model.joints[index]
        if joint.nv != 1:
            raise ModelError(f"with_servos: joint {name!r} has {joint.nv} degrees of freedom; a servo needs 1")
        effort = (-joint.effort_limit, joint.effort_limit)
        servos.append(Actuator(name, name, gain=stiffness, bias=(0.0, -stiffness, -damping), force_range=effort))
        places.append(model.coordinates[index].q)
    keyframes = [replace(key, control=tuple(key.q[place] for place in places)) for key in model.keyframes]
    return replace(model, actuators=tuple(servos), keyframes=tuple(keyframes))


def _driven(model: "Model", joints: Iterable[str] | None) -> list[str]:
    """Return the joints that are named, or every one of one degree of freedom."""
    return [joint.name for joint in model.joints if joint.nv == 1] if joints is None else list(joints)


def _per_joint(what: str, value: float | Sequence[float], names: Sequence[str]) -> list[float]:
    gains = [float(value)] * len(names) if isinstance(value, (int, float)) else [float(x) for x in value]
    if len(gains) != len(names) or not all(math.isfinite(x) and x >= 0.0 for x in gains):
        raise ModelError(f"with_servos: {what} must be a number from 0 on, or {len(names)}, one a joint; got {value}")
    return gains
