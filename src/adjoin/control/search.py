"""The iterations of differential dynamic programming, for a batch of problems at once.

Each is a backward pass (see `riccati`) and a forward pass (see `forward`). The problems whose whole step does not lower
their cost try shorter ones together; where none does, regularization rises. A CPU works on so many problems together
that their gains stay in its caches; those that are done make room for others.
"""

from collections.abc import Callable, Mapping
from itertools import chain, repeat
from typing import Any

import torch

from adjoin.control.expansion import Expansion
from adjoin.control.forward import ENDS, Forward
from adjoin.control.inverse import Balance, Inverse
from adjoin.control.limited import Bounds, unlimited
from adjoin.control.problems import Problems
from adjoin.control.riccati import SMALL, Fused, Gains, Wide
from adjoin.progress import Progress

SHORTER = tuple(0.5**n for n in range(1, 9))
"""Parts of a step that are tried where the whole one is no good."""

SHORT = 0.1
"""The part of a step below which regularization rises; it falls after whole steps."""

ENOUGH = 0.1
"""The part of the expected fall of the cost that must come true."""

LEAST, MOST, FASTER = 1e-6, 1e8, 10.0
"""Regularization: from where it rises, where a problem is given up, and how it rises and falls."""

SMALLEST = 1e-4
"""Regularization up to which a problem can be done."""

LEAVING = 0.1
"""The part of the problems worked on that must be done before they make room."""

AT_ONCE = 64
"""Problems that one thread of a CPU works on together."""

KEPT = ("q", "v", "control", *ENDS, "converged", "iterations")
"""What is written down of a problem that is done."""


def at_once(device: torch.device) -> int:
    """How many problems are worked on together: on a GPU all."""
    return AT_ONCE * torch.get_num_threads() if device.type == "cpu" else 2**62


class Passes:
    """The kernels of both passes.

    Args:
        expansion: of steps and costs.
        bounds: of the controls.
        second_order: whether the steps' second derivatives count.
        dtype: of the tensors.
    """

    def __init__(self, expansion: Expansion, bounds: Bounds, second_order: bool, dtype: torch.dtype):
        self.expansion = expansion
        self.backward = self._backward(expansion, bounds, second_order, dtype)
        self.forward = Forward(expansion, bounds)

    def _backward(self, expansion: Expansion, bounds: Bounds, second_order: bool, dtype: torch.dtype) -> Fused | Wide:
        if expansion.width > SMALL or expansion.loops:
            return Wide(expansion, bounds, second_order)
        if dtype == torch.float64 and unlimited(bounds) and not second_order:
            balance = Balance(expansion)
            if balance.scale:
                return Inverse(expansion, balance)
        return Fused(expansion, bounds, second_order)


