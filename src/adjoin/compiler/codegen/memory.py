"""How a kernel reads and writes tensors: what every backend's way of it offers the renderer.

A tensor is (batch, n): the scalars of one environment lie side by side, but a kernel wants one scalar of many
environments. A backend's memory turns the one into the other at about the cost of the bytes: a CPU loads as many rows
as a vector has lanes and transposes them in registers, a GPU has a warp copy rows through shared memory, so that
neighboring threads touch neighboring addresses.

Lanes past the end of the batch read the last environment again: they compute what its own lane computes, and may
write it, so that no kernel needs a mask or a second version for the rest of a batch.
"""

from typing import Protocol

from adjoin.compiler.ir.program import TensorSpec


class Memory(Protocol):
    """Writes the code that moves rows of tensors. `tensor` is the position of a tensor, inputs before outputs."""

    def load(self, tensor: int, spec: TensorSpec, columns: set[int], step: str | None) -> dict[int, str]:
        """Return the given columns of an input, and maybe others that come along, one operand a column.

        Args:
            tensor: which.
            spec: what it is.
            columns: positions in a row.
            step: of a stream, the operand (i64) that says which element.
        """
        ...

    def store(self, tensor: int, spec: TensorSpec, start: int, values: list[str], step: str | None) -> None:
        """Write one chunk of the rows of an output, or of its sum over the batch, beginning with a column."""
        ...

    def look_up(self, tensor: int, spec: TensorSpec, index: str, uniform: bool) -> str:
        """Return one number of a table; `index` is an i32, one for each lane unless it is uniform."""
        ...

    def chunks(self, spec: TensorSpec) -> list[tuple[int, int]]:
        """Return the pieces in which rows are written: first column and count of each. They may overlap."""
        ...

    def loads_at_start(self, tensor: int, spec: TensorSpec) -> bool:
        """Return whether an input is best read at the start of the kernel, rather than when first used."""
        ...

    def can_reload(self, tensor: int) -> bool:
        """Return whether an input stays at hand, so that its values need not be spilled."""
        ...
