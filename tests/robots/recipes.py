"""How the shipped robot files were made: figures from published wheels, meshes replaced by primitives, our exporter.

    python tests/robots/recipes.py WHEELS

writes them all, given a folder with the wheels differentiable-robot-model 0.2.3, pybullet 3.2.7 and playground 0.2.0
unpacked side by side as `differentiable`, `pybullet` and `playground`; example-robot-data and gymnasium are installed.
The tests run the recipes whose figures are installed, and compare.
"""

import importlib.metadata
import math
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import adjoin
from adjoin.io.urdf_write import to_urdf
from adjoin.model.assemble import joint_pose
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Body, Frame, Geometry, Keyframe
from adjoin.spatial.motion import transform_multiply, transform_point
from adjoin.spatial.rotation import from_rpy, tidy
from adjoin.spatial.vector import IDENTITY, ZERO

SHIPPED = Path(adjoin.__file__).parent / "robots"
WHEELS: Path | None = None


def installed(distribution: str, folder: str) -> Path:
    files = importlib.metadata.files(distribution) or []
    part = next(file for file in files if folder in file.parts and file.suffix in (".urdf", ".xml"))
    at = part.parts.index(folder)
    return Path(str(importlib.metadata.distribution(distribution).locate_file("/".join(part.parts[: at + 1]))))


def example_robot_data() -> Path:
    return installed("example-robot-data", "example-robot-data")


# Shapes --------------------------------------------------------------------------------------------------------------


def primitive(shape: Geometry) -> Geometry:
    """The sphere, capsule or box that stands in for a mesh: from its bounding box in the axes of the mesh."""
    vertices = np.array(shape.vertices)
    low, high = vertices.min(0), vertices.max(0)
    center, half = (low + high) / 2, (high - low) / 2
    order = np.argsort(half)
    small, middle, large = (float(half[i]) for i in order)
    position = transform_point((shape.rotation, shape.position), tuple(np.round(center, 5).tolist()))
    shape = replace(shape, vertices=(), position=position)
    if large < 1.25 * small:
        return replace(shape, kind="sphere", size=(round(large, 4), 0.0, 0.0))
    if large > 1.4 * middle and middle < 1.6 * small:
        turn = {0: from_rpy(0, math.pi / 2, 0), 1: from_rpy(-math.pi / 2, 0, 0), 2: IDENTITY}[int(order[2])]
        radius = round((small + middle) / 2, 4)
        rotation = tidy(np.array(shape.rotation) @ np.array(turn))
        return replace(shape, kind="capsule", size=(radius, round(large - radius, 4), 0.0), rotation=rotation)
    x, y, z = (round(float(extent), 4) for extent in half)
    return replace(shape, kind="box", size=(x, y, z))


def without_meshes(model: adjoin.Model) -> adjoin.Model:
    shapes = tuple(primitive(shape) if shape.kind == "hull" else shape for shape in model.geometries)
    return replace(model, geometries=shapes)


def without_ground(model: adjoin.Model) -> adjoin.Model:
    return replace(model, geometries=tuple(shape for shape in model.geometries if shape.body != WORLD))


# Poses ---------------------------------------------------------------------------------------------------------------


def lowest(model: adjoin.Model, q: list[float]) -> float:
    """Height of the lowest point of the robot's spheres, capsules, cylinders and boxes."""
    poses = []
    for body, at in zip(model.bodies, model.coordinates, strict=True):
        part = [at.multiplier * x + at.offset for x in q[at.q_slice]]
        pose = transform_multiply((body.rotation, body.position), joint_pose(body.joint, part))
        poses.append(pose if body.parent == WORLD else transform_multiply(poses[body.parent], pose))
    heights = []
    for shape in model.geometries:
        if shape.body == WORLD:
            continue
        rotation, position = transform_multiply(poses[shape.body], (shape.rotation, shape.position))
        down = rotation[2]
        a, b, c = shape.size
        reach = {
            "sphere": a,
            "capsule": a + b * abs(down[2]),
            "cylinder": b * abs(down[2]) + a * math.hypot(down[0], down[1]),
            "box": a * abs(down[0]) + b * abs(down[1]) + c * abs(down[2]),
        }[shape.kind]
        heights.append(position[2] - reach)
    return min(heights)


