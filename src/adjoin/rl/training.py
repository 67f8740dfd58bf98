"""Training: one function, for a script, for the command line and for several processes under `torchrun`."""

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from adjoin.errors import InputError, Location, Option, unknown_name
from adjoin.progress import Progress
from adjoin.rl import distributed
from adjoin.rl.checkpoint import load_checkpoint, save_checkpoint
from adjoin.rl.environment import Environment
from adjoin.rl.learner import Learner, learner_class
from adjoin.rl.log import Log
from adjoin.rl.memory import check_memory, is_out_of_memory, too_many
from adjoin.rl.task import Task, make_task

LAST, BEST = "last.safetensors", "best.safetensors"
ENOUGH = 1024  # environments, from which on their memory is estimated before it is taken


@dataclass(frozen=True)
class Run:
    """What training returns.

    Attributes:
        learner: The learner, with the networks of the best iteration.
        rows: What was logged: a row for each iteration.
        best: The best mean return of recent episodes; NaN if none ended.
        interrupted: Whether Ctrl-C ended it.
    """

    learner: Learner
    rows: list[dict[str, float]]
    best: float
    interrupted: bool

    @property
    def policy(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the policy: from observations (n, size) to actions (n, nu)."""
        return self.learner.act


def train(
    task: str | Task,
    algorithm: str = "shac",
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    checkpoint_every: int = 25,
    tensorboard: bool = False,
    progress: bool = True,
    task_options: Mapping[str, Any] | None = None,
    until: Callable[[Learner, dict[str, float]], bool] | None = None,
    **options: Any,
) -> Run:
    """Train a policy. Ctrl-C ends it and keeps the best policy.

    Args:
        task: A task, or the name of one.
        algorithm: The name of a learner.
        folder: Where checkpoints and logs go; by default nothing is written.
        resume: Whether to go on from the last checkpoint in the folder, bit for bit, if there is one.
        device: Where it runs; by default a GPU if there is one.
        dtype: The dtype of states and networks.
        checkpoint_every: After how many iterations a checkpoint is written.
        tensorboard: Whether to write logs for TensorBoard.
        progress: Whether to show a progress bar.
        task_options: Options of the task, where it is named.
        until: Called after each iteration with the learner and its row; training ends where it returns True.
        options: Options of the learner: fields of `adjoin.rl.SHAC.Options` and so on.
    """
    kind = learner_class(algorithm)
    known = [each.name for each in fields(kind.Options)]
    for name in options:
        if name not in known:
            raise InputError(f"{algorithm}: {unknown_name('option', 'options', name, known)}")
    for name, value in {"resume": resume, "tensorboard": tensorboard}.items():
        if value and not folder:
            raise InputError(f"{name} needs a folder", options=[Option("folder", "FOLDER", "for its files")])
    if not isinstance(checkpoint_every, int) or checkpoint_every < 1:
        raise InputError(f"checkpoint_every must be a whole number of at least 1, got {checkpoint_every!r}")
    place = distributed.device_of(device)
    with distributed.joined(place):
        environment = Environment(make_task(task, **(task_options or {})), device=place, dtype=dtype)
        chosen = kind.Options(**options)
        where = Path(folder) if folder else None
        task_name, count = environment.task.name, chosen.environments
        each = _bytes_each(environment, kind, chosen) if count > ENOUGH else 0.0
        check_memory(task_name, count, each, place, "environments")
        try:
            return _train(
                kind(environment, chosen, distributed.rank()),
                where,
                resume,
                checkpoint_every,
                tensorboard,
                progress,
                until,
            )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or (not each and distributed.active()):
                raise
        gc.collect()  # what filled the memory
        if place.type == "cuda":
            torch.cuda.empty_cache()
        raise too_many(task_name, count, each or _bytes_each(environment, kind, chosen), place, "environments")


def _bytes_each(environment: Environment, kind: type[Learner], options: Any, probe: int = 64) -> float:
    """Estimate how much memory an environment takes: from the state and the activations of a few of them."""
    alone = {"graph": False} if hasattr(options, "graph") else {}
    learner = kind(environment, replace(options, environments=probe, **alone))
    stored: dict[int, int] = {}

    def counted(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        stored[storage.data_ptr()] = max(storage.nbytes(), stored.get(storage.data_ptr(), 0))
        return x

    for _ in distributed.in_turn():
        learner.prepare()
    with torch.autograd.graph.saved_tensors_hooks(counted, lambda x: x):
        learner.iterate()
    return 4.0 * environment.bytes + sum(stored.values()) / probe


def _train(
    learner: Learner,
    folder: Path | None,
    resume: bool,
    every: int,
    tensorboard: bool,
    progress: bool,
    until: Callable[[Learner, dict[str, float]], bool] | None,
) -> Run:
    rank, header = distributed.rank(), _header(learner)
    seconds, steps, best, best_networks = 0.0, 0, math.nan, None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        if resume and (folder / LAST).is_file():
            seconds, steps, best = _resume(learner, folder / LAST)
            best_networks = load_checkpoint(folder / BEST)[0] if (folder / BEST).is_file() else None
    log = Log(folder, tensorboard, learner.iteration) if folder and rank == 0 else None
    rows = log.rows if log else []
    first, began, interrupted = learner.iteration, time.perf_counter() - seconds, False
    bar = Progress([(k, k + 1) for k in range(first, learner.options.iterations)], progress and rank == 0, "iterations")

    def write(path: Path, parts: list[dict[str, torch.Tensor]]) -> None:
        tensors = {f"{k}/{name}": x for k, part in enumerate(parts) for name, x in part.items()}
        save_checkpoint(path, tensors, {**header, "seconds": seconds, "steps": steps, "best": best})

    try:
        for iteration, _ in bar:
            if iteration == first:
                for _ in distributed.in_turn():
                    learner.prepare()
            steps += learner.steps_per_iteration * distributed.size()
            numbers = learner.iterate()
            seconds = time.perf_counter() - began
            row = {"iteration": float(iteration), "steps": float(steps), "seconds": seconds, **numbers}
            bar.note = f"return {row['return']:.4g}"
            log.add(row) if log else rows.append(row)
            if numbers["return"] > best or (math.isnan(best) and not math.isnan(numbers["return"])):
                best, best_networks = numbers["return"], {f"0/{k}": x.clone() for k, x in learner.networks().items()}
                if folder and rank == 0:
                    write(folder / BEST, [learner.networks()])
            done = until is not None and until(learner, row)
            if folder and ((iteration + 1) % every == 0 or iteration + 1 == learner.options.iterations or done):
                parts = distributed.gathered(learner.tensors())
                if rank == 0:
                    write(folder / LAST, parts)
            if done:
                break
    except KeyboardInterrupt:
        interrupted = True
    if log:
        log.close()
    if best_networks is not None:
        learner.load_networks(_part(best_networks, 0))
    return Run(learner, rows, best, interrupted)


def _resume(learner: Learner, path: Path) -> tuple[float, int, float]:
    """Continue from a checkpoint; with another number of processes, their environments begin anew."""
    tensors, saved = load_checkpoint(path)
    for what, mine in (("task", learner.environment.task.name), ("algorithm", learner.name)):
        if saved[what] != mine:
            raise InputError(
                f"this checkpoint is of the {what} {saved[what]!r}, not {mine!r}; choose another folder",
                where=Location(str(path)),
            )
    same = saved["processes"] == distributed.size()
    learner.load(_part(tensors, distributed.rank() if same else 0), environments=same)
    return saved["seconds"], saved["steps"], saved["best"]


def _part(tensors: Mapping[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    prefix = f"{rank}/"
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def _header(learner: Learner) -> dict[str, Any]:
    task = learner.environment.task
    return {
        "task": task.name,
        "algorithm": learner.name,
        "options": learner.option_values(),
        "processes": distributed.size(),
        "version": 1,
    }
