"""How every quantity is called: on tensors it is a kernel of its own, inside a traced function it is traced there.

`call` traces a quantity once for each model and each choice of options, parameters and external forces, and keeps the
kernel with the model; `compute` traces several over one state, so that what they have in common is computed once.
"""

import copy
import importlib
import inspect
import pkgutil
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch

from adjoin import dynamics
from adjoin.compiler.runtime.bounded import PerOwner
from adjoin.compiler.runtime.torch_compile import called_while_tracing, object_at
from adjoin.dynamics.quantity import INPUTS, QUANTITIES, Quantity, added_quantities
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import ExternalForce, MissingInput, State
from adjoin.errors import InputError
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.spatial.motion import IDENTITY_TRANSFORM
from adjoin.trace import Function

Array = TypeVar("Array", torch.Tensor, np.ndarray)
"""Tensors (..., n), which give tensors; or, inside a traced function, arrays (n) of traced scalars, which give such."""

ALL_BODIES = None
"""The name of external forces given for all bodies at once."""

Reference = Literal["local", "world", "local_world_aligned"]
REFERENCES: tuple[Reference, ...] = ("local", "world", "local_world_aligned")


class Request(NamedTuple):
    """What is computed, apart from the numbers: each model has one kernel for each.

    Attributes:
        label: of the call, for messages.
        inputs: which of q, v, a and tau there are.
        quantities: the label of a result, the quantity, and its options.
        external: names of the frames that external forces act on, or `ALL_BODIES`.
        params: names of the parameters that are inputs.
        reference: of the external forces.
        single: whether the result is that of the only quantity, not a dict.
    """

    label: str
    inputs: tuple[str, ...]
    quantities: tuple[tuple[str, Quantity, tuple[tuple[str, Any], ...]], ...]
    external: tuple[str | None, ...]
    params: tuple[str, ...]
    reference: Reference
    single: bool

    @property
    def key(self) -> Hashable:
        """Return what kernels are kept under; a short one for a quantity of the inputs alone."""
        _, known, options = self.quantities[0]
        return (known, options) if self.single and not self.external and not self.params else self

    def shapes(self, model: Model) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the kernel's inputs, in order."""
        shapes: dict[str, tuple[int, ...]] = {name: (model.nq if name == "q" else model.nv,) for name in self.inputs}
        for name in self.external:
            shapes[_external(name)] = (len(model.bodies), 6) if name is ALL_BODIES else (6,)
        for name in self.params:
            shapes[f"params[{name!r}]"] = parameters.shape(model, parameters.named(name))
        return shapes


def call(
    name: str,
    model: Model,
    *inputs: Array,
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    reference: Reference = "local",
    out: Any = None,
    **options: Any,
) -> Any:
    """Compute one quantity of a model.

    Args:
        name: of the quantity.
        model: the robot.
        inputs: tensors, or arrays of traced scalars, in the order the quantity names them.
        external: external forces, see `rnea`.
        params: parameter name -> value.
        reference: of the external forces.
        out: where to write the result; see `Function.call_into`.
        options: of the quantity, hashable.
    """
    return call_quantity(name, model, inputs, tuple(options.items()), external, params, reference, out)


def call_quantity(
    name: str,
    model: Model,
    inputs: Sequence[Any],
    options: tuple[tuple[str, Any], ...],
    external: Any = None,
    params: Mapping[str, Any] | None = None,
    reference: Reference = "local",
    out: Any = None,
) -> Any:
    """Compute `call` for options that may have the names of arguments of `call`."""
    known = QUANTITIES[name]
    if external is None and not params and out is None and not torch.compiler.is_compiling() and type(model) is Model:
        function = _kernels.peek(model, (known, options))
        if function is not None and isinstance(inputs[0], torch.Tensor):
            return function(*inputs)
    return evaluate(
        model, name, known.inputs, inputs, ((name, known, options),), external, params, reference, True, out
    )


