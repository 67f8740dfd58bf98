"""Fronts whose form is known."""

import pytest
import torch

from adjoin.control import pareto_front, plot_pareto
from adjoin.control.objective import Objective
from adjoin.control.pareto import efficient
from adjoin.errors import InputError


def two_targets(x):
    """The squared distances from two points: the front is where √f + √g is their distance."""
    return torch.stack([(x - 1.0).square().sum(-1), (x + 1.0).square().sum(-1)], -1)


def concave(x):
    """Fonseca and Fleming: a front that weighted sums cannot reach."""
    shift = x.shape[-1] ** -0.5
    return torch.stack([1 - torch.exp(-(x - shift).square().sum(-1)), 1 - torch.exp(-(x + shift).square().sum(-1))], -1)


@pytest.mark.parametrize("method", ["weighted", "chebyshev", "epsilon"])
def test_a_convex_front(method):
    front = pareto_front(
        two_targets, torch.zeros(3, dtype=torch.float64), 20, method=method, iterations=70, learning_rate=0.1
    )
    assert front.efficient.all()
    roots = front.values.sqrt().sum(-1)
    assert torch.allclose(roots, torch.full_like(roots, 12**0.5), atol=0.02)
    assert front.values[:, 0].max() - front.values[:, 0].min() > 8.0


def test_a_concave_front_is_reached_everywhere_and_plotted(tmp_path):
    front = pareto_front(
        concave, torch.zeros(2, dtype=torch.float64), 20, iterations=70, learning_rate=0.1, bounds=(-2.0, 2.0)
    )
    assert front.efficient.all()
    assert (front.values[1:, 0] - front.values[:-1, 0]).max() < 0.2
    plot_pareto(front, ["f, m", "g, m"]).savefig(tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 1000


def test_effort_against_arrival_of_a_cart_is_the_front_of_its_linear_problem():
    """Two objectives of `control`; their weighted sums are least squares in the controls."""
    from problems import DT, SIM, STEPS, arrive, effort, start

    cost = Objective(SIM, start(SIM), STEPS, cost=effort)
    goal = Objective(SIM, start(SIM), STEPS, terminal=arrive)
    front = pareto_front([cost, goal], torch.full((STEPS,), 0.3).double(), 6, iterations=150, learning_rate=0.02)
    assert front.efficient.all()
    later = torch.arange(STEPS, 0, -1).double()
    rows = torch.stack([10.0 * DT * DT * later, 10.0 * DT * torch.ones(STEPS).double()])
    aim = torch.tensor([10.0, 0.0]).double()
    for energy, miss in front.values:
        best = []
        for weight in torch.logspace(-4, 4, 81).double():
            u = torch.linalg.solve(torch.eye(STEPS).double() + weight * rows.T @ rows, weight * rows.T @ aim)
            best.append([u.square().sum(), (rows @ u - aim).square().sum()])
        exact = torch.tensor(best)
        nearest = exact[exact[:, 0] <= energy.item() + 1e-9][-1]  # the best arrival for no more effort
        assert miss < nearest[1] + 2.0, (energy, miss, nearest)
    assert front.values[:, 1].max() - front.values[:, 1].min() > 50.0


def test_what_is_dominated_and_what_is_wrong():
    values = torch.tensor([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]])
    assert efficient(values).tolist() == [True, True, False, True]
    with pytest.raises(InputError, match="no method 'best'; methods: weighted"):
        pareto_front(two_targets, torch.zeros(1), method="best")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="must give"):
        pareto_front(lambda x: x, torch.zeros(1))
