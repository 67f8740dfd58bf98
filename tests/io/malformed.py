"""Malformed robot files, by name. What each is told is written down in malformed_messages.txt.

A case is the document, or a function that makes files in a folder and returns what to load, and options of `load`.
"""

import io
import json
import os
import struct
import zipfile

import numpy as np
from safetensors import numpy as safetensors

from adjoin.io import store
from adjoin.robots import pendulum

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
LIMIT = '<limit lower="-1" upper="1" velocity="1" effort="1"/>'
ENDS = '<parent link="base"/><child link="arm"/>'

CASES: dict[str, tuple] = {}


def case(name, source, **options):
    assert name not in CASES, name
    CASES[name] = (source, options)


def robot(*parts, name="r"):
    """A document with the parts on lines of their own, from line 2."""
    return "\n".join([f'<robot name="{name}">', *parts, "</robot>"])


def arm(joint="", link=INERTIAL, kind="revolute", limit=LIMIT, ends=ENDS, name="j", after=""):
    """Two links and a joint; the arm is on line 3 and the joint on line 4."""
    return robot(
        '<link name="base"/>',
        f'<link name="arm">{link}</link>',
        f'<joint name="{name}" type="{kind}">{ends}{limit}{joint}</joint>',
        after,
    )


def inertial(mass='<mass value="1"/>', values=(1, 0, 0, 1, 0, 1), origin=""):
    names = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
    text = " ".join(f'{key}="{value}"' for key, value in zip(names, values, strict=True))
    return arm(link=f"<inertial>{origin}{mass}<inertia {text}/></inertial>")


def shape(text):
    return arm(link=INERTIAL + f"\n<collision><geometry>{text}</geometry></collision>")


def extended(*lines, version='version="1"'):
    return arm(after="\n".join([f"<adjoin {version}>", *lines, "</adjoin>"]))


# Files that are no documents ------------------------------------------------------------------------------------------

case("empty text", "")
case("empty bytes", b"")
case("only space", " \n\t ")
case("not xml", b"hello there")
case("binary", bytes(range(256)))
case("no such file", "no/such/robot.urdf")
case("a folder", lambda folder: folder)
case("a name with a null", "robot\0.urdf")
case("unclosed element", '<robot name="r">\n<link name="a">')
case("cut inside a tag", '<robot name="r">\n<link name="a"')
case("cut after the declaration", '<?xml version="1.0"?>')
case("mismatched tags", '<robot name="r">\n<link name="a"></joint></robot>')
case("attribute without quotes", "<robot name=r></robot>")
case("attribute twice", '<robot name="r" name="s"></robot>')
case("two outermost elements", '<robot name="r"/><robot name="s"/>')
case("doctype", '<!DOCTYPE robot>\n<robot name="r"/>')
case(
    "external entity",
    '<?xml version="1.0"?>\n<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<robot name="&x;"/>',
)
case("billion laughs", '<!DOCTYPE z [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><robot name="&b;"/>')
case("undeclared entity", '<robot name="&nbsp;"/>')
case("unknown encoding", b'<?xml version="1.0" encoding="klingon"?><robot name="r"/>')
case("multi-byte codec", b'<?xml version="1.0" encoding="utf-7"?><robot name="r"/>')
case("latin-1 bytes called utf-8", b'<?xml version="1.0" encoding="utf-8"?>\n<robot name="caf\xe9"/>')
case("utf-32", '<robot name="r"/>'.encode("utf-32"))
case("lone surrogate", '<robot name="\ud800"/>')
case("null inside", b'<robot name="r">\0</robot>')
case("too deep", '<robot name="r">' + "<a>" * 200 + "</a>" * 200 + "</robot>")
case("too many elements", '<robot name="r">' + "<a/>" * 30_001 + "</robot>")
case("too large", b"<robot>" + b" " * (16 * 1024 * 1024) + b"</robot>")
case("sdf", '<sdf version="1.6"/>')
case("html", "<html><body/></html>")
case("mujoco include file", "<mujocoinclude/>")
case("a zip file", b"PK\x03\x04" + bytes(100))

# The robot element ----------------------------------------------------------------------------------------------------

case("robot without a name", "<robot><link name='a'/></robot>")
case("robot with an empty name", "<robot name=''><link name='a'/></robot>")
case("no links", robot())
case("xacro element", robot('<xacro:include filename="x"/>'))
case("xacro macro", robot('<link name="a"/>', '<xacro:leg side="left"/>'))
case("xacro expression as a name", robot('<link name="${side}_leg"/>'))
case("xacro expression as a number", inertial(mass='<mass value="${m}"/>'))
case("xacro argument", robot('<link name="$(arg name)"/>'))
case("misspelled link", robot('<lnk name="a"/>'))
case("misspelled joint", robot('<link name="a"/>', '<joints name="j"/>'))
case("two extensions", robot('<link name="a"/>', '<adjoin version="1"/>', '<adjoin version="1"/>'))

