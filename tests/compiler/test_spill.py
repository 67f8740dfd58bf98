"""Which values wait in memory."""

from adjoin.compiler.codegen.spill import find_spills
from adjoin.compiler.ir.graph import Graph, tracing


def test_a_value_that_a_branch_reads_twice_is_stored_once_and_freed_once():
    with tracing(graph := Graph()):
        x = graph.fresh("input", (), (0, 0))
        held = x * 2.0
        order, total = [x, held], x
        for _ in range(4):
            total = total * total
            order.append(total)
    operands = [[node for node in expr.args if node.op != "const"] for expr in order]
    operands[-1] = [*operands[-1], held, held]
    spills = find_spills(order, operands, 1, can_reload=lambda node: False, late={len(order) - 1})
    assert [nodes.count(held) for nodes in spills.stores.values() if held in nodes] == [1]
    assert [nodes.count(held) for nodes in spills.frees.values() if held in nodes] == [1]
    assert spills.late[len(order) - 1].count(held) == 1
