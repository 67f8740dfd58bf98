"""Arrays that a kernel indexes while it runs: scratch arrays in fast memory, and tables.

Scratch arrays are values: `scratch[i] = x` makes a new version that takes the place of the old one, so that a loop can
carry an array, and only the newest version may be read or written. Tables are read only: inputs of the kernel, or
numbers that are known while it is traced.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoin.compiler.ir.graph import Expr, Graph, apply, current_graph, to_index
from adjoin.compiler.ir.kinds import ARRAY, FLOAT, INDICES, INT, TABLE
from adjoin.compiler.ir.ops import select
from adjoin.errors import TraceError

LARGEST = 1 << 20  # elements of a scratch array
LARGE = 32
"""Elements from which on an array is recorded and kept by a loop, instead of element by element."""
ELEMENT = {ARRAY: FLOAT, INDICES: INT}


class Scratch:
    """An array in fast memory, indexed by numbers or by traced integers; an index outside is clamped.

    Made by `scratch(size)` or `scratch(values)` of floats, or by `indices(size)` of integers. It may be carried by a
    loop. Every index of an access to floats that depends on the data (`to_index(x)`) may differ between environments.

    Args:
        array: the newest version.
        mask: where it does not hold, writes leave the array as it is.
        checked: whether indices are clamped; if not, the caller knows that they are inside.
    """

    def __init__(self, array: Expr, mask: Expr | None = None, checked: bool = True):
        self.array, self.mask, self.checked = array, mask, checked

    def __len__(self) -> int:
        return self.array.width

    def __getitem__(self, index: Any) -> Expr:
        graph = self._graph(index)
        return load(graph.lift(self.array), self._index(graph, index), self.checked)

    def __setitem__(self, index: Any, value: Any) -> None:
        graph, place, value = self._arguments(index, value)
        if self.mask is not None:
            value = select(graph.lift(self.mask), value, load(self.array, place, self.checked))
        self.array = store(self.array, place, value, self.checked)

    def add(self, index: Any, value: Any) -> None:
        """Add a number to an element: cheaper than reading and writing it, for gradients above all."""
        graph, place, value = self._arguments(index, value)
        if self.mask is not None:
            value = select(graph.lift(self.mask), value, 0.0)
        self.array = accumulate(self.array, place, value, self.checked)

    def _arguments(self, index: Any, value: Any) -> tuple[Graph, Expr, Expr]:
        graph = self._graph(index, value)
        if graph is not self.array.graph:
            raise TraceError("a loop body writes a scratch array that it does not carry; make it part of the carry")
        whole = self.array.kind == INDICES and isinstance(value, int)
        value, place = graph.integer(value) if whole else graph.lift(value), self._index(graph, index)
        if value.kind != ELEMENT[self.array.kind]:
            raise TraceError(f"this scratch array holds {ELEMENT[self.array.kind]}s, got a {value.kind} value")
        if self.array.kind == INDICES and not (value.uniform and place.uniform and self.mask is None):
            raise TraceError("integers in a scratch array, and their places, must be the same in all environments")
        return graph, place, value

    def _graph(self, *values: Any) -> Graph:
        exprs = [self.array, *[value for value in values if isinstance(value, Expr)]]
        return max((expr.graph for expr in exprs), key=lambda graph: graph.depth)

    def _index(self, graph: Graph, index: Any) -> Expr:
        if isinstance(index, int):
            if not 0 <= index < len(self):
                raise TraceError(f"index {index} is outside a scratch array of {len(self)}")
            return graph.integer(index)
        if not isinstance(index, Expr) or index.kind not in (INT, FLOAT):
            raise TraceError(f"a scratch array is indexed by an integer, got {index!r}")
        return to_index(graph.lift(index))


@dataclass(frozen=True, eq=False)
class Constants:
    """The numbers of a table that is part of the kernel; equal by what they are.

    Attributes:
        numbers: float64 or int32, one after the other.
        digest: of them.
    """

    numbers: np.ndarray
    digest: str

    @classmethod
    def of(cls, values: Any) -> "Constants":
        """The constants of an array of floats or of integers."""
        array = np.asarray(values)
        numbers = array.astype(np.int32 if array.dtype.kind in "iub" else np.float64).ravel()
        return cls(numbers, hashlib.sha256(numbers.dtype.str.encode() + numbers.tobytes()).hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constants) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"constants {self.digest}"


class Lookup:
    """A table that is read where the data says: an input of the kernel, or numbers known now.

    Indices outside are clamped. No gradient passes to its numbers.

    Args:
        table: its node.
        shape: of the table.
        checked: whether indices are clamped; if not, the caller knows that they are inside.
    """

    def __init__(self, table: Expr, shape: tuple[int, ...], checked: bool = True):
        self.table, self.shape, self.checked = table, shape, checked

    def __getitem__(self, index: Any) -> Expr:
        """One number: `table[i]`, or `table[i, j]` of a table with two dimensions."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape):
            raise TraceError(f"a table of shape {self.shape} takes {len(self.shape)} indices, got {len(indices)}")
        exprs = [self.table, *[value for value in indices if isinstance(value, Expr)]]
        graph = max((expr.graph for expr in exprs), key=lambda graph: graph.depth)
        place = graph.integer(0)
        for size, value in zip(self.shape, indices, strict=True):
            inside = graph.integer(int(value)) if isinstance(value, (int, np.integer)) else to_index(graph.lift(value))
            if self.checked:
                inside = apply("min", apply("max", inside, graph.integer(0)), graph.integer(size - 1))
            place = place * graph.integer(size) + inside
        table = graph.lift(self.table)
        if isinstance(table.data, Constants):
            numbers = table.data.numbers
            if place.op == "integer":
                number = numbers[place.data]
                return graph.integer(int(number)) if numbers.dtype == np.int32 else graph.const(float(number))
            return graph.node("lookup", (table, place), None, INT if numbers.dtype == np.int32 else FLOAT)
        return graph.node("lookup", (table, place))


