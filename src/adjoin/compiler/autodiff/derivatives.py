"""The derivatives of programs, which are programs again."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from adjoin.compiler.autodiff.forward import pushforward
from adjoin.compiler.autodiff.reverse import pullback, stream_length
from adjoin.compiler.ir.control_flow import LoopBody, output_stream
from adjoin.compiler.ir.graph import Expr, Graph
from adjoin.compiler.ir.kinds import STREAM
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.program import Program, TensorSpec, input_nodes, make_program
from adjoin.compiler.ir.rewrite import copy


def vjp(program: Program, wanted: Sequence[bool], seeded: Sequence[bool] | None = None) -> tuple[Program, list[int]]:
    """Return the program of the vector-Jacobian product.

    Args:
        program: what to differentiate.
        wanted: for each input, whether its gradient is wanted.
        seeded: for each output, whether there is a cotangent for it; by default for all.

    Returns:
        A program of the inputs and one cotangent for each such output, and the positions of the inputs whose
        gradients it gives; a wanted input that is missing there has no influence on any output.
    """
    graph, mapping, sources = _begin(program)
    guard = program.computation.guard
    targets = [copy(target, mapping, graph, record_carry=True) for target in program.computation.smooth[1]]
    specs: list[TensorSpec] = []
    cotangents: list[list[Expr]] = []
    seeds: list[tuple[Expr, Expr]] = []
    for i, (spec, target) in enumerate(zip(program.outputs, targets, strict=True)):
        if seeded is None or seeded[i]:
            specs.append(_renamed("grad", spec))
            cotangents.append(input_nodes(graph, specs[-1], len(program.inputs) + len(cotangents)))
            seeds += zip(target, cotangents[-1], strict=True)
    guard = None if guard is None else copy([guard], mapping, graph, record_carry=True)[0]
    positions = [i for i, is_wanted in enumerate(wanted) if is_wanted and not program.inputs[i].table]
    nodes = iter(pullback(graph, seeds, [node for i in positions for node in sources[i]]))
    present, outputs, gradients = [], [], []
    for i in positions:
        gradient = [next(nodes) for _ in sources[i]]
        if any(node is not None for node in gradient):
            present.append(i)
            outputs.append(_renamed("grad", program.inputs[i]))
            gradient = [graph.const(0.0) if node is None else node for node in gradient]
            if guard is not None:
                gradient = [_gated(graph, guard, node) for node in gradient]
            gradients.append(gradient)
    name, inputs = f"{program.name}_vjp", [*program.inputs, *specs]
    return make_program(name, inputs, outputs, program.integers, [*sources, *cotangents], gradients, guard), present


def jvp(program: Program, moved: Sequence[bool]) -> tuple[Program, list[int]]:
    """Return the program of the Jacobian-vector product.

    Args:
        program: what to differentiate.
        moved: for each input, whether it has a tangent.

    Returns:
        A program of the inputs and one tangent for each moved input, and the positions of the outputs whose
        tangents it gives; the others' are zero.
    """
    graph, mapping, sources = _begin(program)
    smooth_sources, smooth_targets = program.computation.smooth
    tangents: dict[Expr, Expr] = {}
    specs: list[TensorSpec] = []
    nodes: list[list[Expr]] = []
    for i, spec in enumerate(program.inputs):
        if moved[i] and not spec.table:
            specs.append(_renamed("tangent", spec))
            nodes.append(input_nodes(graph, specs[-1], len(program.inputs) + len(nodes)))
            tangents.update(zip(smooth_sources[i], nodes[-1], strict=True))
    present, outputs, targets = [], [], []
    for i, (spec, target) in enumerate(zip(program.outputs, smooth_targets, strict=True)):
        moving = [tangent for _, tangent in pushforward(target, mapping, tangents, graph)]
        if any(tangent is not None for tangent in moving):
            present.append(i)
            outputs.append(_renamed("tangent", spec))
            targets.append([graph.const(0.0) if tangent is None else tangent for tangent in moving])
    name, inputs = f"{program.name}_jvp", [*program.inputs, *specs]
    return make_program(name, inputs, outputs, program.integers, [*sources, *nodes], targets), present


def directional_derivative(
    values: Sequence[Expr], inputs: Sequence[Expr], directions: Sequence[Expr], constants: Sequence[Expr]
) -> list[Expr]:
    """Return the derivative of traced values along a direction, in the same trace.

    Args:
        values: of a function.
        inputs: its inputs that move, inputs of the trace.
        directions: in which they move, one for each.
        constants: its other inputs.
    """
    graph = values[0].graph
    mapping = {node: node for node in (*inputs, *constants)}
    found = pushforward(values, mapping, dict(zip(inputs, directions, strict=True)), graph)
    return [graph.const(0.0) if tangent is None else tangent for _, tangent in found]


def _gated(graph: Graph, guard: Expr, gradient: Expr) -> Expr:
    """A gradient, or a stream of them, where a condition holds, and exactly 0 elsewhere."""
    if gradient.kind != STREAM:
        return select(guard, gradient, 0.0)
    body = LoopBody.begin(graph, stream_length(gradient))
    condition = body.graph.lift(guard)
    body.outputs = [[select(condition, x, 0.0) for x in body.add_stream(gradient.width)]]
    return output_stream(body.close([], [gradient]), 0)


def _begin(program: Program) -> tuple[Graph, dict[Expr, Expr], list[list[Expr]]]:
    """Return a new graph with the program's inputs, and where each of them went."""
    graph = Graph()
    sources = [input_nodes(graph, spec, i) for i, spec in enumerate(program.inputs)]
    return graph, dict(zip(chain(*program.computation.smooth[0]), chain(*sources), strict=True)), sources


def _renamed(prefix: str, spec: TensorSpec) -> TensorSpec:
    return replace(spec, name=f"{prefix}_{spec.name}", table=False)
