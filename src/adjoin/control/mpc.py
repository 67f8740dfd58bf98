"""Receding-horizon control: plan, take the first control, and plan again from where that led."""

from collections.abc import Mapping

import torch

from adjoin.control.ilqr import ILQR, ILQRResult
from adjoin.errors import InputError
from adjoin.simulation.arguments import Tensors
from adjoin.simulation.state import SimulatorState


class MPC:
    """A controller that plans ahead at each call, beginning with the plan of the call before.

    Args:
        solver: what plans.
        controls: the first guess, (horizon, nu) or (horizon, ..., nu). Later ones are the plan before without the steps
            that are past; its last control is held.
        iterations: of the solver for each plan.
        first: iterations for the first plan.
        every: plan at every k-th call only; in between the plan's own feedback acts.

    Attributes:
        plan: the last one, an `ILQRResult`; None before the first.

    Example:
        mpc = MPC(ILQR(sim, cost, terminal), torch.zeros(50, sim.model.nu))
        for _ in range(1000):
            state = sim.step(state, mpc(state))
    """

    def __init__(self, solver: ILQR, controls: torch.Tensor, *, iterations: int = 3, first: int = 100, every: int = 1):
        if not isinstance(solver, ILQR):
            raise InputError(f"MPC: solver must be an ILQR, got a {type(solver).__name__}")
        nu = solver.sim.model.nu
        if not isinstance(controls, torch.Tensor) or controls.dim() < 2 or controls.shape[-1] != nu:
            got = tuple(controls.shape) if isinstance(controls, torch.Tensor) else type(controls).__name__
            raise InputError(f"MPC: controls must be a tensor of the shape (horizon, ..., {nu}), got {got}")
        for name, value in (("iterations", iterations), ("first", first), ("every", every)):
            if not isinstance(value, int) or value < 1:
                raise InputError(f"MPC: {name} must be a whole number of at least 1, got {value!r}")
        if every > len(controls):
            raise InputError(f"MPC: every={every} is longer than the horizon of {len(controls)} steps")
        self.solver, self.iterations, self.first, self.every = solver, iterations, first, every
        self._guess = controls
        self.reset()

    def reset(self) -> None:
        """Forget the plan."""
        self.plan: ILQRResult | None = None
        self._since = 0

    def __call__(
        self,
        state: SimulatorState,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        tensors: Tensors | None = None,
    ) -> torch.Tensor:
        """Return the control for a state, (..., nu).

        Args:
            state: where the robot is.
            params: see `ILQR.solve`, like all that follows.
            tensors: see `ILQR.solve`; they may change from call to call. Those per step are of the steps from now on.
        """
        if self.plan is not None and self.plan.cost.shape != state.batch:
            batches = f"{tuple(self.plan.cost.shape)} robots, and there are {tuple(state.batch)}"
            raise InputError(f"MPC: the plan is for {batches}; call reset() to begin anew")
        if self.plan is None or self._since >= self.every:
            iterations = self.first if self.plan is None else self.iterations
            self.plan = self.solver.solve(
                state,
                self._next_guess(state),
                params,
                tensors=tensors,
                iterations=iterations,
                feedback=self.every > 1,
            )
            self._since = 0
        plan, step = self.plan, self._since
        self._since += 1
        if step == 0:
            return plan.controls[0]
        dq = self.solver.sim.model.difference(plan.q[step], state.q)
        dx = torch.cat([dq, state.v - plan.v[step]], -1)
        control = plan.controls[step] + (plan.gain[step] @ dx.unsqueeze(-1)).squeeze(-1)
        lower, upper = (control.new_tensor(side) for side in zip(*self.solver.bounds, strict=True))
        return control.clamp(lower, upper)

    def _next_guess(self, state: SimulatorState) -> torch.Tensor:
        """The guess for the next plan: the last one without the steps that are past, and its last control again."""
        if self.plan is None:
            steps, *batch, nu = self._guess.shape
            if tuple(batch) not in ((), tuple(state.batch)):
                raise InputError(f"MPC: controls are for {tuple(batch)} robots, states for {tuple(state.batch)}")
            guess = self._guess.reshape(steps, *(batch or [1] * len(state.batch)), nu)
            return guess.expand(steps, *state.batch, nu)
        controls = self.plan.controls
        return torch.cat([controls[self._since :], controls[-1:].expand(self._since, *controls.shape[1:])])
