"""A model's numbers over scalars: constants of the kernel, or traced where a caller passes them as parameters."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from adjoin.model import parameters
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import mass_moments, vector
from adjoin.spatial.inertia import Symmetric3
from adjoin.spatial.mass_moments import MassMoments
from adjoin.spatial.motion import Spatial, Transform, transform_inverse, transform_multiply
from adjoin.spatial.rotation import from_quaternion, quaternion_normalize
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.spatial.vector import Matrix3, Vector3


class Robot:
    """What the algorithms read of a model.

    Args:
        model: the robot.
        params: parameter name -> its values as nested sequences of scalars; the others are the model's own.
    """

    def __init__(self, model: Model, params: Mapping[str, Any] | None = None):
        self.model = model
        self.params = dict(params or {})
        self.parents = [body.parent for body in model.bodies]
        self.count = len(model.bodies)
        self.nv = model.nv

    def numbers(self, name: str) -> Any:
        """Return a parameter's values: those passed as `params`, else the model's."""
        return self.params[name] if name in self.params else parameters.numbers(self.model, parameters.named(name))

    @cached_property
    def mass(self) -> list[Scalar]:
        """Return mass of each body."""
        return list(self.numbers("mass"))

    @cached_property
    def regrouped(self) -> list[MassMoments]:
        """Return mass moments that give the same dynamics as those of the bodies, with less work; see `regroup`.

        A body's own mass is in `mass`: of what is here, only sums over whole trees are those of the robot.
        """
        rows = zip(*[self.numbers(name) for name in ("mass", "com", "inertia")], strict=True)
        moments = [mass_moments.from_inertia(mass, vector.vector3(com), tuple(central)) for mass, com, central in rows]
        return regroup(self.model, moments, self.placements)

    @cached_property
    def regrouped_inertias(self) -> list[tuple[Scalar, Vector3, Symmetric3]]:
        """Compute `regrouped` as mass, first moment, and rotational inertia about the frame's origin."""
        return [(moments.mass, moments.first, moments.rotational_inertia) for moments in self.regrouped]

    @cached_property
    def placements(self) -> list[Transform]:
        """Return the placement of each body's joint in the parent's frame."""
        placements = [(body.position, body.rotation) for body in self.model.bodies]
        return self._placed("joint", placements)

    @cached_property
    def frames(self) -> list[Transform]:
        """Return the placement of each frame on its body."""
        placements = [(frame.position, frame.rotation) for frame in self.model.frames]
        return self._placed("frame", placements)

    @cached_property
    def geometries(self) -> list[Transform]:
        """Return the placement of each collision shape on its body."""
        placements = [(geometry.position, geometry.rotation) for geometry in self.model.geometries]
        return self._placed("geometry", placements)

    @cached_property
    def gravity(self) -> Vector3:
        """Return acceleration of free fall in world axes."""
        return vector.vector3(self.numbers("gravity"))

    @cached_property
    def subspaces(self) -> list[list[tuple[int, Spatial]]]:
        """Return for each body its joint's directions of motion in the body's frame, each with its index in v.

        A joint that follows another moves along the other's coordinate, scaled by the ratio of the two.
        """
        subspaces = []
        for joint, at in zip(self.model.joints, self.model.coordinates, strict=True):
            directions = joint.type.directions(joint)
            subspaces.append([(at.v + k, _scaled(at.multiplier, s)) for k, s in enumerate(directions)])
        return subspaces

    @cached_property
    def coupled(self) -> bool:
        """Return whether one coordinate moves several joints, so that recursions over joints alone do not apply."""
        return any(joint.mimic for joint in self.model.joints)

    def move_mocap(self, poses: Sequence[Scalar]) -> None:
        """Put the model's mocap links, and what hangs on them, elsewhere.

        Args:
            poses: position and quaternion of each, seven scalars each.
        """
        model, trees = self.model, self.model.trees
        for k, name in enumerate(model.mocap):
            own = model.frames[model.frame_index(name)]
            back = transform_inverse((own.rotation, own.position))
            x, y, z, *turn = poses[7 * k : 7 * k + 7]
            moved = (from_quaternion(quaternion_normalize((turn[0], turn[1], turn[2], turn[3]))), (x, y, z))
            parts = (
                (self.frames, [f.body if f.tree == name else None for f in model.frames]),
                (self.geometries, [g.body if trees.get(g.link, "") == name else None for g in model.geometries]),
                (self.placements, [b.parent if trees.get(b.name, "") == name else None for b in model.bodies]),
            )
            for placed, bodies in parts:
                for i, body in enumerate(bodies):
                    if body == WORLD:
                        placed[i] = transform_multiply(moved, transform_multiply(back, placed[i]))

    def ancestors(self, body: int) -> list[int]:
        """Return the body and what it hangs on, up to the root; none for the world."""
        path = []
        while body != WORLD:
            path.append(body)
            body = self.parents[body]
        return path

    def joint(self, body: int) -> Joint:
        """Return the joint that moves a body."""
        return self.model.joints[body]

    def _placed(self, name: str, defaults: list[tuple[Vector3, Matrix3]]) -> list[Transform]:
        positions: Any = [position for position, _ in defaults]
        rotations: Any = [rotation for _, rotation in defaults]
        if f"{name}_position" in self.params:
            positions = [vector.vector3(row) for row in self.params[f"{name}_position"]]
        if f"{name}_rotation" in self.params:
            rotations = [from_quaternion(quaternion_normalize(tuple(row))) for row in self.params[f"{name}_rotation"]]
        return list(zip(rotations, positions, strict=True))


def regroup(model: Model, moments: Sequence[MassMoments], placements: Sequence[Transform]) -> list[MassMoments]:
    """Return mass moments of the bodies, with what lies on the axis of a joint that turns given to the parent.

    It moves alike whether the child has it or the parent, so dynamics stay the same, and zeros are left behind (Khalil
    and Gautier, Modeling, Identification and Control of Robots, chapter 9). Only numbers that are known now are moved.
    """
    regrouped = list(moments)
    for index, body in reversed(list(enumerate(model.bodies))):
        rotation, position = placements[index]
        known = regrouped[index].is_known and all(map(is_number, (*position, *sum(rotation, ()))))
        if known and body.parent != WORLD and body.joint.turns_about_axis:
            regrouped[index], moved = mass_moments.split_off_axis(regrouped[index], body.joint.axis)
            parent = regrouped[body.parent]
            regrouped[body.parent] = mass_moments.add(parent, mass_moments.to_parent(placements[index], moved))
    return regrouped


def _scaled(s: float, m: Spatial) -> Spatial:
    return m if s == 1.0 else (vector.scale(s, m[0]), vector.scale(s, m[1]))
