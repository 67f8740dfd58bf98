"""sin, exp, log, ... as plain lane instructions: no branch, no table look-up, no call of a math library.

Each function takes operands of a `Writer` and returns operands. At most one division or square root a function; the
rest is multiplications, additions, comparisons and bit operations, so that a vector runs it in all lanes at once and a
lane's bits do not depend on the width. Without a fused multiply-add the same lines run with two roundings; constants
are cut so that the products which must be exact still are.

The polynomials are minimax fits of relative error, made for this file: Remez exchange, each coefficient rounded before
the rest is fitted again. NaN gives NaN, and signed zeros, infinities and subnormals are those of C99. "At most" in a
docstring is the largest error met in units in the last place (ulp), as f32 / f64, of about 10^8 and 10^5 arguments
against numpy in f64 and mpmath, fused or not; `tests/compiler/test_elementary.py` holds them to it.
"""

import math
import struct
from fractions import Fraction

from adjoin.compiler.codegen.writer import Writer

_HALF_PI = Fraction("1.570796326794896619231321691639751442098584699687552910487472296153908")
_LN2 = Fraction("0.69314718055994530941723212145817656807550013436026")

_MANTISSA = {32: 23, 64: 52}
_BIAS = {32: 127, 64: 1023}

# Coefficients by float format, lowest power first.
# fmt: off
_SIN = {  # sin(r) = r + r z P(z), z = r², |r| <= π/4
    32: (-0.166666538, 0.00833210535, -0.000195076573),
    64: (-0.16666666666666627, 0.00833333333332107, -0.0001984126982870063, 2.755731329965544e-06,
         -2.5050695665758377e-08, 1.5893124926203436e-10),
}
_COS = {  # cos(r) = P(z)
    32: (1.0, -0.5, 0.0416666456, -0.00138872978, 2.44300882e-05),
    64: (1.0, -0.5, 0.04166666666666658, -0.001388888888887097, 2.4801587287527944e-05, -2.755731379156071e-07,
         2.087564749020563e-09, -1.1355744081220329e-11),
}
_TAN = {  # tan(r) = r + r z P(z), |r| <= π/4
    32: (0.333333522, 0.133325711, 0.0540709645, 0.0212227441, 0.0109950844, -0.000118075812, 0.00448118011),
    64: (0.333333333333334, 0.13333333333322758, 0.05396825397430228, 0.021869488361163508, 0.008863238536942928,
         0.003592094482167317, 0.0014560910157711076, 0.0005886369007387673, 0.00024456798452666116,
         8.145099828489571e-05, 7.109860038291487e-05, -3.0588713282206214e-05, 5.2815889724254045e-05,
         -2.6365408604065855e-05, 1.0268936421934671e-05),
}
_ASIN = {  # asin(s) = s + s z P(z), |s| <= 1/2
    32: (0.166667521, 0.0749530941, 0.045469135, 0.0241849385, 0.0421579033),
    64: (0.1666666666666676, 0.07499999999970863, 0.04464285717456522, 0.030381942709617638, 0.022372214943574456,
         0.01735161270758347, 0.01398081311531213, 0.011398967280384836, 0.010779970730100584, 0.0037073897054550583,
         0.02170523628884184, -0.020996149992287435, 0.032626920886099364),
}
_ATAN = {  # atan(q) = q + q z P(z), |q| <= 1; f32: the last but one is 6 ulp off its fit, so that atan 1 is right
    32: (-0.333332986, 0.199985296, -0.142640442, 0.109513022, -0.0840162635, 0.0579439476, -0.0311852116, 0.0109310159,
         -0.00180021243),
    64: (-0.3333333333333307, 0.19999999999951756, -0.14285714282588574, 0.11111111007356735, -0.0909090700805487,
         0.07692279891782815, -0.06666404445399138, 0.05880529929751438, -0.05253527277344382, 0.04722349888712335,
         -0.04219247163111898, 0.036643224505740986, -0.02990583598959062, 0.02198716904036152, -0.013902645705111452,
         0.007197919055715421, -0.002885618860528831, 0.0008315599945295261, -0.00015221060603391138,
         1.3229885134209829e-05),
}
_EXP = {  # exp(r) = 1 + r + r² P(r), |r| <= ln(2)/2
    32: (0.49999994, 0.166665122, 0.0416680425, 0.00836968049, 0.00138444779),
    64: (0.5000000000000011, 0.166666666666664, 0.04166666666652487, 0.00833333333350101, 0.0013888888945231812,
         0.00019841269496945546, 2.4801491258841222e-05, 2.7557590993812045e-06, 2.763096008647125e-07,
         2.499983685941685e-08),
}
_LOG = {  # 2 atanh(s) = 2s - s z P(z), |s| <= 3 - √8
    32: (-0.666667759, -0.399775714, -0.298713773),
    64: (-0.6666666666666735, -0.39999999999409175, -0.2857142874376728, -0.22222198416416894, -0.1818357322561598,
         -0.15313804485220495, -0.14798587873471075),
}
_TANH = {  # tanh(a) = a + a z P(z), |a| <= 0.65
    32: (-0.333332598, 0.133308291, -0.0536879078, 0.0204690192, -0.00551470043),
    64: (-0.33333333333333287, 0.1333333333332569, -0.053968253963885465, 0.021869488411200386, -0.008863233434040484,
         0.003592105600823494, -0.0014556735329937344, 0.0005892348976963661, -0.00023642155496037844,
         9.054364816793507e-05, -2.9187743419225292e-05, 5.612789073655723e-06),
}
# fmt: on


