"""Index tables of meshes, as kernels read them."""

from dataclasses import dataclass

import numpy as np
import torch

from adjoin.compiler.maps.plan import Binding, padded
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
        index = np.zeros((corners, length), np.int32)
        index[:, :members] = table.T
        keys = table.ravel()  # lanes in order, of each its corners
        order = np.argsort(keys, kind="stable")
        entries = (order % corners) * length + order // corners
        starts = np.full(padded(targets) + 1, len(keys), np.int64)
        starts[: targets + 1] = np.searchsorted(keys[order], np.arange(targets + 1))
        if length * corners >= 1 << 31:
            raise InputError(f"{name}: {members} members with {corners} corners are too many for 32-bit indices")
        parts = (index, starts.astype(np.int32), entries.astype(np.int32))
        return cls(*[torch.from_numpy(part.copy()).to(device) for part in parts])

    def bindings(self) -> dict[str, Binding]:
        """Return where each table lies, by the part of the connection that it is."""
        return {
            "index": Binding(self.index, column=self.index.shape[1]),
            "starts": Binding(self.starts),
            "entries": Binding(self.entries),
        }
