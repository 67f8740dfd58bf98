"""Loops and branches that are functions of their own: the same bits, shared by the kernels that have them."""

import pytest
import torch
from kernel_checks import check_kernel, host_targets, run_on
from random_programs import random_program
from test_random_programs import BATCH, GRAPHS, INTEGERS, STEPS, make_inputs

from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.codegen.outline import result_type
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime.cpu import frame, objects
from adjoin.compiler.runtime.function import Function
from adjoin.compiler.runtime.interpreter import interpret


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "off")


def small_parts(monkeypatch, part=8):
    monkeypatch.setattr(frame, "LARGE_PROGRAM", 0)
    monkeypatch.setattr(frame, "PART", part)


def rendered(program, bits=64):
    target = host_targets()[0]
    return [target.render(program, lane) for lane in target.lanes(bits)]


def nested(x):
    """Branches in a loop in a branch, with scratch arrays inside and around, and results of each."""
    outer = at.scratch(list(x))

    def visit(i, carry):
        total, outer = carry

        def search(carry):
            total, outer = carry
            own = at.scratch([at.sin(total + k) for k in range(4)])

            def refine(k, carry):
                own, best = carry
                own[k] = own[k] * own[k] + at.cos(best) * 0.5
                return own, at.maximum(best, own[k])

            own, best = at.loop(4, refine, (own, total))
            outer[i] = best + own[2] * own[3]

            def deeper(values):
                first, second = values
                return at.exp(-(first * first)) + second, at.sin(first * second) * 0.3

            low, high = at.when(best > 0.6, deeper, (best, own[1]))
            return total + 0.1 * low * high, outer

        return at.when(outer[i] < 0.4, search, (total, outer))

    total, outer = at.loop(5, visit, (x[5], outer))
    return [total, *[outer[i] for i in range(5)]]


@pytest.mark.parametrize("part", [8, 40])
def test_parts_compute_what_the_interpreter_does_with_gradients(part, monkeypatch):
    small_parts(monkeypatch, part)
    function = Function(nested, {"x": 6})
    assert all(kernel.parts for kernel in rendered(function.kernel.program))
    x = torch.randn(37, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    check_kernel(function.kernel, [x], second=False)


@pytest.mark.parametrize("seed", [0, 2, 3, 6])  # of which gradients have parts too
def test_random_programs_have_the_same_bits(seed, monkeypatch):
    program = random_program(seed, GRAPHS)
    for each in (program, vjp(program, [True] * 4)[0]):
        for dtype in (torch.float64, torch.float32):
            inputs = make_inputs(seed, dtype)
            for spec in each.inputs[len(inputs) :]:
                inputs.append(torch.ones((STEPS,) * (spec.steps is not None) + (BATCH, spec.size), dtype=dtype))
            whole = on_all_targets(each, inputs)
            with monkeypatch.context() as patch:
                small_parts(patch)
                assert all(kernel.parts for kernel in rendered(each))
                cut = on_all_targets(each, inputs)
            for one, other in zip(whole, cut, strict=True):
                assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def on_all_targets(program, inputs):
    ways = [(target, scalar) for target in host_targets() for scalar in (False, True)]
    return [result for target, scalar in ways for result in run_on(target, program, inputs, INTEGERS, scalar=scalar)]


def test_a_gradient_has_the_parts_of_its_function(monkeypatch):
    small_parts(monkeypatch)

    def search(x):
        def step(_, carry):
            a, b = carry
            return [a + 0.1 * at.sin(b) * at.cos(a), at.tanh(a * b) + 0.2 * at.exp(-a * a)]

        found, _ = at.loop(9, step, [x[0], x[1]], detached=True)
        return [found * x[0] * x[1]]

    program, _ = trace("search", search, [TensorSpec("x", (2,))])
    for own, gradient in zip(rendered(program), rendered(vjp(program, [True])[0]), strict=True):
        assert own.parts.keys() & gradient.parts.keys()


def test_any_number_of_threads_writes_the_same_code(monkeypatch):
    small_parts(monkeypatch)
    program = random_program(6, GRAPHS)
    target, (_, lane) = host_targets()[0], host_targets()[0].lanes(64)
    kernel, threads = target.render(program, lane), torch.get_num_threads()
    assert len(kernel.parts) > 2
    codes = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            monkeypatch.setattr(objects, "_parts", type(objects._parts)(8))
            codes.append(target.compile(kernel))
    finally:
        torch.set_num_threads(threads)
    assert codes[0] == codes[1]
    assert len(list(objects.object_files(codes[0]))) == 1 + len(kernel.parts)


def test_streams_of_tensors_stay_in_the_kernel(monkeypatch):
    small_parts(monkeypatch, 4)

    def running(u):
        def step(_, carry, element):
            following = at.tanh(carry + element[0] * element[1]) + 0.1 * at.sin(carry)
            return following, [following * element[0], at.cos(following)]

        last, path = at.scan(step, 0.5, u)
        return {"last": last, "path": path}

    program, _ = trace("running", running, [TensorSpec("u", (2,), "steps")])
    assert not any(kernel.parts for kernel in rendered(program))
    inputs = [make_inputs(0)[3]]
    for got, wanted in zip(
        run_on(host_targets()[0], program, inputs, INTEGERS), interpret(program, inputs, INTEGERS), strict=True
    ):
        assert torch.allclose(got, wanted, atol=1e-14)


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("fadd <8 x double> %a, %b", "<8 x double>"),
        ("fcmp olt <16 x float> %a, %b", "<16 x i1>"),
        ("fcmp olt double %a, %b", "i1"),
        ("icmp slt i64 %a, 3", "i1"),
        ("select <8 x i1> %c, <8 x double> %a, <8 x double> %b", "<8 x double>"),
        ("select i1 %c, i32 %a, i32 %b", "i32"),
        ("load double, ptr %p", "double"),
        ("load volatile i64, ptr %p", "i64"),
        ("getelementptr double, ptr %p, i64 3", "ptr"),
        ("alloca [4 x <8 x double>], align 64", "ptr"),
        ("extractelement <8 x i32> %v, i64 2", "i32"),
        ("insertelement <8 x double> poison, double %x, i64 0", "<8 x double>"),
        ("shufflevector <8 x double> %a, <8 x double> poison, <8 x i32> zeroinitializer", "<8 x double>"),
        ("shufflevector <4 x float> %a, <4 x float> %b, <8 x i32> <i32 0, i32 1>", "<8 x float>"),
        ("sext i32 %a to i64", "i64"),
        ("sitofp <8 x i32> %a to <8 x double>", "<8 x double>"),
        ("call <8 x double> @llvm.fma.v8f64(<8 x double> %a, <8 x double> %b, <8 x double> %c)", "<8 x double>"),
        ("phi i1 [ true, %a ], [ %b, %c ]", "i1"),
        ("bitcast double %a to i64", "i64"),
    ],
)
def test_types_of_instructions(instruction, kind):
    assert result_type(instruction) == kind
