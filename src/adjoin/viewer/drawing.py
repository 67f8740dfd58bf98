"""The parts of a model and where they are: all that is known of a drawing before there is a page."""

import numpy as np
import torch

from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.model.parts import Frame
from adjoin.spatial.rotation import from_quaternion
from adjoin.viewer.parts import parts_of
from adjoin.viewer.visuals import Visuals


class Drawing:
    """Parts, placed by forward kinematics.

    Args:
        model: the robot.
        environments: how many will be drawn; what is round is coarser where they are many.
        visuals: parts that take the place of a link's shapes, by its name.

    Attributes:
        model: the robot.
        parts: what is drawn of it.
    """

    def __init__(self, model: Model, environments: int = 1, visuals: Visuals | None = None):
        self.model = model
        self.parts = parts_of(model, visuals, 32 if environments <= 16 else 12)
        if not self.parts:
            raise InputError(f"viewer: {model.name!r} has no bodies and no shapes, so there is nothing to see")
        frames = [Frame(str(k), part.body, part.position, part.rotation) for k, part in enumerate(self.parts)]
        self._framed = Model(model.name, model.bodies, tuple(frames), gravity=model.gravity)

    def poses(self, q: torch.Tensor) -> np.ndarray:
        """Return the poses of all parts, (..., parts, 7): x y z and the quaternion w x y z."""
        return forward_kinematics(self._framed, q, output="quaternion").float().cpu().numpy()

    def extent(self, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper corner of a box around all parts in these poses; on the safe side."""
        low = np.array([(part.mesh.vertices * part.scale).min(0) for part in self.parts])
        high = np.array([(part.mesh.vertices * part.scale).max(0) for part in self.parts])
        rotation = _matrices(poses)
        middle = poses[..., :3] + (rotation @ (0.5 * (low + high))[..., None])[..., 0]
        reach = (np.abs(rotation) @ (0.5 * (high - low))[..., None])[..., 0]
        return (middle - reach).reshape(-1, 3).min(0), (middle + reach).reshape(-1, 3).max(0)

    def standing(self) -> torch.Tensor:
        """Return the first key frame; without one neutral, with what can fall lifted until nothing is below z = 0."""
        if self.model.keyframes:
            return torch.tensor(self.model.keyframes[0].q)
        q = self.model.neutral()
        coordinates = zip(self.model.joints, self.model.coordinates, strict=True)
        heights = [where.q + 2 for joint, where in coordinates if joint.type.floating]
        if heights:
            poses = self.poses(q)
            down = _matrices(poses)[:, 2]
            tips = [(part.mesh.vertices * part.scale @ row).min() for part, row in zip(self.parts, down, strict=True)]
            q[heights] -= min(float((poses[:, 2] + tips).min()), 0.0)
        return q


def _matrices(poses: np.ndarray) -> np.ndarray:
    w, x, y, z = np.moveaxis(poses[..., 3:], -1, 0)
    return np.moveaxis(np.array(from_quaternion((w, x, y, z))), (0, 1), (-2, -1))
