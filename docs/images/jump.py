"""Draws jump.svg: moments of the demo's jump from the side, each beside the last, with the forces of the ground."""

import contextlib
import io
from pathlib import Path

import torch

import adjoin
from adjoin import demo

MOMENTS = (0.0, 0.13, 0.24, 0.4, 0.56, 0.68, 1.0)  # s
SCALE, APART, FLOOR = 170.0, 0.7, 150.0  # pixels a meter; m from one moment to the next; pixels
LEGS = (("FR", "#a9bed3"), ("RR", "#a9bed3"), ("FL", "#4a7fb5"), ("RL", "#4a7fb5"))
NEWTONS = 600.0  # a meter


def main() -> None:
    """Find the jump again, and draw it."""
    sim = demo.quadruped()
    with contextlib.redirect_stdout(io.StringIO()):
        objective, found = demo.jump(sim, 64, 150, torch.device("cpu"))
    path = objective.rollout(found.best)
    width = SCALE * (APART * len(MOMENTS) + 0.9)
    drawn = [f'<path d="M0 {FLOOR:.0f}H{width:.0f}" stroke="#8a8f98" stroke-width="1.5"/>']
    for k, moment in enumerate(MOMENTS):
        step = round(moment / demo.DT)
        names = [f"{leg}_{part}" for leg, _ in LEGS for part in ("hip", "thigh", "calf", "foot")]
        places = adjoin.forward_kinematics(sim.model, path.q[step], names)[:, [0, 2], 3]
        shift = torch.tensor([APART * k + 0.5, 0.0])
        limbs = dict(zip(names, (SCALE * (places + shift) * torch.tensor([1.0, -1.0])).tolist(), strict=True))
        for leg, color in LEGS[:2]:
            drawn.append(line([limbs[f"{leg}_{part}"] for part in ("thigh", "calf", "foot")], color, 9))
        drawn.append(line([limbs["FR_hip"], limbs["RR_hip"]], "#2f5d8a", 26))
        for leg, color in LEGS[2:]:
            drawn.append(line([limbs[f"{leg}_{part}"] for part in ("thigh", "calf", "foot")], color, 9))
        forces = path.outputs["force"][step - 1] if step else torch.zeros(4, 3)
        for foot, force in zip(demo.FEET, forces.tolist(), strict=True):
            if force[2] > 5.0:
                x, y = limbs[foot]
                tip = [x + SCALE * force[0] / NEWTONS, y - SCALE * force[2] / NEWTONS]
                drawn.append(line([[x, 0.0], tip], "#d1495b", 2).replace("/>", ' marker-end="url(#tip)"/>'))
        drawn.append(
            f'<text x="{sum(limbs[name][0] for name in names) / 16:.0f}" y="{FLOOR + 22:.0f}">{moment} s</text>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {FLOOR + 30:.0f}" fill="none"'
    style = (
        'stroke-linecap="round" stroke-linejoin="round" font-family="sans-serif" font-size="12" text-anchor="middle"'
    )
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="5" markerHeight="5" orient="auto">'
    tip += '<path d="M0 0 8 4 0 8z" fill="#d1495b"/></marker>'
    parts = [f"{head} {style}>", f"<style>text{{fill:#8a8f98;text-anchor:middle}}</style>{tip}", *drawn, "</svg>"]
    Path(__file__).with_suffix(".svg").write_text("\n".join(parts) + "\n")


def line(points: list[list[float]], color: str, width: int) -> str:
    """A path through points in pixels, above the floor."""
    corners = "L".join(f"{x:.1f} {FLOOR + y:.1f}" for x, y in points)
    return f'<path d="M{corners}" stroke="{color}" stroke-width="{width}"/>'


if __name__ == "__main__":
    main()
