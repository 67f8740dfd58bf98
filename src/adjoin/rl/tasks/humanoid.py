"""A humanoid with 21 driven joints that is to run, with the observations and rewards of DiffRL (Xu et al., 2022)."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from adjoin.model.joint import Joint, Mat3, Vec3
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Actuator, Body, Frame, Geometry
from adjoin.rl.environment import EnvironmentState
from adjoin.rl.task import register_task
from adjoin.rl.tasks.locomotion import Locomotion
from adjoin.rl.tasks.physics import SOFT_GROUND
from adjoin.spatial import inertia
from adjoin.spatial.vector import IDENTITY, ZERO

DENSITY = 1000.0  # kg/m³
STRENGTH = 0.35  # N m per unit of gear and of action
AXES: dict[str, Vec3] = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
ALONG: dict[str, Mat3] = {  # turns z into the axis of a capsule
    "x": ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (-1.0, 0.0, 0.0)),
    "y": ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0)),
    "z": IDENTITY,
}
# A capsule: its axis, radius, half length (0 for a sphere) and center, m. A joint: its name, axis, range (degrees),
# gear and damping (N m s/rad); its armature, kg m², is a ten-thousandth of its gear.
Capsule = tuple[str, float, float, Vec3]
Hinge = tuple[str, str, tuple[float, float], float, float]
Part = tuple[str, str, Vec3, Sequence[Hinge], Sequence[Capsule]]

TRUNK: list[Part] = [
    (
        "waist",
        "torso",
        (0.0, 0.0, -0.26),
        [("abdomen_z", "z", (-45.0, 45.0), 70.0, 5.0), ("abdomen_y", "y", (-75.0, 30.0), 70.0, 5.0)],
        [("y", 0.06, 0.06, ZERO)],
    ),
    (
        "pelvis",
        "waist",
        (0.0, 0.0, -0.16),
        [("abdomen_x", "x", (-35.0, 35.0), 70.0, 5.0)],
        [("y", 0.09, 0.07, ZERO)],
    ),
]
# Those of the left side; on the right, y and the angles about x and z change their signs.
LIMBS: list[Part] = [
    (
        "thigh",
        "pelvis",
        (0.0, 0.1, -0.04),
        [
            ("hip_x", "x", (-10.0, 40.0), 50.0, 5.0),
            ("hip_z", "z", (-35.0, 45.0), 50.0, 5.0),
            ("hip_y", "y", (-110.0, 30.0), 140.0, 5.0),
        ],
        [("z", 0.06, 0.17, (0.0, 0.0, -0.17))],
    ),
    (
        "shin",
        "thigh",
        (0.0, 0.0, -0.4),
        [("knee", "y", (0.0, 150.0), 90.0, 2.0)],
        [("z", 0.05, 0.15, (0.0, 0.0, -0.15))],
    ),
    (
        "foot",
        "shin",
        (0.0, 0.0, -0.39),
        [("ankle_y", "y", (-50.0, 50.0), 25.0, 1.0), ("ankle_x", "x", (-40.0, 40.0), 25.0, 1.0)],
        [("x", 0.03, 0.1, (0.035, side, -0.02)) for side in (-0.025, 0.025)],
    ),
    (
        "upper_arm",
        "torso",
        (0.0, 0.19, 0.05),
        [("shoulder_x", "x", (-60.0, 90.0), 60.0, 1.0), ("shoulder_y", "y", (-90.0, 60.0), 60.0, 1.0)],
        [("z", 0.04, 0.12, (0.0, 0.0, -0.12))],
    ),
    (
        "lower_arm",
        "upper_arm",
        (0.0, 0.0, -0.28),
        [("elbow", "y", (-120.0, 10.0), 45.0, 1.0)],
        [("z", 0.032, 0.11, (0.0, 0.0, -0.12)), ("z", 0.04, 0.0, (0.0, 0.0, -0.27))],
    ),
]
CHEST: list[Capsule] = [
    ("y", 0.075, 0.08, ZERO),
    ("z", 0.09, 0.0, (0.0, 0.0, 0.2)),
    ("y", 0.06, 0.06, (0.0, 0.0, -0.13)),
]


def humanoid() -> Model:
    """Build a humanoid of 42 kg: a trunk of three parts, legs with ankles, and arms; it stands upright at q = 0."""
    free = Joint("root", "free")
    bodies = [Body("torso", WORLD, free, **_inertial(CHEST))]
    shapes = _shapes("torso", 0, CHEST)
    links, motors = {"torso": 0}, []
    parts = [(part, "", 1.0) for part in TRUNK]
    parts += [(part, f"{name}_", sign) for name, sign in (("right", -1.0), ("left", 1.0)) for part in LIMBS]
    for (name, parent, (x, y, z), hinges, capsules), side, sign in parts:
        mirrored: list[Capsule] = [(axis, r, half, (c[0], sign * c[1], c[2])) for axis, r, half, c in capsules]
        before = links[parent] if parent in links else links[side + parent]
        for k, (joint, axis, (low, high), gear, damping) in enumerate(hinges):
            last = k == len(hinges) - 1
            turn = sign if axis != "y" else 1.0
            hinge = Joint(
                side + joint,
                "revolute",
                axis=(turn * AXES[axis][0], AXES[axis][1], turn * AXES[axis][2]),
                lower=math.radians(low),
                upper=math.radians(high),
                damping=(damping,),
                armature=(1e-4 * gear,),
            )
            place = (x, sign * y, z) if k == 0 else ZERO
            own = side + (name if last else f"{name}/{joint}")
            bodies.append(Body(own, before, hinge, place, **(_inertial(mirrored) if last else {})))
            before = len(bodies) - 1
            motors.append(Actuator(side + joint, side + joint, (STRENGTH * gear,), control_range=(-1.0, 1.0)))
        links[side + name] = before
        shapes += _shapes(side + name, before, mirrored)
    frames = [Frame("world", WORLD), *[Frame(body.name, k) for k, body in enumerate(bodies)]]
    return Model("humanoid21", tuple(bodies), tuple(frames), tuple(shapes), tuple(motors))


def _inertial(capsules: Sequence[Capsule]) -> dict[str, Any]:
    """Return mass, center of mass and inertia of capsules together."""
    total = None
    for axis, radius, half, center in capsules:
        rod, caps = (DENSITY * math.pi * radius**2 * x for x in (2.0 * half, 4.0 / 3.0 * radius))
        along = (0.5 * rod + 0.4 * caps) * radius**2
        across = rod * (half**2 / 3.0 + 0.25 * radius**2)
        across += caps * (0.4 * radius**2 + half**2 + 0.75 * radius * half)
        moments = tuple(along if name == axis else across for name in "xyz")
        one = (rod + caps, center, (moments[0], 0.0, 0.0, moments[1], 0.0, moments[2]))
        total = one if total is None else inertia.combined(total, one)
    assert total is not None
    return dict(zip(("mass", "com", "inertia"), total, strict=True))


def _shapes(link: str, body: int, capsules: Sequence[Capsule]) -> list[Geometry]:
    shapes = []
    for k, (axis, radius, half, center) in enumerate(capsules):
        kind, size = ("capsule", (radius, half, 0.0)) if half else ("sphere", (radius, 0.0, 0.0))
        shapes.append(Geometry(f"{link}{k + 1}", kind, body, link, size, center, ALONG[axis]))
    return shapes


@register_task
class Humanoid(Locomotion):
    """A humanoid is to run; 76 observations, reward v_x + 0.1 up + heading + H - 0.002 |a|².

    H is 10 x above 0.84 m and -200 x² below, x the height beyond that, between -1 m and 0.1 m. A torque is 0.35 times
    gear times action. The ground is soft, as that of the ant.
    """

    name = "humanoid"
    decimation = 8
    height, lowest = 1.4, 0.74
    angles = (0.0,) * 21

    def __init__(self):
        super().__init__(humanoid(), contact=SOFT_GROUND)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return the speed along x, bonuses for an upright base at its height, and a small cost of actions."""
        height, speed, up, heading = self._parts(after)
        x = (height - (self.lowest + 0.1)).clamp(-1.0, 0.1)
        bonus = torch.where(x > 0.0, 10.0 * x, -200.0 * x.square())
        return speed + 0.1 * up + heading + bonus - 0.002 * action.square().sum(-1)

    def terminated(self, state: EnvironmentState) -> torch.Tensor:
        """Return where the base is too low."""
        return state.q[:, 2] < self.lowest
