"""Cloth of triangles: stretch and shear of every triangle, bending across every inner edge, contact with itself."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage
from adjoin.continuum import attachments
from adjoin.continuum.attachments import Attachment
from adjoin.continuum.bodies import BodyState, Carried, body_inputs, move_stage, node_fields, run_body
from adjoin.continuum.colliders import Collider, Motion
from adjoin.continuum.mesh import sum_at_nodes
from adjoin.continuum.ranges import BELOW_ONE, NOT_NEGATIVE, POSITIVE, check_ranges
from adjoin.continuum.self_contact import PAIRS, SelfContact, TouchingRunner
from adjoin.continuum.step_parts import Inputs, Runner, StepParts
from adjoin.errors import InputError
from adjoin.trace import atan2, sqrt

RANGES = {"young": POSITIVE, "poisson": BELOW_ONE, "bending": NOT_NEGATIVE}


@dataclass(frozen=True)
class ClothMaterial:
    """A fabric.

    Attributes:
        density: kg/m².
        young: in-plane stiffness, Young's modulus times thickness, N/m.
        poisson: Poisson's ratio, at least 0 and less than 1.
        bending: stiffness of an edge's angle, N m; the energy is bending · length² / area · angle² / 2.
        drag: damping in proportion to mass, 1/s.
    """

    density: float = 0.2
    young: float = 100.0
    poisson: float = 0.3
    bending: float = 1e-4
    drag: float = 0.5

    def __post_init__(self):
        if not (self.density > 0 and self.young > 0 and 0 <= self.poisson < 1 and min(self.bending, self.drag) >= 0):
            raise InputError(f"cloth: a physical material has density, young > 0 and 0 <= poisson < 1, got {self}")


@dataclass(frozen=True, eq=False)
class Cloth:
    """A piece of cloth.

    Attributes:
        nodes: positions at rest, (nodes, 3), m; it need not be flat.
        triangles: indices of nodes, (triangles, 3).
        material: of all triangles.
        dt: s, of a step.
        colliders: rigid shapes that push; their `thickness` is the distance that is kept.
        self_contact: how it touches itself; None if it passes through itself.
        attachments: nodes that are held; what holds them comes after the colliders in `Motion` and in wrenches.
        atomic: contributions are added by atomic operations, in any order: the last bits differ from run to run.
    """

    nodes: np.ndarray
    triangles: np.ndarray
    material: ClothMaterial
    dt: float
    colliders: tuple[Collider, ...] = ()
    self_contact: SelfContact | None = None
    attachments: tuple[Attachment, ...] = ()
    atomic: bool = False
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        triangles = np.asarray(self.triangles)
        unknown = (triangles < 0) | (triangles >= len(self.nodes))
        if unknown.any():
            triangle = int(np.argwhere(unknown)[0, 0])
            raise InputError(f"cloth: triangle {triangle} names node {triangles[unknown][0]} of {len(self.nodes)}")
        attachments.check(self.attachments, len(self.nodes))
        flat = np.flatnonzero(self.areas <= 1e-14 * np.ptp(self.nodes) ** 2)
        if len(flat):
            raise InputError(f"cloth: triangle {flat[0]} (nodes {triangles[flat[0]].tolist()}) is degenerate")
        if not 0 < self.dt <= self.stable_dt:
            raise InputError(
                f"cloth: dt {self.dt:g} is beyond stability; the largest stable one is {self.stable_dt:.3g}"
            )

    @property
    def carried(self) -> Carried:
        """Return what pushes and holds nodes."""
        return Carried(self.colliders, self.attachments)

    @property
    def areas(self) -> np.ndarray:
        """Return the area of every triangle, m²."""
        a, b, c = (np.asarray(self.nodes, float)[np.asarray(self.triangles)[:, i]] for i in range(3))
        return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)

    @property
    def hinges(self) -> np.ndarray:
        """Return the nodes of every inner edge and the two opposite ones, (edges, 4)."""
        seen: dict[tuple[int, int], int] = {}
        found = []
        for triangle in np.asarray(self.triangles).tolist():
            for i in range(3):
                a, b, opposite = triangle[i], triangle[(i + 1) % 3], triangle[(i + 2) % 3]
                if (b, a) in seen:
                    found.append([b, a, seen[b, a], opposite])
                seen[a, b] = opposite
        return np.array(found, dtype=np.int64).reshape(-1, 4)

    @property
    def stable_dt(self) -> float:
        """Return the largest stable step: the time of sound across the smallest height of a triangle."""
        material, triangles = self.material, np.asarray(self.triangles)
        x = np.asarray(self.nodes, float)[triangles]
        edges = np.linalg.norm(x - np.roll(x, 1, 1), axis=2).max(1)
        heights = 2 * self.areas / edges
        speed = math.sqrt(material.young / (1 - material.poisson**2) / material.density)
        return float(heights.min() / speed)

    def state(
        self, x: torch.Tensor | None = None, v: torch.Tensor | None = None, dtype: Any = torch.float64
    ) -> BodyState:
        """Return nodes at rest, unless positions and velocities are given."""
        return BodyState.of(np.asarray(self.nodes, float), x, v, dtype)

    def rollout(
        self,
        state: BodyState,
        *,
        steps: int | None = None,
        fixed: torch.Tensor | None = None,
        motion: Motion | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> BodyState:
        """Run steps.

        Args:
            state: at the start.
            steps: how many, if no motion of colliders says.
            fixed: nodes that do not move, (nodes,), bool.
            motion: of the colliders and of what holds nodes; by default they rest at the origin.
            params: "young", "poisson", "bending", "load", "gravity", "drag" and "mass" of each node, with gradients.
            keep: return states at the start and after every so many steps; by default only the last.
            checkpoints: what to keep for the gradient.
        """
        inputs = self.inputs(state, fixed=fixed, params=params)
        return run_body(self._runner(), inputs, self.carried, motion, steps, keep, checkpoints)

    def inputs(
        self,
        state: BodyState,
        *,
        fixed: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
    ) -> Inputs:
        """Return what steps take, but for the motion of colliders; see `rollout`."""
        x, material = state.x, self.material
        place = {"dtype": x.dtype, "device": x.device}
        rest = np.asarray(self.nodes, float)
        shares = material.density / 3 * torch.tensor(self.areas, **place)[:, None].expand(-1, 3)
        names = ("young", "poisson", "bending")
        parameters = {name: torch.tensor(getattr(material, name), **place) for name in (*names, "drag")}
        parameters["rest"] = torch.tensor(rest, **place)
        parameters["mass"] = sum_at_nodes(np.asarray(self.triangles), shares, len(rest))
        given = dict(params or {})
        check_ranges("cloth", given, RANGES, x)
        return body_inputs(state, self.dt, parameters, self.carried, fixed, given, names)

    def result(self, states: Mapping[str, torch.Tensor]) -> BodyState:
        """Return the state that steps leave."""
        return BodyState(states["x"], states["v"])

    def _runner(self) -> Runner:
        if "runner" not in self._cache:
            self._cache["runner"] = self.parts().runner()
        return self._cache["runner"]

    def parts(self, linked: bool = False, count: int = 0) -> StepParts:
        """Return what a step is made of.

        Args:
            linked: whether links of a robot carry the colliders.
            count: of points; the cloth has it.
        """
        hinges = self.hinges
        fields = [
            *node_fields(self.carried, linked),
            *[Field(name, None, (), "parameter") for name in ("young", "poisson", "bending")],
            Field("stretching", "triangles", (3,), "temporary", "corners"),
        ]
        corners = {"x": Read("x", "corners"), "rest": Read("rest", "corners")}
        edge = {"x": Read("x", "edge"), "rest": Read("rest", "edge"), "bending": Read("bending")}
        forces = {"stretching": "corners"}
        stages = [
            Stage("stretch", "triangles", _stretch, corners | {"young": Read("young"), "poisson": Read("poisson")})
        ]
        sizes = {"nodes": len(self.nodes), "triangles": len(self.triangles)}
        tables = {"corners": np.asarray(self.triangles)}
        if len(hinges):
            fields.append(Field("bent", "hinges", (3,), "temporary", "edge"))
            stages.append(Stage("bend", "hinges", _bend, edge))
            forces["bent"] = "edge"
            sizes["hinges"], tables["edge"] = len(hinges), hinges
        connections = [
            Connection("corners", "triangles", "nodes", 3, atomic=self.atomic),
            Connection("edge", "hinges", "nodes", 4, atomic=self.atomic),
        ]
        if self.self_contact is not None:
            fields += self.self_contact.fields()
            connections += self.self_contact.connections()
            stages += self.self_contact.stages(self.dt)
            for pairs, force in PAIRS.items():
                forces[force] = f"{pairs}_nodes"
                sizes[pairs], tables[f"{pairs}_nodes"] = 1, np.array([[0, 0, 0, 0]])  # each segment has its own
        stages.append(move_stage(self.carried, self.dt, forces, linked))
        touching = None
        if self.self_contact is not None:
            touching = partial(
                TouchingRunner, touch=self.self_contact, triangles=np.asarray(self.triangles), dt=self.dt
            )
        return StepParts(fields, connections, [*stages], sizes, tables, "nodes", wrap=touching)


def _stretch(x: Any, rest: Any, young: Any, poisson: Any) -> dict[str, Any]:
    """Return the membrane force on each corner of a triangle: St. Venant-Kirchhoff in plane stress."""
    a, b = rest[1] - rest[0], rest[2] - rest[0]
    length = sqrt(a @ a)
    first = a / length
    across = b - (b @ first) * first
    height = sqrt(across @ across)
    # The columns of the inverse of [[length, b·first], [0, height]]: gradients of the shape functions in the plane.
    g1 = [1.0 / length, -(b @ first) / (length * height)]
    g2 = [0.0, 1.0 / height]
    u, w = x[1] - x[0], x[2] - x[0]
    F = [u * g1[0] + w * g2[0], u * g1[1] + w * g2[1]]  # two columns of three
    strain = [0.5 * (F[0] @ F[0] - 1.0), 0.5 * (F[1] @ F[1] - 1.0), 0.5 * (F[0] @ F[1])]
    scale = young / (1.0 - poisson * poisson)
    s00, s11 = scale * (strain[0] + poisson * strain[1]), scale * (strain[1] + poisson * strain[0])
    s01 = scale * (1.0 - poisson) * strain[2]
    P = [F[0] * s00 + F[1] * s01, F[0] * s01 + F[1] * s11]
    area = 0.5 * length * height
    f1 = -area * (P[0] * g1[0] + P[1] * g1[1])
    f2 = -area * (P[0] * g2[0] + P[1] * g2[1])
    return {"stretching": np.array([-(f1 + f2), f1, f2], dtype=object)}


def _angle(x: Any) -> tuple[Any, list[Any]]:
    """Return the angle between two triangles across an edge (x0, x1) and its gradients at the four nodes."""
    edge = x[1] - x[0]
    length = sqrt(edge @ edge)
    n1 = np.cross(edge, x[2] - x[0])
    n2 = np.cross(x[3] - x[0], edge)
    square1, square2 = n1 @ n1, n2 @ n2
    angle = atan2(np.cross(n1, n2) @ edge / length, n1 @ n2)
    at2 = -(length / square1) * n1
    at3 = -(length / square2) * n2
    along2, along3 = ((x[i] - x[0]) @ edge / (length * length) for i in (2, 3))
    at1 = -along2 * at2 - along3 * at3
    at0 = -(at1 + at2 + at3)
    return angle, [at0, at1, at2, at3]


def _bend(x: Any, rest: Any, bending: Any) -> dict[str, Any]:
    """Return the force on the four nodes of an edge that is bent away from its rest angle."""
    angle, gradients = _angle(x)
    flat, _ = _angle(rest)
    edge = rest[1] - rest[0]
    n1, n2 = np.cross(edge, rest[2] - rest[0]), np.cross(rest[3] - rest[0], edge)
    area = 0.5 * (sqrt(n1 @ n1) + sqrt(n2 @ n2))
    moment = -bending * (edge @ edge) / area * (angle - flat)
    return {"bent": np.array([moment * gradient for gradient in gradients], dtype=object)}


def square_cloth(cells: int, side: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes, (nodes, 3), and the triangles, (triangles, 3), of a flat square from the origin along x and y.

    Diagonals go one way and the other in turn, so that no direction is stiffer than the one across it.

    Args:
        cells: along each side; a cell is two triangles.
        side: m.
    """
    if cells < 1 or not side > 0:
        raise InputError(f"square_cloth: cells and side must be positive, got {cells} and {side}")
    axis = np.linspace(0.0, side, cells + 1)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    nodes = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], 1)
    number = np.arange(len(nodes)).reshape(x.shape)
    corners = np.stack([number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]], -1)
    odd = np.add.outer(np.arange(cells), np.arange(cells)) % 2 == 1
    ways = np.where(odd[..., None], [0, 1, 3, 1, 2, 3], [0, 1, 2, 0, 2, 3])
    return nodes, np.take_along_axis(corners, ways, -1).reshape(-1, 3)
