"""Short-horizon actor-critic (Xu et al., Accelerated policy learning with parallel differentiable simulation, 2022).

The actor climbs the gradient of the return over a short horizon, through the simulator; a critic stands for what comes
after the horizon, and smooths the landscape.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from adjoin.errors import AdjoinWarning
from adjoin.rl import distributed
from adjoin.rl.capture import Captured
from adjoin.rl.gradients import check_gradient, clip_between_steps, clip_gradients
from adjoin.rl.learner import Learner, Options, register_learner
from adjoin.rl.networks import GaussianActor, Moments, perceptron
from adjoin.rl.optimizer import adam, state_tensors
from adjoin.rl.ranges import Betas, Count, Counts, NotNegative, Positive, Share, Switch

EXPLODED = 1e8  # the norm of a gradient that is of no use


@dataclass(frozen=True)
class SHACOptions(Options):
    """Options of short-horizon actor-critic; the defaults are those of the paper for the ant.

    Attributes:
        horizon: Over how many actions a gradient goes back.
        first_horizon: The horizon of the first iteration; it grows to `horizon` over the first half of them.
        discount: What a reward one action later is worth.
        trace: The λ of the critic's targets.
        actor: Neurons of the actor's layers.
        critic: Neurons of the critic's layers.
        actor_rate: The learning rate of the actor, which falls linearly to `last_rate`.
        critic_rate: The learning rate of the critic, which falls in the same way.
        last_rate: The learning rates of the last iteration.
        betas: Of Adam.
        clip: The greatest norm of a gradient to the weights.
        step_clip: The greatest norm of the gradient of an environment's return over the horizon that passes from an
            action to the one before; None for no bound.
        critic_passes: How often the critic sees the data of an iteration.
        minibatches: Into how many parts.
        target_mixing: The share of the old target critic that is kept in each iteration.
        normalize: Whether observations are normalized by their running moments.
        graph: Whether an iteration is one CUDA graph, on GPUs.
    """

    horizon: Count = 32
    first_horizon: Count | None = None
    discount: Share = 0.99
    trace: Share = 0.95
    actor: Counts = (128, 64, 32)
    critic: Counts = (64, 64)
    actor_rate: NotNegative = 2e-3
    critic_rate: NotNegative = 2e-3
    last_rate: NotNegative = 1e-5
    betas: Betas = (0.7, 0.95)
    clip: Positive = 1.0
    step_clip: Positive | None = None
    critic_passes: Count = 16
    minibatches: Count = 4
    target_mixing: Share = 0.2
    normalize: Switch = True
    graph: Switch = True


@register_learner
class SHAC(Learner):
    """Short-horizon actor-critic."""

    name = "shac"
    Options = SHACOptions
    options: SHACOptions

    def build(self) -> None:
        """Make actor, critic and target critic."""
        environment, options = self.environment, self.options
        inputs, outputs = environment.observation_size, environment.action_size
        self.actor = GaussianActor(inputs, options.actor, outputs)
        self.critic = perceptron(inputs, options.critic, 1)
        self.target = perceptron(inputs, options.critic, 1)
        self.target.load_state_dict(self.critic.state_dict())
        self.moments = Moments(inputs)
        self.modules = {"actor": self.actor, "critic": self.critic, "target": self.target, "moments": self.moments}

    def build_optimizers(self) -> None:
        """Make one Adam for the actor and one for the critic, and set up the recording of an iteration."""
        options = self.options
        self.target.requires_grad_(False)
        self.optimizers = {
            "actor": adam(self.actor, options.actor_rate, options.betas),
            "critic": adam(self.critic, options.critic_rate, options.betas),
        }
        self._graphs: dict[int, Captured] = {}
        self._critic_graphs: dict[int, Captured] = {}
        self._warned = False

    def load_more(self, tensors: Mapping[str, Any]) -> None:
        """Record anew: the environments are in other tensors now."""
        self._graphs.clear()
        self._critic_graphs.clear()

    @property
    def horizon(self) -> int:
        """Return the horizon of the present iteration."""
        options = self.options
        if options.first_horizon is None:
            return options.horizon
        share = min(1.0, 2.0 * self.iteration / options.iterations)
        return round(options.first_horizon + share * (options.horizon - options.first_horizon))

    @property
    def steps_per_iteration(self) -> int:
        """Return how many actions an iteration of one process takes, in all its environments together."""
        return self.options.environments * self.horizon

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions of the policy without its noise, (..., nu)."""
        return self.actor(self._normalized(observation))

    def improve(self) -> dict[str, torch.Tensor]:
        """Improve the actor by one gradient through the simulator, then the critic by its λ-returns."""
        options = self.options
        share = 1.0 - self.iteration / options.iterations
        for name, rate in (("actor", options.actor_rate), ("critic", options.critic_rate)):
            for group in self.optimizers[name].param_groups:
                group["lr"].fill_(options.last_rate + share * (rate - options.last_rate))
        loss, observations, targets = self._graph(self.horizon)()
        parameters = list(self.actor.parameters())
        distributed.average_gradients(parameters)
        norm = clip_gradients(parameters, options.clip)
        self.optimizers["actor"].step()
        self._warn(norm)
        numbers = {"actor_loss": loss, "gradient": norm, **self._improve_critic(observations, targets)}
        if options.normalize:
            self.moments.update(observations)
        return numbers

    @torch.no_grad()
    def _improve_critic(self, observations: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Fit the critic to its targets, and let the target critic follow."""
        loss = self._critic_graph(observations, targets)()
        for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
            old.lerp_(new, 1.0 - self.options.target_mixing)
        return {"critic_loss": loss}

    # The gradient through the simulator

    def _graph(self, horizon: int) -> Captured:
        if horizon not in self._graphs:
            self._state = self.vector.tensors()
            changed = [*self._state, self.episodes.running, self.episodes.steps, self.episodes.sums]
            self._graphs[horizon] = Captured(
                lambda: self._roll(horizon),
                self.environment.device,
                [self.generator],
                lambda: changed,
                self.options.graph,
            )
        return self._graphs[horizon]

    def _roll(self, horizon: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Act over the horizon and put the gradient into the actor; return the loss and the data of the critic."""
        for parameter in self.actor.parameters():
            parameter.grad = None
        self.vector.detach()
        scale = self.options.environments * horizon  # the loss is a mean
        limit = None if self.options.step_clip is None else self.options.step_clip / scale
        with torch.enable_grad():
            observation = self.vector.observe()
            observations, rewards, finals, terminated, ended = [], [], [], [], []
            for _ in range(horizon):
                observations.append(observation.detach())
                action, bonus = self._sample(observation)
                step = self.vector.step(action)
                self.vector.state = clip_between_steps(self.vector.state, limit)
                rewards.append(step.reward + bonus)
                finals.append(step.final_observation)
                terminated.append(step.terminated)
                ended.append(step.done)
                self.episodes.add(step)
                observation = step.observation
            check_gradient(self.environment, step.reward, self.name)
            reward, done = torch.stack(rewards), torch.stack(ended)
            value = self._value(torch.stack(finals)).masked_fill(torch.stack(terminated), 0.0)
            loss = self._loss(reward, value, done)
            loss.backward()
        self.vector.store(self._state)
        return loss.detach(), torch.stack(observations), self._targets(reward.detach(), value.detach(), done)

    def _sample(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Return actions, and what is added to the rewards that they get."""
        return self.actor.sample(self._normalized(observation), self.generator), 0.0

    def _value(self, observation: torch.Tensor) -> torch.Tensor:
        return self.target(self._normalized(observation)).mean(-1)

    def _normalized(self, observation: torch.Tensor) -> torch.Tensor:
        return self.moments(observation) if self.options.normalize else observation

    def _loss(self, reward: torch.Tensor, value: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        """Return minus the mean return per action: rewards of the horizon, and values where an episode or it ends."""
        discount, weight, total = self.options.discount, torch.ones_like(reward[0]), torch.zeros_like(reward[0])
        for t in range(len(reward)):
            ends = done[t] if t < len(reward) - 1 else torch.ones_like(done[t])
            total = total + weight * (reward[t] + torch.where(ends, discount * value[t], 0.0))
            weight = torch.where(done[t], 1.0, discount * weight)
        return -total.mean() / len(reward)

    def _targets(self, reward: torch.Tensor, value: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        """Return the λ-returns, (horizon, n)."""
        targets, target, trace = [], value[-1], self.options.trace
        for t in reversed(range(len(reward))):
            later = torch.where(done[t], value[t], (1.0 - trace) * value[t] + trace * target)
            target = reward[t] + self.options.discount * later
            targets.append(target)
        return torch.stack(targets[::-1])

    # Updates

    def _critic_graph(self, observations: torch.Tensor, targets: torch.Tensor) -> Captured:
        """Return the fit of the critic to data that lies in the same memory each time, where it is recorded."""
        recorded = self.options.graph and observations.is_cuda and not distributed.active()
        if not recorded:
            return Captured(lambda: self._fit_critic(observations, targets), observations.device, enabled=False)
        if len(observations) not in self._critic_graphs:
            self._critic_graphs[len(observations)] = Captured(
                lambda: self._fit_critic(observations, targets),
                observations.device,
                [self.generator],
                lambda: [*self.critic.parameters(), *state_tensors(self.optimizers["critic"])],
            )
        return self._critic_graphs[len(observations)]

    @torch.no_grad()
    def _fit_critic(self, observations: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        inputs, outputs = self._normalized(observations).flatten(0, 1), targets.flatten()
        size = max(1, len(outputs) // self.options.minibatches)
        loss, parameters = outputs.new_zeros(()), list(self.critic.parameters())
        for _ in range(self.options.critic_passes):
            order = torch.randperm(len(outputs), generator=self.generator, device=outputs.device)
            for part in order.split(size):
                with torch.enable_grad():
                    left = self.critic(inputs.index_select(0, part)) - outputs.index_select(0, part)[:, None]
                    loss = left.square().mean()
                    self.critic.zero_grad()
                    loss.backward()
                distributed.average_gradients(parameters)
                nn.utils.clip_grad_norm_(parameters, self.options.clip)
                self.optimizers["critic"].step()
        return loss.detach()

    def _warn(self, norm: torch.Tensor) -> None:
        if not self._warned and self.iteration % 10 == 0 and not norm < EXPLODED:
            self.episodes.check(self.environment.task.name)  # a gradient is not finite either where a reward is not
            self._warned = True
            warnings.warn(
                AdjoinWarning(
                    f"task {self.environment.task.name!r}: the gradient of the return has a norm of {float(norm):.1e} "
                    "(it is left out where it is not finite); a shorter horizon or step_clip=100.0 helps, and "
                    "adjoin.rl.diagnose says in which environment and step it grows"
                ),
                stacklevel=2,
            )
