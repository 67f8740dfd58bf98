"""A function of tensors as one CUDA graph: a loop of steps with a network between them launches once, and back once."""

import gc
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.utils import _pytree

from adjoin.compiler.ir.graph import uncollected
from adjoin.errors import InputError


def graphed(
    function: Callable[..., Any], example: Sequence[Any], parameters: Sequence[torch.nn.Parameter] = ()
) -> Callable[..., Any]:
    """Record a function on a GPU as a CUDA graph, which a call replays; on a CPU it stays what it is.

    A launch from Python costs more than what a small batch computes; a graph has thousands of them for the price of
    one. Gradients to the arguments and to the parameters are a graph of their own.

    Args:
        function: what to record, of tensors, states and nestings of them. It is called a few times at once. It may do
            whatever the GPU does without waiting for it: no `float(x)`, `x.item()` or `if x > 0`.
        example: arguments of it. All later ones have their shapes, and gradients where these have gradients.
        parameters: those that it reads besides its arguments and that gradients are wanted of, as
            `network.parameters()`.

    Example:
        def end(state):
            for _ in range(50):
                state = sim.step(state, policy(torch.cat([state.q, state.v], -1)))
            return state

        fast = adjoin.graphed(end, (state,), policy.parameters())
        fast(state).q.sum().backward()
    """
    leaves, structure = _pytree.tree_flatten(tuple(example))
    samples = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    devices = {sample.device.type for sample in samples}
    if not samples or len(devices) > 1:
        raise InputError(
            f"graphed: the example needs tensors on one device, got {', '.join(sorted(devices)) or 'none'}"
        )
    if devices == {"cpu"}:
        return function
    flat = _Flat(function, leaves, structure, parameters)
    held = tuple([sample.detach().clone().requires_grad_(sample.requires_grad) for sample in samples])
    gc.collect()  # a graph that nothing uses any more must not be freed while this one is recorded
    try:
        with uncollected(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch keeps a graph of its warm-up
            recorded = cast("_Flat", torch.cuda.make_graphed_callables(flat, held, allow_unused_input=True))
    except RuntimeError as error:
        raise InputError(
            f"graphed: {_name(function)} cannot be recorded; it must not wait for the GPU, as float(x), x.item(), "
            f"print(x) and `if x > 0` do: {str(error).splitlines()[0]}"
        ) from error

    def replay(*arguments: Any) -> Any:
        given, shape = _pytree.tree_flatten(arguments)
        if shape != structure:
            raise InputError(f"graphed: {_name(function)} was recorded for arguments of another structure")
        for i, (leaf, known) in enumerate(zip(given, leaves, strict=True)):
            if isinstance(known, torch.Tensor):
                _check(_name(function), i, leaf, known)
            elif leaf is not known and leaf != known:
                raise InputError(f"graphed: {_name(function)} was recorded with {known!r}, got {leaf!r}")
        results = recorded(*[leaf for leaf in given if isinstance(leaf, torch.Tensor)])
        return flat.build([result.clone() for result in results])

    return replay


class _Flat(torch.nn.Module):
    """The function over a list of tensors."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], structure: Any, parameters: Sequence[Any]):
        super().__init__()
        self.function, self.leaves, self.structure = function, leaves, structure
        self.parameters_read = torch.nn.ParameterList(parameters)
        self.results: list[Any] = []
        self.results_structure: Any = None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        returned = self.function(*_pytree.tree_unflatten(_replaced(self.leaves, tensors), self.structure))
        results, self.results_structure = _pytree.tree_flatten(returned)
        self.results = [
            x.detach() if isinstance(x, torch.Tensor) else x for x in results
        ]  # holds no graph of gradients
        return tuple([result for result in results if isinstance(result, torch.Tensor)])

    def build(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return results of the function in the structure that it gave them."""
        return _pytree.tree_unflatten(_replaced(self.results, tensors), self.results_structure)


def _replaced(leaves: list[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Return leaves with other tensors in the place of those among them."""
    rest = iter(tensors)
    return [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _check(name: str, place: int, given: Any, known: torch.Tensor) -> None:
    """Raise if a tensor is not like that of the example."""
    fits = isinstance(given, torch.Tensor) and given.shape == known.shape and given.dtype == known.dtype
    if not fits or given.device != known.device or (given.requires_grad and not known.requires_grad):
        got = (
            f"{given.dtype} {tuple(given.shape)} on {given.device}" if isinstance(given, torch.Tensor) else repr(given)
        )
        gradient = "" if known.requires_grad else " without gradient"
        raise InputError(
            f"graphed: {name} was recorded with {known.dtype} {tuple(known.shape)} on {known.device}{gradient} as "
            f"tensor {place}, got {got}; record it again for other shapes"
        )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
