"""A model printed as a table: bodies, joints, degrees of freedom, limits, mass."""

import math
from typing import TYPE_CHECKING

from adjoin.model.parts import WORLD

if TYPE_CHECKING:
    from adjoin.model.model import Model

_HEAD = ("#", "body", "parent", "joint", "kind", "q", "v", "lower", "upper", "velocity", "effort", "mass")
_LEFT = {"body", "parent", "joint", "kind", "q", "v"}


def _number(x: float) -> str:
    return "" if math.isinf(x) else f"{x:.5g}"


def _span(start: int, size: int) -> str:
    return str(start) if size == 1 else f"{start}..{start + size - 1}"


def table(model: "Model") -> str:
    """Return the table, with a title line above it."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for index, (body, where) in enumerate(zip(model.bodies, model.coordinates, strict=True)):
        joint = body.joint
        if joint.mimic:
            q, v = f"{joint.mimic.multiplier:g} {joint.mimic.joint}{joint.mimic.offset:+g}", ""
        else:
            q, v = _span(where.q, joint.type.nq), _span(where.v, joint.type.nv)
        rows.append(
            (
                str(index),
                body.name,
                "world" if body.parent == WORLD else model.bodies[body.parent].name,
                joint.name,
                joint.kind,
                q,
                v,
                _number(joint.lower),
                _number(joint.upper),
                _number(joint.velocity_limit),
                _number(joint.effort_limit),
                f"{body.mass:.5g}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if head in _LEFT else cell.rjust(width)
            for head, cell, width in zip(_HEAD, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    counts = f"{len(model.bodies)} bodies, nq {model.nq}, nv {model.nv}, nu {model.nu}, {model.mass:.5g} kg"
    more = f"{len(model.frames)} frames, {len(model.geometries)} geometries, {len(model.keyframes)} keyframes"
    return "\n".join([f"{model.name}: {counts}; {more}", *lines])
