"""Compile a program for a CPU, load it, and run it over a batch with threads."""

import ctypes
import json
import os
import struct
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import torch

from adjoin import __version__
from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.renderer import Rendered, render_cpu
from adjoin.compiler.codegen.writer import Lane
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.cache import Cache, digest
from adjoin.compiler.runtime.cpu import openmp as team
from adjoin.errors import CompileError
from adjoin.progress import announced

HUGE_PAGE = 2 << 20  # bytes
_HUGE_PAGE_ADVICE = 14  # MADV_HUGEPAGE of Linux
WORTHWHILE = 200_000  # vector instructions from which a second thread pays
TURN = 100_000  # vector instructions that a thread does at a time, at least
TILE = 256  # environments that it takes at a time where they need fewer; a multiple of every vector width


@dataclass(frozen=True)
class Target:
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

    def lane(self, bits: int, scalar: bool = False) -> Lane:
        """The lane type of this target for floats of 32 or 64 bits."""
        return Lane(bits, 1 if scalar else self.vector // bits, self.fma)

    def machine(self) -> llvm.TargetMachine:
        """The code generator."""
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=2, reloc="pic", codemodel="small"
        )


@lru_cache(maxsize=1)
def host() -> Target:
    """This machine."""
    _initialize()
    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    has = features.get
    if triple.startswith(("aarch64", "arm64")):
        vector, fma = 128, True
    else:
        vector = 512 if has("avx512f") and has("avx512dq") else 256 if has("avx2") else 128
        fma = bool(has("fma"))
    return Target(triple, llvm.get_host_cpu_name(), features.flatten(), vector, fma)


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@lru_cache(maxsize=1)
def versions() -> str:
    """What else decides the code: LLVM, and this compiler to the letter, so that an edited one finds nothing old."""
    sources = sorted(Path(__file__).parents[2].rglob("*.py"))
    compiler = digest(*[source.read_bytes() for source in sources])
    return f"{__version__} {compiler} llvmlite {llvmlite.__version__} LLVM {llvm.llvm_version_info}"


def compile_object(rendered: Rendered, target: Target) -> bytes:
    """Machine code, as an object file."""
    machine = target.machine()
    return machine.emit_object(_parse(rendered.text, machine))


def compile_text(text: str, triple: str, cpu: str) -> str:
    """Assembly text, translated without optimization, for a target whose assembler optimizes."""
    _initialize()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=0)
    return machine.emit_assembly(_parse(text, machine))


