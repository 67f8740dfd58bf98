"""Methods that follow gradients, for many starts at once.

One launch evaluates all starts, and a line search tries all its lengths for all starts in one launch too. Each start
takes the path that it would take alone.

Sources: Adam after Kingma and Ba, Adam: a method for stochastic optimization, 2015; the two loops of L-BFGS after
Nocedal, Updating quasi-Newton matrices with limited storage, 1980, on the numbers that are not held by a limit, as in
Bertsekas, Projected Newton methods for optimization problems with simple constraints, 1982; damping after Marquardt, An
algorithm for least-squares estimation of nonlinear parameters, 1963; secants after Broyden, A class of methods for
solving nonlinear simultaneous equations, 1965.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from adjoin.control.method import Problem, Rows, check
from adjoin.errors import InputError

LONGER = (1.5, 2.0)
"""Multiples of the step that Gauss-Newton tries beside its dampings."""

NEAR = 1e-5
"""Points nearer to the one chosen than this share of the farthest tell nothing: rounding."""


@dataclass(frozen=True)
class Adam:
    """Gradient descent with a step size for each number.

    Attributes:
        rate: of a step, in units of the spread.
        betas: what stays of the mean gradient and of its square in each iteration.
        decay: what the rate is multiplied with in each iteration.
        clip: gradients longer than this are shortened to it, for each start.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    rate: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 1.0
    clip: float | None = None
    patience: int = 50

    def __post_init__(self):
        check(self, positive=["rate", *_clip(self)], shares=["decay"], least={"patience": 1})
        pair = isinstance(self.betas, Sequence) and len(self.betas) == 2
        if not pair or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise InputError(f"Adam: betas must be two numbers from 0 to below 1, got {self.betas!r}")

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        return _begin(problem, z, self.rate, first=torch.zeros_like(z), second=torch.zeros_like(z))

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        gradient = _clipped(rows["gradient"], self.clip)
        keep, keep_square = self.betas
        count = rows["count"] + 1.0
        first = keep * rows["first"] + (1.0 - keep) * gradient
        second = keep_square * rows["second"] + (1.0 - keep_square) * gradient.square()
        mean = first / (1.0 - keep**count)[:, None]
        size = (second / (1.0 - keep_square**count)[:, None]).sqrt()
        step = mean / (size + 1e-8)
        return _descend(problem, rows, step, self.decay, first=first, second=second)


@dataclass(frozen=True)
class SGD:
    """Gradient descent.

    Attributes:
        rate: of a step, in units of the spread, for a gradient of 1.
        momentum: what stays of the last step in each iteration.
        decay: what the rate is multiplied with in each iteration.
        clip: gradients longer than this are shortened to it, for each start.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    rate: float = 0.05
    momentum: float = 0.0
    decay: float = 1.0
    clip: float | None = None
    patience: int = 50

    def __post_init__(self):
        check(self, positive=["rate", *_clip(self)], shares=["momentum", "decay"], least={"patience": 1})

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        return _begin(problem, z, self.rate, first=torch.zeros_like(z))

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        step = self.momentum * rows["first"] + _clipped(rows["gradient"], self.clip)
        return _descend(problem, rows, step, self.decay, first=step)


@dataclass(frozen=True)
class LBFGS:
    """Quasi-Newton with limited memory, and a line search that tries all its lengths at once.

    Attributes:
        memory: how many past steps are kept; with 0 it is steepest descent with a line search.
        trials: lengths that a line search tries, each half of the one before.
        first: how far a number moves at most in a step without memory, in units of the spread.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    memory: int = 10
    trials: int = 8
    first: float = 0.1
    patience: int = 8

    def __post_init__(self):
        check(self, positive=["first"], least={"memory": 0, "trials": 1, "patience": 1})

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        past = z.new_zeros(len(z), self.memory, z.shape[1])
        return _begin(problem, z, self.first, steps=past, changes=past.clone(), failures=torch.zeros_like(z[:, 0]))

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        z, loss, gradient, rate = rows["z"], rows["loss"], rows["gradient"], rows["rate"]
        free = problem.free(z, gradient)
        pull = torch.where(free, gradient, 0.0)
        plain = pull * (rate / pull.abs().amax(-1).clamp(min=torch.finfo(z.dtype).tiny))[:, None]
        bent, any_past = _two_loops(pull, rows["steps"] * free[:, None], rows["changes"] * free[:, None])
        down = any_past & (_dot(bent, pull) > 0.0) & bent.isfinite().all(-1)
        direction = torch.where(down[:, None], bent, plain)
        lengths = 2.0 ** (1.0 - torch.arange(self.trials, dtype=z.dtype, device=z.device))
        tried = problem.project(z[:, None] - lengths[:, None] * direction[:, None])
        moved, lower, better = _least(problem.losses(tried), tried, loss)
        _, slope = problem.gradients(moved)
        better = better & slope.isfinite().all(-1)
        step, change = moved - z, slope - gradient
        curved = better & (_dot(step, change) > 1e-10 * _dot(step, step).sqrt() * _dot(change, change).sqrt())
        steps, changes = (
            torch.where(curved[:, None, None], torch.cat([past[:, 1:], new[:, None]], 1)[:, : self.memory], past)
            for past, new in ((rows["steps"], step), (rows["changes"], change))
        )
        kept = better[:, None, None]
        return {
            **rows,
            "z": torch.where(better[:, None], moved, z),
            "loss": torch.where(better, lower, loss),
            "gradient": torch.where(better[:, None], slope, gradient),
            "steps": torch.where(kept, steps, 0.0),
            "changes": torch.where(kept, changes, 0.0),
            "rate": torch.where(better, (2.0 * rate).clamp(max=self.first), torch.where(down, rate, 0.01 * rate)),
            "failures": torch.where(better, 0.0, rows["failures"] + 1.0),
        }


