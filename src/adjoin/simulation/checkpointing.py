"""The rollout's way of keeping memory small, for any step function that is written in torch.

The forward pass keeps every k-th state and no graph. The backward pass goes from the last kept state to the first: it
runs k steps again, keeps their states, and walks them back with one step's graph at a time. So memory is that of the
kept states, of k states more, and of the graph of one step (Qiao et al., ICML 2021, section 5).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from adjoin.compiler.ir.pytree import leaves as flat
from adjoin.compiler.ir.pytree import rebuild, structure
from adjoin.errors import InputError

Tensors = list[torch.Tensor]
Once = Callable[[Tensors, Tensors, Tensors], Tensors]


def checkpointed_rollout(
    step: Callable[..., Any],
    state: Any,
    inputs: Any,
    parameters: Sequence[torch.Tensor] = (),
    *,
    modules: Iterable[torch.nn.Module] = (),
    every: int = 1,
) -> Any:
    """Repeat `state = step(state, input, *parameters)`, with the gradient of autograd but not its memory.

    Every tensor that needs a gradient has to be passed in: what a step takes from elsewhere is an error in the backward
    pass, not a gradient of 0. A step runs twice, three times with `every` > 1, and must give the same each time, so no
    random numbers. Gradients of gradients are not available.

    Args:
        step: any function of torch operations, or a module.
        state: a tensor, or nested tuples, lists and dicts of tensors.
        inputs: the same; time is the first dimension of each tensor, and a step gets one element.
        parameters: tensors that every step gets.
        modules: modules whose parameters a step uses. If `step` is a module itself, it is one of them.
        every: which states are kept and returned: the first, then every k-th, and the last.

    Returns:
        The kept states, structured like `state`; time is the first dimension of each tensor.
    """
    first, streams = list(flat(state)), list(flat(inputs))
    if not isinstance(every, int) or every < 1:
        raise InputError(f"checkpointed_rollout: every must be a whole number of at least 1, got {every!r}")
    if not first or not streams or not all(isinstance(x, torch.Tensor) for x in (*first, *streams)):
        raise InputError(
            "checkpointed_rollout: state and inputs must be tensors, or nested tuples, lists or dicts of them"
        )
    lengths = {stream.shape[0] if stream.dim() else None for stream in streams}
    if len(lengths) > 1 or None in lengths:
        raise InputError(f"checkpointed_rollout: inputs must all have the same first dimension, time; got {lengths}")
    own = [step] if isinstance(step, torch.nn.Module) else []
    weights = [weight for module in (*own, *modules) for weight in module.parameters()]

    def once(before: Tensors, given: Tensors, others: Tensors) -> Tensors:
        after = step(rebuild(state, iter(before)), rebuild(inputs, iter(given)), *others)
        found = _in_order(after, state) if structure(after) == structure(state) else []
        have, need = [[(*x.shape, x.dtype) for x in tensors] for tensors in (found, before)]
        if have != need:
            raise InputError(
                f"checkpointed_rollout: a step must make a state of a state, {structure(state)} of {need}; "
                f"it made {structure(after)} of {have}"
            )
        return found

    sizes = [len(first), len(streams), len(parameters), len(weights)]
    kept = _Checkpointed.apply(once, sizes, every, *first, *streams, *parameters, *weights)
    return rebuild(state, iter(kept))


class _Checkpointed(torch.autograd.Function):
    """The states of a rollout that are kept. The tensors are the first state, the inputs, parameters and weights."""

    @staticmethod
    def forward(ctx: Any, once: Once, sizes: list[int], every: int, *tensors: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        state, streams, others, _ = _split(tensors, sizes)
        steps = len(streams[0])
        kept = [tensor.new_empty((-(-steps // every) + 1, *tensor.shape)) for tensor in state]
        for t in range(steps + 1):
            if t % every == 0 or t == steps:
                for history, tensor in zip(kept, state, strict=True):
                    history[-(-t // every)] = tensor
            if t < steps:
                state = once(state, [stream[t] for stream in streams], others)
        ctx.mark_non_differentiable(*[history for history in kept if not history.is_floating_point()])
        ctx.save_for_backward(*tensors, *kept)
        ctx.rest = once, sizes, every
        return tuple(kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        once, sizes, every = ctx.rest
        tensors, kept = ctx.saved_tensors[: sum(sizes)], ctx.saved_tensors[sum(sizes) :]
        _, streams, others, weights = _split(tensors, sizes)
        wanted = ctx.needs_input_grad[3:]
        _, asked, used, _ = _split(wanted, sizes)
        steps, behind = len(streams[0]), sizes[0] + sizes[1]
        gradients = [torch.zeros_like(x) if want else None for x, want in zip(tensors, wanted, strict=True)]
        adjoint = [cotangent[-1] for cotangent in cotangents]
        for start in reversed(range(0, steps, every)):
            before = [[history[start // every] for history in kept]]
            for t in range(start, min(start + every, steps) - 1):
                before.append(once(before[-1], [stream[t] for stream in streams], others))
            for t in reversed(range(start, start + len(before))):
                leaves = [_leaf(x, x.is_floating_point()) for x in before.pop()]
                leaves += [_leaf(stream[t], want) for stream, want in zip(streams, asked, strict=True)]
                leaves += [_leaf(x, want) for x, want in zip(others, used, strict=True)]
                leaves += weights
                with torch.enable_grad():
                    after = once(*_split(leaves, sizes)[:3])
                if t == steps - 1:
                    _require_known(after, leaves)
                found = _pull(after, adjoint, leaves)
                adjoint = found[: sizes[0]]
                if t % every == 0:
                    adjoint = [a + cotangent[t // every] for a, cotangent in zip(adjoint, cotangents, strict=True)]
                for i, (total, gradient) in enumerate(zip(gradients, found, strict=True)):
                    if total is not None and i >= sizes[0]:
                        (total[t] if i < behind else total).add_(gradient)
        return (None, None, None, *adjoint, *gradients[sizes[0] :])


def _in_order(tree: Any, like: Any) -> Tensors:
    """The tensors of a structure in the order of another one, whose dicts may have other orders."""
    if isinstance(like, dict):
        return [x for name in like for x in _in_order(tree[name], like[name])]
    if isinstance(like, (list, tuple)):
        return [x for part, other in zip(tree, like, strict=True) for x in _in_order(part, other)]
    return [tree]


def _split(items: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Consecutive parts of these sizes."""
    rest = iter(items)
    return [[next(rest) for _ in range(size)] for size in sizes]


