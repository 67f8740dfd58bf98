"""Random traced functions: arithmetic, elementary functions, selects, loops, scans and scratch arrays, nested.

`random_program(seed)` packs many independent random graphs into one program, one scalar output each, so that a suite
of ten thousand graphs compiles in minutes. Values stay moderate, so that finite differences mean something.
"""

import random

import numpy as np

from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.trace import (
    acos,
    asin,
    atan2,
    cos,
    exp,
    floor,
    log,
    loop,
    maximum,
    minimum,
    scan,
    scratch,
    select,
    sign,
    sin,
    sqrt,
    tan,
    tanh,
    to_float,
    to_index,
)  # fmt: skip

UNARY = [
    sin, cos, tanh, abs, sign, lambda x: -x,
    lambda x: sqrt(x * x + 0.25), lambda x: exp(0.5 * tanh(x)), lambda x: log(x * x + 0.5),
    lambda x: asin(0.9 * tanh(x)), lambda x: acos(0.9 * sin(x)), lambda x: tan(1.2 * tanh(x)),
    lambda x: 0.1 * floor(3 * x),
    lambda x: sqrt(maximum(x, 0.0)),
]  # fmt: skip
BINARY = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: 0.7 * a * b, lambda a, b: a / (1.0 + b * b),
    lambda a, b: minimum(a, b), lambda a, b: maximum(a, b), lambda a, b: atan2(a, b + 0.1), lambda a, b: a * 0.0 + b,
    lambda a, b: select(a < b, a * b, tanh(a)), lambda a, b: select((a <= 0.3) & ~(a + b > 1.0), a - b, sin(a) * b),
    lambda a, b: select(a != 0.0, b / a, 0.0) * tanh(a),
    lambda a, b: select(a > 0.0, sqrt(a), b), lambda a, b: select((a == b) | (a < -1.0), 1.0, a + b * b),
]  # fmt: skip

INPUTS = [TensorSpec("x", (6,)), TensorSpec("y", (3,)), TensorSpec("p", (2,)), TensorSpec("u", (2,), "steps")]
SHARED = (False, False, True, False)
STEPS = 5


def _grow(rng, pool, size):
    """Add random values made of those in the pool; the last is the result."""
    pool = list(pool)
    for _ in range(size):
        if rng.random() < 0.35:
            pool.append(rng.choice(UNARY)(rng.choice(pool)))
        else:
            pool.append(rng.choice(BINARY)(rng.choice(pool), rng.choice([*pool, rng.uniform(-1, 1)])))
    return pool


def _bounded(value):
    return 1.5 * tanh(0.6 * value)


def _random_loop(rng, pool, depth):
    width = rng.randint(1, 3)
    first = [rng.choice(pool) for _ in range(width)]
    outer = rng.sample(pool, min(2, len(pool)))
    seed = rng.randrange(1 << 30)

    def body(step, carry):
        inside = random.Random(seed)
        values = _grow(inside, [*carry, *outer, 0.2 * to_float(step)], 4)
        if depth > 0 and inside.random() < 0.5:
            values.append(_random_loop(inside, values, depth - 1))
        return [_bounded(value) for value in values[-width:]]

    return sum(loop(rng.randint(0, 4), body, first), 0.0)


def _random_scan(rng, pool, u):
    first = rng.choice(pool)
    outer = rng.choice(pool)
    seed = rng.randrange(1 << 30)

    def body(step, carry, element):
        inside = random.Random(seed)
        values = _grow(inside, [carry, outer, *element], 4)
        following = _bounded(values[-1])
        return following, [following * element[0], values[-2]]

    last, stream = scan(body, first, u, reverse=rng.random() < 0.3)
    return last, stream


def _random_scratch(rng, pool):
    size = rng.randint(2, 4)
    memory = scratch([rng.choice(pool) for _ in range(size)])
    outer = rng.choice(pool)
    index = to_index(2.0 * abs(rng.choice(pool)))

    def body(step, carried):
        carried[step] = _bounded(carried[0] * outer + carried[step])
        carried[index] = 0.5 * carried[index] - carried[size - 1]
        return carried

    memory = loop(size + 1, body, memory)  # one more than the size: the last index is clamped
    return memory[0] + memory[size - 1] * memory[index]


def random_program(seed, graphs=50):
    """A program of many random graphs; its outputs are one row of scalars and one stream."""
    rng = random.Random(seed)

    def function(x, y, p, u):
        results, streams = [], None
        inputs = [*x, *y, *p]
        for i in range(graphs):
            pool = _grow(rng, rng.sample(inputs, 4), rng.randint(2, 12))
            if i % 5 == 0:
                pool.append(_random_loop(rng, pool, 2))
            if i % 10 == 1:
                pool.append(_random_scratch(rng, pool))
            if i % 10 == 2:
                last, streams = _random_scan(rng, pool, u)
                pool.append(last)
            results.append(_grow(rng, pool, 2)[-1])
        return np.array(results, dtype=object), streams

    program, _ = trace(f"random_{seed}", function, INPUTS)
    return program.with_shared(SHARED)
