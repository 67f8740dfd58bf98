"""Machine code from PTX.

It comes from the compiler of the driver, or, for a GPU that this machine does not have, from the `ptxas` of a CUDA
toolkit or of the Triton or nvidia-cuda-nvcc packages.
"""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from adjoin.compiler.runtime.cuda.driver import check, driver
from adjoin.errors import CompileError

LARGE_PTX = 40_000  # lines of PTX from which the assembler is asked for little optimization; its time grows faster
_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE, _JIT_OPTIMIZATION, _JIT_INPUT_PTX = 5, 6, 7, 1


def assemble_ptx(ptx: str, capability: int) -> bytes:
    """Return the machine code of PTX for a GPU of a compute capability."""
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
        if (capability // 10, capability % 10) in devices:
            return _assemble_with_driver(ptx, devices.index((capability // 10, capability % 10)))
    return _assemble_with_ptxas(ptx, capability)


def _effort(ptx: str) -> int:
    return 4 if ptx.count("\n") < LARGE_PTX else 1


def _assemble_with_driver(ptx: str, index: int) -> bytes:
    with torch.cuda.device(index):
        torch.cuda.current_stream().synchronize()  # the context exists from here on
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 3)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE, _JIT_OPTIMIZATION)
        values = (ctypes.c_void_p * 3)(ctypes.addressof(log), len(log), _effort(ptx))
        state, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        check(driver().cuLinkCreate_v2(3, options, values, ctypes.byref(state)))
        try:
            text = ptx.encode() + b"\0"
            status = driver().cuLinkAddData_v2(state, _JIT_INPUT_PTX, text, len(text), b"kernel", 0, None, None)
            if status == 0:
                status = driver().cuLinkComplete(state, ctypes.byref(image), ctypes.byref(size))
            if status != 0:
                raise CompileError(f"the GPU driver refused a kernel: {log.value.decode(errors='replace')}")
            return ctypes.string_at(image, size.value)
        finally:
            driver().cuLinkDestroy(state)


def _assemble_with_ptxas(ptx: str, capability: int) -> bytes:
    tool = find_ptxas()
    if tool is None:
        raise CompileError(
            f"building for sm_{capability} without such a GPU needs NVIDIA's ptxas, and none was found; "
            "install the nvidia-cuda-nvcc or triton package, or put a CUDA toolkit's ptxas on the PATH"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        done = subprocess.run(
            [tool, f"-arch=sm_{capability}", f"-O{min(3, _effort(ptx))}", str(source), "-o", str(result)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CompileError(f"{tool} refused a kernel for sm_{capability}: {done.stderr.strip()}")
        return result.read_bytes()


def find_ptxas() -> str | None:
    """Return NVIDIA's assembler, if it is on this machine: on the PATH, under CUDA_HOME, or in a Python package."""
    on_path = shutil.which("ptxas")
    if on_path:
        return on_path
    places = [Path(os.environ[name], "bin/ptxas") for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for package, inside in (("triton", "backends/nvidia/bin/ptxas"), ("nvidia", "*/bin/ptxas")):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            places += Path(folder).glob(inside)
    return next((str(place) for place in places if place.is_file() and os.access(place, os.X_OK)), None)
