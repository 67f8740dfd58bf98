"""An epoch of differentiable-robot-model's own example, learn_forward_dynamics_iiwa.py, with that library and ours.

The example: an iiwa whose first link's mass, center of mass and inertia are learned from 10,000 samples of a sine
motion in batches of 100, with Adam at a rate of 0.01 and a loss over the accelerations' variance. Data, first values,
order, loss and optimizer (Adam as torch fuses it) are the same for all. Times are processor time of the one thread that
works.

Three ways of ours: the example's loop as it stands with the imports changed; the same loop over slices of the data, as
torch's DataLoader takes longer to gather a batch than we to learn from it; and `train_epoch`, which does what that loop
does with one launch a batch. Both curves of losses are compared in double precision, in which rounding does not hide a
difference. The peer refuses doubles, so for that comparison it is told that float32 means float64.
"""

import contextlib
import importlib
import io
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from report import in_turn
from torch.utils.data import DataLoader

from adjoin.compat.differentiable_robot_model import rigid_body_params, train_epoch
from adjoin.compat.differentiable_robot_model.robot_model import DifferentiableRobotModel

LINK, BATCH, RATE = "iiwa_link_1", 100, 1e-2
PEER = "differentiable-robot-model 0.2.3"
Batches = Iterable[tuple[torch.Tensor, ...]]


class Peer:
    """The library and its example's data."""

    def __init__(self, count: int):
        with contextlib.redirect_stderr(io.StringIO()):
            self.models: Any = importlib.import_module("differentiable_robot_model.robot_model")
        self.parameters: Any = importlib.import_module("differentiable_robot_model.rigid_body_params")
        files: Any = importlib.import_module("diff_robot_data")
        self.path = Path(files.__path__[0]) / "kuka_iiwa" / "urdf" / "iiwa7.urdf"
        generate: Any = importlib.import_module("differentiable_robot_model.data_utils")
        truth = self.model()
        self.data: Any = generate.generate_sine_motion_forward_dynamics_data(truth, count, dt=1 / 250, freq=0.1)
        self.variance: torch.Tensor = self.data.var()

    def model(self) -> Any:
        """The peer's robot; its parser's remarks about unknown tags are left out."""
        with contextlib.redirect_stderr(io.StringIO()):
            return self.models.DifferentiableRobotModel(str(self.path), "kuka_iiwa")

    def columns(self) -> list[torch.Tensor]:
        """q, qd, torques and accelerations of all samples."""
        return [self.data.data[name] for name in ("q", "qd", "tau", "qdd_des")]

    def slices(self) -> list[tuple[torch.Tensor, ...]]:
        """The batches as the example's loader gives them, without copying."""
        q, qd, tau, qdd = self.columns()
        return list(zip(*[tensor.split(BATCH) for tensor in (q, qd, qdd, tau)], strict=True))


def learnable(robot: Any, modules: Any) -> Any:
    """The robot with the first link to be learned, from the same first values each time."""
    torch.manual_seed(0)
    robot.make_link_param_learnable(LINK, "mass", modules.PositiveScalar())
    robot.make_link_param_learnable(LINK, "com", modules.UnconstrainedTensor(dim1=1, dim2=3))
    robot.make_link_param_learnable(LINK, "inertia_mat", modules.UnconstrainedTensor(dim1=3, dim2=3))
    return robot


def looped(robot: Any, batches: Batches, variance: torch.Tensor) -> Callable[[], list[float]]:
    """An epoch of the example's loop; gives the losses."""
    optimizer = torch.optim.Adam(robot.parameters(), lr=RATE, fused=True)

    def epoch() -> list[float]:
        losses = []
        for q, qd, qdd, tau in batches:
            optimizer.zero_grad()
            predicted = robot.compute_forward_dynamics(q=q, qd=qd, f=tau, include_gravity=True, use_damping=True)
            loss = ((predicted - qdd) ** 2 / variance).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return epoch


def fused(robot: DifferentiableRobotModel, columns: list[torch.Tensor], variance: torch.Tensor) -> Callable[[], Any]:
    """The same epoch by `train_epoch`."""
    optimizer = torch.optim.Adam(robot.parameters(), lr=RATE, fused=True)
    q, qd, tau, qdd = columns

    def epoch() -> list[float]:
        options: Any = {"batch_size": BATCH, "variance": variance, "use_damping": True}
        return train_epoch(robot, optimizer, "forward_dynamics", q, qd, tau, qdd, **options).tolist()

    return epoch


def ours(peer: Peer) -> DifferentiableRobotModel:
    return learnable(DifferentiableRobotModel(peer.path, "kuka_iiwa"), rigid_body_params)


class _Double:
    """torch, for a module that says float32 where it shall compute in doubles."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextlib.contextmanager
def in_doubles() -> Iterator[None]:
    """Both libraries compute in double precision."""
    reader: Any = importlib.import_module("differentiable_robot_model.urdf_utils")
    reader.torch = _Double()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        reader.torch = torch


def curves(count: int, epochs: int) -> tuple[list[float], list[float], list[float]]:
    """The losses of all batches: the peer's, of our loop and of `train_epoch`."""
    peer = Peer(count)
    loader = DataLoader(peer.data, batch_size=BATCH)
    theirs = looped(learnable(peer.model(), peer.parameters), loader, peer.variance)
    loop = looped(ours(peer), peer.slices(), peer.variance)
    runs = (theirs, loop, fused(ours(peer), peer.columns(), peer.variance))
    first, second, third = ([loss for _ in range(epochs) for loss in run()] for run in runs)
    return first, second, third


def deviation(curve: list[float], reference: list[float]) -> float:
    """The greatest relative difference of two curves."""
    return max(abs(x - y) / y for x, y in zip(curve, reference, strict=True))


def section(quick: bool) -> Iterator[dict[str, Any]]:
    """The figures."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    count = 2_000 if quick else 10_000
    peer = Peer(count)
    loader = DataLoader(peer.data, batch_size=BATCH, shuffle=False)
    runs = (
        looped(learnable(peer.model(), peer.parameters), loader, peer.variance),
        looped(ours(peer), loader, peer.variance),
        looped(ours(peer), peer.slices(), peer.variance),
        fused(ours(peer), peer.columns(), peer.variance),
    )
    times = [statistics.median(own) for own in in_turn(*runs, rounds=2 if quick else 5)]
    slow = times[0]
    names = ("imports changed", "and batches by slicing", "by train_epoch")
    for name, taken in zip(names, times[1:], strict=True):
        yield {
            "name": f"epoch of {count} samples, {name}",
            "value": taken * 1e3,
            "unit": "ms",
            "peer": (PEER, slow * 1e3),
        }
    for name, taken in zip(names, times[1:], strict=True):
        bar = {"at_least": 100.0} if name == names[-1] else {}
        yield {"name": f"times as fast as the peer, {name}", "value": slow / taken, "unit": "x", **bar}

    with in_doubles():
        theirs, loop, launched = curves(count, 1 if quick else 3)
    yield {
        "name": "loss curve, doubles: loop and peer differ by",
        "value": deviation(loop, theirs),
        "unit": "",
        "at_most": 1e-5,
    }
    off = deviation(launched, theirs)
    yield {"name": "loss curve, doubles: train_epoch and peer differ by", "value": off, "unit": "", "at_most": 1e-5}
    single = curves(count, 1)
    means = [statistics.fmean(curve) for curve in single]
    yield {
        "name": "loss curve, floats: epoch means differ by",
        "value": abs(means[2] - means[0]) / means[0],
        "unit": "",
        "note": "rounding of the accelerations",
    }
    torch.set_num_threads(threads)