# Links ----------------------------------------------------------------------------------------------------------------

case("link without a name", robot("<link/>"))
case("link with an empty name", robot('<link name=" "/>'))
case("link name with space around it", robot('<link name=" a"/>'))
case("link name with a control character", robot('<link name="a&#9;b"/>'))
case("very long name", robot(f'<link name="{"a" * 2000}"/>'))
case("two links of one name", robot('<link name="a"/>', '<link name="a"/>'))
case("misspelled inertial", robot('<link name="a">', "<intertial/></link>"))
case("misspelled collision", robot('<link name="a">', "<colision/></link>"))
case("two inertials", robot('<link name="a">', INERTIAL, INERTIAL, "</link>"))
case(
    "inertial without mass",
    arm(link='<inertial>\n<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'),
)
case("inertial without inertia", arm(link='<inertial>\n<mass value="1"/></inertial>'))
case("mass without value", inertial(mass="<mass/>"))
case("mass twice", inertial(mass='<mass value="1"/>\n<mass value="2"/>'))
case("misspelled mass", inertial(mass='<mas value="1"/>'))
case(
    "inertia without izz",
    arm(link='<inertial><mass value="1"/>\n<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0"/></inertial>'),
)
case("moving link without inertial", arm(link=""))
case("moving link without mass", inertial(mass='<mass value="0"/>', values=(0, 0, 0, 0, 0, 0)))
case("negative mass", inertial(mass='<mass value="-1"/>'))
case("inertia without mass", inertial(mass='<mass value="0"/>'))
case("negative moment", inertial(values=(-1, 0, 0, 1, 0, 1)))
case("indefinite inertia", inertial(values=(1, 2, 0, 1, 0, 1)))
case("triangle inequality", inertial(values=(1, 0, 0, 1, 0, 3)))
case(
    "triangle inequality on a fixed link", robot('<link name="a">' + INERTIAL.replace('izz="1"', 'izz="5"') + "</link>")
)
case("zero inertia of a moving link", inertial(values=(0, 0, 0, 0, 0, 0)))
case("a rod without thickness", inertial(values=(1, 0, 0, 1, 0, 0)))
case("floating base without mass", robot('<link name="a"/>'), floating_base=True)
case("origin with two numbers", inertial(origin='<origin xyz="1 2"/>'))
case("origin with four numbers", inertial(origin='<origin rpy="1 2 3 4"/>'))
case("origin twice", inertial(origin="<origin/>\n<origin/>"))

# Numbers --------------------------------------------------------------------------------------------------------------

for label, word in {
    "nan": "nan",
    "NaN": "NaN",
    "inf": "inf",
    "negative infinity": "-inf",
    "Infinity": "Infinity",
    "a word": "one",
    "a comma": "1,5",
    "two points": "1.2.3",
    "hexadecimal": "0x10",
    "hexadecimal float": "0x1p3",
    "underscore": "1_000",
    "a unit": "1kg",
    "two signs": "--1",
    "only a sign": "-",
    "only a point": ".",
    "only an exponent": "e5",
    "an open exponent": "1e",
    "too large": "1e999",
    "fullwidth digits": "１２",
    "arabic digits": "٣",
    "a fraction": "1/2",
    "a percent sign": "50%",
    "two numbers": "1 2",
    "true": "true",
    "long": "1" * 200,
    "fortran": "1d3",
}.items():
    case(f"number: {label}", inertial(mass=f'<mass value="{word}"/>'))
case("number: empty", inertial(mass='<mass value=""/>'))
case("vector: a comma", inertial(origin='<origin xyz="0, 0, 1"/>'))
case("vector: nan", inertial(origin='<origin xyz="0 nan 1"/>'))
case("vector: empty", inertial(origin='<origin xyz=""/>'))
case("vector: brackets", inertial(origin='<origin xyz="[0 0 1]"/>'))

# Joints ---------------------------------------------------------------------------------------------------------------

