"""A few tasks beside the peers that are installed: ours and theirs in turn, on one core."""

import functools
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import adjoin
from adjoin import trace as at
from adjoin.peers.timing import in_turn

BATCH, STEPS = 4096, 100
FORMATS = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Figure:
    """How long something takes for one robot, in seconds; what was not measured is None.

    Attributes:
        what: is computed.
        f32: ours, in float32.
        f64: ours, in float64.
        gpu: ours, in float32 on the GPU.
        peer: name and version of the other library.
        theirs: its time, in float64.
    """

    what: str
    f32: float
    f64: float
    gpu: float | None = None
    peer: str | None = None
    theirs: float | None = None


def dynamics(name: str, quick: bool) -> Figure:
    """A quantity of the Go2 in a batch, beside Pinocchio."""
    model, function = adjoin.robots.load("go2"), {"RNEA": adjoin.rnea, "CRBA": adjoin.crba, "ABA": adjoin.aba}[name]
    torch.manual_seed(0)
    rates = torch.randn(0 if name == "CRBA" else 2, BATCH, model.nv, dtype=torch.float64)
    inputs = [model.random((BATCH,), dtype=torch.float64), *rates]

    def ours(dtype: torch.dtype, device: str = "cpu") -> Callable[[], Any]:
        return functools.partial(function, model, *[x.to(device, dtype) for x in inputs])

    title, calls = f"{name} of the Go2", [ours(dtype) for dtype in FORMATS]
    if not importlib.util.find_spec("pinocchio"):
        return _figure(title, ours, calls, [BATCH] * 2, None, quick)
    from adjoin.peers.pinocchio import Pinocchio, pinocchio

    theirs, empty, _ = Pinocchio(model).timed(name, *inputs)
    cost = min(in_turn(empty, rounds=3)[0]) if empty else 0.0
    peer = f"Pinocchio {pinocchio.__version__}"
    return _figure(title, ours, [*calls, theirs], [BATCH] * 3, peer, quick, cost=cost)


def simulation(quick: bool) -> Figure:
    """A step of a Go2 that stands on its feet, beside MuJoCo."""
    model, dt, batch, fewer = adjoin.robots.load("go2").with_servos(100.0, 3.0), 2e-3, 256, 8
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    sim, home = adjoin.Simulator(model, dt, pairs=[(foot, "ground") for foot in feet]), model.keyframe("home")

    def ours(dtype: torch.dtype, device: str = "cpu") -> Callable[[], Any]:
        q, control = (torch.tensor(x, dtype=dtype, device=device) for x in (home.q, home.control))
        count = batch if device == "cpu" else BATCH
        return functools.partial(sim.rollout, sim.state(q.repeat(count, 1)), control.expand(STEPS, count, -1))

    title, calls = "step of a standing Go2", [ours(dtype) for dtype in FORMATS]
    if not importlib.util.find_spec("mujoco"):
        return _figure(title, ours, calls, [batch] * 2, None, quick, STEPS)
    from adjoin.peers.mujoco import MuJoCo

    peer = MuJoCo(model, [f"{foot}/0" for foot in feet], dt)
    q, control = (torch.tensor(x, dtype=torch.float64) for x in (home.q, home.control))
    theirs = peer.stepping(q.repeat(fewer, 1).numpy(), control.numpy(), STEPS)
    return _figure(title, ours, [*calls, theirs], [batch, batch, fewer], peer.name, quick, STEPS)


def _swing(angle: Any, speed: Any, torque: Any, body: Any) -> tuple[Any, Any]:
    """A step of a damped pendulum, on traced scalars or tensors."""
    mass, length = body[0], body[1]
    pull = torque - 0.1 * speed - 9.81 * mass * length * at.sin(angle)
    speed = speed + 0.01 * pull / (mass * length * length)
    return angle + 0.01 * speed, speed


def gradient(quick: bool) -> Figure:
    """A rollout of pendulums and its gradient, one kernel each, beside the same lines in torch."""

    def fused(state: Any, controls: Any, body: Any) -> Any:
        def step(_: Any, carry: Any, torque: Any) -> Any:
            return _swing(carry[0], carry[1], torque, body), None

        return list(at.scan(step, (state[0], state[1]), controls)[0])

    def plain(state: Any, controls: Any, body: Any) -> Any:
        angle, speed = state.unbind(-1)
        for torque in controls:
            angle, speed = _swing(angle, speed, torque, body)
        return torch.stack([angle, speed], -1)

    def pulled(function: Callable[..., Any], dtype: torch.dtype, device: str = "cpu") -> Callable[[], Any]:
        generator = torch.Generator().manual_seed(0)
        state, controls = (torch.randn(n, generator=generator).to(device, dtype) for n in ((BATCH, 2), (STEPS, BATCH)))
        body = torch.tensor([1.0, 0.5], dtype=dtype, device=device, requires_grad=True)
        return lambda: torch.autograd.grad(function(state, controls, body).square().mean(), body)

    ours = functools.partial(pulled, at.function(state=2, controls=at.PerStep(()), body=2)(fused))
    calls = [*[ours(dtype) for dtype in FORMATS], pulled(plain, torch.float64)]
    title, peer = "step of a pendulum and its gradient", f"plain torch {torch.__version__}"
    return _figure(title, ours, calls, [BATCH] * 3, peer, quick, STEPS)


def _figure(
    what: str,
    ours: Callable[..., Callable[[], Any]],
    calls: Sequence[Callable[[], Any]],
    robots: Sequence[int],
    peer: str | None,
    quick: bool,
    steps: int = 1,
    cost: float = 0.0,
) -> Figure:
    """Runs in turn: ours in both formats, and the peer, less the cost of calling it; then ours on the GPU.

    Args:
        what: is computed.
        ours: makes our call of a format and device; on a GPU it is of `BATCH` robots.
        calls: ours in both formats, and the peer's.
        robots: of each call.
        peer: its name.
        quick: whether fewer turns do.
        steps: of each call.
        cost: of calling the peer, s.
    """
    best = [min(times) for times in in_turn(*calls, rounds=3 if quick else 10)]
    best[2:] = [seconds - cost for seconds in best[2:]]
    f32, f64, *theirs = (seconds / count / steps for seconds, count in zip(best, robots, strict=True))
    gpu = None
    if torch.cuda.is_available():
        call = ours(torch.float32, "cuda")

        def waited() -> None:
            call()
            torch.cuda.synchronize()

        gpu = min(in_turn(waited, rounds=3, clock=time.perf_counter)[0]) / BATCH / steps
    return Figure(what, f32, f64, gpu, peer, *theirs)
