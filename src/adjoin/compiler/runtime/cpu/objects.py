"""The object files of a kernel: its modules are compiled side by side, kept as one piece of bytes, and linked."""

import struct
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import torch

from adjoin.compiler.codegen.renderer import Rendered
from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.llvm import emit_object, parse

_LENGTH = struct.Struct("<Q")
_parts: BoundedCache[bytes] = BoundedCache(256)
"""Parts that were compiled of late: the kernel of a gradient has most of those that the kernel of its step has."""


def compile_objects(rendered: Rendered, target: Hashable, machine: Callable[[], llvm.TargetMachine]) -> bytes:
    """Compile the modules of a kernel, with as many threads as torch has.

    Args:
        rendered: the kernel.
        target: what it is compiled for.
        machine: makes a code generator for it.
    """

    def compiled(text: str) -> bytes:
        generator = machine()
        return emit_object(parse(text, generator, llvm.create_context()), generator)

    def compiled_once(name: str) -> bytes:
        return _parts.get((target, name), lambda: compiled(rendered.parts[name]))

    names = sorted(rendered.parts, key=lambda name: len(rendered.parts[name]), reverse=True)
    threads = min(torch.get_num_threads(), 1 + len(names))
    if threads == 1:
        objects = [compiled(rendered.text), *map(compiled_once, names)]
    else:
        with ThreadPoolExecutor(threads, "adjoin-compile") as pool:
            try:
                own = pool.submit(compiled, rendered.text)
                parts = pool.map(compiled_once, names)
                objects = [own.result(), *parts]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return b"".join(_LENGTH.pack(len(code)) + code for code in objects)


def link(code: bytes, machine: llvm.TargetMachine, *symbols: str) -> tuple[llvm.LLJIT, llvm.ResourceTracker]:
    """Load the object files of a kernel.

    Args:
        code: what `compile_objects` gave.
        machine: a code generator for this machine.
        symbols: whose addresses are wanted.

    Returns:
        What must be kept alive, and the addresses by symbol.
    """
    engine = llvm.create_lljit_compiler(machine, use_jit_link=True)
    builder = llvm.JITLibraryBuilder()
    for object_file in object_files(code):
        builder.add_object_img(object_file)
    for symbol in symbols:
        builder.export_symbol(symbol)
    return engine, builder.link(engine, "kernel")


def object_files(code: bytes) -> Iterator[bytes]:
    """Return those of a kernel, its own first, then its parts."""
    at = 0
    while at < len(code):
        (length,) = _LENGTH.unpack_from(code, at)
        at += _LENGTH.size + length
        yield code[at - length : at]
