"""How a kernel over the members of a set reaches its tensors, and the program together with that.

A lane is one member of a set: an element, a node, a particle. A tensor of a set lies component by component: all
members' first component, then all members' second, so that neighboring lanes touch neighboring addresses. An input is
the sum of one or more reads; the adjoint of a gather is an ordered sum and the other way round, so the cotangent of a
field is such a list of reads, and no pass over memory is spent on adding them up.
"""

from dataclasses import dataclass
from enum import Enum

from adjoin.compiler.ir.digest import hash_of
from adjoin.compiler.ir.program import Program

WORDS = 6
"""64-bit words of a binding: address, step stride, step shift, step mask, variant stride, column stride (elements)."""


class Kind(Enum):
    """The ways to reach a tensor."""

    LANE = "lane"  # the lane's own row; as an output, written
    UNIFORM = "uniform"  # one row for all lanes of a variant
    GATHER = "gather"  # the rows that an index table names
    SUM = "sum"  # the sum of all rows whose index names this lane, in a fixed order
    ADD = "add"  # output: added to the lane's own row
    REDUCE = "reduce"  # output: summed over the lanes, added to what is there
    SCATTER = "scatter"  # output: added to the rows that an index table names, by atomic operations, in any order
    INDEX = "index"  # output: written as 32-bit integers


@dataclass(frozen=True)
class Access:
    """One way to reach one tensor.

    Attributes:
        kind: which.
        via: of a gather, a sum and a scatter: the name of the connection.
        corners: rows a lane: of a gather and a scatter how many indices it has; of another output how many members it
            contributes to.
        cells: the connection is one of particles with cells of a grid: a cell each, and fixed offsets from it.
    """

    kind: Kind
    via: str = ""
    corners: int = 1
    cells: bool = False

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the integer tables it reads, as parts of the connection."""
        if self.kind in (Kind.GATHER, Kind.SCATTER):
            return (f"{self.via}.cell", f"{self.via}.offsets") if self.cells else (f"{self.via}.index",)
        if self.kind == Kind.SUM:
            cells = (f"{self.via}.counts", f"{self.via}.slots", f"{self.via}.offsets")
            return cells if self.cells else (f"{self.via}.starts", f"{self.via}.entries")
        return ()


@dataclass(frozen=True, eq=False)
class Map:
    """A kernel over the members of a set: what it computes, and how it reaches its tensors.

    Attributes:
        program: what one lane computes.
        reads: for each input the reads whose sum it is.
        writes: for each output how it is written.
    """

    program: Program
    reads: tuple[tuple[Access, ...], ...]
    writes: tuple[Access, ...]

    @property
    def accesses(self) -> list[Access]:
        """Return every access in the order of its binding: reads, then writes."""
        return [access for reads in self.reads for access in reads] + list(self.writes)

    @property
    def tables(self) -> list[str]:
        """Return the integer tables, whose bindings follow those of the accesses."""
        return list(dict.fromkeys(table for access in self.accesses for table in access.tables))

    @property
    def words(self) -> int:
        """Return the words of all bindings; the number of lanes is one more."""
        return WORDS * (len(self.accesses) + len(self.tables))

    @property
    def digest(self) -> str:
        """Return a hash of what the kernel computes and reaches."""
        return hash_of(self.program.digest, repr((self.reads, self.writes)))

    def first_access(self, tensor: int) -> int:
        """Return the binding of the first access of a tensor, inputs before outputs."""
        sizes = [len(reads) for reads in self.reads] + [1] * len(self.writes)
        return sum(sizes[:tensor])
