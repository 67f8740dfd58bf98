"""Where shapes are, and which pairs of them cannot touch: by spheres around them, then by boxes."""

import math
from collections.abc import Sequence
from itertools import accumulate, product
from typing import Any

from adjoin.collision.core import bounds, core_of
from adjoin.collision.records import Records, indices_table
from adjoin.collision.shape import TOGETHER, Faces, Shape, Vertices, padded
from adjoin.collision.terrain import OnTerrain
from adjoin.dynamics.state import State
from adjoin.model.parts import WORLD, Geometry
from adjoin.spatial import vector
from adjoin.spatial.motion import IDENTITY_TRANSFORM, Transform, transform_multiply, transform_point
from adjoin.spatial.scalar import Scalar, sqrt
from adjoin.spatial.vector import Vector3
from adjoin.trace import Scratch, loop, maximum, scratch, table

CHEAP = frozenset((*product(("sphere", "capsule"), ("sphere", "capsule", "plane")), ("sphere", "box")))
"""Pairs of kinds whose narrow phase costs no more than a test of bounding boxes."""


UNROLLED = 1_200
"""Pairs up to which each has code of its own that tests whether it is near, instead of one loop over tables."""


class Shapes:
    """The shapes that can touch, where they are now, in arrays of the kernel.

    Args:
        state: the robot.
        used: the numbers of these shapes in the model.
        unrolled: whether each shape has code of its own that finds its center.
    """

    def __init__(self, state: State, used: Sequence[int], unrolled: bool = False):
        robot = state.robot
        self.terrain = robot.terrain if isinstance(robot, OnTerrain) else None
        geometries = [robot.model.geometries[index] for index in used]
        bodies = sorted({geometry.body for geometry in geometries})
        self._bodies = scratch([x for body in bodies for x in _flat(state.pose(body))], checked=False)
        self._body = indices_table([12 * bodies.index(geometry.body) for geometry in geometries])
        placed = [robot.geometries[index] for index in used]
        self._placed = Records([_flat(pose) for pose in placed])

        sizes = robot.numbers("geometry_size")
        self.sizes = Records([tuple(sizes[index]) for index in used])
        bounds = [(geometry, sizes[i]) for geometry, i in zip(geometries, used, strict=True)]
        self.radii = Records([(bounding_radius(*bound),) for bound in bounds])
        boxes = [bounding_box(*bound) for bound in bounds]
        self.middles, self.halves = Records([middle for middle, _ in boxes]), Records([half for _, half in boxes])
        places = [transform_point(pose, vector.vector3(box[0])) for pose, box in zip(placed, boxes, strict=True)]
        middles = Records(places)

        planes = [i for i, geometry in enumerate(geometries) if geometry.kind == "plane"]
        self._axes = None  # of planes that stay where they are
        if planes and all(geometries[i].body == WORLD for i in planes):
            rows = [placed[i if i in planes else planes[0]][0] for i in range(len(used))]
            self._axes = Records([[row[2] for row in rotation] for rotation in rows])

        def locate(i: Any, centers: Scratch) -> Scratch:
            for k, x in enumerate(transform_point(self._carrier(i), vector.vector3(middles[i]))):
                centers[i * 3 + k] = x
            return centers

        self._centers: list[Vector3] = []
        if unrolled:
            poses = [state.pose(geometry.body) for geometry in geometries]
            self._centers = [transform_point(pose, place) for pose, place in zip(poses, places, strict=True)]
            self.centers = scratch([x for center in self._centers for x in center], checked=False)
        else:
            blank = scratch(3 * len(used), checked=False, cleared=False)
            self.centers = loop(len(used), locate, blank, detached=True)
        self.number = {index: i for i, index in enumerate(used)}
        counts = [len(geometry.vertices) for geometry in geometries]
        if any(counts):
            hulls = [padded(geometry.vertices) for geometry in geometries]
            self.vertices = table([x for hull in hulls for x in hull], checked=False)
            self.starts = indices_table([0, *accumulate(map(len, hulls))][:-1])
            self.counts, self.most = indices_table(counts), max(counts)
            self.blocks = indices_table([len(hull) // TOGETHER for hull in hulls])
            self.faces = Faces.of(geometries)

    def pose(self, i: Any) -> Transform:
        """Of a shape in the world: computed where it is asked for, since few shapes touch."""
        return transform_multiply(self._carrier(i), transform(self._placed[i]))

    def axis(self, i: Any) -> Vector3:
        """Return the normal of a plane, in the world."""
        return vector.vector3([row[2] for row in self.pose(i)[0]] if self._axes is None else self._axes[i])

    def _carrier(self, i: Any) -> Transform:
        """The pose of the body that a shape is on."""
        first = self._body[i]
        return transform([self._bodies[first + k] for k in range(12)])

    def middle(self, i: Any) -> Vector3:
        """Return the middle of the box around a shape, in its frame, m."""
        return vector.vector3(self.middles[i])

    def center(self, i: Any) -> Vector3:
        """Return the middle of the box around a shape, in the world, m."""
        if isinstance(i, int) and self._centers:
            return self._centers[i]
        return vector.vector3([self.centers[i * 3 + k] for k in range(3)])

    def shape(self, kind: Any, i: Any) -> Any:
        """A shape, by its place among those that can touch; terrain as a `Terrain`."""
        if kind == "terrain":
            return self.terrain
        vertices: Vertices | tuple[()] = ()
        if kind == "hull":
            box = self.middle(i), vector.vector3(self.halves[i])
            numbers = self.starts[i], self.counts[i], self.most, self.blocks[i]
            vertices = Vertices(self.vertices, *numbers, self.faces, box)
        return Shape(kind, vector.vector3(self.sizes[i]), self.pose(i), vertices)


def spheres_near(shapes: Shapes, kinds: tuple[str, str], a: Any, b: Any, within: Scalar) -> Any:
    """Whether the center of a shape is nearer than this to that of another, or to a plane. Terrain always is near."""
    apart = vector.subtract(shapes.center(a), shapes.center(b))
    if kinds[1] == "terrain":
        return vector.dot(apart, apart) < math.inf
    if kinds[1] == "plane":
        return vector.dot(shapes.axis(b), apart) < within
    return vector.dot(apart, apart) < within * within


def boxes_near(shapes: Shapes, kinds: tuple[str, str], a: Any, b: Any, margin: Scalar) -> Any:
    """Whether no face of the box around one shape is farther than the margin from the box around the other."""
    one, apart = shapes.pose(a)[0], vector.subtract(shapes.center(a), shapes.center(b))
    if kinds[1] == "plane":
        axis = shapes.axis(b)
        return vector.dot(axis, apart) < _reach(vector.apply_transposed(one, axis), shapes.halves[a]) + margin
    near: Any = True
    other = shapes.pose(b)[0]
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


def bounding_box(geometry: Geometry, size: Sequence[Scalar]) -> tuple[Sequence[Scalar], Sequence[Scalar]]:
    """The middle and half of the sides of a box in a shape's frame that contains it; 0 for a plane."""
    if geometry.kind == "plane":
        return vector.ZERO, vector.ZERO
    if geometry.kind == "hull":
        ends = [(min(side), max(side)) for side in zip(*geometry.vertices, strict=True)]
        return [0.5 * (low + high) for low, high in ends], [0.5 * (high - low) for low, high in ends]
    return bounds(core_of(Shape(geometry.kind, vector.vector3(size), IDENTITY_TRANSFORM)))


def bounding_radius(geometry: Geometry, size: Sequence[Scalar]) -> Scalar:
    """The greatest distance of a shape's points from the middle of its `bounding_box`; 0 for a plane, without end."""
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
            middle, _ = bounding_box(geometry, size)
            return max(math.dist(vertex, middle) for vertex in geometry.vertices)
    return 0.0


def _flat(pose: Transform) -> list[Scalar]:
    rotation, position = pose
    return [*(x for row in rotation for x in row), *position]


def transform(numbers: Sequence[Scalar]) -> Transform:
    """A pose of twelve numbers: rotation row by row, then position."""
    x = tuple(numbers)
    return ((x[0:3], x[3:6], x[6:9]), x[9:12])  # type: ignore[return-value]
