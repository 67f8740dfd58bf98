"""Materials of particles: beside numpy's singular values, derivatives where stretches are equal, slopes of sand."""

import math

import numpy as np
import pytest
import torch

from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime.interpreter import interpret
from adjoin.continuum import Checkpoints, ParticleMaterial, Particles
from adjoin.continuum.particle_materials import respond
from adjoin.errors import InputError

NUMBERS = {
    "elastic": {},
    "snow": {"memory": 0.97, "compression": 0.05, "stretch": 0.03, "hardening": 3.0},
    "sand": {"memory": 0.02, "friction_angle": 0.6},
}


def by_singular_values(kind, F, shear, first):
    """The same materials from their papers, by a singular value decomposition."""
    U, s, Vt = np.linalg.svd(F)
    dim = len(F)
    if kind == "elastic":
        J = np.linalg.det(F)
        return 2 * shear * (F - U @ Vt) @ F.T + first * (J - 1) * J * np.eye(dim), F, None
    numbers = NUMBERS[kind]
    if kind == "snow":
        c = np.clip(s, 1 - numbers["compression"], 1 + numbers["stretch"])
        ratio = np.clip(numbers["memory"] * np.prod(s / c), 0.6, 20.0)
        elastic, J = U @ np.diag(c) @ Vt, np.prod(c)
        stress = 2 * shear * (elastic - U @ Vt) @ elastic.T + first * (J - 1) * J * np.eye(dim)
        return math.exp(numbers["hardening"] * (1 - ratio)) * stress, elastic, ratio
    e = np.log(s) + numbers["memory"] / dim
    shearing, sine = e - e.mean(), math.sin(numbers["friction_angle"])
    if e.sum() >= 0:
        return np.zeros((dim, dim)), U @ Vt, e.sum()
    slope = math.sqrt(2 / 3) * 2 * sine / (3 - sine)
    excess = np.linalg.norm(shearing) + (dim * first + 2 * shear) / (2 * shear) * e.sum() * slope
    if excess > 0:
        e = e - excess * shearing / np.linalg.norm(shearing)
    return U @ np.diag(2 * shear * e + first * e.sum()) @ U.T, U @ np.diag(np.exp(e)) @ Vt, 0.0


