"""States to begin with: checked where they are given, and warned of where they begin inside the ground."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch

from adjoin.compiler.ir.program import TensorSpec
from adjoin.compiler.runtime.operator import check_tensor
from adjoin.dynamics.call import call
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.errors import InputError, InsideGroundWarning, Subject, warn_caller
from adjoin.model.model import Model
from adjoin.model.parts import INITIAL
from adjoin.simulation.clearance import clearance
from adjoin.simulation.state import FINE, NOT_FINITE, SimulatorState
from adjoin.simulation.world import World
from adjoin.spatial.scalar import Scalar
from adjoin.trace import minimum, select

MAX_DEPTH = 0.005
"""How deep a shape may begin inside the ground without a warning, m; what rests sinks in by less."""


def start_state(
    world: World,
    q: torch.Tensor | str | None,
    v: torch.Tensor | None,
    batch: int | Sequence[int] | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> SimulatorState:
    """Return a state of a world; see `Simulator.state`."""
    model = world.model
    like = next((x for x in (q, v) if isinstance(x, torch.Tensor)), torch.empty(0))
    dtype, device = dtype or like.dtype, device or like.device
    if q is None and any(key.name == INITIAL for key in model.keyframes):
        q = INITIAL
    key = None
    if isinstance(q, str):
        key = model.keyframe(q)
        q = torch.tensor(key.q, dtype=dtype, device=device)
        v = torch.tensor(key.v or (0.0,) * model.nv, dtype=dtype, device=device) if v is None else v
    q = model.neutral(dtype=dtype, device=device) if q is None else q
    v = torch.zeros(model.nv, dtype=dtype, device=device) if v is None else v
    for name, tensor in (("q", q), ("v", v)):
        check_tensor(TensorSpec(name, world.carry[name]), tensor, f"state of {model.name!r}")
    q, v = q.to(device, dtype), v.to(device, dtype)
    if batch is None and q.shape[:-1] == v.shape[:-1]:
        shape = q.shape[:-1]
    else:
        shape = _common_batch(q, v, batch)
        q, v = q.expand(*shape, -1), v.expand(*shape, -1)
    begun: tuple[torch.Tensor, ...] = call("start", model, q, v)
    if _readable(q) and not begun[3].all():
        _refuse_quaternions(world, q)
    q, v, status, _ = begun
    memory = {name: q.new_zeros((*shape, *size)) for name, size in world.carry.items() if name not in ("q", "v")}
    memory["status"] = status
    began = {"q": q, "v": v}
    if key is not None and key.activation:
        memory["activation"] = began["activation"] = q.new_tensor(key.activation).expand(*shape, -1)
    if model.mocap:
        poses = key.mocap if key is not None and key.mocap else model.mocap_poses
        memory["mocap"] = began["mocap"] = q.new_tensor(poses).expand(*shape, -1)
    if key is not None and any(key.control):
        began["control"] = q.new_tensor(key.control).expand(*shape, -1)
    # Copies, so that writing into the tensors of a state does not move where it began.
    return SimulatorState(q, v, memory, {name: x.detach().clone() for name, x in began.items()})


def _common_batch(q: torch.Tensor, v: torch.Tensor, batch: int | Sequence[int] | None) -> tuple[int, ...]:
    """The shape of the batch that q and v are expanded to."""
    shapes = [q.shape[:-1], v.shape[:-1], *([] if batch is None else [_batch_shape(batch)])]
    try:
        shape = np.broadcast_shapes(*shapes)  # torch's imports sympy
    except ValueError:
        shape = None
    if shape is None or (batch is not None and tuple(shape) != shapes[-1]):
        sizes = " and ".join(str(tuple(size)) for size in shapes[:2])
        asked = "" if batch is None else f" to batch={shapes[-1]}"
        raise InputError(f"state: batch shapes of q and v do not broadcast{asked}: {sizes}")
    return tuple(shape)


class StartValues(NamedTuple):
    """What a state begins with, over scalars."""

    q: list[Scalar]
    v: list[Scalar]
    status: Scalar
    rotated: Scalar


@quantity("start", "q", "v")
def _start(state: State) -> StartValues:
    """Return the numbers that an environment begins with.

    One that has a NaN is flagged and holds other numbers, so that the mean of a batch stays one.
    """
    neutral = [x for joint, _ in state.robot.model.independent_joints for x in joint.type.neutral]
    finite = sum((abs(x) for x in (*state.q, *state.v)), 0.0) < math.inf
    q = [select(finite, x, other) for x, other in zip(state.q, neutral, strict=True)]
    v = [select(finite, x, 0.0) for x in state.v]
    lengths = [sum((abs(x) for x in state.q[part]), 0.0) for _, part in _quaternions(state.robot.model)]
    rotated = select(reduce(minimum, lengths, 1.0) > 0.0, 1.0, 0.0)
    return StartValues(q, v, select(finite, float(FINE), float(NOT_FINITE)), rotated)


def warn_if_inside_ground(world: World, state: SimulatorState) -> None:
    """Warn if a shape begins inside the ground by more than `MAX_DEPTH`, besides what soft contact lets it sink in.

    Args:
        world: What is simulated.
        state: The state to begin with.
    """
    q = state.q
    if not _readable(q) or not q.numel():
        return
    names, heights = clearance(world, q)
    if not names:
        return
    above = heights + q.new_tensor(world.resting_depths)
    if above.amin() >= -MAX_DEPTH:
        return
    above = torch.where((state.status == FINE)[..., None], above, torch.inf)
    if above.amin() < -MAX_DEPTH:
        place = int(above.argmin())
        depth = -float(heights.flatten()[place])
        environment = _spell(place // len(names), q.shape[:-1])
        home = 'sim.state("home")' if any(key.name == "home" for key in world.model.keyframes) else ""
        remedy = " or ".join(filter(None, [home, "sim.drop(q)"]))
        warn_caller(
            InsideGroundWarning(
                f"state of {world.model.name!r}: {environment}{names[place % len(names)]!r} begins {depth:.3g} m "
                f"inside the ground, which will throw it out; begin with {remedy}"
            )
        )


def _batch_shape(batch: Any) -> tuple[int, ...]:
    shape = (batch,) if isinstance(batch, int) else batch
    if not isinstance(shape, (tuple, list)) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise InputError(f"state: batch must be a size or a tuple of sizes, got {batch!r}")
    return tuple(shape)


def _quaternions(model: Model) -> list[tuple[str, slice]]:
    """Return the names of joints with a quaternion, and where it is in q."""
    ends = [(joint, where.q + joint.nq) for joint, where in model.independent_joints if joint.type.has_quaternion]
    return [(joint.name, slice(end - 4, end)) for joint, end in ends]


def _refuse_quaternions(world: World, q: torch.Tensor) -> None:
    """Raise at a quaternion of zeros, which is no rotation."""
    for name, part in _quaternions(world.model):
        zero = (q[..., part] == 0.0).all(-1)
        if zero.any():
            place = _spell(int(zero.flatten().nonzero()[0]), zero.shape)
            raise InputError(
                f"state: {place}the quaternion is 0 0 0 0",
                subject=Subject("joint", name),
                remedy="no rotation is 1 0 0 0",
            )


def _readable(q: torch.Tensor) -> bool:
    """Whether numbers can be looked at without a stall of a GPU, and outside of torch's transforms."""
    return (
        q.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not isinstance(q, torch._subclasses.FakeTensor)
    )


def _spell(place: int, batch: Sequence[int]) -> str:
    """Which environment a flat index is, for messages; nothing where there is one."""
    if not batch:
        return ""
    index = [int(x) for x in np.unravel_index(place, tuple(batch))]  # torch's imports sympy
    return f"environment {index[0] if len(index) == 1 else tuple(index)}: "
