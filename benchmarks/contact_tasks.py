"""Ten small tasks that a robot solves by touching something: what moves, what it costs, and when it has succeeded.

All are planar, with servos that hold the robot where it is if nothing is asked of them. No cost draws the robot to what
it should touch: there is what the task wants of the last state, and a little for effort.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import adjoin
from adjoin.control import Objective, Spline

DT, KNOTS, EFFORT = 0.01, 10, 0.1
WALL = 'rpy="1.5707963267948966 0 0"'  # of joints that move in the vertical plane: x, z, and an angle about -y


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: of it.
        what: a sentence.
        objective: of the motion, over 10 knots of a spline of each control.
        success: of the last q and v, (batch, n) each, to (batch,) booleans.
    """

    name: str
    what: str
    objective: Objective
    success: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def link(name: str, mass: float, reach: float, *shapes: str, center: str = "0 0 0") -> str:
    """A link with the inertia of a ball of that reach, and shapes: "kind at x y z: numbers", or with a turn."""
    i = 0.4 * mass * reach**2
    inertia = f'ixx="{i}" ixy="0" ixz="0" iyy="{i}" iyz="0" izz="{i}"'
    solid = f'<inertial><origin xyz="{center}"/><mass value="{mass}"/><inertia {inertia}/></inertial>'
    return f'<link name="{name}">{solid}{"".join(shapes)}</link>'


def shape(name: str, geometry: str, place: str = "0 0 0", turn: str = "0 0 0") -> str:
    return (
        f'<collision name="{name}"><origin xyz="{place}" rpy="{turn}"/><geometry><{geometry}/></geometry></collision>'
    )


def joint(
    name: str,
    kind: str,
    parent: str,
    child: str,
    axis: str = "1 0 0",
    place: str = 'xyz="0 0 0"',
    effort: float = 100.0,
    span: float = 10.0,
    damping: float = 0.0,
) -> str:
    limit = f'<limit lower="{-span}" upper="{span}" effort="{effort}" velocity="1000"/><dynamics damping="{damping}"/>'
    moves = "" if kind == "planar" else limit
    normal = "0 0 1" if kind == "planar" else axis
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/><origin {place}/>'
        f'<axis xyz="{normal}"/>{moves}</joint>'
    )


def task(
    name: str,
    what: str,
    parts: str,
    servos: list[str],
    gains: tuple[Any, Any],
    touching: list[tuple[str, str]],
    start: list[float],
    steps: int,
    goal: Callable[[Any, Any], list[Any]],
    success: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    speed: list[float] | None = None,
    friction: float = 1.0,
    spread: float | list[float] = 0.5,
    damping: dict[str, float] | None = None,
) -> Task:
    """Build a task: servos whose targets are at most `spread` from where they begin; `goal` returns residuals."""
    model = adjoin.load(f'<robot name="{name}"><link name="world"/>{parts}</robot>')
    model = model.with_servos(*gains, joints=servos)
    values = model.parameters(dtype=torch.float64)
    values["geometry_friction"][:, 0] = friction
    params = {"geometry_friction": values["geometry_friction"]}
    if damping:
        slices = {each.name: at.v_slice for each, at in model.independent_joints}
        for joint_name, value in damping.items():
            values["damping"][slices[joint_name]] = value
        params["damping"] = values["damping"]
    model = model.with_parameters(params)
    ground = any("ground" in pair for pair in touching)
    sim = adjoin.Simulator(model, dt=DT, pairs=touching, ground=ground, limits=False)
    q = torch.tensor(start, dtype=torch.float64)
    v = torch.tensor(speed or [0.0] * model.nv, dtype=torch.float64)
    places = {each.name: at.q_slice for each, at in sim.model.independent_joints}
    home = [start[places[each]][0] for each in servos]
    reach = spread if isinstance(spread, list) else [spread] * len(servos)

    def effort(control: Any) -> Any:
        return math.sqrt(DT) * EFFORT * np.array([(c - h) / r for c, h, r in zip(control, home, reach, strict=True)])

    def last(q: Any, v: Any) -> Any:
        return np.array(goal(q, v))

    limits = ([h - r for h, r in zip(home, reach, strict=True)], [h + r for h, r in zip(home, reach, strict=True)])
    variables = Spline(KNOTS, start=[home] * KNOTS, limits=limits)
    objective = Objective(sim, sim.state(q, v), steps, cost=effort, terminal=last, variables=variables)
    return Task(name, what, objective, success)


def finger(x: float, y: float) -> tuple[str, list[str], tuple[float, float]]:
    """An arm of two links in the horizontal plane with a ball for a tip, whose base is at (x, y)."""
    parts = (
        link("upper", 0.3, 0.1, center="0.15 0 0")
        + link("tip", 0.2, 0.1, shape("fingertip", 'sphere radius="0.03"', "0.25 0 0"), center="0.1 0 0")
        + joint("shoulder", "revolute", "world", "upper", "0 0 1", f'xyz="{x} {y} 0"', effort=3.0)
        + joint("elbow", "revolute", "upper", "tip", "0 0 1", 'xyz="0.3 0 0"', effort=3.0)
    )
    return parts, ["shoulder", "elbow"], (5.0, 0.3)


