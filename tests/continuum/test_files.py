"""Files: what is written is what meshio reads; what cannot be read is named."""

import numpy as np
import pytest
import torch

from adjoin.continuum import box_mesh, read_mesh, write_vtk, write_vtk_series
from adjoin.errors import InputError

meshio = pytest.importorskip("meshio")


@pytest.mark.parametrize("tetrahedra", [False, True])
def test_meshes_and_fields_survive_a_file(tmp_path, tetrahedra):
    mesh = box_mesh((2, 1, 1), (0.2, 0.1, 0.1), tetrahedra)
    temperature = torch.linspace(300.0, 400.0, len(mesh.nodes), dtype=torch.float64)
    velocity = torch.rand(len(mesh.nodes), 3, dtype=torch.float64)
    power = np.arange(len(mesh.elements))
    file = tmp_path / "mesh.vtu"
    write_vtk(file, mesh.nodes, mesh.elements, {"temperature": temperature, "v & w": velocity}, {"power": power})
    found = meshio.read(file)
    assert np.array_equal(found.point_data["temperature"], temperature)
    assert np.array_equal(found.point_data["v & w"], velocity)
    assert np.array_equal(found.cell_data["power"][0], power)
    again = read_mesh(file, scale=2.0)
    assert np.array_equal(again.nodes, 2 * mesh.nodes)
    assert np.array_equal(again.elements, mesh.elements)


def test_particles_series_and_errors(tmp_path):
    points = torch.rand(5, 2)
    file = tmp_path / "particles.vtu"
    write_vtk(file, points, point_data={"speed": torch.ones(5)})
    assert np.array_equal(meshio.read(file).points[:, :2].astype(np.float32), points.numpy())
    write_vtk_series(tmp_path / "all.pvd", [0.0, 0.5], [file, file])
    assert (tmp_path / "all.pvd").read_text().count('file="particles.vtu"') == 2
    with pytest.raises(InputError, match=r"nowhere\.vtu: there is no such file"):
        read_mesh(tmp_path / "nowhere.vtu")
    with pytest.raises(InputError, match="a mesh has tetrahedra or hexahedra, of first order; this file has vertex"):
        read_mesh(file)
    with pytest.raises(InputError, match="the field 'speed' has 4 values for 5 points"):
        write_vtk(file, points, point_data={"speed": torch.ones(4)})
