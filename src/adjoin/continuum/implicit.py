"""Equations that are solved, with gradients from the implicit function theorem.

R(x, parameters) = 0 is solved for x by Newton's method with conjugate gradients, matrix-free. A step that does not
lower the residual is halved. The gradient takes one more solve with the same matrix, and the adjoint of the residual;
no iteration is differentiated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.autograd.function import once_differentiable

from adjoin.errors import AdjoinError


class NotConverged(AdjoinError, RuntimeError):
    """A solver used all its iterations, or came to where its equations have no value."""


@dataclass(frozen=True)
class ConjugateGradients:
    """Solves with a symmetric positive definite matrix that is only known by its products.

    Attributes:
        tolerance: of the residual, relative to the right-hand side.
        iterations: at most.
        degree: of the Chebyshev polynomial that preconditions, in the matrix scaled by its diagonal; 0 for the diagonal
            alone. Higher degrees need fewer sums over all nodes.
    """

    tolerance: float = 1e-8
    iterations: int = 5000
    degree: int = 0

    def solve(
        self, product: Callable[[torch.Tensor], torch.Tensor], diagonal: torch.Tensor, b: torch.Tensor
    ) -> torch.Tensor:
        """Return x with A x = b for every variant, (..., n).

        Args:
            product: takes x, gives A x.
            diagonal: of A, positive.
            b: right-hand sides.
        """
        x = torch.zeros_like(b)
        r = b.clone()
        z = self._precondition(product, diagonal, r)
        p, rho = z, (r * z).sum(-1, keepdim=True)
        goal = self.tolerance * b.norm(dim=-1, keepdim=True)
        for iteration in range(self.iterations):
            if iteration % 16 == 0 and not bool((r.norm(dim=-1, keepdim=True) > goal).any()):  # NaN is left alone
                return x
            q = product(p)
            curvature = (p * q).sum(-1, keepdim=True)
            alpha = torch.where(curvature > 0, rho / curvature, torch.zeros_like(rho))
            x, r = x + alpha * p, r - alpha * q
            z = self._precondition(product, diagonal, r)
            following = (r * z).sum(-1, keepdim=True)
            p = z + torch.where(rho > 0, following / rho, torch.zeros_like(rho)) * p
            rho = following
        worst = (r.norm(dim=-1) / b.norm(dim=-1).clamp(min=1e-300)).max().item()
        raise NotConverged(
            f"conjugate gradients: the residual is {worst:.2g} of the right-hand side after {self.iterations} "
            f"iterations, not {self.tolerance:g}; allow more iterations or a larger tolerance"
        )

    def _precondition(self, product: Any, diagonal: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        """Return an approximate solution: Chebyshev's iteration on [λ/30, λ] with λ = 2 as elements bound it."""
        inverse = 1.0 / diagonal
        if not self.degree:
            return inverse * r
        high, low = 2.0, 2.0 / 30.0
        theta, delta = (high + low) / 2, (high - low) / 2
        sigma = theta / delta
        rho = 1.0 / sigma
        d = inverse * r / theta
        z = d
        for _ in range(self.degree):
            following = 1.0 / (2.0 * sigma - rho)
            residual = inverse * (r - product(z))
            d = following * rho * d + 2.0 * following / delta * residual
            z, rho = z + d, following
        return z


class Equations(Protocol):
    """What `solve` needs; an unknown is (*batch, n)."""

    @property
    def solver(self) -> "ConjugateGradients":
        """Return what solves linear equations."""
        ...

    @property
    def newton(self) -> int:
        """Return the iterations of Newton's method at most."""
        ...

    def residual(self, unknown: torch.Tensor, parameters: Mapping[str, torch.Tensor], /) -> torch.Tensor:
        """Return R, (*batch, n), differentiable."""
        ...

    def linearized(
        self, unknown: torch.Tensor, parameters: Mapping[str, torch.Tensor], /
    ) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
        """Return products with a symmetric approximation of R's Jacobian, and about its diagonal."""
        ...


HALVINGS = 8
"""Of a step that does not lower the residual, at most."""


Check = Callable[[torch.Tensor], None]
"""Raises if an unknown is none that the equations are meant for."""


