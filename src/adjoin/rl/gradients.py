"""Gradients between the steps of an episode: bounded where they grow, measured where they went wrong."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from adjoin.errors import InputError
from adjoin.rl.environment import Environment, EnvironmentState


class _Clip(torch.autograd.Function):
    """The identity, whose gradient has at most a given norm in each environment."""

    @staticmethod
    def forward(ctx: Any, limit: float, *tensors: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.limit = limit
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        squares = torch.stack([g.reshape(len(g), -1).square().sum(-1) for g in gradients]).sum(0)
        factor = (ctx.limit / squares.sqrt().clamp(min=1e-30)).clamp(max=1.0)
        factor = torch.where(squares.isfinite(), factor, 0.0)
        scaled = []
        for g in gradients:
            shaped = factor.reshape(-1, *[1] * (g.dim() - 1))
            scaled.append(torch.where(shaped > 0.0, g * shaped, 0.0))
        return None, *scaled


def clip_between_steps(state: EnvironmentState, limit: float | None) -> EnvironmentState:
    """Return the same state, through which a gradient of at most this norm passes back in each environment.

    Args:
        state: The state.
        limit: The norm of the gradient to q and v; None for no bound. What is not finite becomes 0.
    """
    if limit is None:
        return state
    if not limit > 0.0:
        raise InputError(f"clip_between_steps: the limit must be positive, got {limit!r}")
    q, v = _Clip.apply(limit, state.q, state.v)  # type: ignore[misc]
    return state.replace(simulation=replace(state.simulation, q=q, v=v))


def clip_gradients(parameters: Sequence[torch.nn.Parameter], limit: float) -> torch.Tensor:
    """Scale gradients down to a norm of all together, or to 0 where it is not finite; return the norm before."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.copy_(torch.where(norm.isfinite(), gradient * factor, 0.0))
    return norm


class Adjoints(NamedTuple):
    """How a gradient grows along the steps of episodes.

    Attributes:
        norm: The norm of the gradient of the return to the state before each step, then to the last, (steps + 1, n).
        done: In which steps an episode ended, (steps, n).
    """

    norm: torch.Tensor
    done: torch.Tensor

    def __str__(self) -> str:
        worst = self.norm.nan_to_num(torch.inf).amax(0)
        environment = int(worst.argmax())
        step = int(self.norm[:, environment].nan_to_num(torch.inf).argmax())
        growth = (self.norm[0] / self.norm[-2].clamp(min=1e-30)).median() ** (1.0 / max(1, len(self.norm) - 2))
        return (
            f"{len(self.done)} steps of {self.norm.shape[1]} environments: the gradient grows by {growth:.3g} a step "
            f"(median); it is greatest in environment {environment} before step {step}: {float(worst[environment]):.2e}"
        )


def diagnose(
    environment: Environment, state: EnvironmentState, policy: Callable[[torch.Tensor], torch.Tensor], steps: int
) -> Adjoints:
    """Measure the gradient of the undiscounted return to the state before each step, with episodes cut where they end.

    Args:
        environment: The environment.
        state: Where to begin.
        policy: From observations (n, size) to actions (n, nu); its gradient counts too.
        steps: How many steps.
    """
    if not isinstance(steps, int) or steps < 1:
        raise InputError(f"diagnose: steps must be a whole number of at least 1, got {steps!r}")
    with torch.enable_grad():
        state = state.detach()
        tracked, total, ended = [], torch.zeros((), device=environment.device), []
        for k in range(steps + 1):
            q, v = (x.clone() if x.requires_grad else x.clone().requires_grad_() for x in (state.q, state.v))
            tracked.append((q, v))
            if k < steps:
                state = state.replace(simulation=replace(state.simulation, q=q, v=v))
                step = environment.step(state, policy(environment.observe(state)))
                done = step.terminated | step.truncated
                ended.append(done)
                total = total + step.reward.sum()
                state = step.state.detach().where(done, step.state)
        flat = [x for pair in tracked for x in pair]
        gradients = torch.autograd.grad(total, flat, allow_unused=True, materialize_grads=True)
    norms = [torch.cat(gradients[k : k + 2], -1).norm(dim=-1) for k in range(0, len(gradients), 2)]
    return Adjoints(torch.stack(norms), torch.stack(ended))


def check_gradient(environment: Environment, reward: torch.Tensor, learner: str) -> None:
    """Raise where a reward does not depend on actions, for a learner that needs its gradient."""
    if not reward.requires_grad:
        raise InputError(
            f"task {environment.task.name!r}: the reward does not depend on the action by differentiable operations, "
            f"which {learner} needs; compute it from the state by torch, without detach or no_grad"
        )


def action_jacobian(
    environment: Environment, state: EnvironmentState, action: torch.Tensor, learner: str = "action_jacobian"
) -> torch.Tensor:
    """Return the derivative of the observation after a step, then of its reward, to the action, (n, size + 1, nu).

    All rows come from one step and one gradient, in a batch that is as many times larger.
    """
    n, rows = len(state), environment.observation_size + 1
    with torch.enable_grad():
        wide = state.detach().map(lambda x: x.repeat_interleave(rows, 0))
        repeated = action.detach().repeat_interleave(rows, 0).requires_grad_()
        step = environment.step(wide, repeated)
        check_gradient(environment, step.reward, learner)
        outputs = torch.cat([environment.observe(step.state), step.reward[:, None]], -1)
        index = torch.arange(rows, device=action.device).repeat(n)
        chosen = outputs.gather(1, index[:, None]).sum()
        (gradient,) = torch.autograd.grad(chosen, repeated)
    return gradient.nan_to_num(0.0, 0.0, 0.0).unflatten(0, (n, rows))
