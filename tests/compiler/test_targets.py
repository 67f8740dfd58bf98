"""Code for machines this one is not: it compiles, calls nothing, and can be built for a GPU that is not here."""

import re

import llvmlite.binding as llvm
import pytest
from random_programs import random_program

from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.codegen.renderer import render_cpu, render_gpu
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cpu.kernel import Target, _initialize, compile_object, pack, unpack
from adjoin.compiler.runtime.cuda import kernel as cuda
from adjoin.errors import CompileError, InputError

TARGETS = [
    Target("x86_64-unknown-linux-gnu", "x86-64", "", 128, False),
    Target("x86_64-unknown-linux-gnu", "haswell", "", 256, True),
    Target("x86_64-unknown-linux-gnu", "skylake-avx512", "", 512, True),
    Target("aarch64-unknown-linux-gnu", "generic", "", 128, True),
]


def everything():
    """A program with every operation in it, and its derivative."""
    program = random_program(3, 40)
    return [program, vjp(program, [True] * 4)[0]]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_a_kernel_calls_nothing(target, bits):
    _initialize()
    for program in everything():
        for scalar in (False, True):
            code = compile_object(render_cpu(program, target.lane(bits, scalar)), target)
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
    for program in everything():
        ptx = cuda.write_ptx(render_gpu(program, cuda.lane(bits)).text, architecture)
        assert f".target sm_{architecture}" in ptx
        assert not re.search(r"\bcall\b|\.extern \.func|\.approx", ptx)
        # Without a rounding mode the assembler may contract a product and a sum, and bits would depend on it.
        assert not re.search(rf"(mul|add|sub)\.f{bits}", ptx)


def test_architectures():
    assert cuda.virtual_architecture(90) == 90
    assert cuda.virtual_architecture(88) == 87
    assert cuda.virtual_architecture(200) == cuda.KNOWN[-1]
    with pytest.raises(CompileError, match=r"compute capability 6\.1 is too old; 7\.0 is needed"):
        cuda.virtual_architecture(61)


@pytest.mark.skipif(cuda.find_ptxas() is None, reason="no ptxas on this machine")
def test_building_for_a_gpu_that_is_not_here(tmp_path):
    program = at.function(x=3)(lambda x: at.sin(x)).kernel.program
    cache = Cache(tmp_path / "cache")
    entry = cuda.build(program, 32, 90, cache)
    facts, code = unpack(entry)
    assert code.startswith(b"\x7fELF")
    assert facts["shared"] > 0
    assert cache.size() > len(code)
    found, cuda._assemble = cuda._assemble, None  # pyright: ignore
    try:
        assert cuda.build(program, 32, 90, cache) == entry, "a warm start runs no assembler"
    finally:
        cuda._assemble = found


@pytest.mark.skipif(cuda.find_ptxas() is None, reason="no ptxas on this machine")
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
    monkeypatch.setattr(cuda, "find_ptxas", lambda: None)
    with pytest.raises(CompileError, match=r"needs NVIDIA's ptxas.*nvidia-cuda-nvcc or triton"):
        cuda._assemble_with_ptxas("", 90)


def test_a_refused_kernel_is_an_error_not_a_crash():
    with pytest.raises(CompileError, match="LLVM refused a kernel"):
        cuda.write_ptx("define void @kernel() { nonsense }", 90)


def test_entries_hold_facts_and_code():
    rendered = render_gpu(at.function(x=3)(lambda x: x * 2).kernel.program, cuda.lane(32))
    assert unpack(pack(rendered, b"code\nmore")) == ({"workspace": {"": 0}, "shared": rendered.shared}, b"code\nmore")
    assert llvm.llvm_version_info[0] >= 20
