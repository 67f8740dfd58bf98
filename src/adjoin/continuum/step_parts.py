"""What a time step of a soft body is made of, so that it can run alone or as a part of a larger step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Sort, Stage, StepSequence


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
    """

    fields: list[Field]
    connections: list[Connection]
    stages: list[Stage | Sort]
    sizes: Mapping[str, int]
    tables: Mapping[str, np.ndarray]
    points: str
    capacity: int = 64

    def runner(self) -> StepRunner:
        """Return the step as one that runs."""
        sequence = StepSequence(self.fields, self.connections, self.stages)
        return StepRunner(sequence, self.sizes, self.tables, self.capacity)


class Inputs(NamedTuple):
    """What a rollout of a step takes, by name."""

    states: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]
    controls: dict[str, torch.Tensor]
