"""What a simulator steps: a model with numbers given in place of its own, and what else acts on it.

A residual is a traced function `residual(q, v, control, **named)` of where the robot is. It gives additions by name:
"force", nv generalized forces, or any parameter of the model or "restitution", in the shape of that parameter.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from adjoin.collision.terrain import Heightfield, OnTerrain
from adjoin.constraints.contact_model import Law
from adjoin.constraints.rows import GROUND
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import ExternalForce, State
from adjoin.errors import InputError
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.simulation.step import Physics
from adjoin.spatial.scalar import Scalar

FORCE = "force"
RESTITUTION = "restitution"
TERRAIN = "terrain"


@dataclass(frozen=True)
class Plant:
    """A robot that is to be stepped, over scalars.

    Attributes:
        model: the robot.
        physics: what is simulated.
        given: values of parameters, by name; the others are the model's and the simulator's own.
        control: nu scalars.
        external: frame name -> six scalars, [force; moment] at the frame's origin in world axes.
        residual: see above; named tensors are bound.
        terrain: the ground if it is not flat; its heights are given.
    """

    model: Model
    physics: Physics
    given: Mapping[str, Any] = field(default_factory=dict)
    control: Sequence[Scalar] = ()
    external: Mapping[str, Any] = field(default_factory=dict)
    residual: Callable[..., Mapping[str, Any]] | None = None
    terrain: Heightfield | None = None

    def at(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> tuple[State, Physics]:
        """The robot at a place, with forces of the residual as its `tau`, and the physics there."""
        given, added = dict(self.given), self._added(q, v)
        force = added.pop(FORCE, [0.0] * self.model.nv)
        own = {RESTITUTION: getattr(self.physics.contact, RESTITUTION, 0.0)}
        for name, more in added.items():
            value = given.get(name, own[name] if name in own else Robot(self.model).numbers(name))
            given[name] = np.array(value, dtype=object).reshape(more.shape) + more
        physics = self.physics
        if RESTITUTION in given:
            law = require_restitution(physics.contact)
            restitution = np.array(given.pop(RESTITUTION), dtype=object).item()
            physics = replace(physics, contact=replace(law, restitution=restitution))
        robot = self._robot(given)
        return State(robot, q, v, tau=force, external=[self._load(robot, name) for name in self.external]), physics

    def _robot(self, given: dict[str, Any]) -> Robot:
        if self.terrain is None:
            return Robot(self.model, given)
        heights, ground = given.pop(TERRAIN), self.model.geometry_index(GROUND)
        return OnTerrain(self.model, given, ground, self.terrain, lambda row, column: heights[row, column])

    def _load(self, robot: Robot, name: str) -> ExternalForce:
        frame = self.model.frame_index(name)
        body = self.model.frames[frame].body
        return ExternalForce(body, robot.frames[frame], self.external[name], "local_world_aligned")

    def _added(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> dict[str, Any]:
        """What the residual adds, in the shapes that it should have."""
        if self.residual is None:
            return {}
        found = self.residual(*[np.array(x, dtype=object) for x in (q, v, self.control)])
        if not isinstance(found, Mapping):
            raise InputError(f"residual: it must give a dict of additions by name, got a {type(found).__name__}")
        added = {}
        for name, value in found.items():
            if name == FORCE:
                shape: tuple[int, ...] = (self.model.nv,)
            elif name == RESTITUTION:
                shape = ()
            elif (parameter := parameters.find(name)) is None:
                known = ", ".join((FORCE, RESTITUTION, *parameters.names()))
                raise InputError(f"residual: nothing is called {name!r}; it can add to: {known}")
            else:
                shape = parameters.shape(self.model, parameter)
            added[name] = np.array(value, dtype=object)
            if added[name].shape != shape:
                raise InputError(f"residual: {name!r} has the shape {added[name].shape}; it must be {shape}")
        return added


def require_restitution(solver: Any) -> Any:
    """The solver, if it has restitution."""
    if not isinstance(solver, Law):
        raise InputError(f"parameter {RESTITUTION!r} is one of PGS(...); {type(solver).__name__} has none")
    return solver


def check_restitution(value: Any, batch: tuple[int, ...]) -> None:
    """Raise if it is not one number for the batch or one per environment."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        raise InputError(f"parameter {RESTITUTION!r} must be a floating-point torch tensor, got {value!r}")
    try:
        fits = torch.broadcast_shapes(value.shape, batch) == batch
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(f"parameter {RESTITUTION!r} has shape {tuple(value.shape)}; it must broadcast to {batch}")