case("joint without a name", arm().replace('<joint name="j"', "<joint"))
case("joint without a type", arm().replace(' type="revolute"', ""))
case("unknown joint type", arm(kind="screw"))
case("joint type in capitals", arm(kind="Revolute"))
case("mujoco's joint type", arm(kind="hinge"))
case("joint without a parent", arm(ends='<child link="arm"/>'))
case("joint without a child", arm(ends='<parent link="base"/>'))
case("parent without link", arm(ends='<parent name="base"/><child link="arm"/>'))
case("two parents", arm(ends='<parent link="base"/>\n<parent link="base"/><child link="arm"/>'))
case("unknown parent", arm(ends='<parent link="bse"/><child link="arm"/>'))
case("unknown child", arm(ends='<parent link="base"/><child link="hand"/>'))
case("parent is child", arm(ends='<parent link="arm"/><child link="arm"/>'))
case("two joints of one name", arm(after=f'<joint name="j" type="fixed">{ENDS}</joint>'))
case("link with two parents", arm(after=f'<joint name="k" type="fixed">{ENDS}</joint>'))
case("two roots", robot('<link name="a"/>', '<link name="b"/>'))
case("three roots", robot('<link name="a"/>', '<link name="b"/>', '<link name="c"/>'))
LOOP = '<joint name="{}" type="fixed"><parent link="{}"/><child link="{}"/></joint>'
case(
    "a loop of all links",
    robot('<link name="a"/>', '<link name="b"/>', LOOP.format("j", "a", "b"), LOOP.format("k", "b", "a")),
)
case(
    "a loop beside the tree",
    robot(
        *(f'<link name="{x}"/>' for x in "abcd"),
        LOOP.format("j", "b", "c"),
        LOOP.format("k", "c", "d"),
        LOOP.format("l", "d", "b"),
    ),
)
case("zero axis", arm('\n<axis xyz="0 0 0"/>'))
case("tiny axis", arm('\n<axis xyz="0 0 1e-12"/>'))
case("long axis", arm('\n<axis xyz="0 0 2"/>'))
case("short axis", arm('\n<axis xyz="1 1 0"/>'), repair=("limits",))
case("rounded axis", arm('\n<axis xyz="0.707 0.707 0"/>'))
case("axis without xyz", arm("\n<axis/>"))
case("axis with one number", arm('\n<axis xyz="1"/>'))
case("nan axis", arm('\n<axis xyz="nan 0 1"/>'))
case("axis twice", arm('<axis xyz="1 0 0"/>\n<axis xyz="1 0 0"/>'))
case("zero axis of a slider", arm('\n<axis xyz="0 0 0"/>', kind="prismatic"))
case("zero normal of a plane", arm('\n<axis xyz="0 0 0"/>', kind="planar"))
case("misspelled axis", arm('\n<axes xyz="1 0 0"/>'))
case("revolute without limit", arm(limit=""))
case("prismatic without limit", arm(limit="", kind="prismatic"))
case("reversed limits", arm(limit='<limit lower="1" upper="-1" velocity="1" effort="1"/>'))
case("limit without velocity", arm(limit='<limit lower="-1" upper="1" effort="1"/>'))
case("limit without effort", arm(limit='<limit lower="-1" upper="1" velocity="1"/>'))
case("limit at infinity", arm(limit='<limit lower="-inf" upper="inf" velocity="1" effort="1"/>'))
case("negative effort", arm(limit='<limit lower="-1" upper="1" velocity="1" effort="-1"/>'))
case("negative velocity", arm(limit='<limit lower="-1" upper="1" velocity="-1" effort="1"/>'))
case("limit twice", arm(LIMIT))
case("misspelled limit", arm("<limits/>"))
case("negative damping", arm('\n<dynamics damping="-1"/>'))
case("negative friction", arm('\n<dynamics friction="-0.1"/>'))
case("damping that is no number", arm('\n<dynamics damping="low"/>'))
case("mimic without a joint", arm("\n<mimic/>"))
case("mimic with a ratio beyond bounds", arm('\n<mimic joint="j" multiplier="1e20"/>'))
case("mimic of nothing", arm('\n<mimic joint="k"/>'))
case("mimic of itself", arm('\n<mimic joint="j"/>'))
case("mimic with a bad multiplier", arm('\n<mimic joint="j" multiplier="nan"/>'))
THREE = [
    '<link name="a"/>',
    *(f'<link name="{x}">{INERTIAL}</link>' for x in "bcd"),
]
FOLLOW = '<joint name="{}" type="{}"><parent link="{}"/><child link="{}"/>{}<mimic joint="{}"/></joint>'
case(
    "mimic cycle of two",
    robot(
        *THREE[:3],
        FOLLOW.format("j", "revolute", "a", "b", LIMIT, "k"),
        FOLLOW.format("k", "revolute", "b", "c", LIMIT, "j"),
    ),
)
case(
    "mimic cycle of three",
    robot(
        *THREE,
        FOLLOW.format("j", "revolute", "a", "b", LIMIT, "k"),
        FOLLOW.format("k", "revolute", "b", "c", LIMIT, "l"),
        FOLLOW.format("l", "revolute", "c", "d", LIMIT, "j"),
    ),
)
case(
    "mimic of a fixed joint",
    robot(*THREE[:3], LOOP.format("j", "a", "b"), FOLLOW.format("k", "revolute", "b", "c", LIMIT, "j")),
)
case(
    "mimic of a free joint",
    robot(
        *THREE[:3],
        '<joint name="j" type="floating"><parent link="a"/><child link="b"/></joint>',
        FOLLOW.format("k", "revolute", "b", "c", LIMIT, "j"),
    ),
)
case(
    "planar joint that mimics",
    robot(
        *THREE[:3],
        f'<joint name="j" type="revolute"><parent link="a"/><child link="b"/>{LIMIT}</joint>',
        FOLLOW.format("k", "planar", "b", "c", "", "j"),
    ),
)

