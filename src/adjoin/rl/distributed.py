"""Several processes that learn together: what they add up, average and share. One process alone changes nothing."""

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from adjoin.errors import InputError
from adjoin.rl.shared_sum import SharedSum, on_one_machine

T = TypeVar("T")

_shared: SharedSum | None = None
"""Sums over processes that are all on this machine and work on its CPU."""


def active() -> bool:
    """Return whether several processes learn together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if active() else 0


def size() -> int:
    """Return how many processes there are."""
    return dist.get_world_size() if active() else 1


def total(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of a tensor over all processes."""
    if not active():
        return x
    if _shared is not None and _shared.fits(x):
        return _shared(x)
    x = x.clone()
    dist.all_reduce(x)
    return x


def mean(x: torch.Tensor) -> torch.Tensor:
    """Return the mean of a tensor over all processes."""
    return total(x) / size() if active() else x


def average_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace the gradients of parameters by their means over all processes, in one message."""
    if not active():
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = mean(torch.cat([g.reshape(-1) for g in gradients]))
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def gathered(value: T) -> list[T]:
    """Return the values of all processes to the first one; the others get their own alone."""
    if not active():
        return [value]
    values: list[Any] = [None] * size()
    dist.gather_object(value, values if rank() == 0 else None)
    return values if rank() == 0 else [value]


def device_of(wanted: str | torch.device | None) -> torch.device:
    """Return the device of this process: by default its own GPU if there is one, otherwise the CPU."""
    if wanted is not None:
        try:
            device = torch.device(wanted)
        except (RuntimeError, TypeError):
            raise InputError(f"no device {wanted!r}; devices: cpu, cuda, cuda:1 and so on") from None
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(f"device {str(wanted)!r}: torch sees {torch.cuda.device_count()} GPUs here")
        return device
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the other processes of `torchrun` inside the block: by NCCL on GPUs, by Gloo on CPUs."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Its functions take the group there is at import as a default. Imported later, they keep the group and its threads
    # after it is destroyed, and Python aborts if one of these frees a tensor while it ends.
    importlib.import_module("torch.distributed.nn.functional")
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(iter(rendezvous("env://")))
    # Workers that `torchrun` started again find the addresses of the killed ones in its store; these are not theirs.
    store = PrefixStore(f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=size)
    global _shared
    try:
        if device.type == "cpu" and on_one_machine():
            _shared = SharedSum(store)
        yield
    finally:
        _shared = None
        dist.destroy_process_group()


def in_turn() -> Iterator[bool]:
    """Let the first process of each machine go before the others, so that they load what it compiled.

    The loop body runs once in every process: `for first in in_turn(): ...`.
    """
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    if active() and not first:
        dist.barrier()
    yield first
    if active() and first:
        dist.barrier()


def worker() -> int:
    """Return the number that `torchrun` gave to this process, also after the processes have parted."""
    return int(os.environ.get("RANK", "0"))
