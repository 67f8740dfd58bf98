"""Access to tensors on a CPU: as many rows as a vector has lanes, transposed in registers."""

from collections.abc import Sequence
from typing import NamedTuple

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.program import TensorSpec

UNIT = 128  # bits within which processors shuffle most cheaply
STACK = 128 << 10  # bytes of the stack that the rows of a block may take
FIRST_CACHE, SECOND_CACHE = 3, 2  # LLVM's names of the caches that lines are prefetched into
PREFETCHED = 1024  # bytes of a row up to which the rows of the next block are prefetched


def chunks(size: int, width: int) -> list[tuple[int, int]]:
    """Cover the columns of a row with (start, columns) pieces of power-of-two sizes up to a width; they may overlap."""
    pieces = [(start, width) for start in range(0, size - width + 1, width)]
    done = len(pieces) * width
    while done < size:
        columns = 1 << (size - done - 1).bit_length()
        while columns > size:
            columns //= 2
        start = min(done, size - columns)
        pieces.append((start, columns))
        done = start + columns
    return pieces


class PlacedRows(NamedTuple):
    """Rows of an output that are written at constant distances from the first of their block.

    Attributes:
        spec: the output.
        stack: where the rows of a block go that is not full.
        place: holds where the first row of the present block goes.
    """

    spec: TensorSpec
    stack: str
    place: str


