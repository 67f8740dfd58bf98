"""Models with one part more, or with another in the place of one of the same name."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adjoin.errors import InputError, ModelError, Subject
from adjoin.model.equality import EqualityConstraint
from adjoin.model.field_types import checked
from adjoin.model.parts import WORLD, WORLD_LINK, Actuator, Frame, Geometry, Keyframe
from adjoin.model.sensor import Sensor
from adjoin.model.tendon import Tendon

if TYPE_CHECKING:
    from adjoin.model.model import Model


_KINDS = {
    "actuators": ("actuator", Actuator),
    "equalities": ("equality", EqualityConstraint),
    "geometries": ("geometry", Geometry),
    "sensors": ("sensor", Sensor),
    "tendons": ("tendon", Tendon),
}


def with_part(model: "Model", field: str, part: Any) -> "Model":
    """Return the model with a part in one of its tuples: in the place of that of the same name, else at the end."""
    what, kind = _KINDS[field]
    if not isinstance(part, kind):
        raise InputError(f"got a {type(part).__name__}; it must be an adjoin.{kind.__name__}")
    part = checked(part, what)
    parts = list(getattr(model, field))
    names = [item.name for item in parts]
    if part.name in names:
        parts[names.index(part.name)] = part
    else:
        parts.append(part)
    return replace(model, **{field: tuple(parts)})


def with_geometry(model: "Model", geometry: Geometry) -> "Model":
    """Implement `Model.with_geometry`."""
    fixed = isinstance(geometry, Geometry) and (geometry.link, geometry.body) == (WORLD_LINK, WORLD)
    if fixed and WORLD_LINK not in model.trees:
        model = replace(model, frames=(*model.frames, Frame(WORLD_LINK, WORLD)))
    changed = with_part(model, "geometries", geometry)
    body = model.frames[model.frame_index(geometry.link)].body
    if geometry.body != body:
        problem = f"body is {geometry.body}, but link {geometry.link!r} is on body {body}"
        subject = Subject("geometry", geometry.name)
        raise ModelError(problem, subject=subject, field="body", remedy="-1 is the world")
    return changed


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
