"""The linear-quadratic model of a step and its cost along a trajectory, over scalars.

Changes of a state are changes dx = (dq, dv) on the tangent space, as `Model.integrate` applies them, so that free
joints are like all others. Jacobians take one direction after the other in one graph: what the directions have in
common is computed once, and what is zero costs nothing. Second derivatives are forward over reverse.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.ir.graph import Expr, current_graph
from adjoin.compiler.ir.program import Program, TensorSpec, trace
from adjoin.compiler.ir.rewrite import rebuild_node
from adjoin.compiler.ir.schedule import reachable
from adjoin.compiler.runtime.function import Table
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.compiler.runtime.operator import call
from adjoin.dynamics.linear import dot
from adjoin.errors import InputError
from adjoin.model import manifold
from adjoin.simulation.arguments import bind
from adjoin.simulation.integrators import SemiImplicit
from adjoin.simulation.rollout import Shapes, Values, flat
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.world_rollout import part, plant_of
from adjoin.spatial.scalar import Scalar
from adjoin.trace import detach

Rows = list[list[Scalar]]


class LocalModel:
    """The derivatives of a step and its cost.

    Args:
        sim: the simulator.
        cost: running cost, see `ILQR`.
        terminal: terminal cost, see `ILQR`.
        constant_inputs: parameters and named tensors, name of the kernel's input -> shape.
        per_step_inputs: named tensors of each step, likewise.

    Attributes:
        size: of dx, 2 nv.
        width: of dx and the control together.
        world: what is simulated, with actuators that take any control.
        semi_implicit: whether q moves by dt times the velocity at the end of a step, so that only the derivatives of
            that velocity are needed.
    """

    def __init__(
        self,
        sim: Simulator,
        cost: Callable[..., Any] | None,
        terminal: Callable[..., Any] | None,
        constant_inputs: Shapes,
        per_step_inputs: Shapes | None = None,
    ):
        model = sim.model
        self.sim, self.model, self.cost, self.terminal = sim, model, cost, terminal
        self.constant_inputs, self.per_step_inputs = dict(constant_inputs), dict(per_step_inputs or {})
        self.size, self.width = 2 * model.nv, 2 * model.nv + model.nu
        additive = all(joint.type.additive for joint in model.joints)
        self.semi_implicit = additive and isinstance(sim.world.integrator, SemiImplicit)
        self.states = {name: shape for name, shape in sim.world.carry.items() if name != "status"}
        self.inputs = {**self.states, "control": (model.nu,), **self.per_step_inputs, **self.constant_inputs}
        # Controls are kept within their limits here, so that steps need not; at a limit they would have no derivative.
        actuators = [replace(actuator, control_range=(-math.inf, math.inf)) for actuator in model.actuators]
        self.world = replace(sim.world, model=replace(model, actuators=tuple(actuators)))
        specs = [
            TensorSpec(name, shape.shape, table=True) if isinstance(shape, Table) else TensorSpec(name, shape)
            for name, shape in self.inputs.items()
        ]
        self._step, _ = trace("step", self._stepped, [*specs, TensorSpec("change", (self.width,))])
        specs = [spec for spec in specs if spec.name not in self.world.memory]
        self._running = self._traced("cost", cost, specs)
        ends = [spec for spec in specs if spec.name in ("q", "v", *self.constant_inputs)]
        self._last = self._traced("terminal", terminal, ends)

    def _traced(self, name: str, function: Callable[..., Any] | None, specs: Sequence[TensorSpec]) -> Program | None:
        if function is None:
            return None
        controlled = any(spec.name == "control" for spec in specs)

        def displaced_cost(change: Any, **values: Any) -> Any:
            return self._costs(function, self.displaced(values, change), controlled)

        return trace(name, displaced_cost, [*specs, TensorSpec("change", (self.width if controlled else self.size,))])[
            0
        ]

    @property
    def loops(self) -> bool:
        """Whether a step has loops, such as those of a solver of contacts."""
        return any(node.op == "scan" for node in reachable([x for target in self._step.targets for x in target]))

    # Traced functions

    def displaced(self, values: Values, change: Any) -> Values:
        """Return the inputs of a step with a change (dq, dv, du) applied."""
        nv = self.model.nv
        moved = dict(values)
        moved["q"] = np.array(manifold.integrate(self.model, list(values["q"]), change[:nv]), dtype=object)
        moved["v"] = values["v"] + change[nv : 2 * nv]
        if "control" in values:
            moved["control"] = values["control"] + change[2 * nv :]
        return moved

    def _stepped(self, change: Any, **values: Any) -> list[Scalar]:
        values = self.displaced(values, change)
        plant, q, v = plant_of(self.world, values), list(values["q"]), list(values["v"])
        start = [list(values[name]) for name in self.world.memory]
        result = self.world.integrator.advance(plant, q, v, *start)
        if self.semi_implicit:
            return list(result.v)
        return [*manifold.difference(self.model, detach(result.q), result.q), *result.v]

    def _costs(self, function: Callable[..., Any], values: Values, controlled: bool) -> Any:
        """The value of a cost function: one number, or a row of residuals."""
        known = {name: values[name] for name in ("q", "v", "control")[: 3 if controlled else 2]}
        label = "the running cost" if controlled else "the terminal cost"
        cost = np.array(bind(f"ILQR: {label}", function, known, part(values, "tensors")), dtype=object)
        if cost.ndim > 1:
            raise InputError(f"ILQR: a cost gives one number or a row of residuals, not the shape {cost.shape}")
        return cost if cost.ndim else cost.item()

    # Values and derivatives

    def cost_value(self, values: Values, controlled: bool = True) -> Scalar:
        """Return the running cost, or the terminal one."""
        function = self.cost if controlled else self.terminal
        if function is None:
            return 0.0
        cost = self._costs(function, values, controlled)
        return 0.5 * dot(list(cost), list(cost)) if isinstance(cost, np.ndarray) else cost

    def jacobian(self, values: Values) -> Rows:
        """Return the Jacobian of a step to dx and du: the rows of the velocity only where `semi_implicit`, else all."""
        return jacobian(self._step, self._arguments(self._step, values))

    def quadratic(self, values: Values, controlled: bool = True) -> tuple[list[Scalar], Rows]:
        """Return gradient and Hessian of a cost; of residuals the Hessian is that of Gauss and Newton, JᵀJ."""
        program = self._running if controlled else self._last
        size = self.width if controlled else self.size
        if program is None:
            return [0.0] * size, [[0.0] * size for _ in range(size)]
        arguments = self._arguments(program, values)
        if program.outputs[0].shape:
            (residuals,) = inlined(program, arguments)
            columns = [list(column) for column in zip(*jacobian(program, arguments), strict=True)]
            upper = [[dot(a, b) for b in columns[i:]] for i, a in enumerate(columns)]
            hessian = [[upper[min(i, j)][abs(i - j)] for j in range(size)] for i in range(size)]
            return [dot(column, residuals) for column in columns], hessian
        return curvature(program, arguments, [1.0])

    def second_derivatives(self, values: Values, weights: Sequence[Scalar]) -> Rows:
        """Return the second derivatives of a step, summed over its rows with these weights."""
        return curvature(self._step, self._arguments(self._step, values), weights)[1]

    def jacobians(self, path: Mapping[str, torch.Tensor], fixed: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the Jacobians of all steps of a trajectory, (steps, batch, 2 nv, 2 nv + nu), in one launch."""
        values = {**path, **fixed}
        inputs = [values[spec.name] for spec in self._step.inputs[:-1]]
        ranks = [len(spec.shape) for spec in self._step.inputs]
        wide = [x.unsqueeze(-rank - 1) if x.dim() > rank else x for x, rank in zip(inputs, ranks, strict=False)]
        directions = torch.eye(self.width, dtype=path["q"].dtype, device=path["q"].device)
        (rows,) = call(self._pushed, [*wide, torch.zeros_like(directions), directions])
        rows = rows.mT
        if not self.semi_implicit:
            return rows
        nv = self.model.nv
        before = directions[:nv].expand(*rows.shape[:-2], nv, self.width)
        return torch.cat([before + self.world.dt * rows, rows], -2)

    @functools.cached_property
    def _pushed(self) -> Kernel:
        return Kernel(jvp(self._step, [False] * (len(self._step.inputs) - 1) + [True])[0])

    def _arguments(self, program: Program, values: Values) -> list[list[Any]]:
        zeros = [0.0] * program.inputs[-1].size
        return [*[flat(values[spec.name]) for spec in program.inputs[:-1]], zeros]


