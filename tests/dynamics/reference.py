"""Pinocchio's answers for any of our models: joints that follow others are set free, and the result is projected."""

from dataclasses import replace

import numpy as np
import pinocchio
import torch
from peers import Peer, states

from adjoin.dynamics.aba import aba_of, minverse_of
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.rnea import bias_forces_of, gravity_forces_of, rnea_of
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.model.parts import WORLD

CORE = {
    "rnea": rnea_of,
    "bias_forces": bias_forces_of,
    "gravity_forces": gravity_forces_of,
    "crba": crba_of,
    "aba": aba_of,
    "minverse": minverse_of,
}
SPIN = 10.0


def full(upper):
    """The symmetric matrix of an upper triangle."""
    return np.triu(upper) + np.triu(upper, 1).T


class Reference:
    """Pinocchio on one of our models, one state at a time."""

    def __init__(self, model):
        self.model = model
        bodies = [replace(body, joint=replace(body.joint, mimic=None)) for body in model.bodies]
        self.peer = Peer(replace(model, bodies=tuple(bodies), actuators=(), keyframes=()))
        self.follows = any(joint.mimic for joint in model.joints)
        self.ratios = np.zeros((self.peer.model.nv, model.nv))
        row = 0
        for joint, at in zip(model.joints, model.coordinates, strict=True):
            for k in range(joint.type.nv):
                self.ratios[row, at.v + k] = at.multiplier
                row += 1

    def q(self, q):
        """Our configuration as Pinocchio writes it."""
        free = []
        for at in self.model.coordinates:
            free += [at.multiplier * float(x) + at.offset for x in q[at.q_slice]]
        return self.peer.q(free)

    def place(self, q, frame):
        """Where a frame is in the world."""
        pinocchio.framesForwardKinematics(self.peer.pin, self.peer.data, self.q(q))
        return self.peer.data.oMf[self.peer.frame(frame)].copy()

    def answer(self, q, v, a, tau, quantities=tuple(CORE)):
        """Core quantities in one state, by name."""
        pin, data, G, q = self.peer.pin, self.peer.data, self.ratios, self.q(q)
        v, a, tau = (np.asarray(x, dtype=float) for x in (v, a, tau))
        M = G.T @ full(pinocchio.crba(pin, data, q)) @ G
        bias = G.T @ pinocchio.rnea(pin, data, q, G @ v, 0 * (G @ a))
        found = {
            "rnea": lambda: G.T @ pinocchio.rnea(pin, data, q, G @ v, G @ a),
            "bias_forces": lambda: bias,
            "gravity_forces": lambda: G.T @ pinocchio.computeGeneralizedGravity(pin, data, q),
            "crba": lambda: M,
            "aba": lambda: pinocchio.aba(pin, data, q, v, tau).copy(),
            "minverse": lambda: full(pinocchio.computeMinverse(pin, data, q)),
        }
        if self.follows:
            found |= {"aba": lambda: np.linalg.solve(M, tau - bias), "minverse": lambda: np.linalg.inv(M)}
        return {name: found[name]() for name in quantities}

    def answers(self, q, v, a, tau, quantities=tuple(CORE)):
        """Core quantities in each state of a batch."""
        rows = [self.answer(*row, quantities) for row in zip(*(x.numpy() for x in (q, v, a, tau)), strict=True)]
        return {name: np.stack([row[name] for row in rows]) for name in quantities}


def apart(model):
    """Which degrees of freedom are on different branches, (nv, nv): the entries of M that are zero."""

    def path(body):
        return [] if body == WORLD else [body, *path(model.bodies[body].parent)]

    paths = [path(body) for body, joint in enumerate(model.joints) for _ in range(joint.nv)]
    return np.array([[i[0] not in j and j[0] not in i for j in paths] for i in paths])


def worst(actual, expected, beside=0.0):
    """The largest difference, relative to the largest entry of its sample; the first dimension counts samples.

    `beside` is what the expected values are a difference of, where they are one: it counts for the largest entry.
    """
    actual, expected = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert actual.shape == expected.shape
    rest = tuple(range(1, expected.ndim))
    scale = np.maximum(np.abs(expected), np.abs(np.asarray(beside))).max(axis=rest, initial=0.0)
    difference = np.abs(actual - expected).max(axis=rest, initial=0.0)
    return float((difference / np.where(scale > 0.0, scale, 1.0)).max(initial=0.0))


def samples(model, count, seed=0, spin=SPIN):
    """Random (q, v, a, tau) in float64."""
    q, v, a = states(model, count, seed, spin)
    tau = 10.0 * torch.randn(a.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    return q, v, a, tau


def on_floats(model, q, v, a=None, tau=None):
    """A state over Python numbers: the algorithms run on it as they stand, without a kernel."""
    numbers = [None if x is None else [float(y) for y in x] for x in (q, v, a, tau)]
    return State(Robot(model), *numbers)
