"""Tensors of a batch of problems of trajectory optimization."""

from collections.abc import Iterable
from typing import NamedTuple

import torch


class Problems(NamedTuple):
    """Tensors of a batch of problems, by name.

    Attributes:
        once: (batch, ...): the states to begin with, named tensors, "last_q", "last_v" and "cost" of a path, "mu", the
            regularization, and how the search stands.
        each: (steps, batch, ...): of a path the states before each step and the controls, and named tensors.
    """

    once: dict[str, torch.Tensor]
    each: dict[str, torch.Tensor]

    def some(self, rows: torch.Tensor) -> "Problems":
        """Some of them, as copies."""
        once = {name: x.index_select(0, rows) for name, x in self.once.items()}
        return Problems(once, {name: x.index_select(1, rows) for name, x in self.each.items()})

    def only(self, names: Iterable[str]) -> "Problems":
        """Some of the tensors; those that are in both are taken for each step."""
        each = {name: self.each[name] for name in names if name in self.each}
        return Problems({name: self.once[name] for name in names if name not in each}, each)

    def updated(self, others: "Problems") -> "Problems":
        """With other tensors of the same problems."""
        return Problems({**self.once, **others.once}, {**self.each, **others.each})

    def write(self, others: "Problems", rows: torch.Tensor) -> None:
        """Put the tensors of others into the places of some."""
        for name, x in others.once.items():
            self.once[name].index_copy_(0, rows, x)
        for name, x in others.each.items():
            self.each[name].index_copy_(1, rows, x)
