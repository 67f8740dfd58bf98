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
        self.capacity, self.first, self.count = capacity, 0, 0
        self._device = device
        self._data = {
            name: torch.empty((capacity, *shape), dtype=dtype, device=device) for name, shape in shapes.items()
        }

    def __len__(self) -> int:
        return self.count

    def add(self, row: Mapping[str, torch.Tensor]) -> None:
        """Add samples (n, ...); the oldest make room. More than there is room for leaves the last of them."""
        n = min(len(next(iter(row.values()))), self.capacity)
        index = (self.first + torch.arange(n, device=self._device)) % self.capacity
        for name, data in self._data.items():
            if name in row:
                data[index] = row[name][-n:]
            else:
                data[index] = 0.0
        self.first = (self.first + n) % self.capacity
        self.count = min(self.count + n, self.capacity)

    def sample(self, n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Draw n samples with replacement."""
        index = torch.randint(self.count, (n,), generator=generator, device=self._device)
        return {name: data[index] for name, data in self._data.items()}

    def all(self, name: str) -> torch.Tensor:
        """Return one tensor of all samples."""
        return self._data[name][: self.count]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything, for a checkpoint."""
        return {"place": torch.tensor([self.first, self.count]), **{k: x[: self.count] for k, x in self._data.items()}}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `tensors` returned."""
        self.first, self.count = tensors["place"].tolist()
        for name, data in self._data.items():
            data[: self.count] = tensors[name].to(data.device)
