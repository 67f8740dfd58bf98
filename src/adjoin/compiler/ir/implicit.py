"""Values that solve equations, differentiated by the implicit function theorem instead of through what found them.

If r(x, p) = 0 then dx = -J⁻¹ (dr/dp) dp with J = dr/dx. `implicit` marks values that were found in whatever way as such
an x, and says how to solve with J; both modes of derivatives then use r and that solve, and forget how x was found. In
the graph this is a node `implicit`, whose arguments are the values as computed and whose results (`get` nodes) are the
same values with the rule attached. The rule is written with stand-ins for x and for the right-hand side of the solve.
It is part of the graph, so derivatives of any order follow. What runs is a copy without rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.compiler.ir.graph import Expr, current_graph
from adjoin.compiler.ir.kinds import TUPLE
from adjoin.errors import TraceError


@dataclass(frozen=True, eq=False)
class Rule:
    """How values that solve equations depend on everything else.

    Attributes:
        solution: stand-ins for x.
        right: stand-ins for the right-hand side of a solve.
        residual: r(x), of the stand-ins for x and of anything else.
        solved: J⁻¹ of the right-hand side.
        transposed: J⁻ᵀ of it.
    """

    solution: list[Expr]
    right: list[Expr]
    residual: list[Expr]
    solved: list[Expr]
    transposed: list[Expr]


Solve = Callable[[list[Expr]], Sequence[Any]]


def implicit(values: Sequence[Any], residual: Solve, solve: Solve, transposed: Solve | None = None) -> list[Any]:
    """Return the same values, whose derivatives are those of the solution of residual(x) = 0.

    Args:
        values: the solution, as computed; outside of a traced function they come back as they are.
        residual: takes x, gives as many scalars, zero at the solution.
        solve: takes b, gives J⁻¹ b, where J is the derivative of the residual to x, at the solution.
        transposed: takes b, gives J⁻ᵀ b; if None, J is symmetric.
    """
    if not any(isinstance(value, Expr) for value in values):
        return list(values)
    graph = current_graph()
    solution = [graph.fresh("param", (), "solution") for _ in values]
    right = [graph.fresh("param", (), "right") for _ in values]
    rows = [[graph.lift(x) for x in row] for row in (residual(solution), solve(right))]
    rows.append(rows[1] if transposed is None else [graph.lift(x) for x in transposed(right)])
    if any(len(row) != len(values) for row in rows):
        raise TraceError(f"implicit: {len(values)} values need as many residuals, and a solve gives as many")
    node = graph.fresh("implicit", tuple(graph.lift(value) for value in values), Rule(solution, right, *rows), TUPLE)
    return solutions(node)


def solutions(node: Expr) -> list[Expr]:
    """Return the results of an `implicit` node."""
    return [node.graph.node("get", (node,), i) for i in range(len(node.args))]


def guard(condition: Expr) -> None:
    """Make all gradients of the function that is being traced exactly 0 where a condition does not hold.

    Even where its inputs or its derivatives are not finite, which a product with 0 would keep.
    """
    graph = current_graph()
    graph.guard = condition if graph.guard is None else graph.guard & condition


def detach(values: Sequence[Any]) -> list[Any]:
    """Return the same values, as constants to every derivative."""
    return implicit(values, lambda x: x, lambda b: b)
