"""Pictures of the tasks of `adjoin.rl`, and replays of what was learned.

    python docs/images/tasks.py                 draws docs/images/task_*.svg
    python docs/images/tasks.py replay NAME     writes NAME.html, from the motion in docs/motions

A motion is an .npz file: `q`, (frames, nq), and `dt`, the seconds from one to the next; where the ground is not flat,
also its `terrain`, heights in mm.
"""

import sys
from pathlib import Path

import numpy as np
import torch

import adjoin
from adjoin.collision.terrain import Heightfield
from adjoin.rl import Environment, Task, make_task

HERE = Path(__file__).parent
MOTIONS = HERE.parent / "motions"
NAMES = (
    "ant",
    "ant2021",
    "cartpole",
    "go2",
    "half_cheetah",
    "hopper",
    "humanoid",
    "panda_push",
    "panda_reach",
    "pendulum",
)
WIDTH, FRAMES = 640.0, 5
COLORS = ("#c3ccd6", "#9fb0c2", "#7c94ad", "#587899", "#355c85")  # the last moment is the darkest


ROUGH = "go2_terrain"  # the motion of the task go2 with bumps


def drawn(name: str) -> Task:
    """The task as it is shown."""
    options = {"pendulum": {"links": 3}, ROUGH: {"roughness": 0.08}}.get(name, {})
    return make_task("go2" if name == ROUGH else name, **options)


def motion(name: str) -> tuple[torch.Tensor, float] | None:
    """What was learned: configurations over time and the seconds between them; None if nothing is kept."""
    file = MOTIONS / f"{name}.npz"
    if not file.is_file():
        return None
    data = np.load(file)
    return torch.tensor(data["q"].astype(np.float64)), float(data["dt"])


def outline(shape: adjoin.Geometry, pose: np.ndarray, color: str) -> tuple[str, list[tuple[float, float]]]:
    """A shape seen along y, as SVG in meters, and points that it spans."""
    turn, place = pose[:3, :3] @ np.array(shape.rotation), pose[:3, :3] @ np.array(shape.position) + pose[:3, 3]
    if shape.kind == "box":
        corners = [
            place + turn @ (np.array(shape.size) * sign)
            for sign in np.ndindex(2, 2, 2)
            for sign in [2.0 * np.array(sign) - 1.0]
        ]
        points = hull([(corner[0], -corner[2]) for corner in corners])
        text = " ".join(f"{x:.3f},{y:.3f}" for x, y in points)
        return f'<polygon points="{text}" fill="{color}"/>', points
    radius, half = shape.size[0], shape.size[1] if shape.kind in ("capsule", "cylinder") else 0.0
    ends = [place + sign * half * turn[:, 2] for sign in (-1.0, 1.0)]
    (x1, y1), (x2, y2) = [(end[0], -end[2]) for end in ends]
    line = f'<line x1="{x1:.3f}" y1="{y1:.3f}" x2="{x2 + 1e-4:.3f}" y2="{y2:.3f}" stroke-width="{2 * radius:.3f}"'
    spanned = [(x + a * radius, y + b * radius) for x, y in ((x1, y1), (x2, y2)) for a in (-1, 1) for b in (-1, 1)]
    return f'{line} stroke="{color}" stroke-linecap="round"/>', spanned


def hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The convex hull (Andrew's monotone chain)."""

    def half(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for x, y in ordered:
            while len(chain) > 1:
                (x1, y1), (x2, y2) = chain[-2:]
                if (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) > 0.0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    ordered = sorted(set(points))
    return half(ordered) + half(ordered[::-1])


def picture(name: str) -> str:
    """A task as SVG: some moments of what was learned, or how an episode begins."""
    task = drawn(name)
    model, kept = task.simulator.model, motion(name)
    q = Environment(task, dtype=torch.float64).reset(1, torch.Generator().manual_seed(0)).q if kept is None else kept[0]
    chosen = q[torch.linspace(0, len(q) - 1, FRAMES if len(q) > 1 else 1).round().long()]
    shapes = [shape for shape in model.geometries if shape.kind in ("box", "sphere", "capsule", "cylinder")]
    parts, spanned = [], []
    for row, color in zip(chosen, COLORS[-len(chosen) :], strict=True):
        poses = {
            body: adjoin.forward_kinematics(model, row, model.bodies[body].name).numpy() if body >= 0 else np.eye(4)
            for body in {shape.body for shape in shapes}
        }
        for shape in shapes:
            text, points = outline(shape, poses[shape.body], color)
            parts.append(text)
            spanned += points
    xs, ys = zip(*spanned, strict=True)
    left, right, top, bottom = min(xs) - 0.1, max(xs) + 0.1, min(ys) - 0.1, max(ys) + 0.1
    thin = 0.002 * (right - left)
    ground = f'<line x1="{left:.2f}" y1="0" x2="{right:.2f}" y2="0" stroke="#999" stroke-width="{thin:.4f}"/>'
    box = f"{left:.3f} {top:.3f} {right - left:.3f} {bottom - top:.3f}"
    height = WIDTH * (bottom - top) / (right - left)
    floor = [] if name in ("pendulum", "cartpole") else [ground]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{WIDTH:.0f}" height="{height:.0f}">'
    return "\n".join([head, *floor, *parts, "</svg>\n"])


def replay(name: str, folder: Path = Path()) -> Path:
    """Write a motion as a page of its own."""
    from adjoin.viewer import record

    kept = motion(name)
    if kept is None:
        have = ", ".join(sorted(file.stem for file in MOTIONS.glob("*.npz")))
        raise SystemExit(f"no motion of {name!r} is kept; there are: {have}")
    simulator, page = drawn(name).simulator, folder / f"{name}.html"
    terrain, data = simulator.world.terrain, np.load(MOTIONS / f"{name}.npz")
    if terrain is not None:
        terrain = Heightfield(1e-3 * torch.tensor(data["terrain"]), terrain.spacing, terrain.origin)
    record(simulator.model, kept[0], kept[1], page, title=name, terrain=terrain)
    return page


if __name__ == "__main__":
    if sys.argv[1:2] == ["replay"]:
        print(replay(sys.argv[2]))
    else:
        for name in NAMES:
            file = HERE / f"task_{name}.svg"
            file.write_text(picture(name))
            print(file, file.stat().st_size)
