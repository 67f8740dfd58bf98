"""Kernels for a GPU, run on a CPU: one thread of a warp after the other, from barrier to barrier.

The text that `runtime/cuda` renders becomes code for this processor. Each thread of a warp has a stack of its own; at a
barrier or an exchange of values it hands over to the next. So the logic of kernels is tested where there is no GPU:
who computes, moves and adds what, what is read before it is written, and who fails to come to a barrier. What the
assembler makes of it, and memory that threads race for between barriers, are not.
"""

import ctypes
import platform
import re
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import torch

from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.backend import Binary, tensor_words
from adjoin.compiler.runtime.cpu.kernel import host
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.cuda.staging import WARP
from adjoin.compiler.runtime.llvm import emit_object, machine, parse

llvm.initialize_native_asmparser()
SUPPORTED = platform.machine() in ("x86_64", "AMD64") and platform.system() != "Windows"
STACK = 1 << 20  # bytes of a thread's stack
CANARY = 0x5A  # what shared memory is full of at first
WAITS, DONE = 1, 2  # states of a thread

# A thread that waits has pushed its registers onto its own stack. `turn` goes to a thread, `wait` back to the driver.
_THREADS = """
@driver = global ptr null
@thread = global ptr null
@number = global i32 0
@block = global i32 0
@threads = global i32 0
@argument = global ptr null
@values = global [1024 x i32] zeroinitializer

define void @swap(ptr %from, ptr %to) naked noinline {
  call void asm sideeffect "SWAP", ""()
  unreachable
}
define void @turn(i32 %number, ptr %thread) {
  store i32 %number, ptr @number
  store ptr %thread, ptr @thread
  call void @swap(ptr @driver, ptr %thread)
  ret void
}
define void @wait() noinline {
  %thread = load ptr, ptr @thread
  %state = getelementptr i64, ptr %thread, i64 1
  store i64 WAITS, ptr %state
  call void @swap(ptr %thread, ptr @driver)
  ret void
}
define void @begin() noinline {
  %words = load ptr, ptr @argument
  call void @with_words(ptr %words)
  %thread = load ptr, ptr @thread
  %state = getelementptr i64, ptr %thread, i64 1
  store i64 DONE, ptr %state
  call void @swap(ptr %thread, ptr @driver)
  unreachable
}
define i32 @read_tid() noinline { %x = load i32, ptr @number ret i32 %x }
define i32 @read_ctaid() noinline { %x = load i32, ptr @block ret i32 %x }
define i32 @read_lanes_below() noinline {
  %number = load i32, ptr @number
  %me = and i32 %number, 31
  %bit = shl i32 1, %me
  %below = sub i32 %bit, 1
  ret i32 %below
}
define i32 @read_ntid() noinline { %x = load i32, ptr @threads ret i32 %x }
define i32 @exchange(i32 %mask, i32 %value, i32 %lanes, i32 %bounds) noinline {
  %me = load i32, ptr @number
  %own = getelementptr [1024 x i32], ptr @values, i64 0, i32 %me
  store i32 %value, ptr %own
  call void @wait()
  %other = xor i32 %me, %lanes
  %place = getelementptr [1024 x i32], ptr @values, i64 0, i32 %other
  %found = load i32, ptr %place
  call void @wait()
  ret i32 %found
}
define i32 @from_lane(i32 %mask, i32 %value, i32 %lane, i32 %bounds) noinline {
  %me = load i32, ptr @number
  %own = getelementptr [1024 x i32], ptr @values, i64 0, i32 %me
  store i32 %value, ptr %own
  call void @wait()
  %warp = and i32 %me, -32
  %segment = and i32 %me, 31
  %keep.0 = lshr i32 %bounds, 8
  %keep = and i32 %keep.0, 31
  %fixed = and i32 %segment, %keep
  %free = xor i32 %keep, 31
  %moved = and i32 %lane, %free
  %inside = or i32 %fixed, %moved
  %other = or i32 %warp, %inside
  %place = getelementptr [1024 x i32], ptr @values, i64 0, i32 %other
  %found = load i32, ptr %place
  call void @wait()
  ret i32 %found
}
define i32 @vote(i32 %mask, i1 %value) noinline {
  %me = load i32, ptr @number
  %own = getelementptr [1024 x i32], ptr @values, i64 0, i32 %me
  %bit = zext i1 %value to i32
  store i32 %bit, ptr %own
  call void @wait()
  %warp = and i32 %me, -32
  br label %next
next:
  %i = phi i32 [ 0, %0 ], [ %i.next, %next ]
  %found = phi i32 [ 0, %0 ], [ %sum, %next ]
  %at = or i32 %warp, %i
  %place = getelementptr [1024 x i32], ptr @values, i64 0, i32 %at
  %x = load i32, ptr %place
  %shifted = shl i32 %x, %i
  %sum = or i32 %found, %shifted
  %i.next = add i32 %i, 1
  %more = icmp ult i32 %i.next, 32
  br i1 %more, label %next, label %done
done:
  call void @wait()
  ret i32 %sum
}
"""
_SAVED = ("rbp", "rbx", "r12", "r13", "r14", "r15")  # what a function must leave as it was
_SWAP = [*[f"pushq %{name}" for name in _SAVED], "movq %rsp, (%rdi)", "movq (%rsi), %rsp"]
_SWAP += [*[f"popq %{name}" for name in reversed(_SAVED)], "retq"]
for _name, _text in (("WAITS", str(WAITS)), ("DONE", str(DONE)), ("SWAP", r"\0A".join(_SWAP))):
    _THREADS = _THREADS.replace(_name, _text)

