"""The torch operator: shapes, errors, transforms, compilation, threads."""

import gc
import itertools
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from kernel_checks import DEVICES
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from adjoin import trace as at
from adjoin.compiler.runtime.cpu import openmp
from adjoin.compiler.runtime.cpu.kernel import CpuKernel, divide, host
from adjoin.compiler.runtime.interpreter import InterpretedKernel
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.errors import InputError, TraceError


@at.function(q=3, target=3, weight=())
def cost(q, target, weight):
    """Distance to a target."""
    error = q - target
    return {"cost": weight * (error @ error), "wave": at.sin(q) * q[0]}


def reference(q, target, weight):
    error = q - target
    cost = weight * (error * error).sum(-1)
    return {"cost": cost, "wave": (q.sin() * q[..., :1]).expand(*cost.shape, 3)}  # every output has the whole batch


def tensors(*shapes, device="cpu", dtype=torch.float64):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator, dtype=dtype).to(device) for shape in shapes]


def same(got, expected):
    for name in expected:
        torch.testing.assert_close(got[name], expected[name])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "shapes",
    [
        ((3,), (3,), ()),
        ((5, 3), (5, 3), (5,)),
        ((5, 3), (3,), ()),
        ((1, 3), (3,), ()),
        ((5, 3), (1, 3), (1,)),
        ((4, 1, 3), (2, 3), ()),
        ((4, 2, 3), (2, 3), (4, 1)),
        ((1, 1, 3), (2, 3), (1,)),
        ((0, 3), (3,), ()),
        ((4, 0, 3), (0, 3), (4, 1)),
        ((3,), (1000, 3), ()),
        ((2, 3, 4, 5, 3), (3,), (5,)),
    ],
)
def test_batch_shapes_broadcast_like_torch(shapes, device):
    inputs = [t.requires_grad_() for t in tensors(*shapes, device=device)]
    got, expected = cost(*inputs), reference(*inputs)
    same(got, expected)
    weights = tensors(*(value.shape for value in expected.values()), device=device)
    ours = torch.autograd.grad(list(got.values()), inputs, weights)
    theirs = torch.autograd.grad(list(expected.values()), inputs, weights)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_layouts(device):
    q, target, weight = tensors((8, 3), (8, 3), (8,), device=device)
    expected = reference(q, target, weight)
    same(cost(q.t().contiguous().t(), target.flip(0).flip(0), weight), expected)
    same(cost(torch.cat([q, q], -1)[:, :3], target, weight), expected)
    same(cost(q[:1].expand(8, 3), target, weight), reference(q[:1].expand(8, 3), target, weight))
    same(cost(q[::2], target[1::2], weight[:4]), reference(q[::2], target[1::2], weight[:4]))
    same(cost(weight=weight, q=q, target=target), expected)
    same(cost(q, target, 0.5), reference(q, target, 0.5))


def test_many_sizes_of_rows():
    """Every way in which columns split into vectors, at every remainder of the batch."""
    for size in [*range(1, 40), 64, 129]:
        copy = at.function(x=size)(lambda x: {"same": x, "scaled": x[::-1] * 2.0})
        for dtype in (torch.float32, torch.float64):
            for batch in (1, 2, 5, 16, 33):
                (x,) = tensors((batch, size), dtype=dtype)
                out = copy(x)
                assert torch.equal(out["same"], x)
                assert torch.equal(out["scaled"], x.flip(-1) * 2)


@pytest.mark.parametrize("vector", [128, 256, 512])
def test_rows_of_vectors_of_every_width(vector):
    """Also those that this processor would not choose; nothing is written past the batch."""
    if vector > host().vector:
        pytest.skip("this processor has no such vectors")
    for size in (2, 7, 8, 18, 37):
        copy = at.function(x=size)(lambda x: {"same": x, "scaled": x[::-1] * 2.0})
        for bits, dtype in ((32, torch.float32), (64, torch.float64)):
            kernel = CpuKernel(copy.kernel.program, bits, replace(host(), vector=vector))
            for batch in (2, 16, 21):
                (x,) = tensors((batch, size), dtype=dtype)
                held = [torch.full((batch + 16, size), 7.0, dtype=dtype) for _ in range(2)]
                kernel.launch([x], [whole[:batch] for whole in held], batch, ())
                assert torch.equal(held[0][:batch], x)
                assert torch.equal(held[1][:batch], x.flip(-1) * 2)
                assert all((whole[batch:] == 7.0).all() for whole in held)