def standing(model: adjoin.Model, angles: dict[str, float], name: str = "home") -> adjoin.Model:
    """The model with a keyframe: joints whose names match a pattern at an angle, the base so high that it stands."""
    q: list[float] = []
    for joint in model.joints:
        if joint.nq:
            found = [angle for pattern, angle in angles.items() if re.fullmatch(pattern, joint.name)]
            neutral = [min(max(x, joint.lower), joint.upper) if joint.nq == 1 else x for x in joint.type.neutral]
            q += [found[0]] if found else neutral
    if model.joints[0].kind == "free":
        q[2] = round(-lowest(model, q), 4) + 0.0
    key = Keyframe(name, tuple(q), (0.0,) * model.nv, (0.0,) * model.nu)
    return replace(model, keyframes=(*model.keyframes, key))


# Robots --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    make: Callable[[], adjoin.Model]
    title: str
    source: str
    license: str
    needs: str = "installed"


def urdf(path: Path, name: str, **options) -> adjoin.Model:
    packages = {"example-robot-data": example_robot_data()} if "example-robot-data" in path.parts else {}
    repair = ("right_angles", *options.pop("repair", ()))
    model = adjoin.load(path, packages=packages, repair=repair, **options)
    return replace(without_meshes(model), name=name)


def from_example_robot_data(path: str, name: str, home: dict[str, float] | None = None, **options) -> adjoin.Model:
    model = urdf(example_robot_data() / "robots" / path, name, **options).with_motors()
    return standing(model, home) if home is not None else model


def from_wheel(path: str, name: str, folder: str | None = None, **options) -> adjoin.Model:
    assert WHEELS is not None
    options["folder"] = WHEELS / folder if folder else None
    return urdf(WHEELS / path, name, allow=[WHEELS], **options).with_motors()


def from_gymnasium(path: str, name: str) -> adjoin.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = adjoin.load(installed("gymnasium", "gymnasium") / "envs/mujoco/assets" / path, unsupported="warn")
    return replace(without_ground(model), name=name)


def h1() -> adjoin.Model:
    assert WHEELS is not None
    text = (WHEELS / "playground/mujoco_playground/_src/locomotion/h1/xmls/h1_mjx_feetonly.xml").read_text()
    text = re.sub(r'<mesh file="[^"]*"/>|<geom class="visual"[^>]*/>', "", text)
    return replace(adjoin.load(text), name="h1")


def rod(mass: float, length: float, radius: float, along: int) -> tuple[float, ...]:
    """Inertia of a solid cylinder about its center."""
    across, axial = mass * (3 * radius**2 + length**2) / 12, mass * radius**2 / 2
    xx, yy, zz = (axial if axis == along else across for axis in range(3))
    return (xx, 0.0, 0.0, yy, 0.0, zz)


