"""`make demo`: one kernel, written in Python, compiled, run on a batch and differentiated, beside plain torch."""

import time

import torch

from adjoin import trace as at


def pendulum(angle, speed, torque, mass, length):
    """One step of a damped pendulum, on traced scalars, floats or tensors alike."""
    acceleration = (torque - 0.1 * speed - 9.81 * mass * length * at.sin(angle)) / (mass * length * length)
    speed = speed + 0.01 * acceleration
    return angle + 0.01 * speed, speed


def rollout(state, controls, body):
    """A hundred steps in one kernel; gives the last state."""

    def step(t, carry, torque):
        angle, speed = carry
        return pendulum(angle, speed, torque, body[0], body[1]), None

    last, _ = at.scan(step, (state[0], state[1]), controls)
    return list(last)


def timed(function, *arguments):
    """The result and the best time of a few calls, in seconds."""
    result, best = function(*arguments), float("inf")
    for _ in range(5):
        start = time.perf_counter()
        result = function(*arguments)
        best = min(best, time.perf_counter() - start)
    return result, best


def main() -> None:
    """Run the demo and print what it shows."""
    batch, steps = 4096, 100
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU thread(s)"
    print(f"Adjoin: {batch} pendulums, {steps} steps and their gradient, on {where}\n")
    start = time.perf_counter()
    fused = at.function(state=2, controls=at.PerStep(()), body=2)(rollout)
    print(f"traced       {fused.kernel.program.operations} operations, in {1e3 * (time.perf_counter() - start):.1f} ms")

    state = torch.randn(batch, 2, device=device)
    controls = torch.randn(steps, batch, device=device)
    body = torch.tensor([1.0, 0.5], device=device, requires_grad=True)  # mass and length, shared by the batch
    target = torch.tensor([torch.pi, 0.0], device=device)

    def gradient(function):
        loss = (function(state, controls, body) - target).square().mean()
        return torch.autograd.grad(loss, body)[0]

    def plain(state, controls, body):
        angle, speed = state.unbind(-1)
        for torque in controls:
            angle, speed = pendulum(angle, speed, torque, body[0], body[1])
        return torch.stack([angle, speed], -1)

    start = time.perf_counter()
    gradient(fused)
    print(
        f"compiled     kernel and gradient, in {1e3 * (time.perf_counter() - start):.0f} ms (next time from the cache)"
    )
    ours, ours_time = timed(gradient, fused)
    theirs, theirs_time = timed(gradient, plain)
    print(f"fused        {1e3 * ours_time:8.2f} ms   gradient {ours.tolist()}")
    print(f"plain torch  {1e3 * theirs_time:8.2f} ms   gradient {theirs.tolist()}")
    difference = ((ours - theirs) / theirs).abs().max()
    print(f"\n{theirs_time / ours_time:.0f} times faster, relative difference {difference:.1e}")


if __name__ == "__main__":
    main()
