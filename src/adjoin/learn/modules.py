"""Parameter modules: what an optimiser may move freely, and the physical value that it stands for.

Each is constructed from the value it shall start with, of any leading shape: one for all, one a body, one an
environment and body. The raw numbers are unbounded; every one of them is a valid value.

Inertias are the six numbers xx xy xz yy yz zz about the centre of mass; 3x3 matrices are taken as well.

Sources: positive definite, triangular and covariance parametrisations after Sutanto et al. 2020, Encoding physical
constraints in differentiable Newton-Euler algorithm; the log-Cholesky parametrisation after Rucker and Wensing 2022,
Smooth parameterization of rigid-body inertia; the second moments of mass that make an inertia physical after Wensing,
Kim and Slotine 2018, Linear matrix inequalities for physically-consistent inertial parameter identification.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from adjoin.errors import InputError
from adjoin.model.physical import ROUNDING
from adjoin.spatial.rotation import Quaternion, from_quaternion, quaternion_exp, quaternion_multiply
from adjoin.spatial.vector import vector3

Value = torch.Tensor | float | Sequence[Any]

_ROWS = [[0, 1, 2], [1, 3, 4], [2, 4, 5]]
"""Where the entries of a symmetric matrix are among its six numbers."""


class Inertial(NamedTuple):
    """Mass, centre of mass and inertia of bodies.

    Attributes:
        mass: (...), kg.
        com: (..., 3), m.
        inertia: (..., 6), xx xy xz yy yz zz about the centre of mass, kg m^2.
    """

    mass: torch.Tensor
    com: torch.Tensor
    inertia: torch.Tensor


def symmetric_numbers(matrix: torch.Tensor) -> torch.Tensor:
    """The six numbers xx xy xz yy yz zz of symmetric matrices, (..., 3, 3) to (..., 6)."""
    return matrix.flatten(-2)[..., [0, 1, 2, 4, 5, 8]]


def symmetric_matrix(numbers: torch.Tensor) -> torch.Tensor:
    """The matrices of six numbers xx xy xz yy yz zz, (..., 6) to (..., 3, 3)."""
    return numbers[..., _ROWS]


class Unconstrained(torch.nn.Module):
    """Any value.

    Args:
        value: to start with, of any shape.
    """

    def __init__(self, value: Value):
        super().__init__()
        self.raw = torch.nn.Parameter(_tensor(type(self).__name__, value))

    def forward(self) -> torch.Tensor:
        """The value."""
        return self.raw


class Positive(torch.nn.Module):
    """Values above a floor, by their logarithm: a step of 0.01 is a change by one per cent.

    Args:
        value: to start with, of any shape, above the floor.
        floor: what the value stays above.
    """

    def __init__(self, value: Value, floor: float = 0.0):
        super().__init__()
        given = _tensor("Positive", value)
        if not bool((given > floor).all()):
            raise InputError(f"Positive: the value to start with must be above {floor:g}, got {_least(given):g}")
        self.floor = floor
        self.raw = torch.nn.Parameter((given - floor).log())

    def forward(self) -> torch.Tensor:
        """The value."""
        return self.raw.exp() + self.floor if self.floor else self.raw.exp()


class Bounded(torch.nn.Module):
    """Values between two limits, by a sigmoid.

    Args:
        value: to start with, of any shape, between the limits.
        lower: limits, one or of the value's shape.
        upper: limits, one or of the value's shape.
    """

    lower: torch.Tensor
    upper: torch.Tensor

    def __init__(self, value: Value, lower: Value, upper: Value):
        super().__init__()
        given = _tensor("Bounded", value)
        bounds = [_tensor("Bounded", bound).to(given).expand_as(given).contiguous() for bound in (lower, upper)]
        inside = (given > bounds[0]) & (given < bounds[1])
        if not bool(inside.all()):
            found, low, high = (tensor[~inside][0].item() for tensor in (given, *bounds))
            raise InputError(
                f"Bounded: the value to start with must lie between its limits, got {found:g}, not within {low:g} to "
                f"{high:g}"
            )
        self.register_buffer("lower", bounds[0])
        self.register_buffer("upper", bounds[1])
        self.raw = torch.nn.Parameter(torch.logit((given - self.lower) / (self.upper - self.lower)))

    def forward(self) -> torch.Tensor:
        """The value."""
        return torch.lerp(self.lower, self.upper, self.raw.sigmoid())


class Symmetric(torch.nn.Module):
    """Any symmetric inertia, physical or not.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    def __init__(self, value: Value):
        super().__init__()
        self.raw = torch.nn.Parameter(symmetric_numbers(_inertias("Symmetric", value)))

    def forward(self) -> torch.Tensor:
        """The inertias, (..., 6)."""
        return self.raw


