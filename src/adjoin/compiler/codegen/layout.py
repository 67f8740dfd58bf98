"""Where the arguments of a kernel lie."""

from dataclasses import dataclass

from adjoin.compiler.ir.program import Program


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
        """Return the layout of a program's arguments."""
        return cls(len(program.inputs) + len(program.outputs), program.integers)

    @property
    def words(self) -> int:
        """Return the length of the array."""
        return 3 * self.tensors + len(self.integers) + 2

    def integer(self, name: str) -> int:
        """Return where a run-time integer lies."""
        return 3 * self.tensors + self.integers.index(name)

    @property
    def batch(self) -> int:
        """Return where the number of environments lies."""
        return self.words - 2

    @property
    def workspace(self) -> int:
        """Return where the address of the workspace lies."""
        return self.words - 1
