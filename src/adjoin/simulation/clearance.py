"""How far the shapes of a robot are above the ground: to warn of a start inside it, and to set a robot down."""

import torch

from adjoin.collision.core import core_of, support
from adjoin.collision.plane import height
from adjoin.collision.terrain import Heightfield
from adjoin.constraints.rows import shape
from adjoin.dynamics.call import call
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.simulation.world import World
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_point
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3


def clearance(world: World, q: torch.Tensor) -> tuple[list[str], torch.Tensor]:
    """Return how far each shape is above the ground that it can touch, along the vertical.

    The ground is every plane that is fixed to the world and is not a wall, or the terrain.

    Args:
        world: What is simulated.
        q: Configurations, (..., nq).

    Returns:
        The names of the shapes that can touch the ground, and their heights above it, (..., n), m; negative inside it.
    """
    shapes, over = world.model.geometries, world.over_ground
    if not over:
        return [], q.new_empty((*q.shape[:-1], 0))
    names = [shapes[shape].name for shape, _ in over]
    flat = call("clearance", world.model, q.detach(), over=over)
    if world.terrain is None:
        return names, flat
    lowest = call("lowest_points", world.model, q.detach(), over=over)
    places = q.new_tensor([shapes[ground].position for _, ground in over])
    on_terrain = torch.tensor([ground == world.terrain_shape for _, ground in over], device=q.device)
    return names, torch.where(on_terrain, lowest[..., 2] - _height(world.terrain, lowest, places), flat)


@quantity("lowest_points", "q")
def _lowest_points(state: State, over: tuple[tuple[int, int], ...]) -> list[Vector3]:
    """Return, for pairs of a shape and a plane, the point of the shape that is lowest over the plane."""
    points = []
    for above, below in over:
        body, normal = shape(state, above), shape(state, below).axis
        core = core_of(body)
        down = vector.negate(vector.apply_transposed(body.pose[0], normal))
        lowest = transform_point(body.pose, support(core, down))
        points.append(vector.subtract(lowest, vector.scale(core.radius, normal)))
    return points


@quantity("clearance", "q")
def _clearance(state: State, over: tuple[tuple[int, int], ...]) -> list[Scalar]:
    """Return, for pairs of a shape and a plane, how far the shape is above the plane, along the vertical."""
    planes = [shape(state, below) for _, below in over]
    points = _lowest_points(state, over)
    return [height(plane, point) / plane.axis[2] for plane, point in zip(planes, points, strict=True)]


def set_down(world: World, q: torch.Tensor) -> torch.Tensor:
    """Return configurations in which robots with a free base touch the ground with their lowest shape.

    Args:
        world: What is simulated.
        q: Configurations, (..., nq).
    """
    model = world.model
    names, heights = clearance(world, q)
    roots = [_root(model, model.geometries[model.geometry_index(name)].body) for name in names]
    q = q.clone()
    for root in sorted(set(roots)):
        if model.bodies[root].joint.type.floating:
            above = heights[..., [k for k, other in enumerate(roots) if other == root]].amin(-1)
            q[..., model.coordinates[root].q + 2] -= above
    return q


def _root(model: Model, body: int) -> int:
    while model.bodies[body].parent != WORLD:
        body = model.bodies[body].parent
    return body


def _height(terrain: Heightfield, points: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The height of terrain under points, (...)."""
    heights = terrain.heights.to(points)
    origin = place + points.new_tensor(terrain.origin)
    spacing = points.new_tensor(terrain.spacing)
    last = points.new_tensor([heights.shape[1] - 1.0, heights.shape[0] - 1.0])
    place = ((points[..., :2] - origin[..., :2]) / spacing).clamp(min=torch.zeros_like(last), max=last)
    cell = place.floor().minimum(last - 1.0)
    (s, t), (column, row) = (place - cell).unbind(-1), cell.long().unbind(-1)
    near = (1.0 - s) * heights[row, column] + s * heights[row, column + 1]
    far = (1.0 - s) * heights[row + 1, column] + s * heights[row + 1, column + 1]
    return origin[..., 2] + (1.0 - t) * near + t * far