_NAMES = {
    "llvm.nvvm.read.ptx.sreg.tid.x": "read_tid",
    "llvm.nvvm.read.ptx.sreg.ctaid.x": "read_ctaid",
    "llvm.nvvm.read.ptx.sreg.ntid.x": "read_ntid",
    "llvm.nvvm.read.ptx.sreg.lanemask.lt": "read_lanes_below",
    "llvm.nvvm.shfl.sync.bfly.i32": "exchange",
    "llvm.nvvm.shfl.sync.idx.i32": "from_lane",
    "llvm.nvvm.vote.ballot.sync": "vote",
}


def for_this_processor(text: str, words: int) -> str:
    """A kernel's text for a GPU as one for this processor, on which it runs one thread at a time."""
    text = re.sub(r"addrspacecast ptr (%[\w.]+) to ptr addrspace\(\d\)", r"getelementptr i8, ptr \1, i64 0", text)
    text = re.sub(r" addrspace\(\d\)", "", text)
    text = text.replace("define ptx_kernel void", "define void")
    text = text.replace("call void @llvm.nvvm.bar.warp.sync(i32 -1)", "call void @wait()")
    text = re.sub(r'^ *call void asm sideeffect "prefetch.*\n', "", text, flags=re.MULTILINE)
    text = re.sub(r"^declare .*@llvm\.nvvm.*\n", "", text, flags=re.MULTILINE)
    for theirs, ours in _NAMES.items():
        text = text.replace(f"@{theirs}(", f"@{ours}(")
    loads = "\n".join(
        f"  %a{i} = getelementptr i64, ptr %words, i64 {i}\n  %w{i} = load i64, ptr %a{i}" for i in range(words)
    )
    arguments = ", ".join(f"i64 %w{i}" for i in range(words))
    entry = f"define void @with_words(ptr %words) {{\n{loads}\n  call void @kernel({arguments})\n  ret void\n}}\n"
    return f"{_THREADS}\n{text}\n{entry}"


