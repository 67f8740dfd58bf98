"""Gauss-Newton with the damping of Levenberg and Marquardt and secants after Broyden, for many starts at once.

Broyden, A class of methods for solving nonlinear simultaneous equations, 1965; for damping see `levenberg_marquardt`.
"""

from dataclasses import dataclass

import torch

from adjoin.control.optimizers.method import MethodState, ScaledObjective, check, row_at
from adjoin.errors import InputError
from adjoin.learn.levenberg_marquardt import RAISE, damped_steps, identity_scale

LONGER = (1.5, 2.0)
"""Multiples of the step with the second damping that are tried as well."""

NEAR = 1e-5
"""Points nearer to the chosen one than this share of the farthest are not used for secants: rounding."""


@dataclass(frozen=True)
class GaussNewton:
    """Solves for where the linearized residuals are least, with damping; for objectives with residuals.

    The Jacobian is computed where the last step was a poor one. After a good one, all points that were tried tell how
    the residuals change between them, and correct the Jacobian without a launch of its own. These secants also see
    across ripples that a derivative takes for the slope.

    Attributes:
        damping: of the first step, as a share of the greatest diagonal entry of JᵀJ. It holds back all variables alike:
            their spread is their unit.
        trials: dampings that an iteration tries, each ten times the one before; longer steps are tried beside them.
        renew: after an iteration that leaves more than this share of the loss, the Jacobian is computed anew; with 0
            after each.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    damping: float = 1e-3
    trials: int = 6
    renew: float = 0.5
    patience: int = 4

    def __post_init__(self):
        check(self, positive=["damping"], fractions=["renew"], at_least={"trials": 2, "patience": 1})

    def begin(self, problem: ScaledObjective, z: torch.Tensor, seed: int) -> MethodState:
        """See `Method`."""
        of = problem.objective
        if of.residual is None or of.cost is not None or of.terminal is not None or of.loss is not None:
            raise InputError("GaussNewton: the objective must have residuals, and no cost, terminal or loss")
        residuals, jacobian = problem.jacobians(z)
        zeros = torch.zeros_like(z[:, 0])
        return {
            "z": z,
            "loss": _losses(residuals),
            "residuals": residuals,
            "jacobian": jacobian.nan_to_num(0.0, 0.0, 0.0),
            "damping": zeros + self.damping,
            "poor": zeros,
            "failures": zeros,
        }

    def advance(self, problem: ScaledObjective, state: MethodState) -> MethodState:
        """See `Method`."""
        z, loss, residuals, jacobian, damping = (
            state[name] for name in ("z", "loss", "residuals", "jacobian", "damping")
        )
        poor = state["poor"] > 0.0
        if bool(poor.any()):
            jacobian[poor] = problem.jacobians(z[poor])[1].nan_to_num(0.0, 0.0, 0.0)
        free = problem.free(z, torch.einsum("bmn,bm->bn", jacobian, residuals)).to(z)
        dampings = damping[:, None] * RAISE ** (torch.arange(self.trials, dtype=z.dtype, device=z.device) - 1.0)
        steps = _steps(jacobian * free[:, None], residuals, free, dampings)
        longer = steps[:, 1:2] * steps.new_tensor(LONGER)[:, None]
        trials = problem.project(z[:, None] - torch.cat([steps, longer], 1))
        trial_residuals = problem.residuals(trials)
        lower, best = _losses(trial_residuals).min(1)
        better = lower < loss
        moved = torch.where(better[:, None], row_at(trials, best), z)
        moved_residuals = torch.where(better[:, None], row_at(trial_residuals, best), residuals)
        good = lower < self.renew * loss
        if bool(good.any()):
            points, values = (torch.cat([a[:, None], b], 1) for a, b in ((z, trials), (residuals, trial_residuals)))
            jacobian = _secants(jacobian, points - moved[:, None], values - moved_residuals[:, None])
        chosen = row_at(torch.cat([dampings, damping[:, None].expand(-1, len(LONGER))], 1), best)
        raised = torch.where(poor, RAISE * dampings[:, -1], damping)
        return {
            "z": moved,
            "loss": torch.where(better, lower, loss),
            "residuals": moved_residuals,
            "jacobian": jacobian,
            "damping": torch.where(better, chosen.clamp(min=1e-12), raised),
            "poor": (~good).to(z),
            "failures": torch.where(better, 0.0, state["failures"] + 1.0),
        }


def _losses(residuals: torch.Tensor) -> torch.Tensor:
    return 0.5 * residuals.square().sum(-1).nan_to_num(torch.inf)


def _steps(jacobian: torch.Tensor, residuals: torch.Tensor, free: torch.Tensor, dampings: torch.Tensor) -> torch.Tensor:
    """Damped steps (starts, trials, size), from the smaller of JᵀJ and JJᵀ: Jᵀ (JJᵀ + damping)⁻¹ r is the same."""
    if jacobian.shape[1] < jacobian.shape[2]:
        normal = jacobian @ jacobian.mT
        return torch.einsum("bmn,bkm->bkn", jacobian, damped_steps(normal, residuals, dampings, identity_scale(normal)))
    normal = jacobian.mT @ jacobian
    gradient = (jacobian.mT @ residuals[..., None]).squeeze(-1)
    return damped_steps(normal + (1.0 - free).diag_embed(), gradient, dampings, identity_scale(normal))


def _secants(jacobian: torch.Tensor, steps: torch.Tensor, changes: torch.Tensor) -> torch.Tensor:
    """Correct a Jacobian by Broyden's formula so that it tells the changes (starts, k, m) along steps (starts, k, n).

    One step after the other is met, the longest first, so that the shortest is met exactly. The corrections are found
    together, as each depends on those before by products of steps alone.
    """
    squares = steps.square().sum(-1)
    usable = changes.isfinite().all(-1) & (squares > NEAR**2 * squares.amax(1, keepdim=True))
    order = torch.where(usable, squares, 0.0).argsort(1, descending=True)
    usable = usable.gather(1, order)[..., None]
    steps, changes = (torch.where(usable, x.gather(1, order[..., None].expand_as(x)), 0.0) for x in (steps, changes))
    squares = torch.where(usable[..., 0], steps.square().sum(-1), 1.0)
    missing = changes - steps @ jacobian.mT
    overlaps = (steps @ steps.mT / squares[:, None]).tril(-1)
    corrections = torch.linalg.solve_triangular(overlaps, missing, upper=False, unitriangular=True)
    return jacobian + (corrections / squares[..., None]).mT @ steps