def traced(kind, dim):
    """The response as a function of F (dim, dim) and numbers, or its vector-Jacobian product where they are given."""
    specs = [TensorSpec("F", (dim, dim)), TensorSpec("shear", ()), TensorSpec("first", ())]
    specs += [TensorSpec(name, ()) for name in NUMBERS[kind]]

    def function(**arguments):
        stress, elastic, memory = respond(kind, **arguments)
        return {"stress": stress, "elastic": elastic} | ({} if memory is None else {"memory": np.array(memory)})

    program, _ = trace(kind, function, specs)

    def run(F, numbers, cotangents=None):
        inputs = [F.reshape(1, -1), *[torch.as_tensor(x, dtype=F.dtype).reshape(1, 1) for x in numbers]]
        if cotangents is None:
            return [result[0] for result in interpret(program, inputs)]
        seeded = [spec.name != "memory" for spec in program.outputs]
        reverse, _ = vjp(program, [True] + [False] * len(numbers), seeded)
        return interpret(reverse, [*inputs, *[x.reshape(1, -1) for x in cotangents]])[0].reshape(F.shape)

    return run


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", list(NUMBERS))
def test_stress_and_plastic_flow_are_those_of_singular_values(kind, dim):
    rng = np.random.default_rng(dim)
    run = traced(kind, dim)
    flowing = 0
    for trial in range(12):
        size = (0.01, 0.08, 0.2)[trial % 3]
        F = np.eye(dim) * (1.0 - (0.04 if trial % 2 else -0.02)) + size * rng.standard_normal((dim, dim))
        expected = by_singular_values(kind, F, 3.0, 2.0)
        found = run(torch.tensor(F), [3.0, 2.0, *NUMBERS[kind].values()])
        assert np.allclose(found[0], expected[0].ravel(), atol=1e-13)
        assert np.allclose(found[1], expected[1].ravel(), atol=1e-13)
        if expected[2] is not None:
            assert np.isclose(found[2].item(), expected[2], atol=1e-14)
        flowing += not np.allclose(expected[1], F)
    assert kind == "elastic" or 3 < flowing <= 12


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize(
    ("kind", "stretch"), [("elastic", 1.1), ("elastic", 1.0), ("snow", 0.97), ("snow", 0.8), ("sand", 0.97)]
)
def test_derivatives_are_finite_differences_also_where_stretches_are_equal(kind, stretch, dim):
    generator = torch.Generator().manual_seed(3)
    run = traced(kind, dim)
    numbers = [3.0, 2.0, *NUMBERS[kind].values()]
    for F in (
        stretch * torch.eye(dim, dtype=torch.float64),
        stretch * torch.eye(dim, dtype=torch.float64) + 0.1 * torch.rand(dim, dim, generator=generator).double(),
    ):
        direction = torch.rand(dim, dim, generator=generator, dtype=torch.float64) - 0.5
        weights = [torch.rand(dim * dim, generator=generator, dtype=torch.float64) for _ in range(2)]

        def loss(F, weights=weights):
            return sum((w * part).sum() for w, part in zip(weights, run(F, numbers), strict=False))

        gradient = run(F, numbers, weights)
        slope = (loss(F + 1e-6 * direction) - loss(F - 1e-6 * direction)) / 2e-6
        assert torch.isclose((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["snow", "sand"])
def test_gradients_of_rollouts_are_finite_differences(kind):
    world = Particles((10, 10), 0.1, 2e-3, ParticleMaterial(kind, young=1e5), friction=0.3)
    generator = torch.Generator().manual_seed(0)
    x = 0.3 + 0.4 * torch.rand(40, 2, generator=generator, dtype=torch.float64)
    name = {"snow": "hardening", "sand": "friction_angle"}[kind]
    number = torch.tensor(world.material.plasticity[name], dtype=torch.float64)
    values = {"v": 3.0 * torch.randn(40, 2, generator=generator, dtype=torch.float64), name: number}

    def loss(values):
        params = {name: values[name]}
        last = world.rollout(world.state(x, values["v"]), 4e-3, steps=8, params=params, checkpoints=Checkpoints(3))
        return last.x.sin().sum() + 0.1 * (last.v**2).sum() + last.F.sin().sum() + last.memory.sum()

    leaves = {key: value.clone().requires_grad_() for key, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (key, value), gradient in zip(values.items(), gradients, strict=True):
        direction = torch.rand(value.shape, generator=generator, dtype=torch.float64)
        h = 1e-7 if key == "v" else 1e-4 * value.item()
        sides = [loss(values | {key: value + sign * h * direction}) for sign in (1, -1)]
        slope = (sides[0] - sides[1]) / (2 * h)
        assert slope.abs() > 1e-4, key
        assert torch.isclose((gradient * direction).sum(), slope, rtol=1e-4), key


def test_sand_rests_on_slopes_that_are_flatter_than_its_friction_and_flows_on_steeper_ones():
    """A layer of constant depth on a rough, tilted floor: friction holds it up to its angle, whatever the depth."""
    material = ParticleMaterial("sand", 1500.0, 5e5, 0.2, friction_angle=math.radians(30.0))
    world = Particles((40, 14), 0.05, 1e-3, material, boundary=3)
    axes = [torch.arange(0.1625, 1.84, 0.025), torch.arange(0.1625, 0.4, 0.025)]
    x = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2).double()
    angles = torch.tensor([15.0, 45.0], dtype=torch.float64).deg2rad()
    gravity = 9.81 * torch.stack([angles.sin(), -angles.cos()], -1)
    start = world.state(x.expand(2, *x.shape).contiguous())
    last = world.rollout(start, 0.025**2, steps=250, params={"gravity": gravity})
    middle = (x[:, 0] > 0.6) & (x[:, 0] < 1.4) & (x[:, 1] > 0.3)
    speed = last.v[:, middle, 0].mean(1)
    free = 0.25 * 9.81 * angles.sin()
    assert abs(speed[0]) < 0.1 * free[0]  # it settled
    held = 0.25 * 9.81 * math.cos(angles[1]) * math.tan(material.friction_angle)
    assert abs(speed[1] / (free[1] - held) - 1.0) < 0.15  # a block that slides with this coefficient of friction
    assert last.F.isfinite().all()


def test_snow_stays_crushed_where_rubber_springs_back():
    heights = {}
    for kind in ("snow", "neo_hookean"):
        world = Particles((14, 16), 0.05, 5e-4, ParticleMaterial(kind, 400.0, 1.4e5, 0.2), friction=0.5)
        axes = [torch.arange(0.3125, 0.5, 0.025), torch.arange(0.1625, 0.35, 0.025)]
        x = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2).double()
        start = world.state(x, torch.tensor([0.0, -4.0], dtype=torch.float64).expand_as(x))
        path = world.rollout(start, 0.025**2, steps=600, keep=100)
        size = path.x[..., 1].amax(1) - path.x[..., 1].amin(1)
        heights[kind] = (size[-3:].max() / size[0]).item()
        if kind == "snow":
            assert path.memory[-1].min() < 0.95
    assert heights["snow"] < 0.85 < 0.95 < heights["neo_hookean"]


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="snow has 0 < compression < 1"):
        ParticleMaterial("snow", compression=1.5)
    with pytest.raises(InputError, match="friction angle of sand is between 0 and"):
        ParticleMaterial("sand", friction_angle=2.0)
