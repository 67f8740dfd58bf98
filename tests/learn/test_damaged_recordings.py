"""Recordings that are damaged or hostile: our errors, before memory is taken for what they claim."""

import io
import random
import struct
import zipfile

import numpy as np
import pytest
import torch

import adjoin
from adjoin.errors import InputError
from adjoin.learn import Recording, archive, load_csv, load_npz

TIME = torch.arange(6, dtype=torch.float64) / 100


@pytest.fixture(scope="module")
def model():
    return adjoin.robots.load("two_link")


@pytest.fixture
def files(model, tmp_path):
    recording = Recording(model, TIME, torch.sin(TIME)[:, None].repeat(1, 2), torch.zeros(6, 2, dtype=torch.float64))
    recording.save_csv(tmp_path / "log.csv")
    recording.save_npz(tmp_path / "log.npz")
    return tmp_path


def header(shape, dtype="<f8"):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def zipped(members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"time.npy": header((10**15,))}, r"array 'time' claims the shape \(1000000000000000,\) of float64, but"),
        ({"time.npy": header((-2,)) + bytes(16)}, "claims the shape"),
        ({"time.npy": header((2, -3, -1)) + bytes(48)}, "claims the shape"),
        ({"time.npy": header((2,), "|O") + bytes(16)}, "array 'time' is of type object; it must be numbers"),
        ({"time.npy": header((2,), "<c8") + bytes(16)}, "is of type complex64"),
        ({"time.npy": b"\x93NUMPY\x09\x00junk"}, "not an NPZ file of plain arrays"),
        ({"time.npy": b""}, "not an NPZ file of plain arrays"),
        ({f"{k}.npy": b"" for k in range(1001)}, "it has 1001 arrays of 0 bytes; the limits are 1000"),
        ({"time.npy": header((0, 5)), "q.npy": header((0, 5, 2))}, "at least two samples"),
    ],
)
def test_claims_of_npz_files_are_checked(model, tmp_path, members, problem):
    (tmp_path / "log.npz").write_bytes(zipped(members))
    with pytest.raises(InputError, match=problem):
        load_npz(tmp_path / "log.npz", model)


def test_archives_that_grow_beyond_the_limit_are_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 2**20)
    (tmp_path / "log.npz").write_bytes(zipped({"time.npy": bytes(2**20 + 1)}))
    with pytest.raises(InputError, match="it has 1 arrays of 1048577 bytes; the limits are 1000 and 1048576"):
        load_npz(tmp_path / "log.npz", model)


def test_arrays_are_read_as_numpy_reads_them(tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.asfortranarray(np.arange(6).reshape(2, 3)), "c": np.array(3.0)}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    read = archive.read_npz(tmp_path / "x.npz")
    assert list(read) == list(arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(read[name], values)
        assert read[name].dtype == values.dtype
        assert read[name].flags.writeable


@pytest.mark.parametrize("name", ["log.csv", "log.npz"])
def test_damaged_recordings_load_or_raise_our_errors(model, files, name):
    damaged(model, files, name, range(60))


def damaged(model, folder, name, cases):
    """Load a recording with random damage; anything but an `InputError` is a failure."""
    data = (folder / name).read_bytes()
    read = load_csv if name.endswith(".csv") else load_npz
    refused = 0
    for case in cases:
        rng = random.Random(case)
        bad = bytearray(data)
        for _ in range(rng.choice((1, 2, 8))):
            place = rng.randrange(max(len(bad), 1))
            kind = rng.randrange(4)
            if kind == 0 and bad:
                bad[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                bad[place : place + rng.randrange(1, 40)] = rng.randbytes(rng.randrange(40))
            elif kind == 2:
                bad[place:place] = rng.choice((b"nan", b"1e999", b",", b"\n", b"\0", b"\xff", b'"', b"-"))
            else:
                bad = bad[: max(place, 1)]
        (folder / f"bad-{name}").write_bytes(bad)
        try:
            assert read(folder / f"bad-{name}", model).q.isfinite().all()
        except InputError:
            refused += 1
    return refused


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"\xff\xfe\x00", "not a CSV file in UTF-8"), (b"time," + b"a" * 200_000 + b"\n1,2\n", "not a CSV file in UTF-8")],
)
def test_what_is_no_table_is_said(model, tmp_path, data, problem):
    (tmp_path / "log.csv").write_bytes(data)
    with pytest.raises(InputError, match=problem):
        load_csv(tmp_path / "log.csv", model)
