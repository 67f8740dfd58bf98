"""Least squares: exact on exact data, right about its errors on noisy data, physical on useless data."""

import functools
from dataclasses import replace

import pytest
import torch
from every_joint import every_joint, seeded

import adjoin
from adjoin.errors import InputError
from adjoin.learn.data import Recording
from adjoin.learn.excitation import fourier_excitation
from adjoin.learn.regression import least_squares
from adjoin.model.flaws import ROUNDING

EVERYTHING = ("inertial", "damping", "friction", "armature")
TIME = torch.arange(0.0, 4.0, 0.02, dtype=torch.float64)


@functools.cache
def robot():
    model = adjoin.robots.load("pendulum", links=2)
    joints = {"damping": [0.3, 0.2], "friction": [0.1, 0.05], "armature": [0.02, 0.01]}
    return model.with_parameters({name: torch.tensor(x, dtype=torch.float64) for name, x in joints.items()})


def off(model):
    values = model.parameters(dtype=torch.float64)
    return model.with_parameters({name: 0.7 * values[name] for name in ("mass", "inertia", "damping", "armature")})


def recorded(model, noise=0.0, seed=0, batch=(3,)):
    data = fourier_excitation(model, TIME, batch, period=4.0, generator=seeded())
    v, a = data.need("test", "v", "a")
    tau = adjoin.rnea(model, data.q, v, a, passive=True)
    size = noise * tau.flatten(0, -2).std(0)
    return replace(data, tau=tau + size * torch.randn(tau.shape, generator=seeded(100 + seed), dtype=tau.dtype))


def physical(params):
    inertia = params["inertia"]
    matrix = inertia[..., [[0, 1, 2], [1, 3, 4], [2, 4, 5]]]
    second = 0.5 * matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] * torch.eye(3) - matrix
    smallest = torch.linalg.eigvalsh(second)[..., 0]
    return bool((params["mass"] > 0.0).all() and (smallest > -ROUNDING * inertia.abs().amax(-1)).all())


@pytest.mark.parametrize("consistent", [False, True])
def test_exact_data_give_the_base_parameters_and_the_torques_of_other_motions(consistent):
    true, model = robot(), off(robot())
    found = least_squares(model, recorded(true), learn=EVERYTHING, consistent=consistent)
    values = true.parameters(dtype=torch.float64)
    numbers = [adjoin.inertial_parameters(true, values).flatten(), *[values[name] for name in EVERYTHING[1:]]]
    assert torch.allclose(found.base.estimate, found.base.matrix @ torch.cat(numbers), atol=2e-6)
    q, v, a = true.random((50,), dtype=torch.float64), *torch.randn(2, 50, true.nv, dtype=torch.float64)
    expected = adjoin.rnea(true, q, v, a, passive=True)
    assert torch.allclose(adjoin.rnea(model, q, v, a, params=found.params, passive=True), expected, atol=2e-5)


@pytest.mark.parametrize(("name", "count"), [("two_link", 4), ("ur5", 36), ("iiwa7", 43)])
def test_arms_have_as_many_base_parameters_as_is_known(name, count):
    model = adjoin.robots.load(name)
    found = least_squares(model, recorded(model, noise=0.01), consistent=False)
    assert len(found.base.expressions) == count
    assert (found.base.error > 0.0).all()
    assert int((~found.report.identifiable).sum()) > 0


def test_a_floating_base_shows_what_a_fixed_one_hides():
    model = every_joint()
    data = fourier_excitation(model, TIME, (3,), still=(), generator=seeded())
    v, a = data.need("test", "v", "a")
    data = replace(data, tau=adjoin.rnea(model, data.q, v, a, passive=True))
    found = least_squares(model, data, consistent=False)
    assert found.report["mass of base_body"][1] == torch.inf  # it can go to the next body
    assert any("mass of base_body" in said for said in found.base.expressions)


def test_standard_errors_are_the_spread_over_noise():
    true = robot()
    scores, base = [], []
    for seed in range(40):
        found = least_squares(true, recorded(true, 0.1, seed, ()), learn=EVERYTHING, consistent=False)
        good = found.report.identifiable
        values = true.parameters(dtype=torch.float64)
        numbers = [adjoin.inertial_parameters(true, values).flatten(), *[values[name] for name in EVERYTHING[1:]]]
        exact = torch.cat(numbers)
        scores.append(((found.report.estimate - exact) / found.report.error)[good])
        base.append((found.base.estimate - found.base.matrix @ exact) / found.base.error)
    assert torch.stack(scores).square().mean().sqrt().item() == pytest.approx(1.0, abs=0.1)
    assert torch.stack(base).square().mean().sqrt().item() == pytest.approx(1.0, abs=0.1)
    assert torch.stack(base).mean(0).abs().max() < 4.0 / 40**0.5


