"""Robots in a viser scene: every environment's parts as instances of a few meshes, moved by forward kinematics."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from adjoin.collision.terrain import Heightfield
from adjoin.dynamics.centroidal import center_of_mass
from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.model.parts import WORLD
from adjoin.spatial.rotation import to_quaternion
from adjoin.viewer import mesh
from adjoin.viewer.drawing import Drawing
from adjoin.viewer.mesh import Mesh
from adjoin.viewer.parts import from_z

FORCE_COLOR = (10, 88, 208)
BALANCE = (250, 190, 40)
GROUND_COLOR = (238, 240, 243)
TERRAIN_COLOR = (196, 203, 190)
FIELD_OF_VIEW = math.radians(40.0)


class Forces(NamedTuple):
    """Contact forces to draw, (..., n, 3) both."""

    position: np.ndarray
    force: np.ndarray

    def at(self, frame: int) -> "Forces":
        """Return those of one frame."""
        return Forces(self.position[frame], self.force[frame])


class Scene:
    """What a page shows. Positions of environments are those of a grid, so that they do not overlap.

    Args:
        server: a viser server.
        drawing: the robot.
        q: where the robots are at first, (environments, nq).
        spacing: between environments, m; by default about one and a half robots.
        terrain: heights in the place of the ground.
    """

    def __init__(
        self,
        server: Any,
        drawing: Drawing,
        q: torch.Tensor,
        spacing: float | None = None,
        terrain: Heightfield | None = None,
    ):
        self.server, self.drawing, self.model = server, drawing, drawing.model
        terrain = terrain or Heightfield.of(self.model)
        poses = drawing.poses(q)
        low, high = drawing.extent(poses)
        self.size = float(max(high - low))
        apart = 1.3 * self.size if terrain is None else 1.05 * _width(terrain)
        self.offsets = _grid(len(q), apart if spacing is None else spacing)
        self._arrows: Any = None
        self._axes: Any = None
        self._balance: Any = None
        server.scene.set_up_direction("+z")
        self._floor: Any = None
        self._ground(terrain)
        self.frame(q)
        self._moving = self._add_parts(poses)

    @property
    def moving(self) -> list[Any]:
        """Return the viser nodes of what moves."""
        return [handle for handle, _ in self._moving]

    def draw(
        self,
        q: torch.Tensor,
        forces: Forces | None = None,
        *,
        frames: bool = False,
        center_of_mass: bool = False,
    ) -> None:
        """Move everything to where it is at these configurations, (environments, nq)."""
        poses = self.drawing.poses(q)
        with self.server.atomic():
            for handle, chosen in self._moving:
                handle.batched_positions, handle.batched_wxyzs = self._placed(poses[:, chosen])
            self._draw_forces(forces)
            self._draw_axes(q if frames else None)
            self._draw_balance(q if center_of_mass else None)

    def frame(self, q: torch.Tensor) -> None:
        """Put the camera where it sees these configurations, (..., nq), and the floor below them.

        It looks from the front and right of a robot that faces x, from farther above at many. A page that is open
        already keeps its view.
        """
        low, high = self.drawing.extent(self.drawing.poses(q))
        if self._floor is not None:
            floats = any(body.joint.type.floating for body in self.model.bodies)
            level = 0.0 if floats or low[2] > -0.2 * self.size else float(low[2])
            self._floor.position = (0.0, 0.0, level)
        low, high = low + self.offsets.min(0), high + self.offsets.max(0)
        many = len(self.offsets) > 4
        away = np.array([1.0, -0.75, 0.9 if many else 0.55])
        distance = (0.78 if many else 0.95) * 0.5 * np.linalg.norm(high - low) / math.sin(0.5 * FIELD_OF_VIEW)
        camera = self.server.initial_camera
        camera.position = 0.5 * (low + high) + distance * away / np.linalg.norm(away)
        camera.look_at = 0.5 * (low + high)
        camera.fov = FIELD_OF_VIEW

    # What stands still

    def light(self) -> None:
        """Light from a sky in the place of viser's environment map, which costs seconds where there is no GPU.

        Not for recordings: when they begin anew, they go back to that map first, and the page blinks.
        """
        scene = self.server.scene
        scene.configure_environment_map(None)
        scene.add_light_hemisphere("/light/sky", sky_color=(255, 255, 255), ground_color=(150, 155, 165), intensity=1.3)
        scene.add_light_directional("/light/fill", color=(255, 255, 255), intensity=0.5, position=(-3.0, 3.0, 2.0))

    def _ground(self, terrain: Heightfield | None) -> None:
        scene = self.server.scene
        planes = [shape for shape in self.model.geometries if shape.kind == "plane" and shape.body == WORLD]
        if terrain is not None:
            surface = mesh.heights(terrain.heights.detach().cpu().double().numpy(), terrain.spacing, terrain.origin)
            own = [shape.position for shape in planes if shape.name in [grid.name for grid in self.model.terrain]]
            still = np.tile((1.0, 0.0, 0.0, 0.0), (len(self.offsets), 1))
            scene.add_batched_meshes_simple(
                "/terrain",
                surface.vertices,
                surface.faces,
                still,
                self.offsets + np.array(own[0] if own else (0.0, 0.0, 0.0), dtype=self.offsets.dtype),
                batched_colors=TERRAIN_COLOR,
                lod="off",
            )
            return
        cell = 10.0 ** round(math.log10(self.size)) / 4
        look = {
            "infinite_grid": True,
            "cell_size": cell,
            "section_size": 4 * cell,
            "cell_color": (214, 218, 224),
            "section_color": (180, 187, 197),
            "fade_distance": 40.0 * self.size,
            "shadow_opacity": 0.35,
            "plane_color": GROUND_COLOR,
            "plane_opacity": 1.0,
        }
        for index, plane in enumerate(planes):
            place = {"position": plane.position, "wxyz": to_quaternion(plane.rotation)}
            scene.add_grid(f"/ground/{index}", **look, **place)
        if not planes:
            self._floor = scene.add_grid("/ground", **look)

    # What moves

    def _add_parts(self, poses: np.ndarray) -> list[tuple[Any, np.ndarray]]:
        """Return instances of each mesh, moving and fixed ones apart; the moving ones with the indices of parts."""
        parts = self.drawing.parts
        groups: dict[tuple[Mesh, bool], list[int]] = {}
        for index, part in enumerate(parts):
            groups.setdefault((part.mesh, part.body == WORLD), []).append(index)
        moving = []
        for number, ((surface, fixed), chosen) in enumerate(groups.items()):
            count = len(self.offsets)
            positions, turns = self._placed(poses[:, chosen])
            handle = self.server.scene.add_batched_meshes_simple(
                f"/{'world' if fixed else 'robot'}/{number}",
                surface.vertices,
                surface.faces,
                turns,
                positions,
                batched_scales=np.tile([parts[index].scale for index in chosen], (count, 1)).astype(np.float32),
                batched_colors=np.tile([parts[index].color for index in chosen], (count, 1)).astype(np.uint8),
                lod="off",
            )
            if not fixed:
                moving.append((handle, np.array(chosen)))
        return moving

    def _placed(self, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions in the grid and quaternions of instances, environment by environment."""
        positions = poses[..., :3] + self.offsets[:, None]
        return positions.reshape(-1, 3), poses[..., 3:].reshape(-1, 4)

    # What else can be shown

    def _draw_forces(self, forces: Forces | None) -> None:
        if forces is None:
            _hide(self._arrows)
            return
        weight = max(self.model.mass, 1e-6) * max(float(np.linalg.norm(self.model.gravity)), 1.0)
        force = np.nan_to_num(forces.force.reshape(len(self.offsets), -1, 3))
        length = 0.8 * self.size * np.minimum(np.linalg.norm(force, axis=-1).reshape(-1) / weight, 1.5)
        positions = (np.nan_to_num(forces.position).reshape(force.shape) + self.offsets[:, None]).reshape(-1, 3)
        width = np.minimum(0.022 * self.size, 0.25 * length)
        scales = np.maximum(np.stack([width, width, length], -1), 1e-6)
        turns = from_z(force.reshape(-1, 3))
        if self._arrows is None:
            surface = mesh.arrow()
            self._arrows = self.server.scene.add_batched_meshes_simple(
                "/forces",
                surface.vertices,
                surface.faces,
                turns,
                positions,
                batched_scales=scales.astype(np.float32),
                batched_colors=FORCE_COLOR,
                lod="off",
                cast_shadow=False,
                receive_shadow=False,
            )
            return
        self._arrows.visible = True
        self._arrows.batched_positions, self._arrows.batched_wxyzs = positions, turns
        self._arrows.batched_scales = scales

    def _draw_axes(self, q: torch.Tensor | None) -> None:
        if q is None or not self.model.frames:
            _hide(self._axes)
            return
        poses = forward_kinematics(self.model, q, output="quaternion").float().cpu().numpy()
        positions, turns = self._placed(poses)
        if self._axes is None:
            length = 0.08 * self.size
            self._axes = self.server.scene.add_batched_axes(
                "/frames", turns, positions, axes_length=length, axes_radius=0.06 * length
            )
            return
        self._axes.visible = True
        self._axes.batched_positions, self._axes.batched_wxyzs = positions, turns

    def _draw_balance(self, q: torch.Tensor | None) -> None:
        """Draw the center of mass, and make robots transparent."""
        for handle in self.moving:
            handle.opacity = None if q is None else 0.5
        if q is None:
            _hide(self._balance)
            return
        positions = center_of_mass(self.model, q).float().cpu().numpy() + self.offsets
        if self._balance is None:
            surface = mesh.sphere()
            radius = 0.03 * self.size
            self._balance = self.server.scene.add_batched_meshes_simple(
                "/center of mass",
                surface.vertices,
                surface.faces,
                np.tile((1.0, 0.0, 0.0, 0.0), (len(positions), 1)),
                positions,
                batched_scales=np.full(len(positions), radius, np.float32),
                batched_colors=BALANCE,
                lod="off",
            )
            return
        self._balance.visible = True
        self._balance.batched_positions = positions


def _hide(handle: Any) -> None:
    if handle is not None:
        handle.visible = False


def _width(terrain: Heightfield) -> float:
    rows, columns = terrain.shape
    return max(terrain.spacing[0] * (columns - 1), terrain.spacing[1] * (rows - 1))


def _grid(count: int, spacing: float) -> np.ndarray:
    """Return places in a square around the origin, (count, 3)."""
    columns = math.ceil(math.sqrt(count))
    index = np.arange(count)
    places = np.stack([index % columns, index // columns, 0 * index], -1).astype(np.float32)
    return ((places - 0.5 * places.max(0)) * spacing).astype(np.float32)
