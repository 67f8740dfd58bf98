"""Heat in solids: conduction, convection, radiation, latent heat, a laser, elements that are born; explicit steps.

Finite elements with lumped capacities. An element conducts by its conductances at the conductivity of its mean
temperature. Surface loads act at nodes, each with its share of the exposed faces. A face is exposed while one of the
two elements that it separates is there and the other is not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage, StepSequence
from adjoin.continuum.mesh import Mesh, sum_at_nodes
from adjoin.continuum.ranges import FRACTION, NOT_NEGATIVE, POSITIVE, check_ranges
from adjoin.errors import InputError
from adjoin.trace import exp, minimum, select

STEFAN_BOLTZMANN = 5.670374419e-8
"""W/(m² K⁴)"""

RANGES = {"density": POSITIVE, "convection": NOT_NEGATIVE, "emissivity": FRACTION, "ambient": NOT_NEGATIVE}
RANGES |= {"latent_heat": NOT_NEGATIVE, "conductivity_of": NOT_NEGATIVE._replace(member="element")}


@dataclass(frozen=True)
class HeatMaterial:
    """A material. Any consistent units; SI is suggested.

    Attributes:
        density: kg/m³.
        specific_heat: J/(kg K): a number, or coefficients of 1, T, T², ...
        conductivity: W/(m K): a number, or coefficients of 1, T, T², ...
        latent_heat: J/kg, taken up between solidus and liquidus.
        solidus: temperature at which it begins to melt, K.
        liquidus: temperature at which it has melted, K.
    """

    density: float
    specific_heat: float | Sequence[float]
    conductivity: float | Sequence[float]
    latent_heat: float = 0.0
    solidus: float = math.inf
    liquidus: float = math.inf

    def __post_init__(self):
        for name in ("density", "specific_heat", "conductivity"):
            value = getattr(self, name)
            first = value if isinstance(value, (int, float)) else next(iter(value))
            if not math.isfinite(first) or (isinstance(value, (int, float)) and value <= 0):
                raise InputError(f"heat material: {name} must be positive and finite, got {value!r}")
        if self.latent_heat < 0 or (self.latent_heat > 0 and not self.solidus < self.liquidus < math.inf):
            raise InputError(
                f"heat material: latent_heat must not be negative, and needs solidus < liquidus; got "
                f"{self.latent_heat}, {self.solidus} and {self.liquidus}"
            )


@dataclass(frozen=True)
class Laser:
    """A beam along -z with a Gaussian profile: 2 η P / (π r²) exp(-2 d²/r²), on faces that look up.

    Attributes:
        radius: of the beam, where the intensity has fallen to exp(-2).
        absorptivity: η, the fraction of the power that is taken up.
    """

    radius: float
    absorptivity: float = 1.0

    def __post_init__(self):
        if not self.radius > 0 or not 0 <= self.absorptivity <= 1:
            raise InputError(f"laser: radius must be positive and absorptivity from 0 to 1, got {self}")


@dataclass(frozen=True)
class HeatPath:
    """What a rollout returns.

    Attributes:
        temperature: K: (kept, *batch, nodes), or (*batch, nodes) if only the last is kept.
        sensors: temperatures at the sensors after each step, (steps, *batch, sensors), or None.
    """

    temperature: torch.Tensor
    sensors: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Heat:
    """Explicit simulation of heat in a mesh, differentiable in everything: loads, materials, geometry, the start.

    Attributes:
        mesh: hexahedra or tetrahedra.
        material: of all elements.
        dt: s, of a step.
        convection: heat transfer coefficient of exposed faces, W/(m² K).
        emissivity: of exposed faces.
        ambient: temperature around, K.
        laser: a beam, if there is one; rollouts then take its power and position.
        birth: time from which each element is there, (elements,), s; None if all are from the start.
        cap: temperatures above are cut off there, as models of melt pools do; None for none.
        sensors: nodes whose temperatures a rollout returns for every step.
        stefan_boltzmann: in the units of everything else.
        atomic: contributions are added by atomic operations, in any order: the last bits differ from run to run.
    """

    mesh: Mesh
    material: HeatMaterial
    dt: float
    convection: float = 0.0
    emissivity: float = 0.0
    ambient: float = 300.0
    laser: Laser | None = None
    birth: np.ndarray | None = None
    cap: float | None = None
    sensors: Sequence[int] = ()
    stefan_boltzmann: float = STEFAN_BOLTZMANN
    atomic: bool = False
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        limit = self.stable_dt
        if not 0 < self.dt <= limit:
            raise InputError(
                f"heat: dt {self.dt:g} is not in the range of stable explicit steps; the largest is {limit:.4g}"
            )
        if not (self.convection >= 0 and 0 <= self.emissivity <= 1 and self.ambient >= 0):
            raise InputError(
                f"heat: convection and ambient must not be negative, and emissivity is from 0 to 1, got "
                f"{self.convection}, {self.ambient} and {self.emissivity}"
            )
        if self.birth is not None and np.shape(self.birth) != (len(self.mesh.elements),):
            raise InputError(
                f"heat: birth must have the shape ({len(self.mesh.elements)},), got {np.shape(self.birth)}"
            )
        unknown = [node for node in self.sensors if not 0 <= node < len(self.mesh.nodes)]
        if unknown:
            raise InputError(f"heat: no node {unknown[0]} for a sensor; there are {len(self.mesh.nodes)} nodes")

    @property
    def stable_dt(self) -> float:
        """Return the largest stable step by conduction alone, at the material's leading coefficients: 2 / λ.

        λ bounds the eigenvalues of every element, hence of every set of elements.
        """
        volumes, conductance = self._integrals
        bound = (conductance.abs().sum(-1) / volumes).max().item()
        if len(volumes) <= 100_000:
            root = volumes.rsqrt()
            scaled = torch.unique(root[:, :, None] * conductance * root[:, None, :], dim=0)
            bound = torch.linalg.eigvalsh(scaled).max().item()
        return (
            2 / bound * self.material.density * _first(self.material.specific_heat) / _first(self.material.conductivity)
        )

    @property
    def _integrals(self) -> tuple[torch.Tensor, torch.Tensor]:
        if "integrals" not in self._cache:
            self._cache["integrals"] = self.mesh.integrals()
        return self._cache["integrals"]

    def rollout(
        self,
        temperature: torch.Tensor,
        power: torch.Tensor | None = None,
        position: torch.Tensor | None = None,
        *,
        steps: int | None = None,
        start: float = 0.0,
        params: Mapping[str, torch.Tensor] | None = None,
        nodes: torch.Tensor | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> HeatPath:
        """Run steps.

        Args:
            temperature: at the start, (*batch, nodes), K.
            power: of the laser in each step, (steps, *batch) or (steps,), W.
            position: of the laser in each step, (steps, *batch, 3) or (steps, 3).
            steps: how many, if there is no laser.
            start: time of the start, s.
            params: numbers that take the place of the material's and the surface's: "density", "specific_heat" and
                "conductivity" with as many coefficients as the material has, "convection", "emissivity", "ambient",
                "latent_heat"; one for all or one a variant, (*batch, ...). "source", (*batch, nodes), is heat put
                into each node, W.
            nodes: positions of the nodes in place of the mesh's, (nodes, 3); gradients pass to them.
            keep: return temperatures at the start and after every so many steps; by default only the last.
            checkpoints: what to keep for the gradient.
        """
        runner = self._runner()
        like = temperature
        if self.laser is not None:
            if power is None or position is None:
                raise InputError("heat: a rollout with a laser needs its power and position for every step")
            steps = len(power)
        elif steps is None:
            raise InputError("heat: a rollout without a laser needs steps")
        parameters = self._parameters(like, dict(params or {}), nodes)
        controls: dict[str, torch.Tensor] = {}
        if self.birth is not None:
            controls["time"] = start + self.dt * torch.arange(steps, dtype=like.dtype, device=like.device)
        if power is not None and position is not None:
            controls |= {"power": power, "focus": position}
        states, outputs = runner.rollout(
            {"temperature": temperature}, parameters, controls, steps=steps, keep=keep, checkpoints=checkpoints
        )
        return HeatPath(states["temperature"], outputs.get("reading"))

    def _parameters(
        self, like: torch.Tensor, params: dict[str, torch.Tensor], nodes: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        material = self.material
        numbers = {
            "density": material.density,
            "specific_heat": coefficients(material.specific_heat),
            "conductivity": coefficients(material.conductivity),
            "convection": self.convection,
            "emissivity": self.emissivity,
            "ambient": self.ambient,
            "latent_heat": material.latent_heat,
        }
        for name in params:
            if name not in (*numbers, "source"):
                raise InputError(f"heat: no parameter {name!r}; parameters: {', '.join([*numbers, 'source'])}")
        result = {}
        check_heat("heat", params, material, like)
        for name, number in numbers.items():
            shape = np.shape(number)
            value = params.get(name)
            if value is None:
                value = torch.tensor(number, dtype=like.dtype, device=like.device)
            single = shape == (1,) and tuple(value.shape) in ((), tuple(like.shape[:-1]))
            result[name] = value[..., None] if single else value
        result["source"] = params.get("source", like.new_zeros(len(self.mesh.nodes)))
        return result | self._geometry(like, nodes)

    def _geometry(self, like: torch.Tensor, nodes: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Return what the kernels know of the mesh."""
        key = (like.dtype, like.device)
        if nodes is None and key in self._cache:
            return self._cache[key]
        mesh = self.mesh
        volumes, conductance = self._integrals if nodes is None else mesh.integrals(nodes)
        area, normal = mesh.face_geometry(nodes)
        neighbor = mesh.neighbors()
        corners = mesh.elements.shape[1]
        rows, columns = np.triu_indices(corners, 1)
        result = {"conductance": -conductance[:, rows, columns]}
        share = area / mesh.faces_of_element.shape[1]
        upward = share * normal[..., 2].clamp(min=0)
        x = mesh.positions(nodes)
        result["position"] = x[:, :2]
        if self.birth is not None:
            born = np.asarray(self.birth, float)
            beside = np.where(neighbor >= 0, born[neighbor], np.inf)
            result |= {"volume": volumes, "share": share, "upward": upward}
            result |= {"birth": torch.as_tensor(born), "covered": torch.as_tensor(beside)}
        else:
            outer = torch.as_tensor(neighbor < 0, dtype=share.dtype, device=share.device)
            parts = torch.stack([volumes, *[self._at_corners(outer * part) for part in (share, upward)]], -1)
            result["nodal"] = sum_at_nodes(mesh.elements, parts, len(x))
        result = {name: value.to(like.device, like.dtype) for name, value in result.items()}
        if nodes is None:
            self._cache[key] = result
        return result

    def _at_corners(self, faces: torch.Tensor) -> torch.Tensor:
        """Return the sum over the faces that meet at each corner, (elements, corners)."""
        corners = faces.new_zeros((len(faces), self.mesh.elements.shape[1]))
        for face, members in enumerate(self.mesh.faces_of_element):
            for corner in members:
                corners[:, corner] += faces[:, face]
        return corners

    # One step ---------------------------------------------------------------------------------------------------------

    def _runner(self) -> StepRunner:
        if "runner" not in self._cache:
            mesh = self.mesh
            sizes = {"nodes": len(mesh.nodes), "elements": len(mesh.elements)}
            tables = {"corners": mesh.elements}
            if self.sensors:
                sizes["sensors"] = len(self.sensors)
                tables["sensor"] = np.asarray(self.sensors)[:, None]
            self._cache["runner"] = StepRunner(self._sequence(), sizes, tables)
        return self._cache["runner"]

    def _sequence(self) -> StepSequence:
        material, corners = self.material, self.mesh.elements.shape[1]
        faces = len(self.mesh.faces_of_element)
        born = self.birth is not None
        parts = (4,) if born else (1,)
        fields = [
            Field("temperature", "nodes", (), "state"),
            Field("conductance", "elements", (corners * (corners - 1) // 2,), "parameter"),
            Field("position", "nodes", (2,), "parameter"),
            Field("source", "nodes", (), "parameter"),
            Field("density", None, (), "parameter"),
            Field("specific_heat", None, (len(coefficients(material.specific_heat)),), "parameter"),
            Field("conductivity", None, (len(coefficients(material.conductivity)),), "parameter"),
            *[Field(name, None, (), "parameter") for name in ("convection", "emissivity", "ambient", "latent_heat")],
            Field("flow", "elements", parts, "temporary", "corners"),
        ]
        conduct = {"temperature": Read("temperature", "corners"), "conductivity": Read("conductivity")}
        conduct["conductance"] = Read("conductance")
        balance = {name: Read(name) for name in ("temperature", "source", "density", "specific_heat", "latent_heat")}
        balance |= {name: Read(name) for name in ("convection", "emissivity", "ambient")}
        balance["flow"] = Read("flow", "corners")
        if born:
            fields += [
                Field("volume", "elements", (corners,), "parameter"),
                Field("share", "elements", (faces,), "parameter"),
                Field("upward", "elements", (faces,), "parameter"),
                Field("birth", "elements", (), "parameter"),
                Field("covered", "elements", (faces,), "parameter"),
                Field("time", None, (), "control"),
            ]
            conduct |= {name: Read(name) for name in ("volume", "share", "upward", "birth", "covered", "time")}
        else:
            fields.append(Field("nodal", "nodes", (3,), "parameter"))
            balance["nodal"] = Read("nodal")
        if self.laser is not None:
            fields += [Field("power", None, (), "control"), Field("focus", None, (3,), "control")]
            balance |= {name: Read(name) for name in ("power", "focus", "position")}
        stages = [
            Stage("conduct", "elements", self._conduct, conduct),
            Stage("balance", "nodes", self._balance, balance),
        ]
        if self.sensors:
            fields.append(Field("reading", "sensors", (), "output"))
            reads = {"temperature": Read("temperature'", "sensor")}
            stages.append(Stage("sense", "sensors", lambda temperature: {"reading": temperature[0]}, reads))
        connections = [
            Connection("corners", "elements", "nodes", corners, atomic=self.atomic),
            Connection("sensor", "sensors", "nodes", 1, atomic=self.atomic),
        ]
        return StepSequence(fields, connections, stages)

    def _conduct(self, temperature: Any, conductance: Any, conductivity: Any, **birth: Any) -> dict[str, Any]:
        """Return the heat that flows from an element to each of its nodes, W; with birth also what the node has of it.

        That is volume, exposed area, and exposed area that looks up.
        """
        corners = len(temperature)
        conducting = polynomial(conductivity, sum(temperature) / corners)
        flows = [conducting * flow for flow in conduction(conductance, temperature)]
        if not birth:
            return {"flow": np.array([[flow] for flow in flows], dtype=object)}
        here = birth["birth"] <= birth["time"]
        exposed = [here & ~(covered <= birth["time"]) for covered in birth["covered"]]
        rows = []
        for corner in range(corners):
            faces = [f for f, members in enumerate(self.mesh.faces_of_element) if corner in members]
            area = sum(select(exposed[f], birth["share"][f], 0.0) for f in faces)
            upward = sum(select(exposed[f], birth["upward"][f], 0.0) for f in faces)
            volume = birth["volume"][corner]
            rows.append([select(here, flows[corner], 0.0), select(here, volume, 0.0), area, upward])
        return {"flow": np.array(rows, dtype=object)}

    def _balance(
        self,
        temperature: Any,
        source: Any,
        density: Any,
        specific_heat: Any,
        latent_heat: Any,
        flow: Any,
        **surface: Any,
    ) -> dict[str, Any]:
        """Return the temperature of a node after the step."""
        heat = flow[0] + source
        volume, area, upward = flow[1:] if "nodal" not in surface else surface["nodal"]
        ambient = surface["ambient"]
        squares = temperature * temperature + ambient * ambient
        radiation = surface["emissivity"] * self.stefan_boltzmann * squares * (temperature + ambient)
        heat = heat - area * (surface["convection"] + radiation) * (temperature - ambient)
        if self.laser is not None:
            x, y, focus = *surface["position"], surface["focus"]
            square = (x - focus[0]) * (x - focus[0]) + (y - focus[1]) * (y - focus[1])
            inverse = 1.0 / (self.laser.radius * self.laser.radius)
            peak = 2.0 * self.laser.absorptivity * inverse / math.pi
            heat = heat + upward * (peak * surface["power"] * exp(-2.0 * inverse * square))
        capacity = polynomial(specific_heat, temperature)
        if self.material.latent_heat > 0:
            capacity = capacity + latent_heat * self._melting(temperature)
        after = temperature + self.dt * heat / (density * capacity * select(volume > 0.0, volume, 1.0))
        after = select(volume > 0.0, after, temperature)
        return {"temperature'": after if self.cap is None else minimum(after, self.cap)}

    def _melting(self, temperature: Any) -> Any:
        """Return the derivative of the molten fraction: a parabola between solidus and liquidus whose integral is 1."""
        solidus, liquidus = self.material.solidus, self.material.liquidus
        width = liquidus - solidus
        s = (temperature - solidus) / width
        return select((s > 0.0) & (s < 1.0), 6.0 / width * s * (1.0 - s), 0.0)


def coefficients(value: float | Sequence[float]) -> list[float]:
    """Return the coefficients of 1, T, T², ... of a number that may depend on temperature."""
    return [float(value)] if isinstance(value, (int, float)) else [float(x) for x in value]


def check_heat(
    what: str, given: Mapping[str, torch.Tensor], material: HeatMaterial, like: torch.Tensor, elements: int = 0
) -> None:
    """Raise if a parameter of heat has a value that nothing physical has; one that depends on temperature may."""
    single = {name for name in ("specific_heat", "conductivity") if len(coefficients(getattr(material, name))) == 1}
    values = {name: x.squeeze(-1) if name in single and x.dim() else x for name, x in given.items()}
    check_ranges(what, values, RANGES | dict.fromkeys(single, POSITIVE), like, elements)


def _first(value: float | Sequence[float]) -> float:
    return coefficients(value)[0]


def conduction(conductance: Any, temperature: Any) -> list[Any]:
    """Return the heat that flows to each corner of an element at unit conductivity.

    Args:
        conductance: of each pair of corners, in the order of `numpy.triu_indices`.
        temperature: of each corner.
    """
    flows: list[Any] = [0.0] * len(temperature)
    for pair, (a, b) in enumerate(zip(*np.triu_indices(len(temperature), 1), strict=True)):
        flow = conductance[pair] * (temperature[b] - temperature[a])
        flows[a], flows[b] = flows[a] + flow, flows[b] - flow
    return flows


def polynomial(coefficients: Any, x: Any) -> Any:
    """Return c₀ + c₁ x + c₂ x² + ..."""
    total = coefficients[-1]
    for coefficient in reversed(list(coefficients)[:-1]):
        total = total * x + coefficient
    return total