def hand(shapes: str, x: float, z: float) -> tuple[str, list[str], tuple[float, float]]:
    """A hand that moves along x and z in the vertical plane, from (x, z)."""
    parts = (
        link("rail", 0.2, 0.1)
        + link("hand", 0.3, 0.1, shapes)
        + joint("along", "prismatic", "world", "rail", "1 0 0", f'xyz="{x} 0 {z}"', effort=60.0)
        + joint("up", "prismatic", "rail", "hand", "0 0 1", effort=60.0)
    )
    return parts, ["along", "up"], (400.0, 20.0)


def spinner() -> Task:
    arm, servos, gains = finger(0.0, 0.0)
    rod = shape("rod", 'capsule radius="0.02" length="0.14"', "0.07 0 0", "0 1.5707963267948966 0")
    parts = (
        arm
        + link("spinner", 0.2, 0.1, rod)
        + joint("pin", "continuous", "world", "spinner", "0 0 1", 'xyz="0.35 0.25 0"', damping=0.005)
    )
    return task(
        "spinner",
        "A finger turns a spinner by 2 rad.",
        parts,
        servos,
        gains,
        [("fingertip", "rod")],
        [0.0, 0.3, -1.0],
        120,
        lambda q, v: [10.0 * (q[2] - 1.0), v[2]],
        lambda q, v: (q[:, 2] - 1.0).abs() < 0.1,
        spread=1.5,
    )


def push() -> Task:
    arm, servos, gains = finger(0.0, 0.0)
    parts = (
        arm
        + link("box", 0.5, 0.1, shape("sides", 'box size="0.16 0.16 0.16"'))
        + joint("slide", "planar", "world", "box")
    )
    return task(
        "push",
        "A finger pushes a box on a table to a place 20 cm away.",
        parts,
        servos,
        gains,
        [("fingertip", "sides")],
        [0.0, 0.3, 0.4, 0.32, 0.0],
        150,
        lambda q, v: [20.0 * (q[2] - 0.35), 20.0 * (q[3] - 0.5), v[2], v[3]],
        lambda q, v: ((q[:, 2] - 0.35).square() + (q[:, 3] - 0.5).square()).sqrt() < 0.03,
        spread=1.5,
        damping={"slide": 3.0},
    )


CORNERS = "".join(
    shape(f"corner{k}", 'sphere radius="0.01"', f"{x} {z} 0")
    for k, (x, z) in enumerate([(-0.09, -0.09), (0.09, -0.09), (-0.09, 0.09), (0.09, 0.09)])
)
BLOCK = link("block", 0.5, 0.12, CORNERS, shape("sides", 'box size="0.2 0.2 0.2"')) + joint(
    "tumble", "planar", "world", "block", place=f'xyz="0 0 0" {WALL}'
)
ON_FLOOR = [(f"corner{k}", "ground") for k in range(4)]
BALL_TIP = shape("fingertip", 'sphere radius="0.03"')


def flip() -> Task:
    arm, servos, gains = hand(BALL_TIP, -0.25, 0.15)
    return task(
        "flip",
        "A fingertip flips a block onto its next side.",
        arm + BLOCK,
        servos,
        gains,
        [("fingertip", "sides"), *ON_FLOOR],
        [0.0, 0.0, 0.0, 0.1, 0.0],
        100,
        lambda q, v: [10.0 * (q[4] + 0.5 * math.pi), 10.0 * (q[3] - 0.1), 0.5 * v[4]],
        lambda q, v: (q[:, 4] + 0.5 * math.pi).abs() < 0.2,
    )


def pivot() -> Task:
    arm, servos, gains = hand(BALL_TIP, -0.25, 0.15)
    return task(
        "pivot",
        "A fingertip tilts a block about its edge by 0.5 rad, and holds it there.",
        arm + BLOCK,
        servos,
        gains,
        [("fingertip", "sides"), *ON_FLOOR],
        [0.0, 0.0, 0.0, 0.1, 0.0],
        100,
        lambda q, v: [20.0 * (q[4] + 0.5), v[4], v[2], v[3]],
        lambda q, v: ((q[:, 4] + 0.5).abs() < 0.1) & (v[:, 4].abs() < 1.0),
    )


PLATE = shape("plate", 'box size="0.3 0.2 0.02"')


def ball(x: float, z: float) -> str:
    return link("ball", 0.1, 0.05, shape("skin", 'sphere radius="0.05"')) + joint(
        "flight", "planar", "world", "ball", place=f'xyz="{x} 0 {z}" {WALL}'
    )


def throw() -> Task:
    arm, servos, gains = hand(PLATE, 0.0, 0.0)
    return task(
        "throw",
        "A plate throws the ball on it to a place 80 cm away.",
        arm + ball(0.0, 0.06),
        servos,
        gains,
        [("skin", "plate")],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        80,
        lambda q, v: [10.0 * (q[2] - 0.8), 10.0 * (q[3] - 0.2)],
        lambda q, v: ((q[:, 2] - 0.8).square() + (q[:, 3] - 0.2).square()).sqrt() < 0.05,
    )


