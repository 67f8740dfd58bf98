"""The simulator: a model, a step of time and a way to solve contact, as differentiable operators."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from adjoin.collision import pairs as touching
from adjoin.collision.terrain import KINDS, Heightfield
from adjoin.compiler.ir.graph import Graph, tracing
from adjoin.compiler.ir.kinds import TABLE
from adjoin.compiler.ir.program import TensorSpec
from adjoin.compiler.ir.scratch import Lookup
from adjoin.compiler.runtime.function import Function, Table
from adjoin.compiler.runtime.operator import call, check_tensor
from adjoin.constraints.pgs import PGS
from adjoin.constraints.rows import GROUND, Equality, contacts
from adjoin.constraints.solver import Solver
from adjoin.errors import InputError
from adjoin.model import manifold, parameters
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Frame, Geometry
from adjoin.simulation.diagnostics import Diagnostics, diagnosed, watch
from adjoin.simulation.given import Given, Input, bound, numbers, part, slot
from adjoin.simulation.integrators import SemiImplicit
from adjoin.simulation.plant import RESTITUTION, TERRAIN, Plant, check_restitution, require_restitution
from adjoin.simulation.rollout import Rollout, Shapes, Values
from adjoin.simulation.state import EXPLODED, FINE, NOT_FINITE, Contacts, SimulatorState, Trajectory
from adjoin.simulation.step import Integrator, Physics, Stepped, other_blocks
from adjoin.spatial.scalar import Scalar
from adjoin.trace import detach, guard, select

FASTEST = 1e6  # rad/s or m/s: what moves faster has exploded
FARTHEST = 1e10  # m: what is farther away has exploded


@dataclass(frozen=True)
class Plan:
    """What a rollout does besides steps; see `Simulator.rollout`."""

    controller: Callable[..., Any] | None
    cost: Callable[..., Any] | None
    contacts: bool
    watched: bool = False


class Simulator:
    """Steps a model through time.

    Args:
        model: the robot or robots.
        dt: seconds a step.
        contact: how contacts and other constraints are solved: `PGS(...)`, which is the default, or `Compliant(...)`.
        pairs: which shapes touch, as pairs of names of shapes or links; by default all that the model lets, except
            those of one robot among themselves. Each pair costs time whether it touches or not.
        ignore: pairs that do not touch.
        self_collision: whether shapes of one robot touch each other too.
        ground: whether to add a plane at z = 0, a shape called "ground"; by default if something can fall and no shape
            is fixed to the world.
        terrain: heights that take the place of that plane. Spheres, capsules and boxes stand on it; `params` may
            hold other heights as "terrain", (..., rows, columns).
        constraints: `FrameConstraint`s, frames held to the world or to one another, and `JointCoupling`s.
        limits: whether joints have stops.
        integrator: how steps are taken: `SemiImplicit()`, which is the default, or `RK4()`.
        residual: what the model lacks: a traced function `residual(q, v, control, **named)` that gives additions by
            name: "force", nv generalized forces, or any parameter, in its shape. Each step evaluates it where the
            step begins (`RK4` four times); tensors that it takes by name are `constants` or `individual`.

    Calls take `params`: those of the model, "terrain", and "restitution", one number in place of that of `PGS`.

    Attributes:
        model: the model, with the ground if it was added.
        contact_names: the two shapes of each point of contact.
    """

    def __init__(
        self,
        model: Model,
        dt: float = 1e-3,
        contact: Solver | None = None,
        *,
        pairs: Sequence[tuple[str, str]] | None = None,
        ignore: Sequence[tuple[str, str]] = (),
        self_collision: bool = False,
        ground: bool | None = None,
        terrain: Heightfield | None = None,
        constraints: Sequence[Equality] = (),
        limits: bool = True,
        integrator: Integrator | None = None,
        residual: Callable[..., Mapping[str, Any]] | None = None,
    ):
        if not isinstance(model, Model):
            raise InputError(f"Simulator: the model must be an adjoin.Model, got a {type(model).__name__}")
        if not isinstance(dt, (int, float)) or not 0.0 < dt < math.inf:
            raise InputError(f"Simulator: dt must be a positive number of seconds, got {dt!r}")
        if contact is not None and not hasattr(contact, "settle"):
            raise InputError(f"Simulator: contact must be a solver such as PGS(), got {contact!r}")
        if residual is not None and not callable(residual):
            raise InputError(f"Simulator: residual must be a traced function of q, v and control, got {residual!r}")
        if terrain is not None and ground is False:
            raise InputError("Simulator: terrain is ground; pass ground=True, or leave it out")
        if ground is None:
            floating = any(body.parent == WORLD and body.joint.type.floating for body in model.bodies)
            loose = bool(model.geometries) and all(shape.body != WORLD for shape in model.geometries)
            ground = (floating and loose) or terrain is not None
        self.model = with_ground(model) if ground else model
        found, _ = touching.pairs(self.model, pairs, ignore, self_collision)
        self._terrain = terrain
        if terrain is not None:
            found = [pair for pair in found if self._stands(pair, pairs is not None)]
        self.physics = Physics(
            float(dt), contact or PGS(), integrator or SemiImplicit(), tuple(found), tuple(constraints), limits
        )
        self.residual = residual
        self._made: dict[Any, Any] = {}
        with tracing(graph := Graph()):
            given: Values = {}
            if terrain is not None:
                given[TERRAIN] = Lookup(graph.fresh("table", (), 1, TABLE), terrain.shape)
            q = [graph.fresh("input", (), (0, i)) for i in range(self.model.nq)]
            unknown, _ = Plant(self.model, self.physics, given, terrain=terrain).at(q, [0.0] * self.model.nv)
            slots = contacts(unknown, self.physics.pairs, self.physics.contact.elliptic)
            blocks = [*[slot.block for slot in slots], *other_blocks(unknown, self.physics)]
        self.physics.integrator.require(self.model.name, blocks)
        points = {pair: tuple(slot.number for slot in slots if slot.pair is pair) for pair in self.physics.pairs}
        self.physics = replace(self.physics, pairs=tuple(replace(pair, points=k) for pair, k in points.items() if k))
        self._rows = sum(len(slot.block.rows) for slot in slots)
        shapes = self.model.geometries
        self.contact_names = [(shapes[slot.pair.first].name, shapes[slot.pair.second].name) for slot in slots]

    def _stands(self, pair: touching.Pair, chosen: bool) -> bool:
        """Whether a pair is not with terrain, or of a shape that can stand on it."""
        first, second = (self.model.geometries[index] for index in (pair.first, pair.second))
        if second.name != GROUND or first.kind in KINDS:
            return True
        if chosen:
            raise InputError(f"Simulator: {first.name!r} is a {first.kind}; on terrain stand: {', '.join(KINDS)}")
        return False

    # States

    def state(
        self,
        q: torch.Tensor | str | None = None,
        v: torch.Tensor | None = None,
        *,
        batch: int | Sequence[int] = (),
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> SimulatorState:
        """A state to begin with.

        Args:
            q: configurations, (..., nq), or the name of a key frame of the model; by default neutral.
            v: velocities, (..., nv); by default 0, or the key frame's.
            batch: shape of the batch, where no tensor is given.
            dtype: where no tensor is given; torch's default.
            device: where no tensor is given.
        """
        if isinstance(q, str):
            key = self.model.keyframe(q)
            like = v if v is not None else torch.empty(0, dtype=dtype or torch.get_default_dtype(), device=device)
            shape = () if v is not None else (batch,) if isinstance(batch, int) else tuple(batch)
            q = like.new_tensor(key.q).expand(*shape, -1)
            v = like.new_tensor(key.v).expand(*shape, -1) if v is None else v
        if q is None:
            like = v if v is not None else torch.empty(0, dtype=dtype, device=device)
            shape = v.shape[:-1] if v is not None else (batch,) if isinstance(batch, int) else tuple(batch)
            q = self.model.neutral(shape, dtype=like.dtype, device=like.device)
        v = q.new_zeros((*q.shape[:-1], self.model.nv)) if v is None else v
        for name, size, given in (("q", self.model.nq, q), ("v", self.model.nv, v)):
            check_tensor(TensorSpec(name, (size,)), given, f"state of {self.model.name!r}")
        try:
            both = torch.broadcast_shapes(q.shape[:-1], v.shape[:-1])
        except RuntimeError:
            raise InputError(
                f"state: batch shapes of q and v do not broadcast: {tuple(q.shape[:-1])} and {tuple(v.shape[:-1])}"
            ) from None
        q, v = q.expand(*both, q.shape[-1]), v.expand(*both, v.shape[-1])
        return SimulatorState(q, v, q.new_zeros(both), q.new_zeros((*both, self._warm)))

    def reset(self, state: SimulatorState, mask: torch.Tensor, to: SimulatorState | None = None) -> SimulatorState:
        """The state with some environments begun anew.

        Args:
            state: of all.
            mask: which ones, (...), true where to begin anew.
            to: their new state; by default neutral and at rest.
        """
        if mask.dtype != torch.bool or mask.shape != state.status.shape:
            raise InputError(
                f"reset: mask must be of booleans, {tuple(state.status.shape)}; got {mask.dtype}, {tuple(mask.shape)}"
            )
        to = to or self.state(batch=state.status.shape, dtype=state.q.dtype, device=state.q.device)
        parts = zip(to, state, strict=True)
        wide = [mask[..., None] if old.dim() > mask.dim() else mask for _, old in zip(to, state, strict=True)]
        return SimulatorState(*[torch.where(m, new, old) for m, (new, old) in zip(wide, parts, strict=True)])

    # One step

    def step(
        self,
        state: SimulatorState,
        control: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        individual: Mapping[str, torch.Tensor] | None = None,
    ) -> SimulatorState:
        """One step; differentiable, and saves only its inputs.

        Args:
            state: before.
            control: (..., nu); by default 0.
            params: parameters to take the place of the model's, one for the batch or one per environment.
            external: external forces: frame name -> (..., 6) [force; moment] at its origin, in world axes.
            constants: tensors that the residual takes by name, the same for the whole batch.
            individual: tensors that it takes by name, one per environment, (..., *shape).
        """
        given = Given(params, external, constants, individual)
        found = self._call("step", self._stepped, state, control, given)
        return SimulatorState(found["q"], found["v"], found["status"], found.get("impulses", state.impulses))

    def contacts(
        self,
        state: SimulatorState,
        control: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        individual: Mapping[str, torch.Tensor] | None = None,
    ) -> Contacts:
        """Where shapes touch in the step that begins with this state, and with what force.

        Args:
            state: before the step.
            control: (..., nu); by default 0.
            params: parameters to take the place of the model's.
            external: see `step`, like all that follows.
            constants: see `step`.
            individual: see `step`.
        """
        given = Given(params, external, constants, individual)
        return Contacts(**self._call("contacts", self._touched, state, control, given))

    def linearize(
        self,
        state: SimulatorState,
        control: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        individual: Mapping[str, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The derivative of a step, on the tangent space of the configurations.

        With x = (q, v), where a change of q is a velocity for unit time as in `Model.difference`, a small change dx of
        the state and du of the control change the state after the step by A dx + B du.

        Args:
            state: before the step.
            control: (..., nu); by default 0.
            params: parameters to take the place of the model's.
            external: see `step`, like all that follows.
            constants: see `step`.
            individual: see `step`.

        Returns:
            A, (..., 2 nv, 2 nv), and B, (..., 2 nv, nu).
        """
        nv, size = self.model.nv, 2 * self.model.nv + self.model.nu
        inputs = self._inputs(state, control, Given(params, external, constants, individual))
        function = self._function("linearize", inputs, self._linearized, change=(size,))
        kernel, _ = function.kernel.jvp((*[False] * len(inputs), True))
        direction = torch.eye(size, dtype=state.q.dtype, device=state.q.device)
        ranks = [len(slot.shape) for slot in kernel.program.inputs]
        wide = [
            tensor.unsqueeze(-rank - 1) if tensor.dim() > rank else tensor
            for (_, tensor), rank in zip(inputs.values(), ranks, strict=False)
        ]
        (moved,) = call(kernel, [*wide, torch.zeros_like(direction), direction])
        moved = moved.transpose(-1, -2)
        return moved[..., : 2 * nv], moved[..., 2 * nv :]

    # Many steps

    def rollout(
        self,
        state: SimulatorState,
        controls: torch.Tensor,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        controller: Callable[..., Any] | None = None,
        cost: Callable[..., Any] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        individual: Mapping[str, torch.Tensor] | None = None,
        contacts: bool = False,
        every: int = 1,
        progress: bool = False,
    ) -> Trajectory:
        """Many steps in one launch; its gradient is one launch too.

        Args:
            state: to begin with.
            controls: (steps, ..., nu); with a controller (steps, ..., anything), what it gets at each step.
            params: parameters to take the place of the model's.
            external: external forces: frame name -> (steps, ..., 6) [force; moment] at its origin, in world axes.
            controller: a traced function `controller(q, v, given, **named)` that gives the control.
            cost: a traced function `cost(q, v, control, **named)` of the state after each step; its values are
                `outputs["cost"]`, (steps, ...).
            constants: tensors that controller, cost and residual take by name, the same for the whole batch: gains,
                targets, weights of a network.
            individual: tensors that they take by name, one per environment, (..., *shape).
            contacts: whether distances and forces of contact are among the outputs.
            every: which states are kept: the first, every k-th and the last. The backward pass runs k steps again.
            progress: whether to show a progress bar; Ctrl-C then ends the rollout early with the steps that are done.

        Returns:
            The states that are kept, and the outputs of all steps.
        """
        if not isinstance(every, int) or every < 1:
            raise InputError(f"rollout: every must be a whole number of at least 1, got {every!r}")
        given = Given(params, external, constants, individual)
        return self._roll(Plan(controller, cost, contacts), state, {"control": controls}, given, every, progress)

    def diagnose(
        self,
        state: SimulatorState,
        controls: torch.Tensor,
        loss: Callable[[Trajectory], torch.Tensor],
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        controller: Callable[..., Any] | None = None,
        cost: Callable[..., Any] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        individual: Mapping[str, torch.Tensor] | None = None,
        contacts: bool = False,
    ) -> Diagnostics:
        """Where the gradient of a rollout comes from, or goes wrong: by environment and step.

        It runs the same steps in a kernel of its own, so rollouts cost nothing for it.

        Args:
            state: to begin with.
            controls: as for `rollout`, like all that follows.
            loss: a number from a trajectory, by torch operations: the one whose gradient is in question.
            params: see `rollout`.
            external: see `rollout`.
            controller: see `rollout`.
            cost: see `rollout`.
            constants: see `rollout`.
            individual: see `rollout`.
            contacts: see `rollout`.
        """
        q, v = state.q.detach().requires_grad_(), state.v.detach().requires_grad_()
        nudges = [x.new_zeros((len(controls), *x.shape)).requires_grad_() for x in (q, v)]
        streams = {"control": controls, "nudge_q": nudges[0], "nudge_v": nudges[1]}
        plan = Plan(controller, cost, contacts, watched=True)
        with torch.enable_grad():
            given = Given(params, external, constants, individual)
            path = self._roll(plan, state._replace(q=q, v=v), streams, given)
            return diagnosed(path, [q, v], nudges, loss)

    def _roll(
        self,
        plan: Plan,
        state: SimulatorState,
        streams: dict[str, torch.Tensor],
        given: Given,
        every: int = 1,
        progress: bool = False,
    ) -> Trajectory:
        batch, controls = state.status.shape, streams["control"]
        if self.model.nv == 0:
            raise InputError(f"rollout: nothing of {self.model.name!r} moves; load it with floating_base=True")
        if not isinstance(controls, torch.Tensor):
            raise InputError(f"rollout: controls must be a torch tensor, got {type(controls).__name__}")
        control: tuple[int, ...] = (self.model.nu,)
        if plan.controller is not None:
            own = controls.shape[1 : 1 + len(batch)] == batch
            control = tuple(controls.shape[1 + len(batch) :] if own else controls.shape[1:])
        elif controls.dim() < 2 or controls.shape[-1] != self.model.nu:
            none = "; it has no actuators: with_motors() and with_servos() give it some" if self.model.nu == 0 else ""
            raise InputError(
                f"rollout: controls of {self.model.name!r} must have the shape (steps, ..., {self.model.nu}), "
                f"got {tuple(controls.shape)} for states of the batch shape {tuple(batch)}{none}"
            )
        carry = {name: tensor for name, tensor in state._asdict().items() if tensor.shape[-1:] != (0,)}
        functions = (plan.controller, plan.cost, self.residual)
        fixed = {**self._fixed(state, given.params), **given.named("rollout", len(batch), functions)}
        streams = {**streams, **{name: tensor for name, (_, tensor) in given.forces(self.model).items()}}
        shapes = {name: shape for name, (shape, _) in fixed.items()}
        key = (plan, tuple(shapes.items()), tuple(streams), control)
        if key not in self._made:
            each = {"control": control, "nudge_q": (self.model.nq,), "nudge_v": (self.model.nv,)}
            self._made[key] = self._rolled(plan, {name: each.get(name, (6,)) for name in streams}, shapes)
        tensors = {name: tensor for name, (_, tensor) in fixed.items()}
        states, outputs = self._made[key](carry, streams, tensors, every, progress)
        states.setdefault("impulses", states["q"][..., :0])
        return Trajectory(**states, outputs=outputs)

    # What is traced

    @property
    def _warm(self) -> int:
        """How many impulses a state holds."""
        return self._rows if self.physics.contact.warm else 0

    def _next(self, values: Values) -> tuple[dict[str, Any], Stepped]:
        """The state after a step, frozen where the step went wrong; and the step."""
        q, v = list(values["q"]), list(values["v"])
        stepped = self.physics.integrator.advance(self._plant(values), q, v, values.get("impulses"))
        status = values["status"]
        speed, place = (sum((x * x for x in part), 0.0) for part in (stepped.v, stepped.q))
        finite = sum((abs(x) for x in (*stepped.v, *stepped.q, *numbers(values))), 0.0) < math.inf
        fine = finite & (speed < FASTEST**2) & (place < FARTHEST**2)
        wrong = select(finite, EXPLODED, NOT_FINITE)
        after = select(status == FINE, select(fine, FINE, wrong), status)
        going = after == FINE

        def unless_frozen(new: Sequence[Scalar], old: Sequence[Scalar]) -> list[Scalar]:
            return [select(going, a, b) for a, b in zip(new, detach(old), strict=True)]

        found = {"q": unless_frozen(stepped.q, q), "v": unless_frozen(stepped.v, v), "status": after}
        if "impulses" in values:
            found["impulses"] = unless_frozen(stepped.impulses[: self._warm], list(values["impulses"]))
        return found, stepped

    def _plant(self, values: Values) -> Plant:
        return Plant(
            self.model,
            self.physics,
            part(values, "params"),
            list(values["control"]) if "control" in values else [],
            part(values, "external"),
            self.residual and bound(self.residual, values),
            self._terrain,
        )

    def _contacts(self, stepped: Stepped) -> dict[str, Any]:
        distances, positions, normals, forces = [], [], [], []
        first = 0
        for contact in stepped.contacts:
            impulses = stepped.impulses[first : first + len(contact.block.rows)][:3]
            first += len(contact.block.rows)
            force = [0.0, 0.0, 0.0]
            for impulse, axis in zip(impulses, contact.axes, strict=False):
                force = [f + impulse * x / self.physics.dt for f, x in zip(force, axis, strict=True)]
            distances.append(contact.point.distance)
            positions.append(contact.point.position)
            normals.append(contact.point.normal)
            forces.append(force)
        return {"distance": distances, "position": positions, "normal": normals, "force": forces}

    def _stepped(self, **values: Any) -> dict[str, Any]:
        after = self._next(values)[0]
        guard(after["status"] == FINE)
        return after

    def _touched(self, **values: Any) -> dict[str, Any]:
        after, stepped = self._next(values)
        guard(after["status"] == FINE)
        found = self._contacts(stepped)
        count = len(self.contact_names)
        shapes = {"distance": (count,)}
        return {name: np.array(x, dtype=object).reshape(shapes.get(name, (count, 3))) for name, x in found.items()}

    def _linearized(self, change: Any, **values: Any) -> Any:
        nv = self.model.nv
        values["q"] = manifold.integrate(self.model, list(values["q"]), change[:nv])
        values["v"] = values["v"] + change[nv : 2 * nv]
        if "control" in values:
            values["control"] = values["control"] + change[2 * nv :]
        after, _ = self._next(values)
        return [*manifold.difference(self.model, detach(after["q"]), after["q"]), *after["v"]]

    def _rolled(self, plan: Plan, streamed: Shapes, fixed: Shapes) -> Rollout:
        def step(carry: Values, streams: Values, constants: Values) -> tuple[Values, Values]:
            control = streams["control"]
            if plan.controller is not None:
                given = bound(plan.controller, constants)(carry["q"], carry["v"], control)
                control = np.array(given, dtype=object)
                if control.shape != (self.model.nu,):
                    raise InputError(f"rollout: the controller gave {control.shape}; a control is ({self.model.nu},)")
            values = {**carry, **constants, **streams, "control": control}
            after, stepped = self._next(values)
            if plan.watched:
                after.update({name: np.array(after[name]) + streams[f"nudge_{name}"] for name in ("q", "v")})
            outputs: Values = {}
            if plan.cost is not None:
                q, v = (np.array(after[name], dtype=object) for name in ("q", "v"))
                outputs["cost"] = bound(plan.cost, constants)(q, v, control)
            if plan.contacts:
                outputs.update({name: value for name, value in self._contacts(stepped).items() if value})
            if plan.watched:
                outputs.update(watch(values, numbers(values), stepped))
            return after, outputs

        name = f"rollout({self.model.name})"
        return Rollout(name, step, self._carried(), streamed, fixed, lambda last: last["status"] == FINE)

    # Calls

    def _carried(self) -> dict[str, tuple[int, ...]]:
        warm = {"impulses": (self._warm,)} if self._warm else {}
        return {"q": (self.model.nq,), "v": (self.model.nv,), "status": (), **warm}

    def _shape(self, name: str) -> Any:
        if name == RESTITUTION:
            return ()
        if name == TERRAIN and self._terrain is not None:
            return Table(self._terrain.shape)
        return parameters.shape(self.model, parameters.named(name))

    def _parameters(self, state: SimulatorState, params: Mapping[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
        given = dict(params or {})
        heights, restitution = given.pop(TERRAIN, None), given.pop(RESTITUTION, None)
        batch = tuple(state.status.shape)
        found = self.model.check_parameters(given, batch)
        if restitution is not None:
            require_restitution(self.physics.contact)
            check_restitution(restitution, batch)
            found[RESTITUTION] = restitution
        if self._terrain is not None:
            found[TERRAIN] = self._heights(self._terrain, state.q) if heights is None else heights
        elif heights is not None:
            raise InputError(f"{self.model.name!r} stands on no terrain; pass terrain=Heightfield(...) to Simulator")
        return found

    def _fixed(self, state: SimulatorState, params: Mapping[str, torch.Tensor] | None) -> dict[str, Input]:
        """The parameters as inputs, by slot."""
        found = self._parameters(state, params)
        return {slot("params", name): Input(self._shape(name), tensor) for name, tensor in found.items()}

    def _heights(self, terrain: Heightfield, like: torch.Tensor) -> torch.Tensor:
        key = (TERRAIN, like.dtype, like.device)
        if key not in self._made:
            self._made[key] = terrain.heights.to(like)
        return self._made[key]

    def _inputs(self, state: SimulatorState, control: torch.Tensor | None, given: Given) -> dict[str, Input]:
        shapes, parts = self._carried(), state._asdict()
        found = {name: Input(shape, parts[name]) for name, shape in shapes.items()}
        control = state.q.new_zeros(self.model.nu) if control is None else control
        if self.model.nu:
            found["control"] = Input((self.model.nu,), control)
        else:
            check_tensor(TensorSpec("control", (0,)), control, f"step of {self.model.name!r}")
        named = given.named("step", state.status.dim(), (self.residual,))
        return {**found, **given.forces(self.model), **self._fixed(state, given.params), **named}

    def _function(
        self, name: str, inputs: Mapping[str, Input], traced: Callable[..., Any], **more: tuple[int, ...]
    ) -> Function:
        shapes = {slot: shape for slot, (shape, _) in inputs.items()}
        key = (name, tuple(shapes.items()))
        if key not in self._made:

            def own(**values: Any) -> Any:
                return traced(**values)

            own.__name__ = f"{name}({self.model.name})"
            self._made[key] = Function(own, {**shapes, **more})
        return self._made[key]

    def _call(
        self, name: str, traced: Callable[..., Any], state: SimulatorState, control: torch.Tensor | None, given: Given
    ) -> dict[str, torch.Tensor]:
        inputs = self._inputs(state, control, given)
        return self._function(name, inputs, traced)(*[tensor for _, tensor in inputs.values()])


def with_ground(model: Model) -> Model:
    """The model with a plane at z = 0."""
    if GROUND in [part.name for part in (*model.frames, *model.geometries)]:
        raise InputError(f"Simulator: {model.name!r} has something called {GROUND!r} already; pass ground=False")
    shape = Geometry(GROUND, "plane", WORLD, GROUND)
    return replace(model, frames=(*model.frames, Frame(GROUND, WORLD)), geometries=(*model.geometries, shape))