@pytest.mark.parametrize("device", DEVICES)
def test_output_structures(device):
    (x,) = tensors((4, 2, 2), device=device)
    single = at.function(x=(2, 2))(lambda x: x @ x)
    torch.testing.assert_close(single(x), x @ x)
    nested = at.function(x=(2, 2))(lambda x: {"a": (x[0, 0], [x[1, 0], 1.0]), "b": x[0, 0] > 0.0})
    out = nested(x)
    assert torch.equal(out["a"][0], x[:, 0, 0])
    assert torch.equal(out["a"][1], torch.stack([x[:, 1, 0], torch.ones_like(x[:, 0, 0])], -1))
    assert torch.equal(out["b"], (x[:, 0, 0] > 0).double())


INPUTS = {"q": torch.zeros(4, 3), "target": torch.zeros(3), "weight": torch.tensor(1.0)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.zeros(4, 2)}, r"cost: 'q' must have the shape \(\.\.\., 3\), got \(4, 2\)"),
        ({"q": torch.tensor(1.0)}, r"cost: 'q' must have the shape \(\.\.\., 3\), got \(\)"),
        ({"q": torch.zeros(4, 3, dtype=torch.int64)}, "cost: 'q' must be float32 or float64, got torch.int64"),
        ({"q": torch.zeros(4, 3, dtype=torch.float16)}, "cost: 'q' must be float32 or float64, got torch.float16"),
        ({"q": np.zeros((4, 3))}, "cost: 'q' must be a torch tensor, got ndarray"),
        ({"q": [1.0, 2.0, 3.0]}, "cost: 'q' must be a torch tensor, got list"),
        (
            {"target": torch.zeros(3, dtype=torch.float64)},
            "one dtype and device; 'q' is torch.float32 on cpu, 'target'",
        ),
        ({"target": torch.zeros(3, device="meta")}, "one dtype and device; .* on meta"),
        ({"typo": torch.zeros(3)}, "cost: no input 'typo'; inputs: q, target, weight"),
        ({"weight": None}, "cost: 'weight' must be a torch tensor, got NoneType"),
        ({"weight": "heavy"}, "cost: 'weight' must be a torch tensor, got str"),
        ({"q": torch.zeros(4, 3), "target": torch.zeros(5, 3)}, "shape"),
    ],
)
def test_bad_input_says_which_and_what_would_be_right(changes, message):
    with pytest.raises((InputError, RuntimeError), match=message):
        cost(**{**INPUTS, **changes})


def test_missing_and_surplus_inputs():
    with pytest.raises(InputError, match="missing target, weight; inputs: q, target, weight"):
        cost(INPUTS["q"])
    with pytest.raises(InputError, match=r"takes 3 inputs \(q, target, weight\), got 4"):
        cost(*INPUTS.values(), 1.0)
    with pytest.raises(InputError, match="'q' was given twice"):
        cost(INPUTS["q"], q=INPUTS["q"])


def test_declarations():
    with pytest.raises(TraceError, match=r"do not match its parameters \(q\)"):
        at.function(p=3)(lambda q: q)
    with pytest.raises(TraceError, match="the shape of 'q' must be"):
        at.function(q="three")(lambda q: q)
    with pytest.raises(TraceError, match="name at least one input"):
        at.function()(lambda: 1.0)
    assert "cost(q: (3,), target: (3,), weight: ())" in repr(cost)
    assert cost.__doc__ == "Distance to a target."


