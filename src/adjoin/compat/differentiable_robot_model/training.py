"""Epochs of training without autograd: loss and gradient of a batch come from one launch of one kernel."""

import math

import torch

from adjoin.compat.differentiable_robot_model.robot_model import DifferentiableRobotModel
from adjoin.errors import InputError

QUANTITIES = {"inverse_dynamics": "qdd_des", "forward_dynamics": "f"}
"""What can be fitted, and what each takes besides q and qd."""


def train_epoch(
    robot: DifferentiableRobotModel,
    optimizer: torch.optim.Optimizer,
    quantity: str,
    q: torch.Tensor,
    qd: torch.Tensor,
    third_input: torch.Tensor,
    target: torch.Tensor,
    *,
    batch_size: int = 100,
    variance: torch.Tensor | None = None,
    shuffle: bool = False,
    include_gravity: bool = True,
    use_damping: bool | None = None,
) -> torch.Tensor:
    """Run once through the data, with one step of the optimizer a batch.

    It does what this loop does, in a fraction of the time:

        for q, qd, third_input, target in batches:
            optimizer.zero_grad()
            loss = ((robot.compute_forward_dynamics(q, qd, third_input) - target) ** 2 / variance).mean()
            loss.backward()
            optimizer.step()

    Args:
        robot: whose parameters are learned.
        optimizer: of these parameters; any that needs no closure.
        quantity: "inverse_dynamics" or "forward_dynamics".
        q: joint positions, [N, n].
        qd: joint velocities, [N, n].
        third_input: accelerations for inverse dynamics, torques for forward dynamics, [N, n].
        target: torques, or accelerations, to be met, [N, n].
        batch_size: the last batch may be smaller.
        variance: what squared errors are divided by, [n]; 1 by default.
        shuffle: whether the data are taken in random order.
        include_gravity: whether there is gravity.
        use_damping: whether the joints are damped; by default as for `compute_...` of the quantity: only in inverse
            dynamics.

    Returns:
        The loss of each batch, before its step.
    """
    if quantity not in QUANTITIES:
        raise InputError(f"train_epoch: no quantity {quantity!r}; quantities: {', '.join(QUANTITIES)}")
    data = [tensor.detach() for tensor in (q, qd, third_input, target)]
    for name, tensor in zip(("q", "qd", QUANTITIES[quantity], "target"), data, strict=True):
        if tensor.ndim != 2 or tensor.shape[0] != q.shape[0] or not len(tensor):
            raise InputError(
                f"train_epoch: {name!r} must be [N, n], as q is {tuple(q.shape)}; got {tuple(tensor.shape)}"
            )
    if not isinstance(batch_size, int) or batch_size < 1:
        raise InputError(f"train_epoch: batch_size must be a whole number of at least 1, got {batch_size!r}")
    if shuffle:
        order = torch.randperm(len(q), device=q.device)
        data = [tensor[order] for tensor in data]
    damped = quantity == "inverse_dynamics" if use_damping is None else use_damping
    error = robot.packed_error(quantity, damped, include_gravity, QUANTITIES[quantity])
    one = q.new_ones(1)
    variance = one.expand(target.shape[-1]).contiguous() if variance is None else variance.to(q).detach()
    packed = torch.cat([one, *_flat(robot.learned_tensors(q))])
    error(*[tensor[:1] for tensor in data], variance, packed)  # which checks shapes, dtypes and devices
    kernel = error.kernel.with_shared((*[False] * len(data), True, True))
    kernel, _ = kernel.vjp((*[False] * (len(data) + 1), True), (True,))
    batches = list(zip(*[tensor.split(batch_size) for tensor in data], strict=True))
    shares = {count: q.new_full((count,), 1.0 / count) for count in {len(rows[0]) for rows in batches}}

    def launch(rows: tuple[torch.Tensor, ...], flat: list[torch.Tensor]) -> torch.Tensor:
        count = len(rows[0])
        return kernel.run([*rows, variance, torch.cat([one, *flat]), shares[count]], (), (count,))[0]

    losses = []
    optimizer.zero_grad()
    tensors = robot.learned_tensors(q)
    if all(tensor.is_leaf for tensor in tensors) and len(set(tensors)) == len(tensors):
        flat, gradient = _flat(tensors), torch.empty_like(packed)
        _distribute(tensors, gradient[1:])
        for rows in batches:
            result = launch(rows, flat)
            gradient.copy_(result)
            losses.append(result[:1])
            optimizer.step()
    else:
        for rows in batches:
            optimizer.zero_grad()
            tensors = robot.learned_tensors(q)
            result = launch(rows, _flat(tensors))
            _distribute(tensors, result[1:])
            losses.append(result[:1])
            optimizer.step()
    all_losses = torch.cat(losses)
    if robot.check:
        robot.check_learned(all_losses)
    return all_losses


def _flat(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().reshape(-1) for tensor in tensors]


def _distribute(tensors: list[torch.Tensor], gradient: torch.Tensor) -> None:
    """Give each tensor its part of the gradient, as `backward` does."""
    derived, start = [], 0
    for tensor in tensors:
        end = start + math.prod(tensor.shape)
        if tensor.requires_grad:
            part = gradient[start:end].view(tensor.shape)
            if not tensor.is_leaf:
                derived.append((tensor, part))
            else:
                tensor.grad = part if tensor.grad is None else tensor.grad + part
        start = end
    if derived:
        torch.autograd.backward([tensor for tensor, _ in derived], [part for _, part in derived])
