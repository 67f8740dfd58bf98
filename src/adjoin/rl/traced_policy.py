"""Policies inside the launch: a torch network whose layers run as loops between the steps of a rollout.

The launch reads the weights as tables, row by row in a loop, so that compiling takes the time of one neuron a layer.
Forward and backward are one launch each. The backward launch has the gradient to what is added to each action; that to
the weights follows from it by one call of the torch network on all observations at once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from adjoin import trace
from adjoin.errors import InputError
from adjoin.simulation.arguments import AsTable, Tensors
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import SimulatorState, Trajectory
from adjoin.simulation.world_rollout import Outputs
from adjoin.spatial.scalar import Scalar

OBSERVATION = "observation"
Observe = Callable[..., Sequence[Scalar]]


def _elu(x: Scalar) -> Scalar:
    return trace.select(x > 0.0, x, trace.exp(trace.minimum(x, 0.0)) - 1.0)


ACTIVATIONS: dict[type[nn.Module], Callable[[Scalar], Scalar]] = {
    nn.Tanh: trace.tanh,
    nn.ReLU: lambda x: trace.maximum(x, 0.0),
    nn.ELU: _elu,
    nn.SiLU: lambda x: 0.5 * x * (1.0 + trace.tanh(0.5 * x)),
    nn.Identity: lambda x: x,
}
"""What may follow a layer."""


class TracedPolicy(nn.Module):
    """A policy that runs inside the launch of a rollout; called as a module, it is its torch network.

    Args:
        network: `nn.Linear` and `nn.LayerNorm`, each perhaps with an activation after it: `nn.Tanh`, `nn.ReLU`,
            `nn.ELU` or `nn.SiLU`. It is kept, not copied: train its weights as usual.
        observe: A traced function of `q` and `v` that returns what the network gets; by default q, then v.
    """

    def __init__(self, network: nn.Sequential, observe: Observe | None = None):
        super().__init__()
        self.network = network
        self.observe = observe or _state
        self._layers = _layers(network)
        self.controller = _Controller(self)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the controls for observations (..., size), by torch."""
        return self.network(observation)

    def tensors(self) -> dict[str, AsTable]:
        """Return the weights, as the launch takes them: [weights | bias] of each layer."""
        rows = {}
        for k, (layer, _) in enumerate(self._layers):
            weight = layer.weight if isinstance(layer, nn.Linear) else layer.weight[:, None]
            bias = torch.zeros_like(weight[:, 0]) if layer.bias is None else layer.bias
            rows[_name(k)] = AsTable(torch.cat([weight, bias[:, None]], -1).detach())
        return rows

    def traced(self, observation: Sequence[Scalar], tensors: Mapping[str, Any]) -> list[Scalar]:
        """Return the controls over scalars of one environment; `tensors` has what `tensors()` returned."""
        values = trace.scratch(list(observation))
        for k, (layer, activation) in enumerate(self._layers):
            table = tensors[_name(k)]
            if isinstance(layer, nn.Linear):
                values = _linear(layer, table, values, activation)
            else:
                values = _layer_norm(layer, table, values, activation)
        return [values[i] for i in range(len(values))]

    def rollout(
        self,
        simulator: Simulator,
        state: SimulatorState,
        steps: int,
        *,
        noise: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        outputs: Mapping[str, Any] | None = None,
        tensors: Tensors | None = None,
    ) -> Trajectory:
        """Let the policy act for some steps: one launch forward, and one back. Gradients go to the weights too.

        Args:
            simulator: What is simulated; the policy acts in each of its steps.
            state: The state to begin with.
            steps: How many.
            noise: What is added to the controls, (steps, ..., nu).
            params: See `Simulator.rollout`.
            outputs: See `Simulator.rollout`; the trajectory has `outputs["observation"]` besides.
            tensors: See `Simulator.rollout`.
        """
        seen: list[torch.Tensor] = []
        shape = (steps, *state.q.shape[:-1], simulator.model.nu)
        controls = _Weights.apply(self.network, seen, state.q.new_zeros(shape), *self.network.parameters())
        assert isinstance(controls, torch.Tensor)
        wanted: Outputs = {**(outputs or {}), OBSERVATION: self.observe}
        path = simulator.rollout(
            state,
            controls if noise is None else controls + noise,
            params,
            controller=self.controller,
            outputs=wanted,
            tensors={**(tensors or {}), **self.tensors()},
        )
        seen.append(path.outputs[OBSERVATION].detach())
        return path