def test_errors_of_base_parameters_from_few_samples_count_only_what_is_determined():
    true, count, spread = adjoin.robots.load("pendulum", links=1), 6, 0.1
    state = {name: torch.randn(count, 1, generator=seeded(k), dtype=torch.float64) for k, name in enumerate("qva")}
    exact, time = adjoin.rnea(true, *state.values()), torch.arange(count, dtype=torch.float64)
    squares = []
    for seed in range(120):
        tau = exact + spread * torch.randn(count, 1, generator=seeded(100 + seed), dtype=torch.float64)
        data = Recording(true, time, tau=tau, **state)
        found = least_squares(true, data, consistent=False, check=False).base
        squares.append(found.error.square())
    columns = adjoin.torque_regressor(true, *state.values()).reshape(count, -1) @ torch.linalg.pinv(found.matrix)
    expected = spread**2 * torch.linalg.inv(columns.mT @ columns).diagonal()
    # 6 samples less 3 base parameters, though there are 10 parameters.
    torch.testing.assert_close(torch.stack(squares).mean(0), expected, rtol=0.2, atol=0.0)


@pytest.mark.parametrize("seed", range(5))
def test_parameters_stay_physical_however_bad_the_data(seed):
    true = robot()
    data = recorded(true, noise=3.0, seed=seed, batch=())
    free = least_squares(true, data, learn=EVERYTHING, consistent=False).params
    held = least_squares(true, data, learn=EVERYTHING).params
    joints = [held[name] for name in EVERYTHING[1:]]
    assert physical(held)
    assert all((value >= 0.0).all() for value in joints)
    assert not physical(free) or any((free[name] < 0.0).any() for name in EVERYTHING[1:])


def test_consistent_parameters_fit_as_well_as_free_ones_where_both_can():
    true = robot()
    data = recorded(true, noise=0.02)
    free, held = (least_squares(off(true), data, learn=EVERYTHING, consistent=x).report for x in (False, True))
    assert held.nmse == pytest.approx(free.nmse, rel=1e-2)


def test_joints_count_by_their_own_noise():
    true = robot()
    data = recorded(true)
    (tau,) = data.need("test", "tau")
    noise = torch.tensor([0.5, 0.005]) * torch.randn(tau.shape, generator=seeded(), dtype=tau.dtype)
    found = least_squares(true, replace(data, tau=tau + noise), learn=EVERYTHING, consistent=False)
    assert found.report.noise.tolist() == pytest.approx([0.5, 0.005], rel=0.1)
    assert found.report["friction of " + true.joints[1].name][1] < 1e-3


def test_a_joint_that_carries_nothing_does_not_drown_the_others():
    model = adjoin.robots.load("xarm7")  # its first axis is vertical: at rest its torque is rounding
    q = model.random((400,), generator=seeded(), dtype=torch.float64)
    rest = torch.zeros_like(q)
    tau = adjoin.rnea(model, q, rest, rest)
    noise = 0.01 * tau.std(0) * torch.randn(tau.shape, generator=seeded(1), dtype=tau.dtype)
    data = Recording(model, torch.arange(400.0, dtype=q.dtype), q, rest, rest, tau + noise)
    found = least_squares(model, data, check=False, consistent=False)
    assert found.report["mc x of link2"][0] == pytest.approx(model.bodies[1].mass * model.bodies[1].com[0], abs=3e-3)
    assert found.report["Izz of link2"][1] == torch.inf
    assert found.report.nmse < 2e-4


def test_only_chosen_bodies_change():
    true, model = robot(), off(robot())
    name = model.bodies[1].name
    values = true.parameters(dtype=torch.float64)
    known = {key: torch.stack([values[key][0], 0.7 * values[key][1]]) for key in ("mass", "inertia")}
    start = true.with_parameters(known)
    found = least_squares(start, recorded(true), bodies=[name])
    assert torch.equal(found.params["mass"][0], values["mass"][0])
    assert all(entry.endswith(name) for entry in found.report.names)
    assert found.report.nmse < 1e-8


def test_springs_are_found():
    model = robot()
    stiff = model.with_parameters({"stiffness": torch.tensor([1.0, 2.0])})
    found = least_squares(model, recorded(stiff), learn=("stiffness",))
    assert found.params["stiffness"].tolist() == pytest.approx([1.0, 2.0], rel=1e-6)
    assert found.report.units == ["N m/rad", "N m/rad"]


def test_too_little_excitation_is_said_before():
    true = adjoin.robots.load("two_link")  # on its side, so that gravity tells nothing
    data = fourier_excitation(true, TIME, still=[true.joints[1].name], generator=seeded())
    v, a = data.need("test", "v", "a")
    data = replace(data, tau=adjoin.rnea(true, data.q, v, a, passive=True))
    message = (
        r"the data determine 3 base parameters, random motions would determine 4\. What they leave open: .* of arm2"
    )
    with pytest.raises(InputError, match=f"too little excitation: {message}"):
        least_squares(true, data)
    assert least_squares(true, data, check=False).report.nmse < 1e-10


def test_bad_names_are_named():
    data = recorded(robot())
    with pytest.raises(InputError, match="no linear parameter 'gravity'; linear parameters: inertial, damping"):
        least_squares(robot(), data, learn=("gravity",))
    with pytest.raises(adjoin.errors.ModelError, match="no body 'knee'"):
        least_squares(robot(), data, bodies=["knee"])
    with pytest.raises(InputError, match="least_squares needs 'tau'"):
        least_squares(robot(), replace(data, tau=None))
