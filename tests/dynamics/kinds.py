"""Made-up robots: one with every kind of joint, and small ones that gradients are checked on."""

import functools
import math

import pinocchio
from peers import ROBOTS, robot

from adjoin.model.joint import Joint, Mimic
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Body, Frame
from adjoin.spatial.rotation import from_rpy

REFERENCES = {
    "world": pinocchio.ReferenceFrame.WORLD,
    "local": pinocchio.ReferenceFrame.LOCAL,
    "local_world_aligned": pinocchio.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}
ALL = (*ROBOTS, "every_kind")

TURNED = from_rpy(0.4, -0.9, 1.3)
SKEWED = (0.48, -0.6, 0.64)


def _body(name, parent, joint, **more):
    numbers = {"position": (0.2, -0.1, 0.3), "mass": 1.3, "com": (0.05, 0.1, -0.2)}
    inertia = (0.06, 0.004, -0.003, 0.05, 0.002, 0.04)
    return Body(name, parent, joint, **{**numbers, "inertia": inertia, **more})


def _model(name, bodies):
    frames = [Frame(body.name, index) for index, body in enumerate(bodies)]
    frames += [Frame(f"{body.name}_site", k, (0.1, 0.2, -0.3), TURNED, "site") for k, body in enumerate(bodies)]
    return Model(name, tuple(bodies), (*frames, Frame("ground", WORLD, (0.5, 0.0, 1.0), TURNED)))


@functools.cache
def every_kind():
    """Two roots, every kind of joint, axes and placements at odd angles, and joints that follow others."""
    return _model(
        "every_kind",
        [
            _body("base", WORLD, Joint("base", "free"), mass=3.0),
            _body("ball", 0, Joint("ball", "ball", armature=(0.1, 0.2, 0.3)), rotation=TURNED),
            _body("arm", 1, Joint("arm", "revolute", SKEWED, armature=(0.2,)), rotation=TURNED),
            _body("slider", 2, Joint("slider", "prismatic", SKEWED, armature=(0.3,))),
            _body("plate", 0, Joint("plate", "planar"), rotation=TURNED),
            _body("wheel", 4, Joint("wheel", "continuous", (0.0, 1.0, 0.0))),
            _body("follower", 0, Joint("follower", "revolute", (0.0, 0.0, -1.0), mimic=Mimic("arm", -1.7, 0.2))),
            _body("pusher", 6, Joint("pusher", "prismatic", SKEWED, mimic=Mimic("slider", 0.5))),
            _body("other", WORLD, Joint("other", "revolute", (1.0, 0.0, 0.0)), rotation=TURNED),
        ],
    )


@functools.cache
def floating():
    """A free body with a jointed and a sliding one: 8 degrees of freedom."""
    return _model(
        "floating",
        [
            _body("base", WORLD, Joint("base", "free"), position=(0.0, 0.0, 0.0)),
            _body("arm", 0, Joint("arm", "revolute", (0.0, 1.0, 0.0), armature=(0.2,)), rotation=TURNED),
            _body("slider", 1, Joint("slider", "prismatic", SKEWED)),
        ],
    )


@functools.cache
def branched():
    """Two turning joints and a ball joint on two branches of a fixed base: 5 degrees of freedom."""
    spring = {"stiffness": (3.0,), "spring_reference": (0.4,)}
    ball = Joint("ball", "ball", stiffness=(2.0, 2.0, 2.0), spring_reference=(math.cos(0.2), 0.0, math.sin(0.2), 0.0))
    return _model(
        "branched",
        [
            _body("left", WORLD, Joint("left", "revolute", SKEWED, armature=(0.1,), **spring)),
            _body("hand", 0, Joint("hand", "revolute", (0.0, 0.0, 1.0), **spring), rotation=TURNED),
            _body("right", 0, ball),
        ],
    )


def named(name):
    """A robot that ships, or the one with every kind of joint."""
    return every_kind() if name == "every_kind" else robot(name)


def names(model):
    """Of all frames, in order."""
    return tuple(frame.name for frame in model.frames)


def some(model):
    """Two of the names: from the middle and from near the end."""
    known = names(model)
    return tuple(dict.fromkeys((known[len(known) // 2], known[-(-len(known) * 4 // 5) - 1])))
