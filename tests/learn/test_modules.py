import copy

import pytest
import torch

import adjoin
from adjoin.errors import InputError
from adjoin.learn.modules import (
    Bounded,
    Covariance,
    LogCholesky,
    Positive,
    PositiveDefinite,
    Rotation,
    Symmetric,
    Triangular,
    Unconstrained,
    symmetric_matrix,
)

MANY = 100_000
F64 = torch.float64
INERTIA = torch.tensor([0.4, 0.01, -0.02, 0.5, 0.03, 0.6], dtype=F64)
QUATERNION = torch.tensor([0.5, 0.5, -0.5, 0.5], dtype=F64)


INERTIAL = (2.0, [0.1, 0.2, 0.3], INERTIA)
MODULES = {
    "Unconstrained": (Unconstrained, (-2.0,)),
    "Positive": (Positive, (3.0,)),
    "Positive with a floor": (lambda value: Positive(value, floor=2.5), (3.0,)),
    "Bounded": (lambda value: Bounded(value, -1.0, 2.0), (0.3,)),
    "Symmetric": (Symmetric, (INERTIA,)),
    "PositiveDefinite": (PositiveDefinite, (INERTIA,)),
    "Covariance": (Covariance, (INERTIA,)),
    "Triangular": (Triangular, (INERTIA,)),
    "Rotation": (Rotation, (QUATERNION,)),
    "LogCholesky": (LogCholesky, INERTIAL),
}


def made(name, *lead):
    make, values = MODULES[name]
    tensors = [torch.as_tensor(value, dtype=F64) for value in values]
    tensors = [tensor.expand((*lead, *tensor.shape)) for tensor in tensors]
    return make(*tensors), tensors


def randomized(name, scale=1.0, dtype=F64):
    module, _ = made(name, MANY)
    module.to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        module.raw.copy_(scale * torch.randn(module.raw.shape, generator=generator, dtype=dtype))
        return module()


def moments(inertia):
    return torch.linalg.eigvalsh(symmetric_matrix(inertia)).unbind(-1)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("lead", [(), (2,), (3, 2)])
