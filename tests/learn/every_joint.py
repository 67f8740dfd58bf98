"""A robot with a joint of every kind, with limits."""

import functools

import torch

import adjoin
from adjoin.model.joint import Joint, Mimic
from adjoin.model.parts import Body

JOINTS = (
    Joint("base", "free"),
    Joint("hinge", "revolute", lower=-0.5, upper=1.5, velocity_limit=2.0),
    Joint("wheel", "continuous", velocity_limit=5.0),
    Joint("slide", "prismatic", axis=(1.0, 0.0, 0.0), lower=0.1, upper=0.3, velocity_limit=0.2),
    Joint("hip", "ball", upper=0.8, velocity_limit=3.0),
    Joint("cart", "planar", velocity_limit=1.0),
    Joint("follower", "revolute", lower=-0.4, upper=0.4, velocity_limit=0.5, mimic=Mimic("hinge", -0.5, 0.1)),
)


@functools.cache
def every_joint() -> adjoin.Model:
    inertia = (0.01, 0.001, 0.0, 0.02, 0.0, 0.015)
    com = (0.05, -0.02, 0.1)
    bodies = [
        Body(
            f"{joint.name}_body", index - 1, joint, position=(0.1, 0.0, 0.2), mass=1.0 + index, com=com, inertia=inertia
        )
        for index, joint in enumerate(JOINTS)
    ]
    return adjoin.Model("every_joint", tuple(bodies))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
