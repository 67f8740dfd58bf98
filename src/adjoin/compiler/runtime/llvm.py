"""LLVM itself: the text of a kernel becomes machine code or assembly for a target machine."""

import ctypes
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from adjoin.compiler.runtime.fork import generating
from adjoin.errors import CompileError


@lru_cache(maxsize=1)
def initialize() -> None:
    """Make every target that LLVM was built with known to it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def machine(triple: str, cpu: str, features: str = "", **options: Any) -> llvm.TargetMachine:
    """Return the code generator for a processor."""
    initialize()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, **options)


def parse(text: str, machine: llvm.TargetMachine, context: llvm.ContextRef | None = None) -> llvm.ModuleRef:
    """Return a module of the text of a kernel, in a context of its own or in that which all share."""
    head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    try:
        return llvm.parse_assembly(head + text, context)
    except RuntimeError as error:
        raise CompileError(f"LLVM refused a kernel, which is a defect of this library: {error}") from error


def emit_object(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    """Return the object file of a module with a context of its own; other threads can do so at the same time.

    llvmlite lets one thread at a time call LLVM. But LLVM's code generators share nothing if their contexts are their
    own, so this takes the time that matters out of its lock.
    """
    emit: Any = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    with ffi.OutputString() as problem:
        with generating:
            buffer = emit._cfn(machine, module, 1, problem)
        if not buffer:
            raise CompileError(f"LLVM wrote no code for a kernel, which is a defect of this library: {problem}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
