"""`adjoin heat`: heat in a body, under a beam and in the air, and keep the temperatures."""

import argparse
import time
from typing import Any

from adjoin.cli.field_files import add_files, check_files, steps_between, write_files
from adjoin.cli.output import number, show
from adjoin.cli.setup import count, positive
from adjoin.errors import InputError

EXAMPLES = """\
examples:
  adjoin heat box --power 200 --html box.html
  adjoin heat part.msh --scale 1e-3 --start 900 --convection 200 --seconds 60 --out cooling.npz --vtk cooling

A mesh of tetrahedra or hexahedra, in any format that meshio reads, or a box of 10 cm. A beam shines on the middle of
its upper side; its surface cools by convection and radiation. The NPZ file has time, x and temperature of the nodes.
"""
MOMENTS = 100  # that are kept


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("heat", help="heat and cool a body, to NPZ, VTK and HTML", epilog=EXAMPLES)
    parser.add_argument("mesh", help="a file, or box")
    parser.add_argument("--scale", type=positive, default=1.0, help="of the file's unit of length, m (default 1)")
    parser.add_argument("--cells", type=count, default=6, metavar="N", help="of the box along each axis (default 6)")
    parser.add_argument("--density", type=positive, default=7800.0, help="kg/m³ (default 7800)")
    parser.add_argument("--specific-heat", type=positive, default=500.0, help="J/(kg K) (default 500)")
    parser.add_argument("--conductivity", type=positive, default=40.0, help="W/(m K) (default 40)")
    parser.add_argument("--start", type=positive, default=300.0, help="temperature at the start, K (default 300)")
    parser.add_argument("--ambient", type=positive, default=300.0, help="temperature around, K (default 300)")
    parser.add_argument("--convection", type=float, default=20.0, help="W/(m² K) (default 20)")
    parser.add_argument("--emissivity", type=float, default=0.0, help="of the surface (default 0)")
    parser.add_argument("--power", type=float, default=0.0, metavar="W", help="of the beam (default 0)")
    parser.add_argument("--radius", type=positive, metavar="M", help="of the beam (default 1.5 elements)")
    add_files(parser, 60.0)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write the files and print the temperatures at the end."""
    check_files(arguments)
    import numpy as np
    import torch

    from adjoin.continuum import Heat, HeatMaterial, Laser, box_mesh, read_mesh

    box = arguments.mesh == "box"
    mesh = box_mesh((arguments.cells,) * 3, (0.1, 0.1, 0.1)) if box else read_mesh(arguments.mesh, arguments.scale)
    if min(arguments.convection, arguments.emissivity, arguments.power) < 0 or arguments.emissivity > 1:
        raise InputError("--convection and --power must be at least 0, and --emissivity from 0 to 1")
    material = HeatMaterial(arguments.density, arguments.specific_heat, arguments.conductivity)
    around = (arguments.convection, arguments.emissivity, arguments.ambient)
    volumes = mesh.integrals()[0]
    wide = (volumes.sum().item() / len(mesh.elements)) ** (1 / 3)
    radius = 1.5 * wide if arguments.radius is None else arguments.radius
    if radius < wide and arguments.power > 0:
        raise InputError(f"a beam of {radius:.3g} m is narrower than an element; it must have at least {wide:.3g} m")
    beam = Laser(radius)
    each, dt = steps_between(arguments.seconds / MOMENTS, Heat(mesh, material, 1e-12).stable_dt)
    heat = Heat(mesh, material, dt, *around, laser=beam)
    steps = each * MOMENTS
    top = (mesh.nodes.min(0) + mesh.nodes.max(0)) / 2
    top[2] = mesh.nodes[:, 2].max()
    start = torch.full((len(mesh.nodes),), arguments.start, dtype=torch.float64)
    power = torch.full((steps,), arguments.power, dtype=torch.float64)
    begin = time.perf_counter()
    path = heat.rollout(start, power, torch.tensor(top).expand(steps, 3), keep=each)
    seconds = time.perf_counter() - begin
    found = path.temperature
    if not bool(found[-1].isfinite().all()):
        raise InputError("the temperatures are not finite: convection or radiation is too strong for these cells")
    moments = each * dt * np.arange(MOMENTS + 1)
    points = torch.tensor(mesh.nodes).expand(len(moments), -1, 3)
    fields = {"temperature": found}
    write_files(arguments, moments, points, mesh.elements, mesh.surface(), fields, (found, "temperature, K"))
    capacity = material.density * arguments.specific_heat * volumes
    weight = torch.zeros(len(mesh.nodes), dtype=torch.float64)
    weight.index_add_(0, torch.as_tensor(mesh.elements).ravel(), capacity.ravel())
    data = {
        "nodes": len(mesh.nodes),
        "elements": len(mesh.elements),
        "dt": dt,
        "steps": steps,
        "seconds": seconds,
        "lowest": found[-1].min().item(),
        "mean": ((weight @ found[-1]) / weight.sum()).item(),
        "highest": found[-1].max().item(),
        "stored": (weight @ (found[-1] - found[0])).item(),
    }
    show(
        arguments,
        data,
        f"{data['nodes']} nodes, {data['elements']} elements, {steps} steps of {number(dt)} s in {number(seconds)} s",
        f"after {number(arguments.seconds)} s from {number(data['lowest'])} to {number(data['highest'])} K, in the "
        f"mean {number(data['mean'])} K; it has taken up {number(data['stored'])} J",
    )
    return 0
