"""Models with one part more, or with another in the place of one of the same name."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adjoin.model.parts import Actuator, Keyframe

if TYPE_CHECKING:
    from adjoin.model.model import Model


def with_part(model: "Model", field: str, part: Any) -> "Model":
    """Return the model with a part in one of its tuples: in the place of that of the same name, else at the end."""
    parts = list(getattr(model, field))
    names = [item.name for item in parts]
    if part.name in names:
        parts[names.index(part.name)] = part
    else:
        parts.append(part)
    return replace(model, **{field: tuple(parts)})


def with_actuator(model: "Model", actuator: Actuator, control: float) -> "Model":
    """Implement `Model.with_actuator`."""
    bare = replace(model, keyframes=())
    changed = with_part(bare, "actuators", actuator)
    controls = {a.name: k for k, a in enumerate(model.actuators)}
    active = {model.actuators[index].name: k for k, index in enumerate(model.stateful_actuators)}

    def followed(key: Keyframe) -> Keyframe:
        def value(drive: Actuator) -> float:
            return key.control[controls[drive.name]] if drive.name in controls and key.control else control

        def state(drive: Actuator) -> float:
            return key.activation[active[drive.name]] if drive.name in active and key.activation else 0.0

        drives = changed.actuators
        stateful = [drive for drive in drives if drive.dynamics != "none"]
        return replace(key, control=tuple(map(value, drives)), activation=tuple(map(state, stateful)))

    return replace(changed, keyframes=tuple(map(followed, model.keyframes)))
