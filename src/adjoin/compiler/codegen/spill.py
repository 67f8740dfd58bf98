"""Which values of a long computation are spilled to memory, so that no more are alive than there are registers.

LLVM's and NVIDIA's own allocators come to much the same result, in a time that grows with the square of a block's
length and more; given short live ranges they are fast. When registers run out, the value whose next use is farthest
away gives up its own: it is stored, once, and loaded again before that use (Belady's rule).
"""

import heapq
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import FLOAT


@dataclass(eq=False)
class Spills:
    """What to move at each position of an order of nodes.

    Attributes:
        loads: before the node there, load these.
        stores: after it, store these.
        frees: after it, nobody needs the memory of these any more.
        late: the node there may read these from memory itself.
    """

    loads: dict[int, list[Expr]] = field(default_factory=dict)
    stores: dict[int, list[Expr]] = field(default_factory=dict)
    frees: dict[int, list[Expr]] = field(default_factory=dict)
    late: dict[int, list[Expr]] = field(default_factory=dict)


def find_spills(
    order: Sequence[Expr],
    operands: Sequence[Sequence[Expr]],
    registers: int,
    can_reload: Callable[[Expr], bool],
    late: Container[int] = (),
) -> Spills:
    """Decide what is spilled.

    Args:
        order: the nodes as they are computed.
        operands: for each of them, the values it reads; a value written out there counts as read.
        registers: how many values may be alive.
        can_reload: whether a value can be had again without being stored.
        late: positions of nodes that read what is spilled only if they need it.
    """
    spills = Spills()
    uses: dict[Expr, list[int]] = {}  # the last place first
    for position in range(len(order) - 1, -1, -1):
        for operand in operands[position]:
            uses.setdefault(operand, []).append(position)
    resident: set[Expr] = set()
    queue: list[tuple[int, int, Expr]] = []  # farthest next use first; an entry may be out of date
    upcoming: dict[Expr, int] = {}
    stored: set[Expr] = set()
    evicted: set[Expr] = set()

    def touch(node: Expr, position: int) -> None:
        positions = uses.get(node, [])
        while positions and positions[-1] <= position:
            positions.pop()
        if positions:
            resident.add(node)
            upcoming[node] = positions[-1]
            heapq.heappush(queue, (-positions[-1], node.index, node))
            return
        resident.discard(node)
        if node in stored:
            stored.discard(node)
            spills.frees.setdefault(position, []).append(node)

    for position, node in enumerate(order):
        for operand in operands[position]:
            if operand in stored and operand in evicted and position in late:
                spills.late.setdefault(position, []).append(operand)
                while uses[operand] and uses[operand][-1] <= position:
                    uses[operand].pop()
                if not uses[operand]:
                    stored.discard(operand)
                    spills.frees.setdefault(position, []).append(operand)
                continue
            if operand in evicted:
                evicted.discard(operand)
                spills.loads.setdefault(position, []).append(operand)
            if operand.kind == FLOAT and operand.op != "const":
                touch(operand, position)
        if node.kind == FLOAT and node.op not in ("const", "param"):
            touch(node, position)
        while len(resident) > registers:
            farthest, _, victim = heapq.heappop(queue)
            if victim in resident and upcoming[victim] == -farthest:
                resident.discard(victim)
                evicted.add(victim)
                if victim not in stored and not can_reload(victim):
                    stored.add(victim)
                    spills.stores.setdefault(position, []).append(victim)
    return spills
