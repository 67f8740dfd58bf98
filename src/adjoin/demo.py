"""`make demo` and `adjoin demo`: thousands of robots dropped at once, then a jump found by gradients."""

import time
from pathlib import Path
from typing import Any

import torch

from adjoin import robots
from adjoin.control import Adam, Objective, OptimizeResult, Spline, optimize
from adjoin.errors import InputError
from adjoin.extras import needed
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import Trajectory

DT = 4e-3  # s
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
AHEAD, HEIGHT, TOP = 0.5, 0.5, 0.45  # m: where it lands, how high its base should be; s: and when


def main(folder: Path | None = None, quick: bool = False) -> list[Path]:
    """Run the demo, and say what it shows.

    Args:
        folder: where the files go, by default `adjoin_demo` here.
        quick: with fewer robots and iterations.

    Returns:
        The files it wrote: a replay and a plot.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)"
    print(f"Adjoin on {where}")
    folder = Path("adjoin_demo") if folder is None else Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sim = quadruped()
    model = sim.model
    print(f"\n1. {model.name}: {len(model.bodies)} bodies, {model.nv} degrees of freedom, 4 feet that meet the ground")
    drop(sim, 256 if quick else 4096, device)
    objective, found = jump(sim, 8 if quick else 64, 20 if quick else 150, device)
    files = [keep(save, folder, objective, found) for save in (write_replay, write_plot)]
    return [file for file in files if file is not None]


def quadruped() -> Simulator:
    """A Go2 with servos, on four feet."""
    model = robots.load("go2").with_servos(kp=80.0, kd=2.0)
    return Simulator(model, DT, pairs=[(foot, "ground") for foot in FEET])


def drop(sim: Simulator, count: int, device: torch.device) -> None:
    """Robots of random friction and mass fall and land, all in one launch; prints how fast."""
    model, steps = sim.model, 250
    random = torch.Generator(device).manual_seed(0)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, 1, generator=random, device=device)

    home = model.keyframe("home")
    q = torch.tensor(home.q, dtype=torch.float32, device=device).repeat(count, 1)
    q[:, 2:3] += uniform(0.05, 0.3)
    own = model.parameters((count,), device=device)
    friction, mass = own["geometry_friction"], own["mass"] * uniform(0.8, 1.2)
    friction[..., 0] = uniform(0.2, 1.2)
    controls = torch.tensor(home.control, dtype=torch.float32, device=device).expand(steps, count, -1)
    params = {"geometry_friction": friction, "mass": mass}
    print(f"\n2. {count:,} of them, each with a friction and a mass of its own, are dropped")
    path = sim.rollout(sim.state(q), controls, params)  # the first call compiles
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        path = sim.rollout(sim.state(q), controls, params)
        float(path.q[-1, 0, 0])  # waits for a GPU
        seconds.append(time.perf_counter() - start)
    rate = steps * count / min(seconds)
    standing = (path.q[-1, :, 2] > 0.15).float().mean()
    print(f"   {steps * count:,} steps with contact in {min(seconds):.3f} s: {rate:,.0f} steps a second")
    print(f"   {rate * DT:,.0f} times faster than real time; {100 * standing:.0f} % stand after {steps * DT:.0f} s")


def jump(sim: Simulator, starts: int, iterations: int, device: torch.device) -> tuple[Objective, OptimizeResult]:
    """A jump forward, from random splines of servo angles, by gradients through every contact on the way."""
    home = sim.model.keyframe("home")
    q = torch.tensor(home.q, dtype=torch.float32, device=device)
    rest = torch.tensor(home.control, dtype=torch.float32, device=device)
    objective = Objective(
        sim,
        sim.state(q),
        250,
        cost=effort,
        terminal=landed,
        loss=height,
        tensors={"rest": rest, "target": q[:3] + torch.tensor([AHEAD, 0.0, 0.0], device=device)},
        variables=Spline(12, start=rest, spread=0.5),
        outputs=["contacts"],
    )
    print(f"\n3. one learns to jump {AHEAD} m ahead by gradients through contact, from {starts} random starts at once")
    start = time.perf_counter()
    found = optimize(objective, Adam(rate=0.05), starts=starts, iterations=iterations, progress=True)
    seconds = time.perf_counter() - start
    path = objective.rollout(found.best)
    print(f"   loss from {found.history.best[0].min():.2f} to {found.loss:.3f} in {seconds:.1f} s, with compiling")
    print(f"   base up to {path.q[:, 2].max():.2f} m, and down again {path.q[-1, 0]:.2f} m ahead")
    return objective, found


def effort(next_q: Any, next_v: Any, control: Any, rest: Any) -> Any:
    """Traced, of each step: little movement, and a level base."""
    bent = control - rest
    return DT * (0.005 * (bent @ bent) + next_q[4:7] @ next_q[4:7] + 1e-4 * (next_v[6:] @ next_v[6:]))


def landed(q: Any, v: Any, target: Any, rest: Any) -> Any:
    """Traced, of the last state: at the target, level, at rest, on straight legs."""
    away, bent = q[:3] - target, q[7:] - rest
    return 20.0 * (away @ away) + 10.0 * (q[4:7] @ q[4:7]) + 0.1 * (v @ v) + 0.5 * (bent @ bent)


def height(path: Trajectory, inputs: Any) -> torch.Tensor:
    """Of the motion, by torch operations: high enough half-way."""
    return 200.0 * (path.q[round(TOP / DT), ..., 2] - HEIGHT).clamp(max=0.0).square()


def keep(save: Any, folder: Path, objective: Objective, found: OptimizeResult) -> Path | None:
    """A file of the result; says so where a package is missing, and goes on."""
    try:
        file = save(folder, objective, found)
    except InputError as problem:
        print(f"   not written: {problem}")
        return None
    print(f"   {file.resolve()}")
    return file


def write_replay(folder: Path, objective: Objective, found: OptimizeResult) -> Path:
    """The jump, as a page that plays offline."""
    from adjoin.viewer import record

    path = objective.rollout(found.best)
    print("\n4. open these:")
    record(objective.sim.model, path.q, DT, folder / "jump.html", path.outputs["contacts"], title="Go2 jumps")
    return folder / "jump.html"


def write_plot(folder: Path, objective: Objective, found: OptimizeResult) -> Path:
    """Losses of all starts, and the base on its way."""
    path = objective.rollout(found.best)
    q, times = path.q.cpu(), DT * torch.arange(len(path.q))
    figure = needed("matplotlib.figure", "plot", "the plot").Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(found.history.loss.cpu(), color="tab:blue", alpha=0.2, linewidth=0.8)
    left.semilogy(found.history.best.amin(1).cpu(), color="black", label="best")
    left.set(title="loss of each start", xlabel="iteration")
    left.legend()
    for column, name in ((0, "ahead"), (2, "height")):
        right.plot(times, q[:, column], label=name)
    right.plot([times[-1]], [AHEAD], "o", color="tab:blue")
    right.set(title="the base of the best; the dot is where it should land", xlabel="time, s", ylabel="m")
    right.legend()
    figure.savefig(folder / "jump.png", dpi=110)
    return folder / "jump.png"


if __name__ == "__main__":
    main()