def spined_quadruped() -> adjoin.Model:
    """Spine as measured for SPARC, in the test data of BARD; legs of two joints, of figures of our own."""
    free = Joint("root_joint", "free")

    def hinge(name: str) -> Joint:
        return Joint(name, "revolute", (0.0, 1.0, 0.0), -10.0, 10.0, 100.0, 12.0)

    def leg_joint(name: str, lower: float, upper: float) -> Joint:
        return Joint(name, "revolute", (0.0, 1.0, 0.0), lower, upper, 30.0, 12.0)

    bodies = [
        Body("hind_body", WORLD, free, mass=0.377, inertia=(0.0001832, 0.0, 0.0, 0.0003327, 0.0, 0.0002337)),
        Body(
            "hind_spine",
            0,
            hinge("joint_hind_body"),
            position=(0.00454, -0.017638872, 0.0),
            mass=0.399,
            com=(0.109455866, 0.014797864, 0.0),
            inertia=(0.0001953, 0.0, 0.0, 0.0005357, 0.0, 0.0004759),
        ),
        Body(
            "front_spine",
            1,
            hinge("joint_hind_spine"),
            position=(0.1175, 0.036, 0.0),
            mass=0.052,
            com=(0.05875, 0.0073, 0.0),
            inertia=(0.00001, 0.0, 0.0, 0.000084358, 0.0, 0.000082313),
        ),
        Body(
            "front_body",
            2,
            hinge("joint_front_spine"),
            position=(0.1175, 0.0, 0.0),
            mass=0.377197524,
            com=(0.00454141, -0.017638872, 0.0),
            inertia=(0.0001832, 0.0, 0.0, 0.0003327, 0.0, 0.0002337),
        ),
    ]
    shapes = [
        Geometry("hind_body", "box", 0, "hind_body", (0.05, 0.05, 0.03)),
        Geometry("front_body", "box", 3, "front_body", (0.05, 0.05, 0.03)),
    ]
    length, radius, thigh_mass, shank_mass = 0.12, 0.012, 0.15, 0.08
    down = (0.0, 0.0, -length)
    for end, parent in (("front", 3), ("hind", 0)):
        for side, sign in (("left", 1.0), ("right", -1.0)):
            leg = f"{end}_{side}"
            inertia = rod(thigh_mass, length, radius, 2)
            thigh = Body(
                f"{leg}_thigh",
                parent,
                leg_joint(f"{leg}_hip", -2.5, 2.5),
                position=(0.0, sign * 0.07, 0.0),
                mass=thigh_mass,
                com=(0.0, 0.0, -length / 2),
                inertia=inertia,  # type: ignore[arg-type]
            )
            bodies.append(thigh)
            inertia = rod(shank_mass, length, radius, 2)
            bodies.append(
                Body(
                    f"{leg}_shank",
                    len(bodies) - 1,
                    leg_joint(f"{leg}_knee", -2.7, 2.7),
                    position=down,
                    mass=shank_mass,
                    com=(0.0, 0.0, -length / 2),
                    inertia=inertia,  # type: ignore[arg-type]
                )
            )
            shapes += [
                Geometry(
                    f"{leg}_{part}",
                    "capsule",
                    index,
                    f"{leg}_{part}",
                    (radius, length / 2, 0.0),
                    (0.0, 0.0, -length / 2),
                )
                for part, index in (("thigh", len(bodies) - 2), ("shank", len(bodies) - 1))
            ]
            shapes.append(Geometry(f"{leg}_foot", "sphere", len(bodies) - 1, f"{leg}_shank", (0.015, 0, 0), down))
    # Depth first: the hind legs hang on the first body, the front legs on the last one of the spine.
    frames = [Frame(body.name, index) for index, body in enumerate(bodies)]
    model = adjoin.Model("spined_quadruped", tuple(bodies), tuple(frames), tuple(shapes)).with_motors()
    home = {".*_hip": 0.6, ".*_knee": -1.2}
    return standing(adjoin.load(to_urdf(model)), home)


def solid(kind: str) -> adjoin.Model:
    """One free body of 1 kg: a ball of 0.1 m radius, or a cube of 0.2 m."""
    size = (0.1, 0.0, 0.0) if kind == "ball" else (0.1, 0.1, 0.1)
    moment = 0.4 * 0.1**2 if kind == "ball" else 0.2**2 / 6
    body = Body(kind, WORLD, Joint("root_joint", "free"), mass=1.0, inertia=(moment, 0.0, 0.0, moment, 0.0, moment))
    shape = Geometry(kind, "sphere" if kind == "ball" else "box", 0, kind, size)  # type: ignore[arg-type]
    return adjoin.Model(kind, (body,), (Frame(kind, 0, ZERO, IDENTITY),), (shape,))


