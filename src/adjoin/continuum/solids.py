"""Elastic solids of tetrahedra and hexahedra: corotated and neo-Hookean, with muscles; explicit steps.

An element's forces are -∫ P(F) ∇N dV with the deformation gradient F = Σ x ⊗ ∇N: at one point of a tetrahedron, at
eight of a hexahedron. Gradients pass to states, activations, materials, loads, rest shapes and moving colliders.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage
from adjoin.continuum import attachments, tendons
from adjoin.continuum.attachments import Attachment
from adjoin.continuum.bodies import BodyState, Carried, body_inputs, move_stage, node_fields, run_body
from adjoin.continuum.colliders import Collider, Motion
from adjoin.continuum.mesh import Mesh, sum_at_nodes
from adjoin.continuum.ranges import NOT_NEGATIVE, POSITIVE, check_ranges
from adjoin.continuum.step_parts import Inputs, Runner, StepParts
from adjoin.errors import InputError
from adjoin.trace import log

POLAR = 6
"""Newton's iterations for the rotation of a deformation: enough for stretches from 1/4 to 4."""

RANGES = {"shear": POSITIVE._replace(member="element"), "first": NOT_NEGATIVE._replace(member="element")}


@dataclass(frozen=True)
class SolidMaterial:
    """An elastic material.

    Attributes:
        kind: "neo_hookean" or "corotated".
        density: kg/m³.
        young: Young's modulus, Pa.
        poisson: Poisson's ratio, at least 0 and less than 0.5.
        drag: damping in proportion to mass, 1/s.
    """

    kind: str = "neo_hookean"
    density: float = 1000.0
    young: float = 1e5
    poisson: float = 0.3
    drag: float = 0.0

    def __post_init__(self):
        if self.kind not in ("neo_hookean", "corotated"):
            raise InputError(f"solid: no material {self.kind!r}; materials: neo_hookean, corotated")
        if not (self.density > 0 and self.young > 0 and 0 <= self.poisson < 0.5 and self.drag >= 0):
            raise InputError(f"solid: a physical material has density, young > 0, 0 <= poisson < 0.5, got {self}")

    @property
    def lame(self) -> tuple[float, float]:
        """Return shear modulus and Lamé's first parameter."""
        shear = self.young / (2 * (1 + self.poisson))
        return shear, self.young * self.poisson / ((1 + self.poisson) * (1 - 2 * self.poisson))