def _split(value: Fraction, *sizes: int) -> list[float]:
    """Cut a positive constant into positive floats of so many significant bits each, that sum to it."""
    pieces = []
    for size in sizes:
        unit = Fraction(2) ** (math.frexp(value)[1] - size)
        pieces.append(float(value // unit * unit))
        value -= Fraction(pieces[-1])
    return pieces


# π/2 by (bits, fma). All but the last piece times a count of quarter turns has to be exact for |x| <= 1e4: 13 bits are
# left free. Only the first, which a fused step takes from an x close by, may be full. No piece is negative, so that -0
# minus zero pieces stays -0.
_QUARTER_TURN = {
    (32, True): _split(_HALF_PI, 24, 11, 24),
    (64, True): _split(_HALF_PI, 53, 40, 53),
    (32, False): _split(_HALF_PI, 11, 11, 11, 24),
    (64, False): _split(_HALF_PI, 40, 40, 53),
}
# π/2 as a float and what it misses, relative: one fused step adds the missing part of 0, π/2 or π.
_HALF_PI_HEAD = {32: round(_HALF_PI * 2**23) / 2**23, 64: float(_HALF_PI)}
_HALF_PI_MISSING = {bits: float(_HALF_PI / Fraction(head) - 1) for bits, head in _HALF_PI_HEAD.items()}
# The first piece times any binary exponent is exact.
_LN2_PIECES = {32: _split(_LN2, 16, 24), 64: _split(_LN2, 42, 53)}
_ROOT_HALF_BITS = {
    32: struct.unpack("<i", struct.pack("<f", math.sqrt(0.5)))[0],
    64: struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))[0],
}


def _horner(w: Writer, table: dict[int, tuple[float, ...]], z: str) -> str:
    *coefficients, value = (w.const(c) for c in table[w.lane.bits])
    for coefficient in reversed(coefficients):
        value = w.fma(value, z, coefficient)
    return value


def _at_most(w: Writer, x: str, bound: float) -> str:
    """Return the smaller of the two; NaN stays NaN."""
    return w.select(w.lt(w.const(bound), x), w.const(bound), x)


def _is_odd(w: Writer, k: str) -> str:
    return w.icompare("ne", w.integer("and", k, w.iconst(1)), w.iconst(0))


def _sign_bit(w: Writer) -> str:
    return w.iconst(-1 << (w.lane.bits - 1))


def _second_bit_as_sign(w: Writer, k: str) -> str:
    return w.integer("and", w.integer("shl", k, w.iconst(w.lane.bits - 2)), _sign_bit(w))


def _flip(w: Writer, x: str, sign: str) -> str:
    """Negate x where the sign bit of an integer is set; its other bits are zero."""
    return w.from_bits(w.integer("xor", w.to_bits(x), sign))