def evaluate(
    model: Model,
    label: str,
    names: tuple[str, ...],
    inputs: Sequence[Any],
    quantities: tuple[tuple[str, Quantity, tuple[tuple[str, Any], ...]], ...],
    external: Any,
    params: Mapping[str, Any] | None,
    reference: Reference,
    single: bool = False,
    out: Any = None,
) -> Any:
    """Compute several quantities, by label, or a single one; see `Request`."""
    if not isinstance(model, Model):
        raise InputError(
            f"{label}: the model must be an adjoin.Model, as adjoin.load gives; got a {type(model).__name__}"
        )
    forces = {} if external is None else _by_frame(model, label, external, reference)
    traced = not isinstance(inputs[0], torch.Tensor)
    params = (params or {}) if traced or not params else _checked(model, inputs, params)
    request = Request(label, names, quantities, tuple(forces), tuple(params), reference, single)
    values = (*inputs, *forces.values(), *params.values())
    if traced:
        if out is not None:
            raise InputError(f"{label}: out= is for tensors; a traced function returns its results")
        return _trace(model, request, values)
    kernel = _kernel(model, request)
    return kernel(*values) if out is None else kernel.call_into(out, *values)


_kernels: PerOwner[Function] = PerOwner(256)  # of each model, those that were called last


def _kernel(model: Model, request: Request) -> Function:
    """Return the kernel of a request, compiled when it is first used."""
    if torch.compiler.is_compiling():
        label, inputs, quantities, *rest = request
        _prepare(id(model), label, inputs, tuple([(name, known.name, o) for name, known, o in quantities]), *rest)
    return _found(model, request)


def _found(model: Model, request: Request) -> Function:
    cache, key = _kernels.of(model), request.key
    return cache.peek(key) or cache.get(key, lambda: _compile(model, request))


@called_while_tracing
def _prepare(address: int, label: str, inputs: tuple[str, ...], quantities: tuple[Any, ...], *rest: Any) -> bool:
    """Compile a kernel while torch compiles a call of it."""
    known = tuple((name, QUANTITIES[what], options) for name, what, options in quantities)
    _found(object_at(address), Request(label, inputs, known, *rest))
    return True


def _compile(model: Model, request: Request) -> Function:
    model = copy.copy(model)  # a model is to go with its kernels when nobody else holds it

    def traced(**values: Any) -> Any:
        return _trace(model, request, tuple(values.values()))

    traced.__name__ = f"{request.label}({model.name})"
    wanted = [(label, known.name, known.compute, options) for label, known, options in request.quantities]
    key = (model, wanted, request.external, request.params, request.reference, request.single, added_quantities())
    function = Function(traced, request.shapes(model), key)
    del vars(function)["__wrapped__"]
    return function


def _trace(model: Model, request: Request, values: Sequence[Any]) -> Any:
    """Return the results by label, or the single one, over arrays of scalars in the order of `Request.shapes`."""
    shapes = request.shapes(model)
    for (name, shape), value in zip(shapes.items(), values, strict=True):
        _require(request.label, name, value, shape)
    named = dict(zip(shapes, values, strict=True))
    robot = Robot(model, {name: named[f"params[{name!r}]"] for name in request.params})
    external = []
    for name in request.external:
        wrench = named[_external(name)]
        if name is None:
            rows = enumerate(wrench)
            external += [ExternalForce(body, IDENTITY_TRANSFORM, row, request.reference) for body, row in rows]
        else:
            frame = model.frame_index(name)
            external.append(ExternalForce(model.frames[frame].body, robot.frames[frame], wrench, request.reference))
    state = State(robot, **{name: named[name] for name in request.inputs}, external=external)
    results = {label: _result(request, state, wanted, options) for label, wanted, options in request.quantities}
    return results[request.label] if request.single else results


