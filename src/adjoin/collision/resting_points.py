"""Where a hull with faces rests on a plane: at its lowest vertex and at others of the face that looks down there.

These are MuJoCo's points. Which others of a face there are depends on the hull alone: all of a triangle or a
quadrangle, and of a larger face a quadrangle that is grown from that vertex while its area grows.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from adjoin.model.parts import Geometry

NONE = -1


@lru_cache(maxsize=256)
def resting_points(hull: Geometry) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each vertex of a hull that has faces, the faces around it.

    Returns:
        Normals of the faces of all vertices, one vertex after the other, (n, 3); for each of them up to three further
        vertices of the face, or `NONE`, (n, 3); and how many faces each vertex has.
    """
    points = np.array(hull.vertices)
    around: list[list[tuple[np.ndarray, list[int]]]] = [[] for _ in points]
    for face in rings(hull.faces):
        ring = points[face]
        normal = np.cross(ring, np.roll(ring, -1, 0)).sum(0)
        normal /= max(np.linalg.norm(normal), 1e-300)
        for start, vertex in enumerate(face):
            others = _quadrangle(np.roll(ring, -start, 0))
            turned = face[start:] + face[:start]
            around[vertex].append((normal, [turned[k] for k in others] + [NONE] * (3 - len(others))))
    faces = [face for vertex in around for face in vertex]
    normals, others = (np.array([face[k] for face in faces]) for k in range(2))
    return normals, others, np.array([len(vertex) for vertex in around])


@lru_cache(maxsize=256)
def linked_faces(hull: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each vertex of a hull that has faces, how the faces around it go on.

    Returns:
        For each face of all vertices, in the order of `resting_points`: where its vertices begin, how many it has, and
        those before and after the vertex, (n, 4); and the vertices of all faces, each clockwise seen from outside.
    """
    around: list[list[tuple[int, int, int, int]]] = [[] for _ in hull.vertices]
    found: list[int] = []
    for face in rings(hull.faces):
        for place, vertex in enumerate(face):
            around[vertex].append((len(found), len(face), face[place - 1], face[(place + 1) % len(face)]))
        found += face[::-1]
    return np.array([face for vertex in around for face in vertex], dtype=float), np.array(found, dtype=float)


def rings(faces: Sequence[float]) -> list[list[int]]:
    """Return the vertices of each face of `Geometry.faces`."""
    numbers = np.array(faces, dtype=int)
    return [part[:-1].tolist() for part in np.split(numbers, np.flatnonzero(numbers == NONE) + 1) if len(part)]


def _quadrangle(ring: np.ndarray) -> list[int]:
    """Return which three corners, with the first of a convex polygon, are its corners that count."""
    count = len(ring)
    if count <= 4:
        return list(range(1, count))
    b, c, d = 1, 2, 3

    def area(b: int, c: int, d: int) -> float:
        across, other = ring[c] - ring[0], ring[d] - ring[b]
        return float(np.linalg.norm(np.cross(across, other)))

    most = area(b, c, d)
    while d + 1 < count and area(b, c, d + 1) > most:
        d += 1
        most = area(b, c, d)
        while c + 1 < d and area(b, c + 1, d) > most:
            c += 1
            most = area(b, c, d)
        while b + 1 < c and area(b + 1, c, d) > most:
            b += 1
            most = area(b, c, d)
    return [b, c, d]
