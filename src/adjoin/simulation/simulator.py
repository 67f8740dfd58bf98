"""The simulator: a world as differentiable operators on torch tensors."""

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from adjoin.collision.self_collision import LeftOut, counted
from adjoin.collision.terrain import Heightfield
from adjoin.compiler.ir.program import TensorSpec
from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.function import Function
from adjoin.compiler.runtime.operator import call, check_tensor
from adjoin.compiler.runtime.torch_compile import called_while_tracing, object_at
from adjoin.constraints.rows import Equality
from adjoin.constraints.solver import ListedSolver, Solver
from adjoin.errors import InputError
from adjoin.model import manifold
from adjoin.model.model import Model
from adjoin.simulation.arguments import Argument, Tensors, arguments, check_taken
from adjoin.simulation.calls import CallArguments, KnownCall
from adjoin.simulation.clearance import set_down
from adjoin.simulation.convergence import ConvergenceCheck
from adjoin.simulation.diagnostics import Diagnostics, diagnosed
from adjoin.simulation.start import start_state, warn_if_inside_ground
from adjoin.simulation.state import FINE, Contacts, SimulatorState, Trajectory
from adjoin.simulation.step import STEP_VALUES, Integrator, added_functions
from adjoin.simulation.world import Plant, Residual, Values, World, is_listed
from adjoin.simulation.world_rollout import Outputs, WorldRollout, input_name, plant_of, trajectory
from adjoin.trace import detach, guard