class EmulatedKernel:
    """A program for one float format, rendered for a GPU; see `adjoin.compiler.runtime.backend.Executable`.

    Attributes:
        threads: of a block.
        barriers: how many were passed, over all blocks.
    """

    def __init__(self, program: Program, bits: int, threads: int = WARP):
        self.program, self.bits, self.threads, self.barriers = program, bits, threads, 0
        target = CudaTarget(90)
        (lane,) = target.lanes(bits)
        self.rendered = target.render(program, lane)
        tile = self.rendered.shared * bits // 8
        self.shared = (ctypes.c_uint8 * (tile * (threads // WARP) + 64))()
        processor = host()
        generator = machine(processor.triple, processor.cpu, processor.features, opt=0, reloc="pic", codemodel="small")
        text = for_this_processor(self.rendered.text, self.rendered.layout.words)
        code = emit_object(parse(text, generator, llvm.create_context()), generator)
        self.engine = llvm.create_lljit_compiler(generator, use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        builder.import_symbol("shared", -(-ctypes.addressof(self.shared) // 16) * 16)
        for name in ("turn", "begin", "block", "threads", "argument"):
            builder.export_symbol(name)
        self.library = builder.link(self.engine, "warp")
        self._turn = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_void_p)(self.library["turn"])
        self._stacks = [(ctypes.c_uint8 * STACK)() for _ in range(threads)]

    def partial_sums(self, batch: int) -> int:
        """One row per warp."""
        return -(-batch // WARP)

    def prepare(self, *_: Any) -> None:
        """Nothing is done ahead."""

    def launch(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> None:
        """Run over a batch."""
        addresses, strides, _copies = tensor_words(self.program, inputs, outputs, batch)
        binary = Binary(b"", self.rendered.workspace, self.rendered.shared)
        elements = binary.workspace_elements(self.program.integers, integers)
        blocks = -(-batch // self.threads)
        dtype = torch.float32 if self.bits == 32 else torch.float64
        space = torch.full((max(1, elements * blocks * self.threads),), torch.nan, dtype=dtype)
        words = [*addresses, space.data_ptr(), *strides, *integers, batch]
        memory = (ctypes.c_int64 * len(words))(*words)
        ctypes.c_void_p.from_address(self.library["argument"]).value = ctypes.addressof(memory)
        ctypes.c_int32.from_address(self.library["threads"]).value = self.threads
        for block in range(blocks):
            ctypes.c_int32.from_address(self.library["block"]).value = block
            ctypes.memset(self.shared, CANARY, len(self.shared))
            self._run_block()

    def _run_block(self) -> None:
        """Run the threads of a block in turn, from barrier to barrier, until all are done."""
        live = {number: self._start(stack) for number, stack in enumerate(self._stacks)}
        while live:
            for number, place in live.items():
                self._turn(number, place)
            waiting = {
                number: place for number, place in live.items() if ctypes.c_int64.from_address(place + 8).value == WAITS
            }
            for warp in range(self.threads // WARP):
                missing = [number for number in live if number // WARP == warp and number not in waiting]
                some = any(number // WARP == warp for number in waiting)
                assert not (some and missing), f"threads {missing} did not come to a barrier"
            self.barriers += bool(waiting)
            live = waiting

    def _start(self, stack: Any) -> int:
        """Prepare a thread; return where its stack pointer and its state are."""
        top = (ctypes.addressof(stack) + STACK) // 64 * 64 - 128
        # What `swap` takes from the stack: six registers, then where to go, where the stack is as after a call.
        (ctypes.c_int64 * 8).from_address(top)[:] = [0, 0, 0, 0, 0, 0, self.library["begin"], 0]
        (ctypes.c_int64 * 2).from_address(top + 112)[:] = [top, 0]
        return top + 112


class EmulatedBackend:
    """Runs the kernels of a type of device in this way; see `adjoin.compiler.runtime.backend.register`."""

    def executable(self, program: Program, bits: int, device: torch.device) -> EmulatedKernel:
        """The program, rendered for a GPU."""
        return EmulatedKernel(program, bits)

    def target(self, name: str) -> None:
        """No processor."""
