"""Equations of heat that are solved: implicit steps and the steady state, matrix-free.

The unknown temperatures T of R(T) = C (T - before) / dt + K(T) T - loads = 0 are found as in `implicit`. A product with
the matrix is one map over elements and one over nodes; no matrix is stored.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage, StepSequence
from adjoin.continuum.heat import STEFAN_BOLTZMANN, HeatMaterial, check_heat, coefficients, conduction, polynomial
from adjoin.continuum.implicit import ConjugateGradients, solve
from adjoin.continuum.mesh import Mesh, sum_at_nodes
from adjoin.errors import InputError


@dataclass(frozen=True, eq=False)
class ImplicitHeat:
    """Heat with implicit steps of any length, or at rest.

    Attributes:
        mesh: hexahedra or tetrahedra.
        material: of all elements; without latent heat.
        dt: s, of a step; infinite for the steady state.
        convection: heat transfer coefficient of the outer faces, W/(m² K).
        emissivity: of the outer faces.
        ambient: temperature around, K.
        solver: of the linear equations.
        newton: iterations of Newton's method at most.
        stefan_boltzmann: in the units of everything else.
    """

    mesh: Mesh
    material: HeatMaterial
    dt: float = math.inf
    convection: float = 0.0
    emissivity: float = 0.0
    ambient: float = 300.0
    solver: ConjugateGradients = field(default_factory=ConjugateGradients)
    newton: int = 20
    stefan_boltzmann: float = STEFAN_BOLTZMANN
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        if self.material.latent_heat:
            raise InputError("implicit heat: latent heat is for explicit steps; use Heat")
        if not self.dt > 0:
            raise InputError(f"implicit heat: dt must be positive, got {self.dt}")

    def solve(
        self,
        before: torch.Tensor,
        *,
        fixed: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Return the temperatures one step after `before`, or of the steady state, (*batch, nodes), K.

        Args:
            before: temperatures at the start of the step; where a node is fixed, its temperature.
            fixed: nodes whose temperature is given, (nodes,), bool.
            params: "conductivity" for all, (*batch, coefficients), or "conductivity_of", a factor of each element,
                (*batch, elements); "density", "specific_heat", "convection", "emissivity", "ambient"; "source",
                (*batch, nodes), W. With gradients.
        """
        parameters = self._parameters(before, dict(params or {}), fixed)
        return solve(self, before, parameters | {"before": before})

    def _parameters(
        self, like: torch.Tensor, given: dict[str, torch.Tensor], fixed: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        material, place = self.material, {"dtype": like.dtype, "device": like.device}
        numbers: dict[str, Any] = {
            "density": material.density,
            "specific_heat": coefficients(material.specific_heat),
            "conductivity": coefficients(material.conductivity),
            "convection": self.convection,
            "emissivity": self.emissivity,
            "ambient": self.ambient,
        }
        result = {name: torch.tensor(number, **place) for name, number in numbers.items()}
        nodes, elements = len(self.mesh.nodes), len(self.mesh.elements)
        result |= {"source": torch.zeros(nodes, **place), "conductivity_of": torch.ones(elements, **place)}
        for name, value in given.items():
            if name not in result:
                raise InputError(f"implicit heat: no parameter {name!r}; parameters: {', '.join(result)}")
            single = result[name].shape == (1,) and tuple(value.shape) in ((), tuple(like.shape[:-1]))
            result[name] = value[..., None] if single else value
        check_heat("implicit heat", given, material, like, elements)
        free = torch.ones(nodes, **place)
        if fixed is not None:
            free = torch.where(fixed.to(like.device), torch.zeros((), **place), free)
        exposed = self.convection > 0 or self.emissivity > 0 or not {"convection", "emissivity"}.isdisjoint(given)
        return result | {"free": free} | self._geometry(like, exposed)

    def _geometry(self, like: torch.Tensor, exposed: bool) -> dict[str, torch.Tensor]:
        key = (like.dtype, like.device, exposed)
        if key not in self._cache:
            mesh = self.mesh
            volumes, conductance = mesh.integrals(torch.tensor(mesh.nodes, device=like.device))
            rows, columns = np.triu_indices(mesh.elements.shape[1], 1)
            nodal = torch.zeros((len(mesh.nodes), 2), dtype=volumes.dtype, device=like.device)
            nodal[:, 0] = sum_at_nodes(mesh.elements, volumes, len(mesh.nodes))
            if exposed:
                element, face = np.nonzero(mesh.neighbors() < 0)
                area = mesh.face_geometry()[0][element, face].to(like.device)
                members = mesh.elements[element[:, None], mesh.faces_of_element[face]]
                share = (area / members.shape[1])[:, None].expand(members.shape)
                nodal[:, 1] = sum_at_nodes(members, share, len(mesh.nodes))
            values = {"conductance": -conductance[:, rows, columns], "nodal": nodal}
            self._cache[key] = {name: value.to(like.dtype) for name, value in values.items()}
        return self._cache[key]

    # Maps: the residual with its adjoint, and the product with its Jacobian -----------------------------------------

    def runner(self, linear: bool) -> StepRunner:
        """Return the residual as a map, or the product with its Jacobian and that one's diagonal."""
        if linear not in self._cache:
            mesh, corners = self.mesh, self.mesh.elements.shape[1]
            uniform = [
                Field("density", None, (), "parameter"),
                Field("specific_heat", None, (len(coefficients(self.material.specific_heat)),), "parameter"),
                Field("conductivity", None, (len(coefficients(self.material.conductivity)),), "parameter"),
                *[Field(name, None, (), "parameter") for name in ("convection", "emissivity", "ambient")],
            ]
            fields = [
                Field("result", "nodes", (2,) if linear else (), "state"),
                Field("temperature", "nodes", (), "parameter"),
                Field("before", "nodes", (), "parameter"),
                Field("source", "nodes", (), "parameter"),
                Field("free", "nodes", (), "parameter"),
                Field("nodal", "nodes", (2,), "parameter"),
                Field("conductance", "elements", (corners * (corners - 1) // 2,), "parameter"),
                Field("conductivity_of", "elements", (), "parameter"),
                Field("flow", "elements", (2,) if linear else (), "temporary", "corners"),
                *uniform,
            ]
            conduct = {"temperature": Read("temperature", "corners"), "conductance": Read("conductance")}
            conduct |= {name: Read(name) for name in ("conductivity", "conductivity_of")}
            balance = {name: Read(name) for name in ("temperature", "before", "source", "free", "nodal")}
            balance |= {
                name: Read(name) for name in ("density", "specific_heat", "convection", "emissivity", "ambient")
            }
            balance |= {"flow": Read("flow", "corners")}
            if linear:
                fields.append(Field("direction", "nodes", (), "parameter"))
                conduct |= {"direction": Read("direction", "corners"), "free": Read("free", "corners")}
                balance["direction"] = Read("direction")
            stages = [
                Stage("conduct", "elements", _conduct_linear if linear else _conduct, conduct),
                Stage("balance", "nodes", self._balance_linear if linear else self._balance, balance),
            ]
            sequence = StepSequence(fields, [Connection("corners", "elements", "nodes", corners)], stages)
            sizes = {"nodes": len(mesh.nodes), "elements": len(mesh.elements)}
            self._cache[linear] = StepRunner(sequence, sizes, {"corners": mesh.elements})
        return self._cache[linear]

    def _exchange(self, temperature: Any, ambient: Any, convection: Any, emissivity: Any) -> tuple[Any, Any]:
        """Return the heat that a square meter of surface gives away, and its derivative to the temperature."""
        scale = emissivity * self.stefan_boltzmann
        cube, fourth = temperature**3, ambient**4
        lost = convection * (temperature - ambient) + scale * (cube * temperature - fourth)
        return lost, convection + 4.0 * scale * cube

    def _balance(self, temperature: Any, before: Any, source: Any, free: Any, nodal: Any, flow: Any, **p: Any) -> Any:
        lost, _ = self._exchange(temperature, p["ambient"], p["convection"], p["emissivity"])
        capacity = p["density"] * polynomial(p["specific_heat"], before) * nodal[0] / self.dt
        residual = capacity * (temperature - before) + nodal[1] * lost - flow - source
        return {"result'": free * residual + (1.0 - free) * (temperature - before)}

    def _balance_linear(
        self, temperature: Any, before: Any, free: Any, nodal: Any, flow: Any, direction: Any, **p: Any
    ) -> Any:
        _, slope = self._exchange(temperature, p["ambient"], p["convection"], p["emissivity"])
        own = p["density"] * polynomial(p["specific_heat"], before) * nodal[0] / self.dt + nodal[1] * slope
        product = free * (own * direction - flow[0]) + (1.0 - free) * direction
        diagonal = free * (own - flow[1]) + (1.0 - free)
        return {"result'": np.array([product, diagonal], dtype=object)}

    def residual(self, temperature: torch.Tensor, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the heat that does not balance at every node, W."""
        start = torch.zeros_like(temperature)
        given = dict(parameters) | {"temperature": temperature}
        return self.runner(False).rollout({"result": start}, given, steps=1)[0]["result"]

    def linearized(
        self, temperature: torch.Tensor, parameters: Mapping[str, torch.Tensor]
    ) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
        """Return the product with the residual's Jacobian, symmetrized where nodes are fixed, and its diagonal."""
        given = {name: value.detach() for name, value in parameters.items()}
        given["temperature"] = temperature.detach()
        start = {"result": temperature.new_zeros((*temperature.shape, 2))}
        apply = self.runner(True).operator(start, given | {"direction": torch.zeros_like(temperature)}, "direction")
        diagonal = apply(torch.zeros_like(temperature))["result"][..., 1].clone()
        return (lambda direction: apply(direction)["result"][..., 0]), diagonal


def _conduct(temperature: Any, conductance: Any, conductivity: Any, conductivity_of: Any) -> dict[str, Any]:
    """Return the heat that flows from an element to each of its nodes, W."""
    scale = conductivity_of * polynomial(conductivity, sum(temperature) / len(temperature))
    return {"flow": np.array([scale * flow for flow in conduction(conductance, temperature)], dtype=object)}


def _conduct_linear(
    temperature: Any, conductance: Any, conductivity: Any, conductivity_of: Any, direction: Any, free: Any
) -> Any:
    """Return the flow of a direction with the conductivity held, and of each node's own, for the diagonal."""
    scale = conductivity_of * polynomial(conductivity, sum(temperature) / len(temperature))
    moved = [a * b for a, b in zip(direction, free, strict=True)]
    flows = conduction(conductance, moved)
    own: list[Any] = [0.0] * len(direction)
    for pair, (a, b) in enumerate(zip(*np.triu_indices(len(direction), 1), strict=True)):
        own[a], own[b] = own[a] - conductance[pair], own[b] - conductance[pair]
    return {"flow": np.array([[scale * a, scale * b] for a, b in zip(flows, own, strict=True)], dtype=object)}
