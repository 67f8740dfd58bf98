"""Where is the hand, how does it move, and how do I get it where I want it: for one robot or a thousand at a time.

One learns: forward kinematics, Jacobians, and inverse kinematics from many starts in one launch, inside the limits and
differentiable. The picture shows one pose of the hand and many ways to reach it.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    panda = adjoin.robots.load("panda")
    hand = "panda_hand"

    # Forward kinematics: the pose of one frame or several, as matrices or as [x y z, w x y z].
    home = torch.tensor(panda.keyframe("home").q)
    x, y, z, *_ = adjoin.forward_kinematics(panda, home, hand, output="quaternion").tolist()
    print(f"the hand is at x {x:.3f} m, y {y:.3f} m, z {z:.3f} m")

    # The Jacobian says how it moves when the joints do.
    v = torch.zeros(panda.nv)
    v[0] = 1.0
    linear = (adjoin.jacobian(panda, home, hand, reference="local_world_aligned") @ v)[:3]
    print(f"turning the base at 1 rad/s moves it with {[round(s, 3) for s in linear.tolist()]} m/s\n")

    # Inverse kinematics: many poses that some configuration reaches, from sixteen starts each, in one launch.
    generator = torch.Generator().manual_seed(0)
    wanted = adjoin.forward_kinematics(panda, panda.random((100 if quick else 1000,), generator=generator), hand)
    adjoin.inverse_kinematics(panda, {hand: wanted})  # the first call compiles
    start = time.perf_counter()
    found = adjoin.inverse_kinematics(panda, {hand: wanted}, generator=generator)
    seconds = time.perf_counter() - start
    lower, upper = (torch.tensor(limits) for limits in panda.limits())
    print(f"{'targets':34}{len(wanted)}")
    print(f"{'reached':34}{int(found.success.sum())}")
    print(f"{'median error':34}{found.position_error.median() * 1e6:.1f} micrometers")
    print(f"{'median number of steps':34}{int(found.iterations.median())}")
    print(f"{'all inside the limits':34}{bool(((found.q >= lower) & (found.q <= upper)).all())}")
    print(f"{'time':34}{seconds * 1e3:.1f} ms, {len(wanted) / seconds:,.0f} targets a second\n")

    # Everything is differentiable: how the joints follow when a target is moved up.
    target = adjoin.forward_kinematics(panda, home, hand).requires_grad_()
    near = adjoin.inverse_kinematics(panda, {hand: target}, home)
    for joint, q in zip(panda.joints, near.q[:7], strict=False):
        (gradient,) = torch.autograd.grad(q, target, retain_graph=True)
        print(f"{joint.name:14} {q.item():7.3f} rad, {gradient[2, 3].item():7.3f} rad per meter upwards")

    # One pose, reached from random starts: seven joints have one to spare.
    same = adjoin.inverse_kinematics(panda, {hand: target.detach().expand(60, 4, 4)}, generator=generator)
    links = [f"panda_link{k}" for k in range(1, 8)] + [hand]
    joints = adjoin.forward_kinematics(panda, same.q[same.success], links)[..., :3, 3]
    elbows = joints[:, 3]
    print(
        f"\n{len(joints)} of 60 found the same pose of the hand; their elbows are up to "
        f"{torch.cdist(elbows, elbows).max():.2f} m apart"
    )
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot(projection="3d")
    for k, arm in enumerate(joints):
        axes.plot(*arm.T, ".-", color=f"C{k % 10}", alpha=0.5, linewidth=1.5)
    axes.plot(*joints[0, -1:].T, "k*", markersize=14, label="the hand")
    axes.set(title="One pose of the hand, many of the arm", xlabel="x, m", ylabel="y, m", zlabel="z, m")
    axes.set_aspect("equal")
    axes.locator_params(nbins=4)
    axes.legend()
    picture = folder / "kinematics.png"
    figure.savefig(picture, dpi=100)
    print(f"the arms: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer targets")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
