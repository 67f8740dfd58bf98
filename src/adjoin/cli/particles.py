"""`adjoin particles`: let a block of particles fall, break or flow, and keep the motion."""

import argparse
import time
from typing import Any

from adjoin.cli.field_files import add_files, check_files, steps_between, write_files
from adjoin.cli.output import number, show
from adjoin.cli.setup import count, positive
from adjoin.errors import InputError

EXAMPLES = """\
examples:
  adjoin particles liquid --html dam.html
  adjoin particles sand --dimensions 3 --cells 24 --seconds 0.5 --out heap.npz --vtk heap

A block of a material stands in a corner of a box of 1 m, in two or three dimensions, and moves by the material point
method. The NPZ file has time, x and v of the particles.
"""
KEPT = 0.01  # seconds between states that are kept


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("particles", help="let particles fall or flow, to NPZ, VTK and HTML", epilog=EXAMPLES)
    parser.add_argument("kind", help="elastic, neo_hookean, liquid, snow or sand")
    parser.add_argument("--dimensions", type=int, choices=(2, 3), default=2, help="2 (default) or 3")
    parser.add_argument("--cells", type=count, default=40, metavar="N", help="along each side of the box (default 40)")
    parser.add_argument("--density", type=positive, default=1000.0, help="kg/m³ (default 1000)")
    parser.add_argument("--young", type=positive, default=1e5, help="Young's modulus, Pa (default 1e5)")
    parser.add_argument("--poisson", type=float, default=0.3, help="Poisson's ratio (default 0.3)")
    parser.add_argument("--friction", type=float, default=0.0, help="of the walls (default 0)")
    parser.add_argument("--wide", type=positive, default=0.25, metavar="M", help="of the block (default 0.25)")
    parser.add_argument("--high", type=positive, default=0.5, metavar="M", help="of the block (default 0.5)")
    parser.add_argument("--drop", type=float, default=0.0, metavar="M", help="meters above the ground (default 0)")
    add_files(parser, 1.0)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write the files and print where the particles are at the end."""
    check_files(arguments)
    import numpy as np
    import torch

    from adjoin.continuum import ParticleMaterial, Particles

    if not arguments.friction >= 0 or not arguments.drop >= 0:
        raise InputError("--friction and --drop must be at least 0")
    dim, spacing = arguments.dimensions, 1.0 / arguments.cells
    material = ParticleMaterial(arguments.kind, arguments.density, arguments.young, arguments.poisson)
    shear, first = material.lame
    largest = spacing * (arguments.density / (2 * shear + first)) ** 0.5
    each, dt = steps_between(KEPT, largest)
    world = Particles((arguments.cells + 6,) * dim, spacing, dt, material, friction=arguments.friction)
    corner, half = world.boundary * spacing, spacing / 2  # particles stand half a cell apart
    sides = [arguments.wide] * (dim - 1) + [arguments.high]
    if max(*sides, arguments.high + arguments.drop) > 1.0:
        raise InputError(f"the block must fit the box of 1 m, but needs {max(*sides, sides[-1] + arguments.drop):g} m")
    axes = [corner + half * (torch.arange(max(1, round(side / half)), dtype=torch.float64) + 0.5) for side in sides]
    axes[-1] = axes[-1] + arguments.drop
    x = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim)
    kept = max(1, round(arguments.seconds / KEPT))
    begin = time.perf_counter()
    path = world.rollout(world.state(x), half**dim, steps=kept * each, keep=each)
    seconds = time.perf_counter() - begin
    places = path.x - corner
    speed = path.v.norm(dim=-1)
    write_files(arguments, KEPT * np.arange(kept + 1), places, None, None, {"v": path.v}, (speed, "speed, m/s"))
    last = places[-1]
    data = {
        "particles": len(x),
        "dt": dt,
        "steps": kept * each,
        "seconds": seconds,
        "front": last[:, 0].max().item(),
        "highest": last[:, -1].max().item(),
        "mean": last.mean(0).tolist(),
        "speed": speed[-1].max().item(),
    }
    show(
        arguments,
        data,
        f"{len(x)} particles, {data['steps']} steps of {number(dt)} s in {number(seconds)} s",
        f"at the end the front is at {number(data['front'])} m, the highest particle at {number(data['highest'])} m; "
        f"the fastest has {number(data['speed'])} m/s",
    )
    return 0
