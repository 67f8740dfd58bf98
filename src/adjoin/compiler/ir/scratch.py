"""Arrays that a kernel indexes while it runs: small scratch arrays in fast memory, and tables among its inputs.

Scratch arrays are values: `scratch[i] = x` makes a new version that takes the place of the old one, so that a loop can
carry an array, and only the newest version may be read or written.
"""

from collections.abc import Sequence
from typing import Any

from adjoin.compiler.ir.graph import Expr, Graph, apply, current_graph, to_index
from adjoin.compiler.ir.kinds import ARRAY, FLOAT, INT
from adjoin.errors import TraceError

LARGEST = 4096  # elements of a scratch array: it lies on the stack of a CPU thread, or in the local memory of a GPU's


class Scratch:
    """A small array in fast memory, indexed by numbers or by traced integers; an index outside is clamped.

    Made by `scratch(size)` or `scratch(values)`. It may be carried by a loop. Every index of an access that depends on
    the data (`to_index(x)`) may differ between environments.
    """

    def __init__(self, array: Expr):
        self.array = array

    def __len__(self) -> int:
        return self.array.width

    def __getitem__(self, index: Any) -> Expr:
        graph = self._graph(index)
        return load(graph.lift(self.array), self._index(graph, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        graph = self._graph(index, value)
        if graph is not self.array.graph:
            raise TraceError("a loop body writes a scratch array that it does not carry; make it part of the carry")
        value = graph.lift(value)
        if value.kind != FLOAT:
            raise TraceError(f"a scratch array holds floats, got a {value.kind} value")
        self.array = store(self.array, self._index(graph, index), value)

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


class Lookup:
    """A table that is read where the data says: an input of the kernel. Indices outside are clamped.

    No gradient passes to its numbers.
    """

    def __init__(self, table: Expr, shape: tuple[int, ...]):
        self.table, self.shape = table, shape

    def __getitem__(self, index: Any) -> Expr:
        """One number: `table[i]`, or `table[i, j]` of a table with two dimensions."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape):
            raise TraceError(f"a table of shape {self.shape} takes {len(self.shape)} indices, got {len(indices)}")
        exprs = [self.table, *[value for value in indices if isinstance(value, Expr)]]
        graph = max((expr.graph for expr in exprs), key=lambda graph: graph.depth)
        place = graph.integer(0)
        for size, value in zip(self.shape, indices, strict=True):
            lifted = graph.integer(value) if isinstance(value, int) else to_index(graph.lift(value))
            inside = apply("min", apply("max", lifted, graph.integer(0)), graph.integer(size - 1))
            place = place * graph.integer(size) + inside
        return graph.node("lookup", (graph.lift(self.table), place))


def load(array: Expr, index: Expr) -> Expr:
    """One element of an array."""
    value = array.graph.find("load", (array, index))
    if value is None:
        known = readers(array)
        value = array.graph.node("load", (array, index))
        known.append(value)
    return value


def store(array: Expr, index: Expr, value: Expr) -> Expr:
    """The next version of an array. It runs after everything that reads the version it replaces."""
    result = array.graph.fresh("store", (array, index, value, *consume(array)), None, ARRAY)
    result.width = array.width
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
    array.graph.readers[array] = None
    return known


def zeros(graph: Graph, size: int) -> Expr:
    """A new array of zeros in a graph."""
    array = graph.fresh("scratch", (), None, ARRAY)
    array.width = size
    return array


def scratch(values: int | Sequence[Any]) -> Scratch:
    """A scratch array of so many zeros, or of the given values; of up to 4096 elements."""
    graph = current_graph()
    size = values if isinstance(values, int) else len(values)
    if not 0 < size <= LARGEST:
        raise TraceError(f"a scratch array has 1 to {LARGEST} elements, got {size}")
    if isinstance(values, int):
        return Scratch(zeros(graph, values))
    result = Scratch(zeros(graph, len(values)))
    for i, value in enumerate(values):
        result[i] = graph.lift(value)
    return result


def gather(array: Expr) -> list[Expr]:
    """Every element of an array, as scalars."""
    graph = array.graph
    return [load(array, graph.integer(i)) for i in range(array.width)]


def restore(array: Expr) -> Expr:
    """An array with the contents this version has or had."""
    if array.graph.readers.get(array, []) is not None:
        return array
    elements = gather(array)
    again = zeros(array.graph, array.width)
    for i, element in enumerate(elements):
        again = store(again, array.graph.integer(i), element)
    return again


def root(array: Expr) -> Expr:
    """The first version of an array in its graph: a parameter or a fresh scratch."""
    while True:
        if array.op == "store":
            array = array.args[0]
        elif array.op == "get" and array.kind == ARRAY:
            array = array.args[0].args[array.data]
        else:
            return array
