"""A worker's part of a program as LLVM IR."""

from collections.abc import Iterator, Mapping

from adjoin.compiler.codegen.analysis import FusedSum
from adjoin.compiler.codegen.lowering import Values
from adjoin.compiler.codegen.memory import Exchange, Memory
from adjoin.compiler.codegen.renderer import Due, Limits, Renderer
from adjoin.compiler.codegen.spill import Given
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.team.division import sum_of_work
from adjoin.compiler.codegen.team.parts import Part
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import INDICES, STREAM
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import Schedule

OUTLINED = 60
"""Instructions of a step of a loop from which on its code is a function."""

Row = tuple[int, int, int]
"""A piece of an output: which output, its first column, how many."""


class PartRenderer(Renderer):
    """Walks the part of one worker.

    Args:
        program: what the team computes.
        writer: of the kernel.
        memory: of the worker.
        exchange: of the worker with others.
        storage: of the kernel.
        limits: of the worker.
        part: what it does.
        rows: of the division; see `rows_of`.
        places: memory that workers share, by what names it; it grows.
        before: of another worker of the team.
    """

    parts_apart = False

    def __init__(
        self,
        program: Program,
        writer: Writer,
        memory: Memory,
        exchange: Exchange,
        storage: Storage,
        limits: Limits,
        part: Part,
        rows: list[Row],
        places: dict[object, str],
        before: "PartRenderer | None",
    ):
        super().__init__(program, writer, memory, storage, limits)
        self.schedule, self.rows, self.places = part, rows, places
        self.lowering.exchange = exchange
        self.loops.parts = set(find_shared(part))
        if before is not None:
            self.lowering.globals = before.lowering.globals

    def due(self, schedule: Schedule) -> Due:
        """Return what the worker writes, and when."""
        assert isinstance(schedule, Part)
        return {position: [self.rows[k] for k in rows] for position, rows in schedule.due.items()}

    def facts(self, schedule: Schedule, values: Values) -> tuple[dict[Expr, FusedSum], set[Expr], Mapping[Expr, Given]]:
        """Return those of the divided schedule; and name the memory that workers share."""
        if not isinstance(schedule, Part):
            return super().facts(schedule, values)
        for key, nodes in schedule.arrays:
            if isinstance(key, Expr):
                if key not in values:
                    continue  # the worker does not use it
                place = values[key]
            elif key is None:
                kind = "i32" if nodes[0].kind == INDICES else None
                place = self.storage.array(nodes[0].width, kind)
            else:
                place = self.places.get(key) or self.places.setdefault(key, self.reserve(nodes[0]))
            values.update(dict.fromkeys(nodes, place))
        return schedule.sums, schedule.complete, schedule.given

    def reserve(self, node: Expr) -> str:
        """Return memory that all workers reach for an array or a stream."""
        if node.kind == STREAM:
            length = node.args[0].data.length
            return self.storage.common(node.width, length)
        return self.storage.common(node.width, 1)


def find_shared(schedule: Schedule) -> Iterator[Expr]:
    """The loops whose steps workers share: each of them has the same code, which is written once."""
    for node, scan in schedule.scans.items():
        if scan.workers > 1 and sum_of_work(scan.schedule) >= OUTLINED:
            yield node
        else:
            yield from find_shared(scan.schedule)


def rows_of(program: Program, memory: Memory) -> list[Row]:
    """Return the pieces in which the outputs of a program are written at its end."""
    return [
        (i, start, count)
        for i, spec in enumerate(program.outputs)
        if spec.steps is None
        for start, count in memory.chunks(spec)
    ]
