"""Access to tensors on a GPU: a warp copies 32 rows through its piece of shared memory.

Where the rows of a warp lie one after the other, which is the rule, neighboring threads move neighboring elements, and
every address is a constant away from one of the thread's own: no instruction is spent on finding it. Otherwise (the
last warp of a batch, rows that are apart or the same for all) each thread moves its own row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.program import TensorSpec

WARP = 32  # threads
WIDE = 128  # bits that a thread moves at once, where rows are made of such units
WHOLE = 40  # elements up to which a row is moved in one piece
RESIDENT = 96 << 10  # bytes of shared memory a warp that inputs may occupy; an input too many passes through the tile


@dataclass(frozen=True)
class Pattern:
    """How a warp moves some columns of its rows between a tensor, whose rows lie one after the other, and a tile.

    Attributes:
        mine: where a thread's own row begins in the tile, an operand (i32).
        outside: which element of the tensor a thread moves first, counted from the warp's first row; an operand.
        inside: where that one lies in the tile, an operand.
        moves: for each further one, how far it is from these two.
        extent: elements of the tile.
    """

    mine: str
    outside: str
    inside: str
    moves: list[tuple[int, int]]
    extent: int


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
        self.resident: dict[int, tuple[int, str]] = {}  # where the tile of an input begins, and the thread's row in it

    def begin(self, lane_index: str, first: str, limit: str, warp_base: str) -> None:
        """Take over the thread's place: lane, the warp's first row, its last valid row offset, its shared memory."""
        self.lane_index, self.first, self.limit, self.warp_base = lane_index, first, limit, warp_base
        self.full = self.writer.emit(f"icmp sge i32 {limit}, {WARP - 1}")

    def fetch(self, tensors: Sequence[tuple[int, TensorSpec]]) -> None:
        """Bring whole row inputs into shared memory: every global load is under way before the first is awaited."""
        w, chosen, follow = self.writer, [], self.full
        for tensor, spec in tensors:
            pattern = self._pattern(spec.size, 0, spec.size)
            if (self.offset + pattern.extent) * w.lane.bits // 8 <= RESIDENT:
                chosen.append((tensor, spec, self.offset, pattern))
                self.resident[tensor] = self.offset, pattern.mine
                self.offset += self._aligned(pattern.extent)
                follow = w.emit(f"and i1 {follow}, {self._rows_follow(tensor, spec)}")
        if chosen:
            together, apart = self._branch(follow)
            w.label(together)
            pending = [move for tensor, _, base, pattern in chosen for move in self._gather(tensor, base, pattern)]
            self._commit(pending, apart)
            pending = []
            for tensor, spec, base, pattern in chosen:
                pending += self._gather_own(tensor, range(spec.size), 0, base, pattern, None)
            self._commit(pending, None)

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
            base, mine = self.resident[tensor]
            return {column: self._read(mine, base + column) for column in columns}
        operands = {}
        for start, count in self.chunks(spec):
            wanted = [column for column in sorted(columns) if start <= column < start + count]
            if wanted:
                pattern = self._pattern(spec.size, start, count)
                base = self._reserve(pattern.extent)
                together, apart = self._branch(w.emit(f"and i1 {self.full}, {self._rows_follow(tensor, spec)}"))
                w.label(together)
                self._commit(self._gather(tensor, base, pattern, step), apart)
                self._commit(self._gather_own(tensor, wanted, start, base, pattern, step), None)
                operands.update({column: self._read(pattern.mine, base + column - start) for column in wanted})
                self._barrier()
        return operands

    def store(self, tensor: int, spec: TensorSpec, start: int, values: list[str], step: str | None) -> None:
        """Write some columns: a whole chunk of the row."""
        if spec.shared:
            self._store_sum(tensor, start, values, step)
            return
        w, lane = self.writer, self.writer.lane
        width = WIDE // lane.bits
        width = width if spec.size % width == len(values) % width == 0 else 1
        kind = lane.scalar if width == 1 else f"<{width} x {lane.scalar}>"
        align = f", align {width * lane.bits // 8}"
        pattern = self._pattern(spec.size, start, len(values), width)
        base = self._reserve(pattern.extent)
        for i in range(0, len(values), width):
            unit = self._packed(values[i : i + width], kind)
            w.line(f"  store {kind} {unit}, ptr addrspace(3) {self._shared(pattern.mine, base + i)}{align}")
        self._barrier()
        together, apart = self._branch(self.full)
        w.label(together)
        outside = self._global(self._base(tensor, step), pattern.outside)
        for far, near in pattern.moves:
            value = w.emit(f"load {kind}, ptr addrspace(3) {self._shared(pattern.inside, base + near)}{align}")
            w.line(f"  store {kind} {value}, ptr addrspace(1) {self._global(outside, str(far))}{align}")
        w.line(f"  br label %{self._meeting}")
        w.label(apart)
        self._store_own(tensor, spec, start, len(values), base, pattern, step)
        self._barrier()

    def look_up(self, tensor: int, spec: TensorSpec, index: str, uniform: bool) -> str:
        """Return one number of the thread's row of a table."""
        w, scalar = self.writer, self.writer.lane.scalar
        row = "0"
        if not spec.shared:
            row = w.emit(f"add i64 {self.first}, {w.emit(f'sext i32 {self._valid_row()} to i64')}")
        pointer = self._global(self._address(tensor, row, None), index)
        return w.emit(f"load {scalar}, ptr addrspace(1) {pointer}")

    def chunks(self, spec: TensorSpec) -> list[tuple[int, int]]:
        """Return the pieces in which a row is read and written: all of it, or one a warp's width, and the rest."""
        if spec.size <= WHOLE and not spec.shared:
            return [(0, spec.size)]
        return [(start, min(WARP, spec.size - start)) for start in range(0, spec.size, WARP)]

    def _pattern(self, size: int, start: int, count: int, width: int = 1) -> Pattern:
        """Return how columns of rows of a size are moved, in units of so many elements.

        Threads that read or write a column of their own rows meet in no bank: whole rows leave a unit free whenever
        their beginnings come back to a bank, and pieces of rows lie an odd number of units apart.
        """
        w, lane, units = self.writer, self.lane_index, count // width
        if count == size:
            rows = WARP // gcd(units, WARP)
            mine = w.emit(f"mul i32 {lane}, {units}")
            mine = w.emit(f"add i32 {mine}, {w.emit(f'udiv i32 {lane}, {rows}')}")
            own = w.emit(f"mul i32 {lane}, {width}")
            moves = [(i * WARP * width, (i * WARP + i * WARP // (rows * units)) * width) for i in range(units)]
            extent = (WARP * units + WARP // rows) * width
            return Pattern(w.emit(f"mul i32 {mine}, {width}"), own, own, moves, extent)
        across, pitch = 1 << (units - 1).bit_length(), (units | 1) * width
        down, unit = w.emit(f"udiv i32 {lane}, {across}"), w.emit(f"and i32 {lane}, {across - 1}")
        unit = w.intrinsic("llvm.umin.i32", "i32", ("i32", unit), ("i32", str(units - 1)))
        column = w.emit(f"mul i32 {unit}, {width}")
        outside = w.emit(f"add i32 {w.emit(f'mul i32 {down}, {size}')}, {column}")
        inside = w.emit(f"add i32 {w.emit(f'mul i32 {down}, {pitch}')}, {column}")
        moves = [(start + i * size, i * pitch) for i in range(0, WARP, WARP // across)]
        return Pattern(w.emit(f"mul i32 {lane}, {pitch}"), outside, inside, moves, WARP * pitch)

    def _rows_follow(self, tensor: int, spec: TensorSpec) -> str:
        """Return whether rows lie one after the other."""
        return self.writer.emit(f"icmp eq i64 {self.words[self.layout.row_stride(tensor)]}, {spec.size}")

    def _gather(self, tensor: int, base: int, pattern: Pattern, step: str | None = None) -> list[tuple[str, str]]:
        """Issue the loads of a tile by neighboring threads: (value, where it goes in shared memory)."""
        outside = self._global(self._base(tensor, step), pattern.outside)
        moved = []
        for far, near in pattern.moves:
            value = self._load(self._global(outside, str(far)))
            moved.append((value, self._shared(pattern.inside, base + near)))
        return moved

    def _gather_own(
        self, tensor: int, columns: Sequence[int], start: int, base: int, pattern: Pattern, step: str | None
    ) -> list[tuple[str, str]]:
        """Issue the loads of each thread's own row."""
        w = self.writer
        row = w.emit(f"add i64 {self.first}, {w.emit(f'sext i32 {self._valid_row()} to i64')}")
        address = self._address(tensor, row, step)
        moved = []
        for column in columns:
            value = self._load(self._global(address, str(column)))
            moved.append((value, self._shared(pattern.mine, base + column - start)))
        return moved

    def _commit(self, moved: list[tuple[str, str]], otherwise: str | None) -> None:
        """Store what was gathered, and go on where the two ways of gathering meet; `otherwise` begins the second."""
        w = self.writer
        for value, pointer in moved:
            w.line(f"  store {w.lane.scalar} {value}, ptr addrspace(3) {pointer}")
        w.line(f"  br label %{self._meeting}")
        w.label(otherwise or self._meeting)
        if otherwise is None:
            self._barrier()

    def _branch(self, condition: str) -> tuple[str, str]:
        """Branch, and return the labels of the two ways; they meet at `_meeting`."""
        name = self.writer.name()[1:]
        together, apart, self._meeting = f"{name}.together", f"{name}.apart", f"{name}.meet"
        self.writer.line(f"  br i1 {condition}, label %{together}, label %{apart}")
        return together, apart

    def _store_own(
        self, tensor: int, spec: TensorSpec, start: int, count: int, base: int, pattern: Pattern, step: str | None
    ) -> None:
        """Each thread that has an environment writes its own row; in a loop, for it is rare."""
        w, scalar, name = self.writer, self.writer.lane.scalar, self.writer.name()[1:]
        row = self._global(self._base(tensor, step), w.emit(f"mul i32 {self.lane_index}, {spec.size}"))
        valid = w.emit(f"icmp sle i32 {self.lane_index}, {self.limit}")
        before = w.block
        w.line(f"  br i1 {valid}, label %{name}, label %{self._meeting}")
        w.label(name)
        w.line(f"  %{name}.i = phi i32 [ 0, %{before} ], [ %{name}.n, %{name} ]")
        value = self._read(w.emit(f"add i32 {pattern.mine}, %{name}.i"), base)
        place = self._global(self._global(row, str(start)), f"%{name}.i")
        w.line(f"  store {scalar} {value}, ptr addrspace(1) {place}")
        w.line(f"  %{name}.n = add i32 %{name}.i, 1")
        w.line(f"  %{name}.m = icmp ult i32 %{name}.n, {count}")
        w.line(f"  br i1 %{name}.m, label %{name}, label %{self._meeting}, !llvm.loop !1")
        w.label(self._meeting)

    def _store_sum(self, tensor: int, start: int, values: list[str], step: str | None) -> None:
        """Thread c adds column c of the warp's rows, in order, and writes it."""
        w, scalar, count = self.writer, self.writer.lane.scalar, len(values)
        pitch = count | 1
        base = self._reserve(WARP * pitch)
        mine = w.emit(f"mul i32 {self.lane_index}, {pitch}")
        for i, value in enumerate(values):
            w.line(f"  store {scalar} {value}, ptr addrspace(3) {self._shared(mine, base + i)}")
        self._barrier()
        column = w.intrinsic("llvm.umin.i32", "i32", ("i32", self.lane_index), ("i32", str(count - 1)))
        total = ""
        for row in range(WARP):
            value = self._read(column, base + row * pitch)
            if row == 0:
                total = value
                continue
            inside = w.emit(f"icmp sge i32 {self.limit}, {row}")
            value = w.emit(f"select i1 {inside}, {scalar} {value}, {scalar} {w.const(0.0)}")
            total = w.add(total, value)
        block = w.emit(f"udiv i64 {self.first}, {WARP}")
        pointer = self._global(self._address(tensor, block, step), w.emit(f"add i32 {column}, {start}"))
        w.line(f"  store {scalar} {total}, ptr addrspace(1) {pointer}")
        self._barrier()

    def _packed(self, values: list[str], kind: str) -> str:
        """Return values as one that is moved at once."""
        if len(values) == 1:
            return values[0]
        packed = "poison"
        for i, value in enumerate(values):
            packed = self.writer.emit(f"insertelement {kind} {packed}, {self.writer.lane.scalar} {value}, i32 {i}")
        return packed

    def _aligned(self, elements: int) -> int:
        """Return a number of elements that ends where a unit does."""
        width = WIDE // self.writer.lane.bits
        return -(-elements // width) * width

    def _reserve(self, extent: int) -> int:
        """Return where the tile begins, which comes last and is as large as the largest that passes through it."""
        if self.tile is None:
            self.tile = self.offset
        self.offset = max(self.offset, self.tile + self._aligned(extent))
        return self.tile

    def _load(self, pointer: str) -> str:
        return self.writer.emit(f"load {self.writer.lane.scalar}, ptr addrspace(1) {pointer}")

    def _read(self, index: str, base: int) -> str:
        return self.writer.emit(f"load {self.writer.lane.scalar}, ptr addrspace(3) {self._shared(index, base)}")

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

    def _base(self, tensor: int, step: str | None) -> str:
        """Return the address of the warp's first row."""
        return self._address(tensor, self.first, step)

    def _global(self, address: str, index: str) -> str:
        w = self.writer
        return w.emit(f"getelementptr {w.lane.scalar}, ptr addrspace(1) {address}, i32 {index}")

    def _valid_row(self) -> str:
        """Return the thread's row, or the last one of the batch."""
        return self.writer.intrinsic("llvm.smin.i32", "i32", ("i32", self.lane_index), ("i32", self.limit))

    def _barrier(self) -> None:
        self.writer.declarations.add("declare void @llvm.nvvm.bar.warp.sync(i32) convergent")
        self.writer.line("  call void @llvm.nvvm.bar.warp.sync(i32 -1)")
