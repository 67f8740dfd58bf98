"""Soft bodies, liquids and granular media as particles: the moving least squares material point method.

A step: each particle gives its mass and momentum to the grid nodes around it, the grid moves, each particle takes its
velocity and its gradient from there (Hu et al., "A moving least squares material point method", SIGGRAPH 2018;
quadratic B-splines, affine particle-in-cell). In two and three dimensions, differentiable in everything.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Read, Sort, Stage, StepSequence
from adjoin.continuum import colliders as contact
from adjoin.continuum.colliders import Collider, Motion
from adjoin.continuum.grid import GridRunner
from adjoin.continuum.particle_materials import MEMORY, ParticleMaterial, respond
from adjoin.continuum.ranges import ACUTE, INSIDE_UNIT, NOT_NEGATIVE, POSITIVE, check_ranges
from adjoin.continuum.step_parts import Inputs, StepParts
from adjoin.errors import InputError
from adjoin.trace import floor, maximum, minimum, select, sqrt

EACH_POSITIVE, EACH_AT_LEAST_0 = (one._replace(member="particle") for one in (POSITIVE, NOT_NEGATIVE))
RANGES = {"density": EACH_POSITIVE, "shear": EACH_POSITIVE, "first": EACH_AT_LEAST_0}
RANGES |= {"compression": INSIDE_UNIT, "stretch": POSITIVE, "hardening": NOT_NEGATIVE, "friction_angle": ACUTE}


@dataclass(frozen=True)
class ParticleState:
    """Particles at a time.

    Attributes:
        x: positions, (*batch, particles, dim), m.
        v: velocities, (*batch, particles, dim), m/s.
        C: affine velocity, (*batch, particles, dim, dim), 1/s.
        F: deformation gradient, (*batch, particles, dim, dim).
        wrench: force and torque on every collider about its origin, in each step, (steps, *batch, colliders, 6); None
            if there are no colliders, and of a start.
        memory: of snow the volume ratio of its plastic deformation, of sand the logarithm of the volume that it has
            gained, (*batch, particles); None of other materials.
    """

    x: torch.Tensor
    v: torch.Tensor
    C: torch.Tensor
    F: torch.Tensor
    wrench: torch.Tensor | None = None
    memory: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Particles:
    """A grid in which particles of one material move.

    Attributes:
        cells: of the grid along each axis, two or three.
        spacing: edge of a cell, m.
        dt: s, of a step.
        material: of all particles.
        gravity: acceleration along each axis, m/s²; by default -9.81 along the last.
        boundary: cells from the border within which the walls act.
        friction: at the walls: None for walls to which what touches them sticks, or Coulomb's coefficient.
        muscles: how many groups of particles contract or extend along a direction of their own.
        colliders: rigid shapes that push particles away, in three dimensions.
        capacity: particles that a cell may hold, if they are sorted.
        atomic: particles add to the grid by atomic operations, unsorted: the last bits differ from run to run.
    """

    cells: tuple[int, ...]
    spacing: float
    dt: float
    material: ParticleMaterial
    gravity: tuple[float, ...] | None = None
    boundary: int = 3
    friction: float | None = None
    muscles: int = 0
    colliders: tuple[Collider, ...] = ()
    capacity: int = 64
    atomic: bool = False
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        if len(self.cells) not in (2, 3) or min(self.cells) < 2 * self.boundary + 2:
            raise InputError(
                f"particles: a grid has 2 or 3 axes of at least {2 * self.boundary + 2} cells, got {self.cells}"
            )
        if self.colliders and self.dim == 2:
            raise InputError("particles: colliders are for three dimensions")
        if not (0 < self.spacing < math.inf and (self.friction is None or self.friction >= 0)):
            raise InputError(
                "particles: spacing must be positive, and friction of the walls None or not negative, got "
                f"{self.spacing} and {self.friction}"
            )
        shear, first = self.material.lame
        limit = self.spacing / math.sqrt((2 * shear + first) / self.material.density)
        if not 0 < self.dt <= limit:
            raise InputError(
                f"particles: dt {self.dt:g} is beyond stability: the speed of sound allows at most {limit:.3g}"
            )

    @property
    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.cells)

    def state(self, x: torch.Tensor, v: torch.Tensor | None = None) -> ParticleState:
        """Return undeformed particles at positions (*batch, particles, dim), at rest unless v is given."""
        low = max(self.boundary - 1, 0) * self.spacing
        for axis, count in enumerate(self.cells):
            outside = (x[..., axis] < low) | (x[..., axis] > count * self.spacing - low) | x[..., axis].isnan()
            if bool(outside.any()):
                where = outside.nonzero()[0].tolist()
                raise InputError(
                    f"particles: particle {where[-1]} is at {x[(*where, axis)].item():.4g} along axis {axis}, outside "
                    f"the grid's inside, {low:.4g} to {count * self.spacing - low:.4g}"
                )
        eye = torch.eye(self.dim, dtype=x.dtype, device=x.device).expand(*x.shape, self.dim)
        rest = torch.zeros_like(x) if v is None else v
        fastest = rest.detach().nan_to_num(0.0).abs().max().item()  # a variant that is broken leaves the others alone
        if fastest * self.dt > self.spacing:
            raise InputError(
                f"particles: a velocity of {fastest:.4g} m/s crosses more than a cell in a step of {self.dt:g} s; the "
                f"largest stable dt is {self.spacing / fastest:.3g}"
            )
        return ParticleState(x, rest, torch.zeros_like(eye), eye.clone(), memory=self._memory(x))

    def _memory(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return what particles of a plastic material remember at the start."""
        return torch.full_like(x[..., 0], MEMORY[self.material.kind]) if self.material.plasticity else None

    def rollout(
        self,
        state: ParticleState,
        volume: torch.Tensor | float,
        activation: torch.Tensor | None = None,
        muscle: torch.Tensor | None = None,
        *,
        steps: int | None = None,
        motion: Motion | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> ParticleState:
        """Run steps; a variant whose particle leaves the grid ends with NaN, and a `LeftGridWarning` names it.

        Args:
            state: at the start.
            volume: of each particle at rest, m³ (m² in two dimensions): a number or (*batch, particles).
            activation: of each muscle in each step, (steps, *batch, muscles), Pa.
            muscle: direction of each muscle's fibers in each particle, times how much of the particle belongs to it,
                (particles, muscles, dim).
            steps: how many, if there is no activation.
            motion: of the colliders; by default they rest at the origin.
            params: "density", "shear" and "first" (Lamé's parameters) for all particles or for each,
                (*batch, particles), "gravity", (*batch, dim), and of snow "compression", "stretch" and "hardening",
                of sand "friction_angle", (*batch).
            keep: return states at the start and after every so many steps; by default only the last.
            checkpoints: what to keep for the gradient.
        """
        inputs = self.inputs(state, volume, activation, muscle, params=params)
        steps = len(activation) if self.muscles and activation is not None else steps
        controls = inputs.controls | dict(contact.controls(len(self.colliders), motion, steps, state.x))
        runner = GridRunner(self._runner(state.x.shape[-2]))
        states, outputs = runner.rollout(
            inputs.states, inputs.parameters, controls, steps=steps, keep=keep, checkpoints=checkpoints
        )
        return replace(self.result(states), wrench=outputs.get("wrench"))

    def inputs(
        self,
        state: ParticleState,
        volume: torch.Tensor | float,
        activation: torch.Tensor | None = None,
        muscle: torch.Tensor | None = None,
        *,
        params: Mapping[str, torch.Tensor] | None = None,
    ) -> Inputs:
        """Return what steps take, but for the motion of colliders; see `rollout`."""
        x = state.x
        count = x.shape[-2]
        shear, first = self.material.lame
        gravity = self.gravity or (*[0.0] * (self.dim - 1), -9.81)
        given = dict(params or {})
        defaults = {"density": self.material.density, "shear": shear, "first": first, "gravity": gravity}
        defaults |= self.material.plasticity
        for name in given:
            if name not in defaults:
                raise InputError(f"particles: no parameter {name!r}; parameters: {', '.join(defaults)}")
        # A liquid has no shear modulus.
        check_ranges("particles", given, RANGES | ({"shear": EACH_AT_LEAST_0} if not shear else {}), x, count)
        parameters: dict[str, torch.Tensor] = {}
        for name in ("density", "shear", "first"):
            value = given.get(name, torch.tensor(defaults[name], dtype=x.dtype, device=x.device))
            parameters[name] = (
                value if value.dim() and value.shape[-1] == count else value[..., None].expand(*value.shape, count)
            )
        for name in ("gravity", *self.material.plasticity):
            parameters[name] = given.get(name, torch.tensor(defaults[name], dtype=x.dtype, device=x.device))
        size = torch.as_tensor(volume, dtype=x.dtype, device=x.device)
        if not (smallest := size.detach().min().item()) > 0:
            raise InputError(f"particles: volumes must be positive, got {smallest:g}")
        parameters["volume"] = size.expand(count) if size.dim() == 0 else size
        parameters["node"] = self._nodes(x)
        controls: dict[str, torch.Tensor] = {}
        if self.muscles:
            if activation is None or muscle is None:
                raise InputError("particles: a rollout with muscles needs their activation and fibers")
            controls["activation"], parameters["muscle"] = activation, muscle
        start = {"x": x, "v": state.v, "C": state.C, "F": state.F}
        memory = self._memory(x) if state.memory is None else state.memory
        if memory is not None:
            start["memory"] = memory
        return Inputs(start, parameters, controls)

    def result(self, states: Mapping[str, torch.Tensor]) -> ParticleState:
        """Return the state that steps leave."""
        return ParticleState(**states)

    # One step ---------------------------------------------------------------------------------------------------------

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(count + 1 for count in self.cells)

    def _nodes(self, like: torch.Tensor) -> torch.Tensor:
        axes = [torch.arange(count, dtype=like.dtype, device=like.device) for count in self._shape]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, self.dim)

    def _runner(self, count: int) -> StepRunner:
        if count not in self._cache:
            parts = self.parts(count=count)
            if "sequence" not in self._cache:
                self._cache["sequence"] = StepSequence(parts.fields, parts.connections, parts.stages)
            self._cache[count] = StepRunner(self._cache["sequence"], parts.sizes, parts.tables, self.capacity)
        return self._cache[count]

    @property
    def _stencil(self) -> list[tuple[int, ...]]:
        return list(itertools.product(range(3), repeat=self.dim))

    def parts(self, linked: bool = False, count: int = 0) -> StepParts:
        """Return what a step is made of.

        Args:
            linked: whether links of a robot carry the colliders.
            count: of particles.
        """
        dim = self.dim
        strides = np.cumprod([1, *self._shape[:0:-1]])[::-1]
        offsets = np.array([np.dot(place, strides) for place in self._stencil])
        fields = [
            Field("x", "particles", (dim,), "state"),
            Field("v", "particles", (dim,), "state"),
            Field("C", "particles", (dim, dim), "state"),
            Field("F", "particles", (dim, dim), "state"),
            *[Field(name, "particles", (), "parameter") for name in ("density", "shear", "first", "volume")],
            Field("gravity", None, (dim,), "parameter"),
            Field("node", "nodes", (dim,), "parameter"),
            Field("cell", "particles", (), "index"),
            Field("momentum", "particles", (dim + 1,), "temporary", "stencil"),
            Field("velocity", "nodes", (dim,)),
            *contact.fields(len(self.colliders), "particles" if linked else None),
        ]
        grid = {"momentum": Read("momentum", "stencil"), "node": Read("node"), "gravity": Read("gravity")}
        take = {"x": Read("x"), "velocity": Read("velocity", "stencil")}
        if self.colliders:
            take |= {"v": Read("v")} | contact.reads(len(self.colliders), linked)
        if self._rubs:
            fields += [Field("grip", "particles", (7,), "temporary", "stencil"), Field("rubbed", "nodes", (3,))]
            grid["grip"], take["rubbed"] = Read("grip", "stencil"), Read("rubbed", "stencil")
        scatter = {name: Read(name) for name in ("x", "v", "C", "F", "density", "shear", "first", "volume")}
        if plasticity := self.material.plasticity:
            fields.append(Field("memory", "particles", (), "state"))
            fields += [Field(name, None, (), "parameter") for name in plasticity]
            scatter |= {name: Read(name) for name in ("memory", *plasticity)}
        if self.muscles:
            fields += [
                Field("activation", None, (self.muscles,), "control"),
                Field("muscle", "particles", (self.muscles, dim), "parameter"),
            ]
            scatter |= {"activation": Read("activation"), "muscle": Read("muscle")}
        scatter |= contact.reads(len(self.colliders), linked)

        def find_cell(x: Any) -> dict[str, Any]:
            first, _, _ = self._weights(x)
            return {"cell": sum(base * float(stride) for base, stride in zip(first, strides, strict=True))}

        def to_grid(**particle: Any) -> dict[str, Any]:
            given = self._to_grid(linked, **particle)
            return given if self.atomic else given | find_cell(particle["x"])

        def from_grid(**particle: Any) -> dict[str, Any]:
            return self._from_grid(linked, **particle)

        stages = [
            *([Stage("find_cell", "particles", find_cell, {"x": Read("x")})] if self.atomic else []),
            Stage("to_grid", "particles", to_grid, scatter),
            Sort("stencil"),
            Stage("grid", "nodes", self._move_grid, grid),
            Stage("from_grid", "particles", from_grid, take),
        ]
        corners = len(self._stencil)
        connections = [Connection("stencil", "particles", "nodes", corners, "cell", self.atomic)]
        sizes = {"particles": count, "nodes": math.prod(self._shape)}
        return StepParts(
            fields, connections, stages, sizes, {"stencil": offsets}, "particles", self.capacity, GridRunner
        )

    def _weights(self, x: Any) -> tuple[list[Any], list[Any], list[list[Any]]]:
        """Return the first node of a particle's cell, its place beside that, and the weights along each axis."""
        scaled = [component / self.spacing for component in x]
        first = [minimum(maximum(floor(s - 0.5), 0.0), n - 2.0) for s, n in zip(scaled, self.cells, strict=True)]
        f = [s - base for s, base in zip(scaled, first, strict=True)]
        weights = [[0.5 * (1.5 - g) * (1.5 - g), 0.75 - (g - 1.0) * (g - 1.0), 0.5 * (g - 0.5) * (g - 0.5)] for g in f]
        return first, f, weights

    def _to_grid(
        self, linked: bool, x: Any, v: Any, C: Any, F: Any, density: Any, volume: Any, **rest: Any
    ) -> dict[str, Any]:
        """Return a particle's deformation after the step, and what it gives to the nodes around."""
        h, dim = self.spacing, self.dim
        _, f, weights = self._weights(x)
        deformed = F + self.dt * (C @ F)
        remembered = ("memory", *self.material.plasticity) if self.material.plasticity else ()
        numbers = {name: rest[name] for name in ("shear", "first", *remembered)}
        stress, elastic, memory = respond(self.material.kind, deformed, **numbers)
        if self.muscles:
            fibers = deformed @ rest["muscle"].T  # (dim, muscles)
            for m in range(self.muscles):
                stress = stress + rest["activation"][m] * np.outer(fibers[:, m], fibers[:, m])
        mass = density * volume
        result: dict[str, Any] = {} if memory is None else {"memory'": memory}
        touching = contact.touches(self.colliders, x, v, contact.of_point(rest, linked))
        v = v + self.dt * sum([touch.pressing * touch.normal for touch in touching], np.zeros(dim)) / mass
        grip = sum(
            [self._grip(touch) * np.array([1.0, *touch.normal, *touch.surface]) for touch in touching], np.zeros(7)
        )
        affine = mass * C - (4.0 * self.dt / (h * h)) * volume * stress
        rows, grips = [], []
        for place in self._stencil:
            weight = math.prod([weights[axis][i] for axis, i in enumerate(place)], start=1.0)
            distance = np.array([(i - g) * h for i, g in zip(place, f, strict=True)], dtype=object)
            rows.append([*(weight * (mass * v + affine @ distance)), weight * mass])
            grips.append(weight * grip)
        if self._rubs:
            result["grip"] = np.array(grips, dtype=object)
        return result | {"F'": elastic, "momentum": np.array(rows, dtype=object)}

    @property
    def _rubs(self) -> bool:
        return any(collider.friction > 0 for collider in self.colliders)

    def _grip(self, touch: contact.Touch) -> Any:
        """Return the largest impulse of friction that a particle feels from a collider in a step."""
        return touch.friction * self.dt * touch.pressing

    def _rub(self, v: Any, mass: Any, grip: Any) -> tuple[Any, Any]:
        """Return the velocity of a node after friction, and its impulse for each unit of grip.

        The grip of a node is what the particles around may be held with. Here the slip is known that the step would
        end with, so that what sticks comes to rest and stays.
        """
        held = grip[0] > 0.0
        inverse = 1.0 / select(held, grip[0], 1.0)
        normal, surface = grip[1:4], grip[4:] * inverse
        normal = normal / sqrt(normal @ normal + select(held, 1e-30 * grip[0] * grip[0], 1.0))
        relative = np.array(v, dtype=object) - surface
        slip = relative - (relative @ normal) * normal
        slipping = sqrt(slip @ slip + 1e-18)
        share = minimum(1.0 / slipping, mass * inverse)  # of Coulomb's limit, and of all slip
        impulse = [select(held, -share * component, 0.0) for component in slip]
        light = select(mass > 0.0, mass, 1.0)
        return [a + select(held, grip[0] * j / light, 0.0) for a, j in zip(v, impulse, strict=True)], impulse

    def _move_grid(self, momentum: Any, node: Any, gravity: Any, grip: Any = None) -> Any:
        """Return the velocity of a node after the step: gravity, friction at colliders, then the walls."""
        dim = self.dim
        mass = momentum[dim]
        inverse = select(mass > 0.0, 1.0 / select(mass > 0.0, mass, 1.0), 0.0)
        v = [momentum[i] * inverse + self.dt * gravity[i] for i in range(dim)]
        result = {}
        if grip is not None:
            v, impulse = self._rub(v, mass, grip)
            result["rubbed"] = np.array(impulse, dtype=object)
        for axis in range(dim):
            low = (node[axis] < self.boundary) & (v[axis] < 0.0)
            high = (node[axis] > self.cells[axis] - self.boundary) & (v[axis] > 0.0)
            outward = low | high
            if self.friction is None:
                v = [select(outward, 0.0, component) for component in v]
                continue
            sliding = sqrt(sum(v[i] * v[i] for i in range(dim) if i != axis))
            left = maximum(0.0, 1.0 - self.friction * abs(v[axis]) / select(sliding > 0.0, sliding, 1.0))
            v = [select(outward, 0.0 if i == axis else component * left, component) for i, component in enumerate(v)]
        return result | {"velocity": np.array(v, dtype=object)}

    def _from_grid(self, linked: bool, x: Any, velocity: Any, v: Any = None, rubbed: Any = None, **motion: Any) -> Any:
        """Return a particle after the step, and what colliders feel of it."""
        dim = self.dim
        _, f, weights = self._weights(x)
        touching = contact.touches(self.colliders, x, v, contact.of_point(motion, linked))
        v = np.zeros(dim, dtype=object)
        C = np.zeros((dim, dim), dtype=object)
        impulse = np.zeros(3, dtype=object)
        for corner, place in enumerate(self._stencil):
            weight = math.prod([weights[axis][i] for axis, i in enumerate(place)], start=1.0)
            part = weight * velocity[corner]
            distance = np.array([i - g for i, g in zip(place, f, strict=True)], dtype=object)
            v = v + part
            C = C + np.outer(part, distance)
            if rubbed is not None:
                impulse = impulse + weight * rubbed[corner]
        # What leaves the grid has no place: its variant ends there, and `GridRunner` says so.
        moved = [
            select((place >= 0.0) & (place <= count * self.spacing), place, math.nan)
            for place, count in zip(x + self.dt * v, self.cells, strict=True)
        ]
        result = {"v'": v, "C'": (4.0 / self.spacing) * C, "x'": np.array(moved, dtype=object)}
        if touching:
            forces = [t.pressing * t.normal + (self._grip(t) / self.dt) * impulse for t in touching]
            result["wrench"] = contact.wrenches([touch.arm for touch in touching], forces, linked)
        return result
