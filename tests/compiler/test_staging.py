"""How a warp moves rows through shared memory, worked out on paper: every thread's element, and the banks it meets."""

import collections
import re

import pytest

from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.ir.program import TensorSpec
from adjoin.compiler.runtime.cuda.staging import WARP, StagingMemory

OPERATIONS = {
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "udiv": lambda a, b: a // b,
    "and": lambda a, b: a & b,
}


class Threads(Writer):
    """Computes what it writes, for each of the threads of a warp."""

    def __init__(self, bits):
        super().__init__(Lane(bits, 1, True))
        self.values = {"%lane": list(range(WARP))}

    def emit(self, text):
        operation, a, b = re.fullmatch(r"(\w+) i32 (\S+), (\S+)", text).groups()
        return self._keep(OPERATIONS[operation], a, b)

    def intrinsic(self, name, result, *arguments):
        assert name == "llvm.umin.i32"
        return self._keep(min, *[operand for _, operand in arguments])

    def _keep(self, operation, a, b):
        left, right = (self.values.get(operand) or [int(operand)] * WARP for operand in (a, b))
        name = self.name()
        self.values[name] = [operation(x, y) for x, y in zip(left, right, strict=True)]
        return name


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("size", [*range(1, 41), 64, 65, 72, 324, 515])
def test_every_element_of_a_row_reaches_the_place_where_its_thread_looks(size, bits):
    writer = Threads(bits)
    memory = StagingMemory.__new__(StagingMemory)
    memory.writer, memory.lane_index = writer, "%lane"
    for start, count in [(0, size), *memory.chunks(TensorSpec("x", (size,)))]:
        for width in (1, 128 // bits):
            if size % width == count % width == 0:
                pattern = memory._pattern(size, start, count, width)
                own, outside, inside = (writer.values[x] for x in (pattern.mine, pattern.outside, pattern.inside))
                tile = {}
                for thread in range(WARP):
                    for far, near in pattern.moves:
                        for k in range(width):
                            moved = tile.setdefault(inside[thread] + near + k, outside[thread] + far + k)
                            assert moved == outside[thread] + far + k  # no two elements share a place
                for thread in range(WARP):
                    mine = [tile[own[thread] + column] for column in range(count)]
                    assert mine == [thread * size + start + column for column in range(count)]
                assert max(tile) < pattern.extent
                if width == 1 and bits == 32:
                    banks = collections.Counter(place % 32 for place in own)
                    assert max(banks.values()) == 1
