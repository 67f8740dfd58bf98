"""What runs: kernels with the addresses of their tensors."""

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
    """

    map: Any
    lanes: int
    words: tuple[int, ...]
    keep: tuple[torch.Tensor, ...] = ()


def make_launch(compiled: Any, map_: Map, lanes: int, bindings: list[Binding]) -> Launch:
    """Return a launch; the bindings are those of the accesses, then those of the tables."""
    words = [word for binding in bindings for word in binding.words]
    assert len(words) == map_.words == WORDS * len(bindings), "a binding for each access and table"
    return Launch(compiled, lanes, (*words, lanes, 0), tuple(binding.tensor for binding in bindings))


@dataclass(frozen=True, eq=False)
class Cells:
    """Which particles are in which cell of a grid, sorted at every step.

    Attributes:
        cell: of each particle the first node of its cell, (variants, padded particles), int32.
        offsets: of the other nodes from that, int32.
        counts: particles of each cell, (variants, cells and room on both sides), int32.
        slots: their numbers, (variants, the same times capacity), int32.
        overflow: whether a cell of a variant had more particles than slots, (variants,), int32.
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
        return (self.counts.shape[1] - self.cells) // 2

    def bindings(self) -> dict[str, Binding]:
        """Return where each table lies, by the part of the connection that it is."""
        margin, capacity = self.margin, self.capacity
        return {
            "cell": self.cell,
            "offsets": Binding(self.offsets),
            "counts": Binding(self.counts, variant=self.counts.shape[1], offset=margin),
            "slots": Binding(self.slots, variant=self.slots.shape[1], column=capacity, offset=margin * capacity),
        }

    @property
    def words(self) -> tuple[int, ...]:
        """Return the words of a sort."""
        tables = self.bindings()
        words = [word for part in ("cell", "counts", "slots") for word in (tables[part].words[0], tables[part].variant)]
        return (*words, self.capacity, self.particles, self.cells, self.overflow.data_ptr())


def padded(count: int) -> int:
    """Return the length of a column of so many members."""
    return -(-count // PADDING) * PADDING
