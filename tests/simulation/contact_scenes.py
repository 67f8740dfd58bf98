"""Scenes of many contacts whose outcome is known, with hard and with soft contact, one line each.

    python tests/simulation/contact_scenes.py [--scene stack,dominoes,cards,gripper,bin] [--solver pgs,newton]

It takes minutes, most of them to compile. What is wrong is marked, and the exit status is 1 then. A robot that lies
down and gets up again is in test_get_up.py.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable

import torch

import adjoin

SOLVERS = {"pgs": adjoin.PGS(iterations=60, warm=True), "newton": adjoin.Newton()}
FLOOR = '<geom name="floor" type="plane" size="5 5 1" friction="{friction} 0.005 0.0001"/>'

Found = list[tuple[str, float, bool]]
"""Figures: what each is, its value, and whether it is right."""


def world(bodies: str, friction: float = 1.0, more: str = "", dt: float = 0.002) -> adjoin.Model:
    """Bodies on a floor."""
    return adjoin.load(
        f'<mujoco><option timestep="{dt}" integrator="implicitfast"/>'
        f'<default><geom friction="{friction} 0.005 0.0001"/></default>'
        f"<worldbody>{FLOOR.format(friction=friction)}{bodies}</worldbody>{more}</mujoco>"
    )


def loose(name: str, position: tuple[float, ...], shape: str, euler: tuple[float, ...] = (0.0, 0.0, 0.0)) -> str:
    """A body that moves freely."""
    place, turn = (" ".join(f"{x:.6g}" for x in values) for values in (position, euler))
    return f'<body name="{name}" pos="{place}" euler="{turn}"><freejoint/><geom {shape}/></body>'


def run(model: adjoin.Model, contact: object, seconds: float, v: torch.Tensor | None = None, **options: object):
    """The first and the last state, and the simulator."""
    sim = adjoin.Simulator(model, contact=contact, **options)  # type: ignore[arg-type]
    start = sim.state("qpos0", v, dtype=torch.float64)
    path = sim.rollout(start, steps=round(seconds / sim.dt))
    assert int(path.last.status) == 0, f"status {int(path.last.status)}"
    return start, path.last, sim


def stack(contact: object) -> Found:
    """Ten boxes stay on each other."""
    half = 0.05
    shape = f'type="box" size="{half} {half} {half}" mass="0.1"'
    model = world("".join(loose(f"box{i}", (0.0, 0.0, half + 2 * half * i), shape) for i in range(10)))
    start, end, _ = run(model, contact, 1.0)
    moved = (end.q - start.q).reshape(10, 7)[:, :3].abs().amax().item()
    speed = end.v.abs().amax().item()
    return [("moved, m", moved, moved < 0.01), ("speed", speed, speed < 0.05)]


def dominoes(contact: object) -> Found:
    """A row falls, each by the one before."""
    count, shape = 8, 'type="box" size="0.008 0.03 0.08" mass="0.05"'
    model = world("".join(loose(f"tile{i}", (0.06 * i, 0.0, 0.08), shape) for i in range(count)))
    v = torch.zeros(6 * count, dtype=torch.float64)
    v[0], v[4] = 0.3, 4.0
    _, end, _ = run(model, contact, 1.5, v)
    _, x, y, _ = end.q.reshape(count, 7)[:, 3:].unbind(-1)
    upright = (1.0 - 2.0 * (x * x + y * y)).amax().item()
    return [("cosine of the steepest", upright, upright < math.cos(math.radians(45.0)))]


def cards(contact: object) -> Found:
    """Two cards that lean against each other stand with friction, and slide apart without."""
    found: Found = []
    angle, half = math.radians(20.0), 0.1
    away = half * math.sin(angle) + 0.002 * math.cos(angle)
    height = half * math.cos(angle) + 0.002 * math.sin(angle)
    shape = f'type="box" size="0.002 0.05 {half}" mass="0.02"'
    for friction, stands in ((1.0, True), (0.02, False)):
        sides = [(-away, math.degrees(angle)), (away, -math.degrees(angle))]
        bodies = "".join(loose(f"card{i}", (x, 0.0, height), shape, (0.0, a, 0.0)) for i, (x, a) in enumerate(sides))
        _, end, _ = run(world(bodies, friction), contact, 1.0)
        level = end.q.reshape(2, 7)[:, 2].amin().item()
        found.append((f"height with friction {friction:g}, m", level, (level > 0.9 * height) == stands))
    return found


def gripper(contact: object) -> Found:
    """Two fingers lift a box by friction, and without it they do not."""
    found: Found = []
    finger = '<joint name="{0}" type="slide" axis="{1} 0 0" damping="20"/>'
    finger += '<geom type="box" size="0.01 0.03 0.03" mass="0.1"/>'
    hand = (
        '<body name="hand" pos="0 0 0.04"><joint name="lift" type="slide" axis="0 0 1" damping="100"/>'
        '<inertial pos="0 0 0" mass="0.5" diaginertia="0.001 0.001 0.001"/>'
        f'<body name="left" pos="-0.06 0 0">{finger.format("left", 1)}</body>'
        f'<body name="right" pos="0.06 0 0">{finger.format("right", -1)}</body></body>'
    )
    drives = (
        '<actuator><position joint="lift" kp="2000"/><motor joint="left"/><motor joint="right"/></actuator>'
        '<contact><exclude body1="left" body2="right"/></contact>'
    )
    for friction, lifted in ((1.0, True), (0.02, False)):
        box = loose("box", (0.0, 0.0, 0.03), 'type="box" size="0.03 0.03 0.03" mass="0.2"')
        sim = adjoin.Simulator(world(hand + box, friction, drives), contact=contact)  # type: ignore[arg-type]
        steps = round(1.5 / sim.dt)
        control = torch.zeros(steps, 3, dtype=torch.float64)
        control[:, 1:] = 10.0
        control[:, 0] = 0.1 * torch.linspace(-0.5, 1.2, steps).clamp(0.0, 1.0)
        end = sim.rollout(sim.state("qpos0", dtype=torch.float64), control).last
        level = end.q[sim.model.coordinates[sim.model.joint_index(sim.model.bodies[-1].joint.name)].q + 2].item()
        found.append((f"height with friction {friction:g}, m", level, (level > 0.11) == lifted))
    return found


def in_bin(contact: object) -> Found:
    """Fifty spheres fall into a bin, come to rest in it and do not pass through its walls or each other."""
    inside, radius = 0.15, 0.03
    walls = "".join(
        f'<geom type="box" size="{a} {b} 0.2" pos="{x} {y} 0.2"/>'
        for a, b, x, y in ((0.02, 0.2, 0.17, 0), (0.02, 0.2, -0.17, 0), (0.2, 0.02, 0, 0.17), (0.2, 0.02, 0, -0.17))
    )
    shape = f'type="sphere" size="{radius}" mass="0.1"'
    # Off the grid by a few millimeters, so that no column stands.
    places = [
        (
            0.07 * (i % 4) - 0.105 + 0.004 * math.sin(1.7 * i),
            0.07 * (i // 4 % 4) - 0.105 + 0.004 * math.cos(2.3 * i),
            0.05 + 0.075 * (i // 16),
        )
        for i in range(50)
    ]
    model = world(walls + "".join(loose(f"ball{i}", place, shape) for i, place in enumerate(places)), 0.5)
    _, end, _ = run(model, contact, 1.5)
    place = end.q.reshape(50, 7)[:, :3]
    outside = (place[:, :2].abs().amax() - (inside - radius)).item()
    closest = torch.pdist(place).amin().item()
    speed = end.v.reshape(50, 6)[:, :3].norm(dim=-1).median().item()
    lowest = place[:, 2].amin().item()
    return [
        ("beyond the walls, m", outside, outside < 0.003),
        ("closest centers, m", closest, closest > 2.0 * radius - 0.003),
        ("lowest center, m", lowest, lowest > radius - 0.003),
        ("median speed, m/s", speed, speed < 0.1),
    ]


SCENES: dict[str, Callable[[object], Found]] = {
    "stack": stack,
    "dominoes": dominoes,
    "cards": cards,
    "gripper": gripper,
    "bin": in_bin,
}


def main() -> int:
    """Run the scenes that are asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scene", default=",".join(SCENES))
    options.add_argument("--solver", default=",".join(SOLVERS))
    chosen, wrong = options.parse_args(), 0
    for name in chosen.scene.split(","):
        for solver in chosen.solver.split(","):
            began = time.perf_counter()
            for what, value, right in SCENES[name](SOLVERS[solver]):
                wrong += not right
                print(f"{name:<10}{solver:<8}{what:<32}{value:>10.4g}  {'' if right else 'WRONG'}", flush=True)
            print(f"{name:<10}{solver:<8}{'time, s':<32}{time.perf_counter() - began:>10.4g}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
