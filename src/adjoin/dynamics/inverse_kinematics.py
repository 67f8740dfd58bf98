"""Inverse kinematics: configurations in which frames are where they should be.

Every problem of a batch is solved from several starts by damped least squares (see `least_squares`), all side by side
in one launch; then the best start of each is taken.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from adjoin.compiler.runtime.bounded import PerOwner
from adjoin.dynamics.kinematics import find_frame
from adjoin.dynamics.least_squares import LeastSquares, LeastSquaresProblem
from adjoin.dynamics.robot import Robot
from adjoin.errors import InputError, unknown_name
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.trace import Function, Integer

TARGET_SHAPES: dict[str, tuple[int, ...]] = {"homogeneous": (4, 4), "quaternion": (7,), "position": (3,)}
"""The shapes of the kinds of targets."""


class InverseKinematics(NamedTuple):
    """What `inverse_kinematics` returns.

    Attributes:
        q: configuration, (..., nq).
        position_error: how far each frame is from its target, m, (..., targets).
        rotation_error: the angle between each frame and its target, rad, (..., targets); 0 where that is a position.
        success: whether every error is within its tolerance, (...).
        iterations: how many steps it took, (...).
    """

    q: torch.Tensor
    position_error: torch.Tensor
    rotation_error: torch.Tensor
    success: torch.Tensor
    iterations: torch.Tensor


def inverse_kinematics(
    model: Model,
    targets: Mapping[str, torch.Tensor],
    q0: torch.Tensor | None = None,
    *,
    joints: Sequence[str] | None = None,
    seeds: int = 16,
    iterations: int = 30,
    tolerance: tuple[float, float] = (1e-4, 1e-3),
    weights: tuple[float, float] | Mapping[str, tuple[float, float]] = (1.0, 0.3),
    damping: float = 0.03,
    limits: bool = True,
    params: Mapping[str, torch.Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> InverseKinematics:
    """Return configurations in which frames are at their targets.

    Every problem is solved from `q0`, if it is given, and from random configurations inside the limits. Of the
    solutions, the one nearest to `q0` is returned, or without `q0` the most exact; if there is none, the configuration
    with the least error that was seen. A solution that is found stays as it is, bit by bit, however long others take.

    Gradients: q is differentiable to targets and parameters, as the solution of the equations (the implicit function
    theorem): dq is the least change that follows the targets while joints at a limit stay there. Nothing is
    differentiated through the steps, nor to `q0`. This has a meaning where `success` holds.

    Args:
        model: the robot.
        targets: frame name -> its pose in the world: (..., 4, 4), or (..., 7) [x y z, w x y z], or only its position
            (..., 3).
        q0: the first start, (..., nq); joints that do not move stay there. By default the neutral configuration.
        joints: names of the joints that may move; by default all that move one of the frames. A free joint starts
            where `q0` has it.
        seeds: number of starts.
        iterations: greatest number of steps.
        tolerance: errors that are small enough: m, rad.
        weights: of position (1/m) and rotation (1/rad) in the error, for all frames or by frame. Weight 0 leaves one of
            the two free. By default 1 rad counts as much as 0.3 m, which suits an arm of 1 m.
        damping: of the steps, as a fraction of the squared error. Less is faster but less sure.
        limits: whether joints stay inside their limits, always and exactly.
        params: parameters to take the place of the model's, each for the batch or one per environment.
        generator: source of the random starts.

    Returns:
        q, its errors, whether they are small enough, and the number of steps.
    """
    for name, count in (("seeds", seeds), ("iterations", iterations)):
        if not isinstance(count, int) or count < 1:
            raise InputError(f"inverse_kinematics: '{name}' must be a whole number of at least 1, got {count!r}")
    kinds = tuple((name, _kind(model, name, target)) for name, target in targets.items())
    bodies = _moving(model, tuple(targets), joints)
    pairs = tuple(_weights(weights, name, kind) for name, kind in kinds)
    position, rotation = tolerance
    problem = LeastSquaresProblem(kinds, pairs, bodies, (position, rotation), damping, limits, tuple(params or ()))
    batch = _batch(model, problem, targets, q0, params)
    values = [*targets.values(), *model.check_parameters(params, batch).values()]

    starts = _starts(model, problem, q0, (seeds, *batch), values[0], generator)
    constants = [value.detach() for value in values]
    q, distances, angles, success, steps = _function(model, problem, "solve")(starts, *constants, turns=iterations + 1)
    best = _best(model, problem, q0, q, distances, angles, success > 0.0)[None]
    q, distances, angles = (x.take_along_dim(best[..., None], 0)[0] for x in (q, distances, angles))
    success, steps = (x.take_along_dim(best, 0)[0] for x in (success, steps))
    if torch.is_grad_enabled() and any(value.requires_grad for value in values):
        improved = _function(model, problem, "improve")(q, *values)
        q = q + (improved - improved.detach()).nan_to_num(0.0)
    return InverseKinematics(q, distances, angles, success > 0.0, steps.clamp(max=iterations).long())


def _kind(model: Model, name: str, target: Any) -> str:
    """Return the kind of a target, of a frame that exists."""
    find_frame("inverse_kinematics", model, name)
    if isinstance(target, torch.Tensor) and target.dtype.is_floating_point:
        for kind, shape in TARGET_SHAPES.items():
            if tuple(target.shape[-len(shape) :]) == shape:
                return kind
    got = f"{tuple(target.shape)} {target.dtype}" if isinstance(target, torch.Tensor) else type(target).__name__
    raise InputError(
        f"inverse_kinematics: the target of {name!r} must be a floating-point tensor (..., 4, 4), (..., 7) [x y z, "
        f"w x y z] or (..., 3), got {got}"
    )


def _moving(model: Model, frames: Sequence[str], joints: Sequence[str] | None) -> tuple[int, ...]:
    """Return the bodies whose joints may move and move one of the frames."""
    if not frames:
        raise InputError("inverse_kinematics: 'targets' must be a mapping from frame names to poses; it is empty")
    robot, bodies = Robot(model), set()
    for name in frames:
        body = model.frames[model.frame_index(name)].body
        bodies.update(model.coordinates[ancestor].leader for ancestor in robot.ancestors(body))
    if joints is not None:
        known = [joint.name for joint in model.joints]
        for name in joints:
            if name not in known:
                raise InputError(f"inverse_kinematics: {unknown_name('joint', 'joints', name, known)}")
        bodies = {body for body in bodies if model.joints[body].name in joints}
    if not bodies:
        joint_names = "no joint" if joints is None else f"none of the joints {', '.join(joints)}"
        raise InputError(f"inverse_kinematics: {joint_names} moves {' or '.join(frames)}")
    return tuple(sorted(bodies))


def _weights(weights: Any, name: str, kind: str) -> tuple[float, float]:
    """Return the weights of position and rotation of one target."""
    pair: Any = weights.get(name) if isinstance(weights, Mapping) else weights
    numbers = isinstance(pair, Sequence) and len(pair) == 2 and all(0.0 <= w < math.inf for w in pair)
    if not numbers or not any(pair if kind != "position" else pair[:1]):
        raise InputError(
            f"inverse_kinematics: the weights of {name!r} must be (position, rotation), neither of them negative, and "
            f"positive for something the target says; got {pair!r}"
        )
    return float(pair[0]), float(pair[1]) if kind != "position" else 0.0


def _batch(model: Model, problem: LeastSquaresProblem, targets: Any, q0: Any, params: Any) -> tuple[int, ...]:
    """Return the batch shape that all inputs broadcast to."""
    shapes = {}
    for name, kind in problem.targets:
        shapes[f"the target of {name!r}"] = targets[name].shape[: -len(TARGET_SHAPES[kind])]
    if q0 is not None:
        if not isinstance(q0, torch.Tensor) or tuple(q0.shape[-1:]) != (model.nq,):
            got = tuple(q0.shape) if isinstance(q0, torch.Tensor) else type(q0).__name__
            raise InputError(f"inverse_kinematics: 'q0' must be a tensor (..., {model.nq}), got {got}")
        shapes["q0"] = q0.shape[:-1]
    for name, value in (params or {}).items():
        if isinstance(value, torch.Tensor):
            rank = len(parameters.shape(model, parameters.named(name)))
            shapes[f"params[{name!r}]"] = value.shape[: max(0, value.dim() - rank)]
    try:
        return tuple(torch.broadcast_shapes(*shapes.values()))
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise InputError(f"inverse_kinematics: batch shapes that do not broadcast: {listed}") from None


def _starts(
    model: Model,
    problem: LeastSquaresProblem,
    q0: torch.Tensor | None,
    batch: tuple[int, ...],
    like: torch.Tensor,
    generator: torch.Generator | None,
) -> torch.Tensor:
    """Return where to start, (seeds, ..., nq)."""
    base = model.neutral(dtype=like.dtype, device=like.device) if q0 is None else q0.detach()
    starts = base.expand(*batch, model.nq).clone()
    drawn = model.random(batch, generator=generator, dtype=like.dtype, device=like.device)
    for body in problem.bodies:
        if not model.joints[body].type.floating:
            part = model.coordinates[body].q_slice
            starts[0 if q0 is None else 1 :, ..., part] = drawn[0 if q0 is None else 1 :, ..., part]
    return starts


def _best(
    model: Model,
    problem: LeastSquaresProblem,
    q0: torch.Tensor | None,
    q: torch.Tensor,
    distances: torch.Tensor,
    angles: torch.Tensor,
    success: torch.Tensor,
) -> torch.Tensor:
    """Return which start to take, for each problem."""
    weights = torch.tensor(problem.weights, dtype=q.dtype, device=q.device)
    score = (weights[:, 0] * distances).nan_to_num(0.0).square() + (weights[:, 1] * angles).nan_to_num(0.0).square()
    score = score.sum(-1)
    if q0 is not None:
        apart = model.difference(q0.detach(), q).norm(dim=-1)
        score = torch.where(success.any(0), torch.where(success, apart, math.inf), score)
    return score.argmin(0)


_functions: PerOwner[Function] = PerOwner(64)  # of each model, those of the problems that were solved last


def _function(model: Model, problem: LeastSquaresProblem, purpose: str) -> Function:
    """Return the kernel that solves a problem, or that improves a solution, traced when first asked for."""
    return _functions.get(model, (problem, purpose), lambda: _traced(model, problem, purpose))


def _traced(model: Model, problem: LeastSquaresProblem, purpose: str) -> Function:
    shapes: dict[str, Any] = {"q": model.nq}
    shapes.update({f"targets[{name!r}]": TARGET_SHAPES[kind] for name, kind in problem.targets})
    shapes.update({f"params[{name!r}]": parameters.shape(model, parameters.named(name)) for name in problem.params})

    def system(values: Mapping[str, Any]) -> LeastSquares:
        targets = [values[f"targets[{name!r}]"] for name, _ in problem.targets]
        params = {name: values[f"params[{name!r}]"] for name in problem.params}
        return LeastSquares(model, problem, values["q"], targets, params)

    def solve(**values: Any) -> Any:
        return system(values).solve(values["turns"])

    def improve(**values: Any) -> Any:
        return system(values).improved()

    traced = solve if purpose == "solve" else improve
    traced.__name__ = f"inverse_kinematics({model.name})"
    function = Function(traced, {**shapes, "turns": Integer} if purpose == "solve" else shapes)
    del vars(function)["__wrapped__"]  # it holds the model, which is to go with its kernels when nobody else holds it
    return function