ERD = "example-robot-data 5.0.0"
QUADRUPED = {".*_hip_joint": 0.0, ".*_thigh_joint": 0.9, ".*_calf_joint": -1.8}
LAIKAGO = {".*_upper_joint|.*_thigh_joint": 0.67, ".*_lower_joint|.*_calf_joint": -1.25}
PANDA = {
    "panda_joint2": -math.pi / 4,
    "panda_joint4": -3 * math.pi / 4,
    "panda_joint6": math.pi / 2,
    "panda_joint7": math.pi / 4,
    "panda_finger_joint1": 0.04,
}
ARMS = {
    "iiwa7": {"iiwa_joint_2": 0.5, "iiwa_joint_4": -1.2, "iiwa_joint_6": 0.9},
    "ur5": {"shoulder_lift_joint": -math.pi / 2, "elbow_joint": math.pi / 2, "wrist_[12]_joint": -math.pi / 2},
    "fetch_arm": {"shoulder_lift_joint": -0.6, "elbow_flex_joint": 1.2, "wrist_flex_joint": 0.8},
    "xarm7": {"joint4": 0.8, "joint6": 0.8},
}
BENT = {".*_hip_pitch_joint": -0.1, ".*_knee_joint": 0.3, ".*_ankle_pitch_joint": -0.2}

HOMES: dict[str, dict[str, float]] = {
    **ARMS,
    "ant": {"ankle_[14]": 1.0, "ankle_[23]": -1.0},
    "hopper": {"rootz": 1.21},
    "half_cheetah": {"rootz": -0.0764},
    "h1": {".*_hip_pitch": -0.4, ".*_knee": 0.8, ".*_ankle": -0.4},
}
"""Where joints are at home, by patterns of names, for robots whose recipe does not say; the others are neutral."""

