"""Meshes from files by meshio, and fields of meshes and particles to files of VTK for ParaView."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import torch

from adjoin.continuum.mesh import Mesh
from adjoin.errors import InputError
from adjoin.extras import needed

VTK_CELL = {1: 1, 3: 5, 4: 10, 8: 12}
"""VTK's number of a kind of cell by its number of nodes: vertex, triangle, tetrahedron, hexahedron."""


def read_mesh(path: str | Path, scale: float = 1.0) -> Mesh:
    """Return the tetrahedra or hexahedra of a file in any format that meshio reads: Gmsh, Abaqus, VTK, ...

    Args:
        path: of the file.
        scale: of its unit of length, 1e-3 for millimeters.
    """
    meshio: Any = needed("meshio", "continuum", "reading a mesh")
    if not Path(path).is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        found = meshio.read(path)
    except (meshio.ReadError, SystemExit) as error:
        raise InputError(f"{path}: meshio cannot read it: {error}") from error
    kinds = {kind: cells for kind, cells in found.cells_dict.items() if kind in ("tetra", "hexahedron")}
    if len(kinds) != 1:
        raise InputError(
            f"{path}: a mesh has tetrahedra or hexahedra, of first order; this file has "
            f"{', '.join(found.cells_dict) or 'no cells'}"
        )
    ((_, cells),) = kinds.items()
    used, numbers = np.unique(cells, return_inverse=True)
    return Mesh(scale * np.asarray(found.points, float)[used], numbers.reshape(cells.shape))


def write_vtk(
    path: str | Path,
    points: Any,
    cells: Any = None,
    point_data: Mapping[str, Any] | None = None,
    cell_data: Mapping[str, Any] | None = None,
) -> None:
    """Write an unstructured grid, a .vtu file.

    Args:
        path: of the file.
        points: (points, 2 or 3).
        cells: indices of points, (cells, 1, 3, 4 or 8); by default every point is one, as particles are.
        point_data: fields of the points, (points,) or (points, components).
        cell_data: fields of the cells.
    """
    places = _array(points)
    if places.shape[1] == 2:
        places = np.column_stack([places, np.zeros(len(places))])
    indices = np.arange(len(places))[:, None] if cells is None else _array(cells).astype(int)
    corners = indices.shape[1]
    if corners not in VTK_CELL:
        raise InputError(f"{path}: cells have 1, 3, 4 or 8 nodes, got {corners}")
    sections = [
        f"<Points>{_data('points', places)}</Points>",
        "<Cells>",
        _data("connectivity", indices.ravel()),
        _data("offsets", corners * (1 + np.arange(len(indices)))),
        _data("types", np.full(len(indices), VTK_CELL[corners])),
        "</Cells>",
    ]
    for tag, fields, count in (("PointData", point_data, len(places)), ("CellData", cell_data, len(indices))):
        sections.append(f"<{tag}>")
        for name, field in (fields or {}).items():
            values = _array(field)
            if len(values) != count:
                raise InputError(f"{path}: the field {name!r} has {len(values)} values for {count} {tag[:-4].lower()}s")
            sections.append(_data(name, values.reshape(count, -1).squeeze(-1) if values[0].size == 1 else values))
        sections.append(f"</{tag}>")
    piece = f'<Piece NumberOfPoints="{len(places)}" NumberOfCells="{len(indices)}">'
    text = ['<VTKFile type="UnstructuredGrid" version="1.0" byte_order="LittleEndian">', "<UnstructuredGrid>", piece]
    Path(path).write_text("\n".join([*text, *sections, "</Piece>", "</UnstructuredGrid>", "</VTKFile>", ""]))


def write_vtk_series(path: str | Path, times: Sequence[float], files: Sequence[str | Path]) -> None:
    """Write a .pvd file that lists files of moments, so that ParaView plays them."""
    if len(times) != len(files):
        raise InputError(f"{path}: {len(times)} times for {len(files)} files")
    folder = Path(path).parent
    rows = []
    for time, file in zip(times, files, strict=True):
        name = Path(file).relative_to(folder) if Path(file).is_relative_to(folder) else Path(file)
        rows.append(f'<DataSet timestep="{float(time)!r}" file={_quoted(str(name))}/>')
    head, tail = ['<VTKFile type="Collection" version="1.0">', "<Collection>"], ["</Collection>", "</VTKFile>", ""]
    Path(path).write_text("\n".join([*head, *rows, *tail]))


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def _quoted(text: str) -> str:
    return '"' + escape(text, {'"': "&quot;"}) + '"'


def _data(name: str, values: np.ndarray) -> str:
    kind = "Int64" if values.dtype.kind in "iub" else "Float64"
    components = f' NumberOfComponents="{values[0].size}"' if values.ndim > 1 else ""
    flat = values.reshape(-1)
    text = (
        " ".join(map(str, flat.astype(int).tolist()))
        if kind == "Int64"
        else " ".join(map(repr, flat.astype(float).tolist()))
    )
    return f'<DataArray type="{kind}" Name={_quoted(name)}{components} format="ascii">{text}</DataArray>'
