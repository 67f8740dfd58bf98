"""A processor that a map is compiled for."""

from collections.abc import Callable
from dataclasses import dataclass

from adjoin.compiler.codegen.map_access import Map
from adjoin.compiler.codegen.renderer import Rendered
from adjoin.compiler.codegen.writer import Lane
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.backend import Target


@dataclass(frozen=True, eq=False, repr=False)
class MapTarget:
    """A `Target` whose kernel is that of a map.

    Attributes:
        processor: which compiles it.
        map: whose kernel.
        renderer: writes the kernel of a map for a lane type.
    """

    processor: Target
    map: Map
    renderer: Callable[[Map, Lane], Rendered]

    def __repr__(self) -> str:
        return f"map {self.map.digest} for {self.processor!r}"

    @property
    def description(self) -> str:
        """Return what the processor is, for messages."""
        return self.processor.description

    def lanes(self, bits: int) -> tuple[Lane, ...]:
        """Return the widest lane type alone: sets have many members."""
        return (self.processor.lanes(bits)[-1],)

    def render(self, program: Program, lane: Lane) -> Rendered:
        """Return the kernel in LLVM IR."""
        return self.renderer(self.map, lane)

    def compile(self, rendered: Rendered) -> bytes:
        """Return machine code."""
        return self.processor.compile(rendered)
