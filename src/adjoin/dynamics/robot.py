"""A model's numbers over scalars: constants of the kernel, or traced where a caller passes them as parameters."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from adjoin.model import parameters
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import mass_moments as matter
from adjoin.spatial import vector
from adjoin.spatial.inertia import Symmetric3, about_origin, second_moment
from adjoin.spatial.mass_moments import Matter
from adjoin.spatial.motion import Spatial, Transform
from adjoin.spatial.rotation import from_quaternion, quaternion_normalize
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Matrix3, Vector3

_MATTER = ("mass", "com", "inertia", "joint_position", "joint_rotation")


class Robot:
    """What the algorithms read of a model.

    Args:
        model: the robot.
        given: parameter name -> its values as nested sequences of scalars; the others are the model's own.
    """

    def __init__(self, model: Model, given: Mapping[str, Any] | None = None):
        self.model = model
        self.given = dict(given or {})
        self.parents = [body.parent for body in model.bodies]
        self.count = len(model.bodies)
        self.nv = model.nv

    def numbers(self, name: str) -> Any:
        """A parameter's values: those given, else the model's."""
        return self.given[name] if name in self.given else parameters.numbers(self.model, parameters.named(name))

    @cached_property
    def matter(self) -> list[Matter]:
        """What each body is made of, about its frame's origin.

        What lies on the axis of a joint that turns moves alike whether the child has it or the parent. Where these
        numbers are known now the parent gets it, which changes nothing but the work: zeros are left behind (Khalil and
        Gautier, Modeling, Identification and Control of Robots, chapter 9).
        """
        rows = zip(*[self.numbers(name) for name in _MATTER[:3]], strict=True)
        found: list[Matter] = []
        for mass, com, central in rows:
            center = vector.vector3(com)
            about = about_origin((mass, center, tuple(central)))
            found.append((mass, vector.scale(mass, center), second_moment(about)))
        if not any(name in self.given for name in _MATTER):
            for body in reversed(range(self.count)):
                joint, parent = self.joint(body), self.parents[body]
                if parent != WORLD and joint.turns_about_axis:
                    found[body], moved = matter.without_axis(found[body], joint.axis)
                    found[parent] = matter.together(found[parent], matter.to_parent(self.placements[body], moved))
        return found

    @cached_property
    def mass(self) -> list[Scalar]:
        """Of each body's `matter`."""
        return [mass for mass, _, _ in self.matter]

    @cached_property
    def moment(self) -> list[Vector3]:
        """First moment of each body's `matter`: mass times center of mass."""
        return [moment for _, moment, _ in self.matter]

    @cached_property
    def second_moment(self) -> list[Symmetric3]:
        """Of each body's `matter`: the integral of r rᵀ dm."""
        return [second for _, _, second in self.matter]

    @cached_property
    def inertia(self) -> list[Symmetric3]:
        """Rotational inertia of each body's `matter`, about its frame's origin."""
        return [matter.rotational(second) for second in self.second_moment]

    @cached_property
    def placements(self) -> list[Transform]:
        """Of each body's joint in the parent's frame."""
        own = [(body.position, body.rotation) for body in self.model.bodies]
        return self._placed("joint", own)

    @cached_property
    def frames(self) -> list[Transform]:
        """Of each frame on its body."""
        own = [(frame.position, frame.rotation) for frame in self.model.frames]
        return self._placed("frame", own)

    @cached_property
    def geometries(self) -> list[Transform]:
        """Of each collision shape on its body."""
        own = [(geometry.position, geometry.rotation) for geometry in self.model.geometries]
        return self._placed("geometry", own)

    @cached_property
    def gravity(self) -> Vector3:
        """Acceleration of free fall in world axes."""
        return vector.vector3(self.numbers("gravity"))

    @cached_property
    def subspaces(self) -> list[list[tuple[int, Spatial]]]:
        """For each body, its joint's directions of motion in the body's frame, each with its place in v.

        A joint that follows another moves along the other's coordinate, scaled by the ratio of the two.
        """
        found = []
        for joint, at in zip(self.model.joints, self.model.coordinates, strict=True):
            directions = joint.type.directions(joint)
            found.append([(at.v + k, _scaled(at.multiplier, s)) for k, s in enumerate(directions)])
        return found

    @cached_property
    def coupled(self) -> bool:
        """Whether one coordinate moves several joints, so that recursions over joints alone do not apply."""
        return any(joint.mimic for joint in self.model.joints)

    def ancestors(self, body: int) -> list[int]:
        """The body and what it hangs on, up to the root; none for the world."""
        path = []
        while body != WORLD:
            path.append(body)
            body = self.parents[body]
        return path

    def joint(self, body: int) -> Joint:
        """The joint that moves a body."""
        return self.model.joints[body]

    def _placed(self, name: str, own: list[tuple[Vector3, Matrix3]]) -> list[Transform]:
        positions: Any = [position for position, _ in own]
        rotations: Any = [rotation for _, rotation in own]
        if f"{name}_position" in self.given:
            positions = [vector.vector3(row) for row in self.given[f"{name}_position"]]
        if f"{name}_rotation" in self.given:
            rotations = [from_quaternion(quaternion_normalize(tuple(row))) for row in self.given[f"{name}_rotation"]]
        return list(zip(rotations, positions, strict=True))


def _scaled(s: float, m: Spatial) -> Spatial:
    return m if s == 1.0 else (vector.scale(s, m[0]), vector.scale(s, m[1]))
