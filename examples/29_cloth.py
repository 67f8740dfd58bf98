"""A clamp draws a piece of cloth over a ball; how far it has to draw is found by gradients.

The clamp holds one edge of the cloth and moves it aside and down. The cloth slides over the ball with friction and
hangs down on the other side. Wanted is how high its free edge hangs in the end.
One learns: cloth, nodes that are held and moved, contact with friction, gradients to a motion, a replay.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

from adjoin.continuum import Attachment, BodyState, Cloth, ClothMaterial, Collider, Motion, square_cloth
from adjoin.viewer import SoftBody, record_soft

DT, MOVED, END = 1e-3, 0.3, 0.6  # s
SIDE, RADIUS = 0.4, 0.1  # m
DOWN, WANTED = 0.15, 0.01  # m: how far the clamp goes down; height of the free edge above the middle of the ball


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    cells = 8 if quick else 12
    nodes, triangles = square_cloth(cells, SIDE)
    nodes = nodes - (SIDE / 2, SIDE / 2, -RADIUS - 0.01)  # flat above the ball, whose center is the origin
    held = (nodes[:, 0] == nodes[:, 0].min()).nonzero()[0]
    loose = torch.tensor(nodes[:, 0] == nodes[:, 0].max())
    ball = Collider("sphere", (RADIUS,), stiffness=20.0, damping=0.02, friction=0.1, thickness=5e-3)
    fabric = ClothMaterial(density=0.3, young=60.0, bending=1e-4, drag=10.0)
    cloth = Cloth(nodes, triangles, fabric, DT, colliders=(ball,), attachments=(Attachment(held),))
    t = DT * torch.arange(round(END / DT), dtype=torch.float64)
    along = (t / MOVED).clamp(0, 1)
    smooth, speed = along**2 * (3 - 2 * along), 6 * along * (1 - along) / MOVED

    def run(aside: torch.Tensor, keep: int | None = None) -> BodyState:
        """Move the clamp aside and down; the ball rests."""
        way = torch.stack([-aside, torch.zeros_like(aside), torch.full_like(aside, -DOWN)])
        place, velocity = smooth[:, None] * way, speed[:, None] * way
        still = torch.zeros_like(place)
        turn = torch.eye(3, dtype=torch.float64).expand(len(t), 2, 3, 3)
        both = [torch.stack(pair, 1) for pair in ((still, place), (still, velocity), (still, still))]
        return cloth.rollout(cloth.state(), motion=Motion(both[0], turn, both[1], both[2]), keep=keep)

    aside = torch.tensor(-0.04, dtype=torch.float64, requires_grad=True)
    errors = []
    for _ in range(6):  # Newton's method
        height = run(aside).x[loose, 2].mean()
        (slope,) = torch.autograd.grad(height, aside)
        errors.append(abs(height.item() - WANTED))
        with torch.no_grad():
            aside += ((WANTED - height) / slope).clamp(-0.02, 0.02)
    print(f"the free edge is off by {1e3 * errors[0]:.1f} mm at first and by {1e3 * errors[-1]:.2f} mm at last")
    each = 20
    path = run(aside.detach(), keep=each)
    body = SoftBody(path.x, triangles, path.v.norm(dim=-1), "speed, m/s")
    record_soft(body, each * DT, folder / "cloth.html", colliders=cloth.colliders, title="cloth over a ball")
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy([1e3 * error for error in errors], "o-")
    left.set(xlabel="iteration", ylabel="distance of the free edge, mm", title="learning how far to draw")
    assert path.wrench is not None
    right.plot(t, path.wrench[:, :, 2].abs(), label=["ball", "clamp"])
    right.set(xlabel="time, s", ylabel="force upwards, N", title="who carries the cloth")
    right.legend()
    figure.savefig(folder / "cloth.png", dpi=120)
    return folder / "cloth.png"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--folder", type=Path)
    print(main(**vars(options.parse_args())))
