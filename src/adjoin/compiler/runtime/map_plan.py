"""What runs: kernels with the addresses of their tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adjoin.compiler.codegen.map_access import WORDS, Map

PADDING = 32
"""Columns are padded to a multiple of so many members, so that every vector and warp may read and write in full."""

ALL = -1  # the step mask of a tensor that has every step


@dataclass(frozen=True)
class Binding:
    """Where a tensor of a map lies.

    Attributes:
        tensor: (steps, variants, columns, padded members), or fewer dimensions as the strides say.
        step: elements from one step to the next; 0 for one that does not change.
        shift: added to the step.
        mask: of the step; 1 for two slots that take turns.
        variant: elements from one variant to the next; 0 for one that all share.
        column: elements from one column to the next.
        offset: elements from the start of the tensor.
    """

    tensor: torch.Tensor
    step: int = 0
    shift: int = 0
    mask: int = ALL
    variant: int = 0
    column: int = 1
    offset: int = 0

    @property
    def words(self) -> tuple[int, ...]:
        """Return the words that a kernel reads."""
        address = self.tensor.data_ptr() + self.offset * self.tensor.element_size()
        return (address, self.step, self.shift, self.mask, self.variant, self.column)


@dataclass(frozen=True)
class Launch:
    """A compiled map, with its arguments.

    Attributes:
        map: the compiled map.
        lanes: members of its set.
        words: of all its bindings, the number of lanes, and 0 where the address of the workspace goes.
        keep: the tensors, which have to live as long.
        steps: how many steps it runs for at once.
    """

    map: Any
    lanes: int
    words: tuple[int, ...]
    keep: tuple[torch.Tensor, ...] = ()
    steps: int = 1


def make_launch(compiled: Any, map_: Map, lanes: int, bindings: list[Binding]) -> Launch:
    """Return a launch; the bindings are those of the accesses, then those of the tables."""
    words = [word for binding in bindings for word in binding.words]
    assert len(words) == map_.words == WORDS * len(bindings), "a binding for each access and table"
    return Launch(compiled, lanes, (*words, lanes, 0), tuple(binding.tensor for binding in bindings))


def in_order(launches: Sequence[Launch], count: int, sign: int) -> Iterator[tuple[int, int, int]]:
    """Yield what runs one after the other for some steps: which launch, its lowest step from the first, and how many.

    A launch that runs for several steps at once comes before the others of the first of them.
    """
    for step in range(count):
        for i, launch in enumerate(launches):
            if step % launch.steps == 0:
                steps = min(launch.steps, count - step)
                yield i, step if sign > 0 else 1 - step - steps, steps


@dataclass(frozen=True, eq=False)
class Cells:
    """Which particles are in which cell of a grid, sorted at every step.

    Attributes:
        cell: of each particle the first node of its cell, (steps, variants, 1, padded particles), int32; as many steps
            as are sorted at once, which take turns.
        offsets: of the other nodes from that, int32.
        counts: particles of each cell, (steps, variants, cells and room on both sides), int32.
        slots: their numbers, (steps, variants, the same times capacity), int32.
        overflow: whether a cell of a variant had more particles than slots, (steps, variants), int32.
        capacity: slots of a cell.
        particles: how many there are.
        cells: how many there are.
    """

    cell: Binding
    offsets: torch.Tensor
    counts: torch.Tensor
    slots: torch.Tensor
    overflow: torch.Tensor
    capacity: int
    particles: int
    cells: int

    @property
    def margin(self) -> int:
        """Return the room before the first cell, which sums over offsets may look at."""
        return (self.counts.shape[2] - self.cells) // 2

    def bindings(self) -> dict[str, Binding]:
        """Return where each table lies, by the part of the connection that it is."""
        return {
            "cell": self.cell,
            "offsets": Binding(self.offsets),
            "counts": self._table(self.counts, 1),
            "slots": self._table(self.slots, self.capacity),
        }

    def _table(self, table: torch.Tensor, column: int) -> Binding:
        steps, variants, size = table.shape
        return Binding(table, variants * size, 0, steps - 1, size, column, self.margin * column)

    @property
    def words(self) -> tuple[int, ...]:
        """Return the words of a sort."""
        tables = self.bindings()
        sizes = {"cell": self.cell.tensor.shape[3], "counts": self.counts.shape[2], "slots": self.slots.shape[2]}
        words = [word for part, size in sizes.items() for word in (tables[part].words[0], size)]
        steps, variants = self.overflow.shape
        return (
            *words, self.capacity, self.particles, self.cells, self.overflow.data_ptr(), steps - 1, variants,
        )  # fmt: skip


def padded(count: int) -> int:
    """Return the length of a column of so many members."""
    return -(-count // PADDING) * PADDING


_CELL_TABLES = """\
  %turn = and i64 %step, %w10
  %turn.first = mul i64 %turn, %w11
  %table = add i64 %turn.first, %variant
  %cell.v = mul i64 %w1, %table
  %cell.b = inttoptr i64 %w0 to POINTER
  %cell = getelementptr i32, POINTER %cell.b, i64 %cell.v
  %counts.v = mul i64 %w3, %table
  %counts.b = inttoptr i64 %w2 to POINTER
  %counts = getelementptr i32, POINTER %counts.b, i64 %counts.v
  %slots.v = mul i64 %w5, %table
  %slots.b = inttoptr i64 %w4 to POINTER
  %slots = getelementptr i32, POINTER %slots.b, i64 %slots.v
  %overflow.b = inttoptr i64 %w9 to POINTER
  %overflow = getelementptr i32, POINTER %overflow.b, i64 %table
"""


def cell_tables(pointer: str) -> str:
    """Return the LLVM IR that finds the tables of %step and %variant from `Cells.words`, by pointers of a type."""
    return _CELL_TABLES.replace("POINTER", pointer)