@dataclass(frozen=True, eq=False)
class Solid:
    """An elastic body.

    Attributes:
        mesh: at rest.
        material: of all elements.
        dt: s, of a step.
        muscles: how many groups of fibers there are.
        colliders: rigid shapes that push.
        tendons: cables that pull: the nodes that each runs through, in order.
        attachments: nodes that are held; what holds them comes after the colliders in `Motion` and in wrenches.
        atomic: contributions are added by atomic operations, in any order: the last bits differ from run to run.
    """

    mesh: Mesh
    material: SolidMaterial
    dt: float
    muscles: int = 0
    colliders: tuple[Collider, ...] = ()
    tendons: tuple[tuple[int, ...], ...] = ()
    attachments: tuple[Attachment, ...] = ()
    atomic: bool = False
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        tendons.check(self.tendons, len(self.mesh.nodes))
        attachments.check(self.attachments, len(self.mesh.nodes))
        if not 0 < self.dt <= self.stable_dt:
            raise InputError(
                f"solid: dt {self.dt:g} is beyond stability; the largest stable one is {self.stable_dt:.3g}"
            )

    @property
    def carried(self) -> Carried:
        """Return what pushes and holds nodes."""
        return Carried(self.colliders, self.attachments)

    @property
    def stable_dt(self) -> float:
        """Return the largest stable step: 2 / ω, with ω² bounded by (λ + 2μ) / ρ times the largest of an element."""
        shear, first = self.material.lame
        volumes, conductance = self.mesh.integrals()
        root = volumes.rsqrt()
        largest = torch.linalg.eigvalsh(root[:, :, None] * conductance * root[:, None, :]).max().item()
        return 2 / math.sqrt(largest * (first + 2 * shear) / self.material.density)

    def state(
        self, x: torch.Tensor | None = None, v: torch.Tensor | None = None, dtype: Any = torch.float64
    ) -> BodyState:
        """Return nodes at rest where the mesh has them, unless positions and velocities are given."""
        return BodyState.of(self.mesh.nodes, x, v, dtype)

    def rollout(
        self,
        state: BodyState,
        activation: torch.Tensor | None = None,
        fibers: torch.Tensor | None = None,
        *,
        tension: torch.Tensor | None = None,
        steps: int | None = None,
        fixed: torch.Tensor | None = None,
        motion: Motion | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        nodes: torch.Tensor | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> BodyState:
        """Run steps.

        Args:
            state: at the start.
            activation: tension of each muscle in each step, (steps, *batch, muscles), Pa.
            fibers: direction of each muscle in each element times how much of the element belongs to it,
                (elements, muscles, 3).
            tension: of each tendon in each step, (steps, *batch, tendons), N, at least 0.
            steps: how many, if neither muscles, tendons nor colliders say.
            fixed: nodes that do not move, (nodes,), bool.
            motion: of the colliders and of what holds nodes; by default they rest at the origin.
            params: "shear" and "first" (Lamé's parameters), for all or each element, (*batch, elements); "load" on
                each node, (*batch, nodes, 3), N; "gravity", (*batch, 3); "drag"; "mass" of each node.
            nodes: the rest shape in place of the mesh's, (nodes, 3); gradients pass to it.
            keep: return states at the start and after every so many steps; by default only the last.
            checkpoints: what to keep for the gradient.
        """
        inputs = self.inputs(state, activation, fibers, tension=tension, fixed=fixed, params=params, nodes=nodes)
        return run_body(self._runner(), inputs, self.carried, motion, steps, keep, checkpoints)

    def inputs(
        self,
        state: BodyState,
        activation: torch.Tensor | None = None,
        fibers: torch.Tensor | None = None,
        *,
        tension: torch.Tensor | None = None,
        fixed: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        nodes: torch.Tensor | None = None,
    ) -> Inputs:
        """Return what steps take, but for the motion of colliders; see `rollout`."""
        given = dict(params or {})
        parameters = solid_parameters(self.mesh, self.material, state.x, given, nodes)
        inputs = body_inputs(state, self.dt, parameters, self.carried, fixed, given, ("shear", "first"))
        if self.muscles:
            if activation is None or fibers is None:
                raise InputError("solid: a rollout with muscles needs their activation and fibers")
            inputs.controls["activation"], inputs.parameters["fibers"] = activation, fibers
        if self.tendons:
            pulling, owner = tendons.inputs(self.tendons, tension, state.x)
            inputs.controls["tension"], inputs.parameters["tendon_of"] = pulling, owner
        return inputs

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
            count: of points; the mesh has it.
        """
        corners = self.mesh.elements.shape[1]
        fields = [
            *node_fields(self.carried, linked),
            Field("shear", "elements", (), "parameter"),
            Field("first", "elements", (), "parameter"),
            Field("force", "elements", (3,), "temporary", "corners"),
        ]
        reads = {"x": Read("x", "corners"), "rest": Read("rest", "corners")}
        reads |= {"shear": Read("shear"), "first": Read("first")}
        if self.muscles:
            fields.append(Field("activation", None, (self.muscles,), "control"))
            fields.append(Field("fibers", "elements", (self.muscles, 3), "parameter"))
            reads |= {"activation": Read("activation"), "fibers": Read("fibers")}
        stages = [Stage("strain", "elements", self._forces, reads)]
        connections = [Connection("corners", "elements", "nodes", corners, atomic=self.atomic)]
        sizes = {"nodes": len(self.mesh.nodes), "elements": len(self.mesh.elements)}
        tables, forces = {"corners": self.mesh.elements}, {"force": "corners"}
        if self.tendons:
            fields += tendons.fields(self.tendons, "control")
            stages.append(Stage("tendons", tendons.SEGMENTS, tendons.pull, tendons.reads()))
            connections.append(tendons.connection(self.atomic))
            tables[tendons.ENDS], forces["pull"] = tendons.table(self.tendons), tendons.ENDS
            sizes[tendons.SEGMENTS] = len(tables[tendons.ENDS])
        stages.append(move_stage(self.carried, self.dt, forces, linked))
        return StepParts(fields, connections, [*stages], sizes, tables, "nodes")

    def _forces(self, **element: Any) -> dict[str, Any]:
        return {"force": element_forces(self.mesh, self.material.kind, self.muscles, **element)}


def element_forces(
    mesh: Mesh, kind: str, muscles: int, x: Any, rest: Any, shear: Any, first: Any, **fibers: Any
) -> Any:
    """Return the elastic force on each node of an element, (corners, 3), N."""
    weight = 1.0 if mesh.is_hexahedral else 1 / 6
    total = np.zeros((len(x), 3), dtype=object)
    for reference in mesh.reference_gradients:
        inverse, determinant = _inverse(rest.T @ reference)
        gradients = reference @ inverse  # (corners, 3), in the axes of the rest shape
        F = x.T @ gradients
        stress = first_piola(kind, F, shear, first)
        for m in range(muscles):
            fiber = fibers["fibers"][m]
            stress = stress + fibers["activation"][m] * np.outer(F @ fiber, fiber)
        total = total - (weight * determinant) * (gradients @ stress.T)
    return total


def solid_parameters(
    mesh: Mesh,
    material: SolidMaterial,
    like: torch.Tensor,
    given: dict[str, torch.Tensor],
    nodes: torch.Tensor | None,
) -> dict[str, torch.Tensor]:
    """Return the parameters of a solid; Lamé's are taken out of those that are given."""
    place = {"dtype": like.dtype, "device": like.device}
    rest = torch.tensor(mesh.nodes, **place) if nodes is None else nodes
    count = len(mesh.elements)
    check_ranges("solid", given, RANGES, like, count)
    parameters = {"rest": rest, "drag": torch.tensor(material.drag, **place)}
    for name, value in zip(("shear", "first"), material.lame, strict=True):
        number = given.pop(name, torch.tensor(value, **place))
        each = number.dim() and number.shape[-1] == count
        parameters[name] = number if each else number[..., None].expand(*number.shape, count)
    volumes, _ = mesh.integrals(rest)
    parameters["mass"] = material.density * sum_at_nodes(mesh.elements, volumes.to(**place), len(rest))
    return parameters


def first_piola(kind: str, F: Any, shear: Any, first: Any) -> Any:
    """Return the first Piola-Kirchhoff stress of a deformation gradient, (3, 3)."""
    inverse, J = _inverse(F)
    if kind == "neo_hookean":
        return shear * (F - inverse.T) + first * log(J) * inverse.T
    rotation = F
    for _ in range(POLAR):
        rotation = 0.5 * (rotation + _inverse(rotation)[0].T)
    return 2.0 * shear * (F - rotation) + first * (J - 1.0) * J * inverse.T


def _inverse(A: Any) -> tuple[Any, Any]:
    """Return the inverse and the determinant of a matrix (3, 3)."""
    cofactors = np.array([np.cross(A[1], A[2]), np.cross(A[2], A[0]), np.cross(A[0], A[1])], dtype=object)
    determinant = A[0] @ cofactors[0]
    return cofactors.T / determinant, determinant
