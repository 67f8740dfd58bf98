"""Kernels whose blocks take their places on the GPU while the kernel before them still runs, so launching costs less.

NVIDIA calls this programmatic dependent launch. It needs compute capability 9.0.
"""

import ctypes
from functools import lru_cache
from typing import Any

import torch

from adjoin.compiler.runtime.cuda.driver import check, driver

CAPABILITY = 90
WAIT = """
  call void asm sideeffect "griddepcontrol.wait;", "~{memory}"()
  call void asm sideeffect "griddepcontrol.launch_dependents;", "~{memory}"()
"""
"""What such a kernel begins with: it waits until the one before has ended and its results are seen, and lets the blocks
of the next one do the same."""


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


@lru_cache(maxsize=8)
def can_launch_early(index: int) -> bool:
    """Return whether a GPU and its driver can: graphs have such kernels since CUDA 12.3."""
    version = ctypes.c_int()
    check(driver().cuDriverGetVersion(ctypes.byref(version)))
    major, minor = torch.cuda.get_device_capability(index)
    return 10 * major + minor >= CAPABILITY and version.value >= 12030
