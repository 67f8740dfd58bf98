import html
import math
import re
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import adjoin
from adjoin.errors import InputError
from adjoin.spatial.rotation import from_quaternion, quaternion_log

pytest.importorskip("viser")

from adjoin.viewer import Viewer, record
from adjoin.viewer.motion import motion

BALL = """<robot name="shoulder"><link name="base"/><link name="arm"><inertial><mass value="1"/>
  <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="ball" type="spherical"><parent link="base"/><child link="arm"/></joint></robot>"""


@pytest.fixture
def open_viewer():
    opened = []

    def start(model, *arguments, **options):
        opened.append(Viewer(model, *arguments, port=0, **options))
        return opened[-1]

    yield start
    for viewer in opened:
        viewer.close()


def drawn(viewer):
    """Positions and matrices of all instances that move, in the order of the parts, (environments, parts, ...)."""
    count, parts = len(viewer.q), len(viewer._scene.drawing.parts)
    position, rotation = np.zeros((count, parts, 3)), np.zeros((count, parts, 3, 3))
    for handle, chosen in viewer._scene._moving:
        position[:, chosen] = handle.batched_positions.reshape(count, -1, 3)
        turns = tuple(handle.batched_wxyzs.reshape(count, -1, 4).astype(float).transpose(2, 0, 1))
        rotation[:, chosen] = np.moveaxis(np.array(from_quaternion(turns)), (0, 1), (-2, -1))
    return position, rotation


def slider(viewer, name):
    joint, _, sliders = next(row for row in viewer._sliders._joints if row[0].name == name)
    return sliders if joint.nq > 1 else sliders[0]


def test_every_shape_is_where_forward_kinematics_has_it(open_viewer):
    model = adjoin.robots.load("a1")
    viewer = open_viewer(model, 3, spacing=2.0)
    q = model.random((3,))
    viewer.show(q)
    poses = adjoin.forward_kinematics(model, q.double()).numpy()
    frames = [frame.name for frame in model.frames]
    places = np.array([(-1.0, -1.0, 0.0), (1.0, -1.0, 0.0), (-1.0, 1.0, 0.0)])
    position, rotation = drawn(viewer)
    for index, shape in enumerate(model.geometries):
        link = model.frames[frames.index(shape.link)]
        pose = poses[:, frames.index(shape.link)]
        inverse = np.linalg.inv(np.vstack([np.c_[np.array(link.rotation), link.position], (0, 0, 0, 1)]))
        local = inverse @ np.vstack([np.c_[np.array(shape.rotation), shape.position], (0, 0, 0, 1)])
        expected = pose @ local
        assert position[:, index] == pytest.approx(expected[:, :3, 3] + places, abs=1e-5)
        assert rotation[:, index] == pytest.approx(expected[:, :3, :3], abs=1e-5)


def test_without_a_key_frame_a_robot_stands_on_the_ground(open_viewer):
    model = adjoin.load(adjoin.robots.source("panda"), floating_base=True)
    viewer = open_viewer(replace(model, name="arm", keyframes=()))
    lowest = [part.mesh.vertices * part.scale for part in viewer._scene.drawing.parts]
    position, rotation = drawn(viewer)
    lowest = [(r @ points.T)[2].min() + p[2] for p, r, points in zip(position[0], rotation[0], lowest, strict=True)]
    assert min(lowest) == pytest.approx(0.0, abs=1e-6)
    assert viewer.q[0, 2] > 0.05


def test_only_this_machine_can_reach_the_page(open_viewer):
    viewer = open_viewer(adjoin.robots.load("two_link"))
    port = int(viewer.url.rsplit(":", 1)[1])
    assert viewer.url == f"http://127.0.0.1:{port}"
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):  # an address that a server on all interfaces would answer
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_a_notebook_embeds_the_page(open_viewer):
    viewer = open_viewer(adjoin.robots.load("two_link"))
    assert f'<iframe src="{viewer.url}"' in viewer._repr_html_()


def test_sliders_have_the_limits_of_their_joints_and_move_only_them(open_viewer):
    model = adjoin.robots.load("panda")
    viewer = open_viewer(model)
    assert [row[0].name for row in viewer._sliders._joints] == [j.name for j in model.joints if j.mimic is None]
    elbow = slider(viewer, "panda_joint4")
    assert (elbow.min, elbow.max) == pytest.approx((model.joints[3].lower, model.joints[3].upper), abs=1e-3)
    assert elbow.min >= model.joints[3].lower
    before = viewer.q.clone()
    elbow.value = -1.0
    assert viewer.q[0].tolist() == pytest.approx([*before[0, :3].tolist(), -1.0, *before[0, 4:].tolist()])


