"""The forward pass of differential dynamic programming: a rollout with the gains as feedback, and its cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from adjoin.compiler.runtime.function import Function, PerStep
from adjoin.compiler.runtime.operator import arrange
from adjoin.control.ilqr.backward_pass import Gains
from adjoin.control.ilqr.box_qp import Bounds, clamp
from adjoin.control.ilqr.local_model import LocalModel
from adjoin.control.ilqr.problem_batch import ProblemBatch
from adjoin.model import manifold
from adjoin.simulation.rollout import Values
from adjoin.simulation.state import FINE
from adjoin.simulation.world_rollout import plant_of
from adjoin.trace import scan, select

FINAL = ("last_q", "last_v", "cost")
"""Outputs that a trajectory has once, not for each step."""


class ForwardPass:
    """The whole pass as one launch.

    Args:
        local: model of steps and costs.
        bounds: of the controls.
    """

    def __init__(self, local: LocalModel, bounds: Bounds):
        self.local, self.bounds = local, bounds
        nu, size = local.model.nu, local.size
        states = local.world.carry
        nominal = {f"nominal_{name}": states[name] for name in ("q", "v")}
        controls = {"control": (nu,), "feedforward": (nu,), "gain": (nu, size)}
        self._streams = {**nominal, **controls, **local.per_step_inputs}
        self._start, self._constants = tuple(states), tuple(local.constant_inputs)

        def forward(**values: Any) -> Any:
            return self._forward(values)

        forward.__name__ = f"forward({local.model.name})"
        streams = {name: PerStep(shape) for name, shape in self._streams.items()}
        inputs = {**states, **streams, "step_length": (), **local.constant_inputs}
        self._inputs, self._function = tuple(inputs), Function(forward, inputs)
        self.outputs = [output.name for output in self._function.kernel.program.outputs]

    def __call__(
        self,
        problems: ProblemBatch,
        gains: Gains,
        step_length: torch.Tensor,
        shared: Mapping[str, torch.Tensor],
        into: ProblemBatch | None = None,
    ) -> ProblemBatch:
        """Return trajectories and their costs.

        Args:
            problems: with the trajectories that the gains are for.
            gains: of the backward pass.
            step_length: the share of the feedforward change that is applied, (batch,).
            shared: parameters and named tensors that are the same for all problems.
            into: contiguous tensors for the results.
        """
        per_problem = {**shared, **problems.per_problem, "step_length": step_length}
        per_step = {**problems.per_step, **gains._asdict()}
        per_step |= {f"nominal_{name}": per_step[name] for name in ("q", "v")}
        tensors = [per_step[name] if name in self._streams else per_problem[name] for name in self._inputs]
        kernel, batch, tensors = arrange(self._function.kernel, tensors)
        buffers = None
        if into is not None:
            buffers = [into.per_problem[name] if name in FINAL else into.per_step[name] for name in self.outputs]
        outputs = kernel.run(tensors, (len(gains.feedforward),), batch, buffers)
        trajectory = dict(zip(self.outputs, outputs, strict=True))
        return ProblemBatch({name: trajectory.pop(name) for name in FINAL}, trajectory)

    def _forward(self, values: Values) -> dict[str, Any]:
        local = self.local
        model, constants = local.model, {name: values[name] for name in self._constants}

        def body(_: Any, carry: Any, elements: Sequence[Any]) -> tuple[Any, Any]:
            state, total = carry
            step = dict(zip(self._streams, elements, strict=True))
            dq = manifold.difference(model, list(step["nominal_q"]), list(state["q"]))
            dx = np.array([*dq, *(state["v"] - step["nominal_v"])], dtype=object)
            control = step["control"] + values["step_length"] * step["feedforward"] + step["gain"] @ dx
            control = np.array(clamp(list(control), self.bounds), dtype=object)
            named = {name: step[name] for name in local.per_step_inputs}
            inputs = {**state, **constants, "control": control, **named}
            after, _ = local.world.step(plant_of(local.world, inputs), state)
            after = {name: np.array(x, dtype=object) if name != "status" else x for name, x in after.items()}
            before = {name: x for name, x in state.items() if name != "status"}
            return (after, total + local.cost_value(inputs)), {**before, "control": control}

        start = {name: values[name] for name in self._start}
        (last, total), path = scan(body, (start, 0.0), [values[name] for name in self._streams])
        total = total + local.cost_value({**last, **constants}, controlled=False)
        final = {"last_q": last["q"], "last_v": last["v"]}
        return {**path, **final, "cost": select(last["status"] == float(FINE), total, math.inf)}
