"""Gauss-Newton over a module's raw numbers, and the Jacobian it uses."""

import itertools

import pytest
import torch

import adjoin
from adjoin.errors import InputError
from adjoin.learn.jacobian import jacobian
from adjoin.learn.levenberg_marquardt import damped_steps, diagonal_scale, gauss_newton, identity_scale
from adjoin.learn.modules import Positive, Unconstrained
from adjoin.learn.parameters import Parameters


def rosenbrock(x):
    return torch.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def test_it_finds_the_valley_of_rosenbrock():
    module = Unconstrained(torch.tensor([-1.2, 1.0], dtype=torch.float64))
    history = gauss_newton(rosenbrock, module, iterations=100)
    assert module().tolist() == pytest.approx([1.0, 1.0], abs=1e-6)
    assert all(a >= b for a, b in itertools.pairwise(history))
    assert len(history) < 40


def test_pieces_are_the_whole():
    modules = [Unconstrained(torch.tensor([-1.2, 1.0], dtype=torch.float64)) for _ in range(2)]
    histories = [
        gauss_newton(rosenbrock, modules[0], iterations=8),
        gauss_newton([lambda x: rosenbrock(x)[:1], lambda x: rosenbrock(x)[1:]], modules[1], iterations=8),
    ]
    assert histories[0] == pytest.approx(histories[1])
    assert torch.allclose(modules[0](), modules[1]())


def test_what_residuals_do_not_depend_on_stays_where_it_is():
    module = Unconstrained(torch.tensor([1.0, 5.0, -3.0], dtype=torch.float64))
    gauss_newton(lambda x: torch.stack([x[0] - 2.0, x[1] + x[2] - 4.0]), module)
    found = module().tolist()
    assert found == pytest.approx([2.0, 6.0, -2.0], abs=1e-6)


def test_steps_to_where_there_is_no_value_are_not_taken():
    def residuals(x):
        if bool((x > 3.0).any()):
            raise InputError("too far")
        return torch.atan(x) * 100.0

    module = Unconstrained(torch.tensor([2.5], dtype=torch.float64))
    gauss_newton(residuals, module, damping=1e-9)  # an undamped step overshoots to below -5, and from there far back
    assert module().detach().abs().item() < 1e-5


@pytest.mark.parametrize("mode", ["forward", "reverse", "vectorized", "samples"])
def test_jacobians_agree(mode):
    model = adjoin.robots.load("two_link")
    learned = Parameters(model, torch.float64, check=False).learn("mass", Positive).learn("damping", Positive)
    q, v, a = torch.randn(3, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def torques(params):
        return adjoin.rnea(model, q, v, a, params=params, passive=True)

    value, slopes = jacobian(torques, learned, mode)
    assert torch.equal(value, torques(learned()).detach())
    before = dict(learned.named_parameters())
    step = 1e-6
    columns = []
    for parameter in before.values():
        for k in range(parameter.numel()):
            sides = []
            for sign in (1.0, -1.0):
                with torch.no_grad():
                    parameter[k] += sign * step
                    sides.append(torques(learned()))
                    parameter[k] -= sign * step
            columns.append((sides[0] - sides[1]) / (2.0 * step))
    assert torch.allclose(slopes, torch.stack(columns, -1), atol=1e-8)


@pytest.mark.parametrize("mode", ["forward", "vectorized"])
def test_rollouts_go_forward(mode):
    model = adjoin.robots.load("two_link")
    sim = adjoin.Simulator(model, dt=1e-3, pairs=[])
    learned = Parameters(model, torch.float64).learn("mass", Positive)
    start = sim.state(torch.zeros(1, 2).double(), torch.ones(1, 2).double())

    def path(params):
        return sim.rollout(start, params=params, steps=3).v

    value, slopes = jacobian(path, learned, mode)
    assert torch.equal(value, path(learned()).detach())
    expected = jacobian(path, learned, "reverse")[1]
    assert expected.shape == (4, 1, 2, 2)
    assert expected.abs().max() > 1e-6
    torch.testing.assert_close(slopes, expected, rtol=1e-10, atol=1e-14)


def test_functions_that_do_not_go_forward_say_what_else_there_is():
    module = Unconstrained(torch.tensor([1.0, 2.0], dtype=torch.float64))
    inputs = torch.zeros(3, 1, dtype=torch.float64)

    def powers(x):
        return adjoin.checkpointed_rollout(lambda state, _: state * state, x, inputs)[-1]

    with pytest.raises(InputError, match='mode="reverse"'):
        jacobian(powers, module)
    assert jacobian(powers, module, "reverse")[1].tolist() == [[8.0, 0.0], [0.0, 8.0 * 2.0**7]]


def test_a_module_without_numbers_or_with_too_many_is_refused():
    with pytest.raises(InputError, match="no parameters that require gradients"):
        jacobian(lambda x: x, torch.nn.Identity())
    with pytest.raises(InputError, match="has 3000 raw numbers, 2000 at most"):
        jacobian(lambda x: x, Unconstrained(torch.zeros(3000)))


def test_residuals_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="not finite"):
        gauss_newton(lambda x: x.log(), Unconstrained(torch.tensor([-1.0])))


@pytest.mark.parametrize("scale", [identity_scale, diagonal_scale])
def test_steps_of_a_batch_and_of_many_dampings_are_those_of_each_alone(scale):
    generator = torch.Generator().manual_seed(0)
    slopes = torch.randn(4, 6, 3, generator=generator, dtype=torch.float64)
    residuals = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    normal, gradient = slopes.mT @ slopes, (slopes.mT @ residuals[..., None]).squeeze(-1)
    dampings = torch.tensor([0.0, 1e-3, 1.0, 1e6], dtype=torch.float64).expand(4, -1)
    steps = damped_steps(normal, gradient, dampings, scale(normal))
    for i in range(4):
        for k in range(4):
            damping = dampings[i, k] * scale(normal)[i].expand(3).diag()
            assert torch.allclose(steps[i, k], torch.linalg.solve(normal[i] + damping, gradient[i]), rtol=1e-12)
        assert torch.allclose(steps[i, 0], torch.linalg.lstsq(slopes[i], residuals[i, :, None]).solution[:, 0])
    assert (steps[:, 3].abs() < 1e-4 * steps[:, 0].abs().amax(-1, keepdim=True)).all()


def test_an_interrupt_propagates_unless_the_partial_result_is_asked_for():
    def interrupted_after(calls):
        count = itertools.count()

        def residuals(x):
            if next(count) == calls:
                raise KeyboardInterrupt
            return rosenbrock(x)

        return residuals

    start = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    module, complete = Unconstrained(start), Unconstrained(start)
    with pytest.raises(KeyboardInterrupt):
        gauss_newton(interrupted_after(0), Unconstrained(start), progress=True)
    history = gauss_newton(interrupted_after(12), module, iterations=50, return_on_interrupt=True)
    assert 1 < len(history) < 50
    assert float(rosenbrock(module().detach()).square().mean()) == pytest.approx(history[-1])
    assert gauss_newton(rosenbrock, complete)[: len(history)] == pytest.approx(history)


def test_what_has_no_diagonal_gets_a_little_of_the_greatest_entry():
    normal = torch.diag_embed(torch.tensor([[1e6, 0.0], [4.0, 1.0]], dtype=torch.float64))
    assert torch.allclose(diagonal_scale(normal), torch.tensor([[1e6, 1e-3], [4.0, 1.0]], dtype=torch.float64))
