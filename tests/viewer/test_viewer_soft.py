"""Soft bodies in pages: where their points are, their colors, recordings, and what is refused."""

import numpy as np
import pytest
import torch

import adjoin
from adjoin.continuum import box_mesh
from adjoin.errors import InputError

pytest.importorskip("viser")

from adjoin.viewer import SoftBody, Viewer, record, record_soft
from adjoin.viewer.soft import COLORS, SoftScene


def cube(steps=4):
    mesh = box_mesh((1, 1, 1), (0.1, 0.1, 0.1))
    up = torch.linspace(0.0, 0.3, steps)[:, None, None] * torch.tensor([0.0, 0.0, 1.0])
    return mesh, torch.tensor(mesh.nodes).float() + up


def test_the_surface_of_a_mesh_is_closed_and_looks_outwards():
    for tetrahedra in (False, True):
        mesh = box_mesh((2, 1, 1), (0.2, 0.1, 0.1), tetrahedra)
        a, b, c = np.moveaxis(mesh.nodes[mesh.surface()], 1, 0)
        assert np.isclose((np.cross(a, b) * c).sum() / 6, 0.2 * 0.1 * 0.1)  # the volume inside


def test_bodies_move_in_the_viewer_beside_the_robot_with_colors_of_their_values():
    mesh, points = cube()
    model = adjoin.robots.load("ball")
    q = torch.tensor([0.0, 0, 1, 1, 0, 0, 0]).repeat(4, 1)
    values = torch.linspace(300.0, 400.0, 4)[:, None].expand(4, 8)
    with Viewer(model, port=0) as viewer:
        body = SoftBody(points, mesh.surface(), values, "temperature, K")
        viewer.play(q, 0.1, soft=[body])
        viewer._playback.pause()
        viewer._playback._seek(3)
        soft = viewer._playback._soft
        assert isinstance(soft, SoftScene)
        assert np.allclose(soft._surfaces[0].vertices, points[3])
        assert np.allclose(soft._clouds[0].points, points[3], atol=1e-3)
        assert soft._clouds[0].colors.tolist() == [COLORS[-1].tolist()] * 8
        assert soft.bodies[0][4] == "temperature, K: 300 to 400"
        viewer.play(q, 0.1)
        assert viewer._playback._soft is None
        plain = viewer._playback._motion
        assert len(viewer._save(plain._replace(soft=[body]))) > len(viewer._save(plain))  # pages are compressed


def test_recordings_have_bodies_and_robots(tmp_path):
    mesh, points = cube(40)
    page = record_soft([SoftBody(points, mesh.surface()), SoftBody(points[..., [0, 2]])], 0.02, tmp_path / "soft.html")
    assert "<title>soft bodies</title>" in page.read_text(encoding="utf-8")
    few = record_soft(SoftBody(points[:1]), 0.02, tmp_path / "few.html")
    assert few.stat().st_size < page.stat().st_size  # every frame is in it
    q = torch.tensor([0.0, 0, 1, 1, 0, 0, 0]).repeat(40, 1)
    both = record(adjoin.robots.load("ball"), q, 0.02, tmp_path / "both.html", soft=[SoftBody(points)])
    assert both.stat().st_size > 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (SoftBody(torch.zeros(4, 3)), r"points must have the shape \(steps, n, 3\), got \(4, 3\)"),
        (SoftBody(torch.full((2, 3, 3), torch.nan)), "point 0 is not finite in step 0"),
        (SoftBody(torch.zeros(2, 3, 3), [[0, 1, 3]]), "triangles must be indices below 3"),
        (SoftBody(torch.zeros(2, 3, 3), values=torch.zeros(2)), r"values must have the shape \(2, 3\)"),
    ],
)
def test_what_is_wrong_is_named(body, message, tmp_path):
    with pytest.raises(InputError, match=message):
        record_soft(body, 0.1, tmp_path / "soft.html")


def test_bodies_of_other_steps_are_refused(tmp_path):
    q = torch.tensor([0.0, 0, 1, 1, 0, 0, 0]).repeat(5, 1)
    with pytest.raises(InputError, match="soft body 0 has 4 steps, q has 5"):
        record(adjoin.robots.load("ball"), q, 0.1, tmp_path / "both.html", soft=[SoftBody(torch.zeros(4, 3, 3))])
