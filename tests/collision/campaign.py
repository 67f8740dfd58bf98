"""The narrow phase of every pair of kinds at many random poses: the worst errors, as a table.

Half of the poses are anywhere, half are moved to where the shapes touch within a twentieth of their size. Distances are
compared with the greatest gap over all directions (`narrow.referee`), derivatives with finite differences,
and distances of shapes that are apart also with coal and MuJoCo.

    python tests/collision/campaign.py --poses 100000
"""

import argparse
import sys
import time

import torch
from narrow import PAIRS, nearest, referee, sample
from referee import coal_distance, mujoco_distances

CHUNK = 1000
STEP = 1e-6


def poses(kinds: tuple[str, str], count: int, seed: int) -> list[torch.Tensor]:
    """Poses and sizes, every other one moved to where the shapes touch."""
    parts = sample(kinds, count, seed=seed)
    point = nearest(kinds, parts)[1]
    depth = 0.01 * torch.randn(count, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = parts[0] + (depth - point[:, :1]) * point[:, 4:]
    parts[0] = torch.where((torch.arange(count) % 2 == 0)[:, None], moved, parts[0])
    return parts


def derivative_error(kinds: tuple[str, str], parts: list[torch.Tensor]) -> tuple[float, int]:
    """The worst error of derivatives along a random motion, where they are smooth, and how many are not."""
    generator = torch.Generator().manual_seed(1)
    parts = [part.clone().requires_grad_() for part in parts]
    moves = []
    for part in parts:
        move = torch.randn(part.shape, generator=generator, dtype=torch.float64)
        if part.shape[1] == 4:
            move = move - (move * part).sum(1, keepdim=True) * part
        moves.append((move * (part != 0.0)).detach())

    def moved(by: float) -> torch.Tensor:
        with torch.no_grad():
            return nearest(kinds, [part + by * move for part, move in zip(parts, moves, strict=True)])[1]

    point = nearest(kinds, parts)[1]
    ahead, behind = moved(STEP), moved(-STEP)
    expected = (ahead - behind) / (2.0 * STEP)
    scale = 1.0 + expected.abs().amax(1)
    bend = ((ahead - 2.0 * point + behind) / STEP).abs().amax(1)
    smooth = bend < 1e-3 * scale
    worst = 0.0
    for k in range(7):
        gradients = torch.autograd.grad(point[:, k].sum(), parts, retain_graph=True)
        found = sum((gradient * move).sum(1) for gradient, move in zip(gradients, moves, strict=True))
        worst = max(worst, ((found - expected[:, k]).abs() / scale)[smooth].max().item())
    return worst, int((~smooth).sum())


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--poses", type=int, default=100_000, help="of each pair")
    parser.add_argument("--peers", type=int, default=1000, help="how many of them are given to coal and MuJoCo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("pairs", nargs="*", help="such as box-hull; all by default")
    options = parser.parse_args()
    chosen = [tuple(name.split("-")) for name in options.pairs] or PAIRS
    print(
        "| pair | poses | apart: worst, m | overlap: worst, m | missed by 0.1 mm | coal, m | MuJoCo, m | derivatives |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kinds in chosen:
        begin = time.perf_counter()
        apart = overlap = derivatives = coal = mujoco = 0.0
        missed = kinks = done = 0
        while done < options.poses:
            parts = poses(kinds, CHUNK, options.seed + done)
            point = nearest(kinds, parts)[1]
            expected = referee(kinds, parts, point[:, 4:], directions=200, kept=6, rounds=40)
            error = (point[:, 0] - expected).abs()
            away = expected > 0.0
            apart = max(apart, error[away].max().item())
            overlap = max(overlap, error[~away].max().item())
            missed += int((error > 1e-4).sum())
            worst, some = derivative_error(kinds, parts)
            derivatives, kinks = max(derivatives, worst), kinks + some
            if done < options.peers and kinds[1] != "plane":
                rows = (point[:, 0] > 1e-3).nonzero()[:, 0].tolist()
                for k, theirs in zip(rows, mujoco_distances(kinds, parts, rows), strict=True):
                    mujoco = max(mujoco, abs(point[k, 0].item() - theirs))
                    coal = max(coal, abs(point[k, 0].item() - coal_distance(kinds, [part[k] for part in parts])))
            done += CHUNK
        took = time.perf_counter() - begin
        print(
            f"| {kinds[0]}-{kinds[1]} | {done} | {apart:.1e} | {overlap:.1e} | {missed} | {coal:.1e} | {mujoco:.1e} | "
            f"{derivatives:.1e} ({kinks} at kinks) |",
            flush=True,
        )
        print(f"{kinds[0]}-{kinds[1]}: {took:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