def catch() -> Task:
    arm, servos, gains = hand(PLATE, 0.0, 0.0)
    return task(
        "catch",
        "A plate catches a ball that flies by, and is at rest with it.",
        arm + ball(-0.6, 0.6),
        servos,
        gains,
        [("skin", "plate")],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        90,
        lambda q, v: [
            10.0 * (q[2] - 0.6 - q[0]),
            10.0 * (q[3] + 0.6 - q[1] - 0.06),
            2.0 * (v[2] - v[0]),
            2.0 * (v[3] - v[1]),
        ],
        lambda q, v: (
            ((q[:, 2] - 0.6 - q[:, 0]).abs() < 0.1)
            & ((q[:, 3] + 0.54 - q[:, 1]).abs() < 0.03)
            & ((v[:, 2] - v[:, 0]).abs() < 0.3)
            & ((v[:, 3] - v[:, 1]).abs() < 0.3)
        ),
        speed=[0.0, 0.0, 1.5, 1.0, 0.0],
    )


def leg(step: str = "") -> tuple[str, list[str], tuple[list[float], list[float]]]:
    """A hopper: a body that does not turn, a hip, and a leg that stretches, with a round foot."""
    parts = (
        link("slider", 0.01, 0.1) + link("body", 2.0, 0.1) + link("thigh", 0.3, 0.1, center="0 0 -0.1")
        + link("shin", 0.2, 0.1, shape("foot", 'sphere radius="0.04"'))
        + joint("ahead", "prismatic", "world", "slider")
        + joint("height", "prismatic", "slider", "body", "0 0 1")
        + joint("hip", "revolute", "body", "thigh", "0 1 0", effort=60.0)
        + joint("knee", "prismatic", "thigh", "shin", "0 0 -1", effort=300.0)
    )  # fmt: skip
    return parts + step, ["hip", "knee"], ([80.0, 3000.0], [4.0, 60.0])


def hop() -> Task:
    parts, servos, gains = leg()
    return task(
        "hop",
        "A leg hops 40 cm ahead.",
        parts,
        servos,
        gains,
        [("foot", "ground")],
        [0.0, 0.34, 0.0, 0.3],
        80,
        lambda q, v: [10.0 * (q[0] - 0.4), 5.0 * (q[1] - 0.34), 0.2 * v[0], 0.2 * v[1]],
        lambda q, v: ((q[:, 0] - 0.4).abs() < 0.05) & ((q[:, 1] - 0.34).abs() < 0.1),
        spread=[0.6, 0.15],
    )


def climb() -> Task:
    stair = '<link name="stair">' + shape("stair_top", 'box size="0.6 0.4 0.2"') + "</link>"
    stair += (
        '<joint name="built" type="fixed"><parent link="world"/><child link="stair"/><origin xyz="0.5 0 0"/></joint>'
    )
    parts, servos, gains = leg(stair)
    return task(
        "climb",
        "A leg gets onto a step 10 cm high.",
        parts,
        servos,
        gains,
        [("foot", "ground"), ("foot", "stair_top")],
        [0.0, 0.34, 0.0, 0.3],
        80,
        lambda q, v: [10.0 * (q[0] - 0.4), 5.0 * (q[1] - 0.44), 0.2 * v[0], 0.2 * v[1]],
        lambda q, v: ((q[:, 0] - 0.4).abs() < 0.05) & ((q[:, 1] - 0.44).abs() < 0.05) & (v[:, 1].abs() < 1.0),
        spread=[0.6, 0.15],
    )


def roll() -> Task:
    arm, servos, gains = hand(PLATE, 0.0, 0.16)
    return task(
        "roll",
        "A finger from above rolls a ball on a palm by 15 cm, and stops it.",
        arm + ball(0.0, 0.05),
        servos,
        gains,
        [("skin", "plate"), ("skin", "ground")],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        120,
        lambda q, v: [20.0 * (q[2] - 0.15), 2.0 * v[2]],
        lambda q, v: ((q[:, 2] - 0.15).abs() < 0.02) & (v[:, 2].abs() < 0.1),
    )


def drawer() -> Task:
    arm, servos, gains = finger(0.0, 0.0)
    front = shape("front", 'box size="0.3 0.04 0.2"')
    parts = (
        arm
        + link("drawer", 1.0, 0.1, front)
        + joint("rails", "prismatic", "world", "drawer", "0 1 0", 'xyz="0.4 0.45 0"', damping=8.0)
    )
    return task(
        "drawer",
        "A finger closes a drawer that is open by 25 cm.",
        parts,
        servos,
        gains,
        [("fingertip", "front")],
        [0.0, 0.3, -0.25],
        150,
        lambda q, v: [20.0 * q[2], v[2]],
        lambda q, v: q[:, 2].abs() < 0.02,
        spread=1.5,
    )


TASKS: dict[str, Callable[[], Task]] = {
    each.__name__: each for each in (spinner, push, flip, pivot, throw, catch, hop, climb, roll, drawer)
}