class PositiveDefinite(torch.nn.Module):
    """Positive definite inertias, by the logarithm of their Cholesky factor; the triangle inequality may not hold.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    def __init__(self, value: Value):
        super().__init__()
        self.raw = torch.nn.Parameter(_factor(_lifted("PositiveDefinite", _inertias("PositiveDefinite", value))))

    def forward(self) -> torch.Tensor:
        """The inertias, (..., 6)."""
        return torch.stack(_square(self.raw), -1)


class Covariance(torch.nn.Module):
    """Physical inertias, by the covariance of mass: positive definite, and the triangle inequality holds.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    def __init__(self, value: Value):
        super().__init__()
        inertia = _inertias("Covariance", value)
        self.raw = torch.nn.Parameter(_factor(_lifted("Covariance", _second_moments(inertia))))

    def forward(self) -> torch.Tensor:
        """The inertias, (..., 6)."""
        return torch.stack(_about(_square(self.raw)), -1)


class Triangular(torch.nn.Module):
    """Physical inertias, by a rotation and principal moments that are the sides of a triangle.

    The raw numbers are a rotation vector, the logarithms of two sides, and the logit of the angle between them over pi.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    axes: torch.Tensor

    def __init__(self, value: Value):
        super().__init__()
        inertia = _inertias("Triangular", value)
        second = _lifted("Triangular", _second_moments(inertia))
        spread, axes = torch.linalg.eigh(second)
        axes = axes * torch.linalg.det(axes)[..., None, None].sign()
        x, y, z = (spread.sum(-1, keepdim=True) - spread).unbind(-1)
        # z² = (x - y)² + 4 x y sin²(angle / 2), the law of cosines without cancellation.
        half = ((z - x + y) * (z + x - y) / (4.0 * x * y)).sqrt().clamp(max=1.0).asin()
        angle = torch.logit(half * (2.0 / torch.pi))
        raw = torch.stack([x.log(), y.log(), angle], -1)
        self.register_buffer("axes", axes)
        self.raw = torch.nn.Parameter(torch.cat([torch.zeros_like(raw), raw], -1))

    def forward(self) -> torch.Tensor:
        """The inertias, (..., 6)."""
        turn = _rotation(quaternion_exp(vector3(self.raw[..., :3].unbind(-1))))
        x, y, angle = self.raw[..., 3:].unbind(-1)
        x, y, half = x.exp(), y.exp(), (0.5 * torch.pi * angle.sigmoid()).sin()
        z = ((x - y).square() + 4.0 * x * y * half.square()).sqrt()
        axes = self.axes @ turn
        return symmetric_numbers((axes * torch.stack([x, y, z], -1)[..., None, :]) @ axes.mT)


class LogCholesky(torch.nn.Module):
    """Mass, centre of mass and inertia together, always physically consistent, for the group "inertial".

    The raw numbers (..., 10) are the logarithm of the mass, those of the diagonal of the Cholesky factor of the
    covariance of mass about its centre, the three entries below it, and the centre of mass: the log-Cholesky
    parametrisation of the pseudo-inertia. Unlike `Covariance`, a change of mass scales the inertia with it.

    Args:
        mass: to start with, (...), kg.
        com: to start with, (..., 3), m.
        inertia: to start with, (..., 6) or (..., 3, 3), about the centre of mass, kg m^2.
    """

    def __init__(self, mass: Value, com: Value, inertia: Value):
        super().__init__()
        masses, centres = _tensor("LogCholesky", mass), _tensor("LogCholesky", com)
        if not bool((masses > 0.0).all()):
            raise InputError(f"LogCholesky: the mass to start with must be positive, got {_least(masses):g}")
        if centres.shape != (*masses.shape, 3):
            raise InputError(
                f"LogCholesky: com must be {(*masses.shape, 3)}, as there are masses of shape {tuple(masses.shape)}; "
                f"got {tuple(centres.shape)}"
            )
        second = _second_moments(_inertias("LogCholesky", inertia)) / masses[..., None, None]
        factor = _factor(_lifted("LogCholesky", second))
        self.raw = torch.nn.Parameter(torch.cat([masses.log()[..., None], factor, centres], -1))

    def forward(self) -> Inertial:
        """Mass, centre of mass and inertia."""
        mass = self.raw[..., 0].exp()
        inertia = mass[..., None] * torch.stack(_about(_square(self.raw[..., 1:7])), -1)
        return Inertial(mass, self.raw[..., 7:], inertia)


class Rotation(torch.nn.Module):
    """Rotations, by a rotation vector from where they start: unit quaternions [w x y z], smooth within a full turn.

    Args:
        value: to start with, quaternions (..., 4).
    """

    start: torch.Tensor

    def __init__(self, value: Value):
        super().__init__()
        given = _tensor("Rotation", value)
        if given.shape[-1:] != (4,) or not bool((given.norm(dim=-1) > 0.0).all()):
            raise InputError(f"Rotation: the value to start with must be quaternions (..., 4), got {_spell(given)}")
        self.register_buffer("start", given / given.norm(dim=-1, keepdim=True))
        self.raw = torch.nn.Parameter(torch.zeros_like(given[..., 1:]))

    def forward(self) -> torch.Tensor:
        """Unit quaternions, (..., 4)."""
        turn = quaternion_exp(vector3(self.raw.unbind(-1)))
        return torch.stack(quaternion_multiply(_quaternion(self.start), turn), -1)


def _tensor(label: str, value: Value) -> torch.Tensor:
    """A copy of the value as floating-point numbers."""
    tensor = torch.as_tensor(value).detach().clone()
    tensor = tensor if tensor.dtype.is_floating_point else tensor.to(torch.get_default_dtype())
    if not bool(tensor.isfinite().all()):
        raise InputError(f"{label}: the value to start with must be finite, got {_spell(tensor)}")
    return tensor


def _inertias(label: str, value: Value) -> torch.Tensor:
    """The value as symmetric matrices."""
    tensor = _tensor(label, value)
    if tensor.shape[-1:] == (6,):
        return symmetric_matrix(tensor)
    if tensor.shape[-2:] != (3, 3):
        raise InputError(f"{label}: an inertia is (..., 6), xx xy xz yy yz zz, or (..., 3, 3); got {_spell(tensor)}")
    if not torch.allclose(tensor, tensor.mT, atol=1e-6 * float(tensor.abs().max())):
        raise InputError(f"{label}: the inertia to start with is not symmetric, got {_spell(tensor)}")
    return tensor


def _second_moments(inertia: torch.Tensor) -> torch.Tensor:
    """Integral of r rᵀ dm: half the trace less the inertia; it is positive if and only if the inertia is physical."""
    half = 0.5 * inertia.diagonal(dim1=-2, dim2=-1).sum(-1)
    return half[..., None, None] * torch.eye(3).to(inertia) - inertia


def _lifted(label: str, matrix: torch.Tensor) -> torch.Tensor:
    """The matrices, singular ones lifted a little, as those of plates and rods are."""
    spread, axes = torch.linalg.eigh(matrix.double())
    greatest = spread[..., 2:]
    if not bool(((spread[..., :1] >= -ROUNDING * greatest) & (greatest > 0.0)).all()):
        rule = "is not positive definite" if label == "PositiveDefinite" else "violates the triangle inequality"
        raise InputError(f"{label}: the inertia to start with {rule}, so no raw numbers stand for it; use Symmetric")
    low = spread[..., 0] < ROUNDING * greatest[..., 0]
    lifted = (axes * spread.maximum(ROUNDING * greatest)[..., None, :]) @ axes.mT
    return torch.where(low[..., None, None], lifted, matrix.double()).to(matrix)


def _factor(matrix: torch.Tensor) -> torch.Tensor:
    """The raw numbers of positive definite matrices: logarithms of the Cholesky factor's diagonal, and its rest."""
    factor = torch.linalg.cholesky(matrix.double()).to(matrix)
    rest = torch.stack([factor[..., 1, 0], factor[..., 2, 0], factor[..., 2, 1]], -1)
    return torch.cat([factor.diagonal(dim1=-2, dim2=-1).log(), rest], -1)


def _square(raw: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """xx xy xz yy yz zz of the matrix with these raw numbers."""
    a, b, c = raw[..., :3].exp().unbind(-1)
    d, e, f = raw[..., 3:].unbind(-1)
    return a * a, a * d, a * e, b * b + d * d, b * f + d * e, c * c + e * e + f * f


def _about(second: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The inertia of second moments of mass."""
    xx, xy, xz, yy, yz, zz = second
    return yy + zz, -xy, -xz, xx + zz, -yz, xx + yy


def _rotation(q: Quaternion) -> torch.Tensor:
    """Matrices (..., 3, 3) of unit quaternions."""
    return torch.stack([torch.stack(list(row), -1) for row in from_quaternion(q)], -2)


def _quaternion(tensor: torch.Tensor) -> Quaternion:
    w, x, y, z = tensor.unbind(-1)
    return w, x, y, z


def _least(tensor: torch.Tensor) -> float:
    return float(tensor.min())


def _spell(tensor: torch.Tensor) -> str:
    return str(tensor.tolist()) if tensor.numel() <= 9 else f"a tensor {tuple(tensor.shape)}"
