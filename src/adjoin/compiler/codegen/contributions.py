"""Contributions of lanes to others, in memory: how they are laid out, written and added up.

A member contributes some components at each of its corners. Whoever adds them up reads all components of one
contribution, so these lie together, and are read and added as one vector: corner by corner, in it member by member.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adjoin.compiler.codegen.map_access import WORDS, Access

if TYPE_CHECKING:
    from adjoin.compiler.codegen.map_memory import MapMemory

UNROLLED = 2
"""Particles of a cell that a GPU reads in one round, so that the loads of all cells around a node overlap."""
TOGETHER = 9
"""Cells whose loads a GPU issues together."""


def stride(components: int, corners: int) -> int:
    """Return the numbers from one contribution to the next; 1 where components are columns of their own."""
    if corners == 1 or components == 1:
        return 1
    return components if components == 2 else -(-components // 4) * 4


def columns_of(components: int, corners: int) -> int:
    """Return the columns of contributions with padding."""
    return corners * components if stride(components, corners) == 1 else corners * stride(components, corners)


def _parts(components: int, corners: int) -> list[int]:
    """Return the lengths of the vectors that a contribution is read as."""
    return [2] if components == 2 else [4] * (stride(components, corners) // 4)


def write(memory: "MapMemory", binding: int, access: Access, corner: int, values: list[str], add: bool) -> None:
    """Write the components that every lane contributes at a corner."""
    w, lane = memory.w, memory.w.lane
    step = stride(len(values), access.corners)
    row = w.emit(f"add i64 {w.emit(f'mul i64 {memory.words[WORDS * binding + 5]}, {corner}')}, {memory.first}")
    place = memory._at(binding, w.emit(f"mul i64 {row}, {step}"))
    values = [*values, *[w.const(0.0)] * (step - len(values))]
    size = lane.width * step
    kind = f"<{size} x {lane.scalar}>"
    align = lane.bits // 8 * (1 if lane.width > 1 else min(step, 4, 128 // lane.bits))
    if lane.width == 1:
        vectors = [(i, values[i : i + 4]) for i in range(0, step, 4)]
        for first, part in vectors:
            kind, vector = f"<{len(part)} x {lane.scalar}>", "poison"
            for i, value in enumerate(part):
                vector = w.emit(f"insertelement {kind} {vector}, {lane.scalar} {value}, i64 {i}")
            _store(memory, kind, vector, memory._element(place, str(first)), align, add)
        return
    if step > 4:
        for i, value in enumerate(values):
            for j in range(lane.width):
                at = memory._element(place, str(j * step + i))
                number = w.emit(f"extractelement {lane.float} {value}, i64 {j}")
                _store(memory, lane.scalar, number, at, align, add)
        return
    joined, length = values, lane.width
    while len(joined) > 1:  # side by side, and then member by member
        order = ", ".join(f"i32 {i}" for i in range(2 * length))
        pairs = zip(joined[::2], joined[1::2], strict=True)
        half = f"<{length} x {lane.scalar}>"
        joined = [w.emit(f"shufflevector {half} {a}, {half} {b}, <{2 * length} x i32> <{order}>") for a, b in pairs]
        length *= 2
    order = ", ".join(f"i32 {i * lane.width + j}" for j in range(lane.width) for i in range(step))
    vector = w.emit(f"shufflevector {kind} {joined[0]}, {kind} poison, <{size} x i32> <{order}>")
    _store(memory, kind, vector, place, align, add)


def _store(memory: "MapMemory", kind: str, value: str, place: str, align: int, add: bool) -> None:
    w = memory.w
    if add:
        before = w.emit(f"load {kind}, {memory.pointer} {place}, align {align}")
        value = w.emit(f"fadd {kind} {before}, {value}")
    w.line(f"  store {kind} {value}, {memory.pointer} {place}, align {align}")


class Sums:
    """Writes the sum of the contributions to a lane, for one access of a map."""

    def __init__(self, memory: "MapMemory", binding: int, access: Access, components: int):
        self.memory, self.w, self.binding, self.access = memory, memory.w, binding, access
        self.components, self.step = components, stride(components, access.corners)
        self.kinds = [f"<{n} x {self.w.lane.scalar}>" for n in _parts(components, access.corners)]
        self.zeros = ["zeroinitializer"] * len(self.kinds)

    def columns(self) -> dict[int, str]:
        """Return every component of the sum."""
        return self._of_lanes() if self.w.lane.width > 1 else self._components(self._of_lane(self.memory.first))

    def _components(self, totals: Sequence[str]) -> dict[int, str]:
        result = {}
        for i in range(self.components):
            total, kind = totals[i // 4], self.kinds[i // 4]
            result[i] = self.w.emit(f"extractelement {kind} {total}, i64 {i % 4}")
        return result

    def _of_lanes(self) -> dict[int, str]:
        """Return the sums of all lanes of a vector: a loop over lanes, by way of memory."""
        w, lane, memory = self.w, self.w.lane, self.memory
        size, table = lane.width * self.step, memory.sums
        label = w.name()[1:]
        if self.access.cells:
            counts = "zeroinitializer"
            for corner in range(self.access.corners):
                found = memory._vector(memory._tables[self.access.tables[0]], self._cell(memory.first, corner))
                counts = w.emit(f"or {lane.vector('i32')} {counts}, {found}")
            any_ = w.intrinsic(f"llvm.vector.reduce.or.v{lane.width}i32", "i32", (lane.vector("i32"), counts))
            w.line(f"  store <{size} x {lane.scalar}> zeroinitializer, ptr {table}, align 64")
            some = w.emit(f"icmp ne i32 {any_}, 0")
            w.line(f"  br i1 {some}, label %{label}.s, label %{label}.e")
        else:
            w.line(f"  br label %{label}.s")
        w.label(f"{label}.s")
        w.line(f"  br label %{label}")
        w.label(label)
        head = len(w.lines)
        w.line("")
        index = f"%{label}.i"
        totals = self._of_lane(w.emit(f"add i64 {memory.first}, {index}"))
        place = w.emit(f"mul i64 {index}, {self.step}")
        for i, (kind, total) in enumerate(zip(self.kinds, totals, strict=True)):
            at = w.emit(f"getelementptr {lane.scalar}, ptr {table}, i64 {w.emit(f'add i64 {place}, {4 * i}')}")
            w.line(f"  store {kind} {total}, ptr {at}, align 8")
        w.line(f"  %{label}.n = add i64 {index}, 1")
        w.line(f"  %{label}.m = icmp slt i64 %{label}.n, {lane.width}")
        w.line(f"  br i1 %{label}.m, label %{label}, label %{label}.e")
        w.lines[head] = f"  {index} = phi i64 [ 0, %{label}.s ], [ %{label}.n, %{w.block} ]"
        w.label(f"{label}.e")
        everything = w.emit(f"load <{size} x {lane.scalar}>, ptr {table}, align 64")
        result = {}
        for i in range(self.components):
            order = ", ".join(f"i32 {j * self.step + i}" for j in range(lane.width))
            kind = f"<{size} x {lane.scalar}>"
            result[i] = w.emit(f"shufflevector {kind} {everything}, {kind} poison, <{lane.width} x i32> <{order}>")
        return result

    def _of_lane(self, member: str) -> list[str]:
        """Return the sums of a member as vectors of components."""
        w, memory = self.w, self.memory
        if not self.access.cells:
            starts, entries = (memory._tables[table] for table in self.access.tables)
            bounds = [member, w.emit(f"add i64 {member}, 1")]
            begin, end = (memory._load("i32", memory._at(starts, at, "i32")) for at in bounds)
            return self._loop(begin, end, self.zeros, memory._bases[entries], "0")
        if w.lane.width > 1:
            return self._over_cells(member)
        return self._rounds_over_cells(member)

    def _over_cells(self, node: str) -> list[str]:
        """Return the sums over the particles of the cells around a node, by a loop over cells."""
        w, memory = self.w, self.memory
        label, before, head, names = self._begin_loop()
        corner = f"%{label}.c"
        count, first = self._particles(node, corner)
        shift = w.emit(f"mul i64 {memory.words[WORDS * self.binding + 5]}, {corner}")
        totals = self._loop("0", count, names, first, shift)
        w.line(f"  %{label}.n = add i64 {corner}, 1")
        w.line(f"  %{label}.m = icmp slt i64 %{label}.n, {self.access.corners}")
        w.line(f"  br i1 %{label}.m, label %{label}, label %{label}.e")
        w.lines[head] = f"  {corner} = phi i64 [ 0, %{before} ], [ %{label}.n, %{w.block} ]"
        for i, (kind, name, total) in enumerate(zip(self.kinds, names, totals, strict=True)):
            w.lines[head + 1 + i] = f"  {name} = phi {kind} [ zeroinitializer, %{before} ], [ {total}, %{w.block} ]"
        w.label(f"{label}.e")
        return totals

    def _rounds_over_cells(self, node: str) -> list[str]:
        """Return the same, by a loop over rounds: in each, some particles of every cell, whose loads overlap."""
        w, memory = self.w, self.memory
        corners = range(self.access.corners)
        particles = [self._particles(node, str(corner)) for corner in corners]
        shifts = [w.emit(f"mul i64 {memory.words[WORDS * self.binding + 5]}, {corner}") for corner in corners]
        most = "0"
        for count, _ in particles:
            most = w.intrinsic("llvm.smax.i32", "i32", ("i32", most), ("i32", count))
        label, before, head, names = self._begin_loop()
        start = f"%{label}.i"
        w.line(f"  %{label}.m = icmp slt i32 {start}, {most}")
        w.line(f"  br i1 %{label}.m, label %{label}.b, label %{label}.e")
        w.label(f"{label}.b")
        at = w.emit(f"sext i32 {start} to i64")
        turns = [w.emit(f"add i32 {start}, {i}") for i in range(UNROLLED)]
        totals = names
        for group in range(0, len(particles), TOGETHER):
            rows = []
            for corner in corners[group : group + TOGETHER]:  # slots beyond the count have particles of other steps
                count, first = particles[corner]
                first = memory._element(first, at, "i32")
                slots = [memory._load("i32", memory._element(first, str(i), "i32")) for i in range(UNROLLED)]
                pairs = zip(turns, slots, strict=True)
                rows += [(count, turn, self._contribution(slot, shifts[corner])) for turn, slot in pairs]
            for count, turn, values in rows:
                inside = w.emit(f"icmp sgt i32 {count}, {turn}")
                parts = zip(self.kinds, totals, values, strict=True)
                kept = [
                    (kind, total, w.emit(f"select i1 {inside}, {kind} {value}, {kind} zeroinitializer"))
                    for kind, total, value in parts
                ]
                totals = [w.emit(f"fadd {kind} {total}, {value}") for kind, total, value in kept]
        w.line(f"  %{label}.n = add i32 {start}, {UNROLLED}")
        w.line(f"  br label %{label}")
        w.lines[head] = f"  {start} = phi i32 [ 0, %{before} ], [ %{label}.n, %{w.block} ]"
        for i, (kind, name, total) in enumerate(zip(self.kinds, names, totals, strict=True)):
            w.lines[head + 1 + i] = f"  {name} = phi {kind} [ zeroinitializer, %{before} ], [ {total}, %{w.block} ]"
        w.label(f"{label}.e")
        return names

    def _cell(self, node: str, corner: str | int) -> str:
        """Return the cell from which a node is the one at a corner."""
        w, memory = self.w, self.memory
        offsets = memory._tables[self.access.tables[2]]
        offset = memory._load("i32", memory._at(offsets, str(corner), "i32"))
        return w.emit(f"sub i64 {node}, {w.emit(f'sext i32 {offset} to i64')}")

    def _particles(self, node: str, corner: str) -> tuple[str, str]:
        """Return how many particles that cell has, and where their numbers begin."""
        w, memory = self.w, self.memory
        counts, slots = (memory._tables[table] for table in self.access.tables[:2])
        cell = self._cell(node, corner)
        count = memory._load("i32", memory._at(counts, cell, "i32"))
        first = w.emit(f"mul i64 {cell}, {memory.words[WORDS * slots + 5]}")
        return count, memory._at(slots, first, "i32")

    def _contribution(self, entry: str, shift: str) -> list[str]:
        """Return the contribution that an entry names, as vectors."""
        w, memory = self.w, self.memory
        row = w.emit(f"add i64 {w.emit(f'sext i32 {entry} to i64')}, {shift}")
        place = memory._at(self.binding, w.emit(f"mul i64 {row}, {self.step}"))
        align = w.lane.bits // 8 * (1 if w.lane.width > 1 else min(self.step, 4, 128 // w.lane.bits))
        places = [memory._element(place, str(4 * i)) for i in range(len(self.kinds))]
        pairs = zip(self.kinds, places, strict=True)
        return [w.emit(f"load {kind}, {memory.pointer} {at}, align {align}") for kind, at in pairs]

    def _begin_loop(self) -> tuple[str, str, int, list[str]]:
        """Begin a loop: its label, the block before, the lines that wait for counter and totals, the totals' names."""
        w = self.w
        label, before = w.name()[1:], w.block
        w.line(f"  br label %{label}")
        w.label(label)
        head = len(w.lines)
        w.lines += [""] * (1 + len(self.kinds))
        return label, before, head, [w.name() for _ in self.kinds]

    def _loop(self, begin: str, end: str, totals: Sequence[str], entries: str, shift: str) -> list[str]:
        """Add the contributions of the entries from `begin` to `end` to totals."""
        w, memory = self.w, self.memory
        label, before, head, names = self._begin_loop()
        w.line(f"  %{label}.m = icmp slt i32 %{label}.i, {end}")
        w.line(f"  br i1 %{label}.m, label %{label}.b, label %{label}.e")
        w.label(f"{label}.b")
        at = w.emit(f"sext i32 %{label}.i to i64")
        values = self._contribution(memory._load("i32", memory._element(entries, at, "i32")), shift)
        sums = [
            w.emit(f"fadd {kind} {name}, {value}") for kind, name, value in zip(self.kinds, names, values, strict=True)
        ]
        w.line(f"  %{label}.n = add i32 %{label}.i, 1")
        w.line(f"  br label %{label}")
        w.lines[head] = f"  %{label}.i = phi i32 [ {begin}, %{before} ], [ %{label}.n, %{w.block} ]"
        for i, (kind, name, total, after) in enumerate(zip(self.kinds, names, totals, sums, strict=True)):
            w.lines[head + 1 + i] = f"  {name} = phi {kind} [ {total}, %{before} ], [ {after}, %{w.block} ]"
        w.label(f"{label}.e")
        return names