@dataclass(frozen=True)
class GaussNewton:
    """For sums of squares: solves for where the residuals, taken as linear, are least, with damping.

    The derivative of the residuals is computed where the last step was a poor one. After a good one, all points that
    were tried tell how the residuals change between them, and correct the derivative without a launch of its own; these
    secants also see across ripples that a derivative takes for the slope.

    Attributes:
        damping: of the first step, as a share of the greatest square of a derivative. It holds back all numbers alike:
            their spread is their unit.
        trials: dampings that an iteration tries, each ten times the one before; longer steps are tried beside them.
        renew: after an iteration that leaves more than this share of the loss the derivative is computed anew; with 0
            after each.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    damping: float = 1e-3
    trials: int = 6
    renew: float = 0.5
    patience: int = 4

    def __post_init__(self):
        check(self, positive=["damping"], shares=["renew"], least={"trials": 2, "patience": 1})

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        of = problem.objective
        if of.residual is None or of.cost is not None or of.terminal is not None or of.loss is not None:
            raise InputError("GaussNewton: the objective must have residuals, and no cost, terminal or loss")
        rest, slopes = problem.jacobians(z)
        none = torch.zeros_like(z[:, 0])
        loss = 0.5 * rest.square().sum(-1).nan_to_num(torch.inf)
        kept = {"rest": rest, "slopes": slopes.nan_to_num(0.0, 0.0, 0.0), "damping": none + self.damping}
        return {"z": z, "loss": loss, "poor": none, "failures": none, **kept}

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        z, loss, rest, slopes, damping = (rows[name] for name in ("z", "loss", "rest", "slopes", "damping"))
        poor = rows["poor"] > 0.0
        if bool(poor.any()):
            slopes[poor] = problem.jacobians(z[poor])[1].nan_to_num(0.0, 0.0, 0.0)
        free = problem.free(z, torch.einsum("bmn,bm->bn", slopes, rest)).to(z)
        dampings = damping[:, None] * 10.0 ** (torch.arange(self.trials, dtype=z.dtype, device=z.device) - 1.0)
        solve = _by_residuals if slopes.shape[1] < slopes.shape[2] else _by_numbers
        step = solve(slopes * free[:, None], rest, free, dampings)
        longer = step[:, 1:2] * step.new_tensor(LONGER)[:, None]
        tried = problem.project(z[:, None] - torch.cat([step, longer], 1))
        found = problem.residuals(tried)
        losses = 0.5 * found.square().sum(-1).nan_to_num(torch.inf)
        lower, at = losses.min(1)
        better = lower < loss
        moved, there = (torch.where(better[:, None], _at(new, at), old) for new, old in ((tried, z), (found, rest)))
        good = lower < self.renew * loss
        if bool(good.any()):
            points, values = (torch.cat([a[:, None], b], 1) for a, b in ((z, tried), (rest, found)))
            slopes = _secants(slopes, points - moved[:, None], values - there[:, None])
        chosen = torch.cat([dampings, damping[:, None].expand(-1, len(LONGER))], 1).gather(1, at[:, None]).squeeze(1)
        raised = torch.where(poor, 10.0 * dampings[:, -1], damping)
        return {
            "z": moved,
            "loss": torch.where(better, lower, loss),
            "rest": there,
            "slopes": slopes,
            "damping": torch.where(better, chosen.clamp(min=1e-12), raised),
            "poor": (~good).to(z),
            "failures": torch.where(better, 0.0, rows["failures"] + 1.0),
        }


def _begin(problem: Problem, z: torch.Tensor, rate: float, **more: torch.Tensor) -> Rows:
    loss, gradient = problem.gradients(z)
    one = torch.zeros_like(loss)
    return {"z": z, "loss": loss, "gradient": gradient, "rate": one + rate, "count": one, **more}


def _descend(problem: Problem, rows: Rows, step: torch.Tensor, decay: float, **more: torch.Tensor) -> Rows:
    """One step; a start whose loss is not finite there stays, forgets its past and halves its rate."""
    z = problem.project(rows["z"] - rows["rate"][:, None] * step)
    loss, gradient = problem.gradients(z)
    fine = loss.isfinite() & gradient.isfinite().all(-1)
    wide = fine[:, None]
    return {
        "z": torch.where(wide, z, rows["z"]),
        "loss": torch.where(fine, loss, rows["loss"]),
        "gradient": torch.where(wide, gradient, rows["gradient"]),
        "rate": rows["rate"] * torch.where(fine, decay, 0.5),
        "count": torch.where(fine, rows["count"] + 1.0, 0.0),
        **{name: torch.where(wide, value, 0.0) for name, value in more.items()},
    }


def _clip(method: Adam | SGD) -> list[str]:
    return [] if method.clip is None else ["clip"]


def _clipped(gradient: torch.Tensor, most: float | None) -> torch.Tensor:
    if most is None:
        return gradient
    return gradient * (most / gradient.norm(dim=-1, keepdim=True).clamp(min=most))


def _least(losses: torch.Tensor, tried: torch.Tensor, loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of what each start tried the best, its loss, and whether that is better than before."""
    lower, at = losses.nan_to_num(torch.inf).min(1)
    moved = tried.gather(1, at[:, None, None].expand(-1, 1, tried.shape[-1])).squeeze(1)
    return moved, lower, lower < loss


