"""Access to tensors on a CPU: as many rows as a vector has lanes, transposed in registers."""

from collections.abc import Sequence

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.program import TensorSpec

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


class TransposingMemory:
    """Access to tensors by blocks of as many environments as a vector has lanes; see `codegen.memory.Memory`.

    Addresses are computed anew, from words read as volatile, wherever rows are read or written: kept in registers from
    one place to the next they would all be alive throughout a kernel, on which LLVM's register allocator takes minutes.
    """

    def __init__(self, writer: Writer, layout: Layout, load_at_start: bool):
        self.writer = writer
        self.layout = layout
        self.load_at_start = load_at_start

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
        _, stride, base = self._base(tensor, None, lane.width)
        w.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for row in range(lane.width):
            offset = w.emit(f"mul i64 {stride}, {row}")
            start = w.emit(f"getelementptr {lane.scalar}, ptr {base}, i64 {offset}")
            for line in range(0, size, 64):
                place = w.emit(f"getelementptr i8, ptr {start}, i64 {line}")
                w.line(f"  call void @llvm.prefetch.p0(ptr {place}, i32 {int(write)}, i32 3, i32 1)")

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
            operands.update(zip(range(start, start + count), _columns(w, vectors), strict=True))
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
        vectors = _split(w, _rows(w, values), count)
        if spec.shared:
            vectors, rows = [self._sum(vectors, kind)], [self._partial(tensor, step)]
        else:
            rows = self._rows(tensor, step)
        for vector, row in zip(vectors, rows, strict=True):
            pointer = w.emit(f"getelementptr {lane.scalar}, ptr {row}, i64 {start}")
            w.line(f"  store {kind} {vector}, ptr {pointer}, align {lane.bits // 8}")

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


def _columns(w: Writer, vectors: list[str]) -> list[str]:
    """Return the columns of a matrix whose rows fill the vectors in order: even and odd columns, recursively."""
    if len(vectors) == 1:
        return vectors
    width = w.lane.width
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    even = _columns(w, [_shuffle(w, width, a, b, range(0, 2 * width, 2)) for a, b in pairs])
    odd = _columns(w, [_shuffle(w, width, a, b, range(1, 2 * width, 2)) for a, b in pairs])
    return [column for pair in zip(even, odd, strict=True) for column in pair]


def _rows(w: Writer, columns: list[str]) -> list[str]:
    """Return the inverse of `_columns`."""
    if len(columns) == 1:
        return columns
    width = w.lane.width
    vectors = []
    for a, b in zip(_rows(w, columns[::2]), _rows(w, columns[1::2]), strict=True):
        for first in (0, width // 2):
            order = [i for lane in range(first, first + width // 2) for i in (lane, width + lane)]
            vectors.append(_shuffle(w, width, a, b, order))
    return vectors
