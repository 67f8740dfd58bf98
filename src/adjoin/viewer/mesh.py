"""Triangle meshes of the shapes a robot is made of, of unit size where a scale does the rest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from adjoin.collision.hull_faces import hull_faces


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles.

    Attributes:
        vertices: (n, 3), m. Faces that share a vertex are shaded as one smooth surface.
        faces: (m, 3), indices of vertices, counterclockwise seen from outside.
    """

    vertices: np.ndarray
    faces: np.ndarray


@cache
def sphere(segments: int = 32) -> Mesh:
    """Return a sphere of radius 1."""
    return _turned([_arc(-math.pi / 2, math.pi / 2, segments)], segments)


@cache
def cylinder(segments: int = 32) -> Mesh:
    """Return a cylinder of radius 1 and half length 1, along z."""
    return _turned([[(0.0, -1.0), (1.0, -1.0)], [(1.0, -1.0), (1.0, 1.0)], [(1.0, 1.0), (0.0, 1.0)]], segments)


@cache
def capsule(half: float, segments: int = 32) -> Mesh:
    """Return a capsule of radius 1 along z; `half` is half the distance between the centers of its caps."""
    return _turned([_arc(-math.pi / 2, 0.0, segments, -half) + _arc(0.0, math.pi / 2, segments, half)], segments)


@cache
def arrow() -> Mesh:
    """Return an arrow from the origin to z = 1, with a head of radius 1."""
    shaft, head = 0.4, 0.72
    return _turned(
        [
            [(0.0, 0.0), (shaft, 0.0)],
            [(shaft, 0.0), (shaft, head)],
            [(shaft, head), (1.0, head)],
            [(1.0, head), (0.0, 1.0)],
        ],
        segments=16,
    )


@cache
def box() -> Mesh:
    """Return a box with half edges of 1."""
    square = np.array([(-1.0, -1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, 1.0), (-1.0, 1.0, 1.0)])
    flipped = square * (1.0, -1.0, -1.0)
    sides = [np.roll(side, turn, axis=1) for side in (square, flipped) for turn in range(3)]
    faces = [np.array([(0, 1, 2), (0, 2, 3)]) + 4 * side for side in range(6)]
    return Mesh(np.concatenate(sides), np.concatenate(faces))


def hull(points: np.ndarray) -> Mesh:
    """Return the convex hull of a few points, flat on its faces.

    Points in a plane, or on a line, have no hull: the box around them stands in for it.
    """
    faces = hull_faces(points)
    if faces is None:
        low, high = points.min(0), points.max(0)
        unit = box()
        return Mesh(0.5 * (low + high) + unit.vertices * np.maximum(0.5 * (high - low), 1e-3), unit.faces)
    return Mesh(points[faces].reshape(-1, 3), np.arange(3 * len(faces)).reshape(-1, 3))


def creased(vertices: np.ndarray, faces: np.ndarray, degrees: float = 35.0) -> Mesh:
    """Double the vertices along edges that are sharper than an angle, so that only the others look smooth."""
    vertices, merged = np.unique(np.round(vertices, 7), axis=0, return_inverse=True)
    faces = merged.reshape(-1)[faces]
    corners = vertices[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(normals, axis=1)
    faces, normals = faces[area > 0.0], normals[area > 0.0] / area[area > 0.0, None]
    corner = np.arange(faces.size).reshape(-1, 3)
    # Every edge from both its faces, the same edges side by side.
    ends = np.concatenate([corner[:, (k, (k + 1) % 3)] for k in range(3)])
    at = faces.reshape(-1)[ends]
    flip = at[:, 0] > at[:, 1]
    ends[flip], at[flip] = ends[flip, ::-1], at[flip, ::-1]
    order = np.lexsort(at.T)
    ends, at = ends[order], at[order]
    same = (at[1:] == at[:-1]).all(1)
    bend = np.einsum("ij,ij->i", normals[ends[1:, 0] // 3], normals[ends[:-1, 0] // 3])
    smooth = same & (bend > np.cos(np.radians(degrees)))
    pairs = np.concatenate([np.stack([ends[:-1][smooth][:, k], ends[1:][smooth][:, k]], 1) for k in range(2)])
    label = np.arange(faces.size)
    while True:  # the least number spreads among corners that belong together
        least = np.minimum(label[pairs[:, 0]], label[pairs[:, 1]])
        spread = label.copy()
        np.minimum.at(spread, pairs[:, 0], least)
        np.minimum.at(spread, pairs[:, 1], least)
        spread = spread[spread]  # a long strip would take a round for each of its corners
        if (spread == label).all():
            break
        label = spread
    labels, index = np.unique(label, return_inverse=True)
    return Mesh(vertices[faces.reshape(-1)[labels]], index.reshape(-1, 3))


def heights(values: np.ndarray, spacing: tuple[float, float], origin: Sequence[float]) -> Mesh:
    """Return the surface of a height field, (rows along y, columns along x)."""
    rows, columns = values.shape
    row, column = np.mgrid[:rows, :columns]
    vertices = np.stack([column * spacing[0], row * spacing[1], values], -1).reshape(-1, 3) + np.asarray(origin)
    here = (row * columns + column)[:-1, :-1].reshape(-1)
    right, above, corner = here + 1, here + columns, here + columns + 1
    return Mesh(vertices, np.concatenate([np.stack([here, right, corner], 1), np.stack([here, corner, above], 1)]))


def _arc(start: float, end: float, segments: int, shift: float = 0.0) -> list[tuple[float, float]]:
    """Return (radius, z) along an arc of radius 1 from an angle above the equator to another."""
    steps = max(2, round(segments / 2 * (end - start) / math.pi))
    angles = [start + (end - start) * k / steps for k in range(steps + 1)]
    return [(abs(math.cos(angle)), math.sin(angle) + shift) for angle in angles]


def _turned(profiles: Sequence[Sequence[tuple[float, float]]], segments: int) -> Mesh:
    """Return profiles of (radius, z), from below to above, turned about z; each is smooth, with edges between them."""
    turn = 2.0 * np.pi * np.arange(segments) / segments
    vertices, faces = [], []
    count = 0
    for profile in profiles:
        radius, z = np.array(profile).T[:, :, None]
        rings = np.stack([radius * np.cos(turn), radius * np.sin(turn), np.broadcast_to(z, (len(z), segments))], -1)
        here = count + np.arange(rings.shape[0] * segments).reshape(-1, segments)
        low, high = here[:-1], here[1:]
        low_next, high_next = np.roll(low, -1, 1), np.roll(high, -1, 1)
        for face in ((low, low_next, high_next), (low, high_next, high)):
            faces.append(np.stack(face, -1).reshape(-1, 3))
        vertices.append(rings.reshape(-1, 3))
        count += rings.shape[0] * segments
    return Mesh(np.concatenate(vertices), np.concatenate(faces))
