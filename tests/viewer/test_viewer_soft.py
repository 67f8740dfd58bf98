"""Soft bodies in pages: where their points are, their colors, recordings, and what is refused."""

import numpy as np
import pytest
import torch

import adjoin
from adjoin.continuum import Collider, Motion, box_mesh
from adjoin.errors import InputError

pytest.importorskip("viser")

from adjoin.viewer import SoftBody, Viewer, record, record_soft
from adjoin.viewer.legend import BANDS, COLORS
from adjoin.viewer.soft import ColliderScene, SoftScene


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
        viewer.play(q, 0.1, soft=[body, SoftBody(points, values=values)])
        viewer._playback.pause()
        viewer._playback._seek(3)
        soft = viewer._playback._soft
        assert isinstance(soft, SoftScene)
        assert [surface.visible for surface in soft._surfaces[0]] == [False] * (BANDS - 1) + [True]
        hottest = soft._surfaces[0][-1]
        assert np.allclose(hottest.vertices, points[3])
        assert np.array_equal(hottest.faces, mesh.surface())
        assert np.allclose(soft._clouds[1].points, points[3], atol=1e-3)
        assert soft._clouds[1].colors.tolist() == [COLORS[-1].tolist()] * 8
        assert all(text in soft.legend for text in ("temperature, K", ">300<", ">350<", ">400<"))
        viewer.play(q, 0.1)
        assert viewer._playback._soft is None
        plain = viewer._playback._motion
        saved = viewer._save(plain._replace(soft=[body]))
        assert len(saved) > len(viewer._save(plain))  # pages are compressed
        assert b"temperature, K" in saved


def test_every_triangle_is_in_the_band_of_its_mean_value():
    mesh, points = cube()
    values = points[..., 2] - points[:, :1, 2]  # from 0 to 0.1 m, in every step
    with Viewer(adjoin.robots.load("ball"), port=0) as viewer:
        scene = SoftScene(viewer._server, [SoftBody(points, mesh.surface(), values, "height, m")])
        for frame in range(4):
            scene.draw(frame)
            shown = [one for one in scene._surfaces[0] if one.visible]
            corners = np.concatenate([one.vertices[one.faces] for one in shown])
            assert len(corners) == 12  # each of them once
            assert len(shown) == 4  # below, above, and two kinds of triangles beside
            for one in shown:
                heights = one.vertices[one.faces][..., 2].mean(1) - float(points[frame, 0, 2])
                assert np.ptp(heights) < 1e-6


def test_colliders_are_drawn_where_they_are(tmp_path):
    kinds = [
        Collider("plane"),
        Collider("sphere", (0.1,)),
        Collider("capsule", (0.1, 0.2)),
        Collider("box", (0.1, 0.1, 0.1)),
        Collider("cylinder", (0.1, 0.2)),
        Collider("ellipsoid", (0.1, 0.2, 0.3)),
        Collider("hull", vertices=((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))),
    ]
    turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).expand(2, 7, 3, 3)
    place = torch.linspace(0.0, 0.1, 42).reshape(2, 7, 3)
    motion = Motion(place, turn, place, place)
    with Viewer(adjoin.robots.load("ball"), port=0) as viewer:
        scene = ColliderScene(viewer._server, kinds, motion, 1.0)
        scene.draw(1)
        assert np.isclose(scene.lowest, min(0.0, float(place[0, 2, 2]) - 0.3), atol=1e-6)
        for handle, collider, where in zip(scene._handles, kinds, place[1], strict=True):
            assert np.allclose(handle.position, where)
            assert np.allclose(np.abs(handle.wxyz), [0.5**0.5, 0.0, 0.0, 0.5**0.5])
            if collider.kind not in ("plane", "hull"):
                reach = np.abs(handle.vertices).max(0)
                size = {1: collider.size * 3, 2: (0.1, 0.1, 0.2 + 0.1 * (collider.kind == "capsule")), 3: collider.size}
                assert np.allclose(reach, size[len(collider.size)], atol=1e-6)
    _, points = cube()
    still = Motion.at_rest(torch.zeros(1, 3), None, 1)
    with pytest.raises(InputError, match=r"7 have positions \(steps, 7, 3\) and rotations .* got \(1, 1, 3\)"):
        record_soft(SoftBody(points), 0.1, tmp_path / "soft.html", colliders=kinds, motion=still)


def test_recordings_have_bodies_and_robots(tmp_path):
    mesh, points = cube(40)
    page = record_soft([SoftBody(points, mesh.surface()), SoftBody(points[..., [0, 2]])], 0.02, tmp_path / "soft.html")
    text = page.read_text(encoding="utf-8")
    assert "<title>soft bodies</title>" in text
    assert "linear-gradient" not in text[text.rindex("<body>") :]  # there are no values
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
