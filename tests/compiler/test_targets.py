"""Code for machines this one is not: it compiles, calls nothing, and can be built for a GPU that is not here."""

import re

import llvmlite.binding as llvm
import pytest
from random_programs import random_program

from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.runtime.backend import Binary, build
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cpu.kernel import CpuTarget
from adjoin.compiler.runtime.cpu.objects import object_files
from adjoin.compiler.runtime.cuda import assembler
from adjoin.compiler.runtime.cuda import kernel as cuda
from adjoin.errors import CompileError, InputError

TARGETS = [
    CpuTarget("x86_64-unknown-linux-gnu", "x86-64", "", 128, False),
    CpuTarget("x86_64-unknown-linux-gnu", "haswell", "", 256, True),
    CpuTarget("x86_64-unknown-linux-gnu", "skylake-avx512", "", 512, True),
    CpuTarget("aarch64-unknown-linux-gnu", "generic", "", 128, True),
]


def everything():
    """A program with every operation in it, and its derivative."""
    program = random_program(3, 40)
    return [program, vjp(program, [True] * 4)[0]]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_a_kernel_calls_nothing(target, bits):
    for program in everything():
        for lane in target.lanes(bits):
            for code in object_files(target.compile(target.render(program, lane))):
                symbols = undefined_symbols(code)
                assert symbols == [], f"a kernel for {target.cpu} calls {symbols}"


def undefined_symbols(code):
    """Names an ELF object needs from elsewhere."""
    import struct

    table, strings = None, {}
    (offset,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, offset + i * size) for i in range(count)]
    for section in sections:
        if section[1] == 2:
            table = section
    assert table is not None
    strings = sections[table[6]]
    names = []
    for place in range(table[4], table[4] + table[5], 24):
        name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", code, place)
        if section == 0 and name:
            start = strings[4] + name
            names.append(code[start : code.index(b"\0", start)].decode())
    return names


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("architecture", [70, 80, 90])
def test_ptx(bits, architecture):
    target = cuda.CudaTarget(architecture)
    (lane,) = target.lanes(bits)
    for program in everything():
        ptx = target.ptx(target.render(program, lane).text)
        assert f".target sm_{architecture}" in ptx
        assert not re.search(r"\bcall\b|\.extern \.func|\.approx", ptx)
        # Without a rounding mode the assembler may contract a product and a sum, and bits would depend on it.
        assert not re.search(rf"(mul|add|sub)\.f{bits}", ptx)


def test_architectures():
    assert cuda.CudaTarget(90).architecture == 90
    assert cuda.CudaTarget(88).architecture == 87
    assert cuda.CudaTarget(200).architecture == cuda.KNOWN[-1]
    with pytest.raises(CompileError, match=r"compute capability 6\.1 is too old; 7\.0 is needed"):
        cuda.CudaTarget(61)


@pytest.mark.skipif(assembler.find_ptxas() is None, reason="no ptxas on this machine")
def test_building_for_a_gpu_that_is_not_here(tmp_path, monkeypatch):
    program = at.function(x=3)(lambda x: at.sin(x)).kernel.program
    cache, target = Cache(tmp_path / "cache"), cuda.CudaTarget(90)
    (lane,) = target.lanes(32)
    binary = build(program, lane, target, cache)
    assert binary.code.startswith(b"\x7fELF")
    assert binary.shared > 0
    assert cache.size() > len(binary.code)
    monkeypatch.setattr(cuda, "assemble_ptx", None)
    assert build(program, lane, target, cache) == binary, "a warm start runs no assembler"


@pytest.mark.skipif(assembler.find_ptxas() is None, reason="no ptxas on this machine")
def test_prebuilding_fills_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "cache"))
    function = at.function(x=3, gain=())(lambda x, gain: gain * at.sin(x))
    function.prebuild("sm_80", shared=["gain"])
    assert len(Cache().entries()) == 2
    with pytest.raises(InputError, match="prebuild takes a GPU such as 'sm_90'"):
        function.prebuild("hopper")
    with pytest.raises(InputError, match="no input 'mass'; inputs: x, gain"):
        function.prebuild("sm_90", shared=["mass"])


def test_no_assembler_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(assembler, "find_ptxas", lambda: None)
    with pytest.raises(CompileError, match=r"needs NVIDIA's ptxas.*nvidia-cuda-nvcc or triton"):
        assembler._assemble_with_ptxas("", 90)


def test_a_refused_kernel_is_an_error_not_a_crash():
    with pytest.raises(CompileError, match="LLVM refused a kernel"):
        cuda.CudaTarget(90).ptx("define void @kernel() { nonsense }")


def test_entries_hold_facts_and_code():
    binary = Binary(b"code\nmore", {"": 3, "steps": 2}, 17)
    assert Binary.unpack(binary.pack()) == binary
    assert binary.workspace_elements(("n", "steps"), (7, 10)) == 23
    assert llvm.llvm_version_info[0] >= 20
