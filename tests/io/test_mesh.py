"""Meshes in STL, OBJ and Collada: the same surface whatever the format, and nothing read besides the file."""

import builtins
import json
import re
import socket
import struct
import sys

import numpy as np
import pytest
from malformed import DAE

from adjoin.errors import Location, ModelError
from adjoin.io.mesh import read_mesh
from adjoin.io.xml import Element

ELEMENT = Element("mesh", Location("robot.urdf", 7), {})
VERTICES = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
FACES = np.array([[0, 1, 2], [0, 1, 3]])
PLACE = b"<translate>0 0 3</translate>"


def read(data, name):
    return read_mesh(data, name, ELEMENT)


def triangles(surfaces):
    return np.concatenate([surface.vertices[surface.faces] for surface in surfaces])


def binary_stl(header=b""):
    rows = b"".join(bytes(12) + VERTICES[face].astype("<f4").tobytes() + b"\0\0" for face in FACES)
    return header.ljust(80) + struct.pack("<I", len(FACES)) + rows


def ascii_stl(start="solid a\n", end="endsolid a\n", indent=" "):
    facet = "facet normal 0 0 1\nouter loop\n{}endloop\nendfacet\n"
    rows = ["".join(f"{indent}vertex {x:g} {y:g} {z:g}\n" for x, y, z in VERTICES[face]) for face in FACES]
    return (start + "".join(facet.format(row) for row in rows) + end).encode()


def obj(vertex="v {:g} {:g} {:g}\n", face="f {} {} {}\n", line="\n"):
    text = "".join(vertex.format(*row) for row in VERTICES) + "".join(face.format(*(row + 1)) for row in FACES)
    return text.replace("\n", line).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.stl", binary_stl()),
        ("A.STL", binary_stl(b"solid, though it is not text")),
        ("a.stl", ascii_stl()),
        ("a.stl", ascii_stl(end="")),
        ("a.stl", ascii_stl().replace(b"\n", b"\r\n").upper()),
        ("a.stl", ascii_stl(indent="\t\t")),
        ("a.obj", obj()),
        ("a.obj", obj(line="\r\n")),
        ("a.obj", obj("v  {:g}\t{:g} {:g} 1.0\n")),
        ("a.obj", b"# from a tool\nmtllib /etc/passwd\no part\n" + obj("\tv {:.3e} {:+g} {:g} 0.1 0.2 0.3\n")),
        ("a.obj", b"vt 0 0\nvn 0 0 1\n" + obj(face="f {}/1/1 {}/1/1 {}/1/1\n")),
        ("a.dae", DAE.replace(b'meter="0.5"', b'meter="1"').replace(PLACE, b"")),
    ],
)
def test_every_way_to_write_a_mesh_is_the_same_surface(name, data):
    np.testing.assert_array_equal(triangles(read(data, name)), VERTICES[FACES])


def test_several_solids_are_all_read():
    both = ascii_stl() + ascii_stl("solid b\n", "")
    np.testing.assert_array_equal(triangles(read(both, "a.stl")), np.concatenate([VERTICES[FACES]] * 2))


def test_normals_that_are_no_numbers_do_not_matter(capfd):
    data = ascii_stl().replace(b"normal 0 0 1", b"normal a b c")
    np.testing.assert_array_equal(triangles(read(data, "a.stl")), VERTICES[FACES])
    assert capfd.readouterr() == ("", "")


def test_vertices_that_no_face_has_are_kept():
    (surface,) = read(obj() + b"v 5 5 5\n", "a.obj")
    assert surface.vertices.tolist() == [*VERTICES.tolist(), [5.0, 5.0, 5.0]]
    (cloud,) = read(b"v 1 2 3\nv 4 5 6\n", "a.obj")
    assert (cloud.vertices.tolist(), cloud.faces.shape) == ([[1, 2, 3], [4, 5, 6]], (0, 3))


def test_collada_is_placed_and_in_meters_and_its_up_axis_is_ignored():
    np.testing.assert_allclose(triangles(read(DAE, "a.dae")), 0.5 * (VERTICES[FACES] + (0.0, 0.0, 3.0)), atol=1e-7)


def test_nodes_of_collada_that_stand_twice_are_read_twice():
    twice = DAE.replace(b'<node id="n">', b'<node><instance_node url="#n"/></node><node id="n">')
    text = b"<library_nodes>" + DAE[DAE.find(b"<node") : DAE.find(b"</visual")] + b"</library_nodes><library_visual"
    twice = twice.replace(b"<library_visual", text, 1)
    assert len(triangles(read(twice, "a.dae"))) == 4


