"""How every quantity is called: on tensors it is a kernel of its own, inside a traced function it is traced there.

A quantity is a function from a `State` to nested scalars, registered by name with the inputs it needs. `call` traces it
once for each model and each choice of options, parameters and external forces, and keeps the kernel with the model;
`compute` traces several over one state, so that what they have in common is computed once.
"""

import importlib
import inspect
import pkgutil
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin import dynamics
from adjoin.compiler.runtime.function import Function
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import Load, MissingInput, State
from adjoin.errors import InputError
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.spatial.motion import STILL

INPUTS = ("q", "v", "a", "tau")
ALL = None  # the name of external forces given for all bodies at once
REFERENCES = ("local", "world", "local_world_aligned")


@dataclass(frozen=True, eq=False)
class Quantity:
    """Something that can be computed of a state. Equal only to itself, so that each has kernels of its own.

    Attributes:
        name: the public function's.
        inputs: which of q, v, a and tau it reads. It can read no others.
        compute: takes the state, and options by name; returns nested scalars.
        square: whether it is matrices (nv, nv), which the empty list of a robot without joints does not tell.
    """

    name: str
    inputs: tuple[str, ...]
    compute: Callable[..., Any]
    square: bool = False


QUANTITIES: dict[str, Quantity] = {}
"""Every quantity by name."""

Wanted = tuple[tuple[str, Quantity, tuple[tuple[str, Any], ...]], ...]
"""Quantities to compute: the label of the result, the quantity, and its options."""