def _nearest(w: Writer, x: str, scale: float, offset: int = 0) -> tuple[str, str]:
    """n, the integer nearest to x scale, as (integer whose low bits hold n + offset, float n).

    Adding 1.5 · 2^mantissa leaves no bits for a fraction: the sum itself rounds, and its bits count in units.
    """
    magic = w.const(1.5 * 2.0 ** _MANTISSA[w.lane.bits] + offset)
    shifted = w.fma(x, w.const(scale), magic)
    return w.to_bits(shifted), w.sub(shifted, magic)


def _reduce(w: Writer, x: str) -> tuple[str, str, str]:
    """Reduce x to a count of quarter turns and a remainder r + tail: (integer with the count in its low bits, r, tail).

    |r| <= π/4, give or take the error of the count; tail is the rounding error of r. Exact enough for |x| <= 1e4. From
    there to 2^21 (f64: 2^50) the rest has an absolute error: fused, 3e-6 at 2e6 (f64: 1e-16 at 1e9); not fused, that
    of rounding x. Beyond, a float hardly tells quarter turns apart and the angle is taken as zero.
    """
    limit = w.const(2.0 ** (_MANTISSA[w.lane.bits] - 2))
    x = w.select(w.lt(w.abs(x), limit), x, w.sub(x, x))
    quadrant, n = _nearest(w, x, float(1 / _HALF_PI))
    *exact, cut, last = (w.const(-piece) for piece in _QUARTER_TURN[w.lane.bits, w.lane.fma])
    before = x
    for piece in exact:
        before = w.fma(n, piece, before)
    r = w.fma(n, cut, before)
    tail = w.fma(n, last, w.fma(n, cut, w.sub(before, r)))
    return quadrant, r, tail


def sincos(w: Writer, x: str) -> tuple[str, str]:
    """Write the sine and cosine of x.

    The nearest multiple of π/2 is taken off, then a polynomial for each, of degree 7 and 8 (f64: 13 and 14), and the
    two are swapped and negated by quadrant. At most 1.4 / 1.1 ulp for |x| <= 1e4, not fused 1.6 / 1.4; always within
    [-1, 1].
    """
    quadrant, r, tail = _reduce(w, x)
    z = w.mul(r, r)
    # The sum would lose the sign of r = -0.
    s = w.copysign(w.add(r, w.fma(w.mul(r, z), _horner(w, _SIN, z), tail)), r)
    c = _horner(w, _COS, z)
    odd = _is_odd(w, quadrant)
    next_quadrant = w.integer("add", quadrant, w.iconst(1))
    return (
        _flip(w, w.select(odd, c, s), _second_bit_as_sign(w, quadrant)),
        _flip(w, w.select(odd, s, c), _second_bit_as_sign(w, next_quadrant)),
    )


def tan(w: Writer, x: str) -> str:
    """Write the tangent of x.

    The reduction of `sincos`, degree 15 (f64: 31), and in odd quadrants -1/tan from the sum and its rounding error.
    At most 1.4 / 1.2 ulp for |x| <= 1e4.
    """
    quadrant, r, tail = _reduce(w, x)
    z = w.mul(r, r)
    remainder = w.mul(w.mul(r, z), _horner(w, _TAN, z))
    estimate = w.add(r, remainder)
    remainder = w.fma(tail, w.fma(estimate, estimate, w.const(1.0)), remainder)
    t = w.add(r, remainder)
    error = w.add(w.sub(r, t), remainder)
    inverse = w.div(w.const(-1.0), t)
    cotangent = w.fma(w.mul(inverse, inverse), error, inverse)
    return w.select(_is_odd(w, quadrant), cotangent, w.copysign(t, r))


def _arc_root(w: Writer, x: str) -> tuple[str, str, str]:
    """Return (whether |x| > 1/2, z, 2√z): there asin|x| = π/2 - 2 asin √z with z = (1 - |x|)/2; elsewhere z = x²."""
    magnitude = w.abs(x)
    outer = w.lt(w.const(0.5), magnitude)
    z = w.select(outer, w.fma(magnitude, w.const(-0.5), w.const(0.5)), w.mul(x, x))
    return outer, z, w.mul(w.sqrt(z), w.const(2.0))


def _arc_rest(w: Writer, table: dict[int, tuple[float, ...]], s: str, z: str, base: str) -> str:
    """Write what base + s lacks: higher terms of an odd polynomial in s, and digits of 0, π/2 or π past the float."""
    return w.fma(base, w.const(_HALF_PI_MISSING[w.lane.bits]), w.mul(w.mul(s, z), _horner(w, table, z)))


