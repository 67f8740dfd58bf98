"""Compile a program for an NVIDIA GPU, load it, and launch it on a stream, through the driver's own library.

LLVM writes PTX. Machine code comes from the PTX compiler of the driver, or, for a GPU that this machine does not have,
from the `ptxas` of a CUDA toolkit or of the Triton or nvidia-cuda-nvcc packages. The cache holds machine code.
"""

import ctypes
import importlib.util
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from adjoin.compiler.codegen.layout import WARP, Layout
from adjoin.compiler.codegen.renderer import render_gpu
from adjoin.compiler.codegen.writer import Lane
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.cache import Cache, digest
from adjoin.compiler.runtime.cpu.kernel import compile_text, pack, unpack, versions, workspace_elements
from adjoin.errors import CompileError
from adjoin.progress import announced

KNOWN = (70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120)  # virtual architectures to write PTX for
SMALL_BATCH = 1 << 15  # environments up to which one warp a block spreads the batch best over the multiprocessors


def virtual_architecture(capability: int) -> int:
    """The newest architecture LLVM writes PTX for that a GPU of this compute capability (90 for 9.0) runs."""
    fitting = [known for known in KNOWN if known <= capability]
    if not fitting:
        raise CompileError(
            f"a GPU of compute capability {capability // 10}.{capability % 10} is too old; 7.0 is needed"
        )
    return fitting[-1]


def lane(bits: int) -> Lane:
    """The lane type of a GPU thread."""
    return Lane(bits, 1, True)


def write_ptx(text: str, architecture: int) -> str:
    """PTX of a rendered kernel."""
    return compile_text(text, "nvptx64-nvidia-cuda", f"sm_{architecture}")


