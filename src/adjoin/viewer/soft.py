"""Soft bodies in a scene: surfaces and particles that move, colored by a field of theirs, and what they touch."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from adjoin.continuum.colliders import Collider, Motion
from adjoin.errors import InputError
from adjoin.spatial.rotation import to_quaternion
from adjoin.spatial.vector import vector3
from adjoin.viewer import server
from adjoin.viewer.legend import BANDS, band_colors, colors_of, legend
from adjoin.viewer.parts import FIXED_COLOR, surface_of
from adjoin.viewer.replay_page import Replay, titled, with_overlay

PLAIN = (112, 164, 214)


@dataclass(frozen=True, eq=False)
class SoftBody:
    """Nodes or particles over time.

    Attributes:
        points: positions, (steps, n, 3), or (steps, n, 2) of a body in the plane of x and z, m.
        triangles: of a surface, indices of points, (triangles, 3); None for particles.
        values: of a field at the points, (steps, n); they color the surface or the particles.
        label: what the values are, with their unit.
        size: of a point, m; by default about half the distance of neighbors.
    """

    points: torch.Tensor | ArrayLike
    triangles: torch.Tensor | ArrayLike | None = None
    values: torch.Tensor | ArrayLike | None = None
    label: str = ""
    size: float | None = None


@dataclass(frozen=True, eq=False)
class Drawn:
    """What of a body is drawn.

    Attributes:
        points: of every frame, (frames, n, 3).
        triangles: of its surface, (triangles, 3).
        shades: of the points from the least value to the greatest, (frames, n), 0 to 1.
        size: of a point, m.
        legend: of the values, HTML; "" if there are none.
    """

    points: np.ndarray
    triangles: np.ndarray | None
    shades: np.ndarray | None
    size: float
    legend: str


class SoftScene:
    """Soft bodies in the scene of a viser server.

    Args:
        running: a viser server.
        bodies: what to draw.
        indices: of the steps that are frames.
    """

    def __init__(self, running: Any, bodies: Sequence[SoftBody], indices: Sequence[int] | None = None):
        self.bodies = [_checked(i, body, indices) for i, body in enumerate(bodies)]
        self._surfaces: dict[int, list[Any]] = {}
        self._clouds: dict[int, Any] = {}
        for i, body in enumerate(self.bodies):
            if body.triangles is None:
                self._clouds[i] = running.scene.add_point_cloud(
                    f"/soft/{i}/points",
                    body.points[0],
                    np.array(PLAIN, np.uint8),
                    point_size=body.size,
                    point_shape="circle",
                )
                continue
            # A mesh of viser has one color, so the triangles of each band of values are a mesh.
            colors = [PLAIN] if body.shades is None else band_colors()
            self._surfaces[i] = [
                running.scene.add_mesh_simple(
                    f"/soft/{i}/surface/{k}", body.points[0], body.triangles, color=color, side="double",
                    flat_shading=body.shades is not None,
                )
                for k, color in enumerate(colors)
            ]  # fmt: skip
        self.draw(0)

    @property
    def frames(self) -> int:
        """Return how many frames there are."""
        return min(len(body.points) for body in self.bodies)

    @property
    def legend(self) -> str:
        """Return what the colors mean, as HTML; "" if there are no values."""
        return "".join(body.legend for body in self.bodies)

    def draw(self, frame: int) -> None:
        """Move everything to where it is in a frame."""
        for i, body in enumerate(self.bodies):
            points, shades = body.points[frame], None if body.shades is None else body.shades[frame]
            if body.triangles is None:
                self._clouds[i].points = points
                if shades is not None:
                    self._clouds[i].colors = colors_of(shades)
            elif shades is None:
                self._surfaces[i][0].vertices = points
            else:
                bands = np.minimum(BANDS * shades[body.triangles].mean(1), BANDS - 1).astype(int)
                for k, surface in enumerate(self._surfaces[i]):
                    _replace(surface, points, body.triangles[bands == k])

    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper corner of a box around all frames."""
        low = np.min([body.points.min((0, 1)) for body in self.bodies], 0)
        return low, np.max([body.points.max((0, 1)) for body in self.bodies], 0)


def _replace(surface: Any, points: np.ndarray, triangles: np.ndarray) -> None:
    """Give a mesh other triangles, with only the points that they have."""
    surface.visible = bool(len(triangles))
    if len(triangles):
        used, faces = np.unique(triangles, return_inverse=True)
        surface.vertices, surface.faces = points[used], faces.reshape(-1, 3).astype(np.uint32)


