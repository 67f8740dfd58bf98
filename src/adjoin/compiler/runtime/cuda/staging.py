"""Access to tensors on a GPU: a warp copies 32 rows through its piece of shared memory."""

from collections.abc import Sequence

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.program import TensorSpec

WARP = 32  # threads
WIDE = 128  # bits that a thread moves at once, where rows are made of such units
RESIDENT = 96 << 10  # bytes of shared memory a warp that inputs may occupy; an input too many passes through the tile


class StagingMemory:
    """Access to tensors through a warp's own piece of shared memory; see `codegen.memory.Memory`.

    Row inputs are brought in together when the kernel starts and stay there until used, as far as there is room; a step
    of a stream and the outputs pass through one further tile.
    """

    def __init__(self, writer: Writer, layout: Layout, words: Sequence[str]):
        self.writer = writer
        self.layout = layout
        self.words = words
        self.offset = 0  # elements of shared memory a warp, as far as given out
        self.tile: int | None = None
        self.resident: dict[int, dict[int, tuple[int, int]]] = {}
        self.bases: dict[tuple[int, str | None], str] = {}

    def begin(self, lane_index: str, first: str, limit: str, warp_base: str) -> None:
        """Take over the thread's place: lane, the warp's first row, its last valid row offset, its shared memory."""
        self.lane_index, self.first, self.limit, self.warp_base = lane_index, first, limit, warp_base

    def fetch(self, tensors: Sequence[tuple[int, TensorSpec]]) -> None:
        """Bring whole row inputs into shared memory: every global load is under way before the first is awaited."""
        pending = []
        for tensor, spec in tensors:
            needed = sum(WARP * (count | 1) for _, count in self.chunks(spec))
            if (self.offset + needed) * self.writer.lane.bits // 8 > RESIDENT:
                continue
            places = self.resident[tensor] = {}
            for start, count in self.chunks(spec):
                pitch = count | 1
                places.update({start + i: (self.offset + i, pitch) for i in range(count)})
                pending += self._gather(tensor, start, count, None, self.offset)
                self.offset += WARP * pitch
        self._commit(pending)

    def loads_at_start(self, tensor: int, spec: TensorSpec) -> bool:
        """Return whether an input has no place in shared memory, and passes through the tile at the start."""
        return not spec.shared and tensor not in self.resident

    def can_reload(self, tensor: int) -> bool:
        """Return whether an input stays in shared memory."""
        return tensor in self.resident

    def load(self, tensor: int, spec: TensorSpec, columns: set[int], step: str | None) -> dict[int, str]:
        """Return the given columns of a tensor, one operand a column."""
        w, scalar = self.writer, self.writer.lane.scalar
        if spec.shared:
            base = self._address(tensor, "0", step)
            operands = {}
            for column in sorted(columns):
                pointer = w.emit(f"getelementptr {scalar}, ptr addrspace(1) {base}, i64 {column}")
                operands[column] = w.emit(f"load {scalar}, ptr addrspace(1) {pointer}, !invariant.load !0")
            return operands
        if tensor in self.resident:
            return {column: self._read(*self.resident[tensor][column]) for column in columns}
        operands = {}
        for start, count in self.chunks(spec):
            wanted = [column for column in sorted(columns) if start <= column < start + count]
            if wanted:
                base = self._tile()
                self._commit(self._gather(tensor, start, count, step, base))
                operands.update({column: self._read(base + column - start, count | 1) for column in wanted})
                self._barrier()
        return operands

    def store(self, tensor: int, spec: TensorSpec, start: int, values: list[str], step: str | None) -> None:
        """Write some columns: a whole chunk of the row."""
        w, lane = self.writer, self.writer.lane
        wide = WIDE // lane.bits
        if not spec.shared and spec.size % wide == 0 and len(values) in (wide << k for k in range(6)):
            self._store_wide(tensor, spec, start, values, step)
            return
        count, pitch, base = len(values), len(values) | 1, self._tile()
        mine = w.emit(f"mul i32 {self.lane_index}, {pitch}")
        for i, value in enumerate(values):
            w.line(f"  store {lane.scalar} {value}, ptr addrspace(3) {self._shared(mine, base + i)}")
        self._barrier()
        if spec.shared:
            self._store_sum(tensor, start, count, step, base)
        else:
            for i in range(count):
                row, column = self._place(i, count)
                row = self._valid(row)
                value = w.emit(f"load {lane.scalar}, ptr addrspace(3) {self._shared_at(row, column, pitch, base)}")
                pointer = self._global(tensor, row, w.emit(f"add i32 {column}, {start}"), step)
                w.line(f"  store {lane.scalar} {value}, ptr addrspace(1) {pointer}")
        self._barrier()

    def look_up(self, tensor: int, spec: TensorSpec, index: str, uniform: bool) -> str:
        """Return one number of the thread's row of a table."""
        w, scalar = self.writer, self.writer.lane.scalar
        row = "0"
        if not spec.shared:
            row = w.emit(f"add i64 {self.first}, {w.emit(f'sext i32 {self._valid(self.lane_index)} to i64')}")
        pointer = w.emit(f"getelementptr {scalar}, ptr addrspace(1) {self._address(tensor, row, None)}, i32 {index}")
        return w.emit(f"load {scalar}, ptr addrspace(1) {pointer}")

    def _store_wide(self, tensor: int, spec: TensorSpec, start: int, values: list[str], step: str | None) -> None:
        """Write a chunk in units of 16 bytes, of which several threads together have a row.

        Results are contiguous. Rows lie an odd number of units apart in shared memory, so that eight threads, which is
        what the memory serves at a time, never meet in a bank.
        """
        w, scalar = self.writer, self.writer.lane.scalar
        width = WIDE // w.lane.bits
        units = len(values) // width
        kind, pitch, base = f"<{width} x {scalar}>", (units | 1) * width, self._tile()
        mine = w.emit(f"mul i32 {self.lane_index}, {pitch}")
        for unit in range(units):
            packed = "poison"
            for i in range(width):
                value = values[unit * width + i]
                packed = w.emit(f"insertelement {kind} {packed}, {scalar} {value}, i32 {i}")
            w.line(f"  store {kind} {packed}, ptr addrspace(3) {self._shared(mine, base + unit * width)}, align 16")
        self._barrier()
        key = (tensor, step)
        if key not in self.bases:
            self.bases[key] = self._address(tensor, self.first, step)
        unit_index = w.emit(f"and i32 {self.lane_index}, {units - 1}")
        column = w.emit(f"mul i32 {unit_index}, {width}")
        down = w.emit(f"udiv i32 {self.lane_index}, {units}")
        for i in range(units):
            row = self._valid(w.emit(f"add i32 {down}, {i * (WARP // units)}"))
            value = w.emit(f"load {kind}, ptr addrspace(3) {self._shared_at(row, column, pitch, base)}, align 16")
            index = w.emit(f"add i32 {w.emit(f'mul i32 {row}, {spec.size}')}, {column}")
            pointer = w.emit(f"getelementptr {scalar}, ptr addrspace(1) {self.bases[key]}, i32 {index}")
            pointer = w.emit(f"getelementptr {scalar}, ptr addrspace(1) {pointer}, i32 {start}")
            w.line(f"  store {kind} {value}, ptr addrspace(1) {pointer}, align 16")
        self._barrier()

    def chunks(self, spec: TensorSpec) -> list[tuple[int, int]]:
        """Return the pieces in which a row is read and written: one a warp's width, and the rest."""
        return [(start, min(WARP, spec.size - start)) for start in range(0, spec.size, WARP)]

    def _store_sum(self, tensor: int, start: int, count: int, step: str | None, base: int) -> None:
        """Thread c adds column c of the warp's rows, in order, and writes it."""
        w, scalar = self.writer, self.writer.lane.scalar
        column = w.intrinsic("llvm.umin.i32", "i32", ("i32", self.lane_index), ("i32", str(count - 1)))
        total = ""
        for row in range(WARP):
            value = w.emit(f"load {scalar}, ptr addrspace(3) {self._shared(column, base + row * (count | 1))}")
            if row == 0:
                total = value
                continue
            inside = w.emit(f"icmp sge i32 {self.limit}, {row}")
            value = w.emit(f"select i1 {inside}, {scalar} {value}, {scalar} {w.const(0.0)}")
            total = w.add(total, value)
        block = w.emit(f"udiv i64 {self.first}, {WARP}")
        address = self._address(tensor, block, step)
        index = w.emit(f"add i32 {column}, {start}")
        pointer = w.emit(f"getelementptr {scalar}, ptr addrspace(1) {address}, i32 {index}")
        w.line(f"  store {scalar} {total}, ptr addrspace(1) {pointer}")

    def _gather(self, tensor: int, start: int, count: int, step: str | None, base: int) -> list[tuple[str, str]]:
        """Issue the coalesced loads of one chunk: (value, where it goes in shared memory)."""
        w, scalar = self.writer, self.writer.lane.scalar
        moved = []
        for i in range(count):
            row, column = self._place(i, count)
            pointer = self._global(tensor, self._valid(row), w.emit(f"add i32 {column}, {start}"), step)
            value = w.emit(f"load {scalar}, ptr addrspace(1) {pointer}")
            moved.append((value, self._shared_at(row, column, count | 1, base)))
        return moved

    def _commit(self, moved: list[tuple[str, str]]) -> None:
        for value, pointer in moved:
            self.writer.line(f"  store {self.writer.lane.scalar} {value}, ptr addrspace(3) {pointer}")
        self._barrier()

    def _place(self, i: int, count: int) -> tuple[str, str]:
        """Return row and column of the i-th element of a chunk that this thread moves."""
        w = self.writer
        if count == WARP:
            return w.emit(f"add i32 {i}, 0"), self.lane_index
        index = w.emit(f"add i32 {self.lane_index}, {i * WARP}")
        row = w.emit(f"udiv i32 {index}, {count}")
        return row, w.emit(f"sub i32 {index}, {w.emit(f'mul i32 {row}, {count}')}")

    def _read(self, offset: int, pitch: int) -> str:
        mine = self.writer.emit(f"mul i32 {self.lane_index}, {pitch}")
        return self.writer.emit(f"load {self.writer.lane.scalar}, ptr addrspace(3) {self._shared(mine, offset)}")

    def _tile(self) -> int:
        if self.tile is None:
            self.tile = self.offset
            self.offset += WARP * (WARP + WIDE // self.writer.lane.bits)
        return self.tile

    def _shared_at(self, row: str, column: str, pitch: int, base: int) -> str:
        w = self.writer
        return self._shared(w.emit(f"add i32 {w.emit(f'mul i32 {row}, {pitch}')}, {column}"), base)

    def _shared(self, index: str, base: int) -> str:
        w = self.writer
        place = w.emit(f"getelementptr {w.lane.scalar}, ptr addrspace(3) {self.warp_base}, i32 {index}")
        return w.emit(f"getelementptr {w.lane.scalar}, ptr addrspace(3) {place}, i32 {base}")

    def _address(self, tensor: int, row: str, step: str | None) -> str:
        w = self.writer
        offset = "0" if row == "0" else w.emit(f"mul i64 {row}, {self.words[self.layout.row_stride(tensor)]}")
        if step is not None:
            stride = self.words[self.layout.step_stride(tensor)]
            offset = w.emit(f"add i64 {offset}, {w.emit(f'mul i64 {step}, {stride}')}")
        pointer = w.emit(f"inttoptr i64 {self.words[self.layout.address(tensor)]} to ptr addrspace(1)")
        return w.emit(f"getelementptr {w.lane.scalar}, ptr addrspace(1) {pointer}, i64 {offset}")

    def _global(self, tensor: int, row: str, column: str, step: str | None) -> str:
        w = self.writer
        key = (tensor, step)
        if key not in self.bases:
            self.bases[key] = self._address(tensor, self.first, step)
        stride = self.words[self.layout.row_stride(tensor)]
        wide = w.emit(f"mul i64 {w.emit(f'sext i32 {row} to i64')}, {stride}")
        index = w.emit(f"add i64 {wide}, {w.emit(f'sext i32 {column} to i64')}")
        return w.emit(f"getelementptr {w.lane.scalar}, ptr addrspace(1) {self.bases[key]}, i64 {index}")

    def _valid(self, row: str) -> str:
        return self.writer.intrinsic("llvm.smin.i32", "i32", ("i32", row), ("i32", self.limit))

    def _barrier(self) -> None:
        self.writer.declarations.add("declare void @llvm.nvvm.bar.warp.sync(i32) convergent")
        self.writer.line("  call void @llvm.nvvm.bar.warp.sync(i32 -1)")
