"""Results in memory that the caller holds."""

import pytest
import torch
from dynamics.small import tree

import adjoin
from adjoin.errors import InputError

MODEL = tree()


def state(batch=(5,), dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    q = MODEL.random(batch, generator=generator, dtype=dtype)
    return q, *torch.randn(2, *batch, MODEL.nv, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_results_are_written_where_the_caller_says(dtype):
    q, v, a = state(dtype=dtype)
    for function, inputs in ((adjoin.rnea, (q, v, a)), (adjoin.aba, (q, v, a)), (adjoin.crba, (q,))):
        expected = function(MODEL, *inputs)
        held = torch.full_like(expected, torch.nan)
        assert function(MODEL, *inputs, out=held) is held
        assert torch.equal(held, expected)
    held = torch.empty(5, MODEL.nv, MODEL.nv, dtype=dtype)
    assert torch.equal(adjoin.minverse(MODEL, q, out=held), adjoin.minverse(MODEL, q))


def test_several_results_by_label_in_any_order():
    q, v, _ = state()
    expected = adjoin.compute(MODEL, q, v, quantities=["crba", "bias_forces"])
    held = {name: torch.empty_like(expected[name]) for name in ("bias_forces", "crba")}
    adjoin.compute(MODEL, q, v, quantities=["crba", "bias_forces"], out=held)
    for name, value in expected.items():
        assert torch.equal(held[name], value)


def test_a_part_of_a_larger_tensor_and_shared_inputs():
    q, v, a = state()
    many = torch.zeros(3, 5, MODEL.nv, dtype=torch.float64)
    adjoin.rnea(MODEL, q, v, a[0], out=many[1])
    assert torch.equal(many[1], adjoin.rnea(MODEL, q, v, a[0]))
    assert not many[0].any()
    assert not many[2].any()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (lambda q, v: torch.empty(4, MODEL.nv, dtype=torch.float64), r"must be contiguous .* got torch.float64 \(4, "),
        (lambda q, v: torch.empty(5, MODEL.nv), r"got torch.float32"),
        (lambda q, v: torch.empty(MODEL.nv, 5, dtype=torch.float64).mT, "must be contiguous"),
        (lambda q, v: v, "shares its memory with an input"),
        (lambda q, v: [v], "structure of the results"),
        (lambda q, v: "tau", "got 'tau'"),
    ],
)
def test_what_does_not_fit_is_refused(out, message):
    q, v, a = state()
    with pytest.raises(InputError, match=message):
        adjoin.rnea(MODEL, q, v, a, out=out(q, v))


def test_gradients_and_transforms_are_refused():
    q, v, a = state()
    held = torch.empty_like(a)
    v.requires_grad_()
    with pytest.raises(InputError, match=r"no gradients; detach the inputs, or call under torch.no_grad"):
        adjoin.rnea(MODEL, q, v, a, out=held)
    with torch.no_grad():
        adjoin.rnea(MODEL, q, v, a, out=held)
    assert torch.equal(held, adjoin.rnea(MODEL, q, v.detach(), a))
    with pytest.raises(InputError, match=r"not for torch.compile or torch.func"):
        torch.func.vmap(lambda v: adjoin.rnea(MODEL, q[0], v, a[0], out=held[0]))(v.detach())


def test_an_input_may_be_named_out():
    double = adjoin.function(out=2)(lambda out: 2.0 * out)
    assert torch.equal(double(out=torch.ones(2)), torch.full((2,), 2.0))
