"""Every physical number of a model, by name: the defaults as tensors, and validation of what a caller passes.

Each parameter is a tensor whose first dimension counts bodies, degrees of freedom, shapes, ... Rotations are unit
quaternions [w x y z]. Numbers per degree of freedom are those of the independent coordinates: what a joint that mimics
another contributes is added to the one it follows (damping, armature and stiffness by the square of the ratio, dry
friction by its magnitude), which is exact. Axes, mimic ratios and key frames are structure, not parameters: turning the
placement of a joint turns its axis.

A call takes every parameter that some algorithm reads, so that one set of them can be passed to several calls; those
that this call does not read change nothing in it. Those that no kernel reads (`Parameter.fixed`) are refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from adjoin.errors import InputError, ModelError, Subject
from adjoin.spatial.rotation import from_quaternion, tidy, to_quaternion
from adjoin.spatial.scalar import Scalar

if TYPE_CHECKING:
    from adjoin.model.model import Model


Range = Literal["any", "positive", "not negative", "an inertia"]


@dataclass(frozen=True)
class Parameter:
    """One named physical quantity.

    Attributes:
        name: the key in `params`.
        owner: what its first dimension counts: a field of `Model` (bodies, frames, geometries, actuators),
            "dofs" (the nv degrees of freedom), "configuration" (the nq coordinates) or "world" (no such dimension).
        tail: the rest of its shape.
        unit: SI.
        meaning: one line.
        field: where its owner keeps it; of the world, a field of `Model`, or one of its medium.
        fixed: who reads it from the model, if no kernel does and it cannot be an input of a call.
        range: what its values must be, in a model and in a call; see `unphysical`. Damping, armature and stiffness
            must not be negative in a model either, but a call may ask what would be.
    """

    name: str
    owner: str
    tail: tuple[int, ...]
    unit: str
    meaning: str
    field: str
    fixed: str | None = None
    range: Range = "any"


_BODY, _SHAPE, _DRIVE, _JOINT = "bodies", "geometries", "actuators", "joints"
_TENDON, _HELD = "tendons", "equalities"

PARAMETERS: tuple[Parameter, ...] = (
    Parameter("mass", _BODY, (), "kg", "mass", "mass", range="positive"),
    Parameter("com", _BODY, (3,), "m", "center of mass in the body's frame", "com"),
    Parameter(
        "inertia",
        _BODY,
        (6,),
        "kg m^2",
        "xx xy xz yy yz zz about the center of mass, body axes",
        "inertia",
        range="an inertia",
    ),
    Parameter("joint_position", _BODY, (3,), "m", "placement of the joint in the parent's frame", "position"),
    Parameter("joint_rotation", _BODY, (4,), "1", "its orientation, quaternion [w x y z]", "rotation"),
    Parameter("lower", _JOINT, (), "rad, m", "lower limit of each body's joint, -inf if none", "lower"),
    Parameter("upper", _JOINT, (), "rad, m", "upper limit, inf if none; the greatest angle of a ball joint", "upper"),
    Parameter("velocity_limit", _JOINT, (), "rad/s, m/s", "greatest speed", "velocity_limit", "learn.excitation"),
    Parameter("effort_limit", _JOINT, (), "N m, N", "greatest effort", "effort_limit", "with_motors and with_servos"),
    Parameter("damping", "dofs", (), "N m s/rad, N s/m", "viscous friction", "damping"),
    Parameter("friction", "dofs", (), "N m, N", "dry friction", "friction", range="not negative"),
    Parameter("armature", "dofs", (), "kg m^2, kg", "inertia of the drive seen at the joint", "armature"),
    Parameter("stiffness", "dofs", (), "N m/rad, N/m", "spring toward spring_reference", "stiffness"),
    Parameter("spring_reference", "configuration", (), "rad, m", "the q at which springs rest", "spring_reference"),
    Parameter("gravity", "world", (3,), "m/s^2", "acceleration of free fall, world axes", "gravity"),
    Parameter("frame_position", "frames", (3,), "m", "place of a frame on its body", "position"),
    Parameter("frame_rotation", "frames", (4,), "1", "its orientation, quaternion [w x y z]", "rotation"),
    Parameter(
        "geometry_size",
        _SHAPE,
        (3,),
        "m",
        "radii, half lengths, half edges: see Geometry",
        "size",
        range="not negative",
    ),
    Parameter("geometry_position", _SHAPE, (3,), "m", "place of a shape on its body", "position"),
    Parameter("geometry_rotation", _SHAPE, (4,), "1", "its orientation, quaternion [w x y z]", "rotation"),
    Parameter(
        "geometry_friction",
        _SHAPE,
        (3,),
        "1, m, m",
        "slide, torsion, roll: coefficients of friction",
        "friction",
        range="not negative",
    ),
    Parameter("geometry_solref", _SHAPE, (2,), "s, 1", "time constant and damping ratio of contact, Newton", "solref"),
    Parameter("geometry_solimp", _SHAPE, (5,), "1, m", "impedance of contact, Newton", "solimp"),
    Parameter("limit_solref", _JOINT, (2,), "s, 1", "the same of the limits of each body's joint", "limit_solref"),
    Parameter("limit_solimp", _JOINT, (5,), "1, rad, m", "the same of the limits of each body's joint", "limit_solimp"),
    Parameter("actuator_gain", _DRIVE, (), "N m, N per control", "force per control", "gain"),
    Parameter("actuator_bias", _DRIVE, (3,), "N m, N", "force: constant, per length, per rate", "bias"),
    Parameter("actuator_gear", _DRIVE, (), "1", "gear of each actuator, one after the other per dof", "gear"),
    Parameter("actuator_gain_slope", _DRIVE, (2,), "N per control", "gain per length, per rate", "gain_slope"),
    Parameter("actuator_dynamics", _DRIVE, (3,), "s", "time constants of the activation", "dynamics_constants"),
    Parameter("compensated_mass", _BODY, (), "kg", "mass whose weight a force carries", "compensated_mass"),
    Parameter("tendon_stiffness", _TENDON, (), "N/m", "spring outside of its rest lengths", "stiffness"),
    Parameter("tendon_damping", _TENDON, (), "N s/m", "viscous friction", "damping"),
    Parameter("tendon_friction", _TENDON, (), "N", "dry friction", "friction"),
    Parameter("tendon_spring_length", _TENDON, (2,), "m", "lengths at which its spring rests", "spring_length"),
    Parameter("tendon_lower", _TENDON, (), "m", "least length, -inf if none", "lower"),
    Parameter("tendon_upper", _TENDON, (), "m", "greatest length, inf if none", "upper"),
    Parameter("tendon_limit_solref", _TENDON, (2,), "s, 1", "softness of its limits, Newton", "limit_solref"),
    Parameter("tendon_limit_solimp", _TENDON, (5,), "1, m", "impedance of its limits, Newton", "limit_solimp"),
    Parameter("equality_position", _HELD, (3,), "m", "point in the first frame", "position"),
    Parameter("equality_other_position", _HELD, (3,), "m", "point in the second frame", "other_position"),
    Parameter("equality_rotation", _HELD, (4,), "1", "of a weld, second frame in the first, [w x y z]", "rotation"),
    Parameter("equality_coefficients", _HELD, (5,), "rad, m", "polynomial of joints and tendons", "coefficients"),
    Parameter("equality_active", _HELD, (), "1", "1, or 0 to leave it out", "active"),
    Parameter("equality_solref", _HELD, (2,), "s, 1", "softness, Newton", "solref"),
    Parameter("equality_solimp", _HELD, (5,), "1, m", "impedance, Newton", "solimp"),
    Parameter("fluid_density", "world", (), "kg/m^3", "density of the medium", "medium.density"),
    Parameter("fluid_viscosity", "world", (), "Pa s", "viscosity of the medium", "medium.viscosity"),
    Parameter("wind", "world", (3,), "m/s", "velocity of the medium, world axes", "medium.wind"),
)
"""All parameters, in order."""

FIXED = {parameter.name: parameter for parameter in PARAMETERS if parameter.fixed}
"""The parameters that no kernel reads, by name."""

_INPUTS = {parameter.name: parameter for parameter in PARAMETERS if not parameter.fixed}


def named(name: str) -> Parameter:
    """Return the parameter of this name that a call can take.

    Raises:
        InputError: there is none.
    """
    if name in FIXED:
        raise InputError(
            f"parameter {name!r} has no effect on a call: it is read from the model, by {FIXED[name].fixed}; set it "
            f"with model.with_parameters({{{name!r}: ...}}). Parameters of a call: {', '.join(_INPUTS)}"
        )
    if name not in _INPUTS:
        raise InputError(f"no parameter {name!r}; parameters: {', '.join(_INPUTS)}")
    return _INPUTS[name]


def names() -> list[str]:
    """Return names of the parameters that a call can take."""
    return list(_INPUTS)


def find(name: str) -> Parameter | None:
    """Return the parameter of this name that a call can take, if there is one."""
    return _INPUTS.get(name)


def shape(model: "Model", parameter: Parameter) -> tuple[int, ...]:
    """Return the shape a parameter has for this model, without batch dimensions."""
    if parameter.name == "actuator_gear":
        return (sum(len(actuator.gear) for actuator in model.actuators),)
    counts = {"dofs": model.nv, "configuration": model.nq}
    if parameter.owner == "world":
        return parameter.tail
    owners = model.bodies if parameter.owner == _JOINT else getattr(model, parameter.owner, ())
    return (counts.get(parameter.owner, len(owners)), *parameter.tail)


def numbers(model: "Model", parameter: Parameter) -> Any:
    """Return the model's own values, as nested lists of floats."""
    field = parameter.field
    if parameter.owner == "world":
        value = attrgetter(field)(model)
        return list(value) if parameter.tail else value
    if parameter.owner == "configuration":
        return _spring_references(model)
    if parameter.owner == "dofs":
        return _per_dof(model, field)
    if parameter.name == "actuator_gear":
        return [x for actuator in model.actuators for x in actuator.gear]
    owners = model.joints if parameter.owner == _JOINT else getattr(model, parameter.owner)
    values = [getattr(item, field) for item in owners]
    return [to_quaternion(value) for value in values] if field == "rotation" else values


