"""What of a model is drawn: its shapes, and sticks for links that have none."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adjoin.io.mesh import Color
from adjoin.model.joint import Mat3, Vec3
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Geometry
from adjoin.spatial import vector
from adjoin.spatial.rotation import from_quaternion
from adjoin.spatial.vector import IDENTITY, ZERO
from adjoin.viewer import mesh
from adjoin.viewer.mesh import Mesh

LIGHT: Color = (224, 228, 234)
DARK: Color = (32, 40, 54)
ACCENT: Color = (226, 62, 12)
FIXED_COLOR: Color = (140, 147, 158)


@dataclass(frozen=True)
class Solid:
    """One solid on a body.

    Attributes:
        body: index of the body that carries it, or `WORLD`.
        mesh: its surface.
        scale: of the mesh along its axes.
        color: red, green, blue from 0 to 255.
        position: in the body's frame, m.
        rotation: x_body = rotation x_part + position.
    """

    body: int
    mesh: Mesh
    scale: Vec3
    color: Color
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY


def parts_of(model: Model, visuals: Mapping[str, Iterable[Solid]] | None = None, segments: int = 32) -> list[Solid]:
    """Return everything solid of a model; planes are left to the ground.

    Args:
        model: the robot.
        visuals: parts to draw in place of a link's shapes, by the link's name.
        segments: around what is round.
    """
    visuals = visuals or {}
    colors = _colors(model)
    drawn = [part for parts in visuals.values() for part in parts]
    for shape in model.geometries:
        if shape.link not in visuals and shape.kind != "plane":
            drawn.append(_solid(shape, colors[shape.body], segments))
    shown = {part.body for part in drawn}
    size = _size(model)
    for index, body in enumerate(model.bodies):
        if index not in shown and not body.joint.type.floating:
            drawn += _skeleton(model, index, size, segments)
    return drawn


def _colors(model: Model) -> dict[int, Color]:
    """Choose colors by body: a light trunk, limbs alternately dark and light, and an accent where they end."""
    depth = {WORLD: -1}
    ends = set(range(len(model.bodies)))
    for index, body in enumerate(model.bodies):
        depth[index] = depth[body.parent] + 1
        ends.discard(body.parent)
    colors = {index: (LIGHT, DARK)[depth[index] % 2] for index in range(len(model.bodies))}
    colors.update({index: ACCENT for index in ends if depth[index] > 0})
    colors[WORLD] = FIXED_COLOR
    return colors


def _solid(shape: Geometry, color: Color, segments: int) -> Solid:
    surface, scale = surface_of(shape.kind, shape.size, shape.vertices, segments)
    return Solid(shape.body, surface, scale, color, shape.position, shape.rotation)


def surface_of(kind: str, size: Vec3, vertices: Sequence[Vec3] = (), segments: int = 32) -> tuple[Mesh, Vec3]:
    """Return the surface of a shape, and its scale along its axes.

    Args:
        kind: see `Geometry.kind`.
        size: see `Geometry.size`; half edges of a plane.
        vertices: of a hull.
        segments: around what is round.
    """
    a, b, c = size
    surfaces: dict[str, tuple[Callable[[], Mesh], Vec3]] = {
        "sphere": (lambda: mesh.sphere(segments), (a, a, a)),
        "ellipsoid": (lambda: mesh.sphere(segments), (a, b, c)),
        "box": (mesh.box, (a, b, c)),
        "plane": (mesh.box, (a, b, 0.0)),
        "cylinder": (lambda: mesh.cylinder(segments), (a, a, b)),
        "capsule": (lambda: mesh.capsule(round(b / a, 6), segments), (a, a, a)),
        "hull": (lambda: mesh.hull(np.array(vertices)), (1.0, 1.0, 1.0)),
    }
    surface, scale = surfaces[kind]
    return surface(), scale


def _size(model: Model) -> float:
    """Return how large the robot is, roughly: the longest way along its joints, m."""
    reach = {WORLD: 0.0}
    for index, body in enumerate(model.bodies):
        root = body.parent == WORLD
        reach[index] = reach[body.parent] + (0.0 if root else math.dist(body.position, ZERO))
    return max(*reach.values(), 0.1)


def _skeleton(model: Model, index: int, size: float, segments: int) -> list[Solid]:
    """Return a ball where a body's joint is, and sticks from there to the joints that follow, or to its end."""
    radius = 0.012 * size
    ball = 1.8 * radius
    ends = [body.position for body in model.bodies if body.parent == index]
    if not ends:
        ends = [frame.position for frame in model.frames if frame.body == index] + [model.bodies[index].com]
        ends = [max(ends, key=lambda end: math.dist(end, ZERO))]
    joint = Solid(index, mesh.sphere(segments), (ball, ball, ball), ACCENT)
    return [joint, *[_stick(index, end, radius, segments) for end in ends if math.dist(end, ZERO) > radius]]


def _stick(body: int, end: Vec3, radius: float, segments: int) -> Solid:
    """Return a thin cylinder from a body's origin to a point of it."""
    length = math.dist(end, ZERO)
    w, x, y, z = from_z(np.array([end]))[0].tolist()
    middle = vector.scale(0.5, end)
    return Solid(
        body, mesh.cylinder(segments), (radius, radius, length / 2), DARK, middle, from_quaternion((w, x, y, z))
    )


def from_z(directions: np.ndarray) -> np.ndarray:
    """Return quaternions that turn z into directions, (n, 3); those of no length stay."""
    length = np.linalg.norm(directions, axis=-1, keepdims=True)
    x, y, z = np.where(length > 0.0, directions / np.maximum(length, 1e-30), (0.0, 0.0, 1.0)).T
    turns = np.stack([1.0 + z, -y, x, np.zeros_like(z)], -1)
    turns[z < -0.999999] = (0.0, 1.0, 0.0, 0.0)
    return turns / np.linalg.norm(turns, axis=-1, keepdims=True)
