"""Faces of the convex hull of a few points."""

import numpy as np


def hull_faces(points: np.ndarray) -> np.ndarray | None:
    """Return the triangles of a convex hull, grown point by point (Preparata and Hong 1977).

    Args:
        points: (n, 3).

    Returns:
        Indices of points, (m, 3), counterclockwise seen from outside; None for points in a plane or on a line.
    """
    start = _tetrahedron(points)
    if start is None:
        return None
    inside = points[start].mean(0)
    faces = np.array([_outward(points, inside, [start[k] for k in range(4) if k != left]) for left in range(4)])
    for index, point in enumerate(points):
        corners = points[faces]
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        height = np.einsum("ij,ij->i", normals, point - corners[:, 0])
        seen = height > 1e-9 * np.abs(points - inside).max() * np.linalg.norm(normals, axis=1)
        if seen.any():
            edges = {(int(f[k]), int(f[k - 2])) for f in faces[seen] for k in range(3)}
            rim = [(a, b, index) for a, b in edges if (b, a) not in edges]
            faces = np.concatenate([faces[~seen], np.array(rim)])
    return faces


def hull_planes(points: np.ndarray) -> np.ndarray:
    """Return the planes that bound a convex hull: rows (x, y, z, d), where inside x·p <= d; none for flat ones."""
    faces = hull_faces(points)
    if faces is None:
        return np.zeros((0, 4))
    a, b, c = (points[faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    planes = np.concatenate([normals, np.einsum("ij,ij->i", normals, a)[:, None]], 1)
    _, first = np.unique(planes.round(9), axis=0, return_index=True)
    return planes[np.sort(first)]


def _tetrahedron(points: np.ndarray) -> list[int] | None:
    """Return four points that span a volume, if there are any."""
    first = int(points[:, 0].argmin())
    far = points - points[first]
    second = int((far**2).sum(1).argmax())
    across = np.cross(far, far[second])
    third = int((across**2).sum(1).argmax())
    up = np.abs(far @ np.cross(far[second], far[third]))
    fourth = int(up.argmax())
    extent = np.abs(far).max()
    return [first, second, third, fourth] if up[fourth] > 1e-9 * extent**3 else None


def _outward(points: np.ndarray, inside: np.ndarray, face: list[int]) -> list[int]:
    a, b, c = points[face]
    return face if np.cross(b - a, c - a) @ (a - inside) > 0.0 else face[::-1]