def solve(
    equations: Equations, guess: torch.Tensor, parameters: Mapping[str, torch.Tensor], check: Check = lambda _: None
) -> torch.Tensor:
    """Return the solution, (*batch, n), as a function of the parameters; of a variant that is not finite, NaN.

    Args:
        equations: to solve.
        guess: where Newton's method begins.
        parameters: of the equations.
        check: of the solution, and of where the residual stops being finite.
    """
    return _Solve.apply(equations, check, list(parameters), guess.detach(), *parameters.values())


def _newton(
    equations: Equations, check: Check, unknown: torch.Tensor, parameters: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    residual = equations.residual(unknown, parameters)
    size = residual.norm(dim=-1)
    scale = size
    for _ in range(equations.newton):
        open_ = size > 10 * equations.solver.tolerance * scale  # NaN is left alone
        if not bool(open_.any()):
            return unknown
        product, diagonal = equations.linearized(unknown, parameters)
        change = equations.solver.solve(product, diagonal, residual)
        # A change that rounding loses cannot lower the residual.
        rounding = 8 * torch.finfo(unknown.dtype).eps * unknown.abs().amax(-1)
        open_ &= change.abs().amax(-1) > rounding
        if not bool(open_.any()):
            return unknown
        length = torch.ones_like(size)
        for _ in range(HALVINGS):
            trial = unknown - length[..., None] * change
            residual = equations.residual(trial, parameters)
            worse = open_ & ~(residual.norm(dim=-1) < size)
            if not bool(worse.any()):
                break
            length = torch.where(worse, 0.5 * length, length)
        unknown, size = trial, residual.norm(dim=-1)
        lost = open_ & ~size.isfinite()
        if bool(lost.any()):
            check(unknown)
            raise NotConverged(
                f"{type(equations).__name__}: variant {', '.join(map(str, lost.nonzero()[0].tolist())) or 0}: the "
                "residual is not finite along a step of Newton's method; take smaller steps"
            )
        scale = torch.maximum(scale, size)
    raise NotConverged(
        f"{type(equations).__name__}: the residual is {size.nan_to_num(0.0).max().item():.3g} after "
        f"{equations.newton} iterations of Newton's method; take smaller steps, or allow more iterations"
    )


class _Solve(torch.autograd.Function):
    """The solution as a function of everything the residual reads."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, equations: Equations, check: Check, names: list[str], guess: torch.Tensor, *values: torch.Tensor
    ) -> torch.Tensor:
        parameters = dict(zip(names, [x.detach() for x in values], strict=True))
        solution = _newton(equations, check, guess.clone(), parameters)
        check(solution)
        ctx.equations, ctx.names = equations, names
        ctx.save_for_backward(solution, *values)
        return solution

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        solution, *values = ctx.saved_tensors
        equations = ctx.equations
        wanted = ctx.needs_input_grad[4:]
        parameters = dict(zip(ctx.names, [value.detach() for value in values], strict=True))
        # The linearized matrix may lack a part that is not symmetric; the whole is solved by correction.
        product, diagonal = equations.linearized(solution, parameters)
        leaf = solution.detach().requires_grad_()
        with torch.enable_grad():
            residual = equations.residual(leaf, parameters)
        adjoint = torch.zeros_like(gradient)
        rest = gradient
        goal = 10 * equations.solver.tolerance * gradient.norm(dim=-1)
        for _ in range(equations.newton):
            adjoint = adjoint + equations.solver.solve(product, diagonal, rest)
            (pulled,) = torch.autograd.grad(residual, leaf, adjoint, retain_graph=True)
            rest = gradient - pulled
            if not bool((rest.norm(dim=-1) > goal).any()):
                break
        leaves = [value.detach().requires_grad_(want) for value, want in zip(values, wanted, strict=True)]
        with torch.enable_grad():
            residual = equations.residual(solution.detach(), dict(zip(ctx.names, leaves, strict=True)))
        asked = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
        found = iter(torch.autograd.grad(residual, asked, -adjoint, allow_unused=True) if asked else ())
        return None, None, None, None, *[next(found) if want else None for want in wanted]
