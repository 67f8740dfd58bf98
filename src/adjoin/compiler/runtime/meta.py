"""The backend of torch's meta device, where tensors have shapes and no numbers: launching does nothing."""

from collections.abc import Sequence
from typing import Any

import torch

from adjoin.compiler.ir.program import Program


class MetaKernel:
    """A program that is never run."""

    def partial_sums(self, batch: int) -> int:
        """Return one row."""
        return 1

    def launch(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> None:
        """Leave the outputs as they are."""

    def prepare(self, *_: Any) -> None:
        """Return None: launches take no addresses here."""


def executable(program: Program, bits: int, device: torch.device) -> MetaKernel:
    """See `adjoin.compiler.runtime.backend.Backend`."""
    return MetaKernel()


def target(name: str) -> None:
    """Return None: nothing is compiled here."""
