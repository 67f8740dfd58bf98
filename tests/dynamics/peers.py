"""Our models as Pinocchio's, joint by joint in the same order; and random states of both."""

import functools
import math

import numpy as np
import pinocchio
import torch

import adjoin
from adjoin.model.joint_types.planar import plane_axes
from adjoin.model.parts import WORLD

ROBOTS = adjoin.robots.names()


def symmetric(six):
    xx, xy, xz, yy, yz, zz = six
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _joint(joint):
    axis = np.array(joint.axis)
    return {
        "revolute": lambda: pinocchio.JointModelRevoluteUnaligned(axis),
        "continuous": lambda: pinocchio.JointModelRevoluteUnaligned(axis),
        "prismatic": lambda: pinocchio.JointModelPrismaticUnaligned(axis),
        "ball": pinocchio.JointModelSpherical,
        "planar": pinocchio.JointModelPlanar,
        "free": pinocchio.JointModelFreeFlyer,
    }[joint.kind]()


def _turn(joint):
    """From the joint's axes to Pinocchio's, whose planes are always across z."""
    if joint.kind != "planar":
        return pinocchio.SE3.Identity()
    axes = np.array([*plane_axes(joint.axis), joint.axis]).T
    return pinocchio.SE3(axes, np.zeros(3))


class Peer:
    """A Pinocchio model with the joints, bodies and frames of one of ours; v, a and tau are the same numbers."""

    def __init__(self, model):
        self.model = model
        self.pin = pinocchio.Model()
        self.turns = {WORLD: pinocchio.SE3.Identity()}
        for number, body in enumerate(model.bodies):
            joint = _joint(body.joint)
            turn = self.turns[number] = _turn(body.joint)
            placement = pinocchio.SE3(np.array(body.rotation), np.array(body.position))
            placement = self.turns[body.parent].inverse() * placement * turn
            index = self.pin.addJoint(body.parent + 1, joint, placement, body.joint.name)
            inertia = pinocchio.Inertia.Zero()  # its parts one by one: the constructor refuses unphysical ones
            inertia.mass, inertia.lever, inertia.inertia = body.mass, np.array(body.com), symmetric(body.inertia)
            self.pin.appendBodyToJoint(index, inertia, turn.inverse())
        for index, at in enumerate(model.coordinates):
            if at.leader != index:
                self.pin = pinocchio.transformJointIntoMimic(
                    self.pin, at.leader + 1, index + 1, at.multiplier, at.offset
                )
        for frame in model.frames:
            placement = pinocchio.SE3(np.array(frame.rotation), np.array(frame.position))
            placement = self.turns[frame.body].inverse() * placement
            parent = frame.body + 1 if frame.body != WORLD else 0
            self.pin.addFrame(pinocchio.Frame(frame.name, parent, 0, placement, pinocchio.FrameType.OP_FRAME))
        self.pin.gravity.linear = np.array(model.gravity)
        self.pin.armature = model.parameters(dtype=torch.float64)["armature"].numpy().copy()
        self.data = self.pin.createData()
        assert (self.pin.nv, self.pin.njoints) == (model.nv, len(model.bodies) + 1)

    def q(self, q):
        """One of our configurations, as Pinocchio writes it: quaternions end in w, planar angles are (cos, sin)."""
        out = []
        for joint, at in zip(self.model.joints, self.model.coordinates, strict=True):
            part = [float(x) for x in q[at.q : at.q + joint.nq]]
            if joint.kind == "ball" and joint.nq:
                part = [*part[1:], part[0]]
            elif joint.kind == "free":
                part = [*part[:3], *part[4:], part[3]]
            elif joint.kind == "planar" and joint.nq:
                part = [*part[:2], math.cos(part[2]), math.sin(part[2])]
            out += part
        return np.array(out)

    def frame(self, name):
        return self.pin.getFrameId(name, pinocchio.FrameType.OP_FRAME)


@functools.cache
def robot(name):
    return adjoin.robots.load(name)


@functools.cache
def peer(name):
    return Peer(robot(name))


def states(model, count, seed=0, spin=1.0):
    """Random (q, v, a) in float64; `spin` scales velocities."""
    generator = torch.Generator().manual_seed(seed)
    q = model.random((count,), generator=generator, dtype=torch.float64)
    v, a = torch.randn(2, count, model.nv, generator=generator, dtype=torch.float64)
    return q, spin * v, a


def close(actual, expected, tolerance=1e-10):
    """Equal within a tolerance relative to the largest entry of each sample."""
    actual, expected = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    worst = float(np.abs(actual - expected).max(initial=0.0))
    assert worst <= tolerance * scale, f"off by {worst:.3g}, {worst / scale:.3g} relative"
