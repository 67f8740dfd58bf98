"""A G1 lies down on its back, rests, and gets up again. Its control is a table of postures: it measures nothing.

Servos follow the table, with no more torque than the robot's file allows. Contact of the whole body does the rest:
heels, hands, seat and head touch the ground, arms and thighs each other. `get_up.py` has the table and says how it was
found; `--search` finds again how it sits up, the part that needs most speed, from a crude guess.
One learns: to simulate a motion with all its contacts, and to search for one that works on any floor.
"""

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from get_up import SCRIPT, measured, perform, robot, search, table, targets
from matplotlib.figure import Figure

import adjoin
from adjoin.viewer import record


def main(quick: bool = False, folder: Path | None = None, again: bool = False) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    sim = adjoin.Simulator(robot())  # nothing chosen: the library's contacts, solver and time step
    controls = targets(sim.model, *table(SCRIPT), sim.dt)
    paths = list(perform(sim, controls))
    if again:
        for time, posture in zip(*search(sim, paths[11].last), strict=True):
            print(f"{time:.1f} s after lying:", *(f"{angle:.2f}" for angle in posture))
    parts = [measured(sim, path) for path in paths]
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    rest, end = (slice(round(a / sim.dt), round(b / sim.dt)) for a, b in ((11.4, 12.4), (23.1, 25.1)))
    print(f"before it lies down its head is at {found['head'][0]:.3f} m")
    print(
        f"rests on its back: head at {found['head'][rest].max():.3f} m, pelvis at {found['pelvis'][rest].max():.3f} m, "
        f"cosine of chest to vertical {found['chest'][rest].min():.3f}, speed {found['speed'][rest].max():.1e}"
    )
    print(
        f"stands for 2 s: head at {found['head'][end].min():.3f} m, cosine of torso to vertical "
        f"{found['upright'][end].min():.3f}, speed {found['speed'][end].max():.1e}, "
        f"{int(found['other contacts'][end].sum())} contacts other than of feet"
    )
    print(f"shapes never overlap by more than {1e3 * found['depth'].max():.2f} mm")
    q = torch.cat([path.q[1:] for path in paths])
    if not quick and find_spec("viser"):
        page = record(sim.model, q[::10], 10 * sim.dt, folder / "get_up.html", title="Down and up again")
        print(f"to be opened in a browser: {page}")
    figure = Figure(figsize=(15, 5), layout="constrained")
    above, below = figure.subplots(2, 1)
    for k, time in enumerate(np.arange(0.4, 25.0, 1.2)):
        now = q[round(time / sim.dt)]
        place = adjoin.forward_kinematics(sim.model, now, [body.name for body in sim.model.bodies])[:, :3, 3]
        for body, end_point in zip(sim.model.bodies[1:], place[1:], strict=True):
            pair = torch.stack([place[body.parent], end_point]) - place[0] * torch.tensor([1.0, 1.0, 0.0])
            above.plot(pair[:, 0] + 0.8 * k, pair[:, 2], "k-", linewidth=2)
    above.set_aspect("equal")
    above.set_axis_off()
    below.plot(sim.dt * np.arange(len(q)), found["head"])
    below.set(xlabel="time, s", ylabel="height of the head, m")
    figure.savefig(picture := folder / "get_up.png", dpi=90)
    print(f"postures and height: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="no replay")
    options.add_argument("--search", dest="again", action="store_true", help="search for the sitting up, minutes")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