def test_a_module_starts_with_the_value_it_was_given(name, lead):
    module, values = made(name, *lead)
    found = list(module()) if name == "LogCholesky" else [module()]
    torch.testing.assert_close(found, values, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", MODULES)
def test_gradients_are_right(name):
    module, _ = made(name, 2)
    torch.manual_seed(0)
    moved = 0.5 * torch.randn_like(module.raw)

    def value(raw):
        return torch.func.functional_call(module, {"raw": module.raw.detach() + raw}, ())

    torch.autograd.gradcheck(value, moved.requires_grad_())
    torch.autograd.gradcheck(value, torch.zeros_like(moved).requires_grad_())


@pytest.mark.parametrize("name", MODULES)
def test_kernels_take_in_what_the_module_gives(name):
    module, _ = made(name)
    with torch.no_grad():
        module.raw.add_(0.1)
    shapes = {key: tuple(tensor.shape) for key, tensor in zip(module.SHAPES, module.inputs(), strict=True)}
    inside = adjoin.function(**shapes)(lambda **inputs: module.of(*inputs.values()))
    torch.testing.assert_close(inside(*module.inputs()), module(), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_positive_is_positive_and_bounded_stays_between_its_limits(scale):
    assert bool((randomized("Positive", scale=scale) > 0.0).all())
    assert bool((randomized("Positive with a floor", scale=scale) >= 2.5).all())
    bounded = randomized("Bounded", scale=scale)
    assert bool((bounded >= -1.0).all())
    assert bool((bounded <= 2.0).all())


def test_positive_definite_is_positive_definite():
    least, *_ = moments(randomized("PositiveDefinite"))
    assert bool((least > 0.0).all())


@pytest.mark.parametrize("name", ["Covariance", "Triangular"])
def test_inertias_are_those_of_some_distribution_of_mass(name):
    a, b, c = moments(randomized(name))
    assert bool((a > 0.0).all())
    assert bool((a + b > c).all())


@pytest.mark.parametrize("name", ["Covariance", "Triangular", "LogCholesky"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_extreme_inertias_are_physical_up_to_rounding(name, dtype):
    found = randomized(name, scale=4.0, dtype=dtype)
    a, b, c = moments((found.inertia if name == "LogCholesky" else found).double())
    rounding = 16.0 * torch.finfo(dtype).eps * c
    assert bool((a > -rounding).all())
    assert bool((a + b > c - rounding).all())


def test_log_cholesky_is_always_physical():
    mass, com, inertia = randomized("LogCholesky")
    a, b, c = moments(inertia)
    assert bool((mass > 0.0).all())
    assert bool((a > 0.0).all())
    assert bool((a + b > c).all())
    # The pseudo-inertia about the frame's origin is positive definite too: of Wensing, Kim and Slotine 2018.
    half = 0.5 * (a + b + c)[:, None, None] * torch.eye(3, dtype=F64)
    second = half - symmetric_matrix(inertia) + mass[:, None, None] * com[:, :, None] * com[:, None, :]
    first = mass[:, None] * com
    pseudo = torch.cat([torch.cat([second, first[..., None]], -1), torch.cat([first, mass[:, None]], -1)[:, None]], -2)
    assert not bool(torch.linalg.cholesky_ex(pseudo).info.any())


def test_symmetric_and_unconstrained_reach_every_value():
    raw = torch.randn(4, 6)
    for module in (Symmetric(torch.zeros(4, 6)), Unconstrained(torch.zeros(4, 6))):
        module.load_state_dict({"raw": raw})
        assert torch.equal(module(), raw)


def test_rotations_are_unit_quaternions():
    lengths = randomized("Rotation", scale=3.0).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=1e-14, atol=0.0)


def test_a_rotation_reaches_any_other():
    module = Rotation(torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=F64))
    goal = torch.tensor([-0.1, 0.7, -0.5, 0.5], dtype=F64)
    goal = goal / goal.norm()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        loss = 1.0 - (module() @ goal) ** 2
        loss.backward()
        optimizer.step()
    assert loss < 1e-9


def test_matrices_are_taken_for_inertias_and_boundary_cases_are_lifted_a_little():
    plate = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 2.0], dtype=F64)
    for module in (Covariance, Triangular):
        torch.testing.assert_close(module(symmetric_matrix(INERTIA))(), INERTIA, rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(module(plate)(), plate, rtol=3e-6, atol=3e-6)


def test_modules_can_be_copied_saved_and_moved():
    module = Triangular(INERTIA)
    again = copy.deepcopy(module)
    with torch.no_grad():
        module.raw.add_(1.0)
    assert not torch.equal(again(), module())
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(), module())
    assert module.float()().dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Positive([1.0, -1.0]), "Positive: the value to start with must be above 0, got -1"),
        (lambda: Positive(1.0, floor=-1.0), "floor must not be negative, got -1"),
        (lambda: Bounded([0.0, 3.0], 0.0, 2.0), "must lie between its limits, got 0, not within 0 to 2"),
        (lambda: Unconstrained(float("nan")), "must be finite, got nan"),
        (lambda: PositiveDefinite([1.0, 2.0, 0.0, 1.0, 0.0, 1.0]), "is not positive definite"),
        (lambda: Covariance([1.0, 0.0, 0.0, 1.0, 0.0, 3.0]), "violates the triangle inequality"),
        (lambda: Triangular([1.0, 0.0, 0.0, 1.0, 0.0, 3.0]), "violates the triangle inequality"),
        (lambda: Covariance(torch.eye(2)), r"an inertia is \(..., 6\)"),
        (lambda: Symmetric([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "not symmetric"),
        (lambda: LogCholesky(0.0, [0.0, 0.0, 0.0], INERTIA), "mass to start with must be positive, got 0"),
        (lambda: LogCholesky([1.0, 2.0], [0.0, 0.0, 0.0], INERTIA), r"com must be \(2, 3\)"),
        (lambda: LogCholesky(1.0, [0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0, 0.0, 3.0]), "triangle inequality"),
        (lambda: Rotation([0.0, 0.0, 0.0, 0.0]), r"must be quaternions \(..., 4\)"),
    ],
)
def test_a_value_that_a_module_cannot_have_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
