"""Index tables of meshes, as kernels read them."""

from dataclasses import dataclass

import numpy as np
import torch

from adjoin.compiler.runtime.map_plan import Binding, padded
from adjoin.errors import InputError


@dataclass(frozen=True, eq=False)
class IndexTable:
    """A connection whose indices are known before the run.

    Sums run over the entries of a member in the order of the lanes that name it, so they have the same bits whatever
    the number of threads.

    Attributes:
        index: (corners, padded members) of the set that has the indices.
        starts: for each member of the other set, where its entries begin.
        entries: corner * padded members + member, in the order in which they are added.
    """

    index: torch.Tensor
    starts: torch.Tensor
    entries: torch.Tensor

    @classmethod
    def of(cls, name: str, table: np.ndarray, targets: int, device: torch.device) -> "IndexTable":
        """Return the tables of an array (members, corners) of indices below `targets`."""
        table = np.asarray(table)
        outside = (table < 0) | (table >= targets)
        if outside.any():
            row, corner = np.argwhere(outside)[0]
            raise InputError(
                f"{name}: member {row} names {table[row, corner]} at corner {corner}, but there are {targets}, "
                f"0 to {targets - 1}"
            )
        members, corners = table.shape
        length = padded(members)
        if length * corners >= 1 << 31:
            raise InputError(f"{name}: {members} members with {corners} corners are too many for 32-bit indices")
        rows = torch.as_tensor(table, dtype=torch.int64, device=device)
        index = torch.zeros((corners, length), dtype=torch.int32, device=device)
        index[:, :members] = rows.T
        keys, order = torch.sort(rows.ravel(), stable=True)  # of each member, lanes in order
        entries = (order % corners) * length + order // corners
        bounds = torch.arange(targets + 1, device=device)
        starts = torch.full((padded(targets) + 1,), len(keys), dtype=torch.int32, device=device)
        starts[: targets + 1] = torch.searchsorted(keys, bounds).to(torch.int32)
        return cls(index, starts, entries.to(torch.int32))

    def bindings(self) -> dict[str, Binding]:
        """Return where each table lies, by the part of the connection that it is."""
        return {
            "index": Binding(self.index, column=self.index.shape[1]),
            "starts": Binding(self.starts),
            "entries": Binding(self.entries),
        }