def _per_dof(model: "Model", field: str) -> list[float]:
    totals = [0.0] * model.nv
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        ratio = abs(at.multiplier) if field == "friction" else at.multiplier**2
        for k, value in enumerate(getattr(joint, field)):
            totals[at.v + k] += ratio * value
    return totals


def _spring_references(model: "Model") -> list[float]:
    references = [x for joint in model.joints if joint.nq for x in joint.spring_reference]
    for leader in {at.leader for j, at in zip(model.joints, model.coordinates, strict=True) if j.mimic}:
        # Springs in parallel, each k m (m q + o - r): together K (q - R).
        springs = [(j, at) for j, at in zip(model.joints, model.coordinates, strict=True) if at.leader == leader]
        total = sum(j.stiffness[0] * at.multiplier**2 for j, at in springs)
        if total > 0.0:
            pull = sum(j.stiffness[0] * at.multiplier * (j.spring_reference[0] - at.offset) for j, at in springs)
            references[springs[0][1].q] = pull / total
    return references


def unphysical(kind: Range, value: Sequence[Scalar]) -> list[Any]:
    """Return conditions that hold where a value is not what its parameter must be; numbers that are NaN meet none.

    Inertias are checked by the second moments of mass, trace(I)/2 - I, which are positive semidefinite for every
    distribution of mass; that is the triangle inequality of the principal moments.

    Args:
        kind: The range of the parameter.
        value: The numbers of one body, shape or coordinate; floats or traced scalars.
    """
    if kind == "any":
        return []
    if kind != "an inertia":
        return [x <= 0.0 if kind == "positive" else x < 0.0 for x in value]
    xx, xy, xz, yy, yz, zz = value
    half = 0.5 * (xx + yy + zz)
    slack = 2e-6 * half  # of the rounding of float32
    a, b, c = half - xx + slack, half - yy + slack, half - zz + slack
    determinant = a * (b * c - yz * yz) - xy * (xy * c + yz * xz) - xz * (xy * yz + b * xz)
    return [a < 0.0, a * b - xy * xy < 0.0, determinant < 0.0, half < 0.0]


