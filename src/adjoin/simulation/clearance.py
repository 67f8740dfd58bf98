"""How far the shapes of a robot are above the ground: to warn of a start inside it, and to set a robot down."""

import torch

from adjoin.collision.terrain import Heightfield
from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Geometry
from adjoin.simulation.world import World


def clearance(world: World, q: torch.Tensor) -> tuple[list[str], torch.Tensor]:
    """Return how far each shape is above the ground that it can touch, along the vertical.

    The ground is every plane that is fixed to the world and is not a wall, or the terrain.

    Args:
        world: What is simulated.
        q: Configurations, (..., nq).

    Returns:
        The names of the shapes that can touch the ground, and their heights above it, (..., n), m; negative inside it.
    """
    shapes = world.model.geometries
    floors: dict[int, set[int]] = {}
    for pair in world.pairs:
        for shape, ground in ((pair.first, pair.second), (pair.second, pair.first)):
            if shapes[ground].kind == "plane" and shapes[ground].body == WORLD and shapes[shape].body != WORLD:
                floors.setdefault(shape, set()).add(ground)
    names, heights = [], []
    frames = sorted({shapes[index].link for index in floors})
    poses = forward_kinematics(world.model, q.detach(), frames=frames) if frames else q.new_empty(0)
    for index, grounds in sorted(floors.items()):
        shape = shapes[index]
        rotation, center = _placed(world.model, shape, poses[..., frames.index(shape.link), :, :])
        for ground in (shapes[ground] for ground in grounds):
            normal = q.new_tensor(ground.rotation)[:, 2]
            if normal[2] > 0.1:
                lowest = center - _reach(shape, rotation, normal)
                if world.terrain is not None:
                    height = lowest[..., 2] - _height(world.terrain, lowest, q.new_tensor(ground.position))
                else:
                    height = (lowest - q.new_tensor(ground.position)) @ normal / normal[2]
                names.append(shape.name)
                heights.append(height)
    return names, torch.stack(heights, -1) if heights else q.new_empty((*q.shape[:-1], 0))


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


def _placed(model: Model, shape: Geometry, pose: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rotation and the center of a shape in the world, from the pose of its link."""
    frame = model.frames[model.frame_index(shape.link)]
    of_frame, of_shape = (pose.new_tensor(part.rotation) for part in (frame, shape))
    offset = pose.new_tensor(shape.position) - pose.new_tensor(frame.position)
    center = pose[..., :3, :3] @ (of_frame.T @ offset) + pose[..., :3, 3]
    return pose[..., :3, :3] @ of_frame.T @ of_shape, center


def _reach(shape: Geometry, rotation: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """The vector from the lowest point of a shape, against a normal, to its center, (..., 3)."""
    along = rotation.mT @ normal  # the normal in the shape's axes
    size = along.new_tensor(shape.size)
    if shape.kind == "sphere":
        return size[0] * normal.expand(along.shape)
    if shape.kind == "hull":
        vertices = along.new_tensor(shape.vertices)
        lowest = vertices[(along @ vertices.T).argmin(-1)]
        return -(rotation @ lowest[..., None])[..., 0]
    if shape.kind == "ellipsoid":
        stretched = size * along
        local = size * stretched / stretched.norm(dim=-1, keepdim=True)
    elif shape.kind == "box":
        local = size * along.sign()
    else:  # cylinder, capsule
        end = torch.zeros_like(along)
        end[..., 2] = size[1] * along[..., 2].sign()
        if shape.kind == "capsule":
            return (rotation @ end[..., None])[..., 0] + size[0] * normal
        across = torch.cat([along[..., :2], torch.zeros_like(along[..., 2:])], -1)
        length = across.norm(dim=-1, keepdim=True)
        local = end + torch.where(length > 0.0, size[0] * across / length, 0.0)
    return (rotation @ local[..., None])[..., 0]


def _height(terrain: Heightfield, points: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The height of terrain under points, (...)."""
    heights = terrain.heights.to(points)
    origin = place + points.new_tensor(terrain.origin)
    spacing = points.new_tensor(terrain.spacing)
    last = points.new_tensor([heights.shape[1] - 1.0, heights.shape[0] - 1.0])
    place = ((points[..., :2] - origin[:2]) / spacing).clamp(min=torch.zeros_like(last), max=last)
    cell = place.floor().minimum(last - 1.0)
    (s, t), (column, row) = (place - cell).unbind(-1), cell.long().unbind(-1)
    near = (1.0 - s) * heights[row, column] + s * heights[row, column + 1]
    far = (1.0 - s) * heights[row + 1, column] + s * heights[row + 1, column + 1]
    return origin[2] + (1.0 - t) * near + t * far