def table(values: Any, checked: bool = True) -> Lookup:
    """A table of numbers that are known now, to be read at traced indices.

    Args:
        values: floats, or integers, which are read as integers.
        checked: see `Lookup`.
    """
    array = np.asarray(values)
    if not array.size:
        raise TraceError("a table has at least one number")
    node = current_graph().node("constants", (), Constants.of(array), TABLE)
    node.width = array.size
    return Lookup(node, array.shape, checked)


def load(array: Expr, index: Expr, checked: bool = True) -> Expr:
    """One element of an array."""
    data = None if checked else "unchecked"
    value = array.graph.find("load", (array, index), data)
    if value is None:
        known = readers(array)
        value = array.graph.node("load", (array, index), data, ELEMENT[array.kind])
        known.append(value)
    return value


def store(array: Expr, index: Expr, value: Expr, checked: bool = True) -> Expr:
    """The next version of an array. It runs after everything that reads the version it replaces."""
    return _written("store", array, index, value, checked)


def accumulate(array: Expr, index: Expr, value: Expr, checked: bool = True) -> Expr:
    """The next version of an array, with a number added to one of its elements."""
    return _written("accumulate", array, index, value, checked)


def _written(op: str, array: Expr, index: Expr, value: Expr, checked: bool) -> Expr:
    data = None if checked else "unchecked"
    result = array.graph.fresh(op, (array, index, value, *consume(array)), data, array.kind)
    result.width, result.used = array.width, array.used
    return result


def readers(array: Expr) -> list[Expr]:
    """Who reads this version; an error if another version has taken its place."""
    known = array.graph.readers.setdefault(array, [])
    if known is None:
        raise TraceError("an old version of a scratch array was used; the body of a loop reads the one it carries")
    return known