def asin(w: Writer, x: str) -> str:
    """Write the arc sine of x, NaN outside [-1, 1].

    Degree 11 (f64: 27) on |x| <= 1/2; beyond, π/2 - 2 asin √((1 - |x|)/2) with the same polynomial. At most 1.2 / 1.1
    ulp.
    """
    outer, z, root = _arc_root(w, x)
    base = w.select(outer, w.const(_HALF_PI_HEAD[w.lane.bits]), w.const(0.0))
    s = w.select(outer, w.neg(root), w.abs(x))
    remainder = _arc_rest(w, _ASIN, s, z, base)
    # Where the result ends just below 1 this sum is above and rounds twice as coarsely: its error is added again.
    total = w.add(base, s)
    error = w.add(w.sub(base, total), s)
    return w.copysign(w.add(total, w.add(error, remainder)), x)


def acos(w: Writer, x: str) -> str:
    """Write the arc cosine of x, NaN outside [-1, 1].

    The reduction and polynomial of `asin`, put together so that nothing cancels near x = 1. At most 1.2 / 1.1 ulp.
    """
    outer, z, root = _arc_root(w, x)
    half_pi = _HALF_PI_HEAD[w.lane.bits]
    end = w.select(w.lt(x, w.const(0.0)), w.const(2.0 * half_pi), w.const(0.0))
    base = w.select(outer, end, w.const(half_pi))
    s = w.select(outer, w.copysign(root, x), w.neg(x))
    remainder = _arc_rest(w, _ASIN, s, z, base)
    return w.add(base, w.add(s, remainder))


def atan2(w: Writer, y: str, x: str) -> str:
    """Write the angle of the point (x, y), with the signed zeros and infinities of C99.

    Smaller over larger magnitude, degree 19 (f64: 41) on [0, 1], then the octant. At most 1.6 / 1.4 ulp, of which
    rounding the quotient is 1.
    """
    a, b = w.abs(y), w.abs(x)
    steep = w.lt(b, a)
    smaller, larger = w.select(steep, b, a), w.select(steep, a, b)
    # Equal magnitudes may be 0/0, which is to give 0, or inf/inf, which is to give 1.
    tie = w.select(w.eq(larger, w.const(0.0)), w.const(0.0), w.const(1.0))
    q = w.select(w.eq(smaller, larger), tie, w.div(smaller, larger))
    x_sign = w.integer("and", w.to_bits(x), _sign_bit(w))
    q = _flip(w, q, w.integer("xor", x_sign, w.iselect(steep, _sign_bit(w), w.iconst(0))))
    half_pi = _HALF_PI_HEAD[w.lane.bits]
    left = w.icompare("ne", x_sign, w.iconst(0))
    base = w.select(left, w.const(2.0 * half_pi), w.const(0.0))
    base = w.select(steep, w.const(half_pi), base)
    remainder = _arc_rest(w, _ATAN, q, w.mul(q, q), base)
    return w.copysign(w.add(base, w.add(q, remainder)), y)


def _expm1_reduced(w: Writer, x: str, offset: int) -> tuple[str, str]:
    """Return (integer whose low bits hold n + offset, e^r - 1) with x = n ln 2 + r, |r| <= ln(2)/2."""
    k, n = _nearest(w, x, float(1 / _LN2), offset)
    r = x
    for piece in _LN2_PIECES[w.lane.bits]:
        r = w.fma(n, w.const(-piece), r)
    return k, w.fma(w.mul(r, r), _horner(w, _EXP, r), r)


def _power(w: Writer, exponent: str) -> str:
    """Write 2^(k - bias) for a biased exponent k in the low bits of an integer."""
    return w.from_bits(w.integer("shl", exponent, w.iconst(_MANTISSA[w.lane.bits])))


