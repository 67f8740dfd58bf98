"""What a task says: a simulator, how an episode begins, what is observed and rewarded, and when it ends."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, TypeVar

import torch

from adjoin.errors import InputError, unknown_name
from adjoin.rl.random import Distribution, Random, Randomize
from adjoin.rl.ranges import Count, Delay, Positive, Range
from adjoin.simulation.simulator import Simulator

if TYPE_CHECKING:
    from adjoin.rl.environment import EnvironmentState


class Start(NamedTuple):
    """How episodes begin.

    Attributes:
        q: The configurations, (n, nq).
        v: The velocities, (n, nv).
        memory: What the task keeps for each environment, such as a command or a goal, (n, ...) each.
    """

    q: torch.Tensor
    v: torch.Tensor
    memory: Mapping[str, torch.Tensor] = {}


class Push(NamedTuple):
    """A force that acts on a link now and then, in a direction that is drawn at each reset.

    Attributes:
        frame: The link.
        force: The distribution of its horizontal components, N.
        every: The time from one push to the next, s.
        duration: How long a push lasts, s.
    """

    frame: str
    force: Distribution
    every: Positive = 5.0
    duration: Positive = 0.1


Randomized = Annotated[
    Sequence[Randomize],
    Range(
        "a sequence of Randomize",
        lambda x: isinstance(x, Sequence) and all(isinstance(each, Randomize) for each in x),
    ),
]


class Task(ABC):
    """One task, for any number of environments at once: all methods take and return batches.

    Every method must be differentiable in torch where its result is to have a gradient. A method may call traced
    functions (`adjoin.function`), which are differentiable too.

    Attributes:
        name: How `make` and the command line call it.
        simulator: What is simulated; `__init__` sets it.
        decimation: How many steps of the simulator an action lasts.
        episode_steps: After how many actions an episode is truncated.
        action_scale: The change of the control per unit of action, one for all actuators or one each; by default half
            the control range of the file.
        action_offset: The control at action 0; by default the middle of the control range.
        randomized: Parameters that each environment has its own values of.
        observation_noise: The distribution of what is added to each observation; None for nothing.
        action_delay: The least and the greatest delay of actions, in actions; each environment draws its own.
        observation_delay: The least and the greatest delay of observations, in actions.
        push: A force that disturbs the robot; None for nothing.
    """

    name: ClassVar[str]
    simulator: Simulator
    decimation: Count = 1
    episode_steps: Count = 1000
    action_scale: float | Sequence[float] | None = None
    action_offset: float | Sequence[float] | None = None
    randomized: Randomized = ()
    observation_noise: Distribution | None = None
    action_delay: Delay = (0, 0)
    observation_delay: Delay = (0, 0)
    push: Push | None = None

    @property
    def control_dt(self) -> float:
        """Return how long an action lasts, s."""
        return self.decimation * self.simulator.dt

    @abstractmethod
    def start(self, n: int, random: Random) -> Start:
        """Draw how n episodes begin."""

    @abstractmethod
    def observe(self, state: "EnvironmentState") -> torch.Tensor:
        """Return the observations, (n, size), without noise and delay."""

    @abstractmethod
    def reward(self, before: "EnvironmentState", action: torch.Tensor, after: "EnvironmentState") -> torch.Tensor:
        """Return the rewards of a step, (n,). The actions are in [-1, 1]."""

    def terminated(self, state: "EnvironmentState") -> torch.Tensor:
        """Return which episodes end here for good, (n,) booleans; by default none."""
        return torch.zeros(state.q.shape[:-1], dtype=torch.bool, device=state.q.device)

    def observation_terminated(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the same of observations (n, size), for learners that act in a learned model; by default none end."""
        return torch.zeros(len(observation), dtype=torch.bool, device=observation.device)

    def remember(self, before: "EnvironmentState", after: "EnvironmentState") -> Mapping[str, torch.Tensor]:
        """Return the memory after a step; by default it does not change."""
        return before.memory


T = TypeVar("T", bound=Task)

TASKS: dict[str, type[Task]] = {}
"""The tasks that `make_task` and the command line know, by name."""


def register_task(kind: type[T]) -> type[T]:
    """Register a class of tasks under its name."""
    TASKS[kind.name] = kind
    return kind


def make_task(name: str | Task, **options: object) -> Task:
    """Return a task by its name, with options of its class; a task is returned as it is."""
    if isinstance(name, Task):
        if options:
            raise InputError(f"task {name.name!r} is made already; pass {', '.join(options)} to its class, or its name")
        return name
    if isinstance(name, type):
        raise InputError(f"a task must be an instance such as {name.__name__}(), got the class")
    import adjoin.rl.tasks  # noqa: F401 they register themselves

    if name not in TASKS:
        raise InputError(unknown_name("task", "tasks", name, sorted(TASKS)))
    known = inspect.signature(TASKS[name]).parameters
    for option in options:
        if option not in known and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
            raise InputError(f"task {name!r}: {unknown_name('option', 'options', option, known)}")
    return TASKS[name](**options)
