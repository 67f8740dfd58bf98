"""Solids: sections of continuum.py."""

import time
from collections.abc import Iterator
from typing import Any

import torch
from report import panel

from adjoin.continuum import BodyState, Checkpoints, Solid, SolidMaterial, box_mesh
from adjoin.control import pareto_front

LOAD = 2.0  # N, at the tip


def arm() -> tuple[Solid, torch.Tensor, torch.Tensor]:
    """A cantilever of 0.4 m x 0.06 m x 0.06 m, its clamped nodes, and those of its tip."""
    mesh = box_mesh((10, 3, 3), (0.4, 0.06, 0.06))
    solid = Solid(mesh, SolidMaterial("neo_hookean", 1000.0, 2e6, 0.3, drag=60.0), 3e-4)
    x = torch.tensor(mesh.nodes[:, 0])
    return solid, x == 0.0, x == x.max()


def pareto(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """How much material each element has, from 5 % to all of it, with a stiffness that grows with its cube."""
    solid, clamped, tip = arm()
    count, nodes = len(solid.mesh.elements), len(solid.mesh.nodes)
    place = {"dtype": torch.float64, "device": device}
    load = torch.zeros((nodes, 3), **place)
    load[tip.to(device), 2] = -LOAD / int(tip.sum())
    rest = torch.tensor(solid.mesh.nodes, **place)
    shear, first = solid.material.lame
    steps = 300 if quick else 500

    def objectives(x: torch.Tensor) -> torch.Tensor:
        filled = 0.05 + 0.95 * torch.sigmoid(x)
        stiff = 1e-3 + filled**3
        start = BodyState(rest.expand(len(x), nodes, 3), torch.zeros((len(x), nodes, 3), **place))
        params = {"shear": shear * stiff, "first": first * stiff, "load": load, "gravity": torch.zeros(3, **place)}
        last = solid.rollout(start, steps=steps, fixed=clamped, params=params, checkpoints=Checkpoints("sqrt"))
        sag = -(last.x - rest)[:, tip.to(device), 2].mean(-1)
        return torch.stack([1e3 * sag, filled.mean(-1)], -1)

    begin = time.perf_counter()
    points = 6 if quick else 20
    front = pareto_front(
        objectives, torch.zeros(count, **place), points, iterations=5 if quick else 20, learning_rate=0.3
    )
    yield {"name": "pareto: points", "value": points, "unit": ""}
    bar = {} if quick else {"at_least": 20}
    yield {"name": "pareto: non-dominated", "value": int(front.efficient.sum()), "unit": "", **bar}
    distinct = len(front.values[front.efficient].unique(dim=0))
    yield {"name": "pareto: distinct and non-dominated", "value": distinct, "unit": "", **bar}
    ends = front.values[[0, -1]]
    yield {"name": "pareto: sag of the stiffest", "value": ends[0, 0].item(), "unit": "mm"}
    yield {"name": "pareto: sag of the lightest", "value": ends[1, 0].item(), "unit": "mm"}
    yield {"name": "pareto: material of the stiffest", "value": 100 * ends[0, 1].item(), "unit": "%"}
    yield {"name": "pareto: material of the lightest", "value": 100 * ends[1, 1].item(), "unit": "%"}
    yield {"name": "pareto: seconds", "value": time.perf_counter() - begin, "unit": "s"}
    sag, filled = front.values[front.values[:, 0].argsort()].cpu().T
    yield {
        "table": {"panels": [panel("stiffness against mass", "mm of sag", "% of material", front=(sag, 100 * filled))]}
    }
