"""LLVM itself: the text of a kernel becomes machine code or assembly for a target machine."""

from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

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


def parse(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Return a module of the text of a kernel."""
    head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    try:
        return llvm.parse_assembly(head + text)
    except RuntimeError as error:
        raise CompileError(f"LLVM refused a kernel, which is a defect of this library: {error}") from error
