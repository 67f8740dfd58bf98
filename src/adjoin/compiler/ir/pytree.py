"""Nested structures of scalars, taken apart and put together: what a body carries, what a function returns."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def leaves(tree: Any) -> Iterator[Any]:
    """Return the scalars of a nested structure of lists, tuples, dicts and object arrays, in order."""
    if isinstance(tree, np.ndarray):
        yield from tree.ravel().tolist()
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from leaves(value)
    elif tree is not None:
        yield tree


def rebuild(tree: Any, values: Iterator[Any]) -> Any:
    """Return the same structure with its scalars replaced, in order."""
    if isinstance(tree, np.ndarray):
        result = np.empty(tree.shape, dtype=object)
        flat = result.reshape(-1)
        for i in range(flat.size):
            flat[i] = next(values)
        return result
    if isinstance(tree, dict):
        return {name: rebuild(value, values) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        parts = [rebuild(value, values) for value in tree]
        if isinstance(tree, tuple):
            return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
        return parts
    return None if tree is None else next(values)


def structure(tree: Any) -> Any:
    """Return a comparable description of the nesting, for messages and for checking the carry of a body."""
    if isinstance(tree, np.ndarray):
        return ("array", tree.shape)
    if isinstance(tree, dict):
        return {name: structure(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [structure(value) for value in tree]
    return None if tree is None else "scalar"


def transform(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to every scalar."""
    return rebuild(tree, map(function, list(leaves(tree))))
