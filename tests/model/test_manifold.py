"""Configurations: integrate and difference undo each other, gradients are finite and right, also at zero."""

import math

import pytest
import torch

import adjoin
from adjoin import trace
from adjoin.compiler.ir import graph
from adjoin.errors import InputError
from adjoin.model import manifold
from adjoin.model.joint import Joint
from adjoin.model.parts import Body

KINDS = ("revolute", "continuous", "prismatic", "ball", "planar", "free")


def one_of_each(ball_limit=math.inf):
    bodies = [
        Body(kind, index - 1, Joint(kind, kind, upper=ball_limit if kind == "ball" else math.inf), mass=1.0)
        for index, kind in enumerate(KINDS)
    ]
    return adjoin.Model("all", tuple(bodies))


def samples(model, count=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q0, q1 = model.random((2, count), generator=generator, dtype=torch.float64)
    v = torch.randn(count, model.nv, generator=generator, dtype=torch.float64)
    return q0, q1, v


def same_configuration(model, a, b):
    return model.difference(a, b).abs().max().item()


def test_sizes_and_neutral():
    model = one_of_each()
    assert (model.nq, model.nv) == (1 + 1 + 1 + 4 + 3 + 7, 1 + 1 + 1 + 3 + 3 + 6)
    q = model.neutral((2, 3), dtype=torch.float64)
    assert q.shape == (2, 3, model.nq)
    assert q[0, 0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert torch.equal(model.normalize(q), q)


def test_difference_undoes_integrate_and_the_other_way_round():
    model = one_of_each()
    q0, q1, v = samples(model)
    assert same_configuration(model, model.integrate(q0, model.difference(q0, q1)), q1) < 1e-13
    small = 0.5 * v / v.norm(dim=-1, keepdim=True)
    assert torch.allclose(model.difference(q0, model.integrate(q0, small)), small, atol=1e-13)


def test_integrating_in_two_steps_is_integrating_once():
    model = one_of_each()
    q, _, v = samples(model)
    half = model.integrate(model.integrate(q, v, 0.3), v, 0.4)
    assert same_configuration(model, half, model.integrate(q, v, 0.7)) < 1e-13


def test_dt_may_be_a_tensor_per_environment():
    model = one_of_each()
    q, _, v = samples(model, 4)
    dt = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    each = torch.stack([model.integrate(q[i], v[i], dt[i].item()) for i in range(4)])
    assert torch.allclose(model.integrate(q, v, dt), each, atol=1e-15)


def test_shapes_broadcast():
    model = one_of_each()
    q, _, v = samples(model, 6)
    out = model.integrate(q[:, None], v[None, :2])
    assert out.shape == (6, 2, model.nq)
    assert torch.allclose(out[3, 1], model.integrate(q[3], v[1]), atol=1e-15)


@pytest.mark.parametrize("at_zero", [True, False])
def test_gradients(at_zero):
    model = one_of_each()
    q0, q1, v = samples(model, 3)
    if at_zero:
        v, q1 = torch.zeros_like(v), q0.clone()
    q0, q1, v = (x.requires_grad_() for x in (q0, q1, v))
    assert torch.autograd.gradcheck(lambda q, w: model.integrate(q, w, 0.5), (q0, v))
    assert torch.autograd.gradcheck(model.difference, (q0, q1))
    assert torch.autograd.gradcheck(model.normalize, (q0,))
    assert torch.autograd.gradgradcheck(lambda w: model.integrate(q0.detach(), w), (v,))
    (gradient,) = torch.autograd.grad(model.difference(q0, q1).square().sum(), q1)
    assert torch.isfinite(gradient).all()


def test_velocity_is_the_derivative_of_the_path():
    model = one_of_each()
    q, _, v = samples(model, 5)
    step = 1e-6
    there, back = model.integrate(q, v, step), model.integrate(q, v, -step)
    assert torch.allclose(model.difference(back, there) / (2 * step), v, atol=1e-8)


def test_the_rate_of_a_configuration_is_the_slope_of_integrate():
    model = one_of_each()
    q, _, v = samples(model, 5)
    step = 1e-6
    slope = (model.integrate(q, v, step) - model.integrate(q, v, -step)) / (2 * step)
    rate = torch.stack(manifold.rate(model, q.unbind(-1), v.unbind(-1)), -1)
    assert torch.allclose(rate, slope, atol=1e-9)


def test_continuous_joints_take_the_short_way_and_planar_angles_too():
    model = one_of_each()
    q0 = model.neutral(dtype=torch.float64)
    q1 = q0.clone()
    q1[1] = q1[9] = 6.0
    apart = model.difference(q0, q1)
    assert apart[1] == pytest.approx(6.0 - 2 * math.pi)
    assert apart[8] == pytest.approx(6.0 - 2 * math.pi)
    wrapped = model.normalize(q1)
    assert wrapped[1] == pytest.approx(6.0 - 2 * math.pi)
    q1[0] = 6.0
    assert model.difference(q0, q1)[0] == 6.0
    assert model.normalize(q1)[0] == 6.0


def test_normalize_makes_unit_quaternions():
    model = one_of_each()
    q = model.normalize(3.0 * model.random((5,), dtype=torch.float64))
    assert torch.allclose(q[:, 3:7].norm(dim=-1), torch.ones(5, dtype=torch.float64))
    assert torch.allclose(q[:, 13:].norm(dim=-1), torch.ones(5, dtype=torch.float64))


def test_random_respects_a_ball_joints_cone():
    model = one_of_each(ball_limit=0.4)
    q = model.random((500,), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    angle = 2 * torch.acos(q[:, 3].clamp(-1, 1))
    assert angle.max() <= 0.4 + 1e-12
    assert angle.max() > 0.3


def test_random_is_reproducible_and_covers_the_range():
    model = adjoin.robots.load("panda")
    a = model.random((1000,), generator=torch.Generator().manual_seed(3))
    b = model.random((1000,), generator=torch.Generator().manual_seed(3))
    assert torch.equal(a, b)
    lower, upper = (torch.tensor(x) for x in model.limits())
    assert ((a - lower) / (upper - lower)).min() < 0.05
    assert ((a - lower) / (upper - lower)).max() > 0.95


def test_the_formulas_can_be_traced():
    model = one_of_each()
    g = graph.Graph()
    q = [g.fresh("input") for _ in range(model.nq)]
    v = [g.fresh("input") for _ in range(model.nv)]
    assert len(manifold.integrate(model, q, v, 0.01)) == model.nq
    assert len(manifold.difference(model, q, q)) == model.nv
    assert len(manifold.normalize(model, q)) == model.nq


def test_a_compiled_kernel_gives_the_same_numbers_and_gradients():
    model = one_of_each()
    q0, q1, v = samples(model, 20)
    v[0] = 0.0
    q1[0] = q0[0]
    for formula, plain, inputs in (
        (
            lambda q, w: manifold.integrate(model, list(q), list(w), 0.3),
            lambda q, w: model.integrate(q, w, 0.3),
            (q0, v),
        ),
        (lambda a, b: manifold.difference(model, list(a), list(b)), model.difference, (q0, q1)),
    ):
        names = ("q", "w") if inputs[1] is v else ("a", "b")
        kernel = trace.function(**dict(zip(names, (x.shape[-1] for x in inputs), strict=True)))(formula)
        inputs = tuple(x.clone().requires_grad_() for x in inputs)
        ours, theirs = kernel(*inputs), plain(*inputs)
        assert torch.allclose(ours, theirs, atol=1e-13)
        weight = torch.randn(theirs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        for a, b in zip(
            torch.autograd.grad((ours * weight).sum(), inputs),
            torch.autograd.grad((theirs * weight).sum(), inputs),
            strict=True,
        ):
            assert torch.allclose(a, b, atol=1e-11)


def test_float32_stays_float32():
    model = one_of_each()
    q = model.random((3,))
    v = torch.randn(3, model.nv)
    assert model.integrate(q, v).dtype == torch.float32
    assert model.difference(q, q).dtype == torch.float32


def test_a_robot_without_joints_has_empty_configurations():
    model = adjoin.load('<robot name="rock"><link name="rock"/></robot>')
    q = model.neutral((2,))
    assert q.shape == (2, 0)
    assert model.integrate(q, q).shape == (2, 0)
    assert model.random((2,)).shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.integrate(torch.zeros(3), torch.zeros(m.nv)), r"q has shape (3,); 'all' needs (..., 17)"),
        (lambda m: m.integrate(m.neutral(), torch.zeros(2, 1)), r"v has shape (2, 1); 'all' needs (..., 15)"),
        (lambda m: m.normalize([0.0]), r"q is a list; it must be a torch tensor of shape (..., 17)"),
        (lambda m: m.normalize(m.neutral().long()), r"q has dtype torch.int64; it must be a floating-point tensor"),
        (
            lambda m: m.difference(m.neutral((2,)), m.neutral((3,))),
            r"the batch shapes of q0 (2, 17) and q1 (3, 17) do not broadcast",
        ),
    ],
)
def test_wrong_inputs_are_named(call, message):
    with pytest.raises(InputError) as error:
        call(one_of_each())
    assert str(error.value) == message
