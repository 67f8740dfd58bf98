"""What a time step of a soft body is made of, so that it can run alone or as a part of a larger step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Sort, Stage, StepSequence


class Runner(Protocol):
    """What runs steps; see `StepRunner`."""

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
        """Return the states and the outputs of steps."""
        ...


@dataclass(frozen=True, eq=False)
class StepParts:
    """The fields, connections and stages of a step, with the sizes and tables of a runner.

    Attributes:
        fields: every quantity.
        connections: every index table.
        stages: in order.
        sizes: members of each set.
        tables: see `StepRunner`.
        points: the set that colliders push.
        capacity: particles that fit a cell.
        wrap: makes what runs the steps from their runner: it may change tables on the way, or look at the states.
    """

    fields: list[Field]
    connections: list[Connection]
    stages: list[Stage | Sort]
    sizes: Mapping[str, int]
    tables: Mapping[str, np.ndarray]
    points: str
    capacity: int = 64
    wrap: Callable[[StepRunner], "Runner"] | None = None

    def runner(self) -> "Runner":
        """Return the step as one that runs."""
        sequence = StepSequence(self.fields, self.connections, self.stages)
        runner = StepRunner(sequence, self.sizes, self.tables, self.capacity)
        return runner if self.wrap is None else self.wrap(runner)


class Inputs(NamedTuple):
    """What a rollout of a step takes, by name."""

    states: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]
    controls: dict[str, torch.Tensor]