def jacobian(program: Program, arguments: list[list[Any]]) -> Rows:
    """Return the Jacobian of a program's one output to its last input, by rows or by columns: fewer are quicker."""
    (output,), size = program.outputs, program.inputs[-1].size
    moved = [False] * (len(program.inputs) - 1) + [True]
    by_rows = output.size < size
    derivative, present = vjp(program, moved) if by_rows else jvp(program, moved)
    if not present:
        return [[0.0] * size for _ in range(output.size)]
    units = identity_rows(output.size if by_rows else size)
    products = [unwrapped(inlined(derivative, [*arguments, unit])[0]) for unit in units]
    return products if by_rows else [list(row) for row in zip(*products, strict=True)]


def identity_rows(size: int) -> Rows:
    """Return the rows of the identity."""
    return [[float(i == k) for i in range(size)] for k in range(size)]


def curvature(program: Program, arguments: list[list[Any]], weights: Sequence[Scalar]) -> tuple[list[Scalar], Rows]:
    """Return gradient and Hessian of the weighted sum of a program's one output, to its last input."""
    size, count = program.inputs[-1].size, len(program.inputs)
    pull, present = vjp(program, [False] * (count - 1) + [True])
    if not present:
        return [0.0] * size, [[0.0] * size for _ in range(size)]
    (gradient,) = inlined(pull, [*arguments, list(weights)])
    push, moved = jvp(pull, [i == count - 1 for i in range(count + 1)])
    if not moved:
        return unwrapped(gradient), [[0.0] * size for _ in range(size)]
    return unwrapped(gradient), [
        unwrapped(inlined(push, [*arguments, list(weights), unit])[0]) for unit in identity_rows(size)
    ]


def inlined(program: Program, values: Sequence[Sequence[Any]]) -> list[list[Expr]]:
    """Copy a program into the graph that is being traced; what constants among the values decide is folded."""
    graph = current_graph()
    mapping: dict[Expr, Expr] = {}
    for nodes, scalars in zip(program.sources, values, strict=True):
        mapping.update(zip(nodes, [graph.lift(value) for value in scalars], strict=True))
    for node in reachable([x for target in program.targets for x in target]):
        if node in mapping:
            continue
        mapping[node] = rebuild_node(node, [mapping[argument] for argument in node.args], graph)
    return [[mapping[x] for x in target] for target in program.targets]


def unwrapped(values: Sequence[Any]) -> list[Scalar]:
    """Return the values, with constants as numbers, so that what is zero is known to be."""
    return [x.value if x.op == "const" else x for x in values]
