"""Gradients of dynamics: checked three ways, and then used to find how an arm holds a weight with the least effort.

One learns: results are ordinary torch tensors with a graph behind them; gradients go to configurations and to physical
numbers, as often as one likes; whole derivative matrices have functions of their own.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.learn import Bounded

HAND, LOAD, PLACE = "panda_hand_tcp", 3.0, (0.5, 0.0, 0.4)  # frame; kg; m


def check(arm: adjoin.Model) -> None:
    """Derivatives of torques beside finite differences and beside the analytical recursion."""
    generator = torch.Generator().manual_seed(0)
    q = arm.random(dtype=torch.float64, generator=generator).requires_grad_()
    v, a, along = torch.randn(3, arm.nv, dtype=torch.float64, generator=generator)
    mass = arm.parameters(dtype=torch.float64)["mass"].requires_grad_()
    heavier = torch.rand(mass.shape, dtype=torch.float64, generator=generator)

    def effort(q: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
        return adjoin.rnea(arm, q, v, a, params={"mass": mass}).square().sum()

    slope, by_mass = torch.autograd.grad(effort(q, mass), [q, mass], create_graph=True)
    print("largest relative differences:")
    for name, gradient, moved in (
        ("gradient to q, and finite differences", slope @ along, lambda h: effort(q + h * along, mass)),
        ("gradient to masses, and the same", by_mass @ heavier, lambda h: effort(q, mass + h * heavier)),
    ):
        numeric = (moved(1e-6) - moved(-1e-6)) / 2e-6
        print(f"{name:<48} {(gradient / numeric - 1.0).abs():.1e}")
    (twice,) = torch.autograd.grad(slope @ along, q)  # a second derivative, along a direction
    ahead, behind = (torch.autograd.grad(effort(q + h * along, mass), q)[0] for h in (1e-6, -1e-6))
    numeric = (ahead - behind) / 2e-6
    print(f"{'second derivative along a line, and the same':<48} {(twice - numeric).norm() / numeric.norm():.1e}")
    matrix = adjoin.rnea_derivatives(arm, q.detach(), v, a).dtau_dq  # analytical, one kernel
    rows = torch.autograd.functional.jacobian(lambda q: adjoin.rnea(arm, q, v, a), q.detach())
    print(f"{'rnea_derivatives, and rows by autograd':<48} {(matrix - rows).norm() / rows.norm():.1e}\n")


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    panda = adjoin.robots.load("panda")
    check(adjoin.robots.load("two_link"))

    # The load hangs on the hand as a force; joints stay within their limits; 64 searches run side by side.
    starts, iterations = (16, 150) if quick else (64, 500)
    lower, upper = (torch.tensor(limits, dtype=torch.float64) for limits in panda.limits())
    effort_limit = torch.tensor([joint.effort_limit for joint in panda.joints[:7]], dtype=torch.float64)
    first = panda.random((starts,), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    joints, place = Bounded(first, lower, upper), torch.tensor(PLACE, dtype=torch.float64)
    weight = {HAND: torch.tensor([0.0, 0.0, -9.81 * LOAD, 0.0, 0.0, 0.0], dtype=torch.float64)}
    still = torch.zeros_like(first)
    optimizer = torch.optim.Adam(joints.parameters(), lr=0.1)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    history = []
    for _ in range(iterations):
        optimizer.zero_grad()
        q = joints()
        torque = adjoin.rnea(panda, q, still, still, external=weight, reference="local_world_aligned")[:, :7]
        missed = (adjoin.forward_kinematics(panda, q, HAND)[:, :3, 3] - place).norm(dim=-1)
        use = (torque / effort_limit).square().sum(-1)
        loss = use + 1000.0 * missed.square()
        loss.sum().backward()  # one kernel back for each call above
        optimizer.step()
        slower.step()
        history.append(loss.detach())
    use, missed, torque = use.detach(), missed.detach(), torque.detach()
    there = torch.where(missed < 0.01, use, torch.inf)
    best, typical = int(there.argmin()), int(there.argsort()[int((missed < 0.01).sum()) // 2])
    print(f"{LOAD:g} kg held at {PLACE} m: {int((missed < 0.01).sum())} of {starts} searches are within 1 cm of it")
    print(f"sum of squared torques, as shares of the limits: best {use[best]:.4f}, typical {use[typical]:.4f}")
    print(f"best, N m: {[round(x, 1) for x in torque[best].tolist()]}, {1e3 * missed[best]:.2f} mm away")

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(torch.stack(history), color="C0", alpha=0.2)
    left.semilogy([float(each[best]) for each in history], color="black", label="the best")
    left.set(title=f"{starts} searches at once", xlabel="iteration", ylabel="loss")
    for k, (name, which) in enumerate((("typical", typical), ("best", best))):
        shares = 100.0 * (torque[which] / effort_limit).abs()
        right.bar([joint + 0.4 * k - 0.2 for joint in range(1, 8)], shares.tolist(), 0.4, label=name)
    right.set(title=f"Holding {LOAD:g} kg", xlabel="joint", ylabel="torque, % of the limit")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    picture = folder / "gradients.png"
    figure.savefig(picture, dpi=100)
    print(f"losses and torques: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer searches and iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
