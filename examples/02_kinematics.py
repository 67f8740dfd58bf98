"""Where is the hand, how does it move, and how do I get it where I want it: for one robot or a thousand at a time."""

import time

import torch

import adjoin


def main() -> None:
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

    # Inverse kinematics: a thousand poses that some configuration reaches, from sixteen starts each, in one launch.
    generator = torch.Generator().manual_seed(0)
    wanted = adjoin.forward_kinematics(panda, panda.random((1000,), generator=generator), hand)
    adjoin.inverse_kinematics(panda, {hand: wanted})  # the first call compiles
    start = time.perf_counter()
    found = adjoin.inverse_kinematics(panda, {hand: wanted}, generator=generator)
    seconds = time.perf_counter() - start
    lower, upper = (torch.tensor(limits) for limits in panda.limits())
    print(f"{'targets':34}{len(wanted)}")
    print(f"{'reached':34}{int(found.success.sum())}")
    print(f"{'median error':34}{found.position_error.median() * 1e6:.1f} micrometres")
    print(f"{'median number of steps':34}{int(found.iterations.median())}")
    print(f"{'all inside the limits':34}{bool(((found.q >= lower) & (found.q <= upper)).all())}")
    print(f"{'time':34}{seconds * 1e3:.1f} ms, {len(wanted) / seconds:,.0f} targets a second\n")

    # Everything is differentiable: how the joints follow when a target is moved up.
    target = adjoin.forward_kinematics(panda, home, hand).requires_grad_()
    near = adjoin.inverse_kinematics(panda, {hand: target}, home)
    for joint, q in zip(panda.joints, near.q[:7], strict=False):
        (gradient,) = torch.autograd.grad(q, target, retain_graph=True)
        print(f"{joint.name:14} {q.item():7.3f} rad, {gradient[2, 3].item():7.3f} rad per metre upwards")


if __name__ == "__main__":
    main()
