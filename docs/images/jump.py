"""Draws jump.svg: moments of the demo's jump from the side, with the forces of the ground, each beside the last."""

import contextlib
import io
from pathlib import Path
from typing import Any

import torch

import adjoin
from adjoin import demo

MOMENTS = (0.0, 0.13, 0.22, 0.3, 0.42, 0.56, 0.68, 1.0)  # s
SCALE, APART, FLOOR, HEIGHT = 170.0, 0.62, 175.0, 215.0  # pixels a metre; m from one moment to the next; pixels


def main() -> None:
    model = adjoin.robots.load("go2").with_servos(kp=80.0, kd=2.0)
    solver = adjoin.PGS(adjoint=adjoin.Implicit())
    sim = adjoin.Simulator(model, demo.DT, solver, pairs=[(foot, "ground") for foot in demo.FEET])
    with contextlib.redirect_stdout(io.StringIO()):
        objective, found = demo.jump(sim, 64, 150, torch.device("cpu"))
    path = objective.rollout(found.best)
    width = SCALE * (APART * len(MOMENTS) + 0.5)
    drawn = [f'<path d="M0 {FLOOR:.0f}H{width:.0f}" stroke="#8a8f98" stroke-width="1.5"/>']
    for k, moment in enumerate(MOMENTS):
        step = round(moment / demo.DT)
        drawn += robot(model, path.q[step], k)
        if step:
            drawn += arrows(model, path, step - 1, k)
        x, _ = pixels(path.q[step], k)
        drawn.append(f'<text x="{x:.0f}" y="{FLOOR + 25:.0f}">{moment:.2f} s</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {HEIGHT:.0f}" fill="none"'
    style = 'stroke-linecap="round" font-family="sans-serif" font-size="12" text-anchor="middle"'
    text = "<style>text{fill:#8a8f98}</style>"
    Path(__file__).with_suffix(".svg").write_text("\n".join([f"{head} {style}>", text, *drawn, "</svg>"]) + "\n")


def pixels(place: torch.Tensor, k: int) -> tuple[float, float]:
    """Where a point in the world is drawn, at moment k."""
    return SCALE * (float(place[0]) + APART * k + 0.45), FLOOR - SCALE * float(place[2])


def robot(model: adjoin.Model, q: torch.Tensor, k: int) -> list[str]:
    """Capsules from the side are thick lines; those of the right side lie behind."""
    poses = adjoin.forward_kinematics(model, q.double(), [geometry.link for geometry in model.geometries])
    shapes = []
    for geometry, pose in zip(model.geometries, poses, strict=True):
        frame = model.frames[model.frame_index(geometry.link)]
        local = torch.tensor(geometry.position).double() - torch.tensor(frame.position).double()
        axis = torch.tensor(geometry.rotation).double()[:, 2]
        half = geometry.size[1] if geometry.kind == "capsule" else 0.0
        radius = geometry.size[0] if geometry.kind != "box" else geometry.size[2]
        ends = [pose[:3, :3] @ (local + side * half * axis) + pose[:3, 3] for side in (-1.0, 1.0)]
        shapes.append((float(ends[0][1]), geometry.link, ends, radius))
    lines = []
    for _, link, ends, radius in sorted(shapes, key=lambda shape: shape[0]):
        (x0, y0), (x1, y1) = (pixels(end, k) for end in ends)
        colour = "#2f5d8a" if link == "base" else "#9db6cf" if link.startswith(("FR", "RR")) else "#4a7fb5"
        lines.append(
            f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1 + 0.1:.1f}" stroke="{colour}" '
            f'stroke-width="{2 * SCALE * radius:.1f}"/>'
        )
    return lines


def arrows(model: adjoin.Model, path: Any, step: int, k: int) -> list[str]:
    """The forces of the ground on the feet, a metre for 400 N."""
    feet = adjoin.forward_kinematics(model, path.q[step + 1].double(), demo.FEET)[:, :3, 3]
    forces = path.outputs["force"][step]
    lines = []
    for foot, force in zip(feet, forces, strict=True):
        if force[2] > 5.0:
            (x, y), tip = pixels(foot, k), pixels(foot + force.double() / 400.0, k)
            lines.append(
                f'<path d="M{x:.1f} {FLOOR:.1f}L{tip[0]:.1f} {tip[1]:.1f}" stroke="#d1495b" stroke-width="2.5"/>'
            )
    return lines


if __name__ == "__main__":
    main()
