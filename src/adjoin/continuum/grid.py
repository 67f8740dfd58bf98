"""Which particles left their grid, and when."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.rollout import StepRunner
from adjoin.errors import InputError, LeftGridWarning, Subject, warn_caller

SEGMENT = 64
"""Steps whose states are kept at a time to find where a particle left."""


@dataclass(frozen=True)
class GridRunner:
    """Runs steps of particles, and warns of those that leave the grid.

    A particle that leaves has no position after that step, but still a velocity; the rest of its variant follows. Steps
    report nothing themselves, so that they cost no more: if a variant ends without positions, they are run again.

    Attributes:
        runner: of the steps; "x" and "v" are states of them.
    """

    runner: StepRunner

    def rollout(
        self,
        state: Mapping[str, torch.Tensor],
        parameters: Mapping[str, torch.Tensor],
        controls: Mapping[str, torch.Tensor],
        *,
        steps: int | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the states and the outputs of steps; see `StepRunner.rollout`."""
        states, outputs = self.runner.rollout(
            state, parameters, controls, steps=steps, keep=keep, checkpoints=checkpoints
        )
        if state["x"].is_cuda and torch.cuda.is_current_stream_capturing():
            return states, outputs
        last = states["x"].detach() if keep is None else states["x"].detach()[-1]
        ended = last.isnan().any(-1).any(-1) & (state["x"] + state["v"]).isfinite().all(-1).all(-1)
        if bool(ended.any()):
            count = len(next(iter(controls.values()))) if steps is None else steps
            left = self._find(state, parameters, controls, count)
            errors = [
                InputError(f"particle {particle} left the grid in step {step}", subject=Subject("variant", variant))
                for variant, (step, particle) in left.items()
            ]
            if errors:
                text = "particles: a variant ends with NaN; a larger grid, walls (boundary) or smaller steps would help"
                warn_caller(LeftGridWarning(text, errors))
        return states, outputs

    @torch.no_grad()
    def _find(
        self,
        state: Mapping[str, torch.Tensor],
        parameters: Mapping[str, torch.Tensor],
        controls: Mapping[str, torch.Tensor],
        steps: int,
    ) -> dict[int | str, tuple[int, int]]:
        """Return for each variant that a particle left the step and the first such particle."""
        left: dict[int | str, tuple[int, int]] = {}
        for first in range(0, steps, SEGMENT):
            count = min(SEGMENT, steps - first)
            given = {name: control[first : first + count] for name, control in controls.items()}
            path, _ = self.runner.rollout(state, parameters, given, steps=count, keep=1)
            leaving = path["x"][1:].isnan().any(-1) & path["v"][1:].isfinite().all(-1)
            for step, *variant, particle in leaving.nonzero().tolist():
                name = str(tuple(variant)) if len(variant) > 1 else sum(variant)
                left.setdefault(name, (first + step, particle))
            state = {name: values[-1] for name, values in path.items()}
        return left