CHAIN = [
    f'<link name="m{i}">{INERTIAL}</link>'
    f'<joint name="j{i}" type="continuous"><parent link="{f"m{i - 1}" if i else "base"}"/><child link="m{i}"/>'
    + (f'<mimic joint="j{i - 1}" multiplier="1e9"/>' if i else "")
    + "</joint>"
    for i in range(60)
]
case("mimic chain of growing ratios", robot('<link name="base"/>', *CHAIN[:5]))
case("mimic chain without end", robot('<link name="base"/>', *(part.replace("1e9", "1") for part in CHAIN)))
case(
    "too many links",
    robot(
        *(f'<link name="l{i}"/>' for i in range(5001)), *(LOOP.format(f"j{i}", "l0", f"l{i}") for i in range(1, 5001))
    ),
)

# Shapes and meshes ----------------------------------------------------------------------------------------------------

case("collision without geometry", arm(link=INERTIAL + "\n<collision/>"))
case("geometry without a shape", shape(""))
case("geometry with two shapes", shape('<sphere radius="1"/><sphere radius="1"/>'))
case("unknown shape", shape('<cone radius="1"/>'))
case("sphere without radius", shape("<sphere/>"))
case("sphere of no size", shape('<sphere radius="0"/>'))
case("negative radius", shape('<sphere radius="-1"/>'))
case("box without size", shape("<box/>"))
case("box with one number", shape('<box size="1"/>'))
case("negative box", shape('<box size="1 -1 1"/>'))
case("cylinder without length", shape('<cylinder radius="1"/>'))
case("negative length", shape('<cylinder radius="1" length="-1"/>'))
case("capsule without radius", shape('<capsule length="1"/>'))
case("nan size", shape('<box size="1 nan 1"/>'))
case("misspelled geometry", arm(link=INERTIAL + "\n<collision><geomtry/></collision>"))
MESH = '<mesh filename="{}"/>'
case("mesh without filename", shape("<mesh/>"))
case("mesh in a text without folder", shape(MESH.format("a.stl")))
case("mesh of a web address", shape(MESH.format("http://example.org/a.stl")))
case("mesh of a file address", shape(MESH.format("file:///etc/passwd")))
case("mesh of an unknown package", shape(MESH.format("package://nowhere/a.stl")))
case("mesh of no size", shape('<mesh filename="a.stl" scale="1 0 1"/>'))


def with_files(document, files):
    def make(folder):
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        (folder / "robot.urdf").write_text(document)
        return folder / "robot.urdf"

    return make


def stl(count, data=None, said=None):
    return bytes(80) + struct.pack("<I", count if said is None else said) + (data or bytes(50 * count))


DAE = b"""<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset><unit meter="0.5"/><up_axis>Y_UP</up_axis></asset>
  <library_geometries><geometry id="g"><mesh>
    <source id="positions"><float_array id="numbers" count="12">0 0 0 1 0 0 0 1 0 0 0 1</float_array>
      <technique_common><accessor source="#numbers" count="4" stride="3"><param name="X" type="float"/>
        <param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
    <vertices id="v"><input semantic="POSITION" source="#positions"/></vertices>
    <triangles count="2"><input semantic="VERTEX" source="#v" offset="0"/><p>0 1 2 0 1 3</p></triangles>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="s">
    <node id="n"><translate>0 0 3</translate><instance_geometry url="#g"/></node>
  </visual_scene></library_visual_scenes>
  <scene><instance_visual_scene url="#s"/></scene>
</COLLADA>"""


