"""A warning, once for a simulator, that an implicit gradient was taken where the solver had not converged.

The implicit function theorem holds at the solution. Where sweeps end before it, `ImplicitAdjoint` gives the gradient of
motions that were not computed. So the first gradient of a simulator looks how far its solves got, in a kernel of its
own; later gradients cost nothing.
"""

from collections.abc import Callable, Sequence

import torch

from adjoin.constraints.adjoints import ImplicitAdjoint
from adjoin.errors import UnsettledWarning, warn_caller
from adjoin.simulation.world import World

UNSETTLED = 0.01
"""Of the speed that gravity gives within a step: what a solve may be off by."""

GRAVITY = 9.81


class ConvergenceCheck:
    """What is known of the solves that gradients of a simulator pass through.

    Args:
        world: What is simulated.
    """

    def __init__(self, world: World):
        self.name, self.limit = world.model.name, UNSETTLED * GRAVITY * world.dt
        self.pending = isinstance(getattr(world.contact, "adjoint", None), ImplicitAdjoint)

    def at_backward(self, results: Sequence[torch.Tensor], residual: Callable[[], torch.Tensor]) -> None:
        """Look at the residual when the first gradient comes back through results.

        Args:
            results: What steps returned.
            residual: Computes how far their solves were from the solution, (steps, ...), see `step.solver_residual`.
        """
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return

        on_gpu = results[0].is_cuda

        def look(_: torch.Tensor) -> None:  # holds no result, which would never be freed: it holds this
            capturing = on_gpu and torch.cuda.is_current_stream_capturing()
            if self.pending and not capturing:
                self.pending = False
                with torch.no_grad():
                    self._judge(residual())

        for result in results:
            if result.requires_grad:
                result.register_hook(look)

    def _judge(self, residual: torch.Tensor) -> None:
        by_environment = residual.flatten(1).amax(0) if residual.dim() > 1 else residual.amax(0, keepdim=True)
        unsettled = int((by_environment > self.limit).sum())
        if unsettled:
            warn_caller(
                UnsettledWarning(
                    f"{self.name!r}: a gradient was taken by ImplicitAdjoint through solves that had not converged, in "
                    f"{unsettled} of {by_environment.numel()} environments: constraints were off by up to "
                    f"{float(by_environment.amax()):.1e} m/s, where {self.limit:.1e} is 1 % of what gravity adds in a "
                    "step. The gradient may be far from that of the motion. Remedies: PGS(iterations=...) with more "
                    "sweeps, or UnrolledAdjoint(), which is exact however far they got. It is said once; "
                    'outputs=["solver_residual"] has the figure of each step'
                )
            )
