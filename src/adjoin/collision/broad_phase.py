"""Where shapes are, and which pairs of them cannot touch: by spheres around them, then by boxes."""

import math
from collections.abc import Sequence
from itertools import accumulate, product
from typing import Any

from adjoin.collision.core import bounds, core_of
from adjoin.collision.records import Records, indices_table
from adjoin.collision.shape import Faces, Shape, Vertices
from adjoin.collision.terrain import OnTerrain
from adjoin.dynamics.state import State
from adjoin.model.parts import Geometry
from adjoin.spatial import vector
from adjoin.spatial.motion import IDENTITY_TRANSFORM, Transform, transform_multiply
from adjoin.spatial.scalar import Scalar, sqrt
from adjoin.spatial.vector import Vector3
from adjoin.trace import Scratch, loop, maximum, scratch, table

CHEAP = frozenset((*product(("sphere", "capsule"), ("sphere", "capsule", "plane")), ("sphere", "box")))
"""Pairs of kinds whose narrow phase costs no more than a test of bounding boxes."""


class Shapes:
    """The shapes that can touch, where they are now, in arrays of the kernel.

    Args:
        state: the robot.
        used: the numbers of these shapes in the model.
    """

    def __init__(self, state: State, used: Sequence[int]):
        robot = state.robot
        self.terrain = robot.terrain if isinstance(robot, OnTerrain) else None
        geometries = [robot.model.geometries[index] for index in used]
        bodies = sorted({geometry.body for geometry in geometries})
        poses = scratch([x for body in bodies for x in _flat(state.pose(body))], checked=False)
        placed = Records([_flat(robot.geometries[index]) for index in used])
        of_body = indices_table([bodies.index(geometry.body) for geometry in geometries])

        def place(i: Any, array: Scratch) -> Scratch:
            body = of_body[i] * 12
            pose = transform_multiply(transform([poses[body + k] for k in range(12)]), transform(placed[i]))
            for k, x in enumerate(_flat(pose)):
                array[i * 12 + k] = x
            return array

        self.poses = loop(len(used), place, scratch(12 * len(used), checked=False, cleared=False))
        sizes = robot.numbers("geometry_size")
        self.sizes = Records([tuple(sizes[index]) for index in used])
        self.radii = Records(
            [(bounding_radius(geometry, sizes[i]),) for geometry, i in zip(geometries, used, strict=True)]
        )
        self.halves = Records([bounding_box(geometry, sizes[i]) for geometry, i in zip(geometries, used, strict=True)])
        self.number = {index: i for i, index in enumerate(used)}
        counts = [len(geometry.vertices) for geometry in geometries]
        if any(counts):
            self.vertices = table([x for geometry in geometries for x in geometry.vertices], checked=False)
            self.starts = indices_table([0, *accumulate(counts)][:-1])
            self.counts, self.most = indices_table(counts), max(counts)
            self.faces = Faces.of(geometries)

    def pose(self, i: Any) -> Transform:
        """Of a shape in the world."""
        return transform([self.poses[i * 12 + k] for k in range(12)])

    def center(self, i: Any) -> Vector3:
        """Return the origin of a shape in the world, m."""
        return vector.vector3([self.poses[i * 12 + 9 + k] for k in range(3)])

    def shape(self, kind: Any, i: Any) -> Any:
        """A shape, by its place among those that can touch; terrain as a `Terrain`."""
        if kind == "terrain":
            return self.terrain
        vertices: Vertices | tuple[()] = ()
        if kind == "hull":
            vertices = Vertices(self.vertices, self.starts[i], self.counts[i], self.most, self.faces)
        return Shape(kind, vector.vector3(self.sizes[i]), self.pose(i), vertices)


def spheres_near(shapes: Shapes, kinds: tuple[str, str], a: Any, b: Any, margin: Scalar) -> Any:
    """Whether bounding spheres are nearer than the margin; of a plane, whether the sphere is. Terrain always is."""
    apart = vector.subtract(shapes.center(a), shapes.center(b))
    if kinds[1] == "terrain":
        return vector.dot(apart, apart) < math.inf
    if kinds[1] == "plane":
        axis = vector.vector3([shapes.poses[b * 12 + 3 * k + 2] for k in range(3)])
        return vector.dot(axis, apart) < shapes.radii[a][0] + margin
    most = shapes.radii[a][0] + shapes.radii[b][0] + margin
    return vector.dot(apart, apart) < most * most


def boxes_near(shapes: Shapes, kinds: tuple[str, str], a: Any, b: Any, margin: Scalar) -> Any:
    """Whether no face of the box around one shape is farther than the margin from the box around the other."""
    (one, first), (other, second) = shapes.pose(a), shapes.pose(b)
    apart = vector.subtract(first, second)
    if kinds[1] == "plane":
        axis = vector.vector3([other[k][2] for k in range(3)])
        return vector.dot(axis, apart) < _reach(vector.apply_transposed(one, axis), shapes.halves[a]) + margin
    near: Any = True
    sides = shapes.halves[a], shapes.halves[b]
    for axes, others, own, its in ((one, other, *sides), (other, one, *sides[::-1])):
        for k in range(3):
            axis = vector.vector3([axes[i][k] for i in range(3)])
            most = own[k] + _reach(vector.apply_transposed(others, axis), its) + margin
            near = (abs(vector.dot(axis, apart)) < most) & near
    return near


def _reach(direction: Vector3, halves: Sequence[Scalar]) -> Scalar:
    """How far a box reaches in a direction."""
    return sum((abs(x) * half for x, half in zip(direction, halves, strict=True)), 0.0)


def bounding_box(geometry: Geometry, size: Sequence[Scalar]) -> list[Scalar]:
    """Half of the sides of a box about the origin of a shape's frame that contains it; 0 for a plane."""
    if geometry.kind == "plane":
        return [0.0, 0.0, 0.0]
    if geometry.kind == "hull":
        return [max(abs(vertex[k]) for vertex in geometry.vertices) for k in range(3)]
    return list(bounds(core_of(Shape(geometry.kind, vector.vector3(size), IDENTITY_TRANSFORM)))[1])


def bounding_radius(geometry: Geometry, size: Sequence[Scalar]) -> Scalar:
    """The greatest distance of a shape's points from the origin of its frame; 0 for a plane, which has no end."""
    match geometry.kind:
        case "sphere":
            return size[0]
        case "capsule":
            return size[0] + size[1]
        case "cylinder":
            return sqrt(size[0] * size[0] + size[1] * size[1])
        case "box":
            return sqrt(size[0] * size[0] + size[1] * size[1] + size[2] * size[2])
        case "ellipsoid":
            return maximum(maximum(size[0], size[1]), size[2])
        case "hull":
            return max(math.hypot(*vertex) for vertex in geometry.vertices)
    return 0.0


def _flat(pose: Transform) -> list[Scalar]:
    rotation, position = pose
    return [*(x for row in rotation for x in row), *position]


def transform(numbers: Sequence[Scalar]) -> Transform:
    """A pose of twelve numbers: rotation row by row, then position."""
    x = tuple(numbers)
    return ((x[0:3], x[3:6], x[6:9]), x[9:12])  # type: ignore[return-value]
