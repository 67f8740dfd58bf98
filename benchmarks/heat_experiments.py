"""Heat: sections of continuum.py.

The wall of Mozaffar et al., "Differentiable simulation for material thermal response design in additive manufacturing
processes" (2021): about 18,000 nodes and 15,000 hexahedra, 16,673 steps of 0.02 s, elements born along a toolpath. Not
stated, and chosen here: 60 x 10 x 25 cells of 0.5 mm of which the lowest five layers are there from the start, the
toolpath (one line a layer, there and back), the wanted power profile, and 256 nodes at which histories are compared.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from report import panel

from adjoin.continuum import Checkpoints, ConjugateGradients, Heat, HeatMaterial, ImplicitHeat, Laser, box_mesh

DT, NOMINAL, LAYERS, BASE = 0.02, 250.0, 20, 5


def wall(quick: bool) -> tuple[Heat, np.ndarray]:
    """The wall, and the laser's path, (steps, 3), mm."""
    cells = (24, 4, BASE + 4) if quick else (60, 10, BASE + LAYERS)
    layers, steps = cells[2] - BASE, 1000 if quick else 16_673
    mesh = box_mesh(cells, (0.5 * cells[0], 0.5 * cells[1], 0.5 * cells[2]))
    length, width = 0.5 * cells[0], 0.5 * cells[1]
    t = np.arange(steps) / steps * layers
    layer = np.floor(t)
    along = (t - layer) * length
    x = np.where(layer % 2 == 0, along, length - along)
    path = np.stack([x, np.full(steps, width / 2), 0.5 * (BASE + 1 + layer)], 1)
    center = mesh.nodes[mesh.elements].mean(1)
    row = np.floor(center[:, 2] / 0.5) - BASE
    distance = np.where(row % 2 == 0, center[:, 0], length - center[:, 0])
    birth = np.where(row < 0, 0.0, (row + np.maximum(distance - 1.0, 0) / length) / layers * steps * DT)
    sensors = np.random.default_rng(0).choice(len(mesh.nodes), 64 if quick else 256, replace=False)
    heat = Heat(
        mesh,
        HeatMaterial(density=0.03, specific_heat=0.5, conductivity=0.01),
        dt=DT,
        convection=5e-5,
        emissivity=0.2,
        laser=Laser(radius=1.0),
        birth=birth,
        cap=2000.0,
        sensors=sorted(sensors.tolist()),
        stefan_boltzmann=5.670374e-14,
    )
    return heat, path


