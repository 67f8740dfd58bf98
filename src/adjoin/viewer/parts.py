"""What of a model is drawn: its shapes, and sticks for links that have none."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoin.model.joint import Mat3, Vec3
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Geometry
from adjoin.spatial.rotation import from_axis_angle
from adjoin.spatial.vector import IDENTITY, ZERO
from adjoin.viewer import mesh
from adjoin.viewer.mesh import Mesh

Colour = tuple[int, int, int]

SHELL: Colour = (226, 229, 233)
LIMBS: tuple[Colour, ...] = ((58, 68, 84), (226, 229, 233))
ACCENT: Colour = (240, 127, 60)
FIXED: Colour = (150, 156, 165)
STICK: Colour = (58, 68, 84)


@dataclass(frozen=True)
class Part:
    """One solid on a body.

    Attributes:
        body: index of the body that carries it, or `WORLD`.
        mesh: its surface.
        scale: of the mesh along its axes.
        colour: red, green, blue from 0 to 255.
        position: in the body's frame, m.
        rotation: x_body = rotation x_part + position.
    """

    body: int
    mesh: Mesh
    scale: Vec3
    colour: Colour
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY


def parts_of(model: Model, visuals: Mapping[str, Iterable[Part]] | None = None) -> list[Part]:
    """Everything solid of a model; planes are left to the ground.

    Args:
        model: the robot.
        visuals: parts to draw in place of a link's shapes, by the link's name.
    """
    visuals = visuals or {}
    colours = _colours(model)
    found = [part for parts in visuals.values() for part in parts]
    for shape in model.geometries:
        if shape.link not in visuals and shape.kind != "plane":
            found.append(_solid(shape, colours[shape.body]))
    shown = {part.body for part in found}
    size = _size(model)
    for index, body in enumerate(model.bodies):
        if index not in shown and body.joint.kind != "free":
            found += _skeleton(model, index, size)
    return found


def _colours(model: Model) -> dict[int, Colour]:
    """By body: a light trunk, limbs in turns of dark and light, and an accent where they end."""
    depth = {WORLD: -1}
    ends = set(range(len(model.bodies)))
    for index, body in enumerate(model.bodies):
        depth[index] = depth[body.parent] + 1
        ends.discard(body.parent)
    found = {index: LIMBS[(depth[index] - 1) % len(LIMBS)] for index in range(len(model.bodies))}
    found.update({index: SHELL for index in found if depth[index] == 0})
    found.update({index: ACCENT for index in ends if depth[index] > 0})
    found[WORLD] = FIXED
    return found


def _solid(shape: Geometry, colour: Colour) -> Part:
    a, b, c = shape.size
    solids: dict[str, tuple[Any, Vec3]] = {
        "sphere": (mesh.sphere, (a, a, a)),
        "ellipsoid": (mesh.sphere, (a, b, c)),
        "box": (mesh.box, (a, b, c)),
        "cylinder": (mesh.cylinder, (a, a, b)),
        "capsule": (lambda: mesh.capsule(round(b / a, 6) if a > 0.0 else 0.0), (a, a, a)),
        "hull": (lambda: mesh.hull(np.array(shape.vertices)), (1.0, 1.0, 1.0)),
    }
    surface, scale = solids[shape.kind]
    return Part(shape.body, surface(), scale, colour, shape.position, shape.rotation)


def _size(model: Model) -> float:
    """How large the robot is, roughly: the longest way along its joints, m."""
    reach = {WORLD: 0.0}
    for index, body in enumerate(model.bodies):
        root = body.parent == WORLD
        reach[index] = reach[body.parent] + (0.0 if root else math.dist(body.position, ZERO))
    return max(*reach.values(), 0.1)


def _skeleton(model: Model, index: int, size: float) -> list[Part]:
    """A ball where a body's joint is, and sticks from there to the joints that follow, or to its end."""
    radius = 0.012 * size
    ball = 1.8 * radius
    ends = [body.position for body in model.bodies if body.parent == index]
    if not ends:
        ends = [frame.position for frame in model.frames if frame.body == index] + [model.bodies[index].com]
        ends = [max(ends, key=lambda end: math.dist(end, ZERO))]
    joint = Part(index, mesh.sphere(), (ball, ball, ball), ACCENT)
    return [joint, *[stick(index, ZERO, end, radius) for end in ends if math.dist(end, ZERO) > radius]]


def stick(body: int, start: Vec3, end: Vec3, radius: float, colour: Colour = STICK) -> Part:
    """A thin cylinder between two points of a body."""
    along = np.subtract(end, start)
    length = float(np.linalg.norm(along))
    z = along / length
    axis = np.cross((0.0, 0.0, 1.0), z)
    sine = float(np.linalg.norm(axis))
    axis = axis / sine if sine > 1e-9 else np.array((1.0, 0.0, 0.0))
    x, y, z = axis.tolist()
    middle = np.add(start, end) / 2
    rotation = from_axis_angle((x, y, z), math.atan2(sine, float(along[2]) / length))
    return Part(body, mesh.cylinder(), (radius, radius, length / 2), colour, tuple(middle.tolist()), rotation)
