"""Which values wait in memory."""

from adjoin.compiler.codegen import spill
from adjoin.compiler.codegen.spill import FAR, FETCHED, find_spills
from adjoin.compiler.ir.graph import Graph, tracing


def outlasting(products):
    """An order of so many products after a value, their operands, and the value."""
    with tracing(graph := Graph()):
        x = graph.fresh("input", (), (0, 0))
        held = x * 2.0
        order, total = [x, held], x
        for _ in range(products):
            total = total * total
            order.append(total)
    return order, [[node for node in expr.args if node.op != "const"] for expr in order], held


def test_a_value_that_a_branch_reads_twice_is_stored_once_and_freed_once():
    order, operands, held = outlasting(4)
    operands[-1] = [*operands[-1], held, held]
    spills = find_spills(order, operands, 1, can_reload=lambda node: False, late={len(order) - 1})
    assert [nodes.count(held) for nodes in spills.stores.values() if held in nodes] == [1]
    assert [nodes.count(held) for nodes in spills.frees.values() if held in nodes] == [1]
    assert spills.late[len(order) - 1].count(held) == 1


def test_values_are_loaded_before_they_are_used_but_after_loops():
    order, operands, held = outlasting(30)
    operands[25] = [*operands[25], held]
    operands[-1] = [*operands[-1], held]
    spills = find_spills(order, operands, 1, can_reload=lambda node: False, early=8)
    (stored,) = (position for position, nodes in spills.stores.items() if held in nodes)
    assert [position for position, nodes in spills.loads.items() if held in nodes] == [17, 26]
    assert stored < 17
    assert not any(held in nodes for nodes in spills.returns.values())
    assert not spills.fetches

    order[20] = held.graph.fresh("scan", (), None)
    operands[20] = []
    spills = find_spills(order, operands, 1, can_reload=lambda node: False, early=8)
    assert [position for position, nodes in spills.loads.items() if held in nodes] == [21, 26]


def test_what_caches_have_forgotten_is_fetched_before_it_is_loaded(monkeypatch):
    monkeypatch.setattr(spill, "LONG", 0)
    order, operands, held = outlasting(FAR + 100)
    operands[-1] = [*operands[-1], held]
    spills = find_spills(order, operands, 1, can_reload=lambda node: False, early=8)
    last = len(order) - 1
    assert [position for position, nodes in spills.fetches.items() if held in nodes] == [last - 8 * FETCHED]
    assert [position for position, nodes in spills.loads.items() if held in nodes] == [last - 8]