RECIPES: dict[str, Recipe] = {
    "two_link": Recipe(
        lambda: from_wheel("differentiable/diff_robot_data/2link_robot.urdf", "two_link"),
        "Two-link planar arm",
        "differentiable-robot-model 0.2.3, 2link_robot",
        "MIT",
        "wheels",
    ),
    "iiwa7": Recipe(
        lambda: from_wheel(
            "differentiable/diff_robot_data/kuka_iiwa/urdf/iiwa7.urdf",
            "iiwa7",
            folder="differentiable/diff_robot_data/kuka_iiwa",
        ),
        "KUKA LBR iiwa 7 R800",
        "differentiable-robot-model 0.2.3, kuka_iiwa/iiwa7",
        "MIT; description by the iiwa_stack authors, BSD-2-Clause",
        "wheels",
    ),
    "panda": Recipe(
        lambda: from_example_robot_data("panda_description/urdf/panda_collision.urdf", "panda", PANDA),
        "Franka Emika Panda with gripper",
        f"{ERD}, panda_description/panda_collision",
        "Apache-2.0",
    ),
    "fetch_arm": Recipe(
        lambda: from_wheel(
            "differentiable/diff_robot_data/fetch_description/urdf/fetch_arm_no_gripper.urdf", "fetch_arm"
        ),
        "Fetch arm without gripper",
        "differentiable-robot-model 0.2.3, fetch_description",
        "MIT; description by Fetch Robotics, BSD-3-Clause",
        "wheels",
    ),
    "allegro": Recipe(
        lambda: from_example_robot_data(
            "allegro_hand_description/urdf/allegro_right_hand.urdf", "allegro", repair=("inertia",)
        ),
        "Allegro hand, right",
        f"{ERD}, allegro_hand_description; the inertias of the finger tips violate the triangle inequality there and "
        "were replaced by the nearest that do not",
        "BSD",
    ),
    "xarm7": Recipe(
        lambda: from_example_robot_data("xarm_description/urdf/xarm7.urdf", "xarm7"),
        "UFACTORY xArm7",
        f"{ERD}, xarm_description",
        "BSD-3-Clause",
    ),
    "ur5": Recipe(
        lambda: from_example_robot_data("ur_description/urdf/ur5_robot.urdf", "ur5"),
        "Universal Robots UR5",
        f"{ERD}, ur_description/ur5_robot",
        "BSD",
    ),
    "laikago": Recipe(
        lambda: from_example_robot_data(
            "laikago_description/urdf/laikago.urdf", "laikago", LAIKAGO, floating_base=True
        ),
        "Unitree Laikago",
        f"{ERD}, laikago_description",
        "MPL-2.0",
    ),
    "go2": Recipe(
        lambda: from_example_robot_data("go2_description/urdf/go2.urdf", "go2", QUADRUPED, floating_base=True),
        "Unitree Go2",
        f"{ERD}, go2_description",
        "MPL-2.0",
    ),
    "a1": Recipe(
        lambda: from_example_robot_data("a1_description/urdf/a1.urdf", "a1", QUADRUPED, floating_base=True),
        "Unitree A1",
        f"{ERD}, a1_description",
        "MPL-2.0",
    ),
    "g1": Recipe(
        lambda: from_example_robot_data("g1_description/urdf/g1_29dof_rev_1_0.urdf", "g1", BENT, floating_base=True),
        "Unitree G1, 29 joints",
        f"{ERD}, g1_description/g1_29dof_rev_1_0",
        "BSD-3-Clause",
    ),
    "h1": Recipe(
        h1,
        "Unitree H1",
        "playground 0.2.0, h1_mjx_feetonly, after MuJoCo Menagerie's unitree_h1",
        "BSD-3-Clause",
        "wheels",
    ),
    "ant": Recipe(lambda: from_gymnasium("ant.xml", "ant"), "Ant", "gymnasium 1.4.0, ant.xml", "MIT"),
    "humanoid": Recipe(
        lambda: from_gymnasium("humanoid.xml", "humanoid"),
        "Humanoid",
        "gymnasium 1.4.0, humanoid.xml; its two tendons, which exert no force, are left out",
        "MIT",
    ),
    "hopper": Recipe(lambda: from_gymnasium("hopper.xml", "hopper"), "Hopper", "gymnasium 1.4.0, hopper.xml", "MIT"),
    "half_cheetah": Recipe(
        lambda: from_gymnasium("half_cheetah.xml", "half_cheetah"),
        "Half a cheetah",
        "gymnasium 1.4.0, half_cheetah.xml",
        "MIT",
    ),
    "spined_quadruped": Recipe(
        spined_quadruped,
        "Quadruped with a spine, 11 joints, like SPARC",
        "spine: test data of bard-pytorch-dynamics; legs: own figures",
        "MIT (spine), Apache-2.0 (legs)",
    ),
    "racecar": Recipe(
        lambda: from_wheel("pybullet/pybullet_data/racecar/racecar.urdf", "racecar", floating_base=True),
        "MIT racecar",
        "pybullet 3.2.7, pybullet_data/racecar",
        "Zlib; description by the MIT racecar authors, BSD-3-Clause",
        "wheels",
    ),
    "ball": Recipe(lambda: solid("ball"), "A ball of 1 kg and 0.1 m radius", "own figures", "Apache-2.0"),
    "box": Recipe(lambda: solid("box"), "A cube of 1 kg and 0.2 m edge", "own figures", "Apache-2.0"),
}


def text(name: str) -> str:
    recipe = RECIPES[name]
    lines = [f"{recipe.title}.", f"Figures: {recipe.source}.", f"License of the figures: {recipe.license}."]
    lines.append("Written by adjoin.to_urdf. No meshes: where the source has them, primitives stand in for them.")
    if "xml" not in recipe.source and "h1" not in recipe.source and "own" not in recipe.source:
        lines.append("Right angles are made exact, and every joint has a motor.")
    model = recipe.make()
    if "home" not in [key.name for key in model.keyframes]:
        model = standing(model, HOMES.get(name, {}))
    # The mechanism alone: how steps are taken is up to the simulator, slack tendons do nothing, and a reader finds the
    # trees of links from the joints.
    frames = tuple(replace(frame, tree="") for frame in model.frames)
    model = replace(model, integrator="", timestep=0.0, tendons=(), frames=frames)
    return to_urdf(model, header="\n     ".join(lines))


if __name__ == "__main__":
    WHEELS = Path(sys.argv[1])
    for robot in RECIPES:
        (SHIPPED / f"{robot}.urdf").write_text(text(robot))
        print(robot, adjoin.load(SHIPPED / f"{robot}.urdf"))
