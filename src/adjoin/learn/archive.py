"""NPZ files from anywhere: what an array claims to be is checked before memory is taken for it."""

import os
import zipfile
from typing import Any

import numpy as np

from adjoin.errors import InputError

MAX_BYTES = 4 * 2**30
"""Of all arrays of a file together."""
MAX_ARRAYS = 1000


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an NPZ file by name.

    Args:
        path: of the file. Its arrays must be plain numbers; nothing is unpickled.

    Raises:
        InputError: it is not an NPZ file, damaged, or beyond `MAX_BYTES`.
        OSError: it cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _arrays(archive)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except Exception as error:  # whatever a damaged file makes of zipfile, zlib and numpy
            reason = str(error) or type(error).__name__
            raise InputError(f"{path}: not an NPZ file of plain arrays ({reason})") from None


def _arrays(archive: zipfile.ZipFile) -> dict[str, np.ndarray[Any, Any]]:
    entries = archive.infolist()
    total = sum(entry.file_size for entry in entries)
    if total > MAX_BYTES or len(entries) > MAX_ARRAYS:
        limits = f"the limits are {MAX_ARRAYS} and {MAX_BYTES}"
        raise InputError(f"it has {len(entries)} arrays of {total} bytes; {limits}")
    arrays = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(stream)
            if dtype.kind not in "fiub":
                raise InputError(f"array {name!r} is of type {dtype}; it must be numbers")
            count = 1
            for length in shape:
                count *= length
            held = entry.file_size - stream.tell()
            if min(shape, default=0) < 0 or count * dtype.itemsize != held:
                raise InputError(f"array {name!r} claims the shape {shape} of {dtype}, but it has {held} bytes")
            values = np.frombuffer(bytearray(stream.read()), dtype=dtype)  # can be written to
            arrays[name] = values.reshape(shape, order="F" if fortran else "C")
    return arrays
