"""The reference for maps: a step with torch operations, differentiated by autograd, without a compiler."""

from collections.abc import Mapping

import torch

from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Sort, after
from adjoin.compiler.runtime.interpreter import interpret

Tensors = Mapping[str, torch.Tensor]


def interpret_step(runner: StepRunner, fields: Tensors) -> dict[str, torch.Tensor]:
    """Run one step.

    Args:
        runner: whose step.
        fields: states, parameters and controls of one variant: (members, *shape), or (*shape) of uniform ones.

    Returns:
        Every field that a stage wrote, the same way; contributions as (members, corners, *shape).
    """
    values = dict(fields)
    sequence = runner.sequence
    for stage, program in zip(sequence.stages, sequence.programs, strict=True):
        if isinstance(stage, Sort) or program is None:
            continue
        lanes = runner.sizes[stage.over]
        inputs = []
        for read in stage.reads.values():
            one, value = sequence.fields[read.field], values[read.field]
            if read.via is not None:
                index = _index(runner, read.via, values)
                if one.via is None:
                    value = value[index]
                else:
                    value = value.new_zeros((lanes, *one.shape)).index_add(0, index.ravel(), value.flatten(0, 1))
            elif one.over is None:
                value = value.expand(lanes, *one.shape)
            inputs.append(value.reshape(lanes, -1))
        for spec, result in zip(program.outputs, interpret(program, inputs), strict=True):
            one = sequence.fields[spec.name]
            if one.role == "index":
                values[spec.name] = result[:, 0].detach().long()
            elif one.over is None:
                values[spec.name] = result.sum(0).reshape(one.shape)
            else:
                values[spec.name] = result.reshape(lanes, *spec.shape)
    return values


def interpret_rollout(
    runner: StepRunner, state: Tensors, parameters: Tensors, controls: Tensors, steps: int
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Run steps of one variant; returns all states, the first included, and the outputs of all steps."""
    history = {name: [tensor] for name, tensor in state.items()}
    outputs: dict[str, list[torch.Tensor]] = {one.name: [] for one in runner.outputs}
    for step in range(steps):
        now = {name: tensors[-1] for name, tensors in history.items()}
        now.update(parameters)
        now.update({name: control[step] for name, control in controls.items()})
        values = interpret_step(runner, now)
        for name, tensors in history.items():
            tensors.append(values[after(name)])
        for name, tensors in outputs.items():
            tensors.append(values[name])
    return (
        {name: torch.stack(x) for name, x in history.items()},
        {name: torch.stack(x) for name, x in outputs.items()},
    )


def _index(runner: StepRunner, via: str, values: Tensors) -> torch.Tensor:
    connection = runner.sequence.connections[via]
    array = torch.as_tensor(runner.arrays[via]).long()
    return array if connection.cell is None else values[connection.cell][:, None] + array.reshape(1, -1)
