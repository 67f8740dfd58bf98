"""The table of operations is complete, and is all there is to an operation."""

import inspect
import math

import numpy as np
import pytest
import torch
from kernel_checks import check_kernel

from adjoin import trace as at
from adjoin.compiler.autodiff import forward, reverse
from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.codegen.lowering import CONSTRUCTS, routine
from adjoin.compiler.codegen.renderer import RENDERED_HERE, VALUED_ELSEWHERE
from adjoin.compiler.ir import op as table
from adjoin.compiler.ir import ops
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import BOOL, FLOAT
from adjoin.compiler.ir.op import FLAT, OPS
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime import interpreter
from adjoin.errors import TraceError

OPERATIONS = [name for name, op in OPS.items() if not op.is_construct]
FLOATS = [name for name in OPERATIONS if OPS[name].kind == OPS[name].result == FLOAT and name != "select"]


def arity(name):
    """How many arguments an operation takes."""
    return 1 if name in ("neg", "abs", "not", "sign", "floor") or (name in vars(math) and name != "atan2") else 2


@pytest.fixture
def restored():
    """The table, without what a test adds to it."""
    before = set(OPS)
    yield
    for name in OPS.keys() - before:
        del OPS[name]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_reference_a_lowering_and_a_derivative(name):
    op = OPS[name]
    assert op.name == name
    assert op.derivative is not None
    assert (op.derivative is FLAT) == (op.result == BOOL or name in ("sign", "floor"))
    assert callable(op.lower) or callable(routine(op.lower[0] if isinstance(op.lower, tuple) else op.lower))


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.is_construct])
def test_every_construct_has_a_meaning_and_a_rule_in_both_modes(name):
    given = name in ("input", "param", "stream", "table")  # these have a value from the start
    assert (name in interpreter.CONSTRUCTS) != (given or name in ("scan", "implicit"))  # what runs has no rules
    rendered = [name in rules for rules in (CONSTRUCTS, RENDERED_HERE, VALUED_ELSEWHERE)]
    assert sum(rendered) == (name != "implicit")
    for rules in (reverse.RULES, forward.RULES):
        assert (name in rules) != (OPS[name].derivative is FLAT)


def test_rules_are_of_constructs():
    for rules in (reverse.RULES, forward.RULES, interpreter.CONSTRUCTS):
        assert all(OPS[name].is_construct for name in rules)


@pytest.mark.parametrize("name", FLOATS)
def test_folding_a_constant_is_the_reference(name):
    for values in ((0.3, -0.7), (-0.3, 0.9), (0.0, 2.0), (1e300, -1e300), (math.inf, 1.0), (math.nan, 1.0)):
        arguments = values[: arity(name)]
        tensors = [torch.tensor([x], dtype=torch.float64) for x in arguments]
        expected = OPS[name].reference(*tensors).item()
        assert OPS[name].fold(*arguments) == pytest.approx(expected, rel=1e-15, nan_ok=True)


@pytest.mark.parametrize("name", [name for name in FLOATS if OPS[name].derivative is not FLAT])
def test_partial_derivatives_are_those_of_the_reference(name):
    count = arity(name)
    program = at.function(x=count)(lambda x: Expr.apply(x[0], name, tuple(x)))
    x = torch.tensor([[0.3, -0.7], [0.6, 0.2]], dtype=torch.float64)[:, :count].requires_grad_()
    expected = torch.autograd.functional.jacobian(lambda x: OPS[name].reference(*x.unbind(-1)).sum(), x)
    (by_reverse,) = torch.autograd.grad(program(x).sum(), x)
    by_forward = torch.func.vmap(torch.func.jacfwd(program))(x.detach())
    for found in (by_reverse, by_forward):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_public_functions_are_those_of_the_table():
    public = {name for name, value in vars(ops).items() if inspect.isfunction(value) and hasattr(value, "__wrapped__")}
    assert public | {"select"} == set(ops.__all__)
    for name in ops.__all__:
        assert getattr(at, name) is getattr(ops, name)
        assert name in at.__all__
        assert getattr(at, name).__doc__


def test_a_new_function_needs_nothing_but_its_entry(restored):
    @table.elementary(torch.atan, lambda _, x: 1.0 / (1.0 + x * x), lower=lambda w, node, x: w.div(x, w.const(1.0)))
    def atan(x):
        """Angle of a slope; lowered as if it were the identity, to be told from the reference."""
        return math.atan(x)

    assert atan(1.0) == math.atan(1.0)
    assert torch.equal(atan(torch.ones(2)), torch.ones(2).atan())
    program = at.function(x=2)(lambda x: atan(x))
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.equal(program(x), x), "the lowering is that of the table"
    (gradient,) = torch.autograd.grad(program(x).sum(), x)
    torch.testing.assert_close(gradient, 1.0 / (1.0 + x.detach() ** 2))


def test_an_operation_without_a_rule_raises_in_both_modes(restored):
    table.define("blur", lambda x, y: x + y, torch.add, None, lower="add")
    program, _ = trace("f", lambda x: x[0].apply("blur", (x[0], x[1])) * x[0], [TensorSpec("x", (2,))])
    for differentiate in (vjp, jvp):
        with pytest.raises(TraceError, match="'blur' has no derivative"):
            differentiate(program, [True])


def test_an_operation_that_is_not_in_the_table_cannot_be_built():
    with pytest.raises(KeyError, match="blur"):
        trace("f", lambda x: x[0].apply("blur", (x[0], x[1])), [TensorSpec("x", (2,))])


def test_numpy_calls_what_the_table_names():
    program = at.function(x=2)(lambda x: np.arctan2(x, 0.5) + np.arccos(0.5 * x) + np.tanh(x) + np.floor(x))
    x = torch.rand(3, 2, dtype=torch.float64)
    expected = torch.atan2(x, torch.full_like(x, 0.5)) + (0.5 * x).acos() + x.tanh() + x.floor()
    torch.testing.assert_close(program(x), expected)


def test_a_choice_between_integers():
    @at.function(x=2)
    def chosen(x):
        memory = at.scratch([x[0], x[1], x[0] * x[1]])
        i = at.select(x[0] > 0.0, at.to_index(2.0 * abs(x[1])), at.to_index(x[0] - x[0]))
        return at.loop(3, lambda k, total: total + memory[at.select(x[1] > 0.0, k, i)], 0.0)

    check_kernel(chosen.kernel, [torch.randn(21, 2, dtype=torch.float64)])