def _at(values: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The values (starts, ...) at one place of the second dimension for each start."""
    return values[torch.arange(len(values), device=values.device), place]


def _secants(slopes: torch.Tensor, ways: torch.Tensor, changes: torch.Tensor) -> torch.Tensor:
    """The derivative, corrected so that it tells the changes (starts, k, m) along ways (starts, k, n), by Broyden.

    One way after the other is met, the longest first, so that the shortest is met exactly. The corrections are found
    together, as each depends on those before by products of ways alone.
    """
    lengths = _dot(ways, ways)
    usable = changes.isfinite().all(-1) & (lengths > NEAR**2 * lengths.amax(1, keepdim=True))
    order = torch.where(usable, lengths, 0.0).argsort(1, descending=True)
    usable = usable.gather(1, order)[..., None]
    ways, changes = (torch.where(usable, x.gather(1, order[..., None].expand_as(x)), 0.0) for x in (ways, changes))
    lengths = torch.where(usable[..., 0], _dot(ways, ways), 1.0)
    missing = changes - ways @ slopes.mT
    shares = (ways @ ways.mT / lengths[:, None]).tril(-1)
    corrections = torch.linalg.solve_triangular(shares, missing, upper=False, unitriangular=True)
    return slopes + (corrections / lengths[..., None]).mT @ ways


def _by_numbers(slopes: torch.Tensor, rest: torch.Tensor, free: torch.Tensor, dampings: torch.Tensor) -> torch.Tensor:
    """Damped steps (starts, trials, size) from (JᵀJ + damping) step = Jᵀ r."""
    normal = slopes.mT @ slopes
    size = normal.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None] + torch.finfo(rest.dtype).tiny
    damped = normal[:, None] + (dampings[..., None] * size + (1.0 - free)[:, None]).diag_embed()
    pull = (slopes.mT @ rest[..., None])[:, None].expand(-1, dampings.shape[1], -1, -1)
    return torch.linalg.solve_ex(damped, pull)[0].squeeze(-1)


def _by_residuals(slopes: torch.Tensor, rest: torch.Tensor, free: torch.Tensor, dampings: torch.Tensor) -> torch.Tensor:
    """The same for fewer residuals than numbers: step = Jᵀ (JJᵀ + damping)⁻¹ r."""
    normal = slopes @ slopes.mT
    size = normal.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None] + torch.finfo(rest.dtype).tiny
    damped = normal[:, None] + (dampings[..., None] * size).expand(-1, -1, rest.shape[1]).diag_embed()
    pull = rest[:, None, :, None].expand(-1, dampings.shape[1], -1, -1)
    return torch.einsum("bmn,bkm->bkn", slopes, torch.linalg.solve_ex(damped, pull)[0].squeeze(-1))


def _two_loops(gradient: torch.Tensor, steps: torch.Tensor, changes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient times the inverse Hessian that past steps and changes of the gradient tell, and whether they do."""
    products = _dot(steps, changes)
    squares = _dot(changes, changes)
    used = products > 1e-10 * (_dot(steps, steps) * squares).sqrt()
    weights = torch.where(used, 1.0 / torch.where(used, products, 1.0), 0.0)
    direction, shares = gradient, []
    for k in reversed(range(steps.shape[1])):
        share = weights[:, k] * _dot(steps[:, k], direction)
        direction = direction - share[:, None] * changes[:, k]
        shares.append(share)
    scale = torch.ones_like(gradient[:, 0])
    for k in range(steps.shape[1]):
        scale = torch.where(used[:, k], products[:, k] / torch.where(used[:, k], squares[:, k], 1.0), scale)
    direction = direction * scale[:, None]
    for k, share in zip(range(steps.shape[1]), reversed(shares), strict=True):
        back = weights[:, k] * _dot(changes[:, k], direction)
        direction = direction + (share - back)[:, None] * steps[:, k]
    return direction, used.any(1)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(-1)
