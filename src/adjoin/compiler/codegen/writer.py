"""A writer of LLVM IR text for one lane type: a scalar, or a SIMD vector with one environment a lane.

Every method appends an instruction and returns the operand that names its result. Nothing here knows of graphs;
`elementary.py` writes sin, exp, ... with it and `renderer.py` whole kernels. No fast-math flag is ever set and a fused
multiply-add is asked for by name, so a lane's bits do not depend on the width of the vector it runs in.
"""

import struct
from dataclasses import dataclass

from adjoin.compiler.ir.kinds import BOOL, FLOAT, INT


@dataclass(frozen=True)
class Lane:
    """The type one traced scalar has in a kernel.

    Attributes:
        bits: 32 or 64, the float format.
        width: environments a vector; 1 renders plain scalars.
        fma: the target has a fused multiply-add instruction. Without one LLVM would call libm.
    """

    bits: int
    width: int
    fma: bool

    def vector(self, scalar: str) -> str:
        """Return the LLVM type of `width` elements of type `scalar`."""
        return scalar if self.width == 1 else f"<{self.width} x {scalar}>"

    @property
    def scalar(self) -> str:
        """Return the LLVM type of one element, `float` or `double`."""
        return "float" if self.bits == 32 else "double"

    @property
    def float(self) -> str:
        """Return the LLVM type of a value."""
        return self.vector(self.scalar)

    @property
    def int(self) -> str:
        """Return the LLVM type of an integer of the same size, lane by lane."""
        return self.vector(f"i{self.bits}")

    @property
    def bool(self) -> str:
        """Return the LLVM type of a comparison."""
        return self.vector("i1")

    def type_of(self, kind: str) -> str:
        """Return the LLVM type of a value of a graph that differs between lanes."""
        return {FLOAT: self.float, BOOL: self.bool, INT: self.vector("i32")}[kind]

    @property
    def suffix(self) -> str:
        """Return the suffix of overloaded intrinsics: f32, v16f32, ..."""
        return f"f{self.bits}" if self.width == 1 else f"v{self.width}f{self.bits}"