class ColliderScene:
    """Rigid shapes in the scene of a viser server.

    Args:
        running: a viser server.
        colliders: what to draw.
        motion: where they are in each step.
        extent: of planes to each side, m.

    Attributes:
        lowest: height of the lowest point of those that have one, in all steps, and of the ground, m.
    """

    def __init__(self, running: Any, colliders: Sequence[Collider], motion: Motion, extent: float):
        self._positions, self._rotations = (
            x.detach().double().cpu().numpy() for x in (motion.position, motion.rotation)
        )
        wanted = (len(self._positions), len(colliders))
        if self._positions.shape != (*wanted, 3) or self._rotations.shape != (*wanted, 3, 3):
            raise InputError(
                f"colliders: {len(colliders)} have positions (steps, {len(colliders)}, 3) and rotations "
                f"(steps, {len(colliders)}, 3, 3), got {self._positions.shape} and {self._rotations.shape}"
            )
        self._handles = []
        self.lowest = 0.0
        for i, collider in enumerate(colliders):
            plane = collider.kind == "plane"
            a, b, c, *_ = (extent, extent, 0.0) if plane else (*collider.size, 0.0, 0.0, 0.0)
            mesh, scale = surface_of(collider.kind, (a, b, c), collider.vertices)
            handle = running.scene.add_mesh_simple(
                f"/colliders/{i}", mesh.vertices * scale, mesh.faces.astype(np.uint32), color=FIXED_COLOR,
                side="double", opacity=0.4 if plane else None,
            )  # fmt: skip
            self._handles.append(handle)
            if not plane:
                heights = self._positions[:, i, 2:] + self._rotations[:, i, 2] @ (mesh.vertices * scale).T
                self.lowest = min(self.lowest, float(heights.min()))
        self.draw(0)

    def draw(self, step: int) -> None:
        """Move the shapes to where they are in a step, or in the last one."""
        step = min(step, len(self._positions) - 1)
        for handle, position, rotation in zip(
            self._handles, self._positions[step], self._rotations[step].tolist(), strict=True
        ):
            handle.position = position
            x, y, z = (vector3(row) for row in rotation)
            handle.wxyz = to_quaternion((x, y, z))


def record_soft(
    bodies: SoftBody | Sequence[SoftBody],
    dt: float,
    path: str | os.PathLike[str],
    *,
    colliders: Sequence[Collider] = (),
    motion: Motion | None = None,
    title: str = "soft bodies",
    rate: float = 30.0,
) -> Replay:
    """Write the motion of soft bodies as a standalone HTML file, as `record` does for robots.

    Args:
        bodies: what moves.
        dt: seconds from one step to the next.
        path: of the file.
        colliders: rigid shapes to draw.
        motion: of the colliders, in the steps of the bodies; those beyond its end are as in its last. By default they
            rest at the origin.
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
    if motion is None:
        motion = Motion.at_rest(torch.zeros(len(colliders), 3), None, 1)
    running = server.start("127.0.0.1", 0)
    try:
        running.scene.set_up_direction("+z")
        scene = SoftScene(running, bodies, range(0, steps, every))
        low, high = scene.extent()
        size = float(np.linalg.norm(high - low))
        shapes = ColliderScene(running, colliders, motion, size)
        ground, cell = float(min(low[2], shapes.lowest)), 10.0 ** math.floor(math.log10(size))
        running.scene.add_grid(
            "/ground", 10 * cell, 10 * cell, cell_size=0.1 * cell, section_size=cell, position=(0.0, 0.0, ground)
        )
        flat = all(torch.as_tensor(body.points).shape[-1] == 2 for body in bodies)
        away = np.array([0.0, -1.0, 0.15]) if flat else np.array([1.0, -0.75, 0.55])
        camera = running.initial_camera
        camera.position = 0.5 * (low + high) + 1.4 * size * away / np.linalg.norm(away)
        camera.look_at = 0.5 * (low + high)
        recorder = running.get_scene_serializer()
        for frame in range(1, scene.frames):
            recorder.insert_sleep(every * dt)
            scene.draw(frame)
            shapes.draw(frame * every)
        recorder.insert_sleep(every * dt)
        page = with_overlay(recorder.as_html(), scene.legend)
    finally:
        server.stop(running)
    recording = Replay(path)
    recording.write_text(titled(page, title), encoding="utf-8")
    return recording


def _checked(number: int, body: SoftBody, indices: Sequence[int] | None) -> Drawn:
    """Return what is drawn of a body, in the steps that are frames."""
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
    shades, caption = None, ""
    if body.values is not None:
        values = torch.as_tensor(body.values).detach().float().cpu().numpy()
        if values.shape != points.shape[:2]:
            raise InputError(
                f"soft body {number}: values must have the shape {points.shape[:2]} of the points, got {values.shape}"
            )
        low, high = float(values.min()), float(values.max())
        shades = (values - low) / max(high - low, 1e-30)
        caption = legend(body.label, low, high)
    chosen = slice(None) if indices is None else [min(i, len(points) - 1) for i in indices]
    return Drawn(points[chosen], triangles, None if shades is None else shades[chosen], size, caption)