def _result(request: Request, state: State, wanted: Quantity, options: tuple[tuple[str, Any], ...]) -> Any:
    known = list(inspect.signature(wanted.compute).parameters)[1:]
    for option, _ in options:
        if option not in known:
            listed = ", ".join(known) or "none"
            raise InputError(f"{request.label}: {wanted.name} has no option {option!r}; options: {listed}")
    try:
        value = wanted.compute(state, **dict(options))
    except MissingInput as missing:
        declared = ", ".join(map(repr, wanted.inputs))
        raise InputError(
            f"quantity {wanted.name!r} reads {missing.name!r}, but declares only {declared}; add it: "
            f"@quantity({wanted.name!r}, {declared}, {missing.name!r})"
        ) from None
    return _arrays(value, (state.robot.nv,) * 2 if wanted.square else None)


def _require(label: str, name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise if a value is not an array of scalars of this shape."""
    if isinstance(value, torch.Tensor) or np.shape(value) != shape:
        size = ", ".join(map(str, shape))
        raise InputError(
            f"{label}: '{name}' must be a torch tensor (..., {size}), or scalars ({size}) in a traced function; "
            f"got a {type(value).__name__} of shape {tuple(np.shape(value))}"
        )


def _arrays(value: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return object arrays of nested lists; named tuples of them stay what they are."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_arrays(part, shape) for part in value])
    array = np.array(value, dtype=object)
    return array if shape is None else array.reshape(shape)


def _external(name: str | None) -> str:
    return "external" if name is ALL_BODIES else f"external[{name!r}]"


def _by_frame(model: Model, label: str, external: Any, reference: Reference) -> dict[str | None, Any]:
    """Return external forces by the name of the frame they act on."""
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
    return {ALL_BODIES: external}


def _checked(model: Model, inputs: Sequence[torch.Tensor], params: Mapping[str, Any] | None) -> dict[str, torch.Tensor]:
    """Return the parameters, whose batch dimensions join those of the inputs."""
    batches = [value.shape[:-1] for value in inputs]
    for name, value in (params or {}).items():
        if isinstance(value, torch.Tensor) and (parameter := parameters.find(name)):
            batches.append(value.shape[: max(0, value.ndim - len(parameters.shape(model, parameter)))])
    try:
        batch = np.broadcast_shapes(*batches)  # torch's imports sympy
    except ValueError:
        batch = inputs[0].shape[:-1]
    return model.check_parameters(params, tuple(batch))


def _import_all() -> None:
    """Import every algorithm, which registers its quantities; otherwise each is imported when its function is used."""
    for module in pkgutil.iter_modules(dynamics.__path__):
        importlib.import_module(f"{dynamics.__name__}.{module.name}")


def compute(
    model: Model,
    q: Array,
    v: Array | None = None,
    a: Array | None = None,
    tau: Array | None = None,
    *,
    quantities: Sequence[str] | Mapping[str, str | tuple[str, Mapping[str, Any]]],
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    reference: Reference = "local",
    out: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Compute several quantities in one kernel; what they have in common is computed once.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv), if a quantity needs it.
        a: acceleration, (..., nv), if a quantity needs it.
        tau: generalized forces, (..., nv), if a quantity needs them.
        quantities: names of functions of this library, as in `["crba", "bias_forces"]`; or your own labels for them,
            with their options: `{"M": "crba", "foot": ("jacobian", {"frame": "FL_foot"})}`.
        external: external forces, see `rnea`.
        params: parameters to take the place of the model's.
        reference: of the external forces.
        out: tensors that the results are written into, by label; no gradients pass.

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
        hashable = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        wanted.append((label, QUANTITIES[name], tuple(hashable.items())))
        needed += QUANTITIES[name].inputs
    values: dict[str, Any] = dict(zip(INPUTS, (q, v, a, tau), strict=True))
    missing = [name for name in INPUTS if name in needed and values[name] is None]
    if missing or not wanted:
        what = f"{' and '.join(map(repr, missing))} for {', '.join(labels)}" if missing else "at least one quantity"
        raise InputError(f"compute needs {what}")
    names = tuple(name for name in INPUTS if name in needed)
    inputs = [values[name] for name in names]
    return evaluate(model, "compute", names, inputs, tuple(wanted), external, params, reference, out=out)