class Search:
    """Problems, those of them that are worked on, and what is found.

    Args:
        passes: the kernels.
        begin: the states to begin with, (count, ...).
        guess: controls, (steps, count, nu).
        individual: parameters and named tensors, (count, ...).
        shared: those that are the same for all problems.
        along: named tensors of each step, (steps, count, ...).
        feedback: whether the gains are kept.

    Attributes:
        results: all that `Solution` has, by name, with one dimension for the batch.
    """

    def __init__(
        self,
        passes: Passes,
        begin: Mapping[str, torch.Tensor],
        guess: torch.Tensor,
        individual: Mapping[str, torch.Tensor],
        shared: Mapping[str, torch.Tensor],
        along: Mapping[str, torch.Tensor],
        feedback: bool,
    ):
        self._passes, self._shared = passes, shared
        steps, count, nu = guess.shape
        size = passes.expansion.size
        q, v = (guess.new_empty(steps + 1, *begin[name].shape) for name in ("q", "v"))
        self.results = {
            "controls": guess.new_empty(guess.shape),
            "q": q,
            "v": v,
            "cost": guess.new_empty(count),
            "gain": guess.new_empty(steps if feedback else 0, count, nu, size),
            "converged": guess.new_zeros(count, dtype=torch.bool),
            "iterations": guess.new_zeros(count, dtype=torch.int64),
        }
        once = {**begin, **individual, "last_q": q[-1], "last_v": v[-1]}
        once |= {name: self.results[name] for name in ("cost", "converged", "iterations")}
        once |= {"mu": guess.new_zeros(count), "done": guess.new_zeros(count, dtype=torch.bool)}
        once["index"] = torch.arange(count, device=guess.device)
        each = {**along, "q": q[:-1], "v": v[:-1], "control": self.results["controls"]}
        if "impulses" in passes.forward.outputs:
            each["impulses"] = guess.new_empty(steps, *begin["impulses"].shape)
        self._all = self._work = Problems(once, each)
        self._spare: Problems | None = None
        self._gains: Gains | None = None
        still = {name: begin[name].expand(steps, *begin[name].shape) for name in ("q", "v")}
        ones, none = guess.new_ones(count), guess.new_zeros(nu, size).expand(steps, count, nu, size)
        gains = Gains(none[..., 0].contiguous(), none, ones, ones, ones)
        guessed = self._all.updated(Problems({}, {**still, "control": guess}))
        passes.forward(guessed, gains, ones, shared, self._all.only(passes.forward.outputs))

    def run(self, iterations: int, tolerance: float, progress: bool | Callable[[int, torch.Tensor], Any]) -> None:
        """See `ILQR.solve`."""
        cost, made = self.results["cost"], self.results["iterations"]
        history = cost.new_empty(iterations + 1, len(cost))
        history[0] = cost
        taken = room = min(len(cost), at_once(cost.device))
        self._work = self._all.some(self._all.once["index"][:taken])
        bar = Progress(-(-len(cost) // max(1, room)) * iterations, progress is True, "iterations")
        for rounds, _ in enumerate(chain(bar, repeat(None))):  # room may take longer to be made than the bar knows
            if not len(self._work.once["cost"]):
                break
            if progress is True:
                bar.note = f"{taken - int((~self._work.once['done']).sum())} of {len(cost)} problems done"
            elif progress:
                progress(rounds, self._work.once["cost"])
            try:
                self._iterate(iterations, tolerance, history)
            except KeyboardInterrupt:
                if progress is not True:
                    raise
                self._keep(torch.ones_like(self._work.once["done"]))
                break
            taken = self._make_room(taken)
        longest = int(made.max()) if len(made) else 0
        rows = torch.arange(longest + 1, device=cost.device)[:, None]
        self.results["history"] = history.gather(0, rows.minimum(made))

    def _iterate(self, iterations: int, tolerance: float, history: torch.Tensor) -> None:
        """Both passes for the problems that are worked on."""
        once = self._work.once
        gains = self._gains = self._passes.backward(self._work, self._shared, self._gains)
        left = -(gains.first + gains.second)
        ready = (gains.fine > 0.0) & (left <= tolerance * once["cost"].abs().clamp(min=1.0))
        ready &= (once["mu"] <= SMALLEST) & once["cost"].isfinite()
        once["converged"] |= ready
        self._keep(ready | (once["mu"] > MOST))
        going = (~once["done"]).nonzero().squeeze(-1)
        if not len(going):
            return
        self._step(gains)
        once = self._work.once
        once["iterations"] += ~once["done"]
        history[once["iterations"][going], once["index"][going]] = once["cost"][going]
        self._keep(once["iterations"] >= iterations)

    def _keep(self, which: torch.Tensor) -> None:
        """Write down where some problems have got to, unless they were done before."""
        once = self._work.once
        rows = (which & ~once["done"]).nonzero().squeeze(-1)
        if not len(rows):
            return
        places = once["index"][rows]
        self._all.write(self._work.only(KEPT).some(rows), places)
        if len(self.results["gain"]) and self._gains is not None:
            self.results["gain"].index_copy_(1, places, self._gains.gain.index_select(1, rows))
        once["done"][rows] = True

    def _make_room(self, taken: int) -> int:
        """Let the problems that wait take the places of those that are done; how many have been taken."""
        done = self._work.once["done"].nonzero().squeeze(-1)
        if len(done) < max(1.0, LEAVING * len(self._work.once["done"])):
            return taken
        following = self._all.once["index"][taken : taken + len(done)]
        if len(following):
            self._work.write(self._all.some(following), done[: len(following)])
        if len(following) < len(done):
            self._work = self._work.some((~self._work.once["done"]).nonzero().squeeze(-1))
            self._spare = self._gains = None
        return taken + len(following)

    def _step(self, gains: Gains) -> None:
        """Take the whole step where it is good, and shorter and shorter ones elsewhere."""
        work, forward, shared = self._work, self._passes.forward, self._shared
        mu, length = work.once["mu"], torch.ones_like(work.once["mu"])
        found = forward(work, gains, length, shared, self._spare)
        bad = _bad(work, found, gains, length)
        length[bad] = 0.0
        rows = (bad & (gains.fine > 0.0) & ~work.once["done"]).nonzero().squeeze(-1)
        for part in SHORTER:
            if not len(rows):
                break
            few, own = work.some(rows), _of(gains, rows)
            parts = torch.full_like(few.once["mu"], part)
            tried = forward(few, own, parts, shared)
            bad = _bad(few, tried, own, parts)
            length[rows] = torch.where(bad, 0.0, parts)
            found.write(tried, rows)
            rows = rows[bad]
        before = work.only(forward.outputs)
        still = (length == 0.0).nonzero().squeeze(-1)
        if len(still):
            found.write(before.some(still), still)
        self._spare, self._work = before, work.updated(found)
        fallen = torch.where(mu <= LEAST, 0.0, mu / FASTER)
        risen = torch.where(length < SHORT, (mu * FASTER).clamp(min=LEAST), mu)
        self._work.once["mu"] = torch.where(length == 1.0, fallen, risen)


def _bad(before: Problems, after: Problems, gains: Gains, part: torch.Tensor) -> torch.Tensor:
    """Whether too little of the expected fall of the cost came true, as far as numbers can tell."""
    old, new = before.once["cost"], after.once["cost"]
    expected = -(part * gains.first + part * part * gains.second)
    noise = 4.0 * torch.finfo(old.dtype).eps * new.abs()
    return ~((gains.fine > 0.0) & new.isfinite() & (old - new >= ENOUGH * expected - noise))


def _of(gains: Gains, rows: torch.Tensor) -> Gains:
    return Gains(*[x.index_select(1, rows) for x in gains[:2]], *[x.index_select(0, rows) for x in gains[2:]])
