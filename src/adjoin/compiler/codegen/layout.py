"""How a kernel reads and writes row-major tensors at about the cost of their bytes: what both ways share.

A tensor is (batch, n): the scalars of one environment lie side by side, but a kernel wants one scalar of many
environments. On a CPU, `rows.py` loads as many rows as a vector has lanes and transposes them in registers. On a GPU,
`staged.py` has a warp copy 32 rows through shared memory, so that neighboring threads touch neighboring addresses.

Lanes past the end of the batch read the last environment again: they compute what its own lane computes, and may
write it, so that no kernel needs a mask or a second version for the rest of a batch.
"""

from dataclasses import dataclass

from adjoin.compiler.ir.program import Program

WARP = 32


@dataclass(frozen=True)
class Layout:
    """Where the kernel's arguments lie: an array of 64-bit words.

    Three words a tensor (address, row stride, step stride, the strides in elements), then one word an integer, then
    the number of environments, then the address of the workspace.
    """

    tensors: int
    integers: tuple[str, ...]

    @classmethod
    def of(cls, program: Program) -> "Layout":
        """The layout of a program's arguments."""
        return cls(len(program.inputs) + len(program.outputs), program.integers)

    @property
    def words(self) -> int:
        """Length of the array."""
        return 3 * self.tensors + len(self.integers) + 2

    def integer(self, name: str) -> int:
        """Where a run-time integer lies."""
        return 3 * self.tensors + self.integers.index(name)

    @property
    def batch(self) -> int:
        """Where the number of environments lies."""
        return self.words - 2

    @property
    def workspace(self) -> int:
        """Where the address of the workspace lies."""
        return self.words - 1
