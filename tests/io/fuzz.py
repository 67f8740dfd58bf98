"""Seeded mutation of robot files: whatever comes in, only ModelError comes out, within 2 s and 512 MB each.

    python tests/io/fuzz.py 1000000 [first]

runs as many cases as it is told, from a number on; case i is always the same, so that a failure can be run again alone.
"""

import json
import random
import resource
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from malformed import DAE

import adjoin
from adjoin.errors import ModelError, ModelWarning
from adjoin.io import store
from adjoin.io.urdf_write import to_urdf

SECONDS = 2.0
BYTES = 512 * 1024 * 1024

URDF = b"""<?xml version="1.0"?>
<robot name="seed">
  <link name="base"><inertial><origin xyz="0 0 0.1" rpy="0.1 0 0"/><mass value="2"/>
    <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.2" iyz="0.01" izz="0.15"/></inertial>
    <collision name="foot"><origin xyz="0 0 1"/><geometry><box size="1 2 3"/></geometry></collision></link>
  <link name="arm"><inertial><mass value="1e-1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
    <collision><geometry><mesh filename="part.stl" scale="1 1 -1"/></geometry></collision>
    <collision><geometry><mesh filename="package://pkg/part.obj"/></geometry></collision></link>
  <link name="hand"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
    <collision><geometry><capsule radius="0.1" length="0.2"/></geometry></collision></link>
  <link name="tip"/>
  <joint name="a" type="revolute"><origin xyz="1 0 0" rpy="0 1.5708 0"/><parent link="base"/><child link="arm"/>
    <axis xyz="0 0.6 0.8"/><limit lower="-1" upper="2" velocity="3" effort="4"/>
    <dynamics damping="0.1" friction="0.2"/></joint>
  <joint name="b" type="prismatic"><parent link="arm"/><child link="hand"/>
    <mimic joint="a" multiplier="-2" offset="0.1"/><limit lower="0" upper="1" velocity="1" effort="1"/></joint>
  <joint name="c" type="fixed"><parent link="hand"/><child link="tip"/></joint>
</robot>
"""

MJCF = b"""<mujoco model="seed">
  <compiler angle="radian" meshdir="."/>
  <option gravity="0 0 -9.81"/>
  <default><joint damping="1" armature="0.1"/><default class="x"><geom friction="1 0.1 0.1"/></default></default>
  <asset><mesh name="part" file="part.stl"/>
    <hfield name="hills" nrow="2" ncol="3" size="4 3 0.5 0.1" elevation="0 1 0 2 0 1"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <geom name="ground" type="hfield" hfield="hills" pos="0 0 -2"/>
    <body name="led" mocap="true" pos="0 0 2"><geom name="grip" size="0.1" contype="0" conaffinity="0"/></body>
    <body name="torso" pos="0 0 1"><freejoint name="root"/><geom type="sphere" size="0.2"/>
      <site name="s" pos="0 0 0.1"/>
      <body name="leg" pos="0.2 0 0" euler="0 0.3 0"><joint name="hip" axis="0 1 0" range="-1 1" limited="true"/>
        <joint name="slide" type="slide" axis="1 0 0" pos="0.1 0 0" ref="0.2" stiffness="3" springref="0.1"/>
        <geom class="x" type="capsule" fromto="0 0 0 0 0 -0.4" size="0.05"/>
        <body name="foot" pos="0 0 -0.4"><joint name="ball" type="ball" range="0 0.5" limited="true"/>
          <geom type="mesh" mesh="part"/></body></body></body>
  </worldbody>
  <contact><exclude body1="torso" body2="leg"/></contact>
  <actuator><motor joint="hip" gear="10" ctrlrange="-1 1" ctrllimited="true"/>
    <position joint="slide" kp="5"/><adhesion body="foot" ctrlrange="0 1" gain="3"/></actuator>
  <equality><weld body1="led" body2="torso"/></equality>
  <sensor><clock/><distance geom1="grip" body2="torso" cutoff="1"/>
    <insidesite site="s" objtype="body" objname="led"/></sensor>
  <keyframe><key name="k" qpos="0 0 1 1 0 0 0 0.1 0.2 1 0 0 0" mpos="0 0 3" mquat="1 0 0 0"/></keyframe>
</mujoco>
"""

WORDS = rb"""
nan inf -1 0 1e999 1e308 -1e308 1e-320 99999999999999999999 0x1 1_0
< > </ /> " ' &amp; &lt; &x; <!-- --> <![CDATA[ <?xml <!DOCTYPE
base arm hand a b fixed floating planar spherical continuous revolute free ball slide hinge
../ /etc/passwd http://x/ file:/// package:// ${x}
<include/> <body> </body> <joint/> <mesh/> </replicate>
""".split()
WORDS += [b"", b" ", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"1 2 3", b"0 0 0 0"]
WORDS += [b"<include file='seed.xml'/>", b"<include file='part.stl'/>", b"<replicate count='3'>"]


def stl(count: int) -> bytes:
    rng = np.random.default_rng(count)
    rows = b"".join(rng.normal(size=12).astype("<f4").tobytes() + b"\0\0" for _ in range(count))
    return bytes(80) + struct.pack("<I", count) + rows