class CudaKernel:
    """A compiled program for one float format on one GPU."""

    def __init__(self, program: Program, bits: int, device: torch.device, cache: Cache | None = None):
        self.program = program
        self.bits = bits
        self.device = device if device.index is not None else torch.device("cuda", torch.cuda.current_device())
        self.cache = cache or Cache()
        self._lock = threading.Lock()
        self._function: ctypes.c_void_p | None = None
        self._facts: dict[str, Any] = {}

    def lanes(self, batch: int) -> int:
        """Environments that share one row of a summed output."""
        return WARP

    def launch(self, words: Sequence[int], batch: int, integers: Sequence[int]) -> None:
        """Enqueue the kernel on the current stream of the device. The arguments are those of `CpuKernel.launch`."""
        if self._function is None:
            self._load()
        space = None
        if self._needs_workspace:
            elements = workspace_elements(self._facts["workspace"], self.program.integers, integers)
            count = elements * (-(-batch // WARP) * WARP)
            space = torch.empty(count, dtype=torch.float32 if self.bits == 32 else torch.float64, device=self.device)
        try:
            arguments, extra = self._own.arguments
        except AttributeError:
            arguments, extra = self._own.arguments = self._make_arguments()
        self._pack(arguments, 0, *words, *integers, batch, 0 if space is None else space.data_ptr())
        warps = 1 if batch <= SMALL_BATCH else self._warps
        blocks = -(-batch // (warps * WARP))
        shared = self._tile * warps
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                self._enqueue(blocks, warps, shared, extra)
        else:
            self._enqueue(blocks, warps, shared, extra)

    def _make_arguments(self) -> tuple[Any, Any]:
        """A thread's own memory for arguments, which the driver reads while it enqueues, and where that is."""
        arguments = (ctypes.c_int64 * self._words)()
        return arguments, (ctypes.c_void_p * 5)(1, ctypes.addressof(arguments), 2, ctypes.addressof(self._size), 0)

    def _enqueue(self, blocks: int, warps: int, shared: int, extra: Any) -> None:
        stream = torch._C._cuda_getCurrentRawStream(self.device.index)
        status = self._launch(self._function, blocks, 1, 1, warps * WARP, 1, 1, shared, stream, None, extra)
        if status:
            _check(status)

    def _load(self) -> None:
        with self._lock:
            if self._function is not None:
                return
            major, minor = torch.cuda.get_device_capability(self.device)
            entry = build(self.program, self.bits, major * 10 + minor, self.cache)
            facts, code = unpack(entry)
            with torch.cuda.device(self.device):
                torch.cuda.current_stream()  # the context exists from here on
                module, function = ctypes.c_void_p(), ctypes.c_void_p()
                _check(_driver().cuModuleLoadData(ctypes.byref(module), code))
                _check(_driver().cuModuleGetFunction(ctypes.byref(function), module, b"kernel"))
                tile = facts["shared"] * self.bits // 8
                self._warps = max(1, min(4, 49152 // tile)) if tile else 4
                if tile > 49152:
                    _check(_driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, tile))
            self._words, self._tile = Layout.of(self.program).words, tile
            self._pack = struct.Struct(f"{self._words}q").pack_into
            self._size = ctypes.c_size_t(8 * self._words)
            self._own = threading.local()
            self._needs_workspace = any(facts["workspace"].values())
            self._launch = _driver().cuLaunchKernel
            self._facts, self._module, self._function = facts, module, function


def build(program: Program, bits: int, capability: int, cache: Cache) -> bytes:
    """The cache entry of a program for a GPU of a compute capability, which this machine need not have."""
    architecture = virtual_architecture(capability)
    key = digest(program.digest, repr(lane(bits)), f"sm_{capability}", f"compute_{architecture}", versions())
    entry = cache.get(key)
    if entry is None:
        with announced(f"compiling {program} for a GPU of compute capability {capability / 10}"):
            rendered = render_gpu(program, lane(bits))
            ptx = write_ptx(rendered.text, architecture)
            entry = pack(rendered, _assemble(ptx, capability))
        cache.put(key, entry)
    return entry


def _assemble(ptx: str, capability: int) -> bytes:
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
        if (capability // 10, capability % 10) in devices:
            return _assemble_with_driver(ptx, devices.index((capability // 10, capability % 10)))
    return _assemble_with_ptxas(ptx, capability)


_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE, _JIT_OPTIMIZATION, _JIT_INPUT_PTX = 5, 6, 7, 1
LARGE = 40_000  # lines of PTX from which the assembler is asked for little optimization; its time grows faster


def _effort(ptx: str) -> int:
    return 4 if ptx.count("\n") < LARGE else 1


def _assemble_with_driver(ptx: str, index: int) -> bytes:
    driver = _driver()
    with torch.cuda.device(index):
        torch.cuda.current_stream().synchronize()  # the context exists from here on
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 3)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE, _JIT_OPTIMIZATION)
        values = (ctypes.c_void_p * 3)(ctypes.addressof(log), len(log), _effort(ptx))
        state, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        _check(driver.cuLinkCreate_v2(3, options, values, ctypes.byref(state)))
        try:
            text = ptx.encode() + b"\0"
            status = driver.cuLinkAddData_v2(state, _JIT_INPUT_PTX, text, len(text), b"kernel", 0, None, None)
            if status == 0:
                status = driver.cuLinkComplete(state, ctypes.byref(image), ctypes.byref(size))
            if status != 0:
                raise CompileError(f"the GPU driver refused a kernel: {log.value.decode(errors='replace')}")
            return ctypes.string_at(image, size.value)
        finally:
            driver.cuLinkDestroy(state)


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
    """NVIDIA's assembler, if it is on this machine: on the PATH, under CUDA_HOME, or in a Python package."""
    found = shutil.which("ptxas")
    if found:
        return found
    places = [Path(os.environ[name], "bin/ptxas") for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for package, inside in (("triton", "backends/nvidia/bin/ptxas"), ("nvidia", "*/bin/ptxas")):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            places += Path(folder).glob(inside)
    return next((str(place) for place in places if place.is_file() and os.access(place, os.X_OK)), None)


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    name = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError as error:
        raise CompileError(f"the NVIDIA driver's library {name} cannot be loaded: {error}") from error
    _check(driver.cuInit(0), driver)
    # Without these, ctypes would pass sizes as 32-bit integers.
    driver.cuLinkAddData_v2.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint,
        ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    driver.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    return driver


def _check(status: int, driver: ctypes.CDLL | None = None) -> None:
    if status != 0:
        text = ctypes.c_char_p()
        (driver or _driver()).cuGetErrorString(status, ctypes.byref(text))
        message = text.value.decode() if text.value else "unknown error"
        raise CompileError(f"the NVIDIA driver answered error {status}: {message}")
