import pytest
import torch

from adjoin.control.lqr import lqr
from adjoin.errors import InputError


def system(n: int = 5, m: int = 2, batch: int = 3) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    A, B, C, D = (
        torch.randn(batch, *shape, generator=draw, dtype=torch.float64) for shape in ((n, n), (n, m), (n, n), (m, m))
    )
    return [A, B, C @ C.mT, D @ D.mT + torch.eye(m, dtype=torch.float64)]


def test_endless_horizon_solves_the_riccati_equation_and_stabilizes() -> None:
    A, B, Q, R = system()
    gain, P = lqr(A, B, Q, R)
    after = A + B @ gain
    residual = Q + gain.mT @ R @ gain + after.mT @ P @ after - P
    assert residual.abs().max() < 1e-9 * P.abs().max()
    assert torch.linalg.eigvals(A).abs().amax(-1).min() > 1.0
    assert torch.linalg.eigvals(after).abs().max() < 1.0


def test_long_horizon_is_the_endless_one() -> None:
    A, B, Q, R = system()
    long, endless = lqr(A, B, Q, R, steps=200), lqr(A, B, Q, R)
    torch.testing.assert_close(long.gain[0], endless.gain, rtol=1e-9, atol=1e-9)


def test_finite_horizon_is_the_least_squares_solution() -> None:
    A, B, Q, R = (x[0] for x in system())
    n, m, steps = 5, 2, 4
    P = 3.0 * torch.eye(n, dtype=torch.float64)
    start = torch.ones(n, dtype=torch.float64)
    # States stacked as free @ start + forced @ controls.
    powers = [torch.linalg.matrix_power(A, k) for k in range(steps + 1)]
    blocks = [[powers[i - j - 1] @ B if j < i else B * 0.0 for j in range(steps)] for i in range(steps + 1)]
    forced = torch.cat([torch.cat(row, 1) for row in blocks])
    free = torch.cat([power @ start for power in powers])
    Qs, Rs = torch.block_diag(*[Q] * steps, P), torch.block_diag(*[R] * steps)
    controls = -torch.linalg.solve(Rs + forced.T @ Qs @ forced, forced.T @ Qs @ free)
    states = free + forced @ controls
    found = lqr(A, B, Q, R, steps=steps, terminal=P)
    torch.testing.assert_close(found.gain[0] @ start, controls[:m], rtol=1e-10, atol=1e-10)
    least = 0.5 * (states @ Qs @ states + controls @ Rs @ controls)
    torch.testing.assert_close(0.5 * start @ found.value[0] @ start, least, rtol=1e-10, atol=0.0)


def test_what_cannot_be_stabilized_is_an_error() -> None:
    A, B = torch.diag(torch.tensor([2.0, 0.5])), torch.tensor([[0.0], [1.0]])
    with pytest.raises(InputError, match="no finite cost"):
        lqr(A, B, torch.eye(2), torch.eye(1))


def test_wrong_shapes_are_named() -> None:
    A, B, Q, R = system()
    with pytest.raises(InputError, match="R must be"):
        lqr(A, B, Q, Q)
    with pytest.raises(InputError, match="steps"):
        lqr(A, B, Q, R, terminal=Q)
    with pytest.raises(InputError, match=r"terminal must be \(\.\.\., 5, 5\), got \(3, 2, 2\)"):
        lqr(A, B, Q, R, steps=3, terminal=R)
    with pytest.raises(InputError, match="steps must be a whole number"):
        lqr(A, B, Q, R, steps=2.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="B must be a tensor of at least two dimensions"):
        lqr(A, B[0, 0], Q, R)
    with pytest.raises(InputError, match=r"Q torch\.float32"):
        lqr(A, B, Q.float(), R)