class _Controller:
    """What a rollout calls between its steps; the control of the call is added to what the policy returns."""

    def __init__(self, policy: TracedPolicy):
        self._observe, self._traced = policy.observe, policy.traced

    def __call__(self, q: Any, v: Any, control: Any, **tensors: Any) -> list[Scalar]:
        actions = self._traced(self._observe(q=q, v=v), tensors)
        return [action + more for action, more in zip(actions, control, strict=True)]


class _Weights(torch.autograd.Function):
    """Zeros that are added to the actions: their gradient, put through the torch network, is that of the weights."""

    @staticmethod
    def forward(
        ctx: Any, network: nn.Module, seen: list[torch.Tensor], zeros: torch.Tensor, *weights: torch.Tensor
    ) -> Any:
        ctx.network, ctx.seen, ctx.weights = network, seen, weights
        return zeros

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        wanted = [x for x in ctx.weights if x.requires_grad]
        with torch.enable_grad():
            action = ctx.network(ctx.seen[0])
            found = iter(torch.autograd.grad(action, wanted, gradients[0], allow_unused=True))
        return (None, None, None, *[next(found) if x.requires_grad else None for x in ctx.weights])


def _state(q: Any, v: Any) -> list[Scalar]:
    return [*q, *v]


def _name(layer: int) -> str:
    return f"policy_layer_{layer}"


def _layers(network: nn.Sequential) -> list[tuple[nn.Linear | nn.LayerNorm, Callable[[Scalar], Scalar]]]:
    """The layers with weights, each with its activation."""
    layers: list[tuple[nn.Linear | nn.LayerNorm, Callable[[Scalar], Scalar]]] = []
    if not isinstance(network, nn.Sequential):
        raise InputError(f"TracedPolicy: the network must be a torch.nn.Sequential, got a {type(network).__name__}")
    for place, module in enumerate(network):
        if isinstance(module, nn.Linear) or (isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1):
            layers.append((module, ACTIVATIONS[nn.Identity]))
        elif type(module) in ACTIVATIONS and layers and layers[-1][1] is ACTIVATIONS[nn.Identity]:
            if isinstance(module, nn.ELU) and module.alpha != 1.0:
                raise InputError(f"TracedPolicy: module {place}: ELU must have alpha=1, got {module.alpha}")
            layers[-1] = (layers[-1][0], ACTIVATIONS[type(module)])
        else:
            known = ", ".join(["Linear", "LayerNorm", *[kind.__name__ for kind in ACTIVATIONS]])
            raise InputError(
                f"TracedPolicy: module {place}, {type(module).__name__}, cannot be traced; a network is Linear and "
                f"LayerNorm layers, each with at most one activation after it: {known}"
            )
    if not layers:
        raise InputError("TracedPolicy: the network has no layers")
    return layers


def _linear(layer: nn.Linear, table: Any, values: Any, activation: Callable[[Scalar], Scalar]) -> Any:
    def neuron(i: Any, out: Any) -> Any:
        total = table[i, layer.in_features]
        for j in range(layer.in_features):
            total = total + table[i, j] * values[j]
        out[i] = activation(total)
        return out

    if len(values) != layer.in_features:
        raise InputError(f"TracedPolicy: a layer takes {layer.in_features} numbers, got {len(values)}")
    return trace.loop(layer.out_features, neuron, trace.scratch(layer.out_features))


def _layer_norm(layer: nn.LayerNorm, table: Any, values: Any, activation: Callable[[Scalar], Scalar]) -> Any:
    count = len(values)
    mean = sum(values[i] for i in range(count)) / count
    variance = sum((values[i] - mean) ** 2 for i in range(count)) / count
    scale = 1.0 / trace.sqrt(variance + layer.eps)

    def number(i: Any, out: Any) -> Any:
        out[i] = activation(table[i, 0] * (values[i] - mean) * scale + table[i, 1])
        return out

    return trace.loop(count, number, trace.scratch(count))
