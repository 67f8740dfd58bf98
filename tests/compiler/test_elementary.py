"""Elementary functions: error against mpmath, special values, equal bits in every width, no call of a math library."""

import ctypes
import functools
import math
import struct

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest
import torch

from adjoin.compiler.codegen import elementary
from adjoin.compiler.codegen.writer import Lane, Writer

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

FUNCTIONS = {
    "sin": lambda w, x: elementary.sincos(w, x)[0],
    "cos": lambda w, x: elementary.sincos(w, x)[1],
    "tan": elementary.tan,
    "asin": elementary.asin,
    "acos": elementary.acos,
    "atan2": elementary.atan2,
    "exp": elementary.exp,
    "log": elementary.log,
    "tanh": elementary.tanh,
    "floor": elementary.floor,
}
# Largest error allowed, in ulp; what was measured is in the docstrings of the functions.
BOUNDS = {
    "sin": 1.7,
    "cos": 1.7,
    "tan": 1.4,
    "asin": 1.3,
    "acos": 1.3,
    "atan2": 1.6,
    "exp": 1.2,
    "log": 1.1,
    "tanh": 1.3,
    "floor": 0.0,
}
WIDTHS = (1, 4, 8, 16)
FLOATS = {32: np.float32, 64: np.float64}
INTS = {32: np.int32, 64: np.int64}


# Compiling -------------------------------------------------------------------------------------------------------


def module_text(bits: int, width: int, fma: bool) -> str:
    """A module with one `void f(ptr x, ptr y, ptr out, i64 n)` for each function; n is a multiple of the width."""
    text, declarations = [], set()
    for name, function in FUNCTIONS.items():
        lane = Lane(bits, width, fma)
        w = Writer(lane)
        operands = ("%x", "%y")[: 2 if name == "atan2" else 1]
        result = function(w, *operands)
        declarations |= w.declarations
        align = bits // 8
        text += [
            f"define void @adjoin_{name}(ptr %xs, ptr %ys, ptr %out, i64 %n) {{",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [0, %0], [%next, %loop]",
            f"  %px = getelementptr {lane.scalar}, ptr %xs, i64 %i",
            f"  %py = getelementptr {lane.scalar}, ptr %ys, i64 %i",
            f"  %po = getelementptr {lane.scalar}, ptr %out, i64 %i",
            f"  %x = load {lane.float}, ptr %px, align {align}",
            f"  %y = load {lane.float}, ptr %py, align {align}",
            *w.lines,
            f"  store {lane.float} {result}, ptr %po, align {align}",
            f"  %next = add i64 %i, {width}",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %end",
            "end:",
            "  ret void",
            "}",
        ]
    return "\n".join([*sorted(declarations), *text])


def compiled(text: str, triple: str, cpu: str, features: str = "") -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """The module after LLVM's own optimizer, which is to keep every bit."""
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=2)
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    return module, machine


