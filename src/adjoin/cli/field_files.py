"""What commands of soft bodies and fields share: where results go, and how long and how finely motion is kept."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adjoin.cli.output import writable
from adjoin.cli.setup import positive
from adjoin.extras import needed

if TYPE_CHECKING:
    import numpy as np
    import torch

    from adjoin.continuum import Collider


def add_files(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add the options that say how long it takes and where results go."""
    parser.add_argument("--seconds", type=positive, default=seconds, help=f"how long (default {seconds:g})")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write the motion")
    parser.add_argument("--vtk", type=Path, metavar="FOLDER", help="write files for ParaView")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="write a replay")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def check_files(arguments: argparse.Namespace) -> None:
    """Raise if a file cannot be written, before anything is computed."""
    for path in (arguments.out, arguments.html):
        writable(path)
    if arguments.html:
        needed("viser", "viewer", "--html")


def steps_between(kept: float, largest: float) -> tuple[int, float]:
    """Return how many steps of at most half the largest stable length lie between two kept states, and their length."""
    each = max(1, -int(-kept // (0.5 * largest)))
    return each, kept / each


def write_files(
    arguments: argparse.Namespace,
    moments: "np.ndarray",
    points: "torch.Tensor",
    cells: "np.ndarray | None",
    surface: "np.ndarray | None",
    fields: "dict[str, torch.Tensor]",
    shown: "tuple[torch.Tensor, str]",
    colliders: "tuple[Collider, ...]" = (),
    place: "torch.Tensor | None" = None,
    **more: Any,
) -> None:
    """Write what was asked for.

    Args:
        arguments: of the command.
        moments: s, (kept,).
        points: (kept, n, 2 or 3).
        cells: indices of points for ParaView; None for particles.
        surface: triangles for the replay; None for particles.
        fields: of the points, (kept, n, ...), by name.
        shown: the field that colors the replay, (kept, n), and its label.
        colliders: shapes for the replay.
        place: where they rest, (colliders, 3), m; by default at the origin.
        more: what else the NPZ file has.
    """
    import numpy as np

    from adjoin.continuum import Motion, write_vtk, write_vtk_series

    if arguments.out:
        arrays = {name: values.numpy() for name, values in {"x": points, **fields}.items()}
        np.savez(arguments.out, time=moments, **arrays, **more)
    if arguments.vtk:
        arguments.vtk.mkdir(parents=True, exist_ok=True)
        files = [arguments.vtk / f"{i:05d}.vtu" for i in range(len(moments))]
        for i, file in enumerate(files):
            write_vtk(file, points[i], cells, point_data={name: values[i] for name, values in fields.items()})
        write_vtk_series(arguments.vtk / "motion.pvd", moments.tolist(), files)
    if arguments.html:
        from adjoin.viewer import SoftBody, record_soft

        body = SoftBody(points, surface, *shown)
        title = f"adjoin {arguments.command}"
        motion = None if place is None else Motion.at_rest(place, None, 1)
        record_soft(
            body, float(moments[1] - moments[0]), arguments.html, colliders=colliders, motion=motion, title=title
        )
