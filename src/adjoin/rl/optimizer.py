"""Adam whose steps can be part of a CUDA graph."""

import torch
from torch import nn


def adam(module: nn.Module, rate: float, betas: tuple[float, float] = (0.9, 0.999)) -> torch.optim.Adam:
    """Return Adam for a module, with its state in place from the beginning and the learning rate as a tensor."""
    parameters = list(module.parameters())
    like = parameters[0]
    optimizer = torch.optim.Adam(
        parameters,
        torch.zeros((), dtype=torch.float32, device=like.device),  # type: ignore[arg-type]
        betas,
        fused=True,
        capturable=like.is_cuda,
    )
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # a learning rate of 0 and no gradient: it only makes the state
    for state in optimizer.state.values():
        state["step"].zero_()
    for parameter in parameters:
        parameter.grad = None
    for group in optimizer.param_groups:
        group["lr"].fill_(rate)
    return optimizer


def state_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return everything that an optimizer remembers, in a fixed order."""
    return [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