def quantity(name: str, *inputs: str, square: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of a state as a quantity; a decorator.

    Registering a function of the same module and name again, as running a notebook's cell twice does, replaces the
    quantity, and kernels are compiled anew.

    Args:
        name: of the quantity; its public function's.
        inputs: which of "q", "v", "a" and "tau" it reads, in the order in which `call` takes them.
        square: whether its results are (nv, nv).

    Raises:
        InputError: another function has the name, or an input is not one of the four.
    """
    for unknown in set(inputs) - set(INPUTS):
        raise InputError(f"quantity {name!r}: no input {unknown!r}; inputs: {', '.join(INPUTS)}")

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        if name in QUANTITIES and (known := _origin(QUANTITIES[name].compute)) != _origin(compute):
            raise InputError(f"quantity {name!r} is registered already, by {known}; choose another name")
        QUANTITIES[name] = Quantity(name, inputs, compute, square)
        return compute

    return register


def _origin(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def call(
    name: str,
    model: Model,
    *inputs: Any,
    external: Any = None,
    params: Mapping[str, Any] | None = None,
    reference: str = "local",
    **options: Any,
) -> Any:
    """One quantity of a model.

    Args:
        name: of the quantity.
        model: the robot.
        inputs: tensors, or arrays of traced scalars, in the order the quantity names them.
        external: forces from outside, see `rnea`.
        params: parameter name -> value.
        reference: of the external forces.
        options: of the quantity, hashable.
    """
    known = QUANTITIES[name]
    wanted = ((name, known, tuple(options.items())),)
    return evaluate(model, name, known.inputs, inputs, wanted, external, params, reference)[name]


def evaluate(
    model: Model,
    label: str,
    names: tuple[str, ...],
    inputs: Sequence[Any],
    wanted: Wanted,
    external: Any,
    params: Mapping[str, Any] | None,
    reference: str,
) -> dict[str, Any]:
    """Several quantities by label."""
    if not isinstance(model, Model):
        raise InputError(
            f"{label}: the model must be an adjoin.Model, as adjoin.load gives; got a {type(model).__name__}"
        )
    loads = None if external is None else _loads(model, label, external, reference)
    if not isinstance(inputs[0], torch.Tensor):
        return _inline(model, label, names, inputs, wanted, loads or {}, params or {}, reference)
    if not loads and not params:
        function = _function(model, label, names, wanted, (), (), reference)
        return function(*inputs)
    loads = loads or {}
    params = _checked(model, inputs, params)
    function = _function(model, label, names, wanted, tuple(loads), tuple(params), reference)
    return function(*inputs, *loads.values(), *params.values())


_made: "weakref.WeakKeyDictionary[Model, dict[Any, Function]]" = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def _function(
    model: Model,
    label: str,
    names: tuple[str, ...],
    wanted: Wanted,
    loads: tuple[str | None, ...],
    params: tuple[str, ...],
    reference: str,
) -> Function:
    """The kernel of some quantities for one model, made when first asked for."""
    kept = _made.get(model)
    key = (label, names, wanted, loads, params, reference)
    found = None if kept is None else kept.get(key)
    if found is None:
        with _lock:
            kept = _made.setdefault(model, {})
            if key not in kept:
                kept[key] = _traced(model, label, names, wanted, loads, params, reference)
            found = kept[key]
    return found


def _traced(
    model: Model,
    label: str,
    names: tuple[str, ...],
    wanted: Wanted,
    loads: tuple[str | None, ...],
    params: tuple[str, ...],
    reference: str,
) -> Function:
    shapes: dict[str, Any] = {name: model.nq if name == "q" else model.nv for name in names}
    shapes.update({_slot(name): (len(model.bodies), 6) if name is ALL else 6 for name in loads})
    shapes.update({f"params[{name!r}]": parameters.shape(model, parameters.named(name)) for name in params})

    def traced(**values: Any) -> dict[str, Any]:
        inputs = [values[name] for name in names]
        outside = {name: values[_slot(name)] for name in loads}
        numbers = {name: values[f"params[{name!r}]"] for name in params}
        return _inline(model, label, names, inputs, wanted, outside, numbers, reference)

    traced.__name__ = f"{label}({model.name})"
    function = Function(traced, shapes)
    del vars(function)["__wrapped__"]  # it holds the model, which is to go with its kernels when nobody else holds it
    return function


def _inline(
    model: Model,
    label: str,
    names: tuple[str, ...],
    inputs: Sequence[Any],
    wanted: Wanted,
    loads: Mapping[str | None, Any],
    params: Mapping[str, Any],
    reference: str,
) -> dict[str, Any]:
    for name, value in zip(names, inputs, strict=True):
        _require(label, name, value, (model.nq if name == "q" else model.nv,))
    for name, value in params.items():
        _require(label, f"params[{name!r}]", value, parameters.shape(model, parameters.named(name)))
    robot = Robot(model, params)
    external = []
    for name, wrench in loads.items():
        _require(label, _slot(name), wrench, (len(model.bodies), 6) if name is ALL else (6,))
        if name is None:
            external += [Load(body, STILL, row, reference) for body, row in enumerate(wrench)]
        else:
            frame = model.frame_index(name)
            external.append(Load(model.frames[frame].body, robot.frames[frame], wrench, reference))
    state = State(robot, **dict(zip(names, inputs, strict=True)), external=external)
    results = {}
    for result, of_state, options in wanted:
        known = list(inspect.signature(of_state.compute).parameters)[1:]
        for option, _ in options:
            if option not in known:
                raise InputError(
                    f"{label}: {of_state.name} has no option {option!r}; options: {', '.join(known) or 'none'}"
                )
        try:
            value = of_state.compute(state, **dict(options))
        except MissingInput as missing:
            declared = ", ".join(map(repr, of_state.inputs))
            raise InputError(
                f"quantity {of_state.name!r} reads {missing.name!r}, but declares only {declared}; add it: "
                f"@quantity({of_state.name!r}, {declared}, {missing.name!r})"
            ) from None
        results[result] = _arrays(value, (model.nv,) * 2 if of_state.square else None)
    return results


def _require(label: str, name: str, value: Any, shape: tuple[int, ...]) -> None:
    """That a value is an array of scalars of this shape."""
    if isinstance(value, torch.Tensor) or np.shape(value) != shape:
        size = ", ".join(map(str, shape))
        raise InputError(
            f"{label}: '{name}' must be a torch tensor (..., {size}), or scalars ({size}) in a traced function; "
            f"got a {type(value).__name__} of shape {tuple(np.shape(value))}"
        )


def _arrays(value: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Object arrays of nested lists; named tuples of them stay what they are."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_arrays(part, shape) for part in value])
    array = np.array(value, dtype=object)
    return array if shape is None else array.reshape(shape)


def _slot(name: str | None) -> str:
    return "external" if name is ALL else f"external[{name!r}]"


def _loads(model: Model, label: str, external: Any, reference: str) -> dict[str | None, Any]:
    if reference not in REFERENCES:
        raise InputError(f"{label}: no reference {reference!r}; references: {', '.join(REFERENCES)}")
    if isinstance(external, Mapping):
        for name in external:
            model.frame_index(name)
        return dict(external)
    count = len(model.bodies)
    shape = tuple(external.shape) if isinstance(external, torch.Tensor) else np.shape(external)
    if shape[-2:] != (count, 6):
        raise InputError(
            f"{label}: 'external' must be a mapping from frame names to (..., 6), or of shape (..., {count}, 6), one "
            f"row a body; got {shape or type(external).__name__}"
        )
    return {ALL: external}


def _checked(model: Model, inputs: Sequence[torch.Tensor], params: Mapping[str, Any] | None) -> dict[str, torch.Tensor]:
    """The parameters, whose batch dimensions join those of the inputs."""
    batches = [value.shape[:-1] for value in inputs]
    for name, value in (params or {}).items():
        if isinstance(value, torch.Tensor) and (found := parameters.find(name)):
            batches.append(value.shape[: max(0, value.ndim - len(parameters.shape(model, found)))])
    try:
        batch = torch.broadcast_shapes(*batches)
    except RuntimeError:
        batch = inputs[0].shape[:-1]
    return model.check_parameters(params, tuple(batch))


def _import_all() -> None:
    """Load every algorithm: each registers its quantities, and is otherwise loaded when its function is asked for."""
    for module in pkgutil.iter_modules(dynamics.__path__):
        importlib.import_module(f"{dynamics.__name__}.{module.name}")


def compute(
    model: Model,
    q: Any,
    v: Any = None,
    a: Any = None,
    tau: Any = None,
    *,
    quantities: Sequence[str] | Mapping[str, str | tuple[str, Mapping[str, Any]]],
    external: Any = None,
    params: Mapping[str, Any] | None = None,
    reference: str = "local",
) -> dict[str, Any]:
    """Several quantities in one kernel; what they have in common is computed once.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv), if a quantity needs it.
        a: acceleration, (..., nv), if a quantity needs it.
        tau: generalized forces, (..., nv), if a quantity needs them.
        quantities: names of functions of this library, as in `["crba", "bias_forces"]`; or your own labels for them,
            with their options: `{"M": "crba", "foot": ("jacobian", {"frame": "FL_foot"})}`.
        external: forces from outside, see `rnea`.
        params: parameters to take the place of the model's.
        reference: of the external forces.

    Returns:
        label -> result.
    """
    if isinstance(quantities, str):
        raise InputError(f"compute: quantities must be a list of names, or a mapping from labels; got {quantities!r}")
    labels = quantities if isinstance(quantities, Mapping) else {name: name for name in quantities}
    wanted, needed = [], []
    for label, what in labels.items():
        name, options = (what, {}) if isinstance(what, str) else what
        if name not in QUANTITIES:
            _import_all()
        if name not in QUANTITIES:
            raise InputError(f"compute: no quantity {name!r}; quantities: {', '.join(sorted(QUANTITIES))}")
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        wanted.append((label, QUANTITIES[name], tuple(given.items())))
        needed += QUANTITIES[name].inputs
    values: dict[str, Any] = dict(zip(INPUTS, (q, v, a, tau), strict=True))
    missing = [name for name in INPUTS if name in needed and values[name] is None]
    if missing or not wanted:
        what = f"{' and '.join(map(repr, missing))} for {', '.join(labels)}" if missing else "at least one quantity"
        raise InputError(f"compute needs {what}")
    names = tuple(name for name in INPUTS if name in needed)
    inputs = [values[name] for name in names]
    return evaluate(model, "compute", names, inputs, tuple(wanted), external, params, reference)