def test_streams_and_integers():
    total = at.function(u=at.PerStep(2), v=at.PerStep(()), n=at.Integer)(
        lambda u, v, n: at.scan(lambda t, c, e: (c + e[0][0] * e[1], None), 0.0, [u, v])[0] + at.to_float(n)
    )
    u, v = tensors((6, 4, 2), (6, 4))
    torch.testing.assert_close(total(u, v, 3), (u[..., 0] * v).sum(0) + 3)
    torch.testing.assert_close(total(u[:, :1], v[:, 0], n=3), (u[:, :1, 0] * v[:, :1]).sum(0) + 3)
    assert torch.equal(total(u[:0], v[:0], 0), torch.zeros(4, dtype=torch.float64))
    with pytest.raises(InputError, match="'v' has 5 steps where other streams have 6"):
        total(u, v[:5], 3)
    for bad in (1.5, -1, True, None):
        with pytest.raises(InputError, match="'n' must be a whole number of at least 0"):
            total(u, v, bad)


def test_torch_func_transforms():
    q, target, weight = tensors((3,), (3,), ())
    many, _ = tensors((5, 3), (3,))
    for ours, theirs in [(lambda q, t, w: cost(q, t, w)["wave"], lambda q, t, w: reference(q, t, w)["wave"])]:
        for transform in (
            jacrev, jacfwd, hessian,
            lambda f: jacrev(jacrev(f)), lambda f: jacfwd(jacfwd(f)), lambda f: jacrev(jacfwd(f)),
        ):  # fmt: skip
            torch.testing.assert_close(transform(ours)(q, target, weight), transform(theirs)(q, target, weight))
        torch.testing.assert_close(
            vmap(jacrev(ours), (0, None, None))(many, target, weight),
            vmap(jacrev(theirs), (0, None, None))(many, target, weight),
        )

    def ours(q, t, w):
        return cost(q, t, w)["cost"].sum()

    def theirs(q, t, w):
        return reference(q, t, w)["cost"].sum()

    for argument in range(3):
        a, b = grad(ours, argument), grad(theirs, argument)
        torch.testing.assert_close(a(q, target, weight), b(q, target, weight))
        torch.testing.assert_close(a(many, target, weight), b(many, target, weight))
        each = (0, None, None)
        torch.testing.assert_close(vmap(a, each)(many, target, weight), vmap(b, each)(many, target, weight))
        torch.testing.assert_close(
            hessian(ours, argument)(many, target, weight), hessian(theirs, argument)(many, target, weight)
        )
    torch.testing.assert_close(
        vmap(vmap(ours, (0, None, None)), (None, 0, None))(many, many, weight),
        vmap(vmap(theirs, (0, None, None)), (None, 0, None))(many, many, weight),
    )
    moved = tuple(tensors((3,), (3,), ()))
    torch.testing.assert_close(jvp(ours, (q, target, weight), moved), jvp(theirs, (q, target, weight), moved))
    torch.testing.assert_close(vjp(ours, q, target, weight)[1](weight), vjp(theirs, q, target, weight)[1](weight))


def test_vmap_over_streams():
    total = at.function(u=at.PerStep(2), g=1)(
        lambda u, g: at.scan(lambda t, c, e: ([c[0] + e[0] * g[0]], [c[0] * e[1]]), [0.0], u)[1]
    )
    u, g = tensors((3, 6, 4, 2), (3, 1))
    got = vmap(total)(u, g)
    for i in range(3):
        torch.testing.assert_close(got[i], total(u[i], g[i]))
    jacobian = jacrev(lambda g: total(u[0], g).sum((0, 1)))(g[0])
    torch.testing.assert_close(jacobian, jacfwd(lambda g: total(u[0], g).sum((0, 1)))(g[0]))


