"""What the forward pass of a rollout of maps keeps for the backward pass."""

import math
from dataclasses import dataclass
from typing import Literal

from adjoin.errors import InputError


@dataclass(frozen=True)
class Checkpoints:
    """What the forward pass keeps for the backward pass.

    Attributes:
        every: "all" states, "sqrt": a state every √steps steps, or a number of steps.
        on_host: keep them in the memory of the host, for a GPU whose own is small.
        budget: bytes that kept states may take.
    """

    every: int | Literal["all", "sqrt"] = "all"
    on_host: bool = False
    budget: int = 4 << 30

    def interval(self, steps: int, bytes_a_state: int) -> int:
        """Return the steps from one checkpoint to the next, or say what would fit."""
        root = max(1, math.isqrt(max(steps - 1, 0)) + 1)
        interval = steps if self.every == "all" else root if self.every == "sqrt" else int(self.every)
        if interval < 1:
            raise InputError(f"checkpoints: every must be 'all', 'sqrt' or at least 1 step, got {self.every!r}")
        interval = max(1, min(interval, steps))
        kept = (steps // interval + 1 if interval < steps else 0) + interval + 1
        if kept * bytes_a_state > self.budget:
            least = (steps // root + root + 2) * bytes_a_state
            remedy = f"every='sqrt' takes {least:,} bytes"
            if least > self.budget:  # 2 √steps + 3 states
                fit = max(0, (self.budget // bytes_a_state - 3) // 2) ** 2
                remedy = f"even {remedy}; {fit:,} steps would fit, or fewer variants"
            raise InputError(
                f"checkpoints: {kept:,} states of {bytes_a_state:,} bytes exceed the budget of {self.budget:,} bytes; "
                f"{remedy}"
            )
        return interval
