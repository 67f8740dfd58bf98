"""`adjoin soft`: drop an elastic body, and keep the motion."""

import argparse
import time
from typing import Any

from adjoin.cli.field_files import add_files, check_files, steps_between, write_files
from adjoin.cli.output import number, show
from adjoin.cli.setup import count, positive
from adjoin.errors import InputError

EXAMPLES = """\
examples:
  adjoin soft box --drop 0.1 --html box.html
  adjoin soft bunny.msh --scale 1e-3 --young 5e4 --out bunny.npz --vtk bunny

A mesh of tetrahedra or hexahedra, in any format that meshio reads, or a box of 10 cm. It falls to the ground in
explicit steps of half the largest stable length. The NPZ file has time, x and v of the nodes, and the force on the
ground.
"""
KEPT = 0.01  # seconds between states that are kept


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("soft", help="drop a soft body, to NPZ, VTK and HTML", epilog=EXAMPLES)
    parser.add_argument("mesh", help="a file, or box")
    parser.add_argument("--scale", type=positive, default=1.0, help="of the file's unit of length, m (default 1)")
    parser.add_argument("--cells", type=count, default=3, metavar="N", help="of the box along each axis (default 3)")
    parser.add_argument("--kind", default="neo_hookean", help="neo_hookean (default) or corotated")
    parser.add_argument("--density", type=positive, default=1000.0, help="kg/m³ (default 1000)")
    parser.add_argument("--young", type=positive, default=1e5, help="Young's modulus, Pa (default 1e5)")
    parser.add_argument("--poisson", type=float, default=0.3, help="Poisson's ratio (default 0.3)")
    parser.add_argument("--friction", type=float, default=0.5, help="of the ground (default 0.5)")
    parser.add_argument("--drop", type=float, default=0.0, metavar="M", help="meters above the ground (default 0)")
    add_files(parser, 1.0)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write the files and print where the body comes to rest."""
    check_files(arguments)
    import numpy as np
    import torch

    from adjoin.continuum import Collider, Solid, SolidMaterial, box_mesh, read_mesh

    if arguments.mesh == "box":
        mesh = box_mesh((arguments.cells,) * 3, (0.1, 0.1, 0.1))
    else:
        mesh = read_mesh(arguments.mesh, arguments.scale)
    if not arguments.friction >= 0 or not arguments.drop >= 0:
        raise InputError("--friction and --drop must be at least 0")
    drag = 0.5  # 1/s: it comes to rest
    material = SolidMaterial(arguments.kind, arguments.density, arguments.young, arguments.poisson, drag)
    largest = Solid(mesh, material, 1e-12).stable_dt
    each, dt = steps_between(KEPT, largest)
    kept = max(1, round(arguments.seconds / KEPT))
    nodes = torch.tensor(mesh.nodes)
    lightest = Solid(mesh, material, dt).inputs(Solid(mesh, material, dt).state()).parameters["mass"].min().item()
    ground = Collider("plane", (), 0.2 * lightest / dt**2, 0.3 * lightest / dt, arguments.friction)
    solid = Solid(mesh, material, dt, colliders=(ground,))
    start = solid.state(nodes + torch.tensor([0.0, 0.0, arguments.drop - nodes[:, 2].min().item()]))
    begin = time.perf_counter()
    path = solid.rollout(start, steps=kept * each, keep=each)
    seconds = time.perf_counter() - begin
    assert path.wrench is not None
    moments = KEPT * np.arange(kept + 1)
    force = -path.wrench[:, 0, 2].reshape(kept, each).mean(1)
    shown = (path.v.norm(dim=-1), "speed, m/s")
    fields = {"v": path.v}
    write_files(
        arguments, moments, path.x, mesh.elements, mesh.surface(), fields, shown, (ground,), force=force.numpy()
    )
    found = {
        "nodes": len(mesh.nodes),
        "elements": len(mesh.elements),
        "dt": dt,
        "steps": kept * each,
        "seconds": seconds,
        "lowest": path.x[-1, :, 2].min().item(),
        "highest": path.x[-1, :, 2].max().item(),
        "speed": path.v[-1].norm(dim=-1).max().item(),
        "force": force[-1].item(),
    }
    show(
        arguments,
        found,
        f"{found['nodes']} nodes, {found['elements']} elements, {found['steps']} steps of {number(dt)} s in "
        f"{number(seconds)} s",
        f"at the end from z = {number(found['lowest'])} to {number(found['highest'])} m, fastest node "
        f"{number(found['speed'])} m/s, force on the ground {number(found['force'])} N",
    )
    return 0