def _leaf(tensor: torch.Tensor, wanted: bool) -> torch.Tensor:
    return tensor.detach().requires_grad_(wanted)


def _pull(after: Tensors, adjoint: Tensors, leaves: Tensors) -> Tensors:
    """The gradient of each leaf, given those of the state after a step; 0 where nothing depends on it."""
    ends = [(x, a) for x, a in zip(after, adjoint, strict=True) if x.requires_grad]
    tracked = [leaf for leaf in leaves if leaf.requires_grad]
    found: Sequence[torch.Tensor | None] = [None] * len(tracked)
    if ends:
        found = torch.autograd.grad([x for x, _ in ends], tracked, [a for _, a in ends], allow_unused=True)
    by_leaf = dict(zip(map(id, tracked), found, strict=True))
    return [torch.zeros_like(leaf) if (g := by_leaf.get(id(leaf))) is None else g for leaf in leaves]


def _require_known(after: Tensors, leaves: Tensors) -> None:
    """Raise if a state depends on a tensor that was not passed in, whose gradient would be lost."""
    known, seen = {id(leaf) for leaf in leaves}, set()
    nodes = [x.grad_fn for x in after if x.grad_fn is not None]
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in known:
            raise InputError(
                f"checkpointed_rollout: the step uses a tensor of shape {tuple(variable.shape)} that needs a gradient "
                "but was not passed in; pass it in parameters, or its module in modules"
            )
        nodes += [following for following, _ in node.next_functions if following is not None]
