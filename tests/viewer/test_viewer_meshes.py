import math

import numpy as np
import pytest

import adjoin
from adjoin.viewer import mesh
from adjoin.viewer.parts import parts_of
from adjoin.viewer.visuals import read_visuals

CORNERS = np.array([(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])

BARE = """<robot name="bare">
  <link name="base"/>
  <link name="arm"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="hand"><inertial><origin xyz="0 0 -0.2"/><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="a" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/></joint>
  <joint name="b" type="continuous"><parent link="arm"/><child link="hand"/><origin xyz="0.3 0 0.4"/></joint>
</robot>"""

TETRAHEDRON = b"".join(
    b"facet\nouter loop\n" + b"".join(b"vertex %d %d %d\n" % corner for corner in face) + b"endloop\nendfacet\n"
    for face in (
        ((0, 0, 0), (0, 1, 0), (1, 0, 0)),
        ((0, 0, 0), (1, 0, 0), (0, 0, 1)),
        ((0, 0, 0), (0, 0, 1), (0, 1, 0)),
        ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    )
)

COLLADA = """<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema">
  <asset><unit meter="0.01"/><up_axis>Y_UP</up_axis></asset>
  <library_effects><effect id="e"><profile_COMMON><technique sid="t">
    <lambert><diffuse><color>1 0.5 0 1</color></diffuse></lambert>
    </technique></profile_COMMON></effect></library_effects>
  <library_materials><material id="m"><instance_effect url="#e"/></material></library_materials>
  <library_geometries><geometry id="g"><mesh>
    <source id="s"><float_array id="f" count="12">0 0 0 2 0 0 2 2 0 0 2 0</float_array>
      <technique_common><accessor source="#f" count="4" stride="3"><param name="X" type="float"/>
        <param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
    <vertices id="v"><input semantic="POSITION" source="#s"/></vertices>
    <polylist material="paint" count="1"><input semantic="VERTEX" source="#v" offset="1"/>
      <input semantic="NORMAL" source="#s" offset="0"/><vcount>4</vcount><p>0 0 0 1 0 2 0 3</p></polylist>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="scene"><node><translate>0 0 3</translate><rotate>0 0 1 90</rotate>
    <node><scale>1 2 1</scale><instance_geometry url="#g"><bind_material><technique_common>
      <instance_material symbol="paint" target="#m"/></technique_common></bind_material></instance_geometry></node>
  </node></visual_scene></library_visual_scenes>
</COLLADA>"""


def volume(surface):
    a, b, c = np.moveaxis(surface.vertices[surface.faces], 1, 0)
    return np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0


@pytest.mark.parametrize(
    ("surface", "expected"),
    [
        (mesh.sphere(64), 4.0 / 3.0 * math.pi),
        (mesh.cylinder(64), 2.0 * math.pi),
        (mesh.capsule(2.0, 64), 4.0 / 3.0 * math.pi + 4.0 * math.pi),
        (mesh.arrow(), math.pi * (0.4**2 * 0.72 + 0.28 / 3.0)),
        (mesh.box(), 8.0),
        (mesh.hull(np.concatenate([0.5 * CORNERS, CORNERS, 0.9 * CORNERS])), 8.0),
    ],
    ids=["sphere", "cylinder", "capsule", "arrow", "box", "hull"],
)
def test_surfaces_face_outward_and_hold_their_volume(surface, expected):
    assert volume(surface) == pytest.approx(expected, rel=0.03)


def test_the_hull_of_points_in_a_plane_is_a_thin_box():
    flat = CORNERS * (1.0, 1.0, 0.0)
    assert volume(mesh.hull(flat)) == pytest.approx(2.0 * 2.0 * 2e-3)


def test_only_sharp_edges_are_creased():
    unit = mesh.box()
    sharp = mesh.creased(unit.vertices, unit.faces)
    assert len(sharp.vertices) == 24
    assert len(mesh.creased(unit.vertices, unit.faces, degrees=100.0).vertices) == 8
    assert volume(sharp) == pytest.approx(8.0)
    ball = mesh.sphere(64)
    assert len(mesh.creased(ball.vertices, ball.faces).vertices) == len(np.unique(np.round(ball.vertices, 7), axis=0))


def test_links_without_shapes_are_balls_and_sticks_between_joints():
    arm_ball, arm_stick, hand_ball, hand_stick = parts_of(adjoin.load(BARE))
    for part, body, tip in ((arm_stick, 0, (0.3, 0.0, 0.4)), (hand_stick, 1, (0.0, 0.0, -0.2))):
        ends = part.mesh.vertices[np.abs(part.mesh.vertices[:, :2]).max(1) == 0.0] * part.scale
        found = ends @ np.array(part.rotation).T + part.position
        assert part.body == body
        assert np.unique(np.round(found, 6) + 0.0, axis=0) == pytest.approx(np.array(sorted([(0.0, 0.0, 0.0), tip])))
    assert (arm_ball.position, hand_ball.position) == ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


@pytest.fixture
def painted(tmp_path):
    (tmp_path / "part.stl").write_bytes(b"solid part\n" + TETRAHEDRON + b"endsolid\n")
    (tmp_path / "plate.dae").write_text(COLLADA)

    def write(*shapes):
        visuals = "".join(
            f'<visual><origin xyz="0 0 0.5" rpy="0 0 {math.pi / 2}"/><geometry>{shape}</geometry>{paint}</visual>'
            for shape, paint in shapes
        )
        collision = '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
        text = BARE.replace('<link name="hand">', f'<link name="hand">{visuals}{collision}')
        (tmp_path / "robot.urdf").write_text(text)
        return adjoin.load(text), tmp_path / "robot.urdf"

    return write


def test_visual_meshes_take_the_place_of_collision_shapes(painted):
    pytest.importorskip("trimesh")
    model, file = painted(
        ('<mesh filename="part.stl" scale="2 2 2"/>', '<material name="m"><color rgba="1 0 0.2 1"/></material>'),
        ('<mesh filename="plate.dae"/>', ""),
        ('<box size="1 2 3"/>', ""),
    )
    visuals = read_visuals(model, file)
    assert list(visuals) == ["hand"]
    part, plate, box = visuals["hand"]
    assert part.color == (255, 0, 51)
    assert part.scale == (2.0, 2.0, 2.0)
    assert volume(part.mesh) == pytest.approx(1.0 / 6.0)
    assert part.position == (0.0, 0.0, 0.5)
    assert np.array(part.rotation) @ (1.0, 0.0, 0.0) == pytest.approx((0.0, 1.0, 0.0))
    assert plate.color == (255, 127, 0)
    assert plate.mesh.vertices.min(0) == pytest.approx((-0.04, 0.0, 0.03))
    assert plate.mesh.vertices.max(0) == pytest.approx((0.0, 0.02, 0.03))
    assert box.scale == (0.5, 1.0, 1.5)
    assert [drawn.scale for drawn in parts_of(model, visuals) if drawn.body == 1] == [p.scale for p in visuals["hand"]]


@pytest.mark.parametrize(
    "name", ["missing.stl", "../part.stl", "http://example.org/part.stl", "part.glb", "points.obj"]
)
def test_a_link_whose_meshes_cannot_be_read_is_drawn_as_its_collision_shapes(painted, name):
    model, file = painted((f'<mesh filename="{name}"/>', ""))
    (file.parent / "part.glb").write_bytes(b"")
    (file.parent / "points.obj").write_bytes(b"v 1 2 3\n")
    with pytest.warns(UserWarning, match=rf"collision shapes: .*robot\.urdf:\d+: <mesh>.*{name.split('/')[-1][-4:]}"):
        visuals = read_visuals(model, file)
    assert visuals == {}
    (drawn,) = [part for part in parts_of(model, visuals) if part.body == 1]
    assert drawn.scale == (0.1, 0.1, 0.1)


def test_meshes_elsewhere_are_read_where_it_is_allowed(painted, tmp_path_factory):
    pytest.importorskip("trimesh")
    model, file = painted(('<mesh filename="package://parts/part.stl"/>', ""))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (file.parent / "part.stl").rename(elsewhere / "part.stl")
    (part,) = read_visuals(model, file, packages={"parts": elsewhere})["hand"]
    assert volume(part.mesh) == pytest.approx(1.0 / 6.0)


def test_an_mjcf_is_drawn_as_mujoco_shows_it(tmp_path):
    pytest.importorskip("mujoco")
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"
    (tmp_path / "part.obj").write_text(f"{corners}f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    file = tmp_path / "robot.xml"
    file.write_text(
        """<mujoco><asset><texture name="t" type="2d" builtin="flat" width="2" height="2"/>
        <material name="orange" rgba="1 0.5 0 1" texture="t"/><mesh file="part.obj"/></asset>
        <worldbody><geom type="plane" size="1 1 1"/>
          <body name="arm" pos="0 0 1"><joint name="j" pos="0 0 0.5"/>
            <geom type="mesh" mesh="part" material="orange" contype="0" conaffinity="0" group="2"/>
            <geom name="hull" size="0.3" group="3"/><geom size="0.1" rgba="0 0 1 1" pos="0 0 0.2"/>
            <geom size="0.1" rgba="0 0 1 0"/></body></worldbody></mujoco>"""
    )
    model = adjoin.load(file)
    (name, (part, ball)), *others = read_visuals(model, file).items()
    assert (name, others, part.color, ball.color) == ("arm", [], (255, 128, 0), (0, 0, 255))
    corners = np.unique((part.mesh.vertices @ np.array(part.rotation).T + part.position).round(6), axis=0)
    # The body's frame is at its joint's anchor, half a meter above the link's.
    np.testing.assert_allclose(corners, [(0, 0, -0.5), (0, 0, 0.5), (0, 1, -0.5), (1, 0, -0.5)], atol=1e-6)
    assert ball.position == pytest.approx((0, 0, -0.3))
    assert len(parts_of(model, read_visuals(model, file))) == 2
