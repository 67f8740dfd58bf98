"""What a backend is: how programs become code for a kind of processor, and how that code runs on tensors.

A backend is a module, or any object, that has what `Backend` asks for. It is found by the type of a torch device; a
device without one runs the reference interpreter. The two halves of a backend that compiles are a `Target` (lane type,
rendering, compiling; this machine need not have the processor) and an `Executable` (launching).
"""

import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import llvmlite
import llvmlite.binding as llvm
import torch

from adjoin import __version__
from adjoin.compiler.codegen.renderer import Rendered
from adjoin.compiler.codegen.writer import Lane
from adjoin.compiler.ir.graph import uncollected
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.cache import Cache, digest
from adjoin.errors import InputError
from adjoin.progress import announced

PreparedLaunch = Callable[[Iterable[int]], None]
"""Launches a kernel, given the addresses of its inputs and outputs."""


class Target(Protocol):
    """A processor that programs are compiled for. Its `repr` is part of the key under which code is cached."""

    @property
    def description(self) -> str:
        """Return what it is, for messages: "compiling ... for this CPU"."""
        ...

    def lanes(self, bits: int) -> Sequence[Lane]:
        """Return the lane types that a program is compiled for, one after the other, for floats of 32 or 64 bits."""
        ...

    def render(self, program: Program, lane: Lane) -> Rendered:
        """Return the kernel in LLVM IR: the frame of the processor around what `codegen.renderer` writes."""
        ...

    def compile(self, rendered: Rendered) -> bytes:
        """Return machine code."""
        ...


class Executable(Protocol):
    """A program, ready to run in one float format on one device."""

    def partial_sums(self, batch: int) -> int:
        """Return how many rows a launch writes of an output that is summed over the batch; the caller adds them up."""
        ...

    def launch(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> None:
        """Run over a batch, or enqueue the run on the device's current stream.

        Args:
            inputs: one for each of the program's, (*batch, *shape), of a stream (steps, *batch, *shape); without batch
                dimensions if it is shared. They need not be contiguous.
            outputs: where the results go: contiguous, of the same form; (partial sums, size) for one that is summed.
            batch: number of environments, at least 1.
            integers: the run-time integers, in the program's order.
        """
        ...

    def prepare(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> "PreparedLaunch | None":
        """Do what a launch does apart from the data, for all later launches on tensors like these.

        Args:
            inputs: as in `launch`.
            outputs: as in `launch`.
            batch: as in `launch`.
            integers: as in `launch`.

        Returns:
            A launch for tensors of these shapes and strides on this device; None if there is nothing to gain.
        """
        ...


class Backend(Protocol):
    """Whatever makes executables for a type of device."""

    def executable(self, program: Program, bits: int, device: torch.device) -> Executable:
        """Return the program, compiled or to be compiled at the first launch."""
        ...

    def target(self, name: str) -> Target | None:
        """Return the processor of a name that this backend compiles for; None if it is not one of its."""
        ...


_MODULES = {
    "cpu": "adjoin.compiler.runtime.cpu.kernel",
    "cuda": "adjoin.compiler.runtime.cuda.kernel",
    "meta": "adjoin.compiler.runtime.meta",
}
_FALLBACK = "adjoin.compiler.runtime.interpreter"
_registered: dict[str, Backend] = {}


def register(device_type: str, backend: Backend) -> None:
    """Let a backend serve all devices of a type of torch's; it takes the place of the one that did."""
    _registered[device_type] = backend


def backend_for(device_type: str) -> Backend:
    """Return the backend that serves devices of a type."""
    if device_type not in _registered:
        module: Any = importlib.import_module(_MODULES.get(device_type, _FALLBACK))
        _registered[device_type] = module
    return _registered[device_type]


def find_target(name: str) -> Target:
    """Return the processor of a name: "host" for this CPU, or a GPU's architecture such as "sm_90"."""
    for device_type in {**_MODULES, **_registered}:
        target = backend_for(device_type).target(name)
        if target is not None:
            return target
    raise InputError(f"no processor {name!r} to compile for; 'host' is this CPU, and 'sm_90' a GPU of NVIDIA's")


@dataclass(frozen=True)
class Binary:
    """Machine code, and what launching it needs.

    Attributes:
        code: as the target compiled it.
        workspace: elements of workspace a lane: a fixed number under "", and for each run-time integer a factor.
        shared: elements of memory that a group of lanes shares.
    """

    code: bytes
    workspace: dict[str, int]
    shared: int

    def pack(self) -> bytes:
        """Return a cache entry."""
        return json.dumps({"workspace": self.workspace, "shared": self.shared}).encode() + b"\n" + self.code

    @classmethod
    def unpack(cls, entry: bytes) -> "Binary":
        """Return what a cache entry holds."""
        facts, _, code = entry.partition(b"\n")
        return cls(code, **json.loads(facts))

    def workspace_elements(self, names: Sequence[str], integers: Sequence[int]) -> int:
        """Return the elements of workspace per lane, for the run-time integers."""
        factors = self.workspace
        return factors[""] + sum(factors.get(name, 0) * value for name, value in zip(names, integers, strict=True))


def build(program: Program, lane: Lane, target: Target, cache: Cache) -> Binary:
    """Compile a program for a target, which this machine need not have, unless the cache has it."""
    key = digest(program.digest, repr(lane), repr(target), versions())
    entry = cache.get(key)
    if entry is None:
        with announced(f"compiling {program} for {target.description}"):
            with uncollected():
                rendered = target.render(program, lane)
            entry = Binary(target.compile(rendered), rendered.workspace, rendered.shared).pack()
        cache.put(key, entry)
    return Binary.unpack(entry)


def prebuild(program: Program, bits: int, target: Target, cache: Cache) -> None:
    """Compile everything that launches of a program on a target may need, into the cache."""
    for lane in target.lanes(bits):
        build(program, lane, target, cache)


@lru_cache(maxsize=1)
def versions() -> str:
    """Return what else decides the code: LLVM, and the source of this compiler, so that edits find nothing old."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    compiler = digest(*[source.read_bytes() for source in sources])
    return f"{__version__} {compiler} llvmlite {llvmlite.__version__} LLVM {llvm.llvm_version_info}"


def tensor_words(
    program: Program, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int
) -> tuple[list[int], list[int], list[torch.Tensor]]:
    """Return the addresses and strides of the tensors for `Layout`, and copies that must live until the launch."""
    addresses: list[int] = []
    strides: list[int] = []
    copies: list[torch.Tensor] = []
    for spec, tensor in zip(program.inputs, inputs, strict=True):
        size = spec.size
        if tensor.is_contiguous():
            addresses.append(tensor.data_ptr())
            strides += (0, size) if spec.shared else (size, size * batch)
            continue
        rows = 1 if spec.shared else batch
        flat = tensor.reshape((rows, size) if spec.steps is None else (tensor.shape[0], rows, size))
        if size > 1 and flat.stride(-1) != 1:
            flat = flat.contiguous()
        copies.append(flat)
        addresses.append(flat.data_ptr())
        strides += (0 if spec.shared else flat.stride(-2), flat.stride(0))
    for spec, tensor in zip(program.outputs, outputs, strict=True):
        addresses.append(tensor.data_ptr())
        strides += (spec.size, spec.size * (tensor.shape[-2] if spec.shared else batch))
    return addresses, strides, copies
