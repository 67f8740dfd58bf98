"""The traced step of a world as an object: what it carries, takes and computes, over scalars.

A `World` is frozen. Its signature is declared: `carry` is what a step hands to the next, `inputs` what it takes anew
each time, `parameters` the numbers that a call may pass in the place of its own. Rollouts, control, identification and
diagnostics all use this object; `Simulator` is its face to torch.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from adjoin.collision import pairs as collision_pairs
from adjoin.collision.contact_list import Candidates
from adjoin.collision.narrow_phase import MUJOCO_PHASE, NARROW_PHASE, PRISM_PHASE, has_closed_form
from adjoin.collision.pairs import Pair
from adjoin.collision.self_collision import LeftOut, prune
from adjoin.collision.terrain import KINDS, Heightfield, OnTerrain
from adjoin.compiler.ir.graph import Graph, tracing
from adjoin.compiler.ir.kinds import TABLE
from adjoin.compiler.ir.scratch import Lookup
from adjoin.compiler.runtime.function import Table
from adjoin.constraints.blocks import Block, UnilateralBlock
from adjoin.constraints.inverse_weights import InverseWeights
from adjoin.constraints.newton import Newton
from adjoin.constraints.pgs import PGS
from adjoin.constraints.rows import GROUND, Contact, Equality, contacts, other_blocks
from adjoin.constraints.solver import ListedSolver, Solver
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import ExternalForce, State
from adjoin.errors import AdjoinWarning, InputError, warn_caller
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Frame, Geometry
from adjoin.simulation.arguments import bind
from adjoin.simulation.default_solver import default_solver
from adjoin.simulation.integrators import SemiImplicit
from adjoin.simulation.runge_kutta import ConstrainedRK4
from adjoin.simulation.sensors import sensors  # noqa: F401
from adjoin.simulation.state import EXPLODED, FINE, NOT_FINITE, OVERFLOW, UNPHYSICAL
from adjoin.simulation.step import Integrator, Listed, Step
from adjoin.spatial.scalar import Scalar
from adjoin.trace import detach, minimum, select

FASTEST = 1e6  # rad/s or m/s: what moves faster has exploded
FARTHEST = 1e10  # m: what is farther away has exploded
FORCE = "force"
TERRAIN = "terrain"
CONTACT = "contact_"
INTEGRATORS: dict[str, Integrator] = {
    "": SemiImplicit(),
    "Euler": SemiImplicit("joints"),
    "Euler, explicit": SemiImplicit("none"),
    "implicitfast": SemiImplicit(gyroscopic=True),
    "RK4": ConstrainedRK4(),
}
"""How steps are taken where only the model says so."""

UNROLLED_POINTS = 8
"""Up to so many points that can touch, a step with rows for each is faster than one with a list of those that do."""

UNBOUNDED = ("lower", "upper", "tendon_lower", "tendon_upper")
"""Parameters that may be infinite."""

Values = dict[str, Any]
Residual = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class World:
    """A model and its physics; `World.of` chooses what can touch.

    Attributes:
        model: The robots and what is around them.
        dt: The time step, s.
        contact: How contacts and other constraints are solved.
        integrator: How steps are taken.
        pairs: The shapes that can touch.
        constraints: Frames and joints that are held to one another.
        limits: Whether joints have limits.
        terrain: The ground, if it is not flat.
        max_contacts: How many contacts an environment may have, where they are a list; None for a default.
        as_list: Whether contacts are a list, whose length is what touches, instead of rows for every point that can
            touch, where the solver can do either; None for whichever is faster.
        residual: What the model lacks: a traced function of what a step has and of named tensors, that returns
            additions by name: "force", nv generalized forces, or any parameter in its shape.
        left_out: Pairs of shapes of one robot that do not touch, by the rules of `collision.self_collision`.
    """

    model: Model
    dt: float
    contact: Solver | ListedSolver = field(default_factory=PGS)
    integrator: Integrator = field(default_factory=SemiImplicit)
    pairs: tuple[Pair, ...] = ()
    constraints: tuple[Equality, ...] = ()
    limits: bool = True
    terrain: Heightfield | None = None
    max_contacts: int | None = None
    as_list: bool | None = None
    residual: Residual | None = None
    left_out: tuple[LeftOut, ...] = ()

    @classmethod
    def of(
        cls,
        model: Model,
        dt: float,
        *,
        pairs: Sequence[tuple[str, str]] | None = None,
        ignore: Sequence[tuple[str, str]] = (),
        self_collision: bool = True,
        ground: bool | None = None,
        terrain: Heightfield | None = None,
        **options: Any,
    ) -> "World":
        """Build the world of a model: add the ground and choose the pairs that can touch. See `Simulator`."""
        if terrain is not None and ground is False:
            raise InputError("Simulator: terrain is ground; pass ground=True, or leave it out")
        own = [grid.name for grid in model.terrain]
        if own and terrain is None:
            terrain, ground = Heightfield.of(model), bool(ground)
        from_mjcf = bool(model.integrator)
        if ground is None:
            floating = any(body.parent == WORLD and body.joint.type.floating for body in model.bodies)
            loose = bool(model.geometries) and all(shape.body != WORLD for shape in model.geometries)
            unsaid = pairs is not None or not from_mjcf  # an MJCF file without a floor says that there is none
            added = terrain is not None and not own
            ground = (floating and loose and unsaid and _would_touch(model, pairs)) or added
        model = with_ground(model) if ground else model
        candidates, untested = collision_pairs.pairs(model, pairs, ignore, self_collision)
        left_out: list[LeftOut] = []
        if pairs is None and self_collision and not from_mjcf:
            candidates, left_out = prune(model, candidates, options.get("limits", True))
        if untested:
            warn_caller(
                AdjoinWarning(
                    f"{model.name!r}: {_named(model, untested)} do not touch, since two planes cannot be tested for "
                    "contact; make one of them a box, or leave the pair out with ignore="
                )
            )
        if terrain is not None:
            place = model.geometry_index(own[0] if own else GROUND)
            candidates = [pair.swapped() if pair.first == place else pair for pair in candidates]
            candidates = [pair for pair in candidates if _stands_on_terrain(model, pair, place, pairs is not None)]
        options.setdefault("integrator", INTEGRATORS[model.integrator])
        options.setdefault("contact", default_solver(model, candidates))
        world = cls(model, float(dt), pairs=tuple(candidates), terrain=terrain, left_out=tuple(left_out), **options)
        if getattr(world.contact, "time_of_impact", False) and (
            world.as_list or not isinstance(world.integrator, SemiImplicit)
        ):
            raise InputError(
                "Simulator: the time of impact is for steps with rows for every point, by SemiImplicit(); leave out "
                f"time_of_impact=True, or as_list=True and {type(world.integrator).__name__}()"
            )
        if world.listed:
            touching = [UnilateralBlock(())] if world.pairs else []
            world.integrator.require(model.name, [*touching, *world._traced_constraints[1]])
            return world
        if pairs is None:
            world = replace(world, pairs=tuple(_with_closed_form(model, candidates)), as_list=False)
        world.integrator.require(model.name, world._traced_constraints[1])
        points = {pair: tuple(c.number for c in world.contacts if c.pair is pair) for pair in world.pairs}
        chosen = replace(world, pairs=tuple(replace(pair, points=k) for pair, k in points.items() if k))
        chosen.__dict__["_traced_constraints"] = world._traced_constraints  # they are the same
        return chosen

    @cached_property
    def listed(self) -> bool:
        """Return whether the contacts of a step are a list, whose length is what touches."""
        if _only_lists(self.contact):
            return True
        if not is_listed(self.contact) or not self.pairs or self.as_list is False:
            return False
        return self.as_list is True or (self.terrain is None and self._is_faster_as_list)

    @property
    def _is_faster_as_list(self) -> bool:
        """Whether more points can touch than rows of each are worth, or kinds of shapes need a search for points."""
        kinds = [shape.kind for shape in self.model.geometries]
        searched = not all(has_closed_form(kinds[pair.first], kinds[pair.second]) for pair in self.pairs)
        return searched or self.candidates.points > UNROLLED_POINTS

    @cached_property
    def candidates(self) -> Candidates:
        """Return the pairs that can touch, as the list of contacts has them."""
        phases = MUJOCO_PHASE if isinstance(self.contact, Newton) else NARROW_PHASE
        if phases is MUJOCO_PHASE and self.terrain is not None and self.terrain.base:
            phases = {**phases, **PRISM_PHASE}
        return Candidates.of(self.model, self.pairs, self.max_contacts, self.terrain_shape, phases)

    @property
    def terrain_shape(self) -> int | None:
        """Return the index of the shape that terrain takes the place of."""
        if self.terrain is None:
            return None
        return self.model.geometry_index(self.model.terrain[0].name if self.model.terrain else GROUND)

    @cached_property
    def inverse_weights(self) -> InverseWeights:
        """Return how light bodies and coordinates are."""
        return InverseWeights(self.model)

    # Signature

    @cached_property
    def carry(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of what a step hands to the next."""
        activation = {"activation": (self.model.na,)} if self.model.na else {}
        mocap = {"mocap": (7 * len(self.model.mocap),)} if self.model.mocap else {}
        clock = {"time": (1,)} if any(sensor.kind == "clock" for sensor in self.model.sensors) else {}
        return {
            "q": (self.model.nq,),
            "v": (self.model.nv,),
            "status": (),
            **self.memory,
            **activation,
            **mocap,
            **clock,
        }

    @cached_property
    def memory(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of what the solver starts from, if it starts warm."""
        if self.listed:
            return self.contact.memory(self.candidates)  # type: ignore[union-attr]
        if not self.contact.warm:
            return {}
        rows = sum(len(contact.block.rows) for contact in self.contacts)
        return {"impulses": (rows,)} if rows else {}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of what a step takes; external forces come on top, (6,) for a frame."""
        return {"control": (self.model.nu,)}

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Return the names and shapes of the numbers that a call may pass in the place of the world's own."""
        declared: dict[str, Any] = {
            name: parameters.shape(self.model, parameters.named(name)) for name in parameters.names()
        }
        declared.update({f"{CONTACT}{name}": () for name in self.contact.parameters})
        if self.terrain is not None:
            declared[TERRAIN] = Table(self.terrain.shape)
        return declared

    def check_params(
        self, params: Mapping[str, torch.Tensor] | None, like: torch.Tensor, batch: Sequence[int]
    ) -> dict[str, torch.Tensor]:
        """Check the parameters of a call, and add those that kernels always take: the heights of terrain.

        Args:
            params: What the call was passed, by name.
            like: A tensor of the dtype and device of the call.
            batch: The batch shape of the call.
        """
        passed = dict(params or {})
        checked: dict[str, torch.Tensor] = {}
        for name in [name for name in passed if name.startswith(CONTACT) or name == TERRAIN]:
            if name not in self.parameters:
                own = [known for known in self.parameters if known.startswith(CONTACT) or known == TERRAIN]
                raise InputError(f"params: {name!r} is not a parameter of this simulator; its own are {', '.join(own)}")
            checked[name] = passed.pop(name)
            if name != TERRAIN:
                parameters.check_shape(name, checked[name], (), tuple(batch))
        if self.terrain is not None and TERRAIN not in checked:
            checked[TERRAIN] = self.terrain.heights_like(like)
        return {**self.model.check_parameters(passed, tuple(batch)), **checked}

    @cached_property
    def _traced_constraints(self) -> tuple[list[Contact], list[Block]]:
        """The contacts and all constraints, over unknown scalars."""
        with tracing(graph := Graph()):
            params: Values = {}
            if self.terrain is not None:
                params[TERRAIN] = Lookup(graph.fresh("table", (), 1, TABLE), self.terrain.shape)
            q = [graph.fresh("input", (), (0, i)) for i in range(self.model.nq)]
            state, solver = Plant(replace(self, residual=None), params).at(q, [0.0] * self.model.nv)
            touching = [] if self.listed else contacts(state, self.pairs, solver.elliptic)
            return touching, [*[contact.block for contact in touching], *self.other_blocks(state)]

    @property
    def contacts(self) -> list[Contact]:
        """Return the contacts that a step has, in order; none if they are a list."""
        return self._traced_constraints[0]

    @property
    def contact_pairs(self) -> Sequence[Pair]:
        """Return the pair of each contact, or, if they are a list, of each candidate."""
        return self.candidates.pairs if self.listed else [contact.pair for contact in self.contacts]

    @property
    def row_count(self) -> int:
        """Return how many rows the constraints of a step have, without those of contacts that are a list."""
        return sum(len(block.rows) for block in self._traced_constraints[1])

    def other_blocks(self, state: State) -> list[Block]:
        """Return all constraints of a state but its contacts."""
        return other_blocks(state, self.dt, self.limits, self.constraints)

    # The step

    @cached_property
    def _ground_pairs(self) -> dict[tuple[int, int], Pair]:
        """The pairs of a shape and the ground: a plane fixed to the world that is no wall."""
        shapes, over = self.model.geometries, {}
        for pair in self.pairs:
            for shape, ground in ((pair.first, pair.second), (pair.second, pair.first)):
                fixed = shapes[ground].kind == "plane" and shapes[ground].body == WORLD
                if fixed and shapes[shape].body != WORLD and shapes[ground].rotation[2][2] > 0.1:
                    over[shape, ground] = pair
        return over

    @property
    def over_ground(self) -> tuple[tuple[int, int], ...]:
        """Return the shapes that can touch the ground, each with its plane."""
        return tuple(sorted(self._ground_pairs))

    @cached_property
    def resting_depths(self) -> tuple[float, ...]:
        """Return how deep each shape over the ground may sink in at rest: the width of MuJoCo's soft contact, m."""
        soft = isinstance(self.contact, Newton)
        return tuple(self._ground_pairs[over].solimp[2] if soft else 0.0 for over in self.over_ground)

    def plant(
        self,
        control: Sequence[Scalar] = (),
        params: Values | None = None,
        external: Values | None = None,
        tensors: Values | None = None,
    ) -> "Plant":
        """Return what is stepped: this world with the values of one call."""
        return Plant(self, params or {}, list(control), external or {}, tensors or {})

    def step(self, plant: "Plant", carry: Values) -> tuple[Values, Step]:
        """Take a step.

        Args:
            plant: This world with the values of one call.
            carry: What the step before handed on.

        Returns:
            The carry after it, frozen where the step went wrong; and the step, for what else is asked of it.
        """
        q, v, status = list(carry["q"]), list(carry["v"]), carry["status"]
        plant = replace(plant, activation=list(carry.get("activation", ())), mocap=list(carry.get("mocap", ())))
        start = {name: list(carry[name]) for name in self.memory if name in carry}
        result = self.integrator.advance(plant, q, v, *start.values())
        speed, place = (sum((x * x for x in part), 0.0) for part in (result.v, result.q))
        passed = sum((abs(x) for x in plant.finite_inputs), 0.0)
        finite = sum((abs(x) for x in (*result.v, *result.q, *result.activation)), passed) < math.inf
        fine = finite & (speed < FASTEST**2) & (place < FARTHEST**2)
        wrong = select(finite, float(EXPLODED), float(NOT_FINITE))
        for unphysical in plant.unphysical:
            wrong = select((passed < math.inf) & unphysical, float(UNPHYSICAL), wrong)
            fine = fine & ~unphysical
        if isinstance(result.contacts, Listed):
            fits = result.contacts.needed <= float(result.contacts.size)
            fine, wrong = fine & fits, select(fits, wrong, float(OVERFLOW))
        after = select(status == float(FINE), select(fine, float(FINE), wrong), status)
        going = after == float(FINE)

        def unless_frozen(new: Sequence[Scalar], old: Sequence[Scalar]) -> list[Scalar]:
            return [select(going, a, b) for a, b in zip(new, detach(old), strict=True)]

        following: Values = {"q": unless_frozen(result.q, q), "v": unless_frozen(result.v, v), "status": after}
        if "activation" in carry:
            following["activation"] = unless_frozen(result.activation, list(carry["activation"]))
        if "time" in carry:
            following["time"] = unless_frozen([carry["time"][0] + self.dt], list(carry["time"]))
        if "mocap" in carry:
            following["mocap"] = list(carry["mocap"])
        for name, old in start.items():
            following[name] = unless_frozen(result.kept[: len(old)], old)
        return following, Step(plant, carry, following, result)


@dataclass(frozen=True)
class Plant:
    """A world with the values of one call, over scalars.

    Attributes:
        world: What is simulated.
        params: Values of parameters by name; the others are the world's own.
        control: nu scalars.
        activation: na scalars.
        mocap: poses of `Model.mocap`, seven scalars each; none for the model's own.
        external: Frame name -> six scalars, [force; moment] at the frame's origin in world axes.
        tensors: Named tensors, for the residual.
    """

    world: World
    params: Values = field(default_factory=dict)
    control: Sequence[Scalar] = ()
    external: Values = field(default_factory=dict)
    tensors: Values = field(default_factory=dict)
    activation: Sequence[Scalar] = ()
    mocap: Sequence[Scalar] = ()

    @property
    def model(self) -> Model:
        """Return the model."""
        return self.world.model

    @cached_property
    def finite_parameters(self) -> list[Scalar]:
        """Return the passed parameters that must be finite; limits may be infinite, but must be numbers."""
        scalars: list[Scalar] = []
        for name, value in self.params.items():
            passed = [] if name == TERRAIN else np.array(value, dtype=object).ravel().tolist()
            scalars += [minimum(abs(x), 1.0) for x in passed] if name in UNBOUNDED else passed
        return scalars

    @property
    def finite_inputs(self) -> list[Scalar]:
        """Return all numbers of the call that must be finite, even where limits of an actuator would hide it."""
        return [
            *self.control,
            *self.mocap,
            *[x for force in self.external.values() for x in force],
            *self.finite_parameters,
        ]

    @cached_property
    def unphysical(self) -> list[Any]:
        """Return whether a passed parameter has a value that nothing physical has: one condition, or none."""
        conditions: list[Any] = []
        for name, value in self.params.items():
            scalars = np.array(value, dtype=object)
            if name.startswith(CONTACT):
                conditions += parameters.unphysical("not negative", scalars.ravel().tolist())
            elif name != TERRAIN:
                named = parameters.named(name)
                width = named.tail[0] if named.tail else 1
                for row, own in zip(scalars.reshape(-1, width).tolist(), self._own_rows(name, width), strict=True):
                    if name == "geometry_size":  # those that are 0 have no meaning for their kind of shape
                        row = [x for x, size in zip(row, own, strict=True) if size]
                    if not any(parameters.unphysical(named.range, own)):  # what the model has already may stay
                        conditions += parameters.unphysical(named.range, row)
        for limits in (UNBOUNDED[:2], UNBOUNDED[2:]):
            if all(name in self.params for name in limits):
                lower, upper = (np.array(self.params[name], dtype=object).tolist() for name in limits)
                conditions += [low > high for low, high in zip(lower, upper, strict=True)]
        return [functools.reduce(operator.or_, conditions)] if conditions else []

    def _own_rows(self, name: str, width: int) -> list[list[float]]:
        own = np.array(parameters.numbers(self.model, parameters.named(name)), dtype=float)
        return own.reshape(-1, width).tolist()

    def at(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> tuple[State, Any]:
        """Return the robot at a place, with forces of the residual as its `tau`, and the contact solver there."""
        params, added = dict(self.params), self._residual(q, v)
        force = added.pop(FORCE, [0.0] * self.model.nv)
        for name, more in added.items():
            value = params[name] if name in params else self._own(name)
            params[name] = np.array(value, dtype=object).reshape(more.shape) + more
        solver: Any = self.world.contact
        passed = {name: params.pop(name) for name in [*params] if name.startswith(CONTACT)}
        if passed:
            scalars = {name[len(CONTACT) :]: np.array(x, dtype=object).item() for name, x in passed.items()}
            solver = replace(solver, **scalars)
        robot = self._robot(params)
        return State(robot, q, v, tau=force, external=[self._load(robot, name) for name in self.external]), solver

    def _own(self, name: str) -> Any:
        if name.startswith(CONTACT):
            return getattr(self.world.contact, name[len(CONTACT) :])
        return Robot(self.model).numbers(name)

    def _robot(self, params: Values) -> Robot:
        robot = self._unmoved(params)
        if self.mocap:
            robot.move_mocap(self.mocap)
        return robot

    def _unmoved(self, params: Values) -> Robot:
        if self.world.terrain is None:
            return Robot(self.model, params)
        # Kernels are always passed the heights; over numbers they are the world's own.
        heights, ground = params.pop(TERRAIN, self.world.terrain.heights), self.world.terrain_shape
        assert ground is not None
        return OnTerrain(self.model, params, ground, self.world.terrain, lambda row, column: heights[row, column])

    def _load(self, robot: Robot, name: str) -> ExternalForce:
        frame = self.model.frame_index(name)
        body = self.model.frames[frame].body
        return ExternalForce(body, robot.frames[frame], self.external[name], "local_world_aligned")

    def _residual(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Values:
        """Return what the residual adds, in the shapes that it should have."""
        if self.world.residual is None:
            return {}
        values = {name: np.array(x, dtype=object) for name, x in (("q", q), ("v", v), ("control", self.control))}
        returned = bind("the residual", self.world.residual, values, self.tensors)
        if not isinstance(returned, Mapping):
            raise InputError(f"residual: it must return a dict of additions by name, got a {type(returned).__name__}")
        shapes = {FORCE: (self.model.nv,), **self.world.parameters}
        added = {}
        for name, value in returned.items():
            if name not in shapes or name == TERRAIN:
                known = ", ".join(known for known in shapes if known != TERRAIN)
                raise InputError(f"residual: no parameter is called {name!r}; it can add to: {known}")
            added[name] = np.array(value, dtype=object)
            if added[name].shape != shapes[name]:
                raise InputError(f"residual: {name!r} has the shape {added[name].shape}; it must be {shapes[name]}")
        return added


def is_listed(solver: object) -> bool:
    """Whether a solver takes contacts as a list."""
    return hasattr(solver, "solve_listed") and not getattr(solver, "time_of_impact", False)


def _only_lists(solver: object) -> bool:
    """Whether a solver takes contacts in no other way."""
    return is_listed(solver) and not hasattr(solver, "solve")


def _stands_on_terrain(model: Model, pair: Pair, terrain: int, chosen: bool) -> bool:
    """Whether a pair is not with terrain, or of a shape that can stand on it."""
    first = model.geometries[pair.first]
    if pair.second != terrain or first.kind in KINDS:
        return True
    if chosen:
        raise InputError(f"Simulator: {first.name!r} is a {first.kind}; on terrain stand: {', '.join(KINDS)}")
    return False


def _would_touch(model: Model, pairs: Sequence[tuple[str, str]] | None) -> bool:
    """Return whether a plane would touch something: a shape whose filter lets it, or one that is named with it."""
    if pairs is not None:
        return any(GROUND in names for names in pairs)
    return any(shape.contype & 1 or shape.conaffinity & 1 for shape in model.geometries)


def _with_closed_form(model: Model, candidates: list[Pair]) -> list[Pair]:
    """Return the pairs that a solver which computes every point can test; say which others there are."""
    kinds = [shape.kind for shape in model.geometries]
    tested = [has_closed_form(kinds[pair.first], kinds[pair.second]) for pair in candidates]
    left = [pair for pair, known in zip(candidates, tested, strict=True) if not known]
    if left:
        which = _named(model, left)
        warn_caller(
            AdjoinWarning(
                f"{model.name!r}: {len(left)} of {len(candidates)} pairs of shapes do not touch, since rows "
                f"for every point need kinds with a closed form: {which}; leave out as_list and terrain, or choose "
                "pairs="
            )
        )
    return [pair for pair, known in zip(candidates, tested, strict=True) if known]


def _named(model: Model, pairs: Sequence[Pair]) -> str:
    """The first few of some pairs by name, for messages."""
    names = [(model.geometries[pair.first].name, model.geometries[pair.second].name) for pair in pairs]
    return ", ".join(f"{a!r} with {b!r}" for a, b in names[:5]) + (", ..." if len(names) > 5 else "")


def with_ground(model: Model) -> Model:
    """Return the model with a plane at z = 0."""
    if GROUND in [part.name for part in (*model.frames, *model.geometries)]:
        raise InputError(f"Simulator: {model.name!r} has something called {GROUND!r} already; pass ground=False")
    shape = Geometry(GROUND, "plane", WORLD, GROUND)
    return replace(model, frames=(*model.frames, Frame(GROUND, WORLD)), geometries=(*model.geometries, shape))
