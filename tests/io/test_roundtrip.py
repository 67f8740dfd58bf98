"""Models written and read back: safetensors to the last bit, URDF up to rounding of rotations."""

import json

import numpy as np
import pytest
from corpus import ACCEPT, LOADED, URDF_FOLDER

from adjoin.io import store
from adjoin.io.load import load
from adjoin.io.urdf_write import to_urdf
from adjoin.model import content

SOME = LOADED[::4]


def get(name, meshes="ignore", **options):
    packages = {"example-robot-data": URDF_FOLDER}
    return load(URDF_FOLDER / "robots" / name, meshes=meshes, accept=ACCEPT.get(name, ()), packages=packages, **options)


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
    assert_alike(by_name(load(to_urdf(model), accept=ACCEPT.get(name, ()))), by_name(model))


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


def test_the_official_library_reads_our_files(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    model = get("panda_description/urdf/panda.urdf")
    store.save(model, tmp_path / "panda.safetensors")
    tensors = safetensors.load_file(tmp_path / "panda.safetensors")
    np.testing.assert_array_equal(tensors["bodies.mass"], [body.mass for body in model.bodies])
    assert tensors["bodies.rotation"].shape == (9, 3, 3)
    with safetensors.safe_open(tmp_path / "panda.safetensors", "numpy") as file:
        structure = json.loads(file.metadata()["model"])
    assert structure["bodies.name"] == [body.name for body in model.bodies]
