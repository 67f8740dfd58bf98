"""Memory that a kernel uses while it runs: the stack for what is small and fixed, a workspace for the rest.

The caller of the kernel provides the workspace. How it is divided among lanes, and what kind of pointer the stack has,
is up to the backend, which derives its own class.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.graph import Expr

AT_ONCE = 8  # elements that are cleared at once
STACK = 8192  # elements a lane that arrays and streams may take of the stack; more go to the workspace


class Storage(ABC):
    """Hands out memory and writes the addresses of its elements.

    Attributes:
        stack: pointer type of stack memory.
        constants: pointer type of constants of the kernel.
        prologue: code that runs once, before everything.
        zero: an operand that is 0.
        workspace: elements a lane takes: a fixed number under "", and for each run-time integer a factor.
    """

    stack = "ptr"
    constants = "ptr"

    def __init__(self, writer: Writer, layout: Layout, words: list[str]):
        self.w = writer
        self.layout = layout
        self.words = words
        self.prologue = writer.lines
        writer.lines = []
        self.zero = "0"
        self.spilled = "%spilled"
        self.workspace: dict[str, int] = {"": 0}
        self._on_stack = 0
        self._slots = 0
        self._free: list[int] = []

    def hide_zero(self) -> None:
        """Make a zero and a false condition that no compiler can see through.

        An assembler that knew that the offset of spilled values is constant would put them into registers again, and a
        jump that is always taken would be merged away with the boundary between blocks that it stands for.
        """
        self.prologue.append(f"  %zero = lshr i64 {self.words[self.layout.batch]}, 48")
        self.prologue.append("  %never = icmp ne i64 %zero, 0")
        self.zero = "%zero"

    def finish(self) -> None:
        """Reserve the slots that were taken."""
        if self._slots:
            base = self.reserve(f"{self.spilled}.base", self._slots)
            self.prologue.append(
                f"  {self.spilled} = getelementptr {self.w.lane.float}, {self.stack} {base}, i64 {self.zero}"
            )

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Give what is written stack memory of its own, reserved where it begins."""
        first, outer = len(self.w.lines), (self.prologue, self.spilled, self._slots, self._free, self._on_stack)
        self.prologue, self.spilled, self._slots, self._free = [], self.w.name(), 0, []
        yield
        Storage.finish(self)
        self.w.lines[first:first] = self.prologue
        self.prologue, self.spilled, self._slots, self._free, self._on_stack = outer

    def array(self, elements: int, kind: str | None = None) -> str:
        """Memory for so many elements a lane, the same for every block and every iteration; on the stack if it fits.

        Args:
            elements: how many.
            kind: their LLVM type, if they are not floats.
        """
        if self._on_stack + elements > STACK and kind is None:
            place = f"workspace {self._end()}"
            self.workspace[""] += elements
            return place
        self._on_stack += elements
        return self.reserve(f"{self.w.name()}.a", elements, kind)

    def clear(self, array: str, elements: int, kind: str | None = None, used: tuple[str, int] | None = None) -> None:
        """Fill an array with zeros, in a loop.

        Args:
            array: what `array` gave.
            elements: how many it has.
            kind: their LLVM type, if they are not floats.
            used: how many records of how many elements matter, the number an i32 operand.
        """
        w, kind = self.w, kind or self.w.lane.float
        name, step, count = w.name()[1:], AT_ONCE, str(elements // AT_ONCE * AT_ONCE)
        if used is None:
            for k in range(elements // step * step, elements):
                w.line(f"  store {kind} zeroinitializer, {self.element(array, str(k), kind)}")
            if elements < step:
                return
            before = w.block
            w.line(f"  br label %{name}")
        else:
            scaled, step = w.emit(f"mul i64 {w.emit(f'sext i32 {used[0]} to i64')}, {used[1]}"), 1
            count = w.intrinsic("llvm.smin.i64", "i64", ("i64", scaled), ("i64", str(elements)))
            before = w.block
            w.line(f"  br i1 {w.emit(f'icmp sgt i64 {count}, 0')}, label %{name}, label %{name}.e")
        w.label(name)
        w.line(f"  %{name}.i = phi i64 [ 0, %{before} ], [ %{name}.n, %{name} ]")
        for k in range(step):
            w.line(f"  store {kind} zeroinitializer, {self.element(array, f'%{name}.i', kind, k)}")
        w.line(f"  %{name}.n = add i64 %{name}.i, {step}")
        w.line(f"  %{name}.m = icmp ult i64 %{name}.n, {count}")
        w.line(f"  br i1 %{name}.m, label %{name}, label %{name}.e")
        w.label(f"{name}.e")

    # Spilled values ---------------------------------------------------------------------------------------------------

    def take_slot(self) -> int:
        """A free slot for one spilled value."""
        if not self._free:
            self._free.append(self._slots)
            self._slots += 1
        return self._free.pop()

    def free_slot(self, slot: int) -> None:
        """Let a slot be taken again."""
        self._free.append(slot)

    def slot(self, slot: int) -> str:
        """The typed address of a slot."""
        place = self.w.emit(f"getelementptr {self.w.lane.float}, {self.stack} {self.spilled}, i64 {slot}")
        return f"{self.stack} {place}"

    def fetch(self, slot: int) -> None:
        """Ask the caches for a slot that is loaded soon, where a backend can."""
        return

    # Streams between loops --------------------------------------------------------------------------------------------

    def buffer(self, stream: Expr, length: int | str) -> str:
        """Memory for a stream; on the stack where it fits."""
        if isinstance(length, int):
            return self.array(max(1, length * stream.width))
        place = f"workspace {self._end()}"
        self.workspace[length] = self.workspace.get(length, 0) + stream.width
        return place

    def element(self, buffer: str, index: str, kind: str | None = None, offset: int = 0) -> str:
        """The typed address of an element of a buffer; `index` is an i64 operand, and `offset` comes on top."""
        w, kind = self.w, kind or self.w.lane.float
        if not buffer.startswith("workspace "):
            place = w.emit(f"getelementptr {kind}, {self.stack} {buffer}, i64 {index}")
            place = w.emit(f"getelementptr {kind}, {self.stack} {place}, i64 {offset}") if offset else place
            return f"{self.stack} {place}"
        start = w.emit(f"add i64 {index}, {buffer.split()[1]}")
        return self.workspace_element(w.emit(f"add i64 {start}, {offset}") if offset else start)

    @abstractmethod
    def workspace_element(self, index: str) -> str:
        """The typed address of an element of the lanes' workspace; `index` is an i64 operand."""

    def count(self, length: int | str) -> str:
        """A trip count as an i64 operand."""
        return str(length) if isinstance(length, int) else self.words[self.layout.integer(length)]

    def _end(self) -> str:
        """Where the workspace given out so far ends, computed at the start of the kernel."""
        total = str(self.workspace[""])
        for name, factor in self.workspace.items():
            if name:
                base = f"{self.w.name()}.s"
                self.prologue.append(f"  {base}.f = mul i64 {self.count(name)}, {factor}")
                self.prologue.append(f"  {base} = add i64 {base}.f, {total}")
                total = base
        return total

    def reserve(self, name: str, elements: int, kind: str | None = None) -> str:
        """Allocate stack memory under a name, at the start of the kernel."""
        size = self.w.lane.width * self.w.lane.bits // 8
        self.prologue.append(f"  {name} = alloca [{elements} x {kind or self.w.lane.float}], align {min(64, size)}")
        return name