class TransposingMemory:
    """Access to tensors by blocks of as many environments as a vector has lanes; see `codegen.memory.Memory`.

    Addresses are computed anew, from words read as volatile, wherever rows are read or written: kept in registers from
    one place to the next they would all be alive throughout a kernel, on which LLVM's register allocator takes minutes.
    """

    def __init__(self, writer: Writer, layout: Layout, load_at_start: bool):
        self.writer = writer
        self.layout = layout
        self.load_at_start = load_at_start
        self._placed: dict[int, PlacedRows] = {}

    def place_outputs(self, first: int, specs: Sequence[TensorSpec]) -> None:
        """Have rows of outputs written at constant distances, as far as the stack has room for those of a last block.

        Args:
            first: the position of the first output among the tensors.
            specs: the outputs.
        """
        w, lane = self.writer, self.writer.lane
        room = STACK
        for tensor, spec in enumerate(specs, first):
            size = spec.size * lane.width * lane.bits // 8
            if 1 < lane.width <= spec.size and not spec.shared and spec.steps is None and size <= room:
                stack = w.emit(f"alloca [{spec.size * lane.width} x {lane.scalar}], align 64")
                self._placed[tensor] = PlacedRows(spec, stack, w.emit("alloca ptr"))
                room -= size

    def begin_block(self) -> None:
        """Find where the rows of a block go: to their tensor if all are within the batch, else to the stack."""
        w = self.writer
        if self._placed:
            whole = w.emit(f"icmp uge i64 {self._last()}, {w.lane.width - 1}")
            for tensor, rows in self._placed.items():
                chosen = w.emit(f"select i1 {whole}, ptr {self._base(tensor, None)[2]}, ptr {rows.stack}")
                w.line(f"  store ptr {chosen}, ptr {rows.place}")

    def end_blocks(self) -> None:
        """Copy the rows of the last block that are within the batch from the stack, if it was not full."""
        if not self._placed:
            return
        w = self.writer
        copying, end = w.name()[1:], w.name()[1:]
        last = self._last()
        partial = w.emit(f"icmp slt i64 {last}, {w.lane.width - 1}")
        w.line(f"  br i1 {partial}, label %{copying}, label %{end}")
        w.label(copying)
        count = w.emit(f"add i64 {last}, 1")
        for tensor, rows in self._placed.items():
            size = w.emit(f"mul i64 {count}, {rows.spec.size}")
            self._copy(rows.stack, self._base(tensor, None)[2], size)
        w.line(f"  br label %{end}")
        w.label(end)

    def _copy(self, source: str, target: str, count: str) -> None:
        """Copy so many numbers, at least as many as a vector has; the last vector may overlap the one before."""
        w, lane = self.writer, self.writer.lane
        final = w.emit(f"sub i64 {count}, {lane.width}")
        before, loop, behind, at, following = w.block, w.name()[1:], w.name()[1:], w.name(), w.name()
        w.line(f"  br label %{loop}")
        w.label(loop)
        w.line(f"  {at} = phi i64 [ 0, %{before} ], [ {following}, %{loop} ]")
        here, there = (w.emit(f"getelementptr {lane.scalar}, ptr {start}, i64 {at}") for start in (source, target))
        value = w.emit(f"load {lane.float}, ptr {here}, align {lane.bits // 8}")
        w.line(f"  store {lane.float} {value}, ptr {there}, align {lane.bits // 8}")
        onward = w.emit(f"add i64 {at}, {lane.width}")
        beyond = w.emit(f"icmp ugt i64 {onward}, {final}")
        w.line(f"  {following} = select i1 {beyond}, i64 {final}, i64 {onward}")
        done = w.emit(f"icmp eq i64 {at}, {final}")
        w.line(f"  br i1 {done}, label %{behind}, label %{loop}")
        w.label(behind)

    def loads_at_start(self, tensor: int, spec: TensorSpec) -> bool:
        """Return whether the kernel is small enough to have everything in registers, where addresses are at hand."""
        return self.load_at_start

    def can_reload(self, tensor: int) -> bool:
        """Return False: reading a row again costs its transposition."""
        return False

    def prefetch(self, tensor: int, spec: TensorSpec, write: bool) -> None:
        """Ask for the lines that the next block will touch.

        Its accesses jump between rows, which hides their order from the hardware's own prefetching.
        """
        w, lane = self.writer, self.writer.lane
        size = spec.size * lane.bits // 8
        if lane.width == 1 or spec.shared or spec.table or spec.steps is not None or size > PREFETCHED:
            return
        if tensor in self._placed:  # prefetched where the same place of this block is written
            return
        _, stride, base = self._base(tensor, None, lane.width)
        for row in range(lane.width):
            offset = w.emit(f"mul i64 {stride}, {row}")
            start = w.emit(f"getelementptr {lane.scalar}, ptr {base}, i64 {offset}")
            for line in range(0, size, 64):
                place = w.emit(f"getelementptr i8, ptr {start}, i64 {line}")
                self._prefetch(place, write, FIRST_CACHE)

    def _prefetch(self, place: str, write: bool, cache: int) -> None:
        self.writer.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.writer.line(f"  call void @llvm.prefetch.p0(ptr {place}, i32 {int(write)}, i32 {cache}, i32 1)")

    def load(self, tensor: int, spec: TensorSpec, columns: set[int], step: str | None) -> dict[int, str]:
        """Return the given columns of a tensor, and maybe others, one operand a column."""
        w, lane = self.writer, self.writer.lane
        operands: dict[int, str] = {}
        if spec.shared:
            base = self._address(tensor, step)
            for column in sorted(columns):
                pointer = w.emit(f"getelementptr {lane.scalar}, ptr {base}, i64 {column}")
                operands[column] = _broadcast(w, w.emit(f"load {lane.scalar}, ptr {pointer}"))
            return operands
        rows: list[str] = []
        for start, count in chunks(spec.size, lane.width):
            if all(column in operands or column not in columns for column in range(start, start + count)):
                continue
            rows = rows or self._rows(tensor, step)
            kind = f"<{count} x {lane.scalar}>"
            pieces = []
            for row in rows:
                pointer = w.emit(f"getelementptr {lane.scalar}, ptr {row}, i64 {start}")
                pieces.append(w.emit(f"load {kind}, ptr {pointer}, align {lane.bits // 8}"))
            vectors = _concatenate(w, pieces, count)
            read = _transposed(w, vectors) if count == lane.width else _columns(w, vectors)
            operands.update(zip(range(start, start + count), read, strict=True))
        if lane.width == 1:
            kind = f"<1 x {lane.scalar}>"
            return {column: w.emit(f"extractelement {kind} {value}, i64 0") for column, value in operands.items()}
        return operands

    def store(self, tensor: int, spec: TensorSpec, start: int, values: list[str], step: str | None) -> None:
        """Write some columns: a whole chunk of the row."""
        w, lane = self.writer, self.writer.lane
        count, kind = len(values), f"<{len(values)} x {lane.scalar}>"
        if lane.width == 1:
            values = [w.emit(f"insertelement <1 x {lane.scalar}> poison, {lane.scalar} {v}, i64 0") for v in values]
        vectors = _split(w, _transposed(w, values) if count == lane.width else _rows(w, values), count)
        if spec.shared:
            vectors, rows = [self._sum(vectors, kind)], [self._partial(tensor, step)]
        elif tensor in self._placed:
            place = w.emit(f"load volatile ptr, ptr {self._placed[tensor].place}")
            offsets = range(0, lane.width * spec.size, spec.size)
            rows = [w.emit(f"getelementptr {lane.scalar}, ptr {place}, i64 {offset}") for offset in offsets]
        else:
            rows = self._rows(tensor, step)
        for vector, row in zip(vectors, rows, strict=True):
            pointer = w.emit(f"getelementptr {lane.scalar}, ptr {row}, i64 {start}")
            w.line(f"  store {kind} {vector}, ptr {pointer}, align {lane.bits // 8}")
            if tensor in self._placed:
                following = w.emit(f"getelementptr {lane.scalar}, ptr {pointer}, i64 {spec.size * lane.width}")
                self._prefetch(following, False, SECOND_CACHE)

    def chunks(self, spec: TensorSpec) -> list[tuple[int, int]]:
        """Return the pieces in which a row is written."""
        return chunks(spec.size, self.writer.lane.width)

    def _sum(self, vectors: list[str], kind: str) -> str:
        """Return the sum over the lanes that stand for an environment of their own, in order."""
        w = self.writer
        total, last = vectors[0], self._last()
        for i, vector in enumerate(vectors[1:], 1):
            inside = w.emit(f"icmp uge i64 {last}, {i}")
            value = w.emit(f"select i1 {inside}, {kind} {vector}, {kind} zeroinitializer")
            total = w.emit(f"fadd {kind} {total}, {value}")
        return total

    def _word(self, index: int) -> str:
        place = self.writer.emit(f"getelementptr i64, ptr %words, i64 {index}")
        return self.writer.emit(f"load volatile i64, ptr {place}")

    def _first(self) -> str:
        return self.writer.emit("load volatile i64, ptr %here")

    def _last(self) -> str:
        """Return how many environments follow the first of this block."""
        w = self.writer
        remaining = w.emit(f"sub i64 {self._word(self.layout.batch)}, {self._first()}")
        return w.emit(f"sub i64 {remaining}, 1")

    def look_up(self, tensor: int, spec: TensorSpec, index: str, uniform: bool) -> str:
        """Return one number of each lane's row of a table."""
        w, lane = self.writer, self.writer.lane
        rows = [self._address(tensor, None)] * lane.width if spec.shared else self._rows(tensor, None)
        numbers = "poison"
        for i, row in enumerate(rows):
            place = index if uniform else w.emit(f"extractelement {lane.vector('i32')} {index}, i64 {i}")
            pointer = w.emit(f"getelementptr {lane.scalar}, ptr {row}, i32 {place}")
            number = w.emit(f"load {lane.scalar}, ptr {pointer}")
            if uniform and spec.shared:
                return _broadcast(w, number)
            if lane.width == 1:
                return number
            numbers = w.emit(f"insertelement {lane.float} {numbers}, {lane.scalar} {number}, i64 {i}")
        return numbers

    def _address(self, tensor: int, step: str | None) -> str:
        """Return where a tensor, or one of its steps, begins."""
        w = self.writer
        pointer = w.emit(f"inttoptr i64 {self._word(self.layout.address(tensor))} to ptr")
        if step is None:
            return pointer
        offset = w.emit(f"mul i64 {step}, {self._word(self.layout.step_stride(tensor))}")
        return w.emit(f"getelementptr {w.lane.scalar}, ptr {pointer}, i64 {offset}")

    def _base(self, tensor: int, step: str | None, skipped: int = 0) -> tuple[str, str, str]:
        """Return the number of the first row after some that are skipped, the row stride, and where that row begins."""
        w = self.writer
        first, stride = self._first(), self._word(self.layout.row_stride(tensor))
        if skipped:
            first = w.emit(f"add i64 {first}, {skipped}")
        offset = w.emit(f"mul i64 {first}, {stride}")
        place = w.emit(f"getelementptr {w.lane.scalar}, ptr {self._address(tensor, step)}, i64 {offset}")
        return first, stride, place

    def _rows(self, tensor: int, step: str | None) -> list[str]:
        """Return where each row of the block begins; past the end of the batch, the last row again."""
        w = self.writer
        _, stride, base = self._base(tensor, step)
        rows, last = [base], self._last()
        for i in range(1, w.lane.width):
            row = w.intrinsic("llvm.umin.i64", "i64", ("i64", str(i)), ("i64", last))
            rows.append(w.emit(f"getelementptr {w.lane.scalar}, ptr {base}, i64 {w.emit(f'mul i64 {row}, {stride}')}"))
        return rows

    def _partial(self, tensor: int, step: str | None) -> str:
        """Return where the sums of this block go."""
        w = self.writer
        block = w.emit(f"udiv i64 {self._first()}, {w.lane.width}")
        offset = w.emit(f"mul i64 {block}, {self._word(self.layout.row_stride(tensor))}")
        return w.emit(f"getelementptr {w.lane.scalar}, ptr {self._address(tensor, step)}, i64 {offset}")