def _check_physical(model: "Model", parameter: Parameter, values: list[Any]) -> None:
    """Raise at a value that nothing physical has; what the model has already may stay."""
    owned = numbers(model, parameter)
    rows = [row if isinstance(row, list) else [row] for row in values] if parameter.owner != "world" else [values]
    kept = [list(row) if isinstance(row, (list, tuple)) else [row] for row in owned]
    for index, (row, old) in enumerate(zip(rows, kept, strict=True)):
        if row != old and any(unphysical(parameter.range, row)):
            named = getattr(model, {_JOINT: "bodies"}.get(parameter.owner, parameter.owner), None)
            subject = Subject(_SINGULAR[parameter.owner], named[index].name if named else index)
            shown = ", ".join(f"{x:g}" for x in row)
            raise ModelError(
                f"{parameter.name} is {shown}", subject=subject, remedy=f"it must be {_WORDS[parameter.range]}"
            )


_WORDS = {
    "positive": "positive",
    "not negative": "at least 0",
    "an inertia": "that of some distribution of mass, whose moments meet the triangle inequality",
}
_SINGULAR = {_BODY: "body", _JOINT: "joint", _SHAPE: "geometry", _DRIVE: "actuator", "dofs": "degree of freedom"}


def defaults(model: "Model", dtype: torch.dtype, device: torch.device | str | None) -> dict[str, torch.Tensor]:
    """Implement `Model.parameters`."""
    return {
        name: torch.tensor(numbers(model, p), dtype=dtype, device=device).reshape(shape(model, p))
        for name, p in _INPUTS.items()
    }


