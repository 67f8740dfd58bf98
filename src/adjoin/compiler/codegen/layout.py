"""Where the arguments of a kernel lie."""

from dataclasses import dataclass

from adjoin.compiler.ir.program import Program


@dataclass(frozen=True)
class Layout:
    """Where the kernel's arguments lie: an array of 64-bit words.

    What differs from call to call comes first: one word a tensor, its address, then the address of the workspace. What
    the shapes decide follows: two words a tensor, its row stride and step stride in elements, then one word an integer,
    then the number of environments.
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

    def address(self, tensor: int) -> int:
        """Return where the address of a tensor lies."""
        return tensor

    @property
    def workspace(self) -> int:
        """Return where the address of the workspace lies."""
        return self.tensors

    def row_stride(self, tensor: int) -> int:
        """Return where the distance of a tensor's rows lies."""
        return self.tensors + 1 + 2 * tensor

    def step_stride(self, tensor: int) -> int:
        """Return where the distance of a stream's steps lies."""
        return self.tensors + 2 + 2 * tensor

    def integer(self, name: str) -> int:
        """Return where a run-time integer lies."""
        return 3 * self.tensors + 1 + self.integers.index(name)

    @property
    def batch(self) -> int:
        """Return where the number of environments lies."""
        return self.words - 1