def test_sliders_follow_what_is_shown_and_change_nothing_by_it(open_viewer):
    model = adjoin.robots.load("panda")
    viewer = open_viewer(model)
    far = torch.full((model.nq,), 10.0)
    viewer.show(far)
    assert slider(viewer, "panda_joint4").value == slider(viewer, "panda_joint4").max
    assert viewer.q.tolist() == [far.tolist()]


def test_the_sliders_of_a_base_are_its_place_and_its_angles(open_viewer):
    viewer = open_viewer(adjoin.robots.load("go2"), 2)
    viewer._sliders._environment.value = 1
    before = viewer.q.clone()
    sliders = slider(viewer, "root_joint")
    for control, value in zip(sliders, (0.5, -0.25, 1.0, 0.3, -0.2, 2.5), strict=True):
        control.value = value
    assert torch.equal(viewer.q[0], before[0])
    assert viewer.q[1, :3].tolist() == [0.5, -0.25, 1.0]
    assert viewer.q[1, 3:7].norm() == pytest.approx(1.0)
    viewer.show(viewer.q)
    assert [control.value for control in sliders] == pytest.approx([0.5, -0.25, 1.0, 0.3, -0.2, 2.5], abs=1e-6)


def test_a_ball_joint_turns_no_farther_than_its_greatest_angle(open_viewer):
    viewer = open_viewer(adjoin.load(BALL).with_parameters({"upper": torch.tensor([0.5])}))
    roll, pitch, _ = slider(viewer, "ball")
    roll.value = 0.3
    assert quaternion_log(tuple(viewer.q[0].tolist())) == pytest.approx((0.3, 0.0, 0.0), abs=1e-6)
    pitch.value = 1.5
    assert math.hypot(*quaternion_log(tuple(viewer.q[0].tolist()))) == pytest.approx(0.5, abs=1e-6)


def test_a_motion_plays_halts_and_goes_step_by_step(open_viewer):
    model = adjoin.robots.load("two_link")
    viewer = open_viewer(model)
    q = torch.linspace(0.0, 1.0, 2001)[:, None] * torch.ones(2)
    viewer.play(q, 1e-3)
    deadline = time.monotonic() + 10.0
    while viewer.q[0, 0] < 0.05 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert viewer.q[0, 0] >= 0.05
    viewer._playback.pause()
    viewer._playback._seek(10)
    assert viewer.q[0, 0] == pytest.approx(10 * 17 * 0.5e-3)  # 59 frames a second
    viewer._playback._step(-1)
    assert viewer.q[0, 0] == pytest.approx(9 * 17 * 0.5e-3)
    assert slider(viewer, model.joints[0].name).value == pytest.approx(viewer.q[0, 0].item())
    viewer.show(q[0])
    assert viewer.q.tolist() == [[0.0, 0.0]]


def test_contact_forces_are_arrows_from_where_they_act(open_viewer):
    model = adjoin.robots.load("ball")
    viewer = open_viewer(model, 2, spacing=1.0)
    weight = model.mass * 9.81
    position = torch.tensor([[[[0.1, 0.0, 0.0]], [[0.0, 0.2, 0.0]]]])
    force = torch.tensor([[[[0.0, 0.5 * weight, 0.0]], [[0.0, 0.0, 100.0 * weight]]]])
    viewer.play(model.neutral((1, 2)), 1e-3, {"position": position, "force": force})
    viewer._playback.pause()
    arrows = viewer._scene._arrows
    assert arrows.batched_positions == pytest.approx(np.array([[-0.4, 0.0, 0.0], [0.5, 0.2, 0.0]]))
    half, capped = arrows.batched_scales[:, 2]
    assert capped == pytest.approx(3.0 * half)
    along = [np.array(from_quaternion(tuple(turn)))[:, 2] for turn in arrows.batched_wxyzs.astype(float)]
    assert np.array(along) == pytest.approx(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), abs=1e-6)
    viewer.show(model.neutral())
    assert not arrows.visible


def test_frames_and_the_center_of_mass_are_drawn_when_asked_for(open_viewer):
    model = adjoin.robots.load("panda")
    viewer = open_viewer(model)
    viewer._frames.value = viewer._center_of_mass.value = True
    q = model.random()
    viewer.show(q)
    expected = adjoin.forward_kinematics(model, q, output="quaternion")[..., :3].numpy()
    assert viewer._scene._axes.batched_positions == pytest.approx(expected, abs=1e-5)
    center = adjoin.center_of_mass(model, q).numpy()
    assert viewer._scene._balance.batched_positions[0] == pytest.approx(center, abs=1e-5)
    viewer._frames.value = False
    assert not viewer._scene._axes.visible


