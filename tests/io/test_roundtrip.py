"""Models written and read back: safetensors to the last bit, URDF up to rounding of rotations."""

import dataclasses
import json
import math
import sys

import numpy as np
import pytest
from corpus import ACCEPT, LOADED, URDF_FOLDER
from safetensors import numpy as safetensors

from adjoin import robots
from adjoin.errors import InputError, ModelError
from adjoin.io import store
from adjoin.io.load import load
from adjoin.io.urdf_write import to_urdf
from adjoin.model import digest as content

SOME = LOADED[::4]


def get(name, meshes="ignore", **options):
    packages = {"example-robot-data": URDF_FOLDER}
    accept = ACCEPT.get(name, ())
    return load(URDF_FOLDER / "robots" / name, meshes=meshes, accept=accept, packages=packages, strict=True, **options)


def assert_alike(a, b, path="model"):
    assert type(a) is type(b), path
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_alike(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_alike(x, y, f"{path}[{i}]")
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=1e-13, abs=1e-14), path
    else:
        assert a == b, path


def by_name(model):
    plain = content.plain(model)
    for part in ("frames", "geometries"):
        plain[part] = sorted(plain[part], key=lambda item: item["name"])
    return plain


@pytest.mark.parametrize("name", SOME)
def test_saved_models_are_equal_when_loaded(name, tmp_path):
    model = get(name, floating_base=True)
    store.save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again == model
    assert hash(again) == hash(model)
    assert load(store.to_bytes(model)) == model


@pytest.mark.parametrize("name", ["go2_description/urdf/go2.urdf", "pr2_description/urdf/pr2.urdf"])
def test_saved_hulls_are_equal_when_loaded(name):
    model = get(name, meshes="hull")
    assert any(shape.kind == "hull" for shape in model.geometries)
    assert load(store.to_bytes(model)) == model
    assert_alike(by_name(load(to_urdf(model), accept=ACCEPT.get(name, ()), strict=True)), by_name(model))


@pytest.mark.parametrize("name", LOADED)
def test_exported_urdf_is_the_same_robot(name):
    model = get(name)
    again = load(to_urdf(model), accept=("mass", "inertia"))
    assert_alike(by_name(again), by_name(model))


@pytest.mark.parametrize("name", SOME)
def test_exported_floating_base_comes_back(name):
    model = get(name, floating_base=True)
    again = load(to_urdf(model, header="made for a test -- really"), accept=("mass", "inertia"))
    assert_alike(by_name(again), by_name(model))


RICH = """<mujoco model="rich"><compiler angle="radian"/>
<option gravity="0 1 -5"><flag filterparent="disable"/></option>
<worldbody><geom name="floor" type="plane" size="1 2 0.1"/><site name="s0" pos="1 2 3"/>
  <body name="a" pos="0 0 1"><freejoint name="root"/><geom name="ga" type="ellipsoid" size="0.1 0.2 0.3"/>
    <site name="a" pos="0 0 1" euler="1 2 3"/>
    <body name="b" pos="1 0 0"><joint name="x" pos="0 0.5 0" stiffness="3" springref="0.4" armature="0.1" damping="2"/>
      <joint name="y" type="slide" axis="0 1 0" frictionloss="0.3"/><geom name="gb" type="box" size="0.1 0.2 0.3"/>
      <body name="c"><joint name="z" type="ball" range="0 0.7" limited="true" pos="0.1 0 0"/>
        <geom name="gc" size="0.1" priority="2" margin="0.01" condim="4" contype="6" conaffinity="5"/>
        <site name="tip" pos="0 0 1"/></body></body></body></worldbody>
<contact><exclude body1="a" body2="c"/><pair geom1="floor" geom2="gc" friction="1 2 3 4 5" condim="6"/></contact>
<actuator><motor name="m" joint="x" gear="3" ctrlrange="-1 2" ctrllimited="true"/>
  <position name="p" joint="y" kp="5" forcerange="-7 7" forcelimited="true"/></actuator>
<keyframe><key name="k" qpos="1 2 3 0 1 0 0 0.1 0.2 0 0 1 0" qvel="1 2 3 4 5 6 7 8 9 10 11" ctrl="0.5 0.6"/></keyframe>
</mujoco>"""


def test_a_model_with_everything_survives_both_ways():
    pytest.importorskip("mujoco")
    model = load(RICH)
    actuators = (
        dataclasses.replace(model.actuators[0], control_range=(-1.0, math.inf), force_range=(-math.inf, 3.0)),
        *model.actuators[1:],
    )
    model = dataclasses.replace(model, actuators=actuators)
    assert (model.nq, model.nv, model.parents_touch) == (13, 11, True)
    assert load(store.to_bytes(model)) == model
    again = load(to_urdf(model))
    assert_alike(by_name(again), by_name(model))
    assert_alike(by_name(load(to_urdf(again))), by_name(model))


def test_the_file_is_laid_out_as_the_docstring_says(tmp_path):
    model = get("panda_description/urdf/panda.urdf")
    store.save(model, tmp_path / "panda.safetensors")
    tensors = safetensors.load_file(tmp_path / "panda.safetensors")
    np.testing.assert_array_equal(tensors["bodies.mass"], [body.mass for body in model.bodies])
    assert tensors["bodies.rotation"].shape == (9, 3, 3)
    with safetensors.safe_open(tmp_path / "panda.safetensors", "numpy") as file:
        structure = json.loads(file.metadata()[store.METADATA])
    assert structure["bodies.name"] == [body.name for body in model.bodies]


def test_a_model_is_saved_as_the_same_bytes_every_time():
    assert len({store.to_bytes(robots.load("go2")) for _ in range(8)}) == 1


def test_a_missing_package_is_named(monkeypatch):
    model, saved = robots.load("box"), store.to_bytes(robots.load("box"))
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for call in (lambda: store.to_bytes(model), lambda: load(saved)):
        with pytest.raises(InputError, match=r"a (saved )?model needs safetensors: pip install 'adjoin\[save\]'"):
            call()


def test_without_shapes_the_rest_is_the_same():
    model = robots.load("go2")
    text = to_urdf(model, shapes=False)
    assert "<collision" not in text
    again = load(text)
    assert again.geometries == ()
    assert sum(body.mass for body in again.bodies) == pytest.approx(sum(body.mass for body in model.bodies))
    assert [joint.name for joint in again.joints] == [joint.name for joint in model.joints]


@pytest.mark.parametrize("numbers", [("/0", "/1"), ("/1", "/0"), ("/0", ""), ("/0", "/2"), ("/7", "/0")])
@pytest.mark.parametrize("kind", ["sphere", "ellipsoid"])
def test_shapes_keep_their_names_whatever_they_are(numbers, kind):
    one = robots.load("ball")
    shapes = [
        dataclasses.replace(one.geometries[0], name=f"ball{number}", kind=kind, size=size)
        for number, kind, size in zip(numbers, (kind, "sphere"), ((0.1, 0.2, 0.3), (0.2, 0.0, 0.0)), strict=True)
    ]
    again = load(to_urdf(dataclasses.replace(one, geometries=tuple(shapes))))
    assert {shape.name: shape.kind for shape in again.geometries} == {shape.name: shape.kind for shape in shapes}


def test_a_damaged_file_is_refused_though_it_would_still_be_a_model():
    model = robots.load("two_link")
    data = store.to_bytes(model)
    place = data.index(np.float64(model.bodies[0].mass).tobytes())
    for position in (place, place + 3, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(ModelError, match="checksum is not that of what it holds"):
            load(bytes(damaged))
    assert load(data) == model
