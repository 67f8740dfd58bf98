"""Linear least squares: torques are linear in inertial parameters, damping, friction, armature and stiffness.

The data are used up once: each joint's rows of the regressor become one triangular factor, from which weights, standard
errors, base parameters and the physically consistent solution all follow without looking at the data again.

Base parameters after Gautier 1991, Numerical calculation of the base inertial parameters of robots. Consistency by
construction: least squares over the log-Cholesky parameters of Rucker and Wensing 2022, Smooth parameterization of
rigid-body inertia.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adjoin.dynamics.regressor import from_inertial_parameters, inertial_parameters, torque_regressor
from adjoin.dynamics.rnea import rnea
from adjoin.errors import InputError, unknown_name
from adjoin.learn.data import Recording, columns
from adjoin.learn.excitation import random_states
from adjoin.learn.levenberg_marquardt import gauss_newton
from adjoin.learn.modules import LogCholesky, Positive
from adjoin.learn.parameters import Parameters
from adjoin.learn.report import Report, directions, require_excitation, summary, units_of
from adjoin.model import parameters
from adjoin.model.model import Model

LINEAR = ("inertial", "damping", "friction", "armature", "stiffness")
"""What torques are linear in; "inertial" is the ten parameters of each body."""

_TEN = ("mass", "mc x", "mc y", "mc z", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
_TEN_UNITS = ("kg", *["kg m"] * 3, *["kg m^2"] * 6)
_CHUNK = 4096
_SAMPLES = 256


@dataclass(frozen=True, eq=False)
class BaseParameters:
    """The combinations of parameters that torques depend on: matrix @ parameters.

    Attributes:
        expressions: each in words, as "Izz of link1 + 1 Iyy of link2".
        matrix: (base parameters, parameters), in the order of `Report.names`.
        estimate: (base parameters,).
        error: standard errors.
    """

    expressions: list[str]
    matrix: torch.Tensor
    estimate: torch.Tensor
    error: torch.Tensor

    def __str__(self) -> str:
        rows = zip(self.estimate.tolist(), self.error.tolist(), self.expressions, strict=True)
        return "\n".join(
            ["    estimate  std. error  base parameter", *[f"{x:12.6g}  {e:10.3g}  {s}" for x, e, s in rows]]
        )


@dataclass(frozen=True, eq=False)
class Regression:
    """The result of `least_squares`.

    Attributes:
        params: identified parameters, to be passed as `params`. What the data leave open depends on the model that it
            began with.
        report: estimates and standard errors of the parameters; inertias about the frames of the bodies.
        base: the combinations that are determined.
    """

    params: dict[str, torch.Tensor]
    report: Report
    base: BaseParameters


def least_squares(
    model: Model,
    recording: Recording,
    *,
    learn: Sequence[str] = ("inertial",),
    bodies: Sequence[str] | None = None,
    consistent: bool = True,
    check: bool = True,
    iterations: int = 100,
) -> Regression:
    """Identify parameters from torques: q, v, a and tau in, one pass over the data.

    Joints count by the variance of their residuals, which is estimated.

    Args:
        model: the robot; what is not learned is taken from it.
        recording: of q, v, a and tau.
        learn: some of "inertial", "damping", "friction", "armature" and "stiffness".
        bodies: names of those whose inertial parameters are learned; all by default.
        consistent: whether masses, inertias and the others must be physical. What the data hardly determine stays near
            the model then, as if that were known up to a factor of e. Without, it is plain linear least squares.
        check: whether to raise an error if the data determine less than random motions would.
        iterations: of Gauss-Newton at most, for consistent parameters.

    Returns:
        Parameters, report and base parameters, in float64.

    Raises:
        InputError: the data lack something, or excite too little.
    """
    layout = _Layout.of(model, learn, bodies)
    recording.need("least_squares", "q", "v", "a", "tau")
    samples = recording.samples().to(torch.float64).to("cpu")
    factors = _factors(layout, samples)
    size = factors.shape[-1] - 1
    structure = torch.linalg.qr(_random_rows(layout)).R
    if check:
        data = torch.linalg.qr(factors[..., :size].flatten(0, 1)).R
        quantities = layout.names, torch.eye(size, dtype=torch.float64)
        require_excitation("least_squares", "base parameters", data, structure, lambda: quantities)
    noise = samples.need("least_squares", "tau")[0].square().mean(0).sqrt()
    least = 1e-7 * float(noise.max()) + 1e-300  # joints in which nothing happens have rounding for noise
    change = torch.zeros_like(layout.start)
    for _ in range(4):  # the weights need the residuals, which need the weights; it settles at once
        change = _solve(factors / noise.clamp(min=least)[:, None, None])
        noise = _residual(factors, change, len(samples)).clamp(min=least)
    weighted = factors / noise[:, None, None]
    if consistent:
        params = _consistent(layout, weighted, iterations)
        change = layout.vector(params) - layout.start
        noise = _residual(factors, change, len(samples)).clamp(min=least)
    else:
        params = layout.params(layout.start + change)
    report = _report(layout, samples, factors, change, noise)
    return Regression(params, report, _base(layout, structure, factors, change, noise))


@dataclass(frozen=True, eq=False)
class _Layout:
    """Which numbers are learned, in which order: ten a body, then one a degree of freedom of each further name."""

    model: Model
    bodies: list[int]
    others: list[str]
    start: torch.Tensor
    names: list[str]
    units: list[str]

    @staticmethod
    def of(model: Model, learn: Sequence[str], bodies: Sequence[str] | None) -> "_Layout":
        for name in learn:
            if name not in LINEAR:
                raise InputError(
                    f"least_squares: {unknown_name('linear parameter', 'linear parameters', name, LINEAR)}"
                )
        if not learn:
            raise InputError(f"least_squares: learn at least one of {', '.join(LINEAR)}")
        chosen: list[int] = []
        if "inertial" in learn:
            every = [body.name for body in model.bodies]
            chosen = [model.body_index(name) for name in (every if bodies is None else bodies)]
        others = [name for name in LINEAR[1:] if name in learn]
        values = model.parameters(dtype=torch.float64)
        start = torch.cat([inertial_parameters(model, values)[chosen].flatten(), *[values[name] for name in others]])
        names = [f"{ten} of {model.bodies[body].name}" for body in chosen for ten in _TEN]
        units = list(_TEN_UNITS) * len(chosen)
        for name in others:
            names += [f"{name} of {column[2:]}" for column in columns(model, "v")]
            units += units_of(model, parameters.named(name), model.nv)
        return _Layout(model, chosen, others, start, names, units)

    def rows(self, q: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        """The derivative of torques to the numbers, (..., nv, numbers)."""
        parts = []
        if self.bodies:
            regressor = torque_regressor(self.model, q, v, a).unflatten(-1, (-1, 10))
            parts.append(regressor[..., self.bodies, :].flatten(-2))
        for name in self.others:
            if name == "stiffness":
                reference = self.model.parameters(dtype=q.dtype)["spring_reference"]
                along = self.model.difference(reference.expand_as(q), q)
            else:
                along = {"damping": v, "friction": v.sign(), "armature": a}[name]
            parts.append(along.diag_embed())
        return torch.cat(parts, -1)

    def params(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """The numbers as `params`."""
        params: dict[str, torch.Tensor] = {}
        if self.bodies:
            ten = inertial_parameters(self.model, self.model.parameters(dtype=torch.float64))
            ten[self.bodies] = vector[: 10 * len(self.bodies)].reshape(-1, 10)
            params = from_inertial_parameters(self.model, ten)
        ends = vector[10 * len(self.bodies) :].reshape(len(self.others), self.model.nv)
        return {**params, **dict(zip(self.others, ends, strict=True))}

    def vector(self, params: dict[str, torch.Tensor]) -> torch.Tensor:
        """The numbers of `params`."""
        parts = [params[name] for name in self.others]
        if self.bodies:
            parts.insert(0, inertial_parameters(self.model, params)[self.bodies].flatten())
        return torch.cat(parts)


def _factors(layout: _Layout, samples: Recording) -> torch.Tensor:
    """For each joint the triangular factor of its rows [regressor, torque that the model lacks]: (nv, n + 1, n + 1)."""
    factors = None
    for begin in range(0, len(samples), _CHUNK):
        item = samples[begin : begin + _CHUNK]
        q, v, a, tau = (item[name] for name in ("q", "v", "a", "tau"))
        lack = tau - rnea(layout.model, q, v, a, passive=True)
        rows = torch.cat([layout.rows(q, v, a), lack[..., None]], -1).movedim(-2, 0)
        factors = torch.linalg.qr(rows if factors is None else torch.cat([factors, rows], -2), mode="r").R
    assert factors is not None
    short = factors.shape[-1] - factors.shape[-2]
    return torch.nn.functional.pad(factors, (0, 0, 0, max(short, 0)))


def _random_rows(layout: _Layout) -> torch.Tensor:
    """Rows of motions that leave nothing out."""
    count = max(_SAMPLES, 2 * len(layout.start) // max(layout.model.nv, 1))
    states = random_states(layout.model, count, layout.start)
    return layout.rows(states["q"], states["v"], states["a"]).flatten(0, 1)


def _solve(factors: torch.Tensor) -> torch.Tensor:
    """The change of least length, in scaled numbers, that fits best."""
    triangle = torch.linalg.qr(factors.flatten(0, 1), mode="r").R
    root, right = triangle[:-1, :-1], triangle[:-1, -1]
    size, basis, _ = directions(root)
    scaled = root / size
    return basis @ (basis.mT @ (scaled.mT @ right) / (scaled @ basis).square().sum(0)) / size


def _residual(factors: torch.Tensor, change: torch.Tensor, count: int) -> torch.Tensor:
    """The standard deviation of the residuals of each joint, (nv,)."""
    left = factors[..., :-1] @ change - factors[..., -1]
    _, determined, _ = directions(torch.linalg.qr(factors[..., :-1].flatten(0, 1), mode="r").R)
    share = determined.shape[1] / factors.shape[0]
    return (left.square().sum(-1) / max(count - share, 1.0)).sqrt()


def _consistent(layout: _Layout, weighted: torch.Tensor, iterations: int) -> dict[str, torch.Tensor]:
    """The physical parameters that fit best, from those of the model."""
    model = layout.model
    triangle = torch.linalg.qr(weighted.flatten(0, 1), mode="r").R
    root, right = triangle[:-1, :-1], triangle[:-1, -1]
    learned = Parameters(model, torch.float64, check=False)
    if layout.bodies:
        learned.learn("inertial", LogCholesky, of=[model.bodies[body].name for body in layout.bodies])
    for name in layout.others:
        learned.learn(name, lambda value: Positive(value.clamp(min=1e-3)))

    def residuals(outputs: tuple[dict[str, Any], torch.Tensor]) -> torch.Tensor:
        params, moved = outputs
        return torch.cat([root @ (layout.vector(params) - layout.start) - right, moved])

    gauss_newton(residuals, _Regularized(learned), iterations=iterations, tolerance=1e-5, mode="vectorized")
    with torch.no_grad():
        return learned()


class _Regularized(torch.nn.Module):
    """Parameters, and how far their raw numbers, most of them logarithms, are from where they began."""

    def __init__(self, learned: Parameters):
        super().__init__()
        self.learned = learned
        self.begin = [value.detach().clone() for value in learned.parameters()]

    def forward(self) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        moved = [(x - y).flatten() for x, y in zip(self.learned.parameters(), self.begin, strict=True)]
        return self.learned(), torch.cat(moved)


def _report(
    layout: _Layout, samples: Recording, factors: torch.Tensor, change: torch.Tensor, noise: torch.Tensor
) -> Report:
    q, v, a, tau = samples.need("least_squares", "q", "v", "a", "tau")
    left = []
    for begin in range(0, len(samples), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        rows = layout.rows(q[part], v[part], a[part])
        left.append(rnea(layout.model, q[part], v[part], a[part], passive=True) + rows @ change - tau[part])
    weighted = factors[..., :-1] / noise[:, None, None]
    return summary(
        torch.cat(left) / noise,
        torch.linalg.qr(weighted.flatten(0, 1), mode="r").R,
        weighted.mT @ weighted,
        layout.names,
        layout.units,
        layout.start + change,
        torch.eye(len(change), dtype=change.dtype),
        columns(layout.model, "tau"),
        measured=tau,
        time=samples.time,
        scale=noise,
    )


def _base(
    layout: _Layout, structure: torch.Tensor, factors: torch.Tensor, change: torch.Tensor, noise: torch.Tensor
) -> BaseParameters:
    """Parameters whose columns are independent of those before them, with what depends on them added."""
    lengths = structure.norm(dim=0)
    independent: list[int] = []
    basis = structure.new_zeros(structure.shape[0], 0)
    for k in range(structure.shape[1]):
        remainder = structure[:, k]
        for _ in range(2):
            remainder = remainder - basis @ (basis.mT @ remainder)
        if float(remainder.norm()) > 1e-9 * float(lengths[k]) and float(lengths[k]) > 1e-12 * float(lengths.max()):
            independent.append(k)
            basis = torch.cat([basis, (remainder / remainder.norm())[:, None]], -1)
    matrix = torch.linalg.lstsq(structure[:, independent], structure).solution
    matrix = torch.where(matrix.abs() < 1e-8, 0.0, matrix)
    expressions = []
    for row, k in zip(matrix, independent, strict=True):
        others = [j for j in (row != 0.0).nonzero().flatten().tolist() if j != k]
        expressions.append(" ".join([layout.names[k], *[f"{float(row[j]):+.4g} {layout.names[j]}" for j in others]]))
    weighted = (factors[..., :-1] / noise[:, None, None]).flatten(0, 1)
    size, directions_kept, _ = directions(torch.linalg.qr(weighted, mode="r").R)
    inverse = (directions_kept / (weighted / size @ directions_kept).square().sum(0)) @ directions_kept.mT
    scaled = matrix / size
    error = torch.einsum("na,ab,nb->n", scaled, inverse, scaled).clamp(min=0.0).sqrt()
    return BaseParameters(expressions, matrix, matrix @ (layout.start + change), error)
