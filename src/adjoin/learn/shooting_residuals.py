"""Recorded motions cut into windows, each simulated from its start: residuals and their exact derivatives.

All windows of all trajectories are one batch, and run in one launch. Derivatives are taken in forward mode, all
directions in one launch too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from adjoin.errors import InputError
from adjoin.learn.data import Recording
from adjoin.learn.jacobian import flatten, raw_numbers, unflatten
from adjoin.simulation.arguments import PerEnvironment
from adjoin.simulation.simulator import Simulator

Noise = float | Sequence[float] | torch.Tensor
MAX_ENTRIES = 2_000_000  # numbers that go into a launch of the forward mode, or come out


class NamedParameters(torch.nn.Module):
    """Parameters by name, each from a module that returns it in its full shape: those that `Parameters` lacks.

    Args:
        modules: by the name of the parameter, such as contact_restitution=Bounded(0.5, 0.0, 1.0).
    """

    def __init__(self, **modules: torch.nn.Module):
        super().__init__()
        self.parts = torch.nn.ModuleDict(modules)

    def forward(self) -> dict[str, torch.Tensor]:
        """The parameters, to be passed as `params`."""
        return {name: module() for name, module in self.parts.items()}


class ModuleGroup(torch.nn.Module):
    """Several modules as one.

    Args:
        modules: each returns parameters by name; of one that has `weights`, such as a residual network, those count.
    """

    def __init__(self, modules: Sequence[torch.nn.Module]):
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)

    def forward(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return parameters, and named tensors of the simulator's residual."""
        params: dict[str, torch.Tensor] = {}
        tensors: dict[str, torch.Tensor] = {}
        for module in self.parts:
            weights: Any = getattr(module, "weights", None)
            if weights is None:
                params.update(module())
            else:
                tensors.update(weights())
        return params, tensors


class ShootingJacobian(NamedTuple):
    """Derivatives of the residuals; directions come first.

    Attributes:
        learned: of what is measured, to the raw numbers, (p, windows, samples, 2 nv).
        starts: to the starts, (2 nv, windows, samples, 2 nv); of no directions where they are measured.
        ends: what one window's end lacks to the next one's start: to the raw numbers and the start of the window,
            (p + 2 nv, trajectories, windows - 1, 2 nv).
        follows: the same to the start of the next window, (2 nv, trajectories, windows - 1, 2 nv).
    """

    learned: torch.Tensor
    starts: torch.Tensor
    ends: torch.Tensor
    follows: torch.Tensor