TRIANGLES = re.search(rb"<triangles.*</triangles>", DAE, re.DOTALL)[0]
POLYGONS = b"""<polylist count="1"><input semantic="VERTEX" source="#v" offset="0"/><vcount>%b</vcount>
  <p>0 1 2</p></polylist>"""


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (DAE.replace(TRIANGLES, re.sub(rb"<p>0 1 2", b"<p>0 1 -2", TRIANGLES)), "vertices that do not exist"),
        (DAE.replace(TRIANGLES, POLYGONS % b"300000000"), "claim 300000000 corners, each at least 3, but it lists 3"),
        (DAE.replace(TRIANGLES, POLYGONS % b"400000000 -399999997"), "claim 3 corners"),
        (DAE.replace(b"<node", b"<node>" * 200 + b"</node>" * 200 + b"<node", 1), "nested more than 100 deep"),
        (DAE.replace(b"<node", b"<node/>" * 40_000 + b"<node", 1), "more than 30000 elements"),
    ],
)
def test_collada_that_claims_what_it_does_not_have_is_refused(data, problem):
    with pytest.raises(ModelError, match=problem):
        read(data, "a.dae")


@pytest.mark.parametrize(
    ("accessor", "problem"),
    [
        ({"componentType": 5126, "count": 5, "type": "MAT4"}, "not 3 numbers"),
        ({"componentType": 5126, "count": 3_000_000, "type": "MAT4"}, "more than 12000000 numbers"),
    ],
)
def test_gltf_that_claims_what_it_does_not_have_is_refused(accessor, problem):
    tree = {
        "asset": {"version": "2.0"},
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [accessor, {"bufferView": 0, "componentType": 5125, "count": 3, "type": "SCALAR"}],
        "bufferViews": [{"buffer": 0, "byteLength": 12}],
        "buffers": [{"byteLength": 12, "uri": "data:application/octet-stream;base64,AAAAAAEAAAACAAAA"}],
    }
    with pytest.raises(ModelError, match=problem):
        read(json.dumps(tree).encode(), "a.gltf")


EFFECT = b"""<library_effects><effect id="e"><profile_COMMON>%b<technique sid="t">
  <lambert><diffuse>%b</diffuse></lambert></technique></profile_COMMON></effect></library_effects>
  <library_materials><material id="m"><instance_effect url="#e"/></material></library_materials><library_geometries>"""
BOUND = b"""<instance_geometry url="#g"><bind_material><technique_common>
  <instance_material symbol="paint" target="#m"/></technique_common></bind_material></instance_geometry>"""


def painted(diffuse, parameters=b""):
    data = DAE.replace(b"<library_geometries>", EFFECT % (parameters, diffuse)).replace(
        b"<tri", b'<tri material="paint"'
    )
    return data.replace(b'<tri material="paint"angles', b'<triangles material="paint"').replace(
        b'<instance_geometry url="#g"/>', BOUND
    )


def test_collada_has_plain_colors():
    assert read(DAE, "a.dae")[0].color is None
    assert read(painted(b"<color>1 0.5 -1 1</color>"), "a.dae")[0].color == (255, 127, 0)


def test_a_texture_that_is_missing_leaves_the_geometry():
    (surface,) = read(painted(b'<texture texture="none" texcoord="u"/>'), "a.dae")
    assert (surface.color, len(surface.faces)) == (None, 2)


def test_nothing_is_opened_besides_the_mesh(monkeypatch):
    read(DAE, "a.dae")  # what the parsers import
    image = b'<library_images><image id="i"><init_from>file:///etc/passwd</init_from></image></library_images>'
    sampler = (
        b'<newparam sid="f"><surface type="2D"><init_from>i</init_from></surface></newparam>'
        b'<newparam sid="s"><sampler2D><source>f</source></sampler2D></newparam>'
    )
    data = painted(b'<texture texture="s" texcoord="u"/>', sampler).replace(
        b"<library_effects>", image + b"<library_effects>"
    )
    for owner, name in ((builtins, "open"), (socket, "socket"), (socket, "create_connection")):
        monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("it opened something"))
    assert len(read(data, "a.dae")[0].faces) == 2
    assert len(triangles(read(b"mtllib http://example.org/a.mtl\nusemtl x\n" + obj(), "a.obj"))) == 2


@pytest.mark.parametrize(("package", "name"), [("trimesh", "a.stl"), ("trimesh", "a.obj"), ("collada", "a.dae")])
def test_a_missing_package_is_named(package, name, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    data = {"a.stl": binary_stl(), "a.obj": obj(), "a.dae": DAE}[name]
    with pytest.raises(ModelError, match=r"robot.urdf:7: <mesh>: .*pip install 'adjoin\[meshes\]'"):
        read(data, name)