@functools.cache
def engine(bits: int, width: int, fma: bool, baseline: bool) -> llvm.ExecutionEngine:
    """Machine code for this host, or for the least x86-64, which has SSE2 only."""
    cpu, features = ("x86-64", "") if baseline else (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    module, machine = compiled(module_text(bits, width, fma), llvm.get_process_triple(), cpu, features)
    result = llvm.create_mcjit_compiler(module, machine)
    result.finalize_object()
    return result


def evaluate(
    name: str, xs: tuple[np.ndarray, ...], width: int = 16, fma: bool = True, baseline: bool = False
) -> np.ndarray:
    """Run a function over arrays of one dtype."""
    count = xs[0].size
    bits = 8 * xs[0].itemsize
    padded = [np.resize(x, -(-count // 16) * 16) for x in xs]
    out = np.empty_like(padded[0])
    address = engine(bits, width, fma, baseline).get_function_address(f"adjoin_{name}")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    call(padded[0].ctypes.data, padded[-1].ctypes.data, out.ctypes.data, out.size)
    return out[:count]


def host_has_fma() -> bool:
    features = llvm.get_host_cpu_features()
    return features.get("fma", False) or llvm.get_process_triple().startswith(("aarch64", "arm64"))


FMA = pytest.mark.parametrize(
    "fma", [pytest.param(True, marks=pytest.mark.skipif(not host_has_fma(), reason="no FMA on this host")), False]
)
BITS = pytest.mark.parametrize("bits", [32, 64])
NAMES = pytest.mark.parametrize("name", FUNCTIONS)


# Measuring -------------------------------------------------------------------------------------------------------


def _exponent(values: np.ndarray, info: np.finfo) -> np.ndarray:
    return np.clip(np.frexp(values)[1] - 1, info.minexp, info.maxexp - 1)


@functools.cache
def _reference(name: str, dtype: str, *data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The right values: f64, and what that misses in ulp. For f32, f64 functions of numpy miss a billionth."""
    xs = [np.frombuffer(d, dtype).astype(np.float64) for d in data]
    if dtype == "float32":
        names = {"asin": "arcsin", "acos": "arccos", "atan2": "arctan2"}
        head = getattr(np, names.get(name, name))(*xs)
        return head, np.zeros_like(head)
    function = getattr(mpmath, name)
    with mpmath.workprec(200):
        values = [function(*map(mpmath.mpf, arguments)) for arguments in zip(*xs, strict=True)]
        limit = mpmath.mpf(2) ** 1024
        head = np.array([float(v) if abs(v) < limit else math.copysign(math.inf, v) for v in values])
        lasts = _exponent(head, np.finfo(np.float64)) - 52
        missing = [
            float(mpmath.ldexp(v - h, -int(last))) if math.isfinite(h) else 0.0
            for v, h, last in zip(values, head, lasts, strict=True)
        ]
    return head, np.array(missing)


def ulps(name: str, xs: tuple[np.ndarray, ...], result: np.ndarray) -> np.ndarray:
    """Error of each result in units in the last place of the right value, infinity taken for the next power of two."""
    head, missing = _reference(name, str(result.dtype), *(np.ascontiguousarray(x).tobytes() for x in xs))
    info = np.finfo(result.dtype)
    # Halves leave room for the power of two after the largest f64; small ones would lose their last bit.
    scale = np.where(np.abs(head) > 1.0, 0.5, 1.0)
    overflow = 2.0 ** (info.maxexp - 1)
    got, right = (np.clip(v.astype(np.float64) * scale, -overflow, overflow) for v in (result, head))
    return np.abs((got - right) / np.ldexp(scale, _exponent(head, info) - info.nmant) - missing)


def max_ulp(function_name: str, x_arrays: tuple[np.ndarray, ...], result_array: np.ndarray) -> float:
    """Largest error of results computed anywhere, such as on a GPU, in ulp of their dtype, float32 or float64."""
    return float(np.max(ulps(function_name, x_arrays, result_array)))


def neighbors(values: np.ndarray, dtype: type, reach: int = 3) -> np.ndarray:
    """The floats next to each value, both sides."""
    info = np.iinfo(INTS[8 * np.dtype(dtype).itemsize])
    bits = np.asarray(values, dtype).view(info.dtype)
    return np.concatenate([bits + step for step in range(-reach, reach + 1)]).view(dtype)


def magnitudes(rng: np.random.Generator, count: int, low: float, high: float) -> np.ndarray:
    """Spread evenly over the exponents between two powers of two, both signs."""
    return rng.choice([-1.0, 1.0], count) * np.exp2(rng.uniform(low, high, count))


@functools.cache
def points(name: str, bits: int) -> tuple[np.ndarray, ...]:
    """Arguments that are dense, random and nasty."""
    rng = np.random.default_rng(7)
    dtype = FLOATS[bits]
    info = np.finfo(dtype)
    many = 200_000 if bits == 32 else 3000
    smallest = info.minexp - info.nmant
    if name in ("sin", "cos", "tan"):
        turns = np.arange(1, 6367) if bits == 32 else np.r_[np.arange(1, 200), 29 * 2 ** np.arange(8)]
        with mpmath.workprec(100):
            quarters = np.array([float(n * mpmath.pi / 2) for n in turns])
            eighths = np.array([float((2 * n - 1) * mpmath.pi / 4) for n in turns[:200]])
        xs = [
            rng.uniform(-1e4, 1e4, many),
            rng.uniform(-10, 10, many),
            magnitudes(rng, many, smallest, 13.28),
            *(neighbors(v, dtype, 1) for v in (quarters, -quarters, eighths)),
        ]
    elif name in ("asin", "acos"):
        xs = [
            rng.uniform(-1, 1, 2 * many),
            magnitudes(rng, many, smallest, 0),
            1 - np.exp2(rng.uniform(-info.nmant - 1, 0, many)),
            np.exp2(rng.uniform(-info.nmant - 1, 0, many)) - 1,
            neighbors(np.array([0.5, -0.5, 0.99]), dtype),
            [1.0, -1.0, 0.0],
        ]
    elif name == "atan2":
        ratio = magnitudes(rng, 2 * many, -info.nmant - 4, info.nmant + 4)
        x = magnitudes(rng, 2 * many, -30, 30)
        tiny, huge = magnitudes(rng, many, smallest, info.minexp), magnitudes(rng, many, info.maxexp - 3, info.maxexp)
        near = rng.uniform(-1, 1, 3 * many)
        other = rng.uniform(-1, 1, 3 * many)
        ys = [ratio * x, tiny, rng.permutation(tiny), huge, rng.permutation(huge), tiny, huge, near]
        xs = [x, rng.permutation(tiny), x[:many], rng.permutation(huge), x[:many], huge, tiny, other]
        return tuple(np.concatenate([np.asarray(v, dtype) for v in vs]) for vs in (ys, xs))
    elif name == "exp":
        bottom, top = math.log(2.0) * (smallest - 1), math.log(2.0) * info.maxexp
        xs = [
            rng.uniform(bottom, top, 2 * many),
            rng.uniform(bottom, math.log(2.0) * info.minexp, many),
            magnitudes(rng, many, smallest, 6),
            neighbors(np.array([bottom, top, math.log(2.0) * info.minexp]), dtype),
            neighbors((np.arange(-100, 100) + 0.5) * math.log(2.0), dtype, 1),
        ]
    elif name == "log":
        xs = [
            np.exp2(rng.uniform(smallest, info.maxexp, 2 * many)),
            np.exp2(rng.uniform(smallest, info.minexp, many)),
            np.exp2(rng.uniform(-2, 2, 2 * many)),
            1 + magnitudes(rng, many, -info.nmant - 1, -1),
            neighbors(np.exp2(np.arange(-20, 20) + 0.5), dtype, 1),
            np.array([info.max, info.tiny, info.smallest_subnormal]),
        ]
    else:
        xs = [
            rng.uniform(-1, 1, many),
            rng.uniform(-25, 25, many),
            magnitudes(rng, many, smallest, info.maxexp),
            magnitudes(rng, many, -2, 2),
            neighbors(np.array([0.65, -0.65, 9.01, 19.06, 2.0**info.nmant, 7.0]), dtype),
        ]
    return (np.concatenate([np.asarray(x, dtype) for x in xs]),)


# Tests -----------------------------------------------------------------------------------------------------------


@NAMES
@BITS
@FMA
def test_error_is_bounded(name, bits, fma):
    xs = points(name, bits)
    result = evaluate(name, xs, width=512 // bits, fma=fma)
    error = ulps(name, xs, result)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name], (error[worst], [x[worst] for x in xs], result[worst])


@NAMES
@BITS
@FMA
def test_every_width_gives_the_same_bits(name, bits, fma):
    xs = tuple(np.concatenate([x[:20_000], s]) for x, s in zip(points(name, bits), specials(name, bits), strict=True))
    expected = evaluate(name, xs, 16, fma)
    runs = [(width, False) for width in WIDTHS[:-1]]
    if not fma and llvm.get_process_triple().startswith("x86_64"):
        runs += [(width, True) for width in WIDTHS]
    for width, baseline in runs:
        result = evaluate(name, xs, width, fma, baseline)
        same = (result.view(INTS[bits]) == expected.view(INTS[bits])) | (np.isnan(result) & np.isnan(expected))
        assert same.all(), (width, baseline, [x[~same][:5] for x in xs])


def specials(name: str, bits: int) -> tuple[np.ndarray, ...]:
    """Zeros, ones, infinities, NaN, subnormals, extremes; for two arguments, every pair of them."""
    info = np.finfo(FLOATS[bits])
    some = [0.0, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 1e6, 2.0**info.nmant + 1, info.max, info.tiny, info.smallest_subnormal]
    values = np.array([*some, *np.negative(some), math.inf, -math.inf, math.nan], FLOATS[bits])
    if name == "atan2":
        return tuple(np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    return (values,)


@NAMES
@BITS
@FMA
def test_special_values_are_those_of_torch(name, bits, fma):
    xs = specials(name, bits)
    if name in ("sin", "cos", "tan"):
        xs = tuple(x[~(np.isfinite(x) & (np.abs(x) > 1e4))] for x in xs)
    result = evaluate(name, xs, 8, fma)
    # torch in f64: its own f32 functions err too.
    expected = getattr(torch, name)(*(torch.tensor(x, dtype=torch.float64) for x in xs))
    expected = expected.to(torch.float32 if bits == 32 else torch.float64).numpy()
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[finite]), np.signbit(expected[finite]))
    np.testing.assert_array_equal(result[finite] == 0, expected[finite] == 0)
    np.testing.assert_array_max_ulp(result[finite], expected[finite], 2)


@BITS
@FMA
def test_values_that_must_be_exact(bits, fma):
    def at(name, *xs):
        return evaluate(name, tuple(np.array([x], FLOATS[bits]) for x in xs), 1, fma)[0]

    assert at("exp", 0.0) == at("cos", 0.0) == at("tanh", 30.0) == 1.0
    assert at("log", 1.0) == at("acos", 1.0) == at("asin", 0.0) == 0.0
    for turn in (1.0, -1.0):
        assert at("asin", turn) == FLOATS[bits](turn * math.pi / 2)
        assert at("atan2", turn, 0.0) == FLOATS[bits](turn * math.pi / 2)
        assert at("atan2", turn, 1.0) == FLOATS[bits](turn * math.pi / 4)
        assert at("atan2", turn, -1.0) == FLOATS[bits](turn * 3 * math.pi / 4)
    assert at("acos", -1.0) == at("atan2", 0.0, -1.0) == FLOATS[bits](math.pi)


@BITS
@FMA
def test_sine_and_cosine_of_any_finite_angle_are_on_the_circle(bits, fma):
    info = np.finfo(FLOATS[bits])
    rng = np.random.default_rng(3)
    x = np.concatenate([magnitudes(rng, 200_000, 13, info.maxexp), [info.max, -info.max]]).astype(FLOATS[bits])
    x = np.concatenate([x, neighbors(np.exp2(np.arange(13, info.maxexp)), FLOATS[bits])])
    s, c = evaluate("sin", (x,), 8, fma), evaluate("cos", (x,), 8, fma)
    assert np.all((np.abs(s) <= 1) & (np.abs(c) <= 1))
    np.testing.assert_allclose(s.astype(np.float64) ** 2 + c.astype(np.float64) ** 2, 1, atol=1e-4)
    assert np.isfinite(evaluate("tan", (x,), 8, fma)).all()


def test_accuracy_of_large_angles_falls_slowly():
    if not host_has_fma():
        pytest.skip("no FMA on this host")
    x = np.random.default_rng(5).uniform(1e4, 2e6, 50_000).astype(np.float32)
    np.testing.assert_allclose(evaluate("sin", (x,)), np.sin(x.astype(np.float64)), rtol=0, atol=4e-6)
    x = np.random.default_rng(5).uniform(1e4, 1e9, 300)
    assert max_ulp("sin", (x,), evaluate("sin", (x,), 8)) < BOUNDS["sin"]


def undefined_symbols(elf: bytes) -> set[str]:
    """Names an ELF64 object file expects from elsewhere."""
    sections = {s.name(): s.data() for s in llvm.ObjectFileRef.from_data(elf).sections()}
    names = set()
    for offset, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", sections[b".symtab"]):
        if section == 0:
            names.add(sections[b".strtab"][offset:].split(b"\0", 1)[0].decode())
    return names - {""}


@BITS
@pytest.mark.parametrize(
    ("triple", "cpu", "width", "fma"),
    [
        ("x86_64-unknown-linux-gnu", "x86-64", 1, False),
        ("x86_64-unknown-linux-gnu", "x86-64", 4, False),
        ("x86_64-unknown-linux-gnu", "haswell", 8, True),
        ("x86_64-unknown-linux-gnu", "skylake-avx512", 16, True),
        ("aarch64-unknown-linux-gnu", "generic", 4, True),
    ],
)
def test_object_code_calls_no_library(triple, cpu, width, fma, bits):
    module, machine = compiled(module_text(bits, width, fma), triple, cpu)
    assert undefined_symbols(machine.emit_object(module)) == set()


@BITS
def test_ptx_calls_nothing(bits):
    module, machine = compiled(module_text(bits, 1, True), "nvptx64-nvidia-cuda", "sm_70")
    ptx = machine.emit_assembly(module)
    assert "adjoin_sin" in ptx
    assert "call" not in ptx
    assert ".extern" not in ptx
    assert ".approx" not in ptx
