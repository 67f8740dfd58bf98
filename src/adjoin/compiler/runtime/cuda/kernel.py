"""Compile a program for an NVIDIA GPU, load it, and launch it on a stream, through the driver's own library.

LLVM writes PTX; `assembler.py` makes machine code of it, which is what the cache holds.
"""

import ctypes
import re
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.renderer import Rendered
from adjoin.compiler.codegen.writer import Lane
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.backend import Binary, PreparedLaunch, build, tensor_words
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cuda.assembler import assemble_ptx
from adjoin.compiler.runtime.cuda.driver import check, device_attribute, driver
from adjoin.compiler.runtime.cuda.frame import render
from adjoin.compiler.runtime.cuda.launcher import enqueue, pack_head
from adjoin.compiler.runtime.cuda.staging import WARP
from adjoin.compiler.runtime.llvm import machine, parse
from adjoin.errors import CompileError

KNOWN = (70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120)  # virtual architectures to write PTX for
SMALL_BATCH = 1 << 15  # environments up to which one warp a block spreads the batch best over the multiprocessors
STATIC_SHARED = 48 << 10  # bytes of shared memory a block may have without being asked for
DEFAULT = -1  # the driver chooses
BLOCK_SHARED = 1 << 10  # bytes of shared memory that the driver takes for each block
_LOCAL, _MAX_DYNAMIC_SHARED, _CARVEOUT = 3, 8, 9  # CU_FUNC_ATTRIBUTE_...: LOCAL_SIZE_BYTES and so on
_MULTIPROCESSORS, _MULTIPROCESSOR_SHARED = 16, 81  # CU_DEVICE_ATTRIBUTE_...


@dataclass(frozen=True)
class CudaTarget:
    """A GPU to compile for, which this machine need not have.

    Attributes:
        capability: compute capability, 90 for 9.0.
    """

    capability: int

    def __post_init__(self):
        if self.capability < KNOWN[0]:
            raise CompileError(f"{self.description} is too old; {KNOWN[0] / 10} is needed")

    @property
    def description(self) -> str:
        """Return what it is, for messages."""
        return f"a GPU of compute capability {self.capability // 10}.{self.capability % 10}"

    @property
    def architecture(self) -> int:
        """Return the newest architecture LLVM writes PTX for that such a GPU runs."""
        return max(known for known in KNOWN if known <= self.capability)

    def lanes(self, bits: int) -> tuple[Lane, ...]:
        """Return the lane type of a thread."""
        return (Lane(bits, 1, True),)

    def render(self, program: Program, lane: Lane) -> Rendered:
        """Return the text of the kernel."""
        return render(program, lane)

    def ptx(self, text: str) -> str:
        """Return a kernel's text as PTX, translated without optimization: the assembler optimizes."""
        generator = machine("nvptx64-nvidia-cuda", f"sm_{self.architecture}", opt=0)
        return generator.emit_assembly(parse(text, generator))

    def compile(self, rendered: Rendered) -> bytes:
        """Return machine code."""
        return assemble_ptx(self.ptx(rendered.text), self.capability)