def consume(array: Expr) -> list[Expr]:
    """Retire a version: those who read it must run before what follows."""
    known = readers(array)
    if array.kind == ARRAY and any(reader.op == "scan" for reader in known):
        _keep(array)  # for the adjoint of that loop, which runs after the array has been overwritten
    array.graph.readers[array] = None
    return known


def _keep(array: Expr) -> None:
    """Make what `restore` needs once the array has been overwritten; unless it is called, this is dead code."""
    if array.width < LARGE:
        gather(array)
        return
    from adjoin.compiler.ir.control_flow import copy_elements  # which retires the arrays that its loops carry

    array.graph.copies[array] = copy_elements(array, zeros_like(array.graph, array, cleared=False))


def zeros(
    graph: Graph, size: int, kind: str = ARRAY, cleared: bool = True, used: tuple[Expr, int] | None = None
) -> Expr:
    """A new array of zeros in a graph; if not cleared, of anything; `used` is that of `scratch`."""
    if used is not None:
        used = (graph.lift(used[0]), used[1])
    array = graph.fresh("scratch", used[:1] if used else (), None if cleared else "uninitialized", kind)
    array.width, array.used = size, used
    return array


def zeros_like(graph: Graph, array: Expr, cleared: bool = True) -> Expr:
    """A new array of zeros in a graph, as large as another one and used as far; if not cleared, of anything."""
    return zeros(graph, array.width, array.kind, cleared, array.used)


def scratch(
    values: int | Sequence[Any], checked: bool = True, cleared: bool = True, used: tuple[Expr, int] | None = None
) -> Scratch:
    """A scratch array of so many zeros, or of the given values.

    Args:
        values: how many elements, or the elements.
        checked: see `Scratch`.
        cleared: whether it begins with zeros; if not, every element has to be written before it is read.
        used: how many records of how many elements are ever used, the number of records a traced integer that is the
            same in all environments; what lies behind them is not cleared, nor kept for a derivative.
    """
    graph = current_graph()
    size = values if isinstance(values, int) else len(values)
    if not 0 < size <= LARGEST:
        raise TraceError(f"a scratch array has 1 to {LARGEST} elements, got {size}")
    if used is not None and not (used[0].kind == INT and used[0].uniform):
        raise TraceError("how many records of a scratch array are used is an integer, the same in all environments")
    result = Scratch(zeros(graph, size, cleared=cleared and isinstance(values, int), used=used), checked=checked)
    if not isinstance(values, int):
        for i, value in enumerate(values):
            result[i] = graph.lift(value)
    return result


def indices(size: int, checked: bool = True, cleared: bool = True) -> Scratch:
    """A scratch array of so many integers, 0 at first if cleared, which all environments of a vector share."""
    if not 0 < size <= LARGEST:
        raise TraceError(f"a scratch array has 1 to {LARGEST} elements, got {size}")
    return Scratch(zeros(current_graph(), size, INDICES, cleared), checked=checked)


def gather(array: Expr) -> list[Expr]:
    """Every element of an array, as scalars."""
    graph = array.graph
    return [load(array, graph.integer(i)) for i in range(array.width)]


def restore(array: Expr) -> Expr:
    """An array with the contents this version has or had."""
    if array.graph.readers.get(array, []) is not None:
        return array
    if array.kind == INDICES:
        raise TraceError("a loop that is differentiated read integers of a scratch array that was overwritten later")
    if array in array.graph.copies:
        return array.graph.copies[array]
    elements = gather(array)
    again = zeros_like(array.graph, array)
    for i, element in enumerate(elements):
        again = store(again, array.graph.integer(i), element)
    return again


def root(array: Expr) -> Expr:
    """The first version of an array in its graph: a parameter or a fresh scratch."""
    while True:
        if array.op in ("store", "accumulate"):
            array = array.args[0]
        elif array.op == "get" and array.kind in ELEMENT:
            array = array.args[0].args[array.data]
        else:
            return array
