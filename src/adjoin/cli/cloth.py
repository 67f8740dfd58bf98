"""`adjoin cloth`: drop a piece of cloth on a ball, and keep the motion."""

import argparse
import time
from typing import Any

from adjoin.cli.field_files import add_files, check_files, steps_between, write_files
from adjoin.cli.output import number, show
from adjoin.cli.setup import count, positive
from adjoin.errors import InputError

EXAMPLES = """\
examples:
  adjoin cloth --html cloth.html
  adjoin cloth --cells 24 --radius 0.1 --thickness 0.005 --out cloth.npz --vtk cloth

A square of cloth falls on a ball whose top is at the height of 0, and hangs down from it. With --thickness it does not
pass through itself. The NPZ file has time, x and v of the nodes, and the force on the ball.
"""
KEPT = 0.01  # seconds between states that are kept


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("cloth", help="drop cloth on a ball, to NPZ, VTK and HTML", epilog=EXAMPLES)
    parser.add_argument("--cells", type=count, default=12, metavar="N", help="along each side (default 12)")
    parser.add_argument("--side", type=positive, default=0.5, metavar="M", help="of the square (default 0.5)")
    parser.add_argument("--density", type=positive, default=0.2, help="kg/m² (default 0.2)")
    parser.add_argument("--young", type=positive, default=100.0, help="stiffness in its plane, N/m (default 100)")
    parser.add_argument("--bending", type=float, default=1e-4, help="stiffness of bending, N m (default 1e-4)")
    parser.add_argument("--radius", type=positive, default=0.15, metavar="M", help="of the ball (default 0.15)")
    parser.add_argument("--friction", type=float, default=0.5, help="of the ball (default 0.5)")
    parser.add_argument("--thickness", type=float, default=0.0, metavar="M", help="kept from itself (default none)")
    parser.add_argument("--drop", type=float, default=0.05, metavar="M", help="meters above the ball (default 0.05)")
    add_files(parser, 1.0)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write the files and print how the cloth hangs at the end."""
    check_files(arguments)
    import numpy as np
    import torch

    from adjoin.continuum import Cloth, ClothMaterial, Collider, Motion, SelfContact, square_cloth

    if min(arguments.friction, arguments.thickness, arguments.drop) < 0:
        raise InputError("--friction, --thickness and --drop must be at least 0")
    nodes, triangles = square_cloth(arguments.cells, arguments.side)
    nodes = nodes - [arguments.side / 2, arguments.side / 2, 0.0]
    material = ClothMaterial(arguments.density, arguments.young, 0.3, arguments.bending)
    each, dt = steps_between(KEPT, Cloth(nodes, triangles, material, 1e-12).stable_dt)
    bare = Cloth(nodes, triangles, material, dt)
    lightest = bare.inputs(bare.state()).parameters["mass"].min().item()
    stiffness, damping = 0.2 * lightest / dt**2, 0.1 * lightest / dt
    gap = 0.02 * arguments.radius
    ball = Collider("sphere", (arguments.radius,), stiffness, damping, arguments.friction, gap)
    touch = None
    if arguments.thickness > 0:
        touch = SelfContact(arguments.thickness, 0.5 * stiffness, damping, arguments.friction)
    cloth = Cloth(nodes, triangles, material, dt, (ball,), touch)
    kept = max(1, round(arguments.seconds / KEPT))
    start = cloth.state(torch.tensor(nodes) + torch.tensor([0.0, 0.0, arguments.drop + gap]))
    place = torch.tensor([[0.0, 0.0, -arguments.radius]], dtype=torch.float64)
    begin = time.perf_counter()
    path = cloth.rollout(start, motion=Motion.at_rest(place, None, kept * each), keep=each)
    seconds = time.perf_counter() - begin
    assert path.wrench is not None
    force = -path.wrench[:, 0, 2].reshape(kept, each).mean(1)
    speed = path.v.norm(dim=-1)
    moments = KEPT * np.arange(kept + 1)
    shown = (speed, "speed, m/s")
    write_files(
        arguments, moments, path.x, triangles, triangles, {"v": path.v}, shown, (ball,), place, force=force.numpy()
    )
    data = {
        "nodes": len(nodes),
        "triangles": len(triangles),
        "dt": dt,
        "steps": kept * each,
        "seconds": seconds,
        "lowest": path.x[-1, :, 2].min().item(),
        "highest": path.x[-1, :, 2].max().item(),
        "speed": speed[-1].max().item(),
        "force": force[-1].item(),
    }
    show(
        arguments,
        data,
        f"{data['nodes']} nodes, {data['triangles']} triangles, {data['steps']} steps of {number(dt)} s in "
        f"{number(seconds)} s",
        f"at the end from z = {number(data['lowest'])} to {number(data['highest'])} m, fastest node "
        f"{number(data['speed'])} m/s, force on the ball {number(data['force'])} N",
    )
    return 0