def laser(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    heat, path = wall(quick)
    steps = len(path)
    place = {"dtype": torch.float32, "device": device}
    position = torch.tensor(path, **place)
    start = torch.full((len(heat.mesh.nodes),), 300.0, **place)
    tau = torch.arange(steps, **place) / steps
    wanted = NOMINAL * (0.8 - 0.25 * tau + 0.1 * torch.sin(5.0 * tau))
    with torch.no_grad():
        target = heat.rollout(start, wanted, position).sensors
    assert target is not None
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(3, 50), torch.nn.Tanh(), torch.nn.Linear(50, 50), torch.nn.Tanh(), torch.nn.Linear(50, 1)
    ).to(**place)
    features = torch.stack([torch.ones_like(tau), tau, tau * tau], -1)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    errors, taken, powers = [], [], None
    for _ in range(60 if quick else 200):
        begin = time.perf_counter()
        power = NOMINAL * 2.0 * torch.sigmoid(network(features)[:, 0])
        readings = heat.rollout(start, power, position).sensors
        assert readings is not None
        loss = (readings - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(loss.item() ** 0.5)
        taken.append(time.perf_counter() - begin)
        powers = power.detach()
        if errors[-1] <= 1.0:
            break
    best = min(errors)
    reached = next((i + 1 for i, error in enumerate(errors) if error <= 1.8), None)
    bars = ({}, {}) if quick else ({"at_most": 1.8}, {"at_most": 200})
    yield {"name": "laser: error of the history at first", "value": errors[0], "unit": "K", "peer": ("Mozaffar", 17.3)}
    yield {"name": "laser: error of the history", "value": best, "unit": "K", "peer": ("Mozaffar", 1.8), **bars[0]}
    if reached is not None:
        yield {"name": "laser: iterations to 1.8 K", "value": reached, "unit": "", **bars[1]}
    each = sorted(taken)[len(taken) // 2]
    yield {"name": "laser: an iteration", "value": each, "unit": "s", "peer": ("Mozaffar", "17-20 minutes")}
    yield {"name": "laser: a step, forward and backward", "value": 1e3 * each / steps, "unit": "ms"}
    assert powers is not None
    seconds, lines = heat.dt * torch.arange(steps), {"found": powers.cpu(), "wanted": wanted.cpu()}
    learned = panel("laser: error of the history", "iteration", "K", error=(range(len(errors)), errors))
    power = panel("laser: power", "s", "W", **{name: (seconds, values) for name, values in lines.items()})
    yield {"table": {"panels": [learned, power]}}


def speed(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    heat, path = wall(quick)
    steps = 100 if quick else 400
    for dtype in (torch.float32, torch.float64):
        position = torch.tensor(path[-steps:], dtype=dtype, device=device)
        start = torch.full((len(heat.mesh.nodes),), 300.0, dtype=dtype, device=device)
        late = (len(path) - steps) * DT
        power = torch.full((steps,), NOMINAL, dtype=dtype, device=device, requires_grad=True)
        clock = time.process_time if device == "cpu" else time.perf_counter  # of all threads together
        best = np.inf
        for _ in range(4):
            begin = clock()
            heat.rollout(start, power, position, start=late).temperature.square().mean().backward()
            if device == "cuda":
                torch.cuda.synchronize()
            best = min(best, (clock() - begin) / steps * 1e3)
        bits = 32 if dtype == torch.float32 else 64
        bar = {"at_most": 4.0 if device == "cpu" else 0.05} if bits == 32 and not quick else {}
        peer = ("Taichi, corrected", 13.1 if device == "cpu" else 0.385)
        yield {
            "name": f"speed: a step forward and backward, float{bits}",
            "value": best,
            "unit": "ms",
            "peer": peer,
            **bar,
        }
    small = 60
    position = torch.tensor(path[-small:], device=device)
    start = torch.full((len(heat.mesh.nodes),), 300.0, dtype=torch.float64, device=device)
    power = torch.full((small,), 25.0, dtype=torch.float64, device=device, requires_grad=True)

    def loss(p: torch.Tensor) -> torch.Tensor:
        last = heat.rollout(start, p, position, start=1e4, checkpoints=Checkpoints("sqrt")).temperature
        return (last - 300.0).square().mean()

    (gradient,) = torch.autograd.grad(loss(power), power)
    worst = 0.0
    for i in range(0, small, 20):
        step = torch.zeros_like(power)
        step[i] = 1e-3
        with torch.no_grad():
            slope = (loss(power + step) - loss(power - step)) / 2e-3
        worst = max(worst, abs((gradient[i] / slope - 1.0).item()))
    yield {"name": "speed: gradient beside finite differences", "value": worst, "unit": "", "at_most": 1e-5}


def treatment(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """The shortest time of heating after which the center has been held above 800 K for 60 s."""
    cells = (6, 6, 6)
    mesh = box_mesh(cells, (0.06, 0.06, 0.06))
    heat = Heat(mesh, HeatMaterial(7800.0, 500.0, 40.0), dt=0.5, convection=1500.0, sensors=[len(mesh.nodes) // 2])
    steps = 400 if quick else 1200
    t = 0.5 * torch.arange(steps, dtype=torch.float64, device=device)
    start = torch.full((len(mesh.nodes),), 300.0, dtype=torch.float64, device=device)
    furnace = 1000.0

    def held(duration: torch.Tensor) -> torch.Tensor:
        """Seconds that the center is above 800 K, smoothly counted, if the furnace is on for a duration."""
        on = torch.sigmoid((duration - t) / 1.0)
        readings = _with_ambient(heat, start, 300.0 + (furnace - 300.0) * on)
        return 0.5 * torch.sigmoid((readings - 800.0) / 2.0).sum()

    wish = 20.0 if quick else 60.0
    duration = torch.tensor(120.0, dtype=torch.float64, device=device, requires_grad=True)
    for _ in range(25):
        value = held(duration)
        (slope,) = torch.autograd.grad(value, duration)
        with torch.no_grad():
            duration -= ((value - wish) / slope.clamp(min=0.05)).clamp(-40.0, 40.0)
    with torch.no_grad():
        final = held(duration)
        scan = torch.arange(5.0, 0.5 * steps, 5.0, dtype=torch.float64, device=device)
        times = [held(d).item() for d in scan]
        shortest = next((d.item() for d, time in zip(scan, times, strict=True) if time >= wish), float("nan"))
    yield {
        "name": "treatment: time held, wanted exactly",
        "value": abs(final.item() - wish),
        "unit": "s",
        "at_most": 0.01,
    }
    yield {"name": "treatment: duration found", "value": duration.item(), "unit": "s"}
    beyond = abs(shortest - duration.item())
    yield {"name": "treatment: beside a search of all durations by 5 s", "value": beyond, "unit": "s", "at_most": 5.0}
    lines = {"search": (scan.tolist(), times), "found": ([duration.item()], [final.item()])}
    yield {"table": {"panels": [panel("heat treatment", "s, the furnace is on", "s above 800 K", **lines)]}}


def _with_ambient(heat: Heat, start: torch.Tensor, ambient: torch.Tensor) -> torch.Tensor:
    """Temperatures at the sensor under an ambient temperature that changes: one rollout a block of ten steps."""
    temperature, readings = start, []
    for block in ambient.reshape(-1, 10):
        path = heat.rollout(temperature, steps=10, params={"ambient": block.mean()})
        temperature = path.temperature
        assert path.sensors is not None
        readings.append(path.sensors[:, 0])
    return torch.cat(readings)


def identification(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """k, cp, h and the laser's power from 30 sensors with noise of 1 K."""
    mesh = box_mesh((12, 6, 3), (0.06, 0.03, 0.015))
    generator = torch.Generator().manual_seed(0)
    sensors = torch.randperm(len(mesh.nodes), generator=generator)[:30].tolist()
    heat = Heat(
        mesh,
        HeatMaterial(7800.0, 500.0, 40.0),
        dt=0.05,
        convection=80.0,
        emissivity=0.8,
        laser=Laser(5e-3, 1.0),
        sensors=sensors,
    )  # without radiation, whose strength is known, all four could be scaled alike and nothing would show it
    steps = 600 if quick else 2000
    place = {"dtype": torch.float64, "device": device}
    t = torch.arange(steps, **place) / steps
    position = torch.stack([0.03 + 0.02 * torch.sin(12 * t), torch.full_like(t, 0.015), torch.full_like(t, 0.015)], -1)
    schedule = (t < 0.5).double()
    start = torch.full((len(mesh.nodes),), 300.0, **place)
    true = torch.tensor([40.0, 500.0, 80.0, 2000.0], **place)

    def readings(p: torch.Tensor) -> torch.Tensor:
        params = {"conductivity": p[0], "specific_heat": p[1], "convection": p[2]}
        found = heat.rollout(start, p[3] * schedule, position, params=params).sensors
        assert found is not None
        return found

    with torch.no_grad():
        clean = readings(true)
    measured = clean + torch.randn(clean.shape, generator=generator, dtype=torch.float64).to(device)
    logarithm = torch.log(true * torch.tensor([0.6, 1.4, 1.5, 0.7], **place)).requires_grad_()
    optimizer = torch.optim.LBFGS([logarithm], max_iter=60, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    seen: list[torch.Tensor] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        seen.append(torch.exp(logarithm.detach()) / true)
        loss = (readings(torch.exp(logarithm)) - measured).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    error = (torch.exp(logarithm.detach()) / true - 1.0).abs() * 100
    names, ratios = ("conductivity", "specific heat", "convection", "power"), torch.stack(seen).T.cpu()
    for name, value in zip(names, error.tolist(), strict=True):
        yield {"name": f"identification: {name}", "value": value, "unit": "%", "at_most": 1.0}
    lines = {name: (range(len(seen)), values) for name, values in zip(names, ratios, strict=True)}
    yield {"table": {"panels": [panel("identification of heat", "evaluation", "of the truth", **lines)]}}


def steady(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """A block with a cold side and a hot spot: its mean temperature by every element's conductivity."""
    cells = 24 if quick or device == "cpu" else 160
    begin = time.perf_counter()
    mesh = box_mesh((cells, cells, cells), (1.0, 1.0, 1.0))
    heat = ImplicitHeat(mesh, HeatMaterial(1.0, 1.0, 1.0), solver=ConjugateGradients(1e-8, degree=3))
    place = {"dtype": torch.float64, "device": device}
    center = torch.tensor(((mesh.nodes - 0.5) ** 2).sum(1), **place)
    fixed = torch.tensor(mesh.nodes[:, 2] == 0.0, device=device)
    start = torch.full((len(mesh.nodes),), 300.0, **place)
    source = 10.0 * torch.exp(-30.0 * center) / len(mesh.nodes)
    factor = torch.ones(len(mesh.elements), **place, requires_grad=True)
    times = []
    for _ in range(2):

        def synchronized() -> float:
            if device == "cuda":
                torch.cuda.synchronize()
            return time.perf_counter()

        first = synchronized()
        temperature = heat.solve(start, fixed=fixed, params={"source": source, "conductivity_of": factor})
        second = synchronized()
        (gradient,) = torch.autograd.grad(temperature.mean(), factor)
        times.append((second - first, synchronized() - second))
    yield {"name": "steady: unknowns", "value": len(mesh.nodes), "unit": ""}
    yield {"name": "steady: preparation, once", "value": first - begin, "unit": "s"}
    bar = {"at_most": 2.0} if device == "cuda" and not quick else {}
    total = min(a + b for a, b in times)
    peer = ("torch-fem, RTX 5090", 7.4)
    yield {"name": "steady: solution and gradient", "value": total, "unit": "s", "peer": peer, **bar}
    # All conductivities together scale the rise of the temperature inversely: Euler's theorem for degree -1.
    assert isinstance(temperature, torch.Tensor)
    rise = (temperature - 300.0).mean()
    error = abs((gradient.sum() / -rise - 1.0).item())
    yield {"name": "steady: gradient beside the exact sum", "value": error, "unit": "", "at_most": 1e-5}
    axis = torch.tensor((abs(mesh.nodes[:, :2] - 0.5) < 1e-9).all(1))
    height, along = torch.tensor(mesh.nodes)[axis, 2], temperature.detach().cpu()[axis]
    line = panel("steady: along the middle axis", "m", "mK above 300 K", temperature=(height, 1e3 * (along - 300.0)))
    yield {"table": {"panels": [line]}}
