"""The code with which a kernel over a set reaches its tensors, for CPUs and GPUs alike; see `codegen.memory.Memory`."""

from collections.abc import Callable, Sequence

from adjoin.compiler.codegen import contributions
from adjoin.compiler.codegen.map_access import WORDS, Access, Kind, Map
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.program import TensorSpec

CHUNK = 512
"""Lanes whose sums share a slot on a CPU, whatever the number of threads, so that sums have the same bits."""


class Layout:
    """Where the arguments of a map lie: the bindings, then the number of lanes and the address of the workspace."""

    def __init__(self, map_: Map):
        self.batch = map_.words
        self.workspace = map_.words + 1
        self.words = map_.words + 2

    def integer(self, name: str) -> int:
        """Return the place of a run-time integer, of which maps have none."""
        raise KeyError(name)


class MapMemory:
    """Writes loads and stores by the accesses of a map.

    Attributes:
        first: the operand (i64) that numbers the block's first lane.
        sums: memory for the sums of a vector of lanes.
    """

    def __init__(self, writer: Writer, map_: Map, words: Sequence[str], pointer: str = "ptr"):
        self.w, self.map, self.words, self.pointer = writer, map_, words, pointer
        self.first = self.sums = ""
        self._bases: dict[int, str] = {}
        self._tables = {name: len(map_.accesses) + i for i, name in enumerate(map_.tables)}
        self._indices: dict[tuple[str, int], list[str]] = {}

    def begin(self, step: str, variant: str) -> None:
        """Compute where every tensor begins, of this step and variant."""
        w = self.w
        for binding in range(len(self.map.accesses) + len(self._tables)):
            address, stride, shift, mask, variants = self.words[WORDS * binding : WORDS * binding + 5]
            shifted = w.emit(f"add i64 {step}, {shift}")
            row = w.emit(f"mul i64 {w.emit(f'and i64 {shifted}, {mask}')}, {stride}")
            offset = w.emit(f"add i64 {row}, {w.emit(f'mul i64 {variant}, {variants}')}")
            base = w.emit(f"inttoptr i64 {address} to {self.pointer}")
            kind = w.lane.scalar
            if binding >= len(self.map.accesses) or self.map.accesses[binding].kind == Kind.INDEX:
                kind = "i32"
            self._bases[binding] = w.emit(f"getelementptr {kind}, {self.pointer} {base}, i64 {offset}")
        if w.lane.width > 1:
            self.sums = w.emit(f"alloca [{w.lane.width * self._longest_sum()} x {w.lane.scalar}], align 64")

    def _longest_sum(self) -> int:
        """Return the numbers of the largest contribution that the map adds up."""
        longest = 1
        for reads, spec in zip(self.map.reads, self.map.program.inputs, strict=True):
            for access in reads:
                if access.kind == Kind.SUM:
                    longest = max(longest, contributions.stride(spec.size, access.corners))
        return longest

    # The protocol of codegen.memory.Memory ----------------------------------------------------------------------------

    def loads_at_start(self, tensor: int, spec: TensorSpec) -> bool:
        """Return True: indices are read once for all the inputs they serve."""
        return True

    def can_reload(self, tensor: int) -> bool:
        """Return False: reading again costs a gather."""
        return False

    def chunks(self, spec: TensorSpec) -> list[tuple[int, int]]:
        """Return single columns, or all components at a corner: each is written as soon as it is known."""
        outputs = [one.name for one in self.map.program.outputs]
        access = self.map.writes[outputs.index(spec.name)]
        count = spec.size // access.corners if self._is_contribution(access, spec) else 1
        return [(column, count) for column in range(0, spec.size, count)]

    def _is_contribution(self, access: Access, spec: TensorSpec) -> bool:
        """Return whether a write has all components of a contribution side by side."""
        written = access.kind in (Kind.LANE, Kind.ADD)
        return written and contributions.stride(spec.size // access.corners, access.corners) > 1

    def look_up(self, tensor: int, spec: TensorSpec, index: str, uniform: bool) -> str:
        """Tables of maps are constants or fields of connections."""
        raise AssertionError("a map has no table inputs")

    def load(self, tensor: int, spec: TensorSpec, columns: set[int], step: str | None) -> dict[int, str]:
        """Return columns of an input: the sum of its reads."""
        totals: dict[int, str] = {}
        first = self.map.first_access(tensor)
        for i, access in enumerate(self.map.reads[tensor]):
            operands = _READ[access.kind](self, first + i, access, sorted(columns), spec.size)
            for column, operand in operands.items():
                totals[column] = self.w.add(totals[column], operand) if column in totals else operand
        return totals or dict.fromkeys(columns, self.w.const(0.0))

    def store(self, tensor: int, spec: TensorSpec, start: int, values: list[str], step: str | None) -> None:
        """Write a column of an output."""
        binding = self.map.first_access(tensor)
        access = self.map.writes[tensor - len(self.map.reads)]
        width = spec.size // access.corners
        corner, component = divmod(start, width)
        w, lane = self.w, self.w.lane
        if self._is_contribution(access, spec):
            contributions.write(self, binding, access, corner, values, access.kind == Kind.ADD)
            return
        column = component * access.corners + corner
        if access.kind == Kind.REDUCE:
            self.reduce(binding, spec.size, start, values[0])
            return
        if access.kind == Kind.SCATTER:
            self.scatter(binding, access, corner, component, values[0])
            return
        value = values[0]
        if access.kind == Kind.INDEX:  # the column stride of its binding is the largest index
            place = self._at(binding, self.first, "i32")
            kind = lane.vector("i32")
            suffix = kind if lane.width == 1 else f"v{lane.width}i32"
            value = w.intrinsic(f"llvm.fptosi.sat.{suffix}.{lane.suffix}", kind, (lane.float, value))
            limit = self.w.spread(w.emit(f"trunc i64 {self.words[WORDS * binding + 5]} to i32"))
            value = w.intrinsic(f"llvm.smax.{suffix}", kind, (kind, value), (kind, self.w.spread("0")))
            value = w.intrinsic(f"llvm.smin.{suffix}", kind, (kind, value), (kind, limit))
            w.line(f"  store {kind} {value}, {self.pointer} {place}, align 4")
            return
        place = self._own(binding, column)
        if access.kind == Kind.ADD:
            value = w.add(self._load(lane.float, place), value)
        w.line(f"  store {lane.float} {value}, {self.pointer} {place}, align {lane.bits // 8}")

    # Reads ------------------------------------------------------------------------------------------------------------

    def own(self, binding: int, access: Access, columns: list[int], size: int) -> dict[int, str]:
        """Return columns of the lane's own row."""
        return {column: self._load(self.w.lane.float, self._own(binding, column)) for column in columns}

    def uniform(self, binding: int, access: Access, columns: list[int], size: int) -> dict[int, str]:
        """Return columns of the row of the variant."""
        operands = {}
        for column in columns:
            place = self._at(binding, str(column))
            operands[column] = self.w.spread(self._load(self.w.lane.scalar, place), self.w.lane.scalar)
        return operands

    def gather(self, binding: int, access: Access, columns: list[int], size: int) -> dict[int, str]:
        """Return columns of the rows that the index names: column = corner * components + component."""
        width = size // access.corners
        operands = {}
        for column in columns:
            corner, component = divmod(column, width)
            base = self._column(binding, str(component))
            places = [self._element(base, index) for index in self.indices(access, corner)]
            operands[column] = self._together(places)
        return operands

    def indices(self, access: Access, corner: int) -> list[str]:
        """Return the index of each lane at a corner, as i64 operands."""
        w = self.w
        known = self._indices.get((access.via, corner))
        if known is not None:
            return known
        if access.cells:
            cells = self._lanes(f"{access.via}.cell", 0)
            place = self._at(self._tables[f"{access.via}.offsets"], str(corner), "i32")
            offset = w.emit(f"sext i32 {self._load('i32', place)} to i64")
            known = [w.emit(f"add i64 {cell}, {offset}") for cell in cells]
        else:
            known = self._lanes(f"{access.via}.index", corner)
        self._indices[access.via, corner] = known
        return known

    def ordered_sum(self, binding: int, access: Access, columns: list[int], size: int) -> dict[int, str]:
        """Return columns of the sum of the rows that name this lane: a loop over the lane's entries."""
        if contributions.stride(size, access.corners) > 1:
            return contributions.Sums(self, binding, access, size).columns()
        if access.cells:
            return self._sum_over_cells(binding, access, columns, size)
        w = self.w
        starts = self._tables[f"{access.via}.starts"]
        begin = self._vector(starts, self.first)
        end = self._vector(starts, w.emit(f"add i64 {self.first}, 1"))
        zeros = dict.fromkeys(columns, w.const(0.0))
        entries = self._bases[self._tables[f"{access.via}.entries"]]
        return self._loop(begin, end, zeros, lambda lane_positions: [
            w.emit(f"sext i32 {self._load('i32', self._element(entries, at, 'i32'))} to i64") for at in lane_positions
        ], binding, access, dict.fromkeys(columns, "0"))  # fmt: skip

    def _sum_over_cells(self, binding: int, access: Access, columns: list[int], size: int) -> dict[int, str]:
        """Return the sum over the particles of the cells around a node: one loop an offset."""
        w, lane = self.w, self.w.lane
        totals = dict.fromkeys(columns, w.const(0.0))
        counts, slots, offsets = (self._tables[table] for table in access.tables)
        capacity = self.words[WORDS * slots + 5]
        stride = self.words[WORDS * binding + 5]
        base = self._bases[slots]
        for corner in range(access.corners):
            offset = w.emit(f"sext i32 {self._load('i32', self._at(offsets, str(corner), 'i32'))} to i64")
            cell = w.emit(f"sub i64 {self.first}, {offset}")
            count = self._vector(counts, cell)
            begin = self.w.spread("0")
            cells = [w.emit(f"mul i64 {w.emit(f'add i64 {cell}, {i}')}, {capacity}") for i in range(lane.width)]

            def particles(positions: list[str], cells: list[str] = cells) -> list[str]:
                places = [w.emit(f"add i64 {at}, {start}") for at, start in zip(positions, cells, strict=True)]
                return [
                    w.emit(f"sext i32 {self._load('i32', self._element(base, place, 'i32'))} to i64")
                    for place in places
                ]

            shift = w.emit(f"mul i64 {stride}, {corner}")
            totals = self._loop(begin, count, totals, particles, binding, access, dict.fromkeys(columns, shift))
        return totals

    def _loop(
        self,
        begin: str,
        end: str,
        totals: dict[int, str],
        entries: Callable[[list[str]], list[str]],
        binding: int,
        access: Access,
        shifts: dict[int, str],
    ) -> dict[int, str]:
        """Add the rows of the entries from `begin` to `end`, which each lane has of its own, to totals by column."""
        w, lane = self.w, self.w.lane
        kind = lane.vector("i32")
        count = w.emit(f"sub {kind} {end}, {begin}")
        longest = count
        if lane.width > 1:
            longest = w.intrinsic(f"llvm.vector.reduce.smax.v{lane.width}i32", "i32", (kind, count))
        label, before = w.name()[1:], w.block
        w.line(f"  br label %{label}")
        w.label(label)
        head = len(w.lines)
        w.line("")
        names = {column: w.name() for column in totals}
        w.lines += [""] * len(totals)
        w.line(f"  %{label}.m = icmp slt i32 %{label}.i, {longest}")
        w.line(f"  br i1 %{label}.m, label %{label}.b, label %{label}.e")
        w.label(f"{label}.b")
        turn = self.w.spread(f"%{label}.i")
        active = w.emit(f"icmp slt {kind} {turn}, {count}")
        at = w.emit(f"add {kind} {begin}, {turn}")
        if lane.width > 1:  # lanes that are done read the first entry, and what they read is dropped
            at = w.emit(f"select {lane.bool} {active}, {kind} {at}, {kind} zeroinitializer")
        rows = entries([w.emit(f"sext i32 {self._extract(at, i)} to i64") for i in range(lane.width)])
        following = {}
        for column, name in names.items():
            component = w.emit(f"mul i64 {access.corners}, {column}")
            base = self._element(self._column(binding, component), shifts[column])
            value = self._together([self._element(base, row) for row in rows])
            if lane.width > 1:
                value = w.select(active, value, w.const(0.0))
            following[column] = w.add(name, value)
        w.line(f"  %{label}.n = add i32 %{label}.i, 1")
        w.line(f"  br label %{label}")
        latch = w.block
        w.lines[head] = f"  %{label}.i = phi i32 [ 0, %{before} ], [ %{label}.n, %{latch} ]"
        for i, (column, name) in enumerate(names.items()):
            first, after = totals[column], following[column]
            w.lines[head + 1 + i] = f"  {name} = phi {lane.float} [ {first}, %{before} ], [ {after}, %{latch} ]"
        w.label(f"{label}.e")
        return names

    # Sums over lanes --------------------------------------------------------------------------------------------------

    def reduce(self, binding: int, size: int, column: int, value: str) -> None:
        """Add a column to the sums of the chunk of lanes: one a place of the vector."""
        w, lane = self.w, self.w.lane
        value = self._of_members(value)
        chunk = w.emit(f"udiv i64 {self.first}, {CHUNK}")
        row = w.emit(f"add i64 {w.emit(f'mul i64 {chunk}, {size}')}, {column}")
        place = self._at(binding, w.emit(f"mul i64 {row}, {lane.width}"))
        total = w.add(self._load(lane.float, place), value)
        w.line(f"  store {lane.float} {total}, {self.pointer} {place}, align {lane.bits // 8}")

    def scatter(self, binding: int, access: Access, corner: int, component: int, value: str) -> None:
        """Add a component to the rows that the index names at a corner."""
        w, lane = self.w, self.w.lane
        value, base = self._of_members(value), self._column(binding, str(component))
        for i, index in enumerate(self.indices(access, corner)):
            own = value if lane.width == 1 else w.emit(f"extractelement {lane.float} {value}, i64 {i}")
            place = self._element(base, index)
            w.emit(f"atomicrmw fadd {self.pointer} {place}, {lane.scalar} {own} monotonic, align {lane.bits // 8}")

    def _of_members(self, value: str) -> str:
        """Return a value that is 0 in lanes beyond the last member of the set."""
        w, lane = self.w, self.w.lane
        lanes = ", ".join(f"i64 {i}" for i in range(lane.width))
        wide = lane.vector("i64")
        here = w.emit(f"add {wide} {w.spread(self.first, 'i64')}, <{lanes}>") if lane.width > 1 else self.first
        valid = w.emit(f"icmp slt {wide} {here}, {w.spread(self.words[self.map.words], 'i64')}")
        return w.select(valid, value, w.const(0.0))

    # Addresses --------------------------------------------------------------------------------------------------------

    def _at(self, binding: int, offset: str, kind: str | None = None) -> str:
        return self._element(self._bases[binding], offset, kind)

    def _element(self, base: str, offset: str, kind: str | None = None) -> str:
        return self.w.emit(f"getelementptr {kind or self.w.lane.scalar}, {self.pointer} {base}, i64 {offset}")

    def _column(self, binding: int, column: str, kind: str | None = None) -> str:
        """Return where a column begins."""
        offset = self.w.emit(f"mul i64 {self.words[WORDS * binding + 5]}, {column}")
        return self._element(self._bases[binding], offset, kind)

    def _own(self, binding: int, column: int, kind: str | None = None) -> str:
        return self._element(self._column(binding, str(column), kind), self.first, kind)

    def _load(self, kind: str, place: str) -> str:
        align = 4 if "i32" in kind else self.w.lane.bits // 8
        return self.w.emit(f"load {kind}, {self.pointer} {place}, align {align}")

    def _vector(self, binding: int, first: str) -> str:
        """Return the integers of all lanes, beginning with an index."""
        return self._load(self.w.lane.vector("i32"), self._at(binding, first, "i32"))

    def _lanes(self, table: str, column: int) -> list[str]:
        """Return the integers of all lanes of a column, as i64 operands."""
        w = self.w
        base = self._own(self._tables[table], column, "i32")
        loaded = [self._load("i32", self._element(base, str(i), "i32")) for i in range(w.lane.width)]
        return [w.emit(f"sext i32 {index} to i64") for index in loaded]

    def _extract(self, vector: str, i: int) -> str:
        lane = self.w.lane
        return vector if lane.width == 1 else self.w.emit(f"extractelement {lane.vector('i32')} {vector}, i64 {i}")

    def _together(self, places: list[str]) -> str:
        """Return the floats at the places of all lanes, as a vector."""
        w, lane, vector = self.w, self.w.lane, "poison"
        if lane.width == 1:
            return self._load(lane.scalar, places[0])
        for i, place in enumerate(places):
            number = self._load(lane.scalar, place)
            vector = w.emit(f"insertelement {lane.float} {vector}, {lane.scalar} {number}, i64 {i}")
        return vector


_READ = {
    Kind.LANE: MapMemory.own,
    Kind.UNIFORM: MapMemory.uniform,
    Kind.GATHER: MapMemory.gather,
    Kind.SUM: MapMemory.ordered_sum,
}