class Simulator:
    """Steps a model through time.

    Args:
        model: The robot or robots.
        dt: The time step, s; by default the one of the model's file, or 1 ms.
        contact: How contacts and other constraints are solved: `PGS(...)`, `Newton(...)` or `Compliant(...)`; by
            default `Newton()`, which steps as MuJoCo does, for a model from an MJCF file, and `PGS()` for others, with
            more sweeps and a warm start where loose things of different masses can touch.
        pairs: Which shapes touch, as pairs of names of shapes or links; by default all that the model lets.
        ignore: Pairs that do not touch.
        self_collision: Whether shapes of one robot touch each other too. In a model from an MJCF file all do that it
            lets touch. In others neighbors do not, nor shapes that overlap when the robot is at rest, nor those that
            cannot meet within joint limits: see `left_out`.
        ground: Whether to add a plane at z = 0, a shape called "ground"; by default if something can fall, no shape
            is fixed to the world, and the model is not from an MJCF file, which has a floor of its own or none.
        terrain: Heights that take the place of that plane; by default those of the model. `params` may hold other
            heights as "terrain", (..., rows, columns).
        constraints: `FrameConstraint`s, frames held to the world or to one another, and `JointEquality`s.
        limits: Whether joints have limits.
        integrator: How steps are taken: `SemiImplicit(...)`, `RK4()` or `ConstrainedRK4()`; by default what the model's
            file says, else `SemiImplicit()`.
        max_contacts: How many contacts an environment may have at once, where they are a list; by default 32, 4
            for each body and 8 more for each that floats. An environment that has more gets the status 3.
        as_list: Whether a step has a list of the contacts that touch, whose cost and code follow what does, instead of
            rows for every point that could; by default a list if more than 8 points could, or if kinds of shapes need
            a search for points, and not on terrain. `Newton` always has a list.
        residual: What the model lacks: a traced function of `q`, `v`, `control` and named tensors that returns
            additions by name: "force", nv generalized forces, or any parameter, in its shape. Each step evaluates it
            as the step begins (`RK4` four times).

    Calls take `params`: those of the model, "terrain", and the numbers of the contact solver as "contact_<name>".

    Attributes:
        world: What is simulated: the traced step as an object.
        contact_names: The two shapes of each point of contact, or of each pair if contacts are a list; `Contacts.pair`
            says which of them a contact is of.
        left_out: The pairs of shapes of one robot that do not touch although the model's filters let them, each with
            its reason: "overlap at rest" or "out of reach".
    """

    def __init__(
        self,
        model: Model,
        dt: float | None = None,
        contact: Solver | ListedSolver | None = None,
        *,
        pairs: Sequence[tuple[str, str]] | None = None,
        ignore: Sequence[tuple[str, str]] = (),
        self_collision: bool = True,
        ground: bool | None = None,
        terrain: Heightfield | None = None,
        constraints: Sequence[Equality] = (),
        limits: bool = True,
        integrator: Integrator | None = None,
        max_contacts: int | None = None,
        as_list: bool | None = None,
        residual: Residual | None = None,
    ):
        if not isinstance(model, Model):
            raise InputError(f"Simulator: the model must be an adjoin.Model, got a {type(model).__name__}")
        dt = model.timestep or 1e-3 if dt is None else dt
        if not isinstance(dt, (int, float)) or not 0.0 < dt < math.inf:
            raise InputError(f"Simulator: dt must be a positive number of seconds, got {dt!r}")
        if contact is not None and (isinstance(contact, type) or not (hasattr(contact, "solve") or is_listed(contact))):
            raise InputError(f"Simulator: contact must be a solver such as PGS(), got {contact!r}")
        if isinstance(adjoint := getattr(contact, "adjoint", None), type):
            raise InputError(f"Simulator: adjoint must be an object such as {adjoint.__name__}(), got the class")
        if isinstance(integrator, type) or (integrator is not None and not hasattr(integrator, "advance")):
            raise InputError(f"Simulator: integrator must be an object such as RK4(), got {integrator!r}")
        if residual is not None and not callable(residual):
            raise InputError(f"Simulator: residual must be a traced function of q, v and control, got {residual!r}")
        if max_contacts is not None and (type(max_contacts) is not int or max_contacts < 1):
            raise InputError(f"Simulator: max_contacts must be a whole number of at least 1, got {max_contacts!r}")
        chosen = {"contact": contact, "integrator": integrator, "residual": residual}
        self.world = World.of(
            model,
            dt,
            pairs=pairs,
            ignore=ignore,
            self_collision=self_collision,
            ground=ground,
            terrain=terrain,
            constraints=tuple(constraints),
            limits=limits,
            max_contacts=max_contacts,
            as_list=as_list,
            **{name: value for name, value in chosen.items() if value is not None},
        )
        shapes = self.model.geometries
        # Computed here: torch.compile cannot enter the lock of a cached property.
        _ = self.world.carry, self.world.parameters
        self.contact_names = [(shapes[p.first].name, shapes[p.second].name) for p in self.world.contact_pairs]
        self._kernels: BoundedCache[Any] = BoundedCache(256)
        self._calls: BoundedCache[KnownCall] = BoundedCache(256)
        self._convergence = ConvergenceCheck(self.world)

    def with_contact(self, contact: Solver | ListedSolver) -> "Simulator":
        """Return a simulator of the same world in which contacts and other constraints are solved otherwise."""
        other = copy.copy(self)
        other.world = replace(self.world, contact=contact)
        shapes = self.model.geometries
        other.contact_names = [(shapes[p.first].name, shapes[p.second].name) for p in other.world.contact_pairs]
        other._kernels, other._calls = BoundedCache(256), BoundedCache(256)
        other._convergence = ConvergenceCheck(other.world)
        return other

    def __repr__(self) -> str:
        world, model = self.world, self.model
        pairs = ", ".join(f"{a} and {b}" for a, b in dict.fromkeys(self.contact_names[:4]))
        more = ", ..." if len(self.contact_names) > 4 else ""
        lines = [
            f"Simulator({model.name!r}, dt={self.dt:g}): nq {model.nq}, nv {model.nv}, nu {model.nu}",
            f"  solver: {world.contact!r}",
            f"  integrator: {world.integrator!r}",
            f"  contacts: {len(self.contact_names)} {'pairs' if world.listed else 'points'}"
            + (f", {pairs}{more}" if pairs else ""),
            *([f"  left out: {counted(self.left_out)}; see left_out"] if self.left_out else []),
            f"  rows: {world.row_count} of {'other constraints' if world.listed else 'contacts and other constraints'}",
            f"  kernels: {', '.join(self._kernel_names()) or 'none yet; the first call traces and compiles'}",
        ]
        return "\n".join(lines)

    def _kernel_names(self) -> list[str]:
        """The kernels so far, and whether they are compiled."""
        names = {}
        for key, value in self._kernels.items():
            kernel = (value[0] if isinstance(value, tuple) else value).kernel
            compiled = kernel.is_compiled
            name = str(key[0] if isinstance(key, tuple) else key)
            names[name] = names.get(name, False) or compiled
        return [f"{name} ({'compiled' if compiled else 'traced'})" for name, compiled in names.items()]

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the pairs of shapes of one robot that do not touch, each with its reason."""
        return self.world.left_out

    @property
    def model(self) -> Model:
        """Return the model, with the ground if it was added."""
        return self.world.model

    @property
    def dt(self) -> float:
        """Return the time step, s."""
        return self.world.dt

    # States

    def state(
        self,
        q: torch.Tensor | str | None = None,
        v: torch.Tensor | None = None,
        *,
        batch: int | Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> SimulatorState:
        """Return a state to begin with.

        Steps from a key frame that are given no control take that of the key frame. On the CPU, a state that begins
        inside the ground is warned of. An environment that begins with a number that is not finite gets the status 1
        and stays in the neutral configuration.

        Args:
            q: Configurations, (..., nq), or the name of a key frame of the model, such as "home"; by default "qpos0"
                if the model is from an MJCF file, where its bodies are in the file, else neutral.
            v: Velocities, (..., nv); by default 0, or the key frame's.
            batch: The shape of the batch, to which q and v are expanded; by default theirs.
            dtype: The dtype; by default that of q and v, or torch's.
            device: The device; by default that of q and v, or torch's.
        """
        state = start_state(self.world, q, v, batch, dtype, device)
        warn_if_inside_ground(self.world, state)
        return state

    def drop(
        self,
        q: torch.Tensor | str | None = None,
        v: torch.Tensor | None = None,
        *,
        batch: int | Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> SimulatorState:
        """Return a state to begin with, with robots set down: their lowest shapes just touch the ground.

        Only robots with a free base move, straight up or down.

        Args:
            q: See `state`, like all that follows.
            v: See `state`.
            batch: See `state`.
            dtype: See `state`.
            device: See `state`.
        """
        state = start_state(self.world, q, v, batch, dtype, device)
        q = set_down(self.world, state.q)
        return state.replace(q=q, start={**state.start, "q": q.detach().clone()})

    def reset(self, state: SimulatorState, mask: torch.Tensor, to: SimulatorState | None = None) -> SimulatorState:
        """Return the state with some environments begun anew.

        Args:
            state: The state of all.
            mask: Which ones to begin anew, (...).
            to: Their new state, to which later resets go too; by default the one that they began with.
        """
        if mask.dtype != torch.bool or mask.shape != state.batch:
            raise InputError(
                f"reset: mask must be of booleans, {tuple(state.batch)}; got {mask.dtype}, {tuple(mask.shape)}"
            )
        if to is None:
            if not state.start:
                raise InputError("reset: it is not known where this state began; pass to=sim.state(...)")
            began = dict(state.start)
            to = start_state(self.world, began.pop("q"), began.pop("v"), state.batch, None, None)
            carried = {name: x for name, x in began.items() if name in to.memory}
            to = to.replace(memory={**to.memory, **carried}, start=state.start)

        def chosen(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
            return torch.where(mask[..., None] if old.dim() > mask.dim() else mask, new, old)

        memory = {name: chosen(to.memory[name], old) for name, old in state.memory.items()}
        start = {
            name: chosen(to.start[name] if name in to.start else torch.zeros_like(old), old)
            for name, old in (state.start.items() if to.start else ())
        } or state.start
        return SimulatorState(chosen(to.q, state.q), chosen(to.v, state.v), memory, start)

    def prebuild(
        self, batch: int | Sequence[int] = (), dtype: torch.dtype | None = None, *, gradients: bool = True
    ) -> None:
        """Compile the kernels of `step` and of `rollout` with controls, into memory and the cache on disk.

        Calls with other arguments, such as parameters or a controller, have kernels of their own, which this leaves to
        the first call.

        Args:
            batch: A shape of the batch; single environments and batches have code of their own.
            dtype: The dtype; by default torch's.
            gradients: Whether to compile the gradients to states and controls too.
        """
        state = start_state(self.world, None, None, batch, dtype, None)
        controls = state.q.new_zeros((1, *state.batch, self.model.nu))
        with torch.set_grad_enabled(gradients):
            if gradients:
                q, v = state.q.clone().requires_grad_(), state.v.clone().requires_grad_()
                state, controls = state.replace(q=q, v=v), controls.requires_grad_(self.model.nu > 0)
            for after in (self.step(state, controls[0]), self.rollout(state, controls).last):
                if gradients:
                    (after.q.sum() + after.v.sum()).backward()

    # One step

    def step(
        self,
        state: SimulatorState,
        control: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        tensors: Tensors | None = None,
    ) -> SimulatorState:
        """Take one step; it is differentiable, and saves only its inputs.

        Args:
            state: The state before.
            control: (..., nu); by default that of the key frame which the state began with, or 0.
            params: Parameters to take the place of the model's, one for the batch or one per environment.
            external: External forces: frame name -> (..., 6) [force; moment] at its origin, in world axes.
            tensors: Tensors that the residual takes by name, the same for the whole batch, or `PerEnvironment`.
        """
        after = _state(self._call("step", _stepped, state, control, params, external, tensors), state)
        if self._convergence.pending:
            given = (state, control, params, external, tensors)
            self._convergence.at_backward([after.q, after.v], lambda: self._call("residual", _unsettled, *given)[None])
        return after

    def contacts(
        self,
        state: SimulatorState,
        control: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        tensors: Tensors | None = None,
    ) -> Contacts:
        """Return where shapes touch in the step that begins with this state, and with what force.

        Args:
            state: The state before the step.
            control: See `step`, like all that follows.
            params: See `step`.
            external: See `step`.
            tensors: See `step`.
        """
        return self._call("contacts", _touched, state, control, params, external, tensors)

    def linearize(
        self,
        state: SimulatorState,
        control: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        external: Mapping[str, torch.Tensor] | None = None,
        tensors: Tensors | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the derivative of a step, on the tangent space of the configurations.

        With x = (q, v), where a change of q is a velocity for unit time as in `Model.difference`, a small change dx of
        the state and du of the control change the state after the step by A dx + B du.

        Args:
            state: The state before the step.
            control: See `step`, like all that follows.
            params: See `step`.
            external: See `step`.
            tensors: See `step`.

        Returns:
            A, (..., 2 nv, 2 nv), and B, (..., 2 nv, nu).
        """
        nv, size = self.model.nv, 2 * self.model.nv + self.model.nu

        def moved(plant: Plant, carry: Values, change: Any) -> Any:
            carry["q"] = manifold.integrate(self.model, list(carry["q"]), change[:nv])
            carry["v"] = carry["v"] + change[nv : 2 * nv]
            control = [u + du for u, du in zip(plant.control, change[2 * nv :], strict=True)]
            shifted = self.world.plant(control, plant.params, plant.external, plant.tensors)
            after, _ = self.world.step(shifted, carry)
            return [*manifold.difference(self.model, detach(after["q"]), after["q"]), *after["v"]]

        inputs = self._inputs("linearize", state, control, params, external, tensors)
        function = self._function("linearize", moved, inputs, change=(size,))
        kernel, _ = function.kernel.jvp((*[False] * len(inputs), True))
        direction = torch.eye(size, dtype=state.q.dtype, device=state.q.device)
        ranks = [len(slot.shape) for slot in kernel.program.inputs]
        wide = [
            argument.tensor.unsqueeze(-rank - 1) if argument.tensor.dim() > rank else argument.tensor
            for argument, rank in zip(inputs.values(), ranks, strict=False)
        ]
        (rows,) = call(kernel, [*wide, torch.zeros_like(direction), direction])
        rows = rows.transpose(-1, -2)
        return rows[..., : 2 * nv], rows[..., 2 * nv :]

    # Many steps

    def rollout(
        self,
        state: SimulatorState,
        controls: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        steps: int | None = None,
        external: Mapping[str, torch.Tensor] | None = None,
        controller: Callable[..., Any] | None = None,
        outputs: Outputs = (),
        tensors: Tensors | None = None,
        every: int = 1,
        progress: bool = False,
    ) -> Trajectory:
        """Take many steps in one launch; its gradient is one launch too.

        Args:
            state: The state to begin with.
            controls: (steps, ..., nu); with a controller (steps, ..., anything), what it gets as `control`.
            params: Parameters to take the place of the model's, one for the batch or one per environment.
            steps: How many, where there are no controls: those are then 0, or up to the controller.
            external: External forces: frame name -> (steps, ..., 6) [force; moment] at its origin, in world axes.
            controller: A traced function that returns the control. It takes what it names: `q`, `v`, `control`, and
                named tensors.
            outputs: What to return besides the states, (steps, ...) each: names such as "contacts" or "acceleration"
                (`adjoin.simulation.step` has them all), or a mapping from labels to names or to traced functions. A
                function takes what it names: `q`, `v` (before the step), `control`, `next_q`, `next_v` (after it), any
                other of those values, and named tensors.
            tensors: Tensors that controller, outputs and residual take by name: gains, targets, weights of a network.
                A plain tensor is the same for the whole batch; see `PerEnvironment` and `PerStep`.
            every: Which states are kept: the first, every k-th and the last. The backward pass runs k steps again.
            progress: Whether to show a progress bar.

        Returns:
            The states that are kept, and the outputs of all steps.
        """
        if not isinstance(every, int) or every < 1:
            raise InputError(f"rollout: every must be a whole number of at least 1, got {every!r}")
        given = CallArguments(state, controls, params, external, tensors)
        labels = tuple(outputs.items() if isinstance(outputs, Mapping) else outputs)
        key = given.key("rollout", steps, controller, labels) if every == 1 and not progress else None
        known = None if key is None else self._calls.peek(key)
        if known is not None and (values := known.values(self.world, given, steps)) is not None:
            rollout, structure = known.kernel
            results = rollout.call_prepared(values)
            if results is not None:
                states, arrays = rollout.by_name(results)
                path = trajectory(states, arrays, structure, len(states["q"]) - 1, state)
                return self._with_check(path, state, controls, params, steps, external, controller, outputs, tensors)
        call = self._prepare("rollout", state, controls, params, steps, external, controller, outputs, tensors)
        path = call.run(every, progress)
        if key is not None:
            self._calls.put(key, KnownCall.of(call.traced, self.world, call.inputs))
        path = path.replace(start=state.expand_start(path.q.shape[:-1]))
        return self._with_check(path, state, controls, params, steps, external, controller, outputs, tensors)

    def diagnose(
        self,
        state: SimulatorState,
        controls: torch.Tensor | None,
        loss: Callable[[Trajectory], torch.Tensor],
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        steps: int | None = None,
        external: Mapping[str, torch.Tensor] | None = None,
        controller: Callable[..., Any] | None = None,
        outputs: Outputs = (),
        tensors: Tensors | None = None,
    ) -> Diagnostics:
        """Find where the gradient of a rollout comes from, or goes wrong: by environment and step.

        It runs the same steps in a kernel of its own, so rollouts cost nothing for it.

        Args:
            state: The state to begin with.
            controls: See `rollout`, like all that follows.
            loss: A number from a trajectory, by torch operations: the one whose gradient is in question.
            params: See `rollout`.
            steps: See `rollout`.
            external: See `rollout`.
            controller: See `rollout`.
            outputs: See `rollout`.
            tensors: See `rollout`.
        """
        with torch.enable_grad():
            q, v = state.q.detach().requires_grad_(), state.v.detach().requires_grad_()
            start = state.replace(q=q, v=v)
            call = self._prepare("diagnose", start, controls, params, steps, external, controller, outputs, tensors)
            nudges = {name: x.new_zeros((call.steps, *x.shape)).requires_grad_() for name, x in (("q", q), ("v", v))}
            path = call.run(nudges=nudges)
            residual = self._residuals(state, controls, params, steps, external, controller, outputs, tensors)
            return diagnosed(path, [q, v], list(nudges.values()), loss, residual)

    @torch.no_grad()
    def _residuals(self, *given: Any) -> torch.Tensor:
        """How far the solves of a rollout got: apart, so that one more output cannot change the bits of its steps.

        Args:
            given: what `_prepare` takes after the label.
        """
        state, controls, params, steps, external, controller, outputs, tensors = given
        named = outputs if isinstance(outputs, Mapping) else dict(zip(outputs, outputs, strict=True))
        wanted = {**named, "solver_residual": "solver_residual"}
        solved = self._prepare("residual", state, controls, params, steps, external, controller, wanted, tensors).run()
        return solved.outputs["solver_residual"].detach()

    def _with_check(self, path: Trajectory, *given: Any) -> Trajectory:
        """The same, watched if no gradient was looked at yet."""
        if self._convergence.pending:
            self._convergence.at_backward([path.q, path.v], lambda: self._residuals(*given))
        return path

    # Calls

    def _inputs(
        self,
        label: str,
        state: SimulatorState,
        control: torch.Tensor | None,
        params: Mapping[str, torch.Tensor] | None,
        external: Mapping[str, torch.Tensor] | None,
        tensors: Tensors | None,
    ) -> dict[str, Argument]:
        """What one step takes, by the names that the inputs of its kernel have."""
        inputs = {name: Argument(shape, self._carried(state, name)) for name, shape in self.world.carry.items()}
        if control is not None or self.model.nu:
            if control is None:
                control = state.start["control"] if "control" in state.start else state.q.new_zeros(self.model.nu)
            if self.model.nu:
                inputs["control"] = Argument((self.model.nu,), control)
            else:
                check_tensor(TensorSpec("control", (0,)), control, f"step of {self.model.name!r}")
        named = arguments(label, tensors, state.batch, None)
        check_taken(label, named, (self.world.residual,), list(STEP_VALUES))
        return {**inputs, **self._rest(state, params, external, named)}

    def _carried(self, state: SimulatorState, name: str) -> torch.Tensor:
        if not isinstance(state, SimulatorState):
            raise InputError(f"state must be one of Simulator.state, got a {type(state).__name__}")
        if name in ("q", "v"):
            return getattr(state, name)
        if name not in state.memory:
            raise InputError(f"the state has no {name!r}; it was made by another simulator: see Simulator.state")
        return state.memory[name]

    def _rest(
        self,
        state: SimulatorState,
        params: Mapping[str, torch.Tensor] | None,
        external: Mapping[str, torch.Tensor] | None,
        named: Mapping[str, Argument],
        streamed: bool = False,
    ) -> dict[str, Argument]:
        for name in external or {}:
            self.model.frame_index(name)
        forces = {input_name("external", name): Argument((6,), x, streamed) for name, x in (external or {}).items()}
        checked = self.world.check_params(params, state.q, state.batch)
        numbers = {input_name("params", name): Argument(self.world.parameters[name], x) for name, x in checked.items()}
        return {**forces, **numbers, **{input_name("tensors", name): x for name, x in named.items()}}

    def _prepare(
        self,
        label: str,
        state: SimulatorState,
        controls: torch.Tensor | None,
        params: Mapping[str, torch.Tensor] | None,
        steps: int | None,
        external: Mapping[str, torch.Tensor] | None,
        controller: Callable[..., Any] | None,
        outputs: Outputs,
        tensors: Tensors | None,
    ) -> WorldRollout:
        """A rollout, its inputs checked."""
        carry = {name: self._carried(state, name) for name in self.world.carry}
        held = state.start.get("control")
        call = WorldRollout(label, self.world, self._kernels, carry, controls, steps, controller, outputs, held)
        named = arguments(label, tensors, state.batch, call.steps)
        check_taken(label, named, (self.world.residual, *call.functions), list(STEP_VALUES))
        call.inputs.update(self._rest(state, params, external, named, streamed=True))
        return call

    def _function(
        self,
        name: str,
        traced: Callable[..., Any],
        inputs: Mapping[str, Argument],
        **more: tuple[int, ...],
    ) -> Function:
        shapes = {label: argument.shape for label, argument in inputs.items()}

        def of_world(**values: Any) -> Any:
            carry = {name: values[name] for name in self.world.carry}
            return traced(plant_of(self.world, values), carry, **{name: values[name] for name in more})

        of_world.__name__ = f"{name}({self.model.name})"
        key = (name, self.world, added_functions())
        together = (
            *self.world.carry,
            "control",
        )  # gradients of a loop of steps: not to its start, and not to what ends it
        return self._kernels.get(
            (name, tuple(shapes.items())), lambda: Function(of_world, {**shapes, **more}, key, together)
        )

    def _call(
        self,
        name: str,
        traced: Callable[[World, Plant, Values], Any],
        state: SimulatorState,
        control: torch.Tensor | None,
        params: Mapping[str, torch.Tensor] | None,
        external: Mapping[str, torch.Tensor] | None,
        tensors: Tensors | None,
    ) -> Any:
        """What a traced function of one step returns for these tensors."""
        given = CallArguments(state, control, params, external, tensors)
        key = given.key(name) if control is None or self.model.nu else None
        known = None if key is None else self._calls.peek(key)
        if known is not None and (values := known.values(self.world, given)) is not None:
            results = known.kernel.call_prepared(values)
            if results is not None:
                return results
        inputs = self._inputs(name, state, control, params, external, tensors)
        if torch.compiler.is_compiling():
            _trace_beside(id(self), name, tuple([(label, argument.shape) for label, argument in inputs.items()]))
        function = self._function(name, functools.partial(traced, self.world), inputs)
        if key is not None:
            behind = {label: argument for label, argument in inputs.items() if label not in self.world.carry}
            self._calls.put(key, KnownCall.of(function, self.world, behind))
        return function(*[argument.tensor for argument in inputs.values()])


@called_while_tracing
def _trace_beside(simulator: int, name: str, shapes: tuple[tuple[str, Any], ...]) -> bool:
    """Trace a function of one step while torch compiles a call of it."""
    sim: Simulator = object_at(simulator)
    empty = torch.empty(0)
    traced = functools.partial({"step": _stepped, "contacts": _touched}[name], sim.world)
    sim._function(name, traced, {label: Argument(shape, empty) for label, shape in shapes})
    return True


def _state(carry: Mapping[str, torch.Tensor], before: SimulatorState) -> SimulatorState:
    memory = {name: x for name, x in carry.items() if name not in ("q", "v")}
    return SimulatorState(carry["q"], carry["v"], memory, before.expand_start(carry["q"].shape[:-1]))


def _stepped(world: World, plant: Plant, carry: Values) -> Values:
    after, _ = world.step(plant, carry)
    guard(after["status"] == float(FINE))
    return after


def _unsettled(world: World, plant: Plant, carry: Values) -> Any:
    return world.step(plant, carry)[1]["solver_residual"]


def _touched(world: World, plant: Plant, carry: Values) -> Contacts:
    after, step = world.step(plant, carry)
    guard(after["status"] == float(FINE))
    return step["contacts"]
