"""The library of the NVIDIA driver."""

import ctypes
import os
from functools import lru_cache
from typing import Any

from adjoin.errors import CompileError


@lru_cache(maxsize=1)
def driver() -> ctypes.CDLL:
    """Return the driver's own library."""
    name = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise CompileError(f"the NVIDIA driver's library {name} cannot be loaded: {error}") from error
    check(library.cuInit(0), library)
    # Without these, ctypes would pass sizes as 32-bit integers.
    library.cuLinkAddData_v2.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint,
        ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    library.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    return library


@lru_cache(maxsize=1)
def driver_version() -> int:
    """Return the version of CUDA that the driver is for: 12030 for 12.3."""
    version = ctypes.c_int()
    check(driver().cuDriverGetVersion(ctypes.byref(version)))
    return version.value


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("more", ctypes.c_int * 15))


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("shape", ctypes.c_uint * 7), ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("count", ctypes.c_uint),
    )  # fmt: skip


_EARLY = _LaunchAttribute(6, 0, 1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def launch_early(function: ctypes.c_void_p, shape: tuple[int, ...], stream: int, extra: ctypes.Array[Any]) -> None:
    """Launch a kernel that may begin before the one before it has ended: `griddepcontrol.wait` in it waits for that.

    Args:
        function: the kernel.
        shape: blocks along three axes, threads along three, bytes of shared memory.
        stream: of torch.
        extra: where the arguments are, as for cuLaunchKernel.
    """
    config = _LaunchConfig((ctypes.c_uint * 7)(*shape), stream, ctypes.pointer(_EARLY), 1)
    check(driver().cuLaunchKernelEx(ctypes.byref(config), function, None, extra))


def check(status: int, library: ctypes.CDLL | None = None) -> None:
    """Raise an error if the driver answered with one."""
    if status != 0:
        text = ctypes.c_char_p()
        (library or driver()).cuGetErrorString(status, ctypes.byref(text))
        message = text.value.decode() if text.value else "unknown error"
        raise CompileError(f"the NVIDIA driver answered error {status}: {message}")