def check(model: "Model", params: Mapping[str, object] | None, batch: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Implement `Model.check_parameters`."""
    checked: dict[str, torch.Tensor] = {}
    for name, value in (params or {}).items():
        checked[name] = check_shape(name, value, shape(model, named(name)), batch)
    return checked


def check_shape(name: str, value: object, wanted: tuple[int, ...], batch: tuple[int, ...]) -> torch.Tensor:
    """Return a parameter if it is a tensor of this shape after dimensions that broadcast to the batch; else raise."""
    if not isinstance(value, torch.Tensor):
        raise InputError(f"parameter {name!r} is a {type(value).__name__}; it must be a torch tensor")
    if not value.dtype.is_floating_point:
        raise InputError(f"parameter {name!r} has dtype {value.dtype}; it must be a floating-point tensor")
    lead = value.ndim - len(wanted)
    wrong = f"parameter {name!r} has shape {tuple(value.shape)}; it needs {_spell(wanted)}"
    if lead < 0 or tuple(value.shape[lead:]) != wanted:
        raise InputError(f"{wrong} after any batch dimensions")
    try:
        joint = np.broadcast_shapes(value.shape[:lead], batch)  # torch's imports sympy
    except ValueError:
        joint = None
    if joint is None or tuple(joint) != batch:
        raise InputError(f"{wrong} after batch dimensions that broadcast to {batch}")
    return value


def _spell(wanted: tuple[int, ...]) -> str:
    return f"(..., {', '.join(map(str, wanted))})" if wanted else "(...)"


def replaced(model: "Model", params: Mapping[str, object]) -> "Model":
    """Implement `Model.with_parameters`."""
    for name, new in params.items():
        parameter = FIXED[name] if name in FIXED else named(name)
        value = check_shape(name, new, shape(model, parameter), ())
        if value.ndim != len(shape(model, parameter)):
            raise InputError(f"parameter {name!r} has batch dimensions; a model holds one value")
        values = value.detach().to("cpu", torch.float64).tolist()
        if parameter.range != "any":
            _check_physical(model, parameter, values)
        model = _SETTERS.get(parameter.owner, _set_items)(model, parameter, values)
    return model


def _set_items(model: "Model", parameter: Parameter, values: list[Any]) -> "Model":
    items = getattr(model, parameter.owner)
    if parameter.name == "actuator_gear":
        gears = iter(values)
        values = [[next(gears) for _ in item.gear] for item in items]
    new = [replace(item, **{parameter.field: _frozen(parameter, x)}) for item, x in zip(items, values, strict=True)]
    return replace(model, **{parameter.owner: tuple(new)})


def _frozen(parameter: Parameter, value: Any) -> Any:
    if parameter.field == "rotation":
        length = sum(x * x for x in value) ** 0.5
        if not 0.0 < length < float("inf"):
            raise InputError(f"parameter {parameter.name!r} has a quaternion of length {length}; it must be 1")
        return tidy(from_quaternion((value[0] / length, value[1] / length, value[2] / length, value[3] / length)))
    return tuple(value) if isinstance(value, list) else value


def _set_joints(model: "Model", parameter: Parameter, values: list[Any]) -> "Model":
    bodies = [
        replace(body, joint=replace(body.joint, **{parameter.field: _frozen(parameter, value)}))
        for body, value in zip(model.bodies, values, strict=True)
    ]
    return replace(model, bodies=tuple(bodies))


def _set_coordinates(model: "Model", parameter: Parameter, values: list[float]) -> "Model":
    bodies = []
    for body, at in zip(model.bodies, model.coordinates, strict=True):
        joint = body.joint
        size = len(getattr(joint, parameter.field))
        start = at.v if parameter.owner == "dofs" else at.q
        if joint.mimic is None:
            new = tuple(values[start : start + size])
        elif parameter.owner == "dofs":
            new = (0.0,) * size  # its share is in the value of the joint it follows
        else:
            new = getattr(joint, parameter.field)
        bodies.append(replace(body, joint=replace(joint, **{parameter.field: new})))
    return replace(model, bodies=tuple(bodies))


def _set_world(model: "Model", parameter: Parameter, value: Any) -> "Model":
    owner, _, field = parameter.field.rpartition(".")
    new = {field: _frozen(parameter, value)}
    return replace(model, **({owner: replace(getattr(model, owner), **new)} if owner else new))


_SETTERS: dict[str, Callable[["Model", Parameter, Any], "Model"]] = {
    _JOINT: _set_joints,
    "dofs": _set_coordinates,
    "configuration": _set_coordinates,
    "world": _set_world,
}
