"""Domain randomization: a controller tuned on a thousand different cart-poles at once, beside one tuned on a single.

One learns: any physical number may have a value for each environment; a controller runs inside the launch; so the
gradient of the average over all these worlds to the gains is one launch too.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin import trace as at
from adjoin.control.lqr import lqr

DT, STEPS, FORCE = 0.02, 250, 20.0  # s, steps, N
MASSES, LENGTHS = (0.05, 3.0), (0.3, 3.0)  # kg, m: of the poles
CARTPOLE = """<robot name="cartpole"><link name="rail"/>
<link name="cart"><inertial><mass value="1"/>
<inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial></link>
<link name="pole"><inertial><origin xyz="0 0 0.25"/><mass value="0.1"/>
<inertia ixx="0.0021" ixy="0" ixz="0" iyy="0.0021" iyz="0" izz="0.0001"/></inertial></link>
<joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
<limit lower="-50" upper="50" effort="20" velocity="50"/></joint>
<joint name="hinge" type="continuous"><parent link="cart"/><child link="pole"/><axis xyz="0 1 0"/></joint></robot>"""


def balance(q: Any, v: Any, gains: Any) -> Any:
    """A linear controller whose force saturates smoothly."""
    wish = gains[0] * q[0] + gains[1] * q[1] + gains[2] * v[0] + gains[3] * v[1]
    return [FORCE * at.tanh(wish / FORCE)]


def unrest(next_q: Any) -> Any:
    """Bounded, so that poles that fall anyway do not outweigh the others."""
    return 1.0 - at.cos(next_q[1]) + 0.2 * at.tanh(next_q[0] * next_q[0])


def worlds(count: int, seed: int) -> dict[str, torch.Tensor]:
    """Poles of all kinds: masses, lengths and what follows from them, (count, bodies, ...)."""
    generator = torch.Generator().manual_seed(seed)
    mass, length = (
        low * (high / low) ** torch.rand(count, generator=generator, dtype=torch.float64)
        for low, high in (MASSES, LENGTHS)
    )
    none, across = torch.zeros_like(mass), mass * length.square() / 12.0
    own = adjoin.load(CARTPOLE).parameters((count,), dtype=torch.float64)
    values = {name: own[name] for name in ("mass", "com", "inertia")}
    values["mass"][:, 1], values["com"][:, 1, 2] = mass, 0.5 * length
    values["inertia"][:, 1] = torch.stack([across, none, none, across, none, 0.01 * across], -1)
    return values


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    count, tested, iterations = (256, 1024, 60) if quick else (1024, 8192, 300)
    sim = adjoin.Simulator(adjoin.load(CARTPOLE).with_motors(["slide"]), dt=DT, pairs=[], limits=False)
    A, B = sim.linearize(sim.state(dtype=torch.float64))
    weights = torch.diag(torch.tensor([1.0, 10.0, 0.1, 0.1], dtype=torch.float64))
    single = lqr(A, B, weights, 0.01 * torch.eye(1, dtype=torch.float64)).gain[0]  # for the pole of the file

    def run(gains: torch.Tensor, params: dict[str, torch.Tensor], seed: int) -> Any:
        number = len(params["mass"])
        q = 0.2 * torch.randn(number, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        nothing = torch.zeros(STEPS, number, 0, dtype=torch.float64)
        return sim.rollout(
            sim.state(q), nothing, params, controller=balance, outputs={"cost": unrest}, tensors={"gains": gains}
        )

    gains, history = single.clone().requires_grad_(), []
    optimizer = torch.optim.Adam([gains], lr=1.0)
    for iteration in range(iterations):
        optimizer.zero_grad()
        loss = run(gains, worlds(count, iteration), iteration).outputs["cost"].mean()
        loss.backward()
        optimizer.step()
        history.append(loss.item())

    params, stands = worlds(tested, 10**6), {}
    print(f"gains for cart, pole and their speeds; which of {tested} new poles stand after {STEPS * DT:g} s")
    for name, each in (("one pole, by LQR", single), (f"{count} poles at a time", gains.detach())):
        last = run(each, params, 10**6).last
        stands[name] = (last.q[:, 1].abs() < 0.2) & (last.v[:, 1].abs() < 1.0)
        print(f"{name:<22} {[round(x, 1) for x in each.tolist()]}: {100.0 * stands[name].double().mean():.1f} %")

    figure = Figure(figsize=(13, 4), layout="constrained")
    left, *rest = figure.subplots(1, 3)
    left.plot(history)
    left.set(title="Unrest, of new poles at each iteration", xlabel="iteration", ylabel="mean cost of a step")
    left.grid(alpha=0.3)
    for axes, (name, stand) in zip(rest, stands.items(), strict=True):
        for mask, color, label in ((stand, "C0", "stands"), (~stand, "C3", "falls")):
            axes.loglog(2.0 * params["com"][mask, 1, 2], params["mass"][mask, 1], ".", color=color, ms=2, label=label)
        axes.set(title=f"Tuned on {name}", xlabel="length of the pole, m", ylabel="mass of the pole, kg")
        axes.minorticks_off()
        axes.set_xticks([0.3, 1.0, 3.0], ["0.3", "1", "3"])
        axes.set_yticks([0.1, 1.0], ["0.1", "1"])
        axes.legend(loc="lower left", markerscale=5)
    picture = folder / "randomize.png"
    figure.savefig(picture, dpi=100)
    print(f"who stands and who falls: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer poles and iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
