"""Calls whose signature was seen before: they are recognized, give the same bits, and change with every signature."""

import ctypes
import gc
import struct
import threading
import weakref

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, vmap

from adjoin import trace as at
from adjoin.compiler.runtime import signature
from adjoin.compiler.runtime.cuda.launcher import enqueue, pack_head
from adjoin.compiler.runtime.kernel import PATIENCE, PREPARED
from adjoin.errors import InputError


@at.function(x=3, y=3)
def product(x, y):
    return {"dot": x @ y, "each": at.sin(x) * y}


def reference(x, y):
    return {"dot": (x * y).sum(-1), "each": (x.sin() * y).expand(torch.broadcast_shapes(x.shape, y.shape))}


def tensors(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


def check(*inputs):
    """Twice, since the second call is the prepared one."""
    expected = reference(*inputs)
    for _ in range(2):
        got = product(*inputs)
        for name in expected:
            torch.testing.assert_close(got[name], expected[name])
            assert got[name].requires_grad == expected[name].requires_grad
            assert got[name].is_contiguous()
    return got


def recognized(*inputs):
    return [bound for matches, bound in product.kernel.prepared if matches(*inputs)]


def test_a_call_is_prepared_for_its_signature_only():
    x, y = tensors((4, 3), (4, 3))
    check(x, y)
    assert recognized(x, y)
    assert recognized(*tensors((4, 3), (4, 3), seed=1))
    for other in (
        (x[:3], y[:3]),
        (x.float(), y.float()),
        (x.clone().requires_grad_(), y),
        (x.t().contiguous().t(), y),
        (torch.nn.Parameter(x), y),
        (x[None], y[None]),
    ):
        assert not recognized(*other)
    with torch.inference_mode():
        assert not recognized(x, y)
    assert not vmap(lambda a, b: torch.tensor(len(recognized(a, b))), out_dims=None)(x[None], y[None])


def test_one_tensor_passed_twice_is_a_signature_of_its_own():
    x, y, z = tensors((5, 3), (5, 3), (5, 3))
    assert len(recognized(x, x)) == 0
    check(x, x)
    assert len(recognized(x, x)) == len(recognized(z, z)) == 1
    assert not recognized(x, y)
    check(x, y)
    assert len(recognized(x, y)) == len(recognized(x, x)) == 1
    assert recognized(x, y) != recognized(x, x)
    (gradient,) = torch.autograd.grad(check(w := z.clone().requires_grad_(), w)["dot"].sum(), w)
    torch.testing.assert_close(gradient, 2.0 * z)


@pytest.mark.parametrize(
    "shapes", [((4, 3), (4, 3)), ((3,), (3,)), ((1, 3), (1, 3)), ((4, 3), (3,)), ((4, 1, 3), (2, 3))]
)
def test_prepared_calls_give_the_same_bits(shapes):
    one, other = tensors(*shapes), tensors(*shapes, seed=1)
    first = [product(*inputs)["each"] for inputs in (one, other)]
    again = [product(*inputs)["each"] for inputs in (one, other)]
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()
    check(*one)


def test_layouts_that_are_views_and_layouts_that_need_copies():
    x, y = tensors((8, 6), (8, 3))
    check(x[:, :3], y)
    check(x[:, 1:4], y)
    check(x[:, ::2], y)
    check(x[::2, :3], y[1::2])
    check(x[:1, :3].expand(8, 3), y)
    check(y, y)


def test_gradients_are_recorded_when_they_are_wanted():
    x, y = tensors((4, 3), (4, 3))
    leaf = x.clone().requires_grad_()
    for _ in range(2):
        got = check(leaf, y)
        (ours,) = torch.autograd.grad(got["dot"].sum() + got["each"].square().sum(), leaf)
        expected = reference(leaf, y)
        (theirs,) = torch.autograd.grad(expected["dot"].sum() + expected["each"].square().sum(), leaf)
        torch.testing.assert_close(ours, theirs)
        with torch.no_grad():
            assert not product(leaf, y)["dot"].requires_grad
    assert torch.autograd.gradgradcheck(lambda x: product(x, y)["each"], leaf)
    shared = y[0].clone().requires_grad_()
    for _ in range(2):
        (ours,) = torch.autograd.grad(product(leaf, shared)["each"].sum(), shared)
        torch.testing.assert_close(ours, leaf.sin().sum(0).detach())


def test_transforms_and_forward_mode_after_a_prepared_call():
    x, y = tensors((4, 3), (4, 3))
    check(x, y)
    torch.testing.assert_close(grad(lambda x: product(x, y)["dot"].sum())(x), y)
    torch.testing.assert_close(vmap(lambda x: product(x, y[0])["dot"])(x), x @ y[0])
    with forward_ad.dual_level():
        moved = product(forward_ad.make_dual(x, y), y)["dot"]
        torch.testing.assert_close(forward_ad.unpack_dual(moved).tangent, (y * y).sum(-1))
    check(x, y)
    with pytest.raises(InputError, match="'y' must have the shape"):
        product(x, y[:, :2])


def test_calls_of_ever_new_signatures_are_not_all_prepared():
    copy = at.function(x=())(lambda x: x * 2.0)
    x = torch.ones(())
    for batch in range(1, PREPARED + PATIENCE):
        x = torch.ones(batch)
        assert torch.equal(copy(x), 2 * x)
    assert len(copy.kernel.prepared) == PREPARED
    assert not copy.kernel.prepared[0][0](x)
    for _ in range(2):
        assert torch.equal(copy(x), 2 * x)
    assert copy.kernel.prepared[0][0](x)


def test_without_signatures_every_call_is_arranged_anew(monkeypatch):
    monkeypatch.setattr(signature, "_TensorGuards", None)
    double = at.function(x=2)(lambda x: x * 2.0)
    x = torch.ones(3, 2, requires_grad=True)
    for _ in range(2):
        assert torch.equal(torch.autograd.grad(double(x).sum(), x)[0], torch.full((3, 2), 2.0))
    assert not double.kernel.prepared


def test_many_threads_share_a_prepared_call():
    inputs = [tensors((4, 3), (4, 3), seed=i) for i in range(8)]
    expected = [product(*each)["each"] for each in inputs]
    agreed = [False] * 8

    def work(i):
        agreed[i] = all(torch.equal(product(*inputs[i])["each"], expected[i]) for _ in range(300))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(agreed)


def test_prepared_calls_do_not_keep_their_kernel_alive():
    double = at.function(x=2)(lambda x: x * 2.5)
    x = torch.ones(3, 2, requires_grad=True)
    for _ in range(2):
        torch.autograd.grad(double(x).sum(), x)
    assert double.kernel.prepared
    gone = weakref.ref(double.kernel)
    gc.disable()
    try:
        del double
        assert gone() is None
    finally:
        gc.enable()


def test_a_record_reaches_the_driver_as_its_arguments():
    seen = []
    numbers, pointers = [ctypes.c_uint] * 7, [ctypes.c_void_p] * 2

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *numbers, *pointers, ctypes.POINTER(ctypes.c_void_p))
    def launch(function, bx, by, bz, tx, ty, tz, shared, stream, params, extra):
        assert (extra[0], extra[2], extra[4], params) == (1, 2, None, None)
        size = ctypes.cast(extra[3], ctypes.POINTER(ctypes.c_size_t))[0]
        seen.append((function, bx, by, bz, tx, ty, tz, shared, stream, ctypes.string_at(extra[1], size)))
        return 17

    arguments = struct.pack("3q", 5, 6, 7)
    head = pack_head(ctypes.cast(launch, ctypes.c_void_p).value or 0, 1 << 40, 9, 128, 4096, 3)
    assert enqueue()(head + struct.pack("q", 1 << 41) + arguments) == 17
    assert seen == [(1 << 40, 9, 1, 1, 128, 1, 1, 4096, 1 << 41, arguments)]
