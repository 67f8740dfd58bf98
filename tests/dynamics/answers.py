"""Quantities of a batch of states, by a kernel or on plain numbers."""

import torch
from reference import on_floats

from adjoin.dynamics.call import compute
from adjoin.dynamics.quantity import QUANTITIES

COMPILED = ("go2", "humanoid")


def answers(model, names, q, v, a, tau):
    """Each quantity in each state; for most large robots, whose kernels take long to compile, on plain numbers."""
    if model.nv <= 12 or model.name in COMPILED:
        return compute(model, q, v, a, tau, quantities=names)
    found = {name: [] for name in names}
    for state in zip(q, v, a, tau, strict=True):
        plain = on_floats(model, *state)
        for name in names:
            found[name].append(QUANTITIES[name].compute(plain))
    return {name: _stacked(values) for name, values in found.items()}


def _stacked(values):
    if hasattr(values[0], "_fields"):
        return type(values[0])(*[_stacked(parts) for parts in zip(*values, strict=True)])
    return torch.tensor(values, dtype=torch.float64)
