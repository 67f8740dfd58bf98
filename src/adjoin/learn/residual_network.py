"""Neural augmentation: a network inside the simulator's steps adds what a model lacks.

As in NeuralSim (Heiden et al., Augmenting Differentiable Simulators with Neural Networks to Close the Sim2Real Gap,
2021), the network may add to torques, friction of joints and of contacts, or any other parameter, as functions of the
state. It is trained through the rollout, alone or together with physical parameters; see `shooting`.

It starts as exactly 0. With a group lasso each of its outputs stays exactly 0 until the gradient of the data exceeds
the penalty (Yuan and Lin, Model selection and estimation in regression with grouped variables, 2006). The
penalty acts by a proximal step after each step of Adam, in Adam's own scaling (Yun et al., Adaptive proximal gradient
methods for structured neural networks, 2021).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from adjoin import trace
from adjoin.errors import InputError, unknown_name
from adjoin.learn.data import Recording
from adjoin.learn.parameters import ranges_of
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.simulation.world import FORCE
from adjoin.spatial.scalar import Scalar

INPUTS = ("q", "v", "control")


class ResidualNetwork(torch.nn.Module):
    """A network for `Simulator(..., residual=network)`; each call then takes `tensors=network.weights()`.

    It reads q (joints without limits by sine and cosine, floating bases by the direction of gravity in their axes, so
    that it does not matter where they are), v and, if asked, the control.

    Args:
        model: the robot.
        adds: what it adds to, "force" or names of parameters: for all there are, or a mapping to those that are chosen
            by name: joints for forces, bodies, geometries and so on for parameters.
        hidden: neurons of its layers.
        inputs: which of "q", "v" and "control" it reads.
        scale: of what comes out: for a network whose last layer gives numbers around 1; one for all, or by name.
        like: recorded motions, whose spread scales what goes in.
        name: what its weights are called by; two networks need two names.
        dtype: of the weights; torch's default if not given.
        generator: of the random numbers that the weights of the hidden layers begin with.
    """

    mean: torch.Tensor
    spread: torch.Tensor
    scale: torch.Tensor
    active: torch.Tensor

    def __init__(
        self,
        model: Model,
        adds: Sequence[str] | Mapping[str, str | Sequence[str] | None] = (FORCE,),
        hidden: Sequence[int] = (16,),
        *,
        inputs: Sequence[str] = ("q", "v"),
        scale: float | Mapping[str, float] = 1.0,
        like: Recording | None = None,
        name: str = "residual",
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        unknown = [name for name in inputs if name not in INPUTS]
        if unknown or not inputs:
            raise InputError(
                f"ResidualNetwork: no input {', '.join(unknown) or 'was chosen'}; inputs: {', '.join(INPUTS)}"
            )
        self.model, self.inputs, self.name = model, tuple(inputs), name
        chosen = adds if isinstance(adds, Mapping) else dict.fromkeys([adds] if isinstance(adds, str) else adds)
        self._targets = {target: _chosen(model, target, of) for target, of in chosen.items()}
        self.outputs = [label for labels, _, _ in self._targets.values() for label in labels]
        blank = [torch.zeros(size, dtype=dtype) for size in (model.nq, model.nv, model.nu)]
        if like is None:
            example = self._read(*blank)
            mean, spread = torch.zeros_like(example), torch.ones_like(example)
        else:
            samples = like.samples()
            data = self._read(
                *[x.to(blank[0]) for x in samples.need("ResidualNetwork", *self.inputs)], names=self.inputs
            )
            mean, spread = data.mean(0), data.std(0)
            spread = torch.where(spread > 1e-6, spread, 1.0)
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)
        scales = [self._scale(scale, target) for target, (labels, _, _) in self._targets.items() for _ in labels]
        self.register_buffer("scale", torch.tensor(scales, dtype=mean.dtype))
        self.register_buffer("active", torch.ones_like(self.scale))
        sizes = [len(mean), *hidden, len(self.outputs)]
        self.layers = torch.nn.ParameterList()
        for before, after in itertools.pairwise(sizes):
            weight = torch.randn(after, before + 1, dtype=mean.dtype, generator=generator) / math.sqrt(before)
            self.layers.append(torch.nn.Parameter(weight))
        with torch.no_grad():
            self.layers[-1].zero_()

    def _scale(self, scale: float | Mapping[str, float], name: str) -> float:
        return float(scale.get(name, 1.0)) if isinstance(scale, Mapping) else float(scale)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the tensors that its calls take by name: layers with their scales in them, [weights | bias]."""
        first, *_ = layers = [*self.layers]
        scaled = first[:, :-1] / self.spread
        layers[0] = torch.cat([scaled, (first[:, -1] - scaled @ self.mean)[:, None]], -1)
        layers[-1] = layers[-1] * (self.scale * self.active)[:, None]
        return {f"{self.name}_{k}": layer for k, layer in enumerate(layers)}

    def forward(self, q: Any, v: Any, control: Any, **named: Any) -> dict[str, Any]:
        """The traced function: additions by name, over scalars of one environment."""
        x = np.array(self._features(list(q), list(v), list(control)), dtype=object)
        count = len(self.layers)
        for k in range(count):
            layer = named[f"{self.name}_{k}"]
            x = layer[:, :-1] @ x + layer[:, -1]
            x = x if k == count - 1 else trace.tanh(x)
        additions, first = {}, 0
        for name, (labels, shape, indices) in self._targets.items():
            flat = np.full(math.prod(shape), 0.0, dtype=object)
            flat[indices] = list(x[first : first + len(labels)])
            additions[name], first = flat.reshape(shape), first + len(labels)
        return additions

    def evaluate(
        self, q: torch.Tensor, v: torch.Tensor, control: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """Return what it adds at states (..., n), as tensors of the shape of what it adds to."""
        control = q.new_zeros(self.model.nu) if control is None else control
        x = self._read(q, v, control)
        layers = list(self.weights().values())
        for k, layer in enumerate(layers):
            x = x @ layer[:, :-1].mT + layer[:, -1]
            x = x if k == len(layers) - 1 else x.tanh()
        additions = {}
        for name, (labels, shape, indices) in self._targets.items():
            values, x = x[..., : len(labels)], x[..., len(labels) :]
            flat = values.new_zeros((*values.shape[:-1], math.prod(shape)))
            flat = flat.index_copy(-1, torch.tensor(indices, device=flat.device), values)
            additions[name] = flat.unflatten(-1, shape or (1,))
        return additions

    def shrink(self, threshold: torch.Tensor | float) -> None:
        """The proximal step of the group lasso: each output's weights by so much shorter, or exactly 0.

        Args:
            threshold: one, or one an output.
        """
        with torch.no_grad():
            last = self.layers[-1]
            length = last.norm(dim=-1)
            share = 1.0 - torch.as_tensor(threshold, dtype=last.dtype, device=last.device) / length
            last.mul_(torch.where(length > 0.0, share.clamp(min=0.0), 0.0)[:, None])

    def proximal(self, optimizer: torch.optim.Optimizer, sparsity: float) -> None:
        """The proximal step that belongs to a step that an optimizer has just taken.

        Args:
            optimizer: Adam, or plain gradient descent; of this network's weights, and perhaps of others.
            sparsity: what a unit of the length of an output's weights costs, in units of the loss: an output stays 0
                while the gradient to its weights is shorter than that.
        """
        last = self.layers[-1]
        group = next(group for group in optimizer.param_groups if any(x is last for x in group["params"]))
        state, step = optimizer.state[last], torch.tensor(group["lr"] * sparsity).to(last)
        if "exp_avg_sq" in state:
            # Adam divides each gradient by its recent size; an output's weights share the mean of theirs.
            correction = 1.0 - group["betas"][1] ** float(state["step"])
            step = step / ((state["exp_avg_sq"].mean(-1) / correction).sqrt() + group["eps"])
        self.shrink(step)

    def prune(self) -> list[str]:
        """Fix the outputs that are 0 now at 0, so that the others can be trained on without a penalty.

        Returns:
            The outputs that are 0.
        """
        with torch.no_grad():
            self.active.copy_((self.layers[-1] != 0.0).any(-1))
        return self.zero_outputs

    @property
    def zero_outputs(self) -> list[str]:
        """The outputs that are exactly 0, whatever the state."""
        zero = (self.layers[-1].detach() * self.active[:, None] == 0.0).all(-1).tolist()
        return [label for label, is_zero in zip(self.outputs, zero, strict=True) if is_zero]

    def _read(self, *values: torch.Tensor, names: Sequence[str] = INPUTS) -> torch.Tensor:
        """The features of tensors (..., n)."""
        lead = torch.broadcast_shapes(*[x.shape[:-1] for x in values])
        known = {name: list(x.unbind(-1)) for name, x in zip(names, values, strict=True)}
        return torch.stack([x.expand(lead) for x in self._features(*[known.get(name, []) for name in INPUTS])], -1)

    def _features(self, q: list[Scalar], v: list[Scalar], control: list[Scalar]) -> list[Scalar]:
        features: list[Scalar] = []
        if "q" in self.inputs:
            for joint, at in self.model.independent_joints:
                features += joint.type.features(joint, q[at.q_slice])
        return features + (v if "v" in self.inputs else []) + (control if "control" in self.inputs else [])


def _chosen(model: Model, name: str, of: str | Sequence[str] | None) -> tuple[list[str], tuple[int, ...], list[int]]:
    """Labels of what is added to, the shape of the parameter, and the flat indices in it."""
    parameter = parameters.find("damping" if name == FORCE else name)
    if parameter is None:
        raise InputError(unknown_name("parameter", "parameters", name, [FORCE, *parameters.names()]))
    shape = parameters.shape(model, parameter)
    tail = math.prod(parameter.tail)
    if parameter.owner == "world":
        return [f"{name} {k}" for k in range(tail)], shape, list(range(tail))
    what, ranges = ranges_of(model, parameter)
    wanted = list(ranges) if of is None else [of] if isinstance(of, str) else list(of)
    labels, indices = [], []
    for item in wanted:
        if item not in ranges:
            raise InputError(f"ResidualNetwork: {name!r}: {unknown_name(what, f'{what}s', item, ranges)}")
        added = [index * tail + k for index in ranges[item] for k in range(tail)]
        labels += [f"{name} of {item}" + (f" {k}" if len(added) > 1 else "") for k in range(len(added))]
        indices += added
    if not indices:
        raise InputError(f"ResidualNetwork: {name!r} of {model.name!r} has no numbers to add to")
    return labels, shape, indices
