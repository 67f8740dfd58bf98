"""Hashes of what a traced function computes: its code, and everything that it closes over or reads from its module.

Two processes in which a fingerprint is the same trace the same program. What cannot be known well enough has none: an
object of a class that is not this library's, a module other than numpy and the like, random numbers.
"""

import builtins
import dataclasses
import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

_PACKAGE = "adjoin"
_MODULES = (_PACKAGE, "math", "numpy", "operator", "functools", "itertools")
"""Modules whose functions do the same in every process that has the same version of them."""
_LITERALS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), slice, range)


class _Unknown(Exception):
    """Something has no fingerprint."""


def fingerprint(*values: Any) -> str | None:
    """Return the SHA-256 of some values as hexadecimal digits; None if one of them cannot be known.

    Numbers, strings, arrays, tensors and collections of them are known by their contents, dataclasses of this library
    by their fields, its functions by their names, and other functions by their code, defaults, closures and by what
    they read from their modules. An object of this library may have a property `_fingerprint`, which stands for it.

    Args:
        values: of any kind.
    """
    try:
        parts = [part for value in values for part in _described(value, set())]
    except _Unknown:
        return None
    return hashlib.sha256("\n".join([library(), *parts]).encode()).hexdigest()


def is_ours(value: Any) -> bool:
    """Whether a class or function is this library's."""
    return (getattr(value, "__module__", None) or "").split(".")[0] == _PACKAGE


@lru_cache(maxsize=1)
def library() -> str:
    """Return a hash of all source of this library and the versions that decide how it is traced and stored."""
    sha = hashlib.sha256(f"{sys.version_info} {np.__version__} {torch.__version__}".encode())
    for source in sorted(Path(__file__).parents[2].rglob("*.py")):
        sha.update(hashlib.sha256(source.read_bytes()).digest())
    return sha.hexdigest()


def _described(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield lines that tell a value from every other."""
    kind = type(value)
    if kind in _LITERALS:
        yield f"{kind.__name__} {value!r}"
    elif kind in (tuple, list, set, frozenset) or (isinstance(value, tuple) and is_ours(kind)):
        items = [[*_described(item, seen)] for item in value]
        yield f"{_name(kind)} of {len(items)}"
        yield from (part for item in (sorted(items) if isinstance(value, (set, frozenset)) else items) for part in item)
    elif isinstance(value, Mapping):
        yield f"mapping of {len(value)}"
        yield from (part for item in value.items() for half in item for part in _described(half, seen))
    elif isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        yield _array(value)
    elif isinstance(value, types.ModuleType):
        yield f"module {_known(value.__name__)} {getattr(value, '__version__', '')}"
    elif isinstance(value, functools.partial):
        yield "partial"
        yield from _described((value.func, value.args, value.keywords), seen)
    elif isinstance(value, (type, types.BuiltinFunctionType, np.ufunc)):
        yield f"{kind.__name__} {_known(getattr(value, '__module__', None) or 'numpy')} {_name(value)}"
    elif isinstance(value, types.FunctionType):
        yield from _function(value, seen)
    elif is_ours(kind) and hasattr(value, "_fingerprint"):
        yield _name(kind)
        yield from _described(value._fingerprint, seen)  # pyright: ignore[reportAttributeAccessIssue]
    elif is_ours(kind) and dataclasses.is_dataclass(value):
        yield _name(kind)
        for field in dataclasses.fields(value):
            yield from _described(getattr(value, field.name), seen)
    else:
        raise _Unknown


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', None) or value.__name__}"


def _known(module: str) -> str:
    if module.split(".")[0] not in (*_MODULES, "builtins") or "random" in module:
        raise _Unknown
    return module


def _array(value: Any) -> str:
    kind = _name(type(value))
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.dtype not in (torch.float32, torch.float64, torch.int64, torch.bool):
            raise _Unknown
        value = value.detach().numpy()
    if value.dtype.hasobject:
        raise _Unknown
    return f"{kind} {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"


def _function(function: types.FunctionType, seen: set[int]) -> Iterator[str]:
    """Describe a function; one that calls itself is described once."""
    if id(function) in seen:
        yield "known function"
        return
    seen.add(id(function))
    if is_ours(function):
        yield f"function {_name(function)}"
    else:
        yield from _code(function.__code__, seen)
        for name in sorted(_globals(function.__code__)):
            if name in function.__globals__:
                yield f"global {name}"
                yield from _described(function.__globals__[name], seen)
            elif not hasattr(builtins, name):
                raise _Unknown
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell that is empty as yet
        raise _Unknown from None
    yield from _described((function.__defaults__, function.__kwdefaults__, cells), seen)


def _code(code: types.CodeType, seen: set[int]) -> Iterator[str]:
    if "random" in code.co_names:
        raise _Unknown
    yield f"code {code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars}"
    for constant in code.co_consts:
        yield from _code(constant, seen) if isinstance(constant, types.CodeType) else _described(constant, seen)


def _globals(code: types.CodeType) -> set[str]:
    """Return the names that code, and the functions defined in it, read from their module."""
    found = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.add(instruction.argval)
        elif instruction.opname in ("IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
            raise _Unknown
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _globals(constant)
    return found
