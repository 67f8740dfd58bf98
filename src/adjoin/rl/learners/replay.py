"""A memory of samples of bounded size."""

from collections.abc import Mapping

import torch


class Replay:
    """Keeps the latest samples, as tensors by name.

    Args:
        capacity: How many samples are kept.
        shapes: The shape of each of their tensors.
        dtype: The dtype of all.
        device: Where they are.
    """

    def __init__(self, capacity: int, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device):
        self.capacity = capacity
        # Where the next sample goes and how many there are; on the device, so that a CUDA graph may add and draw.
        self.place = torch.zeros(2, dtype=torch.int64, device=device)
        self._data = {
            name: torch.empty((capacity, *shape), dtype=dtype, device=device) for name, shape in shapes.items()
        }

    def __len__(self) -> int:
        return int(self.place[1])

    def add(self, row: Mapping[str, torch.Tensor]) -> None:
        """Add samples (n, ...); the oldest make room. More than there is room for leaves the last of them."""
        n = min(len(next(iter(row.values()))), self.capacity)
        index = (self.place[0] + torch.arange(n, device=self.place.device)) % self.capacity
        for name, data in self._data.items():
            if name in row:
                data[index] = row[name][-n:]
            else:
                data[index] = 0.0
        self.place[0].add_(n).remainder_(self.capacity)
        self.place[1].add_(n).clamp_(max=self.capacity)

    def sample(self, n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Draw n samples with replacement."""
        share = torch.rand(n, generator=generator, device=self.place.device, dtype=torch.float64)
        index = (share * self.place[1]).long()
        return {name: data[index] for name, data in self._data.items()}

    def all(self, name: str) -> torch.Tensor:
        """Return one tensor of all samples."""
        return self._data[name][: len(self)]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything, for a checkpoint."""
        return {"place": self.place, **{k: x[: len(self)] for k, x in self._data.items()}}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `tensors` returned."""
        self.place.copy_(tensors["place"])
        for name, data in self._data.items():
            data[: len(self)] = tensors[name].to(data.device)
