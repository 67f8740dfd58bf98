"""What only a GPU can show. The other files run on it too, wherever there is one."""

import pytest
import torch
from kernel_checks import close
from random_programs import INPUTS, STEPS, random_program

import adjoin
from adjoin import trace as at
from adjoin.compiler.runtime.cuda.kernel import SMALL_BATCH
from adjoin.compiler.runtime.interpreter import interpret
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.compiler.runtime.operator import call
from adjoin.errors import InputError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


@pytest.mark.parametrize("seed", range(200))
def test_random_graphs(seed):
    program = random_program(seed)
    kernel = Kernel(program)
    for dtype in (torch.float64, torch.float32):
        generator = torch.Generator().manual_seed(seed)
        inputs = [
            torch.randn((*((STEPS,) if s.steps else ()), 45, s.size), generator=generator, dtype=torch.float64).to(
                dtype
            )
            for s in INPUTS
        ]
        inputs[2] = inputs[2][0]
        flat = [t if t.dim() > 1 else t[None] for t in inputs]
        exact = interpret(program, [t.double() for t in flat], {"steps": STEPS})
        nudged = interpret(program, [t.double() * (1 + 1e-6) for t in flat], {"steps": STEPS})
        stable = [close(a, b, 1e11) for a, b in zip(exact, nudged, strict=True)]
        leaves = [t.cuda().requires_grad_() for t in inputs]
        results = call(kernel, leaves, (STEPS,))
        here = [t.clone().requires_grad_() for t in inputs]
        expected = call(kernel, here, (STEPS,))
        for a, b, c, ok in zip(interpret(program, flat, {"steps": STEPS}), results, expected, stable, strict=True):
            assert (close(a, b.detach().cpu(), 3e3) | ~ok).all()
            assert torch.equal(b.detach().cpu().nan_to_num(7.0), c.detach().nan_to_num(7.0)), "GPU and CPU differ"
        weights = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(dtype) for r in expected]
        ours = torch.autograd.grad(results, leaves, [w.cuda() for w in weights])
        theirs = torch.autograd.grad(expected, here, weights)
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.isfinite().all()
            if i != 2:  # the shared one is summed in another order
                assert torch.equal(a.cpu(), b)


@pytest.mark.parametrize("batch", [1, 31, 32, 33, 4096, SMALL_BATCH, SMALL_BATCH + 1, 3 * SMALL_BATCH + 17])
@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 64, 100, 324, 1500])
def test_rows_of_every_size(batch, size):
    kernel = at.function(x=size, y=2)(lambda x, y: {"same": x, "other": x[::-1] * y[0]})
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(batch, size, device="cuda", dtype=dtype)
        y = torch.randn(2, device="cuda", dtype=dtype, requires_grad=True)
        out = kernel(x, y)
        assert torch.equal(out["same"], x)
        assert torch.equal(out["other"], x.flip(-1) * y[0])
        (got,) = torch.autograd.grad(out["other"].sum(), y)
        torch.testing.assert_close(got[0], x.sum(), rtol=1e-3, atol=batch * size * 1e-6)


def heavy():
    return at.function(x=4)(lambda x: at.loop(200, lambda i, c: [at.sin(v) * 0.9 + x[0] for v in c], list(x)))


def test_streams():
    kernel = heavy()
    x = torch.randn(100_000, 4, device="cuda")
    expected = kernel(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = x.clone()
        for _ in range(5):
            got = kernel(y)
    stream.synchronize()
    assert torch.equal(got, expected)


def test_graph_capture():
    kernel = heavy()
    x = torch.randn(1000, 4, device="cuda", requires_grad=True)
    weight = torch.randn(1000, 4, device="cuda")

    def step():
        return torch.autograd.grad(kernel(x), x, weight)[0]

    expected = step()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    got.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got, expected)


def test_mixed_devices_are_refused():
    kernel = at.function(x=2, y=2)(lambda x, y: x + y)
    with pytest.raises(ValueError, match=r"one dtype and device; 'x' is torch.float32 on cuda:0, 'y' is .* on cpu"):
        kernel(torch.zeros(2, device="cuda"), torch.zeros(2))


def test_a_long_history_in_the_workspace():
    power = at.function(x=2, n=at.Integer)(lambda x, n: at.loop(n, lambda i, c: c * x[0] + x[1], x[1]))
    x = torch.rand(5000, 2, device="cuda", dtype=torch.float64, requires_grad=True)
    y = x.detach().cpu().requires_grad_()
    (got,) = torch.autograd.grad(power(x, 1000).sum(), x)
    (expected,) = torch.autograd.grad(power(y, 1000).sum(), y)
    assert torch.equal(got.cpu(), expected)


def test_elementary_functions_on_the_gpu():
    from test_elementary import max_ulp

    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        x = (torch.rand(20_000, generator=generator, dtype=torch.float64) * 2e4 - 1e4).to(dtype)
        for name in ("sin", "cos", "tan", "exp", "log", "tanh", "asin", "acos"):
            points = {"exp": x / 150, "log": x.abs() + 1e-3, "tanh": x / 1e3, "asin": x / 1e4, "acos": x / 1e4}.get(
                name, x
            )
            out = at.function(x=())(lambda x, name=name: getattr(at, name)(x))(points.cuda()).cpu()
            assert max_ulp(name, (points.numpy(),), out.numpy()) <= 2.0, name


def test_results_are_written_where_a_unit_of_memory_begins():
    double = adjoin.function(x=4)(lambda x: 2.0 * x)
    x, memory = torch.ones(3, 4, device="cuda"), torch.zeros(4, 4, device="cuda")
    double(x, out=memory[1:])
    assert memory.tolist() == [[0.0] * 4] + [[2.0] * 4] * 3
    with pytest.raises(InputError, match="multiple of 16 bytes"):
        double(x, out=memory.flatten()[1:13].view(3, 4))
