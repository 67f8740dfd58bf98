"""Elastic solids with implicit steps of any length, and at rest under their loads.

The unknown positions x of R(x) = m (x - before - dt v) / dt² + drag - forces(x) = 0 are found as in `implicit`. A
product with the stiffness matrix is the derivative of the elements' forces along a direction; no matrix is stored.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from adjoin.compiler.autodiff.derivatives import directional_derivative
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage, StepSequence
from adjoin.continuum import colliders as contact
from adjoin.continuum import tendons
from adjoin.continuum.bodies import BodyState, Carried, body_inputs
from adjoin.continuum.colliders import MOTION, Collider, Motion
from adjoin.continuum.implicit import ConjugateGradients, NotConverged, solve
from adjoin.continuum.mesh import Mesh, sum_at_nodes
from adjoin.continuum.solids import SolidMaterial, element_forces, solid_parameters
from adjoin.errors import InputError


class InvertedElement(NotConverged):
    """A solver came to positions at which an element is inverted."""


@dataclass(frozen=True, eq=False)
class ImplicitSolid:
    """An elastic body with implicit steps (backward Euler), or at rest.

    Attributes:
        mesh: at rest.
        material: of all elements.
        dt: s, of a step; infinite for equilibrium.
        muscles: how many groups of fibers there are.
        colliders: rigid shapes that push.
        tendons: cables that pull: the nodes that each runs through, in order.
        solver: of the linear equations.
        newton: iterations of Newton's method at most.
        slip: speed from which on friction is nearly that of Coulomb, m/s.
    """

    mesh: Mesh
    material: SolidMaterial
    dt: float = math.inf
    muscles: int = 0
    colliders: tuple[Collider, ...] = ()
    tendons: tuple[tuple[int, ...], ...] = ()
    solver: ConjugateGradients = field(default_factory=ConjugateGradients)
    newton: int = 40
    slip: float = 1e-3
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        tendons.check(self.tendons, len(self.mesh.nodes))
        if not (self.dt > 0 and self.slip > 0):
            raise InputError(f"implicit solid: dt and slip must be positive, got {self.dt} and {self.slip}")

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
        steps: int = 1,
        fixed: torch.Tensor | None = None,
        motion: Motion | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        nodes: torch.Tensor | None = None,
        keep: int | None = None,
    ) -> BodyState:
        """Run steps, or find the equilibrium in one; the arguments are those of `Solid.rollout`."""
        given = dict(params or {})
        own = solid_parameters(self.mesh, self.material, state.x, given, nodes)
        parameters = body_inputs(state, 0.0, own, Carried(self.colliders), fixed, given, ("shear", "first")).parameters
        if self.muscles:
            if activation is None or fibers is None:
                raise InputError("implicit solid: a rollout with muscles needs their activation and fibers")
            parameters["fibers"], steps = fibers, len(activation)
        if self.tendons:
            tension, parameters["tendon_of"] = tendons.inputs(self.tendons, tension, state.x)
            steps = len(tension)
        moving = contact.controls(len(self.colliders), motion, steps, state.x)
        kept, wrenches = [state], []
        for step in range(steps):
            now = parameters | {name: values[step] for name, values in moving.items()}
            if self.muscles and activation is not None:
                now["activation"] = activation[step]
            if self.tendons and tension is not None:
                now["tension"] = tension[step]
            now |= {"before": state.x, "velocity": state.v}
            guess = state.x + self.dt * state.v if self.dt < math.inf else state.x
            unknown = solve(self, guess.flatten(-2), now, partial(self._check_elements, step))
            x = unknown.reshape(state.x.shape)
            if self.colliders:
                wrenches.append(self._evaluated(x, now)[1]["wrench"][0])
            state = BodyState(x, (x - state.x) / self.dt)
            if keep is not None and (step + 1) % keep == 0:
                kept.append(state)
        wrench = torch.stack(wrenches) if wrenches else None
        if keep is None:
            return BodyState(state.x, state.v, wrench)
        return BodyState(torch.stack([one.x for one in kept]), torch.stack([one.v for one in kept]), wrench)

    def _check_elements(self, step: int, unknown: torch.Tensor) -> None:
        """Raise if an element is inverted: some materials have no stress there, others a balance that no body has."""
        smallest = self.mesh.determinants(unknown.reshape(*unknown.shape[:-1], -1, 3)).amin(-1)
        inverted = smallest <= 0  # NaN is left alone
        if bool(inverted.any()):
            *variant, element = inverted.nonzero()[0].tolist()
            raise InvertedElement(
                f"ImplicitSolid: step {step}, variant {', '.join(map(str, variant)) or 0}: element {element} (nodes "
                f"{self.mesh.elements[element].tolist()}) is inverted: the determinant of its Jacobian reaches "
                f"{smallest[(*variant, element)].item():.3g}; take smaller steps, or smaller loads"
            )

    # Maps: the residual with its adjoint, and the product with its Jacobian -------------------------------------------

    def runner(self, linear: bool) -> StepRunner:
        """Return the residual as a map, or the product with its Jacobian."""
        if linear not in self._cache:
            mesh, corners = self.mesh, self.mesh.elements.shape[1]
            vectors = ("x", "before", "velocity", "load", "rest")
            fields = [
                Field("result", "nodes", (4,) if linear else (3,), "state"),
                *[Field(name, "nodes", (3,), "parameter") for name in vectors],
                *[Field(name, "nodes", (), "parameter") for name in ("mass", "free")],
                *[Field(name, None, shape, "parameter") for name, shape in (("gravity", (3,)), ("drag", ()))],
                *[Field(name, "elements", (), "parameter") for name in ("shear", "first")],
                Field("force", "elements", (3,), "temporary", "corners"),
            ]
            strain = {"x": Read("x", "corners"), "rest": Read("rest", "corners")}
            strain |= {"shear": Read("shear"), "first": Read("first")}
            if self.muscles:
                fields.append(Field("activation", None, (self.muscles,), "parameter"))
                fields.append(Field("fibers", "elements", (self.muscles, 3), "parameter"))
                strain |= {"activation": Read("activation"), "fibers": Read("fibers")}
            balance = {name: Read(name) for name in (*vectors[:-1], "mass", "free", "gravity", "drag")}
            balance["force"] = Read("force", "corners")
            connections = [Connection("corners", "elements", "nodes", corners)]
            sizes, tables = {"nodes": len(mesh.nodes), "elements": len(mesh.elements)}, {"corners": mesh.elements}
            segments = tendons.reads()
            if self.tendons:
                fields += tendons.fields(self.tendons, "parameter")
                balance["pull"] = Read("pull", tendons.ENDS)
                connections.append(tendons.connection())
                tables[tendons.ENDS] = tendons.table(self.tendons)
                sizes[tendons.SEGMENTS] = len(tables[tendons.ENDS])
            if self.colliders:
                count = len(self.colliders)
                fields += [Field(name, None, (count, *shape), "parameter") for name, shape in MOTION.items()]
                balance |= {name: Read(name) for name in MOTION}
                if not linear:
                    fields.append(Field("wrench", None, (count, 6), "output"))
            if linear:
                fields.append(Field("direction", "nodes", (3,), "parameter"))
                strain |= {"direction": Read("direction", "corners"), "free": Read("free", "corners")}
                balance["direction"] = Read("direction")
                segments |= {"direction": Read("direction", tendons.ENDS), "free": Read("free", tendons.ENDS)}
            stages = [Stage("strain", "elements", self._strain_linear if linear else self._strain, strain)]
            if self.tendons:
                pull = _pull_linear if linear else tendons.pull
                stages.append(Stage("tendons", tendons.SEGMENTS, pull, segments))
            stages.append(Stage("balance", "nodes", self._balance_linear if linear else self._balance, balance))
            sequence = StepSequence(fields, connections, stages)
            self._cache[linear] = StepRunner(sequence, sizes, tables)
        return self._cache[linear]

    def _strain(self, **element: Any) -> dict[str, Any]:
        return {"force": element_forces(self.mesh, self.material.kind, self.muscles, **element)}

    def _strain_linear(self, x: Any, direction: Any, free: Any, **rest: Any) -> dict[str, Any]:
        force = self._strain(x=x, **rest)["force"]
        moved = direction * free[:, None]
        return {"force": _along(force, x, moved, rest)}

    def _contact(self, x: Any, before: Any, motion: Mapping[str, Any]) -> tuple[Any, Any]:
        if not self.colliders:
            return np.zeros(3, dtype=object), None
        return contact.push_implicitly(self.colliders, x, before, self.dt, self.slip, motion)

    def _inertia(self, mass: Any, drag: Any) -> Any:
        """Return the force that a change of position takes at a node, by inertia and drag."""
        return mass * (1.0 / self.dt**2 + drag / self.dt) if self.dt < math.inf else 0.0 * mass

    def _balance(
        self, x: Any, before: Any, velocity: Any, load: Any, mass: Any, free: Any, gravity: Any, drag: Any, force: Any,
        pull: Any = 0.0, **motion: Any,
    ) -> dict[str, Any]:  # fmt: skip
        force = force + pull
        pushed, wrench = self._contact(x, before, motion)
        residual = self._inertia(mass, drag) * (x - before) - (force + load + mass * gravity + pushed)
        if self.dt < math.inf:
            residual = residual - mass * velocity / self.dt
        result = {"result'": free * residual + (1.0 - free) * (x - before)}
        return result if wrench is None else result | {"wrench": wrench}

    def _balance_linear(
        self,
        x: Any,
        before: Any,
        mass: Any,
        free: Any,
        drag: Any,
        force: Any,
        direction: Any,
        pull: Any = 0.0,
        **rest: Any,
    ) -> dict[str, Any]:
        inertia = self._inertia(mass, drag)
        product = inertia * direction - force - pull
        touching = 0.0
        if self.colliders:
            motion = {name: rest[name] for name in MOTION}
            pushed, _ = self._contact(x, before, motion)
            product = product - _along(pushed, x, direction, {"before": before, **motion})
            unit = np.array([1.0, 1.0, 1.0], dtype=object) / math.sqrt(3.0) + 0.0 * direction
            touching = -(_along(pushed, x, unit, {"before": before, **motion}) @ unit)
        product = free * product + (1.0 - free) * direction
        return {"result'": np.array([*product, inertia + touching], dtype=object)}

    def _evaluated(
        self, x: torch.Tensor, parameters: Mapping[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        start = {"result": torch.zeros_like(x)}
        return self.runner(False).rollout(start, dict(parameters) | {"x": x}, steps=1)

    def residual(self, unknown: torch.Tensor, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the forces that do not balance, (*batch, 3 nodes), N."""
        x = unknown.reshape(*unknown.shape[:-1], -1, 3)
        return self._evaluated(x, parameters)[0]["result"].flatten(-2)

    def linearized(
        self, unknown: torch.Tensor, parameters: Mapping[str, torch.Tensor]
    ) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
        """Return the product with the residual's Jacobian, and about its diagonal."""
        x = unknown.detach().reshape(*unknown.shape[:-1], -1, 3)
        given = {name: value.detach() for name, value in parameters.items()} | {"x": x}
        start = {"result": x.new_zeros((*x.shape[:-1], 4))}
        apply = self.runner(True).operator(start, given | {"direction": torch.zeros_like(x)}, "direction")
        own = apply(torch.zeros_like(x))["result"][..., 3].clone()
        _, conductance = self.mesh.integrals()
        waves = (given["first"] + 2 * given["shear"])[..., None] * conductance.diagonal(dim1=1, dim2=2).to(x)
        elastic = sum_at_nodes(self.mesh.elements, waves.movedim((-2, -1), (0, 1)), x.shape[-2]).movedim(0, -1)
        diagonal = torch.where(given["free"] > 0, own + 0.5 * elastic, torch.ones_like(own))
        diagonal = diagonal[..., None].expand(x.shape).flatten(-2)
        return (lambda d: apply(d.reshape(x.shape))["result"][..., :3].flatten(-2)), diagonal


def _pull_linear(x: Any, direction: Any, free: Any, **rest: Any) -> dict[str, Any]:
    force = tendons.pull(x, **rest)["pull"]
    return {"pull": _along(force, x, direction * free[:, None], rest)}


def _along(values: Any, x: Any, direction: Any, constants: Mapping[str, Any]) -> Any:
    """Return the derivative of values along a direction of x."""
    others = [one for array in constants.values() for one in np.asarray(array, dtype=object).ravel()]
    found = directional_derivative(
        np.asarray(values).ravel().tolist(),
        np.asarray(x).ravel().tolist(),
        np.asarray(direction).ravel().tolist(),
        [one for one in others if isinstance(one, Expr)],
    )
    return np.array(found, dtype=object).reshape(np.asarray(values).shape)
