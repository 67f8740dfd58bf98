"""Compile a program for a CPU, load it, and run it over a batch with threads."""

import ctypes
import itertools
import os
import struct
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import llvmlite.binding as llvm
import torch

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.renderer import Rendered
from adjoin.compiler.codegen.writer import Lane
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.backend import PreparedLaunch, build, tensor_words
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cpu import openmp
from adjoin.compiler.runtime.cpu.frame import render
from adjoin.compiler.runtime.cpu.objects import compile_objects, link
from adjoin.compiler.runtime.cpu.pages import with_huge_pages
from adjoin.compiler.runtime.fork import ForkSafeLock
from adjoin.compiler.runtime.llvm import initialize, machine

WORTHWHILE = 200_000  # vector instructions from which a second thread pays
TURN = 10_000  # vector instructions that a thread does at a time, at least
TILE = 64  # environments that it takes at a time where they need fewer; a multiple of every vector width


@dataclass(frozen=True)
class CpuTarget:
    """A CPU to compile for.

    Attributes:
        triple: LLVM's name of architecture and system.
        cpu: LLVM's name of the model.
        features: LLVM feature string.
        vector: bits of the widest vector register.
        fma: has a fused multiply-add.
    """

    triple: str
    cpu: str
    features: str
    vector: int
    fma: bool

    @property
    def description(self) -> str:
        """Return what it is, for messages."""
        return "this CPU" if self == host() else f"the CPU {self.cpu}"

    def lane(self, bits: int, scalar: bool = False) -> Lane:
        """Return the lane type for floats of 32 or 64 bits: vectors, or single environments."""
        return Lane(bits, 1 if scalar else self.vector // bits, self.fma)

    def lanes(self, bits: int) -> tuple[Lane, ...]:
        """Return both lane types."""
        return self.lane(bits, scalar=True), self.lane(bits)

    def render(self, program: Program, lane: Lane) -> Rendered:
        """Return the text of the kernel."""
        return render(program, lane)

    def machine(self) -> llvm.TargetMachine:
        """Return the code generator."""
        return machine(self.triple, self.cpu, self.features, opt=2, reloc="pic", codemodel="small")

    def compile(self, rendered: Rendered) -> bytes:
        """Return machine code, as object files."""
        return compile_objects(rendered, self, self.machine)


@lru_cache(maxsize=1)
def host() -> CpuTarget:
    """Return the target that is this machine."""
    initialize()
    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    has = features.get
    if triple.startswith(("aarch64", "arm64")):
        vector, fma = 128, True
    else:
        vector = 512 if has("avx512f") and has("avx512dq") else 256 if has("avx2") else 128
        fma = bool(has("fma"))
    return CpuTarget(triple, llvm.get_host_cpu_name(), features.flatten(), vector, fma)


class CpuKernel:
    """A program for one float format on a CPU, compiled at the first launch.

    A batch of one runs as scalars: the same operations in the same order, hence the same bits.
    """

    def __init__(self, program: Program, bits: int, target: CpuTarget | None = None, cache: Cache | None = None):
        self.program = program
        self.bits = bits
        self.target = target or host()
        self.cache = cache or Cache()
        self._lock = ForkSafeLock()
        self._code: dict[bool, LoadedCode] = {}

    def code(self, scalar: bool) -> "LoadedCode":
        """Return the code for single environments or for vectors of them, compiled when first asked for."""
        code = self._code.get(scalar)
        if code is None:
            with self._lock:
                code = self._code.get(scalar)
                if code is None:
                    lane = self.target.lane(self.bits, scalar)
                    code = self._code[scalar] = LoadedCode(self.program, lane, self.target, self.cache)
        return code

    def partial_sums(self, batch: int) -> int:
        """Return one row per vector."""
        return -(-batch // (self.target.vector // self.bits))

    def launch(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> None:
        """Run over a batch; see `Executable`."""
        self.code(batch == 1).launch(inputs, outputs, batch, integers)

    def prepare(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> PreparedLaunch | None:
        """Prepare launches that one thread does; see `Executable`."""
        return self.code(batch == 1).prepare(inputs, outputs, batch, integers)


def executable(program: Program, bits: int, device: torch.device) -> CpuKernel:
    """See `adjoin.compiler.runtime.backend.Backend`."""
    return CpuKernel(program, bits)


def target(name: str) -> CpuTarget | None:
    """Return this machine, whose name is "host"."""
    return host() if name == "host" else None


class LoadedCode:
    """Machine code in memory, for one lane type.

    Attributes:
        function: runs a range of environments: address of the arguments, first, end, address of a workspace.
        whole: runs the whole batch: bytes of the arguments.
    """

    def __init__(self, program: Program, lane: Lane, target: CpuTarget, cache: Cache):
        self.program = program
        self.lane = lane
        self.cost = program.work / lane.width
        self.tile = min(TILE, -(-TURN // max(1, program.work)) * lane.width)
        self.binary = build(program, lane, target, cache)
        self.needs_workspace = any(self.binary.workspace.values())
        layout = Layout.of(program)
        self.pack_addresses = struct.Struct(f"{layout.tensors}q").pack
        self.pack_constants = struct.Struct(f"{layout.words - layout.tensors - 1}q").pack
        self.engine, self.library = link(self.binary.code, target.machine(), "kernel", "whole")
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self.address: int = self.library["kernel"]
        self.function = prototype(self.address)
        self.whole = ctypes.CFUNCTYPE(None)(self.library["whole"])  # without types of arguments, bytes pass fastest

    def partial_sums(self, batch: int) -> int:
        """Return one row per vector."""
        return -(-batch // self.lane.width)

    def launch(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> None:
        """Run over a batch, with as many threads as pay and as torch has; see `Executable`."""
        addresses, strides, _copies = tensor_words(self.program, inputs, outputs, batch)
        self._launcher(strides, outputs, batch, integers)(addresses)

    def prepare(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> PreparedLaunch | None:
        """Prepare launches on tensors that need no copies; see `Executable`."""
        addresses, strides, _ = tensor_words(self.program, inputs, outputs, batch)
        if addresses != [tensor.data_ptr() for tensor in (*inputs, *outputs)]:
            return None
        return self._launcher(strides, outputs, batch, integers)

    def _launcher(
        self, strides: Sequence[int], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> PreparedLaunch:
        """A launch, given the addresses of the tensors."""
        constants = self.pack_constants(*strides, *integers, batch)
        launch = self._alone(constants, integers)
        if batch * self.cost > WORTHWHILE and batch > self.tile:
            launch = self._together(launch, constants, batch, integers)
        return with_huge_pages(launch, outputs)

    def _workspace(self, integers: Sequence[int]) -> int:
        """Bytes of workspace that a thread needs."""
        if not self.needs_workspace:
            return 0
        elements = self.binary.workspace_elements(self.program.integers, integers)
        return elements * self.lane.width * self.lane.bits // 8

    def _alone(self, constants: bytes, integers: Sequence[int]) -> PreparedLaunch:
        """A launch by this thread."""
        whole, pack = self.whole, self.pack_addresses
        size = self._workspace(integers)
        if not size:
            rest = bytes(8) + constants
            return lambda addresses: whole(pack(*addresses) + rest)
        like = torch.empty((), dtype=torch.uint8).expand(size)

        def launch(addresses: Iterable[int]) -> None:
            space = torch.empty_like(like)
            whole(pack(*addresses) + space.data_ptr().to_bytes(8, sys.byteorder) + constants)

        return launch

    def _together(self, alone: PreparedLaunch, constants: bytes, batch: int, integers: Sequence[int]) -> PreparedLaunch:
        """A launch by as many threads as torch has then."""
        size, pack, rest = self._workspace(integers), self.pack_addresses, bytes(8) + constants
        teams: dict[int, openmp.Team] = {}
        most = -(-batch // self.tile)

        def launch(addresses: Iterable[int]) -> None:
            threads = min(torch.get_num_threads(), most)
            if threads == 1:
                alone(addresses)
                return
            team = teams.get(threads)
            if team is None:
                bounds = divide(batch, threads, self.tile, self.lane.width)
                team = teams[threads] = openmp.Team(self.address, bounds, size, threads)
            space = torch.empty(size * threads, dtype=torch.uint8) if size else None
            words = pack(*addresses) + rest
            if not team.run(words, space.data_ptr() if space is not None else 0):
                self._run_in_pool(team, words)

        return launch

    def _run_in_pool(self, team: openmp.Team, words: bytes) -> None:
        """Run with threads of Python."""
        pieces = iter([*itertools.pairwise(team.bounds)])

        def work() -> None:
            space = torch.empty(team.size, dtype=torch.uint8)
            for first, end in pieces:  # threads take turns: next() of a list's iterator is atomic
                self.function(words, first, end, space.data_ptr())

        pool = _pool(os.getpid(), team.threads - 1)
        futures = [pool.submit(work) for _ in range(team.threads - 1)]
        work()
        for future in futures:
            future.result()


def divide(batch: int, threads: int, tile: int, width: int) -> list[int]:
    """Return where the pieces of a batch begin, as many in the share of each thread, and the end of the batch.

    In each share the first are large and the last are small: those cost few turns, and these let all threads end at
    once.

    Args:
        batch: number of environments.
        threads: how many.
        tile: environments of a small piece.
        width: those of a vector, which are in one piece.
    """
    vectors = -(-batch // width)
    shares = [vectors * thread // threads for thread in range(threads + 1)]
    halvings = max(1, (vectors // threads // (tile // width)).bit_length())
    bounds = []
    for first, end in itertools.pairwise(shares):
        bounds += [(end - ((end - first) >> halving)) * width for halving in range(halvings)]
    return [*bounds, batch]


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked child gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="adjoin")