def zipped(data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.dae", data)
    return out.getvalue()


def laughing(depth):
    """A scene in which each node holds the one before twice."""
    both = '<node id="n{}"><instance_node url="#n{}"/><instance_node url="#n{}"/></node>'
    nodes = '<node id="n0"/>' + "".join(both.format(k, k - 1, k - 1) for k in range(1, depth + 1))
    text = DAE.decode().replace(
        "<library_visual_scenes>", f"<library_nodes>{nodes}</library_nodes><library_visual_scenes>"
    )
    return text.replace('<instance_geometry url="#g"/>', f'<instance_node url="#n{depth}"/>').encode()


def mesh_case(name, file, data, **options):
    case(name, with_files(shape(MESH.format(file)), {file: data}), **options)


case("missing mesh", with_files(shape(MESH.format("a.stl")), {}))
case("mesh that is a folder", with_files(shape(MESH.format("d")), {"d/x": b""}))
case("mesh outside by dots", with_files(shape(MESH.format("../../a.stl")), {}))
case("mesh outside by an absolute path", with_files(shape(MESH.format("/etc/hostname")), {}))
case(
    "mesh outside by a package and dots",
    with_files(shape(MESH.format("package://p/../a.stl")), {}),
    packages={"p": "p"},
)
case("mesh with a backslash", with_files(shape(MESH.format("..\\a.stl")), {}))
case("mesh of a windows drive", with_files(shape(MESH.format("C:\\a.stl")), {}))
case("very long file name", with_files(shape(MESH.format("a" * 5000)), {}))


def linked(folder):
    os.symlink("/etc", folder / "inside")
    (folder / "robot.urdf").write_text(shape(MESH.format("inside/hostname")))
    return folder / "robot.urdf"


case("mesh outside by a symbolic link", linked)
mesh_case("mesh of another format", "a.fbx", b"FBX")
mesh_case("mesh without an ending", "mesh", b"")
mesh_case("empty stl", "a.stl", b"")
mesh_case("stl of no triangles", "a.stl", stl(0))
mesh_case("stl cut short", "a.stl", stl(3)[:-10])
mesh_case("stl too long", "a.stl", stl(3) + b"x")
mesh_case("stl that claims billions", "a.stl", stl(1, said=0xFFFFFFFF))
mesh_case("stl with nan", "a.stl", stl(1, np.full(12, np.nan, "<f4").tobytes() + b"\0\0"))
mesh_case("stl beyond all bounds", "a.stl", stl(1, np.full(12, 1e20, "<f4").tobytes() + b"\0\0"))
mesh_case("ascii stl with words", "a.stl", b"solid a\n facet\n vertex 1 2 three\nendsolid")
mesh_case("ascii stl with two numbers", "a.stl", b"solid a\nvertex 1 2\nendsolid")
mesh_case("dae that is not xml", "a.dae", b"hello")
mesh_case("dae of nothing", "a.dae", b"<COLLADA/>")
mesh_case("dae with a doctype", "a.dae", b"<!DOCTYPE x []>" + DAE)
mesh_case("dae with a doctype in utf-16", "a.dae", ("<!DOCTYPE x []>" + DAE.decode()).encode("utf-16"))
mesh_case("dae with a zip file behind it", "a.dae", DAE + zipped(DAE))
mesh_case("dae with words", "a.dae", DAE.replace(b"0 0 0 1", b"0 0 zero 1"))
mesh_case("dae with nan", "a.dae", DAE.replace(b"0 0 0 1", b"0 0 nan 1"))
mesh_case("dae with a face of nothing", "a.dae", DAE.replace(b"<p>0 1 2", b"<p>0 1 7"))
mesh_case("dae without positions", "a.dae", DAE.replace(b'source="#positions"', b'source="#nothing"'))
mesh_case("dae with nodes of nodes of nodes", "a.dae", laughing(30))
mesh_case("ascii stl of nothing", "a.stl", b"solid a\nendsolid a")
mesh_case("obj of nothing", "a.obj", b"# nothing\nf 1 2 3\n")
mesh_case("obj with words", "a.obj", b"v 1 2 x\n")
mesh_case("obj with an empty vertex", "a.obj", b"v 1 2 3\nv  \n")
mesh_case("obj with two numbers", "a.obj", b"v 1 2\n")
mesh_case("obj with odd numbers", "a.obj", b"v 1 2 1e\n")
mesh_case("obj with nan", "a.obj", b"v 1 2 nan\n")
mesh_case("obj too large", "a.obj", b"v 1 2 3\n" * (2 * 1024 * 1024 + 1))

# Options --------------------------------------------------------------------------------------------------------------

case("unknown root", arm(), root="hand")
case("unknown joint to lock", arm(), lock={"elbow": 0.0})
case("lock at nan", arm(), lock={"j": float("nan")})
case("lock with too many numbers", arm(), lock={"j": (0.0, 1.0)})
case("lock a fixed joint", arm(kind="fixed", limit=""), lock={"j": 0.0})
case("lock at a zero quaternion", arm(kind="spherical", limit=""), lock={"j": (0, 0, 0, 0)})
case("floating base of a file with a root_joint", arm(name="root_joint", link=INERTIAL), floating_base=True)
case(
    "subtree without the joint that leads",
    robot(
        *THREE[:3],
        f'<joint name="j" type="revolute"><parent link="a"/><child link="b"/>{LIMIT}</joint>',
        FOLLOW.format("k", "revolute", "b", "c", LIMIT, "j"),
    ),
    root="b",
)

# The extension --------------------------------------------------------------------------------------------------------

case("extension without version", extended(version=""))
case("extension of another version", extended(version='version="2"'))
case("extension: unknown element", extended("<wheel/>"))
case("extension: gravity of two numbers", extended(version='version="1" gravity="0 1"'))
case("extension: parents_touch", extended(version='version="1" parents_touch="0.5"'))
case("extension: unknown joint", extended('<joint name="k" armature="1"/>'))
case("extension: negative armature", extended('<joint name="j" armature="-1"/>'))
case("extension: damping for two", extended('<joint name="j" damping="1 2"/>'))
case("extension: spring reference", extended('<joint name="j" spring_reference="1 2"/>'))
case("extension: unknown link", extended('<link name="x" massless="1"/>'))
case("extension: massless maybe", extended('<link name="arm" massless="maybe"/>'))
case("extension: site on nothing", extended('<site name="s" link="x"/>'))
case("extension: site of a link's name", extended('<site name="arm" link="arm"/>'))
case("extension: unknown shape", extended('<shape name="s" link="arm" kind="torus"/>'))
case("extension: shape twice", extended(*['<shape name="s" link="arm" kind="plane"/>'] * 2))
case("extension: negative size", extended('<shape name="s" link="arm" kind="ellipsoid" size="1 1 -1"/>'))
case("extension: hull without vertices", extended('<shape name="s" link="arm" kind="hull"/>'))
case("extension: hull of four numbers", extended('<shape name="s" link="arm" kind="hull" vertices="1 2 3 4"/>'))
case("extension: contact of nothing", extended('<contact shape="s"/>'))
case(
    "extension: contact bits",
    extended('<shape name="s" link="arm" kind="plane"/>', '<contact shape="s" contype="-1"/>'),
)
case("extension: actuator of nothing", extended('<actuator name="m" joint="k"/>'))
case("extension: actuator twice", extended(*['<actuator name="m" joint="j"/>'] * 2))
case("extension: actuator with three gears", extended('<actuator name="m" joint="j" gear="1 2 3"/>'))
case("extension: reversed control range", extended('<actuator name="m" joint="j" control_range="1 -1"/>'))
case("extension: keyframe twice", extended(*['<keyframe name="k"/>'] * 2))
case("extension: keyframe of a strange thing", extended('<keyframe name="k"><body/></keyframe>'))
case("extension: keyframe with two numbers", extended('<keyframe name="k"><joint name="j" q="1 2"/></keyframe>'))
case("extension: control of nothing", extended('<keyframe name="k"><actuator name="m" control="1"/></keyframe>'))
case("extension: exclusion of nothing", extended('<exclude first="arm" second="x"/>'))
case("extension: pair of nothing", extended('<pair first="a" second="b"/>'))
case(
    "extension: hidden link with shapes",
    shape('<sphere radius="1"/>').replace(
        "</robot>", '<adjoin version="1"><link name="arm" hidden="1"/></adjoin></robot>'
    ),
)

# MJCF -----------------------------------------------------------------------------------------------------------------

BALL = '<body name="b"><freejoint/><geom size="0.1"/></body>'


def mjcf(*parts, world=BALL, before=""):
    return "\n".join(["<mujoco>", before, f"<worldbody>{world}</worldbody>", *parts, "</mujoco>"])


case("mjcf: floating base", mjcf(), floating_base=True)
case("mjcf: unknown element", mjcf(world="<bdy/>"))
case("mjcf: unknown attribute", mjcf(world='<body naem="b"/>'))
case("mjcf: body without mass", mjcf(world="<body><freejoint/></body>"))
case("mjcf: bad number", mjcf(world='<body><geom size="a"/></body>'))
case("mjcf: two bodies of one name", mjcf(world='<body name="b"/><body name="b"/>'))
case("mjcf: unknown joint in an actuator", mjcf('<actuator><motor joint="x"/></actuator>'))
case("mjcf: zero axis", mjcf(world='<body><joint axis="0 0 0"/><geom size="1"/></body>'))
case("mjcf: reversed range", mjcf(world='<body><joint range="1 -1" limited="true"/><geom size="1"/></body>'))
case("mjcf: unknown class", mjcf(world='<body childclass="x"/>'))
case("mjcf: nan mass", mjcf(world='<body name="b"><freejoint/><geom size="1" mass="nan"/></body>'))
case("mjcf: nan position", mjcf(world='<body name="b" pos="0 nan 0"><joint/><geom size="1"/></body>'))
case("mjcf: infinite position", mjcf(world='<body name="b" pos="0 inf 0"><joint/><geom size="1"/></body>'))
case(
    "mjcf: nan range",
    mjcf(world='<body name="b"><joint name="j" range="nan 1" limited="true"/><geom size="1"/></body>'),
)
case("mjcf: a copy of a million", mjcf(world=f'<replicate count="1000000">{BALL}</replicate>'))
case(
    "mjcf: copies of copies",
    mjcf(world=f'<replicate count="200"><replicate count="200">{BALL}</replicate></replicate>'),
)
case("mjcf: too many bodies", mjcf(world="<body/>" * 2001))
case(
    "mjcf: a vast height field", mjcf(before='<asset><hfield name="h" nrow="9999" ncol="9999" size="1 1 1 1"/></asset>')
)
case(
    "mjcf: a built-in mesh of a billion vertices",
    mjcf(before="<asset><mesh name='m' builtin='wedge' params='20000 20000 90 45 1'/></asset>"),
)
case("mjcf: built-in meshes", mjcf(before="<asset>" + "<mesh builtin='cone' params='150 1'/>" * 3 + "</asset>"))
case("mjcf: sites without number", mjcf(world='<replicate count="1000">' + "<site/>" * 40 + "</replicate>"))
case(
    "mjcf: cells without number",
    mjcf(world="<flexcomp name='f' type='grid' count='2 2 2' cellcount='999 999 999' dof='trilinear'/>"),
)
case("mjcf: a vast sensor", mjcf("<sensor><user dim='100000000'/></sensor>"))
case("mjcf: contacts of a sensor without number", mjcf("<sensor><contact num='100000000'/></sensor>"))
case(
    "mjcf: ranges of a vast camera",
    mjcf(
        "<sensor><rangefinder camera='c'/><rangefinder camera='c'/></sensor>",
        world=f"{BALL}<camera name='c' resolution='1920 1080'/>",
    ),
)
case("mjcf: a long history", mjcf("<sensor><clock nsample='10000000'/></sensor>"))
case(
    "mjcf: long histories by default",
    mjcf("<actuator>" + "<motor/>" * 200 + "</actuator>", before="<default><motor nsample='9999'/></default>"),
)
case("mjcf: attached model", mjcf(before='<asset><model name="m" file="m.xml"/></asset>'))
case("mjcf: axis beyond bounds", mjcf(world='<body><joint name="j" axis="0 0 1e308"/><geom size="1"/></body>'))
case("mjcf: rotation beyond bounds", mjcf(world='<body quat="0 0 1e308 1e308"><joint/><geom size="1"/></body>'))
case("mjcf: missing mesh", with_files(mjcf(before='<asset><mesh file="a.stl"/></asset>'), {}))
case("mjcf: mesh outside", with_files(mjcf(before='<asset><mesh file="../../a.stl"/></asset>'), {}))
case(
    "mjcf: mesh folder outside",
    with_files(mjcf(before='<compiler meshdir="/etc"/><asset><mesh file="hostname"/></asset>'), {}),
)
case("mjcf: mesh in a text", mjcf(before='<asset><mesh file="a.stl"/></asset>'))
case("mjcf: missing include", with_files(mjcf(before='<include file="x.xml"/>'), {}))
case("mjcf: include outside", with_files(mjcf(before='<include file="/etc/passwd"/>'), {}))
case("mjcf: include without a file", mjcf(before="<include/>"))
case(
    "mjcf: include of itself",
    with_files(
        mjcf(before='<include file="x.xml"/>'), {"x.xml": b'<mujocoinclude>\n<include file="x.xml"/></mujocoinclude>'}
    ),
)
case(
    "mjcf: includes in a circle",
    with_files(
        mjcf(before='<include file="x.xml"/>'),
        {
            "x.xml": b'<mujocoinclude><include file="y.xml"/></mujocoinclude>',
            "y.xml": b'<mujocoinclude>\n\n<include file="x.xml"/></mujocoinclude>',
        },
    ),
)
case("mjcf: include that is not xml", with_files(mjcf(before='<include file="x.xml"/>'), {"x.xml": b"hello"}))
case("mjcf: include of a urdf", with_files(mjcf(before='<include file="x.xml"/>'), {"x.xml": b'<robot name="r"/>'}))
case(
    "mjcf: include with a doctype",
    with_files(mjcf(before='<include file="x.xml"/>'), {"x.xml": b"<!DOCTYPE a><mujocoinclude/>"}),
)
case(
    "mjcf: error in an include",
    with_files(
        mjcf(before='<include file="x.xml"/>'),
        {"x.xml": b"<mujocoinclude>\n\n<worldbody><geom sise='1'/></worldbody></mujocoinclude>"},
    ),
)

# Saved models ---------------------------------------------------------------------------------------------------------

SAVED = store.to_bytes(pendulum(2))
TENSORS = safetensors.load(SAVED)
STRUCTURE = json.loads(json.loads(SAVED[8 : 8 + int.from_bytes(SAVED[:8], "little")])["__metadata__"][store.METADATA])


def saved(tensors=None, structure=None, drop=(), text=None):
    kept = {key: value for key, value in {**TENSORS, **(tensors or {})}.items() if key not in drop}
    text = store._text(kept, {**STRUCTURE, **(structure or {})}) if text is None else text
    return safetensors.save(kept, {store.METADATA: text})


def header(text, body=b""):
    return len(text).to_bytes(8, "little") + text + body


case("saved: cut short", SAVED[:-8])
case("saved: cut in the header", SAVED[:200])
case("saved: something after the end", SAVED + b"12345678")
case("saved: header is no json", header(b"{not json}"))
case("saved: metadata is a number", header(b'{"__metadata__":{"a":1}}'))
case("saved: a name twice", header(b'{"a":1,"a":2}'))
case("saved: tensor without dtype", header(b'{"a":{"shape":[]}}'))
case("saved: half precision", header(b'{"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}}', bytes(8)))
case("saved: negative shape", header(b'{"a":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}}', bytes(8)))
case("saved: shape against offsets", header(b'{"a":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}}', bytes(8)))
case("saved: huge shape", header(b'{"a":{"dtype":"F64","shape":[281474976710655,2],"data_offsets":[0,8]}}', bytes(8)))
case(
    "saved: nothing of a huge shape",
    header(b'{"a":{"dtype":"F64","shape":[0,9223372036854775807],"data_offsets":[0,0]}}'),
)
case(
    "saved: too many dimensions",
    header(b'{"a":{"dtype":"F64","shape":[1%b],"data_offsets":[0,8]}}' % (b",1" * 99), bytes(8)),
)
case("saved: a header that ends beyond the file", (1 << 31).to_bytes(8, "little") + b"{" + bytes(100))
case("saved: of another format", saved(structure={"format": 2}))
case("saved: a hole", header(b'{"a":{"dtype":"F64","shape":[1],"data_offsets":[8,16]}}', bytes(16)))
case("saved: by someone else", safetensors.save({"weight": np.zeros(3)}, {}))
case("saved: structure is no json", saved(text="["))
case("saved: structure is a list", saved(text="[]"))
case("saved: a tensor is missing", saved(drop=("bodies.mass",)))
case("saved: a tensor of another shape", saved({"bodies.mass": np.zeros(3)}))
case("saved: a nan", saved({"bodies.mass": np.array([1.0, np.nan])}))
case("saved: a parent that does not exist", saved({"bodies.parent": np.array([5, 0])}))
case("saved: names that are numbers", saved(structure={"bodies.name": [1, 2]}))
case("saved: names missing", saved(structure={"bodies.name": ["a"]}))
case("saved: an unknown kind", saved(structure={"bodies.joint.kind": ["screw", "revolute"]}))
case("saved: negative length", saved({"bodies.joint.damping#": np.array([-1, 1])}))
case("saved: a huge count", saved(structure={"bodies": 10**9}))
case("saved: two fixtures", saved(structure={"fixture": 2}))
case("saved: exclusions of three", saved(structure={"exclusions": [["a", "b", "c"]]}))
case("saved: with a floating base", SAVED, floating_base=True)