class ShootingResiduals:
    """Recorded motions in windows, and a simulator that should repeat them: what they lack, and its derivatives.

    Args:
        simulator: of the robot; it may have a residual.
        learned: modules whose forward() returns `params` (`Parameters`, `NamedParameters`), or a residual network,
            whose weights are named tensors.
        recording: with v, and with control if the robot has actuators; (samples) or (trajectories, samples). Its step
            of time is that of the simulator or a whole multiple, over which controls are held.
        steps: samples from a window's start to its end; by default all of them, single shooting.
        noise: standard deviations of measured q and v, in the nv coordinates of velocities: each one number, or nv.
        external: external forces as they were: frame name -> (..., samples, 6); see `Simulator.rollout`.
        free: whether the starts of the windows are unknowns, of which the first samples are measurements.
        continuity: with free starts, the standard deviation, in those of the noise, that a window's end may have from
            the next one's start; None leaves them apart.
        robust: standard deviations beyond which residuals count less and less, by Cauchy's loss; None counts all
            alike. An impact just before or just after a sample makes outliers that no start can explain.
    """

    def __init__(
        self,
        simulator: Simulator,
        learned: torch.nn.Module | Sequence[torch.nn.Module],
        recording: Recording,
        steps: int | None = None,
        *,
        noise: tuple[Noise, Noise] = (1.0, 1.0),
        external: Mapping[str, torch.Tensor] | None = None,
        free: bool = False,
        continuity: float | None = None,
        robust: float | None = None,
    ):
        self.simulator, self.model = simulator, recording.model
        recorded, simulated = ((model.nq, model.nv, model.nu) for model in (recording.model, simulator.model))
        if recorded != simulated:
            raise InputError(f"Shooting: the recording is of {self.model.name!r}, not of {simulator.model.name!r}")
        self.learned = ModuleGroup([learned] if isinstance(learned, torch.nn.Module) else learned)
        recording.need("Shooting", "v", *(["control"] if self.model.nu else []))
        self._every = _ratio(recording.check_time("Shooting"), simulator.dt)
        steps = recording.time.shape[-1] - 1 if steps is None else steps
        windows = recording.windows(steps)
        if continuity is not None and not free:
            raise InputError("Shooting: continuity is for starts that are free; pass free=True")
        for name, value in (("continuity", continuity), ("robust", robust)):
            if value is not None and not value > 0.0:
                raise InputError(f"Shooting: {name} must be positive, got {value!r}")
        self.free, self.continuity = free, continuity
        self.robust = self.cutoff = math.inf if robust is None else robust
        self.groups = (math.prod(recording.time.shape[:-1]), -1)
        self.time = windows.time
        self.q, self.v = (x.transpose(0, 1).contiguous() for x in windows.need("Shooting", "q", "v"))
        control = windows.control if self.model.nu else self.v.new_zeros((*windows.time.shape, 0))
        assert control is not None
        self.controls = self._per_step(control)
        self.external = {name: self._external_force(recording, name, x, steps) for name, x in (external or {}).items()}
        self.noise = [self._deviation(name, x) for name, x in zip(("q", "v"), noise, strict=True)]
        self.start = torch.zeros_like(self.v[0]), torch.zeros_like(self.v[0])
        self.per_window = False  # whether what is learned has a value for each window, see `window_starts`

    def _per_step(self, stream: torch.Tensor) -> torch.Tensor:
        """(windows, samples, n) as steps of the simulator, (steps, windows, n)."""
        return stream[:, :-1].transpose(0, 1).repeat_interleave(self._every, 0)

    def _external_force(self, recording: Recording, name: str, value: torch.Tensor, steps: int) -> torch.Tensor:
        lead = tuple(recording.time.shape)
        if tuple(value.shape) != (*lead, 6):
            raise InputError(f"Shooting: external[{name!r}] has shape {tuple(value.shape)}; it must be {(*lead, 6)}")
        windows = value.unfold(len(lead) - 1, steps + 1, steps).movedim(-1, len(lead)).flatten(0, len(lead) - 1)
        return self._per_step(windows)

    def _deviation(self, name: str, noise: Noise) -> torch.Tensor:
        deviation = torch.as_tensor(noise, dtype=self.v.dtype, device=self.v.device)
        if deviation.shape not in ((), (self.model.nv,)) or not bool((deviation > 0.0).all()):
            raise InputError(f"Shooting: noise of {name} must be one positive number or {self.model.nv}, got {noise}")
        return deviation.expand(self.model.nv)

    @property
    def raw(self) -> torch.Tensor:
        """The raw numbers of what is learned, (p,)."""
        values = raw_numbers(self.learned)
        return flatten(values) if values else self.v.new_zeros(0)

    # Residuals

    def residuals(self) -> torch.Tensor:
        """Return predicted less measured, over the noise, (windows, samples, 2 nv): q, then v. With gradients."""
        return self._compare(*self._run(self.learned(), self.start, self.per_window)[:2])

    def loss(self) -> torch.Tensor:
        """Return the mean of the squared residuals, or of their robust loss. With gradients."""
        return self.squares(self.residuals()).mean()

    def squares(self, residuals: torch.Tensor) -> torch.Tensor:
        """Return the square or the robust loss of each residual."""
        if math.isinf(self.cutoff):
            return residuals.square()
        return self.cutoff**2 * (residuals / self.cutoff).square().log1p()

    def weights(self, residuals: torch.Tensor) -> torch.Tensor:
        """Return the square roots of the weights of the robust loss."""
        return (1.0 + (residuals / self.cutoff).square()).rsqrt()

    def _run(
        self, outputs: tuple[dict[str, Any], dict[str, Any]], start: Sequence[torch.Tensor], wide: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, v and status of the samples, (samples + 1, ..., windows, n); named tensors one per environment if wide."""
        params, named = outputs
        path = self.simulator.rollout(
            self.simulator.state(self.model.integrate(self.q[0], start[0]), self.v[0] + start[1]),
            self.controls,
            params,
            external=self.external,
            tensors={name: PerEnvironment(x) for name, x in named.items()} if wide else named,
            every=self._every,
        )
        return path.q, path.v, path.status

    def _compare(self, q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        first = 0 if self.free else 1
        extra = (1,) * (q.dim() - self.q.dim())
        q_measured, v_measured = (x[first:].reshape(-1, *extra, *x.shape[1:]) for x in (self.q, self.v))
        parts = [self.model.difference(q_measured, q[first:]), v[first:] - v_measured]
        return torch.cat([x / sigma for x, sigma in zip(parts, self.noise, strict=True)], -1).movedim(0, -2)

    def _gaps(self, ends: Sequence[torch.Tensor], starts: Sequence[torch.Tensor]) -> torch.Tensor:
        """What ends of windows (..., windows, n) lack to the next starts, (..., trajectories, windows - 1, 2 nv)."""
        assert self.continuity is not None
        before, after = ([x.unflatten(-2, self.groups) for x in pair] for pair in (ends, starts))
        parts = [self.model.difference(after[0][..., 1:, :], before[0][..., :-1, :]), before[1][..., :-1, :]]
        parts[1] = parts[1] - after[1][..., 1:, :]
        return torch.cat([x / (s * self.continuity) for x, s in zip(parts, self.noise, strict=True)], -1)

    def evaluate(self) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Return residuals, gaps, and whether all simulations succeeded; without gradients."""
        with torch.no_grad():
            q, v, status = self._run(self.learned(), self.start, self.per_window)
            gaps = self._gaps((q[-1], v[-1]), (q[0], v[0])) if self.continuity else v.new_zeros(0)
            return self._compare(q, v), gaps, bool((status[-1] == 0).all())

    def ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where each window should begin: q and v at the end of the one before; of the first, its own start."""
        with torch.no_grad():
            q, v, _ = self._run(self.learned(), self.start)
        moved = []
        for x in (q, v):
            first, last = (part.unflatten(0, self.groups) for part in (x[0], x[-1]))
            moved.append(torch.cat([first[:, :1], last[:, :-1]], 1).flatten(0, 1))
        return moved[0], moved[1]

    def check_finite(self) -> None:
        """Raise if a window does not stay finite with what is learned as it is."""
        with torch.no_grad():
            status = self._run(self.learned(), self.start)[2][-1]
        for trajectory, window in (status.unflatten(0, self.groups) != 0).nonzero().tolist():
            raise InputError(
                f"Shooting: window {window} of trajectory {trajectory} does not stay finite with the parameters to "
                f"begin with"
            )

    def jacobian(self) -> ShootingJacobian:
        """Return derivatives of the residuals to the raw numbers and the starts, in forward mode."""
        like, point, nv = raw_numbers(self.learned), self.raw, self.model.nv
        tangents = [self._tangents(like, point, k) for k in range(len(point))]
        count = len(point) + (2 * nv if self.free else 0)
        inputs = sum(x.numel() for part in self.learned() for x in part.values())
        inputs //= self.v.shape[1] if self.per_window else 1
        size = self.v[0, ..., 0].numel() * (len(self.v) * 2 * nv + inputs)
        pieces = torch.arange(count).split(max(1, MAX_ENTRIES // size))
        derivatives = [self._along([int(k) for k in piece], tangents, nv) for piece in pieces]
        slopes, ends, follows = (torch.cat(parts) for parts in zip(*derivatives, strict=True))
        return ShootingJacobian(slopes[: len(point)], slopes[len(point) :], ends, follows[len(point) :])

    def _tangents(self, like: dict[str, torch.Tensor], point: torch.Tensor, k: int) -> tuple[dict[str, Any], ...]:
        """The tangents of what the modules return, along one raw number."""
        along = torch.zeros_like(point)
        along[k] = 1.0
        with torch.no_grad(), forward_ad.dual_level():
            duals = {
                name: forward_ad.make_dual(value, part)
                for (name, value), part in zip(like.items(), unflatten(along, like).values(), strict=True)
            }
            outputs: Any = torch.func.functional_call(self.learned, duals, ())
            return tuple({name: forward_ad.unpack_dual(x).tangent for name, x in part.items()} for part in outputs)

    def _along(self, directions: list[int], tangents: list[Any], nv: int) -> tuple[torch.Tensor, ...]:
        """The derivatives along some of the raw numbers and starts."""
        with torch.no_grad(), forward_ad.dual_level():
            outputs = []
            for index, values in enumerate(self.learned()):
                wide = {}
                for name, value in values.items():
                    along = [tangents[k][index][name] if k < len(tangents) else None for k in directions]
                    tangent = torch.stack([torch.zeros_like(value) if t is None else t for t in along])
                    tangent = tangent if self.per_window else tangent[:, None]
                    wide[name] = forward_ad.make_dual(value.expand_as(tangent).contiguous(), tangent)
                outputs.append(wide)
            start_tangent = torch.zeros(len(directions), 1, 2 * nv, dtype=self.v.dtype, device=self.v.device)
            for row, k in enumerate(directions):
                if k >= len(tangents):
                    start_tangent[row, 0, k - len(tangents)] = 1.0
            shape = (len(directions), *self.v[0].shape)
            starts = [
                forward_ad.make_dual(start.expand(shape).contiguous(), part.expand(shape).contiguous())
                for start, part in zip(self.start, start_tangent.split(nv, -1), strict=True)
            ]
            q, v, _ = self._run((outputs[0], outputs[1]), starts, wide=True)
            slopes = _tangent(self._compare(q, v))
            if not self.continuity:
                return slopes, slopes[:, :0], slopes[:, :0]
            ends, begins = (q[-1], v[-1]), (q[0], v[0])
            primal = [[forward_ad.unpack_dual(x).primal for x in pair] for pair in (ends, begins)]
            return slopes, _tangent(self._gaps(ends, primal[1])), _tangent(self._gaps(primal[0], begins))


def _ratio(sampled: float, dt: float) -> int:
    """How many steps of the simulator a sample takes."""
    ratio = round(sampled / dt)
    if ratio < 1 or abs(sampled / dt - ratio) > 1e-3:
        raise InputError(
            f"Shooting: samples are {sampled:g} s apart; that must be a whole multiple of the simulator's dt, {dt:g} s"
        )
    return ratio


def _tangent(value: torch.Tensor) -> torch.Tensor:
    tangent = forward_ad.unpack_dual(value).tangent
    return torch.zeros_like(value) if tangent is None else tangent