def test_double_backward():
    inputs = [t.requires_grad_() for t in tensors((4, 3), (3,), ())]
    ours = [
        torch.autograd.grad(
            f(*inputs)["wave"].pow(2).sum() + f(*inputs)["cost"].pow(2).sum(), inputs, create_graph=True
        )
        for f in (cost, reference)
    ]
    seconds = [torch.autograd.grad(sum(g.pow(3).sum() for g in first), inputs) for first in ours]
    for a, b in zip(*seconds, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore")  # inductor's own warnings
@pytest.mark.parametrize("device", DEVICES)
def test_torch_compile_in_one_graph(device):
    def loss(q, target, weight):
        out = cost(torch.tanh(q), target, weight)
        return (out["cost"] * 2 + out["wave"].sum(-1)).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for shape in ((4, 3), (9, 3)):
        inputs = [t.requires_grad_() for t in tensors(shape, (3,), (), device=device)]
        torch.testing.assert_close(compiled(*inputs), loss(*inputs))
        ours = torch.autograd.grad(compiled(*inputs), inputs)
        for a, b in zip(ours, torch.autograd.grad(loss(*inputs), inputs), strict=True):
            torch.testing.assert_close(a, b)


def test_fake_and_meta_tensors_are_shapes_only():
    with torch._subclasses.FakeTensorMode():
        out = cost(torch.empty(4, 3), torch.empty(3), torch.empty(()))
        assert out["wave"].shape == (4, 3)
        assert out["cost"].shape == (4,)


def test_results_do_not_alias():
    q, target, weight = tensors((4, 3), (3,), ())
    first = cost(q, target, weight)["wave"]
    kept = first.clone()
    cost(q * 2, target, weight)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("device", DEVICES)
def test_shared_gradients_are_deterministic(device):
    q, target, weight = tensors((5001, 3), (3,), (), device=device, dtype=torch.float32)
    target.requires_grad_()
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(torch.autograd.grad(cost(q, target, weight)["cost"].sum(), target)[0])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize(
    ("batch", "rounds", "turns"), [(20_001, 200, 4), (100, 20_000, 4), (17, 20_000, 2), (100, 20, 0)]
)
def test_threads_share_the_work_and_agree(monkeypatch, batch, rounds, turns):
    heavy = at.function(x=4)(lambda x: at.loop(rounds, lambda i, c: [at.sin(v) * 0.9 + x[0] for v in c], list(x)))
    (x,) = tensors((batch, 4), dtype=torch.float32)
    plain, taken = openmp.Team.run, [0]

    def counted(team, *words):
        taken.append(len(team.bounds) - 1)
        return plain(team, *words)

    monkeypatch.setattr(openmp.Team, "run", counted)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = heavy(x)
        torch.set_num_threads(4)
        assert torch.equal(heavy(x), alone)
    finally:
        torch.set_num_threads(before)
    assert taken[-1] >= turns
    assert (taken[-1] > 0) == (turns > 0)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other ways")
def test_memory_of_large_results_is_used_again():
    """Instead of being cleared page by page: three results of 8 MB have 6,000 pages.

    Also where another library has set an option of the allocator, which then no longer adapts by itself.
    """
    program = """
import ctypes, resource, torch
import adjoin.trace as at
TOP_PAD = -2
ctypes.CDLL(None).mallopt(TOP_PAD, 128 << 10)
copy = at.function(x=64)(lambda x: {"a": x * 2.0, "b": x * 3.0, "c": x * 4.0})
x = torch.ones(1 << 14, 64, dtype=torch.float64)
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    copy(x)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert min(int(faults) for faults in printed.split()[1:]) < 100


def test_pieces_of_a_batch():
    """Every thread has as many, none is empty, and vectors are in one piece."""
    assert divide(4096, 2, 64, 16)[:7] == [0, 1024, 1536, 1792, 1920, 1984, 2048]
    for batch in (17, 64, 100, 333, 4096):
        for width in (2, 8, 16):
            for threads in range(1, -(-batch // (4 * width)) + 1):
                bounds = divide(batch, threads, 4 * width, width)
                assert bounds[0] == 0
                assert bounds[-1] == batch
                assert all(a < b for a, b in itertools.pairwise(bounds))
                assert all(bound % width == 0 for bound in bounds[:-1])
                assert (len(bounds) - 1) % threads == 0


def test_threads_of_python_do_the_same(monkeypatch):
    heavy = at.function(x=4)(lambda x: at.loop(20_000, lambda i, c: [at.sin(v) * 0.9 + x[0] for v in c], list(x)))
    (x,) = tensors((100, 4), dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = heavy(x)
        monkeypatch.setattr(openmp, "_load", lambda process: None)
        torch.set_num_threads(3)
        assert torch.equal(heavy(x), alone)
    finally:
        torch.set_num_threads(before)


def test_two_threads_trace_and_compile_at_once():
    failures = []

    def work(seed):
        try:
            for i in range(5):
                factor = seed * 10 + i + 1.0
                kernel = at.function(x=2)(lambda x, f=factor: at.loop(3, lambda k, c: c * x[0] + f, x[1]))
                x = torch.full((3, 2), 2.0, requires_grad=True)
                out = kernel(x)
                out.sum().backward()
                assert out[0].item() == 16 + 7 * factor
                assert x.grad is not None
                assert x.grad[0, 1].item() == 8.0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_kernel_from_many_threads():
    inputs = tensors((64, 3), (3,), ())
    expected = cost(*inputs)["wave"]
    results = [None] * 8

    def work(i):
        results[i] = all(torch.equal(cost(*inputs)["wave"], expected) for _ in range(50))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_memory_is_given_back():
    kernel = at.function(x=2)(lambda x: x * 3.0)
    kernel(torch.zeros(2))
    gc.collect()
    code = kernel.kernel.executable(torch.device("cpu"), torch.float32)
    assert code is not None
    import weakref

    gone = weakref.ref(kernel.kernel)
    del kernel, code
    gc.collect()
    assert gone() is None


def test_equal_kernels_share_their_code_and_outlive_each_other():
    first, second = (at.function(x=2)(lambda x: x * 5.0) for _ in range(2))
    x = torch.ones(3, 2, requires_grad=True)
    compiled = torch.compile(lambda x: first(x).sum(), fullgraph=True, backend="aot_eager")
    assert compiled(x).item() == 30.0
    assert second.kernel.executable(x.device, x.dtype) is first.kernel.executable(x.device, x.dtype)
    del second
    gc.collect()
    compiled(x).backward()
    assert torch.equal(x.grad, torch.full((3, 2), 5.0))


def test_the_interpreter_runs_where_there_is_no_compiler(monkeypatch):
    inputs = [t.requires_grad_() for t in tensors((2, 4, 3), (3,), ())]
    fresh = at.function(q=3, target=3, weight=())(lambda q, target, weight: weight * ((q - target) @ (q - target)))
    monkeypatch.setattr(Kernel, "executable", lambda kernel, device, dtype: InterpretedKernel(kernel.program))
    got = fresh(*inputs)
    expected = reference(*inputs)["cost"]
    torch.testing.assert_close(got, expected)
    for a, b in zip(torch.autograd.grad(got.sum(), inputs), torch.autograd.grad(expected.sum(), inputs), strict=True):
        torch.testing.assert_close(a, b)


def _largest_in_a_child(queue, function, x):
    torch.set_num_threads(2)
    queue.put(float(function(x).numpy().max()))  # torch's own reduction would wait for threads that are gone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_several_threads_give_the_same_bits_also_in_a_forked_child():
    @at.function(x=8)
    def slow(x):
        return at.loop(40, lambda _, y: [at.sin(1.1 * a + 0.3 * b) for a, b in zip(y, y[::-1], strict=True)], list(x))

    x = torch.linspace(-3, 3, 8 * 20_000).reshape(20_000, 8)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(slow(x))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_largest_in_a_child, args=(queue, slow, x))
    child.start()
    assert queue.get(timeout=60) == float(results[0].numpy().max())
    child.join()


@pytest.mark.filterwarnings("ignore")  # torch's own warnings
def test_a_first_call_with_a_shared_input_compiles_into_one_graph():
    @at.function(x=3, w=())
    def scaled(x, w):
        return w * (x @ x) + 0.125

    torch.compiler.reset()
    x, w = torch.rand(4, 3, dtype=torch.float64, requires_grad=True), torch.tensor(2.0, dtype=torch.float64)
    value = torch.compile(lambda x, w: scaled(x, w).sum(), fullgraph=True, backend="aot_eager")(x, w)
    (gradient,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(gradient, 4.0 * x.detach())


@pytest.mark.parametrize("shape", [(-1,), (2, 0.5), 2.5, "3"])
def test_shapes_of_inputs_are_whole_numbers(shape):
    with pytest.raises(TraceError, match="the shape of 'x' must be a number, a tuple"):
        at.function(x=shape)(lambda x: x)
