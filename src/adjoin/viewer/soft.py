"""Soft bodies in a scene: surfaces and particles that move, colored by a field of theirs."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from adjoin.errors import InputError
from adjoin.viewer import server
from adjoin.viewer.replay_page import Replay, titled

PLAIN = (112, 164, 214)
COLORS = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)])
"""From the least value to the greatest."""


@dataclass(frozen=True, eq=False)
class SoftBody:
    """Nodes or particles over time.

    Attributes:
        points: positions, (steps, n, 3), or (steps, n, 2) of a body in the plane of x and z, m.
        triangles: of a surface, indices of points, (triangles, 3); None for particles.
        values: of a field at the points, (steps, n); they color the points.
        label: what the values are, with their unit.
        size: of a point, m; by default about half the distance of neighbors.
    """

    points: torch.Tensor | ArrayLike
    triangles: torch.Tensor | ArrayLike | None = None
    values: torch.Tensor | ArrayLike | None = None
    label: str = ""
    size: float | None = None


class SoftScene:
    """Soft bodies in the scene of a viser server.

    Args:
        running: a viser server.
        bodies: what to draw.
        indices: of the steps that are frames.
    """

    def __init__(self, running: Any, bodies: Sequence[SoftBody], indices: Sequence[int] | None = None):
        self.bodies = [_checked(i, body, indices) for i, body in enumerate(bodies)]
        self._surfaces: dict[int, Any] = {}
        self._clouds: dict[int, Any] = {}
        for i, (points, triangles, colors, size, label) in enumerate(self.bodies):
            if triangles is not None:
                self._surfaces[i] = running.scene.add_mesh_simple(
                    f"/soft/{i}/surface", points[0], triangles, color=PLAIN, side="double"
                )
            if triangles is None or colors is not None:
                tint = np.array(PLAIN, np.uint8) if colors is None else colors[0]
                self._clouds[i] = running.scene.add_point_cloud(
                    f"/soft/{i}/points", points[0], tint, point_size=size, point_shape="circle"
                )
            if label:
                top = (*points[0].mean(0)[:2], points[0][:, 2].max() + 6 * size)
                running.scene.add_label(f"/soft/{i}/label", label, position=top)

    @property
    def frames(self) -> int:
        """Return how many frames there are."""
        return min(len(body[0]) for body in self.bodies)

    def draw(self, frame: int) -> None:
        """Move everything to where it is in a frame."""
        for i, (points, _, colors, _, _) in enumerate(self.bodies):
            if i in self._surfaces:
                self._surfaces[i].vertices = points[frame]
            if i in self._clouds:
                self._clouds[i].points = points[frame]
                if colors is not None:
                    self._clouds[i].colors = colors[frame]

    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper corner of a box around all frames."""
        low = np.min([body[0].min((0, 1)) for body in self.bodies], 0)
        return low, np.max([body[0].max((0, 1)) for body in self.bodies], 0)


def record_soft(
    bodies: SoftBody | Sequence[SoftBody],
    dt: float,
    path: str | os.PathLike[str],
    *,
    title: str = "soft bodies",
    rate: float = 30.0,
) -> Replay:
    """Write the motion of soft bodies as a standalone HTML file, as `record` does for robots.

    Args:
        bodies: what moves.
        dt: seconds from one step to the next.
        path: of the file.
        title: of the page.
        rate: frames a second that are kept at most; the file's size grows with it.
    """
    bodies = [bodies] if isinstance(bodies, SoftBody) else list(bodies)
    if not bodies:
        raise InputError("record_soft: there is nothing to record")
    if not 0.0 < dt < math.inf:
        raise InputError(f"record_soft: dt must be a positive number of seconds, got {dt!r}")
    every = max(1, round(1.0 / (rate * dt)))
    steps = min(len(torch.as_tensor(body.points)) for body in bodies)
    running = server.start("127.0.0.1", 0)
    try:
        running.scene.set_up_direction("+z")
        scene = SoftScene(running, bodies, range(0, steps, every))
        low, high = scene.extent()
        running.scene.add_grid("/ground", 10.0, 10.0, cell_size=0.1, position=(0.0, 0.0, float(min(low[2], 0.0))))
        away = np.array([1.0, -0.75, 0.55])
        camera = running.initial_camera
        camera.position = 0.5 * (low + high) + 2.2 * np.linalg.norm(high - low) * away / np.linalg.norm(away)
        camera.look_at = 0.5 * (low + high)
        recorder = running.get_scene_serializer()
        for frame in range(1, scene.frames):
            recorder.insert_sleep(every * dt)
            scene.draw(frame)
        recorder.insert_sleep(every * dt)
        page = recorder.as_html()
    finally:
        server.stop(running)
    recording = Replay(path)
    recording.write_text(titled(page, title), encoding="utf-8")
    return recording


def _checked(
    number: int, body: SoftBody, indices: Sequence[int] | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, float, str]:
    """Return positions, triangles, colors, the size of a point and the label with the range of values."""
    points = torch.as_tensor(body.points).detach().float().cpu().numpy()
    if points.ndim != 3 or points.shape[2] not in (2, 3) or not points.size:
        raise InputError(f"soft body {number}: points must have the shape (steps, n, 3), got {points.shape}")
    if not np.isfinite(points).all():
        step, point = np.argwhere(~np.isfinite(points))[0][:2]
        raise InputError(f"soft body {number}: point {point} is not finite in step {step}")
    if points.shape[2] == 2:
        points = np.stack([points[..., 0], np.zeros_like(points[..., 0]), points[..., 1]], -1)
    triangles = None
    if body.triangles is not None:
        triangles = torch.as_tensor(body.triangles).cpu().numpy().astype(np.uint32)
        if triangles.ndim != 2 or triangles.shape[1] != 3 or triangles.max(initial=0) >= points.shape[1]:
            raise InputError(
                f"soft body {number}: triangles must be indices below {points.shape[1]} of shape (triangles, 3)"
            )
    spread = np.ptp(points[0], axis=0)
    volume = float(np.prod(spread[spread > 1e-9], dtype=float)) if (spread > 1e-9).any() else 1e-3
    filled = max(int((spread > 1e-9).sum()), 1)
    size = body.size or 0.5 * (volume / points.shape[1]) ** (1 / filled)
    colors, label = None, body.label
    if body.values is not None:
        values = torch.as_tensor(body.values).detach().float().cpu().numpy()
        if values.shape != points.shape[:2]:
            raise InputError(
                f"soft body {number}: values must have the shape {points.shape[:2]} of the points, got {values.shape}"
            )
        low, high = float(values.min()), float(values.max())
        place = (values - low) / max(high - low, 1e-30) * (len(COLORS) - 1)
        steps = np.arange(len(COLORS))
        colors = np.stack([np.interp(place, steps, COLORS[:, k]) for k in range(3)], -1).astype(np.uint8)
        label = f"{label}: {low:.4g} to {high:.4g}"
    chosen = slice(None) if indices is None else [min(i, len(points) - 1) for i in indices]
    return points[chosen], triangles, None if colors is None else colors[chosen], size, label
