"""Which values of a long computation leave their registers, so that no more are alive than there are registers.

LLVM's and NVIDIA's own allocators come to much the same result, in a time that grows with the square of a block's
length and more; given short live ranges they are fast. When registers run out, the value whose next use is farthest
away gives up its own (Belady's rule). Before that use it is computed again where few operations suffice, with what is
at hand then; otherwise it was stored, once, and is loaded. Computing again gives the same bits.

A processor that runs in order waits for what it loads. It has company while it does if values are loaded some nodes
before they are used; and if a value was not touched for long, so that no cache has it, the caches are asked for it
still earlier.
"""

import heapq
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import FLOAT

FAR = 2000  # nodes after which a cache near a processor has forgotten a value
LONG = 25_000  # nodes of an order from which on it pays to ask for what was forgotten; gradients have such
FETCHED = 3  # times as early as values are loaded, caches are asked for those they have forgotten


@dataclass(eq=False)
class Spills:
    """What to move at each position of an order of nodes.

    Attributes:
        fetches: before the node there, ask the caches for the memory of these.
        loads: before it, load these for a node that comes later.
        returns: before it, bring these back, in this order: from memory those that are stored, from their tensor the
            inputs; the others are computed again.
        stores: after it, store these.
        frees: after it, nobody needs the memory of these any more.
        late: the node there may read these from memory itself.
    """

    fetches: dict[int, list[Expr]] = field(default_factory=dict)
    loads: dict[int, list[Expr]] = field(default_factory=dict)
    returns: dict[int, list[Expr]] = field(default_factory=dict)
    stores: dict[int, list[Expr]] = field(default_factory=dict)
    frees: dict[int, list[Expr]] = field(default_factory=dict)
    late: dict[int, list[Expr]] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        """Return how much is moved or computed again."""
        return sum(len(nodes) for moved in (self.returns, self.stores) for nodes in moved.values())

    def hasten(self, order: Sequence[Expr], early: int) -> None:
        """Load stored values so many nodes before they are used, but not before a loop in front of that."""
        touched: dict[Expr, int] = {}  # stored values, and where their memory was last stored to or loaded from
        start = 0
        for position, node in enumerate(order):
            here = []
            for value in self.returns.pop(position, ()):
                if value not in touched:
                    here.append(value)
                    continue
                first = max(touched[value] + 1, start)
                if position - touched[value] > FAR and len(order) >= LONG:
                    self.fetches.setdefault(max(first, position - FETCHED * early), []).append(value)
                self.loads.setdefault(max(first, position - early), []).append(value)
                touched[value] = position
            if here:
                self.returns[position] = here
            if node.op == "scan":
                start = position + 1
            for value in self.frees.get(position, ()):
                del touched[value]
            for value in self.stores.get(position, ()):
                touched[value] = position


def find_spills(
    order: Sequence[Expr],
    operands: Sequence[Sequence[Expr]],
    registers: int,
    can_reload: Callable[[Expr], bool],
    late: Container[int] = (),
    repeats: int = 0,
    early: int = 0,
) -> Spills:
    """Decide what is spilled.

    Args:
        order: the nodes as they are computed.
        operands: for each of them, the values it reads; a value written out there counts as read.
        registers: how many values may be alive.
        can_reload: whether a value can be had again without being stored.
        late: positions of nodes that read what is spilled only if they need it.
        repeats: operations and loads that computing a value again may take.
        early: how many nodes before its use a value is loaded.
    """
    spills = _Allocation(order, operands, registers, can_reload, late, repeats).spills
    if early:
        spills.hasten(order, early)
    return spills


REPEATABLE = frozenset(("add", "sub", "mul", "neg"))


class _Allocation:
    """The registers while walking the order once."""

    def __init__(
        self,
        order: Sequence[Expr],
        operands: Sequence[Sequence[Expr]],
        registers: int,
        can_reload: Callable[[Expr], bool],
        late: Container[int],
        repeats: int,
    ):
        self.spills = Spills()
        self.can_reload, self.repeats = can_reload, repeats
        self.reads = dict(zip(order, operands, strict=True))
        self.uses: dict[Expr, list[int]] = {}  # the last place first
        for position in range(len(order) - 1, -1, -1):
            for operand in operands[position]:
                self.uses.setdefault(operand, []).append(position)
        self.resident: set[Expr] = set()
        self.queue: list[tuple[int, int, Expr]] = []  # farthest next use first; an entry may be out of date
        self.upcoming: dict[Expr, int] = {}
        self.stored: set[Expr] = set()
        self.evicted: dict[Expr, int] = {}  # and where

        for position, node in enumerate(order):
            for operand in dict.fromkeys(operands[position]):
                if operand in self.evicted and position in late and not can_reload(operand):
                    self.store(operand)
                    self.spills.late.setdefault(position, []).append(operand)
                    self.advance(operand, position)
                    continue
                if operand in self.evicted:
                    self.bring_back(operand, position)
                if operand.kind == FLOAT and operand.op != "const":
                    self.touch(operand, position)
            if node.kind == FLOAT and node.op not in ("const", "param"):
                self.touch(node, position)
            while len(self.resident) > registers:
                farthest, _, victim = heapq.heappop(self.queue)
                if victim in self.resident and self.upcoming[victim] == -farthest:
                    self.resident.discard(victim)
                    self.evicted[victim] = position

    def advance(self, node: Expr, position: int) -> int | None:
        """Return the next use of a value after a position; without one, its memory is free."""
        positions = self.uses.get(node, [])
        while positions and positions[-1] <= position:
            positions.pop()
        if positions:
            return positions[-1]
        if node in self.stored:
            self.stored.discard(node)
            self.spills.frees.setdefault(position, []).append(node)
        return None

    def touch(self, node: Expr, position: int) -> None:
        """Keep a value in a register if it is used after a position."""
        following = self.advance(node, position)
        if following is None:
            self.resident.discard(node)
        else:
            self.resident.add(node)
            self.upcoming[node] = following
            heapq.heappush(self.queue, (-following, node.index, node))

    def store(self, node: Expr) -> None:
        """Have a value stored where it gave up its register."""
        if node not in self.stored:
            self.stored.add(node)
            self.spills.stores.setdefault(self.evicted[node], []).append(node)

    def bring_back(self, node: Expr, position: int) -> None:
        """Have a value again before a position."""
        if not self.can_reload(node) and self.work(node, self.repeats) > self.repeats:
            self.store(node)
        self.repeat(node, position)

    def work(self, node: Expr, most: int) -> int:
        """Return how many operations and loads bring a value back without storing it; more than `most` if too many."""
        if node in self.resident or node.op == "const" or node.kind != FLOAT:
            return 0
        if node in self.stored or self.can_reload(node):
            return 1
        if node.op not in REPEATABLE:
            return most + 1
        total = 1
        for operand in self.reads[node]:
            total += self.work(operand, most - total)
            if total > most:
                break
        return total

    def repeat(self, node: Expr, position: int) -> None:
        """Load a value, or compute it and what it needs again."""
        if node in self.resident or node.op == "const" or node.kind != FLOAT:
            return
        if node not in self.stored and not self.can_reload(node):
            for operand in self.reads[node]:
                self.repeat(operand, position)
        self.evicted.pop(node, None)
        self.spills.returns.setdefault(position, []).append(node)
        self.touch(node, position - 1)
