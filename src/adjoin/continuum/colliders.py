"""Rigid shapes that push soft bodies away: from planes to convex hulls, that rest or move with links of robots.

A point that is closer to a shape than its thickness feels a spring and a damper along the normal and Coulomb
friction across it. The shape feels the opposite: rollouts return the wrench on every collider.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.sequence import Field, Read
from adjoin.continuum import distances
from adjoin.errors import InputError
from adjoin.trace import maximum, minimum, select, sqrt

SIZES = {"plane": 0, "sphere": 1, "capsule": 2, "cylinder": 2, "box": 3, "ellipsoid": 3, "hull": 0}


@dataclass(frozen=True)
class Collider:
    """A rigid shape.

    Attributes:
        kind: "plane" (its z axis is the normal), "sphere" (radius), "capsule" and "cylinder" (radius, half length along
            z), "box" (half lengths), "ellipsoid" (radii) or "hull" (the convex hull of vertices).
        size: as the kind has it, m.
        stiffness: of the spring at a point, N/m.
        damping: of the damper at a point, N s/m.
        friction: Coulomb's coefficient.
        thickness: distance from the shape at which points begin to feel it, m.
        vertices: of a hull, at least four points (n, 3) that do not lie in a plane, m.
    """

    kind: str = "plane"
    size: tuple[float, ...] = ()
    stiffness: float = 1e3
    damping: float = 0.0
    friction: float = 0.0
    thickness: float = 0.0
    vertices: tuple[tuple[float, float, float], ...] = ()

    def __post_init__(self):
        if self.kind not in SIZES:
            raise InputError(f"collider: no kind {self.kind!r}; kinds: {', '.join(SIZES)}")
        if len(self.size) != SIZES[self.kind] or any(length <= 0 for length in self.size):
            raise InputError(f"collider: a {self.kind} has {SIZES[self.kind]} positive sizes, got {self.size}")
        if not (self.stiffness > 0 and self.damping >= 0 and self.friction >= 0 and self.thickness >= 0):
            raise InputError(
                f"collider: stiffness must be positive, and damping, friction and thickness not negative, got {self}"
            )
        if self.kind == "hull":
            distances.Hull.of(self.vertices)
        elif self.vertices:
            raise InputError(f"collider: only a hull has vertices, not a {self.kind}")


@dataclass(frozen=True)
class Motion:
    """Where colliders are and how they move in every step.

    Attributes:
        position: of each collider, (steps, *batch, colliders, 3) or without batch dimensions, m.
        rotation: matrices from the collider's axes to the world's, (steps, *batch, colliders, 3, 3).
        velocity: of the collider's origin, (steps, *batch, colliders, 3), m/s.
        angular_velocity: in the world's axes, (steps, *batch, colliders, 3), rad/s.
    """

    position: torch.Tensor
    rotation: torch.Tensor
    velocity: torch.Tensor
    angular_velocity: torch.Tensor

    def part(self, first: int, steps: int) -> "Motion":
        """Return some steps of it."""
        chosen = slice(first, first + steps)
        return Motion(*(x[chosen] for x in (self.position, self.rotation, self.velocity, self.angular_velocity)))

    @classmethod
    def at_rest(cls, positions: torch.Tensor, rotations: torch.Tensor | None, steps: int) -> "Motion":
        """Return colliders that stay at positions (colliders, 3), unturned unless rotations are given."""
        if rotations is None:
            rotations = torch.eye(3, dtype=positions.dtype, device=positions.device).expand(*positions.shape, 3)
        still = torch.zeros_like(positions).expand(steps, *positions.shape)
        return cls(positions.expand(steps, *positions.shape), rotations.expand(steps, *rotations.shape), still, still)


MOTION = {
    "collider_position": (3,),
    "collider_rotation": (3, 3),
    "collider_velocity": (3,),
    "collider_spin": (3,),
}
"""The fields of the motion of colliders, and their shapes for one."""

GROUPS = "groups"
"""The set through which points reach colliders that links of a robot carry: of one group all points read the same."""

GROUP = "group"
"""The connection from points to groups."""


def fields(count: int, points: str | None = None) -> list[Field]:
    """Return the fields of the motion of colliders and of the wrenches on them.

    Args:
        count: how many colliders there are.
        points: the set that they push, if links carry them: then groups of points have the motion, and points
            contribute wrenches to groups. Else the caller gives the motion and gets the wrenches.
    """
    if not count:
        return []
    over, role = (None, "control") if points is None else (GROUPS, "temporary")
    motion = [Field(name, over, (count, *shape), role) for name, shape in MOTION.items()]
    if points is None:
        return [*motion, Field("wrench", None, (count, 6), "output")]
    return [*motion, Field("wrench", points, (count, 6), "temporary", GROUP)]


def reads(count: int, linked: bool = False) -> dict[str, Read]:
    """Return what a stage reads that lets so many colliders push."""
    return {name: Read(name, GROUP if linked else None) for name in MOTION} if count else {}


def controls(count: int, motion: Motion | None, steps: int | None, like: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """Return the motion as controls; by default all of so many colliders rest at the origin."""
    if not count:
        if motion is not None:
            raise InputError("there are no colliders to move")
        return {}
    if motion is None:
        if steps is None:
            raise InputError("a rollout needs steps, or the motion of its colliders")
        motion = Motion.at_rest(torch.zeros((count, 3), dtype=like.dtype, device=like.device), None, steps)
    return {
        "collider_position": motion.position,
        "collider_rotation": motion.rotation,
        "collider_velocity": motion.velocity,
        "collider_spin": motion.angular_velocity,
    }


def of_point(motion: Mapping[str, Any], linked: bool) -> Mapping[str, Any]:
    """Return the motion of colliders as a point reads it: where links carry them, that of its group."""
    return {**motion, **{name: motion[name][0] for name in MOTION}} if linked else motion


@dataclass(frozen=True)
class Touch:
    """A point at a collider.

    Attributes:
        normal: away from the collider, (3,).
        pressing: the force along it, N.
        surface: velocity of the collider at the point, (3,), m/s.
        arm: from the collider's origin to the point, (3,), m.
        friction: Coulomb's coefficient.
    """

    normal: Any
    pressing: Any
    surface: Any
    arm: Any
    friction: float


def touches(colliders: Sequence[Collider], x: Any, v: Any, motion: Mapping[str, Any]) -> list[Touch]:
    """Return how a point at x with velocity v touches every collider."""
    found = []
    for i, collider in enumerate(colliders):
        rotation, origin = motion["collider_rotation"][i], motion["collider_position"][i]
        arm = x - origin
        distance, normal = _distance(collider, rotation.T @ arm)
        normal = rotation @ normal
        surface = motion["collider_velocity"][i] + np.cross(motion["collider_spin"][i], arm)
        depth = maximum(collider.thickness - distance, 0.0)
        pressing = maximum(collider.stiffness * depth - collider.damping * ((v - surface) @ normal), 0.0)
        found.append(Touch(normal, select(depth > 0.0, pressing, 0.0), surface, arm, collider.friction))
    return found


def rub(touching: Sequence[Touch], v: Any, mass: Any, dt: float) -> tuple[Any, list[Any]]:
    """Return the velocity of a point with friction, from that without it at the end of a step, and the force of each.

    An impulse takes away as much of the slip as Coulomb's law allows: what sticks comes to rest, and stays.
    """
    forces = []
    for touch in touching:
        relative = v - touch.surface
        slip = relative - (relative @ touch.normal) * touch.normal
        slipping = sqrt(slip @ slip + 1e-18)
        taken = minimum(touch.friction * dt * touch.pressing / (mass * slipping), 1.0)
        v = v - taken * slip
        forces.append((-mass / dt) * taken * slip)
    return v, forces


def wrenches(arms: Sequence[Any], forces: Sequence[Any], linked: bool) -> Any:
    """Return the wrench on every collider about its origin from the forces on a point, and from there to the point."""
    found = [[*(-force), *(-np.cross(arm, force))] for arm, force in zip(arms, forces, strict=True)]
    return np.array([found] if linked else found, dtype=object)


def push_implicitly(
    colliders: Sequence[Collider], x: Any, before: Any, dt: float, slip: float, motion: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return the force on a point and the wrench on every collider, for equations that are solved for x.

    The spring is that of the end of the step. Damper and friction have the normal and the pressing force of its
    beginning, so that the derivative of the force to x is a symmetric matrix. Friction grows smoothly with the slip.

    Args:
        colliders: that push.
        x: the point at the end of the step, (3,).
        before: where it was.
        dt: s; infinite for equilibrium, without damper and friction.
        slip: speed from which on friction is nearly that of Coulomb, m/s.
        motion: of the colliders at the end of the step.
    """
    total = np.zeros(3, dtype=object)
    wrenches = []
    for i, collider in enumerate(colliders):
        rotation, origin = motion["collider_rotation"][i], motion["collider_position"][i]
        distance, normal = _distance(collider, rotation.T @ (x - origin))
        force = collider.stiffness * maximum(collider.thickness - distance, 0.0) * (rotation @ normal)
        if dt < math.inf:
            velocity, spin = motion["collider_velocity"][i], motion["collider_spin"][i]
            arm = before - origin + dt * velocity  # from where the collider was
            distance, normal = _distance(collider, rotation.T @ arm)
            normal = rotation @ normal
            pressing = collider.stiffness * maximum(collider.thickness - distance, 0.0)
            relative = (x - before) / dt - velocity - np.cross(spin, arm)
            speed = relative @ normal
            across = relative - speed * normal
            drag = collider.friction * pressing / sqrt(across @ across + slip * slip)
            touching = select(pressing > 0.0, collider.damping, 0.0)
            force = force - drag * across - touching * speed * normal
        total = total + force
        wrenches.append([*(-force), *(-np.cross(x - origin, force))])
    return total, np.array(wrenches, dtype=object)


def _distance(collider: Collider, p: Any) -> tuple[Any, Any]:
    """Return the distance of a point from a shape, in the shape's axes, and the outer normal there."""
    if collider.kind == "plane":
        return distances.plane_distance(p)
    if collider.kind in ("sphere", "capsule"):
        return distances.capsule_distance((*collider.size, 0.0)[:2], p)
    if collider.kind == "hull":
        return distances.hull_distance(distances.Hull.of(collider.vertices), collider.thickness, p)
    kinds = {
        "box": distances.box_distance,
        "cylinder": distances.cylinder_distance,
        "ellipsoid": distances.ellipsoid_distance,
    }
    return kinds[collider.kind](collider.size, p)
