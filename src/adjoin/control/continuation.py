"""From soft contact that is felt at a distance to the simulator's own: how an optimizer finds contacts not made yet.

Where nothing touches, no control changes what a robot should move, and a gradient is zero. Each stage of a continuation
solves the same problem with `Compliant` contact, whose forces begin at a distance; the next stage starts from its
solution, with forces that begin nearer. The last one is the problem itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from adjoin.constraints.compliant import Compliant
from adjoin.errors import AdjoinWarning, InputError, warn_caller
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.world import CONTACT

GRAVITY = 9.81
"""What the weight of a robot is counted with, m/s², also where its world has another gravity, or none."""

SOFT = Compliant()
"""The contact of all stages: their numbers are parameters, so that they share kernels."""


@dataclass(frozen=True)
class Continuation:
    """Stages of soft contact before the simulator's own, for `optimize` and `ILQR.solve`.

    A shape that just touches is pushed with `weight` times the weight of the robot, whatever the depth: what stands on
    the ground stays about where it is from stage to stage.

    Attributes:
        depths: over which the contacts of each stage begin, m, greatest first. Forces are felt at a few times as much.
        iterations: of each stage.
        weight: force on a shape that just touches, as a share of the weight of all bodies.
        slip: speed of slip at which friction is at 0.7 of its bound, for each m of depth, 1/s.
        search: iterations of `MPPI` that each stage of `optimize` begins with: where contacts could be made in several
            ways, samples find one, and gradients do the rest.
    """

    depths: tuple[float, ...] = (0.1, 0.01)
    iterations: int = 10
    weight: float = 1.0
    slip: float = 1.0
    search: int = 12

    def __post_init__(self):
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise InputError(f"Continuation: iterations must be a whole number of at least 1, got {self.iterations!r}")
        if not isinstance(self.search, int) or self.search < 0:
            raise InputError(f"Continuation: search must be a whole number of at least 0, got {self.search!r}")
        depths = tuple(self.depths) if isinstance(self.depths, list | tuple) else ()
        for name, values in (("depths", depths), ("weight", [self.weight]), ("slip", [self.slip])):
            if not values or not all(isinstance(x, int | float) and 0.0 < x < math.inf for x in values):
                raise InputError(f"Continuation: {name} must be positive, got {getattr(self, name)!r}")
        object.__setattr__(self, "depths", depths)

    def stages(self, like: torch.Tensor) -> Iterator[dict[str, torch.Tensor]]:
        """Return the parameters of the contact in each stage, as tensors of the dtype and device of another."""
        for depth in self.depths:
            numbers = {
                "depth": depth,
                "stiffness": self.weight * GRAVITY / (math.log(2.0) * depth),
                "transition": self.slip * depth,
            }
            yield {f"{CONTACT}{name}": like.new_tensor(number) for name, number in numbers.items()}


def require_contact(label: str, sim: Simulator) -> None:
    """Raise if nothing can touch in a simulator, so that there is nothing to continue from."""
    if not sim.contact_names:
        raise InputError(
            f"{label}: continuation is for contacts; in this simulator of {sim.model.name!r} nothing touches"
        )


def warn_of_no_gradient(label: str, still: int, count: int, kept: str) -> None:
    """Say that some of the problems have no gradient to follow, and what helps.

    Args:
        label: what was called.
        still: how many problems.
        count: of how many.
        kept: what became of them.
    """
    warn_caller(
        AdjoinWarning(
            f"{label}: {still} of {count} {kept}: no control changes the cost to first order, as where nothing touches "
            "yet. Remedies: continuation=Continuation(), which begins with contacts that are felt from a distance; a "
            "first guess that makes contact, such as random starts; a cost that draws the robot to what it should touch"
        )
    )