def float_literal(value: float, bits: int) -> str:
    """Return the exact LLVM spelling of a constant, rounded to the format first."""
    if bits == 32:
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Writer:
    """Appends IR for one function body and hands out fresh names."""

    def __init__(self, lane: Lane):
        self.lane = lane
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.block = "entry"
        self._count = 0

    def name(self) -> str:
        """Return a fresh local name."""
        self._count += 1
        return f"%t{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction without a result, or a label."""
        self.lines.append(text)

    def label(self, name: str) -> None:
        """Begin a basic block."""
        self.block = name
        self.lines.append(f"{name}:")

    def emit(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def intrinsic(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an LLVM intrinsic; each argument is (type, operand)."""
        self.declarations.add(f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})")
        return self.emit(f"call {result} @{name}({', '.join(f'{kind} {operand}' for kind, operand in arguments)})")

    def splat(self, scalar: str, literal: str) -> str:
        """Return a constant operand equal in every lane."""
        return literal if self.lane.width == 1 else f"splat ({scalar} {literal})"

    def any_lane(self, condition: str) -> str:
        """Return whether a condition holds in any lane, as an i1."""
        if self.lane.width == 1:
            return condition
        name = f"llvm.vector.reduce.or.v{self.lane.width}i1"
        return self.intrinsic(name, "i1", (self.lane.bool, condition))

    # Floats -----------------------------------------------------------------------------------------------------

    def const(self, value: float) -> str:
        """Return a float constant."""
        return self.splat(self.lane.scalar, float_literal(value, self.lane.bits))

    def add(self, a: str, b: str) -> str:
        """Write a + b."""
        return self.emit(f"fadd {self.lane.float} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        """Write a - b."""
        return self.emit(f"fsub {self.lane.float} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        """Write a * b."""
        return self.emit(f"fmul {self.lane.float} {a}, {b}")

    def div(self, a: str, b: str) -> str:
        """Write a / b."""
        return self.emit(f"fdiv {self.lane.float} {a}, {b}")

    def neg(self, a: str) -> str:
        """Write -a."""
        return self.emit(f"fneg {self.lane.float} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """Write a * b + c, rounded once where the target can, twice where it cannot."""
        if not self.lane.fma:
            return self.add(self.mul(a, b), c)
        kind = self.lane.float
        return self.intrinsic(f"llvm.fma.{self.lane.suffix}", kind, (kind, a), (kind, b), (kind, c))

    def unary(self, intrinsic: str, a: str) -> str:
        """Write an intrinsic of one float, such as sqrt or fabs."""
        return self.intrinsic(f"llvm.{intrinsic}.{self.lane.suffix}", self.lane.float, (self.lane.float, a))

    def sqrt(self, a: str) -> str:
        """Write the square root, correctly rounded."""
        return self.unary("sqrt", a)

    def abs(self, a: str) -> str:
        """Write |a|."""
        return self.unary("fabs", a)

    def copysign(self, magnitude: str, sign: str) -> str:
        """Return the magnitude of one value with the sign bit of another."""
        kind = self.lane.float
        return self.intrinsic(f"llvm.copysign.{self.lane.suffix}", kind, (kind, magnitude), (kind, sign))

    # Conditions: comparisons are false where an operand is NaN, but for `ne` --------------------------------------

    def lt(self, a: str, b: str) -> str:
        """Write a < b."""
        return self.emit(f"fcmp olt {self.lane.float} {a}, {b}")

    def le(self, a: str, b: str) -> str:
        """Write a <= b."""
        return self.emit(f"fcmp ole {self.lane.float} {a}, {b}")

    def eq(self, a: str, b: str) -> str:
        """Write a == b."""
        return self.emit(f"fcmp oeq {self.lane.float} {a}, {b}")

    def ne(self, a: str, b: str) -> str:
        """Write a != b."""
        return self.emit(f"fcmp une {self.lane.float} {a}, {b}")

    def logical_and(self, a: str, b: str) -> str:
        """Return whether both conditions hold."""
        return self.emit(f"and {self.lane.bool} {a}, {b}")

    def logical_or(self, a: str, b: str) -> str:
        """Return whether one of two conditions holds."""
        return self.emit(f"or {self.lane.bool} {a}, {b}")

    def logical_not(self, a: str) -> str:
        """Return whether a condition does not hold."""
        return self.emit(f"xor {self.lane.bool} {a}, {self.splat('i1', 'true')}")

    def spread(self, operand: str, scalar: str = "i32") -> str:
        """Return one value in every lane."""
        width = self.lane.width
        if width == 1:
            return operand
        kind = self.lane.vector(scalar)
        single = self.emit(f"insertelement {kind} poison, {scalar} {operand}, i64 0")
        return self.emit(f"shufflevector {kind} {single}, {kind} poison, <{width} x i32> zeroinitializer")

    def select(self, condition: str, a: str, b: str, kind: str = FLOAT) -> str:
        """Take a where the condition holds, else b; both are floats, or of the kind given."""
        llvm = self.lane.type_of(kind)
        return self.emit(f"select {self.lane.bool} {condition}, {llvm} {a}, {llvm} {b}")

    # Integers of the float's size, for exponents and bits -------------------------------------------------------

    def iconst(self, value: int) -> str:
        """Return an integer constant."""
        return self.splat(f"i{self.lane.bits}", str(value))

    def integer(self, operation: str, a: str, b: str) -> str:
        """Write one of add, sub, mul, and, or, xor, shl, lshr or ashr on integers."""
        return self.emit(f"{operation} {self.lane.int} {a}, {b}")

    def icompare(self, relation: str, a: str, b: str) -> str:
        """Compare integers; relation is eq, ne, slt, sle, sgt, sge, ult, ..."""
        return self.emit(f"icmp {relation} {self.lane.int} {a}, {b}")

    def iselect(self, condition: str, a: str, b: str) -> str:
        """Take integer a where the condition holds, else b."""
        kind = self.lane.int
        return self.emit(f"select {self.lane.bool} {condition}, {kind} {a}, {kind} {b}")

    def to_bits(self, a: str) -> str:
        """Return the bits of a float as an integer."""
        return self.emit(f"bitcast {self.lane.float} {a} to {self.lane.int}")

    def from_bits(self, a: str) -> str:
        """Return the float that has these bits."""
        return self.emit(f"bitcast {self.lane.int} {a} to {self.lane.float}")

    def to_float(self, a: str) -> str:
        """Return an integer as a float."""
        return self.emit(f"sitofp {self.lane.int} {a} to {self.lane.float}")
