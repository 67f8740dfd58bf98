"""Model-based policy optimization, and the two ways in which Qiao et al. (ICML 2021) add gradients of a simulator.

MBPO (Janner et al., When to trust your model, 2019) learns an ensemble of networks that predict a step, lets the policy
act in it for a few steps from states that were seen, and trains soft actor-critic on both kinds of data.

Sample enhancement makes more samples around each true one, by its first-order approximation. Policy enhancement
replaces the gradient of the critic to the action by that of the simulator: dr/da + γ dQ(s', μ(s'))/ds' ds'/da.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from adjoin.rl.capture import Captured
from adjoin.rl.gradients import action_jacobian
from adjoin.rl.learner import Learner, Options, register_learner
from adjoin.rl.learners.dynamics_model import DynamicsModel
from adjoin.rl.learners.replay import Replay
from adjoin.rl.learners.sapo import Pair, Temperature
from adjoin.rl.networks import SquashedActor, perceptron
from adjoin.rl.optimizer import adam, state_tensors
from adjoin.rl.ranges import Count, Counts, NotNegative, Number, Share, Switch, Whole


@dataclass(frozen=True)
class MBPOOptions(Options):
    """Options of model-based policy optimization; the defaults are those of Qiao et al. for pendulums.

    Attributes:
        environments: How many are simulated at once.
        epoch_steps: How many actions each takes in an iteration.
        exploration_steps: How many of the first actions are random.
        updates: Updates of the policy per action.
        batch: Samples of an update.
        hidden: Neurons of the layers of all networks.
        rate: The learning rate.
        discount: What a reward one action later is worth.
        ends_at_time: Whether the end of an episode's time counts as an end for good: where the time is observed.
        mixing: How fast the target critics follow.
        entropy: The wanted entropy per number of an action.
        model: Whether a model is learned; without it this is soft actor-critic.
        ensemble: How many networks the model has.
        model_every: After how many actions the model is trained and used again.
        model_updates: Updates of the model each time.
        model_steps: The length of rollouts in the model.
        model_rollouts: How many there are each time.
        real_share: The share of true samples in an update.
        capacity: How many samples are kept.
        extra_samples: How many samples are made around each true one (sample enhancement).
        extra_spread: How far their actions are from it.
        one_row: Whether only one random row of the Jacobian is used, times the number of rows, and clipped to ±10: what
            the authors' code did where their paper has all of it.
        policy_enhancement: Whether the actor climbs the gradient through the simulator.
        graph: Whether collection, updates and the fit of the model are one CUDA graph each, on GPUs.
    """

    iterations: Count = 100
    environments: Count = 1
    epoch_steps: Count = 100
    exploration_steps: Whole = 500
    updates: Count = 5
    batch: Count = 256
    hidden: Counts = (256, 256)
    rate: NotNegative = 3e-4
    discount: Share = 0.99
    ends_at_time: Switch = False
    mixing: Share = 5e-3
    entropy: Number = -1.0
    model: Switch = True
    ensemble: Count = 5
    model_every: Count = 250
    model_updates: Count = 200
    model_steps: Count = 1
    model_rollouts: Count = 4000
    real_share: Share = 0.05
    capacity: Count = 100_000
    extra_samples: Whole = 0
    extra_spread: NotNegative = 1e-2
    one_row: Switch = False
    policy_enhancement: Switch = False
    graph: Switch = True


@register_learner
class MBPO(Learner):
    """Model-based policy optimization."""

    name = "mbpo"
    Options = MBPOOptions
    options: MBPOOptions

    def build(self) -> None:
        """Make actor, critics, temperature and model."""
        environment, options = self.environment, self.options
        size, nu = environment.observation_size, environment.action_size
        self.actor = SquashedActor(size, options.hidden, nu, nn.ReLU, layer_norm=False)

        def critics() -> Pair:
            return Pair(*[perceptron(size + nu, options.hidden, 1, nn.ReLU, layer_norm=False) for _ in range(2)])

        self.critic, self.target = critics(), critics()
        self.target.load_state_dict(self.critic.state_dict())
        self.temperature = Temperature(0.1)
        self.model = DynamicsModel(size, nu, options.hidden, options.ensemble)
        self.modules = {"actor": self.actor, "critic": self.critic, "target": self.target, "model": self.model}
        self.modules["temperature"] = self.temperature

    def build_optimizers(self) -> None:
        """Make one Adam for each network, and the memories of samples."""
        self.target.requires_grad_(False)
        self.optimizers = {name: adam(m, self.options.rate) for name, m in self.modules.items() if name != "target"}
        size, nu = self.environment.observation_size, self.environment.action_size
        shapes = {"observation": (size,), "action": (nu,), "reward": (), "next": (size,), "end": ()}
        jacobian = {"jacobian": (size + 1, nu)} if self.options.policy_enhancement else {}
        place = {"dtype": self.environment.dtype, "device": self.environment.device}
        self.real = Replay(self.options.capacity, {**shapes, **jacobian}, **place)
        self.imagined = Replay(self.options.capacity, shapes, **place)
        self.count, self._imagines = 0, False
        self._graphs: dict[tuple[str, bool], Captured] = {}

    @property
    def steps_per_iteration(self) -> int:
        """Return how many actions an iteration takes, in all environments together."""
        return self.options.environments * self.options.epoch_steps

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the most probable actions, (..., nu)."""
        return self.actor(observation)

    def improve(self) -> dict[str, torch.Tensor]:
        """Act for an epoch, and train after each action."""
        numbers: dict[str, torch.Tensor] = {}
        for _ in range(self.options.epoch_steps):
            explores = self.count < self.options.exploration_steps
            self._recorded("collect", explores, lambda explores=explores: self._collect(explores))()
            self.count += 1
            if self.count < self.options.exploration_steps:
                continue
            if self.options.model and self.count % self.options.model_every == 0:
                numbers["model_loss"] = self._train_model()
            numbers |= self._recorded("update", self._imagines, self._updates)()
        return dict(sorted(numbers.items()))

    def _recorded(self, what: str, how: bool, function: Callable[[], Any]) -> Captured:
        """Return a part of an iteration, which is one CUDA graph on GPUs."""
        if (what, how) not in self._graphs:
            self._state = self.vector.tensors()
            changed = {
                "collect": [*self._state, self.episodes.running, self.episodes.steps, self.episodes.sums],
                "update": self._weights("critic", "actor", "temperature", "target"),
                "model": self._weights("model"),
            }[what]
            changed.append(self.real.place)
            self._graphs[what, how] = Captured(
                function, self.environment.device, [self.generator], lambda: changed, self.options.graph
            )
        return self._graphs[what, how]

    def _weights(self, *names: str) -> list[torch.Tensor]:
        """Return what the training of some networks changes."""
        optimizers = [self.optimizers[name] for name in names if name in self.optimizers]
        weights = [x for name in names for x in self.modules[name].parameters()]
        return [*weights, *[x for each in optimizers for x in state_tensors(each)]]

    # Data

    @torch.no_grad()
    def _collect(self, explores: bool) -> None:
        options, environment, vector = self.options, self.environment, self.vector
        observation = vector.observe()
        if explores:
            shape = (len(observation), environment.action_size)
            share = torch.rand(shape, generator=self.generator, dtype=observation.dtype, device=observation.device)
            action = 2.0 * share - 1.0
        else:
            action, _ = self.actor.sample(observation, self.generator)
        jacobian = None
        if options.policy_enhancement or options.extra_samples:
            jacobian = action_jacobian(environment, vector.state, action, self.name)
        step = vector.step(action)
        ends = step.done if options.ends_at_time else step.terminated
        row = {"observation": observation, "action": action, "reward": step.reward, "next": step.final_observation}
        row["end"] = ends.to(observation)
        self.episodes.add(step)
        if options.extra_samples and jacobian is not None:
            self.real.add(self._extra(row, jacobian))
        if options.policy_enhancement and jacobian is not None:
            row["jacobian"] = jacobian
        self.real.add(row)
        vector.store(self._state)

    def _extra(self, row: Mapping[str, torch.Tensor], jacobian: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return samples around true ones, by their first-order approximation (Qiao et al., section 5)."""
        options = self.options
        n, rows, nu = jacobian.shape
        if options.one_row:
            chosen = torch.randint(rows - 1, (n, 1), generator=self.generator, device=jacobian.device)
            mask = torch.zeros(n, rows, device=jacobian.device).scatter_(1, chosen, float(rows - 1))
            mask[:, -1] = 1.0  # the reward's row is used as it is
            jacobian = (jacobian * mask[..., None]).clamp(-10.0, 10.0)
        noise = torch.randn(options.extra_samples, n, nu, generator=self.generator, device=jacobian.device)
        change = options.extra_spread * noise.to(jacobian)
        moved = torch.einsum("noi,kni->kno", jacobian, change)
        extra = {name: x.expand(options.extra_samples, *x.shape).flatten(0, 1) for name, x in row.items()}
        extra["action"] = (row["action"] + change).flatten(0, 1)
        extra["next"] = (row["next"] + moved[..., :-1]).flatten(0, 1)
        extra["reward"] = (row["reward"] + moved[..., -1]).flatten(0, 1)
        return extra

    def _train_model(self) -> torch.Tensor:
        """Train the model, and let the policy act in it."""
        options = self.options
        loss = torch.zeros(())
        self.model.normalize(self.real.all("observation"), self.real.all("action"))
        fit = self._recorded("model", True, self._fit_model)
        for _ in range(options.model_updates):
            loss = fit()
        self._imagines = True
        with torch.no_grad():
            observation = self.real.sample(options.model_rollouts, self.generator)["observation"]
            for _ in range(options.model_steps):
                action, _ = self.actor.sample(observation, self.generator)
                following, reward = self.model.sample(observation, action, self.generator)
                end = self.environment.task.observation_terminated(following).to(observation)
                row = {"observation": observation, "action": action, "reward": reward, "next": following, "end": end}
                self.imagined.add(row)
                observation = following[end < 0.5]
                if not len(observation):
                    break
        return loss.detach()

    def _fit_model(self) -> torch.Tensor:
        batch = self.real.sample(self.options.batch * self.options.ensemble, self.generator)
        with torch.enable_grad():
            loss = self.model.loss(batch)
            self.model.zero_grad()
            loss.backward()
        self.optimizers["model"].step()
        return loss.detach()

    # Updates

    def _updates(self) -> dict[str, torch.Tensor]:
        """Do the updates of the policy that follow an action."""
        numbers: dict[str, torch.Tensor] = {}
        for _ in range(self.options.updates):
            numbers = self._update()
        return numbers

    def _update(self) -> dict[str, torch.Tensor]:
        options = self.options
        mixes = self._imagines and not options.policy_enhancement
        true = max(1, round(options.real_share * options.batch)) if mixes else options.batch
        batch = self.real.sample(true, self.generator)
        if true < options.batch:
            other = self.imagined.sample(options.batch - true, self.generator)
            batch = {name: torch.cat([batch[name], x]) for name, x in other.items()}
        with torch.enable_grad():
            critic_loss = self._critic_loss(batch)
            self._step("critic", critic_loss)
            actor_loss, log_density = self._actor_loss(batch)
            self._step("actor", actor_loss)
            excess = -log_density.detach().mean() / self.environment.action_size - options.entropy
            self._step("temperature", self.temperature.logarithm * excess)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.lerp_(new, options.mixing)
        return {"actor_loss": actor_loss.detach(), "critic_loss": critic_loss.detach()}

    def _step(self, name: str, loss: torch.Tensor) -> None:
        self.modules[name].zero_grad()
        loss.backward()
        self.optimizers[name].step()

    def _soft_value(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the value of an observation under the policy, by the target critics."""
        action, log_density = self.actor.sample(observation, self.generator)
        value = self.target(torch.cat([observation, action], -1)).amin(-1)
        return value - self.temperature().detach() * log_density

    def _critic_loss(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            later = (1.0 - batch["end"]) * self._soft_value(batch["next"])
            wanted = batch["reward"] + self.options.discount * later
        value = self.critic(torch.cat([batch["observation"], batch["action"]], -1))
        return (value - wanted[:, None]).square().mean()

    def _actor_loss(self, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        action, log_density = self.actor.sample(batch["observation"], self.generator)
        cost = self.temperature().detach() * log_density
        if self.options.policy_enhancement:
            slope = self.action_gradient(batch)
            near = torch.exp(-(action.detach() - batch["action"]).norm(dim=-1))  # equation 16
            return (cost - near * (slope * action).sum(-1)).mean(), log_density
        value = self.critic(torch.cat([batch["observation"], action], -1)).amin(-1)
        return (cost - value).mean(), log_density

    def action_gradient(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return dQ/da through the simulator, (batch, nu): equation 13 of Qiao et al."""
        following = batch["next"].detach().requires_grad_()
        with torch.enable_grad():
            value = (1.0 - batch["end"]) * self._soft_value(following)
            (slope,) = torch.autograd.grad(value.sum(), following)
        jacobian = batch["jacobian"]
        return jacobian[:, -1] + self.options.discount * torch.einsum("boi,bo->bi", jacobian[:, :-1], slope)

    # Checkpoints

    def more_tensors(self) -> dict[str, Any]:
        """Return the memories of samples."""
        count = {"count": torch.tensor(self.count)}
        return {**count, "real": self.real.tensors(), "imagined": self.imagined.tensors()}

    def load_more(self, tensors: Mapping[str, Any]) -> None:
        """Continue with the memories of samples of a checkpoint."""
        self.count = int(tensors["count"])
        self.real.load(tensors["real"])
        self.imagined.load(tensors["imagined"])
        self._imagines = len(self.imagined) > 0
        self._graphs.clear()  # the environments are in other tensors now