class CudaKernel:
    """A program for one float format on one GPU, compiled at the first launch."""

    def __init__(self, program: Program, bits: int, device: torch.device, cache: Cache | None = None):
        self.program = program
        self.bits = bits
        self.device = device if device.index is not None else torch.device("cuda", torch.cuda.current_device())
        self.cache = cache or Cache()
        self._lock = threading.Lock()
        self._function: int | None = None

    def partial_sums(self, batch: int) -> int:
        """Return one row per warp."""
        return -(-batch // WARP)

    def launch(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> None:
        """Enqueue the kernel on the current stream of the device; see `Executable`."""
        addresses, strides, _copies = tensor_words(self.program, inputs, outputs, batch)
        self._launcher(strides, batch, integers)(addresses)

    def prepare(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> PreparedLaunch | None:
        """Prepare launches on tensors that need no copies; see `Executable`."""
        addresses, strides, _ = tensor_words(self.program, inputs, outputs, batch)
        copied = addresses != [tensor.data_ptr() for tensor in (*inputs, *outputs)]
        return None if copied else self._launcher(strides, batch, integers)

    def _launcher(self, strides: Sequence[int], batch: int, integers: Sequence[int]) -> PreparedLaunch:
        """A launch of the addresses of the tensors."""
        function = self._load()
        device, pack = self.device.index, self._pack_addresses
        warps = 1 if batch <= SMALL_BATCH else self._warps
        blocks = -(-batch // (warps * WARP))
        head = pack_head(self._driver_launch, function, blocks, warps * WARP, self._tile * warps, self._words)
        carveout = self._choose_carveout(blocks, warps)
        constants = self._pack_constants(*strides, *integers, batch)
        workspace = None
        if self._needs_workspace:
            elements = self._binary.workspace_elements(self.program.integers, integers)
            dtype = torch.float32 if self.bits == 32 else torch.float64
            count = elements * (-(-batch // WARP) * WARP)
            workspace = torch.empty((), dtype=dtype, device=self.device).expand(count)
        current_stream, current_device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice
        launch = enqueue()

        def launch_addresses(addresses: Iterable[int]) -> None:
            space = None if workspace is None else torch.empty_like(workspace)
            place = 0 if space is None else space.data_ptr()
            if self._carveout != carveout:
                check(driver().cuFuncSetAttribute(ctypes.c_void_p(function), _CARVEOUT, carveout))
                self._carveout = carveout
            record = head + pack(current_stream(device), *addresses, place) + constants
            if current_device() == device:
                status = launch(record)
            else:
                with torch.cuda.device(device):
                    status = launch(record)
            if status:
                check(status)

        return launch_addresses

    def _choose_carveout(self, blocks: int, warps: int) -> int:
        """Return how much of a multiprocessor's memory is shared, %; the rest caches what registers cannot hold.

        It is what its blocks need. The driver would choose as much as the most blocks could need that fit on one.
        """
        if not self._caches:
            return DEFAULT
        here = min(self._fitting[warps], -(-blocks // device_attribute(_MULTIPROCESSORS, self.device.index)))
        needed = here * (self._tile * warps + BLOCK_SHARED)
        return min(100, -(-100 * needed // device_attribute(_MULTIPROCESSOR_SHARED, self.device.index)))

    def _count_fitting(self, function: ctypes.c_void_p, warps: int) -> int:
        """Return how many blocks of so many warps fit on a multiprocessor, if the driver chooses what is shared."""
        most, size = ctypes.c_int(), ctypes.c_size_t(self._tile * warps)
        check(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(most), function, warps * WARP, size))
        return most.value

    def _load(self) -> int:
        """Return the handle of the function, compiled and loaded when first asked for."""
        if self._function is not None:
            return self._function
        with self._lock:
            if self._function is not None:
                return self._function
            major, minor = torch.cuda.get_device_capability(self.device)
            target = CudaTarget(major * 10 + minor)
            (lane,) = target.lanes(self.bits)
            binary: Binary = build(self.program, lane, target, self.cache)
            with torch.cuda.device(self.device):
                torch.cuda.current_stream()  # the context exists from here on
                module, function = ctypes.c_void_p(), ctypes.c_void_p()
                check(driver().cuModuleLoadData(ctypes.byref(module), binary.code))
                check(driver().cuModuleGetFunction(ctypes.byref(function), module, b"kernel"))
                self._binary, self._tile = binary, (tile := binary.shared * self.bits // 8)
                self._warps = max(1, min(4, STATIC_SHARED // tile)) if tile else 4
                if tile > STATIC_SHARED:
                    check(driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, tile))
                local = ctypes.c_int()
                check(driver().cuFuncGetAttribute(ctypes.byref(local), _LOCAL, function))
                self._fitting = {warps: self._count_fitting(function, warps) for warps in (1, self._warps)}
            layout = Layout.of(self.program)
            self._words = layout.words
            self._pack_addresses = struct.Struct(f"{layout.tensors + 2}q").pack  # the stream, tensors, the workspace
            self._pack_constants = struct.Struct(f"{layout.words - layout.tensors - 1}q").pack
            self._needs_workspace = any(binary.workspace.values())
            self._caches, self._carveout = local.value > 0 or self._needs_workspace, DEFAULT
            self._driver_launch = ctypes.cast(driver().cuLaunchKernel, ctypes.c_void_p).value or 0
            self._module, self._function = module, function.value or 0
            return self._function


def executable(program: Program, bits: int, device: torch.device) -> CudaKernel:
    """See `adjoin.compiler.runtime.backend.Backend`."""
    return CudaKernel(program, bits, device)


def target(name: str) -> CudaTarget | None:
    """Return the GPU of an architecture such as "sm_90"."""
    architecture = re.fullmatch(r"sm_(\d+)", name)
    return None if architecture is None else CudaTarget(int(architecture[1]))