def glb(vertices, faces, offset):
    positions, indices = np.array(vertices, "<f4").tobytes(), np.array(faces, "<u4").tobytes()
    tree = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "translation": offset}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1, "material": 0}]}],
        "materials": [{"pbrMetallicRoughness": {"baseColorFactor": [1.0, 0.5, 0.0, 1.0]}}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": len(vertices), "type": "VEC3"},
            {"bufferView": 1, "componentType": 5125, "count": 3 * len(faces), "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": len(positions)},
            {"buffer": 0, "byteOffset": len(positions), "byteLength": len(indices)},
        ],
        "buffers": [{"byteLength": len(positions + indices)}],
    }
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<I", len(text)) + b"JSON" + text
    chunks += struct.pack("<I", len(positions + indices)) + b"BIN\0" + positions + indices
    return b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks


CORNERS, SIDES = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]


FILES = {
    "part.stl": stl(12),
    "part.obj": b"# part\nv 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1 1.0\nf 1 2 3\n",
    "part.dae": DAE,
    "part.glb": glb(CORNERS, SIDES, [0, 0, 2]),
    "ascii.stl": b"solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\n"
    b"endfacet\nfacet normal 1 0 0\nouter loop\nvertex 0 0 0\nvertex 0 1 0\nvertex 0 0 1\nendloop\n",
}


def seeds() -> list[tuple[str, bytes]]:
    """Documents to start from, each with the kind of file it is."""
    small = [adjoin.robots.load(name) for name in ("two_link", "box")]
    urdfs = [URDF, URDF, *(to_urdf(model).encode() for model in small), adjoin.robots.source("ball")]
    rich = to_urdf(adjoin.robots.load("ant")).encode()
    found = [("urdf", document) for document in urdfs] + [("urdf", rich)]
    found += [("mjcf", MJCF), ("mjcf", MJCF)]
    found += [("saved", store.to_bytes(model)) for model in small]
    return found + [("mesh", name.encode()) for name in FILES]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A few random changes: bits, bytes, numbers, words, pieces removed, repeated, moved."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not out:
            break
        at = rng.randrange(len(out))
        length = min(rng.choice((1, 2, 4, 16, 64, 400)), len(out) - at)
        kind = rng.randrange(9)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.randrange(256)
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[at : at + length] * rng.choice((1, 2, 10))
        elif kind == 4:
            out[at:at] = rng.choice(WORDS)
        elif kind == 5:
            _replace_value(out, rng)
        elif kind == 6:
            there = rng.randrange(len(out))
            out[at : at + length] = out[there : there + length]
        elif kind == 7:
            del out[at:]
        else:
            _swap_lines(out, rng)
    return bytes(out)


def _replace_value(out: bytearray, rng: random.Random) -> None:
    quotes = [index for index, byte in enumerate(out) if byte == ord('"')]
    if len(quotes) >= 2:
        index = rng.randrange(0, len(quotes) - 1)
        out[quotes[index] + 1 : quotes[index + 1]] = rng.choice(WORDS)


def _swap_lines(out: bytearray, rng: random.Random) -> None:
    lines = bytes(out).split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    out[:] = b"\n".join(lines)


class Fuzzer:
    """Runs numbered cases in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.seeds = seeds()
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0
        self.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (folder / "pkg").mkdir(exist_ok=True)
        self._restore()

    def _restore(self) -> None:
        for name, data in FILES.items():
            (self.folder / name).write_bytes(data)
            (self.folder / "pkg" / name).write_bytes(data)
        (self.folder / "seed.xml").write_bytes(MJCF)

    def run(self, number: int) -> None:
        rng = random.Random(number)
        kind, data = rng.choice(self.seeds)
        options: dict = {"folder": self.folder, "packages": {"pkg": self.folder / "pkg"}, "unsupported": "warn"}
        options["strict"] = rng.random() < 0.3
        if rng.random() < 0.5:
            options |= {"accept": ("mass", "inertia"), "repair": ("axis", "limits", "right_angles")}
        if rng.random() < 0.2:
            options["repair"] = ("inertia", "axis", "limits")
        if kind == "urdf" and rng.random() < 0.2:
            options |= rng.choice(({"floating_base": True}, {"root": "arm"}, {"lock": {"a": 0.3}}))
        if kind == "mesh":
            name = data.decode()
            (self.folder / name).write_bytes(mutate(FILES[name], rng))
            document = URDF.replace(b"part.stl", name.encode())
        else:
            document = mutate(data, rng)
        # Processor time: the wall clock of a busy machine would fail cases that are not slow.
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", ModelWarning)
                model = adjoin.load(document, **options)
            self.outcomes[f"{kind} loaded"] += 1
            assert model.nq >= 0
        except ModelError:
            self.outcomes[f"{kind} refused"] += 1
        except BaseException:
            print(f"case {number} ({kind}): {document[:200]!r}", file=sys.stderr)
            raise
        finally:
            if kind == "mesh":
                (self.folder / name).write_bytes(FILES[name])
        taken = time.process_time() - start
        self.slowest = max(self.slowest, taken)
        assert taken < SECONDS, f"case {number} took {taken:.2f} s"

    def grown(self) -> int:
        """Bytes by which the process has grown at its largest."""
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.memory) * 1024


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        fuzzer = Fuzzer(Path(place))
        for case in range(first, first + count):
            fuzzer.run(case)
            if (case - first + 1) % 10_000 == 0:
                print(case + 1, dict(fuzzer.outcomes), f"{time.perf_counter() - began:.0f} s", flush=True)
        assert fuzzer.grown() < BYTES
        print(f"{count} cases, slowest {fuzzer.slowest * 1e3:.0f} ms, grown {fuzzer.grown() / 2**20:.0f} MiB")
