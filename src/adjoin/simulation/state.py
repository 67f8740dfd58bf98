"""What a simulator takes and gives: states, trajectories, contacts."""

from typing import NamedTuple

import torch

FINE, NOT_FINITE, EXPLODED = 0.0, 1.0, 2.0
"""What a status can be."""


class SimulatorState(NamedTuple):
    """The state of a batch of environments.

    Attributes:
        q: configurations, (..., nq).
        v: velocities, (..., nv).
        status: 0 where all is well; 1 where a number was not finite, 2 where something moved too fast or too far. Such
            an environment stays as it was before, until it is reset. (...,), of the dtype of q.
        impulses: of the contacts in the last step, (..., rows), if the solver starts warm, else (..., 0).
    """

    q: torch.Tensor
    v: torch.Tensor
    status: torch.Tensor
    impulses: torch.Tensor


class Trajectory(NamedTuple):
    """States over time, which is the first dimension of everything.

    Attributes:
        q: (steps + 1, ..., nq).
        v: (steps + 1, ..., nv).
        status: (steps + 1, ...).
        impulses: (steps + 1, ..., rows or 0).
        outputs: what was asked for besides, by name, (steps, ...).
    """

    q: torch.Tensor
    v: torch.Tensor
    status: torch.Tensor
    impulses: torch.Tensor
    outputs: dict[str, torch.Tensor]

    @property
    def last(self) -> SimulatorState:
        """The state at the end."""
        return SimulatorState(self.q[-1], self.v[-1], self.status[-1], self.impulses[-1])


class Contacts(NamedTuple):
    """Points of contact, in the order of `Simulator.contact_names`.

    Attributes:
        distance: between the surfaces, negative where they overlap; 1000 in a slot without a point. (..., n), m.
        position: in the world, (..., n, 3), m.
        normal: unit vector toward the first shape, (..., n, 3).
        force: on the first shape, averaged over the step, (..., n, 3), N.
    """

    distance: torch.Tensor
    position: torch.Tensor
    normal: torch.Tensor
    force: torch.Tensor
