"""Small models for tests, of any joints: chains, a tree of every kind, and random trees."""

import functools
import math
import random

import adjoin
from adjoin.model.joint import Joint, Mimic
from adjoin.model.parts import WORLD, Body, Frame
from adjoin.spatial.rotation import from_quaternion, quaternion_normalize

KINDS = ("revolute", "continuous", "prismatic", "ball", "planar", "free")
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def unit(rng, size):
    """A random unit vector."""
    values = [rng.gauss(0.0, 1.0) for _ in range(size)]
    length = math.hypot(*values)
    return tuple(value / length for value in values)


def pose(rng):
    """A random placement (position, rotation)."""
    position = tuple(rng.uniform(-0.5, 0.5) for _ in range(3))
    return position, from_quaternion(quaternion_normalize(unit(rng, 4)))


def inertia(rng):
    """A random (mass, com, inertia) of a body that could be built: a few point masses."""
    points = [tuple(rng.uniform(-0.3, 0.3) for _ in range(3)) for _ in range(5)]
    masses = [rng.uniform(0.2, 1.0) for _ in points]
    total = sum(masses)
    com = tuple(sum(m * p[i] for m, p in zip(masses, points, strict=True)) / total for i in range(3))
    six = [0.0] * 6
    for m, p in zip(masses, points, strict=True):
        x, y, z = (p[i] - com[i] for i in range(3))
        for k, value in enumerate((y * y + z * z, -x * y, -x * z, x * x + z * z, -y * z, x * x + y * y)):
            six[k] += m * value
    return total, com, tuple(six)


def body(rng, name, parent, joint, **more):
    """A random body on a joint."""
    position, rotation = pose(rng)
    mass, com, about = inertia(rng)
    given = {"position": position, "rotation": rotation, "mass": mass, "com": com, "inertia": about, **more}
    return Body(name, parent, joint, **given)


@functools.cache
def chain(*kinds, axis=Z):
    """Bodies one after the other, with a frame "tip" on the last."""
    rng = random.Random(repr(kinds))
    bodies = [body(rng, f"b{i}", i - 1, Joint(f"j{i}", kind, axis=axis)) for i, kind in enumerate(kinds)]
    position, rotation = pose(rng)
    return adjoin.Model("_".join(kinds), tuple(bodies), (Frame("tip", len(bodies) - 1, position, rotation),))


@functools.cache
def tree():
    """A fork with every kind of joint and one that follows, with damping, armature, friction and springs.

    trunk (planar) - slide (prismatic) - wrist (ball) - hand (revolute)
                   - wheel (continuous, leads) - gear (revolute, follows the wheel)
    """
    rng = random.Random(0)
    tilted = (0.6, 0.0, 0.8)
    own = {"damping": (0.3,), "armature": (0.05,), "friction": (0.2,), "stiffness": (1.5,), "spring_reference": (0.1,)}
    turning = {"damping": (0.1,) * 3, "armature": (0.02,) * 3, "stiffness": (2.0,) * 3}
    bodies = (
        body(rng, "trunk", WORLD, Joint("trunk", "planar", axis=tilted, damping=(0.1, 0.2, 0.3))),
        body(rng, "slide", 0, Joint("slide", "prismatic", axis=tilted, **own)),
        body(rng, "wrist", 1, Joint("wrist", "ball", **turning)),
        body(rng, "hand", 2, Joint("hand", "revolute", axis=Y)),
        body(rng, "wheel", 0, Joint("wheel", "continuous", axis=(0.0, 0.6, 0.8), **own)),
        body(rng, "gear", 4, Joint("gear", "revolute", axis=X, mimic=Mimic("wheel", -1.7, 0.2), **own)),
    )
    frames = []
    for name, index in (("tip", 3), ("rim", 5), ("floor", WORLD)):
        position, rotation = pose(rng)
        frames.append(Frame(name, index, position, rotation))
    return adjoin.Model("fork", bodies, tuple(frames))