def exp(w: Writer, x: str) -> str:
    """Write e^x, with gradual underflow.

    The nearest multiple of ln 2 is taken off, degree 6 (f64: 11), then two powers of two, since one cannot reach a
    subnormal. At most 1.1 / 1.0 ulp.
    """
    # At these bounds the result already rounds to 0 and overflows; past them the exponent would wrap.
    low, high = (-104.0, 89.0) if w.lane.bits == 32 else (-746.0, 710.0)
    x = _at_most(w, x, high)
    x = w.select(w.lt(x, w.const(low)), w.const(low), x)
    k, p = _expm1_reduced(w, x, 2 * _BIAS[w.lane.bits])
    half = w.integer("lshr", k, w.iconst(1))
    y = w.mul(w.add(p, w.const(1.0)), _power(w, half))
    return w.mul(y, _power(w, w.integer("sub", k, half)))


def log(w: Writer, x: str) -> str:
    """Write the natural logarithm of x, subnormals included.

    x = 2^e m with m in [√½, √2) and log m = 2 atanh s, s = (m - 1)/(m + 1), of degree 7 (f64: 15). At most 1.0 / 0.9
    ulp.
    """
    mantissa, bias = _MANTISSA[w.lane.bits], _BIAS[w.lane.bits]
    lift = mantissa + 1
    subnormal = w.lt(x, w.const(2.0 ** (1 - bias)))
    lifted = w.select(subnormal, w.mul(x, w.const(2.0**lift)), x)
    # Shifting the origin of the bits from 1 to √½ puts the exponent wanted in the exponent field.
    one, root = bias << mantissa, _ROOT_HALF_BITS[w.lane.bits]
    shifted = w.integer("add", w.to_bits(lifted), w.iconst(one - root))
    field = w.integer("lshr", shifted, w.iconst(mantissa))
    unit = w.iconst((bias + mantissa) << mantissa)
    zero = 2.0**mantissa + bias
    e = w.sub(w.from_bits(w.integer("or", field, unit)), w.select(subnormal, w.const(zero + lift), w.const(zero)))
    m = w.integer("add", w.integer("and", shifted, w.iconst((1 << mantissa) - 1)), w.iconst(root))
    f = w.sub(w.from_bits(m), w.const(1.0))
    s = w.div(f, w.add(f, w.const(2.0)))
    z = w.mul(s, s)
    # log m = f - s (f + z P): f is exact, so only the small second term carries the error of the division.
    head, tail = _LN2_PIECES[w.lane.bits]
    small = w.fma(s, w.fma(z, _horner(w, _LOG, z), f), w.mul(e, w.const(-tail)))
    y = w.fma(e, w.const(head), w.sub(f, small))
    y = w.select(w.lt(x, w.const(math.inf)), y, x)
    y = w.select(w.lt(x, w.const(0.0)), w.const(math.nan), y)
    return w.select(w.eq(x, w.const(0.0)), w.const(-math.inf), y)


def tanh(w: Writer, x: str) -> str:
    """Write the hyperbolic tangent of x.

    Degree 11 (f64: 25) below 0.65; beyond, 1 - 2/(e^2|x| + 1) with the polynomial of `exp`. At most 1.2 / 1.2 ulp.
    """
    a = w.abs(x)
    z = w.mul(a, a)
    near = w.fma(w.mul(a, z), _horner(w, _TANH, z), a)
    capped = _at_most(w, a, 10.0 if w.lane.bits == 32 else 20.0)
    k, p = _expm1_reduced(w, w.add(capped, capped), _BIAS[w.lane.bits])
    power = _power(w, k)
    denominator = w.fma(power, p, w.add(power, w.const(1.0)))
    far = w.sub(w.const(1.0), w.div(w.const(2.0), denominator))
    return w.copysign(w.select(w.lt(a, w.const(0.65)), near, far), x)


def floor(w: Writer, x: str) -> str:
    """Write the largest integer not above x, by adding and subtracting 2^mantissa: SSE2 has no such instruction."""
    two_to_mantissa = w.const(2.0 ** _MANTISSA[w.lane.bits])
    a = w.abs(x)
    nearest = w.copysign(w.sub(w.add(a, two_to_mantissa), two_to_mantissa), x)
    down = w.sub(nearest, w.select(w.lt(x, nearest), w.const(1.0), w.const(0.0)))
    return w.select(w.lt(a, two_to_mantissa), down, x)


def sign(w: Writer, x: str) -> str:
    """Write the sign, -1, 0 or 1; zeros and NaN pass through."""
    unit = w.copysign(w.const(1.0), x)
    return w.select(w.lt(w.const(0.0), w.abs(x)), unit, x)
