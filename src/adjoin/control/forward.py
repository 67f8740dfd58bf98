"""The forward pass of differential dynamic programming: a rollout with the gains as feedback, and its cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from adjoin.compiler.runtime.function import Function, PerStep
from adjoin.compiler.runtime.operator import arrange
from adjoin.control.expansion import Expansion
from adjoin.control.limited import Bounds, clamped
from adjoin.control.problems import Problems
from adjoin.control.riccati import Gains
from adjoin.model import manifold
from adjoin.simulation.rollout import Values
from adjoin.simulation.state import FINE
from adjoin.simulation.world_rollout import plant_of
from adjoin.trace import scan, select

ENDS = ("last_q", "last_v", "cost")
"""What a path has once, not for each step."""


class Forward:
    """The whole pass as one launch.

    Args:
        expansion: of steps and costs.
        bounds: of the controls.
    """

    def __init__(self, expansion: Expansion, bounds: Bounds):
        self.expansion, self.bounds = expansion, bounds
        nu, size = expansion.model.nu, expansion.size
        states = expansion.world.carry
        near = {f"near_{name}": states[name] for name in ("q", "v")}
        self._streams = {**near, "control": (nu,), "feed": (nu,), "gain": (nu, size), **expansion.timed}
        self._start, self._fixed = tuple(states), tuple(expansion.fixed)

        def forward(**values: Any) -> Any:
            return self._forward(values)

        forward.__name__ = f"forward({expansion.model.name})"
        streams = {name: PerStep(shape) for name, shape in self._streams.items()}
        inputs = {**states, **streams, "part": (), **expansion.fixed}
        self._inputs, self._function = tuple(inputs), Function(forward, inputs)
        self.outputs = [slot.name for slot in self._function.kernel.program.outputs]

    def __call__(
        self,
        problems: Problems,
        gains: Gains,
        part: torch.Tensor,
        shared: Mapping[str, torch.Tensor],
        into: Problems | None = None,
    ) -> Problems:
        """Paths and their costs.

        Args:
            problems: with the paths that the gains are for.
            gains: of the backward pass.
            part: of the steps that the gains ask for, (batch,).
            shared: parameters and named tensors that are the same for all problems.
            into: contiguous tensors for the results.
        """
        once, each = {**shared, **problems.once, "part": part}, {**problems.each, **gains._asdict()}
        each |= {f"near_{name}": each[name] for name in ("q", "v")}
        tensors = [each[name] if name in self._streams else once[name] for name in self._inputs]
        kernel, batch, tensors = arrange(self._function.kernel, tensors)
        places = None if into is None else [into.once[n] if n in ENDS else into.each[n] for n in self.outputs]
        results = kernel.run(tensors, (len(gains.feed),), batch, places)
        found = dict(zip(self.outputs, results, strict=True))
        return Problems({name: found.pop(name) for name in ENDS}, found)

    def _forward(self, values: Values) -> dict[str, Any]:
        expansion = self.expansion
        model, fixed = expansion.model, {name: values[name] for name in self._fixed}

        def body(_: Any, carry: Any, elements: Sequence[Any]) -> tuple[Any, Any]:
            state, total = carry
            near = dict(zip(self._streams, elements, strict=True))
            turned = manifold.difference(model, list(near["near_q"]), list(state["q"]))
            away = np.array([*turned, *(state["v"] - near["near_v"])], dtype=object)
            control = near["control"] + values["part"] * near["feed"] + near["gain"] @ away
            control = np.array(clamped(list(control), self.bounds), dtype=object)
            here = {**state, **fixed, "control": control, **{name: near[name] for name in expansion.timed}}
            after, _ = expansion.world.step(plant_of(expansion.world, here), state)
            after = {name: np.array(x, dtype=object) if name != "status" else x for name, x in after.items()}
            kept = {name: x for name, x in state.items() if name != "status"}
            return (after, total + expansion.value(here)), {**kept, "control": control}

        start = {name: values[name] for name in self._start}
        (last, total), path = scan(body, (start, 0.0), [values[name] for name in self._streams])
        total = total + expansion.value({**last, **fixed}, controlled=False)
        ends = {"last_q": last["q"], "last_v": last["v"]}
        return {**path, **ends, "cost": select(last["status"] == float(FINE), total, math.inf)}