def _parse(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    try:
        return llvm.parse_assembly(head + text)
    except RuntimeError as error:
        raise CompileError(f"LLVM refused a kernel, which is a defect of this library: {error}") from error


class CpuKernel:
    """A compiled program for one float format on a CPU.

    A batch of one runs as scalars: the same operations in the same order, hence the same bits.
    """

    def __init__(self, program: Program, bits: int, target: Target | None = None, cache: Cache | None = None):
        self.program = program
        self.target = target or host()
        self.bits = bits
        self.cache = cache or Cache()
        self._lock = threading.Lock()
        self._loaded: dict[bool, _Loaded] = {}

    def loaded(self, scalar: bool) -> "_Loaded":
        """The code for single environments or for vectors of them, compiled on first use."""
        found = self._loaded.get(scalar)
        if found is None:
            with self._lock:
                if scalar not in self._loaded:
                    self._loaded[scalar] = _Loaded(
                        self.program, self.target.lane(self.bits, scalar), self.target, self.cache
                    )
                found = self._loaded[scalar]
        return found

    def lanes(self, batch: int) -> int:
        """Environments that share one row of a summed output."""
        return 1 if batch == 1 else self.target.vector // self.bits

    def launch(self, words: Sequence[int], batch: int, integers: Sequence[int]) -> None:
        """Run over a batch.

        Args:
            words: three for each tensor: address, row stride, step stride.
            batch: number of environments.
            integers: the run-time integers, in the program's order.
        """
        code = self.loaded(batch == 1)
        arguments = code.pack(*words, *integers, batch, 0)
        size = code.workspace(self.program.integers, integers) if code.needs_workspace else 0
        if batch * code.cost <= WORTHWHILE or batch <= code.tile or torch.get_num_threads() == 1:
            space = torch.empty(size, dtype=torch.uint8) if size else None
            code.function(arguments, 0, batch, space.data_ptr() if space is not None else None)
            return
        threads = min(torch.get_num_threads(), -(-batch // code.tile))
        stride = max(1, batch // (threads * 8 * code.tile)) * code.tile
        space = torch.empty(size * threads, dtype=torch.uint8)
        held = ctypes.create_string_buffer(arguments, len(arguments))
        if team.run(code.address, ctypes.addressof(held), batch, stride, space.data_ptr(), size, threads):
            return
        parts = iter(range(0, batch, stride))

        def work() -> None:
            space = torch.empty(size, dtype=torch.uint8)
            for first in parts:  # threads take turns: next() of a range iterator is atomic
                code.function(arguments, first, min(first + stride, batch), space.data_ptr())

        pool = _pool(os.getpid(), threads - 1)
        futures = [pool.submit(work) for _ in range(threads - 1)]
        work()
        for future in futures:
            future.result()


class _Loaded:
    """Machine code in memory."""

    def __init__(self, program: Program, lane: Lane, target: Target, cache: Cache):
        self.names = program.integers
        self.lane = lane
        self.cost = program.work / lane.width
        self.tile = min(TILE, -(-TURN // max(1, program.work)) * lane.width)
        key = digest(program.digest, repr(lane), repr(target), versions())
        entry = cache.get(key)
        if entry is None:
            with announced(f"compiling {program} for this CPU"):
                rendered = render_cpu(program, lane)
                entry = pack(rendered, compile_object(rendered, target))
            cache.put(key, entry)
        facts, code = unpack(entry)
        self.elements: dict[str, int] = facts["workspace"]
        self.needs_workspace = any(self.elements.values())
        self.pack = struct.Struct(f"{Layout.of(program).words}q").pack
        self.engine = llvm.create_lljit_compiler(target.machine(), use_jit_link=True)
        library = llvm.JITLibraryBuilder().add_object_img(code).export_symbol("kernel")
        self.library = library.link(self.engine, "kernel")
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self.address: int = self.library["kernel"]
        self.function = prototype(self.address)

    def workspace(self, names: Sequence[str], integers: Sequence[int]) -> int:
        """Bytes of workspace a thread."""
        return workspace_elements(self.elements, names, integers) * self.lane.width * self.lane.bits // 8


def ask_for_huge_pages(tensor: torch.Tensor) -> None:
    """Spare a large new tensor most of its page faults, which can cost more than what is written to it."""
    size = tensor.nbytes
    if size >= 2 * HUGE_PAGE and sys.platform == "linux":
        start = -(-tensor.data_ptr() // HUGE_PAGE) * HUGE_PAGE
        length = (tensor.data_ptr() + size - start) // HUGE_PAGE * HUGE_PAGE
        _c_library().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _HUGE_PAGE_ADVICE)  # only advice


@lru_cache(maxsize=1)
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def workspace_elements(factors: dict[str, int], names: Sequence[str], integers: Sequence[int]) -> int:
    """Elements of workspace a lane, given the run-time integers."""
    return factors[""] + sum(factors.get(name, 0) * value for name, value in zip(names, integers, strict=True))


def pack(rendered: Rendered, code: bytes) -> bytes:
    """A cache entry: what launching needs to know, then machine code."""
    return json.dumps({"workspace": rendered.workspace, "shared": rendered.shared}).encode() + b"\n" + code


def unpack(entry: bytes) -> tuple[dict[str, Any], bytes]:
    """The two parts of a cache entry."""
    facts, _, code = entry.partition(b"\n")
    return json.loads(facts), code


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of this process; a forked child gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="adjoin")
