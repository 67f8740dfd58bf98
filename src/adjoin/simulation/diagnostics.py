"""Where the gradient of a rollout comes from, or goes wrong: by environment and step.

The steps run in a kernel that adds a nudge of 0 to the state after each of them. The gradient to the nudge is the
adjoint of that state, so all adjoints take one launch forward and one back, like any gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from adjoin.errors import InputError
from adjoin.extras import needed
from adjoin.simulation.state import NOT_FINITE, Trajectory
from adjoin.simulation.step import STAGES

SHOWN = 10  # environments in a summary, or lines in a plot


class Diagnostics(NamedTuple):
    """What `Simulator.diagnose` finds. Its `str` is a summary.

    Attributes:
        adjoint: norm of the gradient of the loss to the state before each step, then to the last, (steps + 1, ...). It
            grows from the end to the beginning where the motion is chaotic or stiff.
        status: of the states, (steps + 1, ...).
        modes: of contacts, then of joint limits, joint friction and equalities, in each step: 0 open, 1 holding,
            2 slipping; (steps, ..., constraints).
        changed: whether one of them was in another mode than in the step before, (steps, ...).
        residual: how far the solver of constraints was from its solution, m/s, see `step.solver_residual`;
            (steps, ...).
        fault_step: the first step with a number that is not finite, -1 if there is none, (...).
        fault: what was not finite first, as an index of `STAGES`, -1 if nothing, (...).
    """

    adjoint: torch.Tensor
    status: torch.Tensor
    modes: torch.Tensor
    changed: torch.Tensor
    residual: torch.Tensor
    fault_step: torch.Tensor
    fault: torch.Tensor

    def __str__(self) -> str:
        steps, count = len(self.changed), self.fault.numel()
        adjoint, changed = self.adjoint.reshape(steps + 1, count), self.changed.reshape(steps, count)
        fault, fault_step, last = self.fault.reshape(-1), self.fault_step.reshape(-1), self.status[-1].reshape(-1)
        residual = self.residual.reshape(steps, count).amax(0).tolist() if steps else [0.0] * count
        weight = adjoint.nan_to_num(torch.inf).amax(0) + torch.where(fault >= 0, torch.inf, 0.0)
        rows = ["environment  adjoint: first      last  greatest  at step  mode changes  residual  fault"]
        for i in weight.argsort(descending=True)[:SHOWN].tolist():
            at = int(adjoint[:, i].nan_to_num(torch.inf).argmax())
            sizes = "  ".join(f"{float(adjoint[t, i]):8.2e}" for t in (0, -1, at))
            what = "moves too fast or too far" if last[i] != 0.0 else "none"
            if fault[i] >= 0:
                what = f"{STAGES[int(fault[i])]} not finite in step {int(fault_step[i])}"
            rows.append(f"{i:11}        {sizes}  {at:7}  {int(changed[:, i].sum()):12}  {residual[i]:8.2e}  {what}")
        wrong = int((last != 0.0).sum())
        title = f"{steps} steps of {count} environments, {wrong} of them stopped by a fault"
        return "\n".join([title, *rows, *([f"... {count - SHOWN} more"] if count > SHOWN else [])])

    def plot(self) -> Any:
        """A matplotlib figure of the adjoint over the steps, with dots where a contact mode changed."""
        steps, count = len(self.changed), self.fault.numel()
        adjoint = self.adjoint.reshape(steps + 1, count).detach().cpu()
        changed = self.changed.reshape(steps, count).cpu()
        figure = needed("matplotlib.figure", "plot", "Diagnostics.plot").Figure(figsize=(8, 4))
        axes = figure.add_subplot(xlabel="step", ylabel="norm of the adjoint", yscale="log")
        for i in adjoint.nan_to_num(torch.inf).amax(0).argsort(descending=True)[:SHOWN].tolist():
            (line,) = axes.plot(adjoint[:, i].numpy(), label=f"environment {i}", linewidth=1.0)
            at = changed[:, i].nonzero()[:, 0]
            axes.plot(at.numpy(), adjoint[at, i].numpy(), ".", color=line.get_color())
        axes.legend(fontsize="small")
        return figure


def diagnosed(
    path: Trajectory,
    first: Sequence[torch.Tensor],
    nudges: Sequence[torch.Tensor],
    loss: Callable[[Trajectory], torch.Tensor],
    residual: torch.Tensor,
) -> Diagnostics:
    """The diagnostics of a watched rollout.

    Args:
        path: the rollout, with the outputs "fault" and "constraint_modes".
        first: q and v before the first step.
        nudges: what was added to q and v after each step.
        loss: see `Simulator.diagnose`.
        residual: the output "solver_residual" of the same steps.
    """
    outputs = dict(path.outputs)
    faults = outputs.pop("fault").detach().long()
    if len(faults):  # states that began with a NaN hold numbers by now
        faults[0] = torch.where(path.status[0] == NOT_FINITE, 1 + STAGES.index("state"), faults[0])
    modes = outputs.pop("constraint_modes").detach().long()
    value = loss(path.replace(outputs=outputs))
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
        raise InputError("diagnose: the loss must be one number that depends on the trajectory")
    found = torch.autograd.grad(value.sum(), [*first, *nudges], allow_unused=True, materialize_grads=True)
    adjoints = [torch.cat([start[None], rest]) for start, rest in zip(found[:2], found[2:], strict=True)]
    changed = torch.zeros_like(faults, dtype=torch.bool)
    changed[1:] = (modes[1:] != modes[:-1]).any(-1)
    faulty = faults > 0
    at = faulty.byte().argmax(0)
    return Diagnostics(
        adjoint=torch.cat(adjoints, -1).norm(dim=-1),
        status=path.status.detach(),
        modes=modes,
        changed=changed,
        residual=residual,
        fault_step=torch.where(faulty.any(0), at, -1),
        fault=faults.gather(0, at[None])[0] - 1,
    )
