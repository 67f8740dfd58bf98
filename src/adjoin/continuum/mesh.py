"""Meshes of hexahedra and tetrahedra: nodes, elements, volumes, conductances, neighbors; checked when made."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from adjoin.errors import InputError

CORNERS = np.array([[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1], [-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]])
"""Reference coordinates of a hexahedron's nodes, in the order of VTK."""

POINTS = CORNERS / np.sqrt(3.0)
"""Reference coordinates of a hexahedron's points of integration."""

LARGE = 1 << 17
"""Elements that are integrated at a time."""

HEX_FACES = np.array([[0, 3, 2, 1], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]])
TET_FACES = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
"""Nodes of each face, counterclockwise seen from outside."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """Nodes and elements of one kind.

    Attributes:
        nodes: positions, (nodes, 3), float64, in the caller's unit of length.
        elements: indices of nodes, (elements, 8) for hexahedra or (elements, 4) for tetrahedra, in VTK's order.
    """

    nodes: np.ndarray
    elements: np.ndarray

    def __post_init__(self):
        nodes, elements = np.asarray(self.nodes, float), np.asarray(self.elements)
        if nodes.ndim != 2 or nodes.shape[1] != 3 or not np.isfinite(nodes).all():
            raise InputError(f"mesh: nodes must be finite positions of shape (nodes, 3), got {nodes.shape}")
        if elements.ndim != 2 or elements.shape[1] not in (4, 8) or elements.dtype.kind not in "iu":
            raise InputError(
                f"mesh: elements must be integers of shape (elements, 8) for hexahedra or (elements, 4) for "
                f"tetrahedra, got {elements.dtype} of {elements.shape}"
            )
        unknown = (elements < 0) | (elements >= len(nodes))
        if unknown.any():
            element, corner = np.argwhere(unknown)[0]
            raise InputError(
                f"mesh: element {element} names node {elements[element, corner]}, but there are {len(nodes)} nodes, "
                f"0 to {len(nodes) - 1}"
            )
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "elements", elements.astype(np.int64))
        smallest = self.smallest_jacobian
        size = np.ptp(nodes[self.elements], axis=1).max(1)
        bad = np.flatnonzero(smallest <= 1e-12 * size**3)
        if len(bad):
            word = "degenerate" if abs(smallest[bad[0]]) <= 1e-12 * size[bad[0]] ** 3 else "inverted"
            raise InputError(
                f"mesh: element {bad[0]} (nodes {self.elements[bad[0]].tolist()}) is {word}: the determinant of its "
                f"Jacobian reaches {smallest[bad[0]]:.3g}; {len(bad)} such elements. Number its nodes in VTK's order"
            )

    @property
    def is_hexahedral(self) -> bool:
        """Return whether the elements are hexahedra."""
        return self.elements.shape[1] == 8

    @property
    def faces_of_element(self) -> np.ndarray:
        """Return the local nodes of each face of an element."""
        return HEX_FACES if self.is_hexahedral else TET_FACES

    @cached_property
    def smallest_jacobian(self) -> np.ndarray:
        """Return the smallest determinant of the Jacobian at an element's nodes, (elements,)."""
        x = self.nodes[self.elements]
        if not self.is_hexahedral:
            return _triple(*(x[:, i] - x[:, 0] for i in (1, 2, 3)))
        # At a corner the rows of the Jacobian are half the three edges that meet there.
        smallest = np.full(len(x), np.inf)
        for corner, place in enumerate(CORNERS):
            edges = []
            for axis in range(3):
                across = np.flatnonzero((place * np.where(np.arange(3) == axis, -1, 1) == CORNERS).all(1))[0]
                edges.append(-0.5 * place[axis] * (x[:, across] - x[:, corner]))
            smallest = np.minimum(smallest, _triple(*edges))
        return smallest

    def neighbors(self) -> np.ndarray:
        """Return the element on the other side of each face, (elements, faces); -1 where there is none."""
        faces = self.elements[:, self.faces_of_element]
        keys = np.sort(faces, -1).reshape(-1, faces.shape[-1])
        order = np.lexsort(keys.T[::-1])
        same = (keys[order][1:] == keys[order][:-1]).all(1)
        result = np.full(len(keys), -1, np.int64)
        first, second = order[:-1][same], order[1:][same]
        count = len(self.faces_of_element)
        result[first], result[second] = second // count, first // count
        return result.reshape(-1, count)

    def surface(self) -> np.ndarray:
        """Return the outer faces as triangles, (triangles, 3), counterclockwise seen from outside."""
        element, face = np.nonzero(self.neighbors() < 0)
        nodes = self.elements[element[:, None], self.faces_of_element[face]]
        return nodes if nodes.shape[1] == 3 else nodes[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)

    def face_geometry(self, nodes: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the area (elements, faces) and the outer unit normal (elements, faces, 3) of every face."""
        x = self.positions(nodes)[torch.as_tensor(self.elements[:, self.faces_of_element])]
        if self.is_hexahedral:
            twice = torch.linalg.cross(x[:, :, 2] - x[:, :, 0], x[:, :, 3] - x[:, :, 1])
        else:
            twice = torch.linalg.cross(x[:, :, 1] - x[:, :, 0], x[:, :, 2] - x[:, :, 0])
        length = twice.norm(dim=-1)
        return 0.5 * length, twice / length[..., None]

    def positions(self, nodes: torch.Tensor | None = None) -> torch.Tensor:
        """Return the nodes as a tensor, or check those given in their place."""
        if nodes is None:
            return torch.as_tensor(self.nodes)
        if tuple(nodes.shape) != self.nodes.shape:
            raise InputError(f"mesh: nodes must have the shape {self.nodes.shape}, got {tuple(nodes.shape)}")
        return nodes

    @property
    def reference_gradients(self) -> np.ndarray:
        """Return the gradients of an element's shape functions at its points of integration, (points, corners, 3)."""
        if self.is_hexahedral:
            return shape_gradients(POINTS)
        return np.array([[[-1.0, -1, -1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]])

    def determinants(self, x: torch.Tensor) -> torch.Tensor:
        """Return the determinants of the Jacobian at the points of integration for nodes at x, (*batch, nodes, 3).

        Returns:
            (*batch, elements, points); negative where an element is inverted.
        """
        reference = x.new_tensor(self.reference_gradients)
        parts = torch.as_tensor(self.elements, device=x.device).split(LARGE)
        jacobians = (torch.einsum("qai,...eaj->...eqij", reference, x[..., part, :]) for part in parts)
        return torch.cat([torch.linalg.det(jacobian) for jacobian in jacobians], -2)

    def integrals(self, nodes: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the volume of each corner and the conductance of each pair of corners, at unit conductivity.

        Args:
            nodes: positions that take the place of the mesh's own, (nodes, 3); gradients pass to them.

        Returns:
            ∫ N_a dV, (elements, corners), and ∫ ∇N_a · ∇N_b dV, (elements, corners, corners).
        """
        x = self.positions(nodes)
        x = x[torch.as_tensor(self.elements, device=x.device)]
        if len(x) > LARGE:  # the gradients at all points of all elements would take gigabytes
            parts = [self._integrals(part) for part in x.split(LARGE)]
            return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        return self._integrals(x)

    def _integrals(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the integrals of elements whose corners are given, (elements, corners, 3)."""
        if self.is_hexahedral:
            values = x.new_tensor((1 + POINTS[:, None] * CORNERS).prod(-1) / 8)
            weight = 1.0
        else:
            values = x.new_full((1, 4), 0.25)
            weight = 1 / 6
        reference = x.new_tensor(self.reference_gradients)
        jacobian = torch.einsum("qai,eaj->eqij", reference, x)
        determinant = torch.linalg.det(jacobian) * weight
        gradient = torch.linalg.solve(jacobian, reference.transpose(1, 2))  # (elements, points, 3, corners)
        volumes = torch.einsum("eq,qa->ea", determinant, values)
        return volumes, torch.einsum("eq,eqia,eqib->eab", determinant, gradient, gradient)


def _triple(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the determinants of matrices with these rows, (..., 3) each."""
    return (
        a[..., 0] * (b[..., 1] * c[..., 2] - b[..., 2] * c[..., 1])
        + a[..., 1] * (b[..., 2] * c[..., 0] - b[..., 0] * c[..., 2])
        + a[..., 2] * (b[..., 0] * c[..., 1] - b[..., 1] * c[..., 0])
    )


def shape_gradients(points: np.ndarray) -> np.ndarray:
    """Return the gradients of a hexahedron's shape functions at reference points, (points, 8, 3)."""
    factors = 1 + points[:, None] * CORNERS  # (points, 8, 3)
    others = np.stack([factors[..., [1, 2]], factors[..., [0, 2]], factors[..., [0, 1]]], -2).prod(-1)
    return CORNERS * others / 8


def box_mesh(cells: tuple[int, int, int], size: tuple[float, float, float], tetrahedra: bool = False) -> Mesh:
    """Return a box from the origin to `size`, of so many cells along x, y and z; a cell is cut into six tetrahedra."""
    if min(cells) < 1 or min(size) <= 0:
        raise InputError(f"box_mesh: cells and size must be positive, got {cells} and {size}")
    axes = [np.linspace(0, length, count + 1) for count, length in zip(cells, size, strict=True)]
    z, y, x = np.meshgrid(axes[2], axes[1], axes[0], indexing="ij")
    nodes = np.stack([x.ravel(), y.ravel(), z.ravel()], 1)
    number = np.arange(len(nodes)).reshape(x.shape)
    corners = []
    for dx, dy, dz in (CORNERS + 1) // 2:
        ends = [count + offset for count, offset in zip(cells, (dx, dy, dz), strict=True)]
        corners.append(number[dz : ends[2], dy : ends[1], dx : ends[0]].ravel())
    elements = np.stack(corners, 1)
    if tetrahedra:  # the six that share the diagonal from corner 0 to corner 6
        ways = [[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]]
        elements = elements[:, ways].reshape(-1, 4)
    return Mesh(nodes, elements)


def connected_parts(elements: np.ndarray, nodes: int) -> np.ndarray:
    """Return for every node the smallest node that elements connect it with, (nodes,): one number a part."""
    part = np.arange(nodes)
    while True:
        smallest = part.copy()
        np.minimum.at(smallest, elements, part[elements].min(1, keepdims=True))
        smallest = smallest[smallest]
        if (smallest == part).all():
            return part
        part = smallest


def sum_at_nodes(index: np.ndarray, values: torch.Tensor, nodes: int) -> torch.Tensor:
    """Return for every node the sum of the values whose index names it, (nodes, ...), with the same bits every time.

    Args:
        index: of a node for each value, (...).
        values: (*index.shape, ...).
        nodes: how many there are.
    """
    rows = torch.as_tensor(index, device=values.device).ravel()
    values = values.reshape(len(rows), *values.shape[index.ndim :])
    total = values.new_zeros((nodes, *values.shape[1:]))
    if values.is_cuda:  # there index_add is not deterministic, and on a CPU this one is not
        return total.index_put((rows,), values, accumulate=True)
    return total.index_add(0, rows, values)
