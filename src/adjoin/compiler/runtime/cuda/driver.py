"""The library of the NVIDIA driver."""

import ctypes
import os
from functools import cache, lru_cache

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


@cache
def device_attribute(which: int, device: int) -> int:
    """Return a fact about a GPU, by its number in the driver's interface."""
    value = ctypes.c_int()
    check(driver().cuDeviceGetAttribute(ctypes.byref(value), which, device))
    return value.value


def check(status: int, library: ctypes.CDLL | None = None) -> None:
    """Raise an error if the driver answered with one."""
    if status != 0:
        text = ctypes.c_char_p()
        (library or driver()).cuGetErrorString(status, ctypes.byref(text))
        message = text.value.decode() if text.value else "unknown error"
        raise CompileError(f"the NVIDIA driver answered error {status}: {message}")