def _broadcast(w: Writer, scalar: str) -> str:
    lane = w.lane
    if lane.width == 1:
        return scalar
    single = w.emit(f"insertelement {lane.float} poison, {lane.scalar} {scalar}, i64 0")
    return w.emit(f"shufflevector {lane.float} {single}, {lane.float} poison, <{lane.width} x i32> zeroinitializer")


def _shuffle(w: Writer, count: int, a: str, b: str, indices: Sequence[int]) -> str:
    kind = f"<{count} x {w.lane.scalar}>"
    mask = ", ".join(f"i32 {i}" for i in indices)
    return w.emit(f"shufflevector {kind} {a}, {kind} {b}, <{len(indices)} x i32> <{mask}>")


def _concatenate(w: Writer, pieces: list[str], count: int) -> list[str]:
    """Join neighboring short vectors until each fills the lane's width."""
    while count < w.lane.width:
        pieces = [_shuffle(w, count, a, b, range(2 * count)) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
        count *= 2
    return pieces


def _split(w: Writer, vectors: list[str], count: int) -> list[str]:
    """Cut full vectors into short ones of `count` elements."""
    width = w.lane.width
    if count == width:
        return vectors
    return [
        _shuffle(w, width, vector, "poison", range(start, start + count))
        for vector in vectors
        for start in range(0, width, count)
    ]


def _columns(w: Writer, vectors: list[str], run: int = 1) -> list[str]:
    """Return the columns of a matrix whose rows fill the vectors in order: even and odd columns, recursively.

    Args:
        w: writes the shuffles.
        vectors: the matrix.
        run: neighboring elements that stay together, as if they were one.
    """
    width = w.lane.width
    if len(vectors) == 1:
        return vectors
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    halves = []
    for first in (0, run):
        order = [i for start in range(first, 2 * width, 2 * run) for i in range(start, start + run)]
        halves.append(_columns(w, [_shuffle(w, width, a, b, order) for a, b in pairs], run))
    return [column for pair in zip(*halves, strict=True) for column in pair]


def _rows(w: Writer, columns: list[str], unit: int | None = None) -> list[str]:
    """Return the inverse of `_columns`, of each unit of so many elements by itself; by default of the whole vectors."""
    width = w.lane.width
    unit = unit or width
    if len(columns) == 1:
        return columns
    vectors = []
    for a, b in zip(_rows(w, columns[::2], unit), _rows(w, columns[1::2], unit), strict=True):
        for half in (0, unit // 2):
            lanes = [start + half + i for start in range(0, width, unit) for i in range(unit // 2)]
            vectors.append(_shuffle(w, width, a, b, [i for lane in lanes for i in (lane, width + lane)]))
    return vectors


def _transposed(w: Writer, vectors: list[str]) -> list[str]:
    """Return the transpose of as many vectors as each has elements.

    Shuffles within units of 128 bits, and of whole units, need no register for their pattern and keep their operands.
    """
    unit = min(w.lane.width, UNIT // w.lane.bits)
    groups = [_rows(w, vectors[i : i + unit], unit) for i in range(0, len(vectors), unit)]
    pieces = [_columns(w, list(group), unit) for group in zip(*groups, strict=True)]
    return [piece for part in zip(*pieces, strict=True) for piece in part]