def test_terrain_lies_under_every_environment(open_viewer):
    heights = torch.zeros(3, 5)
    viewer = open_viewer(adjoin.robots.load("ball"), 4, terrain=adjoin.Heightfield(heights, 0.5))
    places = viewer._scene.offsets
    assert np.ptp(places[:, 0]) == pytest.approx(1.05 * 2.0)


def test_the_outputs_of_a_rollout_can_be_recorded_for_many_robots(tmp_path):
    model = adjoin.robots.load("ball")
    sim = adjoin.Simulator(model, dt=5e-3)
    start = model.neutral((6,))
    start[:, 2] = 0.2
    path = sim.rollout(sim.state(start), torch.zeros(40, 6, 0), outputs=["contacts"])
    file = record(model, path.q, 5e-3, tmp_path / "balls.html", contacts=path.outputs["contacts"], title="<six>")
    page = file.read_text()
    assert "<title>&lt;six&gt;</title>" in page
    assert "window.__VISER_EMBED_DATA__" in page
    assert html.escape(page, quote=True) in file._repr_html_()


def test_the_page_about_the_viewer_runs(monkeypatch, tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs" / "viewer.md").read_text()
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "viewer.md", "exec"), scope)
    assert re.match(r"http://127\.0\.0\.1:\d+\n[89]\d{5}\n$", capsys.readouterr().out)
    assert 1e6 < (tmp_path / "sixty_four.html").stat().st_size < 3e6


def test_motions_are_thinned_and_forces_with_them():
    model = adjoin.robots.load("two_link")
    q = torch.arange(101.0)[:, None].expand(101, 2)
    contacts = {
        "position": torch.zeros(100, 1, 1, 3),
        "force": torch.arange(100.0)[:, None, None, None].expand(100, 1, 1, 3),
    }
    found = motion("play", model, q, 0.01, contacts, rate=20.0)
    assert found.period == pytest.approx(0.05)
    assert found.q[:, 0, 0].tolist() == list(range(0, 101, 5))
    assert found.forces.force[:, 0, 0, 0].tolist() == [*range(0, 100, 5), 99]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda viewer: viewer.show(torch.zeros(3)), r"Viewer.show: q of 'two_link' must have the shape .* got \(3,\)"),
        (lambda viewer: viewer.show(torch.zeros(5, 2)), "Viewer.show: q is of 5 environments, the viewer has 1"),
        (lambda viewer: viewer.show(torch.tensor([0.0, math.nan])), r"Viewer.show: q is not finite at \(0,\)"),
        (
            lambda viewer: viewer.play(torch.zeros(2), 0.1),
            r"Viewer.play: q .* \(steps, environments, 2\) .* got \(2,\)",
        ),
        (lambda viewer: viewer.play(torch.zeros(4, 2), 0.0), "Viewer.play: dt must be a positive number"),
        (
            lambda viewer: viewer.play(torch.zeros(4, 2), 0.1, {"cost": 1}),
            "output 'contacts' of a rollout; got a mapping of cost",
        ),
        (lambda viewer: Viewer("go2"), "Viewer: the model must be an adjoin.Model, got a str"),
        (lambda viewer: Viewer(viewer.model, 0), "Viewer: environments must be a whole number of at least 1, got 0"),
        (
            lambda viewer: Viewer(viewer.model, host="192.0.2.1"),
            "Viewer: cannot listen on host '192.0.2.1': .*127.0.0.1",
        ),
        (lambda viewer: Viewer(viewer.model, port=99999), "Viewer: port must be a whole number from 0 to 65535"),
    ],
)
def test_mistakes_are_told(open_viewer, call, message):
    viewer = open_viewer(adjoin.robots.load("two_link"))
    with pytest.raises(InputError, match=message):
        call(viewer)


def test_without_viser_the_error_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "viser", None)
    model = adjoin.robots.load("two_link")
    with pytest.raises(InputError, match=r"pip install 'adjoin\[viewer\]'"):
        Viewer(model)
    with pytest.raises(InputError, match=r"pip install 'adjoin\[viewer\]'"):
        record(model, torch.zeros(4, 2), 0.1, tmp_path / "no.html")
