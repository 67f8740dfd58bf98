"""What all learners have in common: options, networks, a state that is saved and continued bit for bit."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch.utils import _pytree

from adjoin.errors import InputError, unknown_name
from adjoin.rl.environment import Environment
from adjoin.rl.episodes import Episodes
from adjoin.rl.ranges import Count, Whole, check_attributes
from adjoin.rl.vector import Vector

SEEDS = 1_000_003  # apart: the seeds of two processes


@dataclass(frozen=True)
class Options:
    """What all learners take.

    Attributes:
        iterations: How many; learning rates decay over them.
        environments: How many environments each process simulates.
        seed: Where all random numbers come from.
    """

    iterations: Count = 500
    environments: Count = 64
    seed: Whole = 0

    def __post_init__(self):
        check_attributes("", self, {each.name: each.type for each in fields(self)})


class Learner(ABC):
    """A policy that improves by iterations.

    Args:
        environment: What it learns in.
        options: How.
        rank: The number of this process, where several learn together: their environments have other seeds, and
            their networks the same weights.

    Attributes:
        vector: The environments that it learns in.
        episodes: The returns of their episodes.
        iteration: How many iterations are done.
        modules: The networks by name; checkpoints hold their weights.
        optimizers: The optimizers by name.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]] = Options

    def __init__(self, environment: Environment, options: Any, rank: int = 0):
        if not isinstance(options, self.Options):
            raise InputError(f"{self.name}: options must be {self.Options.__name__}, got a {type(options).__name__}")
        self.environment, self.options, self.iteration = environment, options, 0
        self.generator = torch.Generator(environment.device).manual_seed(options.seed + SEEDS * rank)
        self.vector = Vector(environment, options.environments, self.generator)
        self.vector.scatter_starts()
        self.episodes = Episodes(options.environments, environment.device)
        self.modules: dict[str, torch.nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            self.build()
        for module in self.modules.values():
            module.to(environment.device, environment.dtype)
        self.build_optimizers()

    @abstractmethod
    def build(self) -> None:
        """Fill `modules`. Random numbers are torch's own here, seeded."""

    @abstractmethod
    def build_optimizers(self) -> None:
        """Fill `optimizers`; the networks are on their device by now."""

    @abstractmethod
    def improve(self) -> dict[str, torch.Tensor]:
        """Do one iteration, and return numbers about it, as tensors without dimensions."""

    @abstractmethod
    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the actions of the policy without its noise, (..., nu)."""

    @property
    def steps_per_iteration(self) -> int:
        """Return how many actions an iteration of one process takes, in all its environments together."""
        return self.options.environments

    def prepare(self) -> None:
        """Compile what the iterations need: a step and its gradient. Nothing changes by it."""
        action = torch.zeros(len(self.vector.state), self.environment.action_size, dtype=self.environment.dtype)
        action = action.to(self.environment.device).requires_grad_()
        with torch.enable_grad():
            reward = self.environment.step(self.vector.state.detach(), action).reward
            if reward.requires_grad:
                torch.autograd.grad(reward.sum(), action, allow_unused=True)

    def iterate(self) -> dict[str, float]:
        """Do one iteration, and return numbers about it."""
        numbers = self.improve()
        self.iteration += 1
        *values, finite = torch.stack(
            [x.detach().double() for x in (*numbers.values(), self.episodes.finite.all())]
        ).tolist()
        if not finite:
            self.episodes.check(self.environment.task.name)
        return {**self.episodes.summary(), **dict(zip(numbers, values, strict=True))}

    # Checkpoints

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything that the next iterations depend on, by name."""
        state: dict[str, Any] = {
            "optimizers": {name: _optimizer_tensors(each) for name, each in self.optimizers.items()},
            "vector": {str(k): x for k, x in enumerate(self.vector.tensors())},
            "episodes": self.episodes.tensors(),
            "generator": self.generator.get_state(),
            "iteration": torch.tensor(self.iteration),
            "more": self.more_tensors(),
        }
        return {**self.networks(), **_flat(state)}

    def load(self, tensors: Mapping[str, torch.Tensor], environments: bool = True) -> None:
        """Continue from what `tensors` returned.

        Args:
            tensors: The tensors by name.
            environments: Whether to take over the state of the environments and of the generator too.
        """
        parts = _nested(tensors)
        self.load_networks(tensors)
        for name, optimizer in self.optimizers.items():
            _load_optimizer(optimizer, parts["optimizers"].get(name, {}))
        self.iteration = int(parts["iteration"])
        if environments:
            saved = list(parts["vector"].values())
            if len(saved[0]) != self.options.environments:
                raise InputError(
                    f"the checkpoint has {len(saved[0])} environments, and this run {self.options.environments}; "
                    f"pass environments={len(saved[0])}"
                )
            saved = [parts["vector"][str(k)].to(x.device) for k, x in enumerate(self.vector.tensors())]
            self.vector.state = _pytree.tree_unflatten(saved, _pytree.tree_structure(self.vector.state))
            self.episodes.load(parts["episodes"])
            self.generator.set_state(parts["generator"].cpu())
            self.load_more(parts.get("more", {}))

    def networks(self) -> dict[str, torch.Tensor]:
        """Return the weights of all networks, by name."""
        return _flat({"modules": {name: module.state_dict() for name, module in self.modules.items()}})

    def load_networks(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take over the networks of a checkpoint, and nothing else."""
        for name, module in self.modules.items():
            module.load_state_dict(_nested(tensors)["modules"][name])

    def more_tensors(self) -> dict[str, Any]:
        """Return what else a learner remembers: nested dicts of tensors."""
        return {}

    def load_more(self, tensors: Mapping[str, Any]) -> None:
        """Continue from what `more_tensors` returned."""
        del tensors

    def option_values(self) -> dict[str, Any]:
        """Return the options as plain values, for the header of a checkpoint."""
        return asdict(self.options)


L = TypeVar("L", bound=Learner)

LEARNERS: dict[str, type[Learner]] = {}
"""The learners that `train` and the command line know, by name."""


def register_learner(kind: type[L]) -> type[L]:
    """Register a class of learners under its name."""
    LEARNERS[kind.name] = kind
    return kind


def learner_class(name: str) -> type[Learner]:
    """Return a class of learners by its name."""
    import adjoin.rl.learners  # noqa: F401 they register themselves

    if name not in LEARNERS:
        raise InputError(unknown_name("algorithm", "algorithms", name, sorted(LEARNERS)))
    return LEARNERS[name]


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    state = optimizer.state_dict()["state"]
    return {str(k): {name: torch.as_tensor(x) for name, x in values.items()} for k, values in state.items()}


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Any]) -> None:
    state = optimizer.state_dict()
    state["state"] = {int(k): dict(values) for k, values in tensors.items()}
    optimizer.load_state_dict(state)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            tensors |= _flat(value, f"{prefix}{name}/")
        else:
            tensors[f"{prefix}{name}"] = value.detach()
    return tensors


def _nested(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in tensors.items():
        *folders, name = path.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return tree
