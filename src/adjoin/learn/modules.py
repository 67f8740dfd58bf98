"""Parameter modules: raw numbers that an optimizer may move freely, and the physical value that they stand for.

Each is constructed from the value to start with, of any leading shape: one for all, one a body, one an environment and
body. The raw numbers are unbounded; every one of them stands for a valid value.

Inertias are the six numbers xx xy xz yy yz zz about the center of mass; 3x3 matrices are taken as well.

Sources: positive definite, triangular and covariance parametrizations after Sutanto et al. 2020, Encoding physical
constraints in differentiable Newton-Euler algorithm; the log-Cholesky parametrization after Rucker and Wensing 2022,
Smooth parameterization of rigid-body inertia; the second moments of mass that make an inertia physical after Wensing,
Kim and Slotine 2018, Linear matrix inequalities for physically-consistent inertial parameter identification.
"""

import abc
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from adjoin.errors import InputError
from adjoin.model.flaws import ROUNDING
from adjoin.spatial.inertia import Symmetric3, from_second_moment, rotate
from adjoin.spatial.rotation import (
    Quaternion,
    from_quaternion,
    quaternion_along,
    quaternion_exp,
    quaternion_multiply,
    quaternion_normalize,
)
from adjoin.spatial.vector import matrix3, vector3
from adjoin.trace import Function, exp, sin, sqrt, tanh

Value = torch.Tensor | float | Sequence[Any]

_ROWS = [[0, 1, 2], [1, 3, 4], [2, 4, 5]]
"""Where the entries of a symmetric matrix are among its six numbers."""


class Inertial(NamedTuple):
    """Mass, center of mass and inertia of bodies.

    Attributes:
        mass: (...), kg.
        com: (..., 3), m.
        inertia: (..., 6), xx xy xz yy yz zz about the center of mass, kg m^2.
    """

    mass: torch.Tensor
    com: torch.Tensor
    inertia: torch.Tensor


def symmetric_numbers(matrix: torch.Tensor) -> torch.Tensor:
    """Return the six numbers xx xy xz yy yz zz of symmetric matrices, (..., 3, 3) to (..., 6)."""
    return matrix.flatten(-2)[..., [0, 1, 2, 4, 5, 8]]


def symmetric_matrix(numbers: torch.Tensor) -> torch.Tensor:
    """Return the matrices of six numbers xx xy xz yy yz zz, (..., 6) to (..., 3, 3)."""
    return numbers[..., _ROWS]


class ParameterModule(torch.nn.Module, abc.ABC):
    """A module whose value is a function of tensors of its own, written over scalars so that kernels can take it in.

    Attributes:
        SHAPES: the tensors by attribute, each with its shape for one value. They may have further dimensions in front.
    """

    SHAPES: ClassVar[dict[str, tuple[int, ...]]] = {"raw": ()}

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors that the value is computed from."""
        return tuple(getattr(self, name) for name in self.SHAPES)

    @abc.abstractmethod
    def of(self, *inputs: Any) -> Any:
        """Compute the value over arrays of scalars, one array for each of the inputs."""

    def forward(self) -> Any:
        """Return the value."""
        return _kernel(type(self))(*self.inputs())


@functools.cache
def _kernel(module: type[ParameterModule]) -> Function:
    """The value of all modules of a class, as one fused kernel."""
    blank = module.__new__(module)

    def value(**inputs: Any) -> Any:
        return module.of(blank, *inputs.values())

    value.__name__ = module.__name__
    return Function(value, module.SHAPES)


class Unconstrained(ParameterModule):
    """Any value.

    Args:
        value: to start with, of any shape.
    """

    def __init__(self, value: Value):
        super().__init__()
        self.raw = torch.nn.Parameter(_tensor("Unconstrained", value))

    def of(self, raw: Any) -> Any:
        """See `ParameterModule`."""
        return raw

    def forward(self) -> torch.Tensor:
        """Return the value."""
        return self.raw


class Positive(ParameterModule):
    """Values above a floor, by their logarithm: a step of 0.01 is a change by one per cent.

    Args:
        value: to start with, of any shape, above the floor.
        floor: what the value stays above, 0 or more.
    """

    def __init__(self, value: Value, floor: float = 0.0):
        super().__init__()
        start = _tensor("Positive", value)
        if not floor >= 0.0:
            raise InputError(f"Positive: floor must not be negative, got {floor:g}")
        if not bool((start > floor).all()):
            raise InputError(f"Positive: the value to start with must be above {floor:g}, got {float(start.min()):g}")
        self.floor = floor
        self.raw = torch.nn.Parameter((start - floor).log())

    def of(self, raw: Any) -> Any:
        """See `ParameterModule`."""
        return exp(raw) + self.floor

    def forward(self) -> torch.Tensor:
        """Return the value."""
        return self.raw.exp() + self.floor if self.floor else self.raw.exp()


class Bounded(ParameterModule):
    """Values between two limits, by a sigmoid.

    Args:
        value: to start with, of any shape, between the limits.
        lower: limits, one or of the value's shape.
        upper: limits, one or of the value's shape.
    """

    SHAPES: ClassVar = {"raw": (), "lower": (), "upper": ()}
    lower: torch.Tensor
    upper: torch.Tensor

    def __init__(self, value: Value, lower: Value, upper: Value):
        super().__init__()
        start = _tensor("Bounded", value)
        bounds = [_tensor("Bounded", bound).to(start).expand_as(start).contiguous() for bound in (lower, upper)]
        inside = (start > bounds[0]) & (start < bounds[1])
        if not bool(inside.all()):
            outside, low, high = (tensor[~inside][0].item() for tensor in (start, *bounds))
            raise InputError(
                f"Bounded: the value to start with must lie between its limits, got {outside:g}, not within {low:g} to "
                f"{high:g}"
            )
        self.register_buffer("lower", bounds[0])
        self.register_buffer("upper", bounds[1])
        self.raw = torch.nn.Parameter(torch.logit((start - self.lower) / (self.upper - self.lower)))

    def of(self, raw: Any, lower: Any, upper: Any) -> Any:
        """See `ParameterModule`."""
        return lower + (upper - lower) * _sigmoid(raw)

    def forward(self) -> torch.Tensor:
        """Return the value."""
        return torch.lerp(self.lower, self.upper, self.raw.sigmoid())


class Symmetric(Unconstrained):
    """Any symmetric inertia, physical or not.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    SHAPES: ClassVar = {"raw": (6,)}

    def __init__(self, value: Value):
        super().__init__(symmetric_numbers(_inertias("Symmetric", value)))


class PositiveDefinite(ParameterModule):
    """Positive definite inertias, by the logarithm of their Cholesky factor; the triangle inequality may not hold.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    SHAPES: ClassVar = {"raw": (6,)}

    def __init__(self, value: Value):
        super().__init__()
        self.raw = torch.nn.Parameter(_factor(_lifted("PositiveDefinite", _inertias("PositiveDefinite", value))))

    def of(self, raw: Any) -> Any:
        """See `ParameterModule`."""
        return _array(_square(raw))


class Covariance(ParameterModule):
    """Physical inertias, by the covariance of mass: positive definite, and the triangle inequality holds.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    SHAPES: ClassVar = {"raw": (6,)}

    def __init__(self, value: Value):
        super().__init__()
        second = _second_moments(_inertias("Covariance", value))
        self.raw = torch.nn.Parameter(_factor(_lifted("Covariance", second)))

    def of(self, raw: Any) -> Any:
        """See `ParameterModule`."""
        return _array(from_second_moment(_square(raw)))


class Triangular(ParameterModule):
    """Physical inertias, by a rotation and principal moments that are the sides of a triangle.

    The raw numbers are a rotation vector, the logarithms of two sides, and the logit of the angle between them over pi.

    Args:
        value: to start with, (..., 6) or (..., 3, 3).
    """

    SHAPES: ClassVar = {"raw": (6,), "start": (4,)}
    start: torch.Tensor

    def __init__(self, value: Value):
        super().__init__()
        second = _lifted("Triangular", _second_moments(_inertias("Triangular", value)))
        spread, axes = torch.linalg.eigh(second)
        axes = axes * torch.linalg.det(axes)[..., None, None].sign()
        x, y, z = (spread.sum(-1, keepdim=True) - spread).unbind(-1)
        # z² = (x - y)² + 4 x y sin²(angle / 2), the law of cosines without cancellation.
        half = ((z - x + y) * (z + x - y) / (4.0 * x * y)).sqrt().clamp(max=1.0).asin()
        raw = torch.stack([x.log(), y.log(), torch.logit(half * (2.0 / torch.pi))], -1)
        rows = matrix3([row.unbind(-1) for row in axes.unbind(-2)])
        self.register_buffer("start", torch.stack(quaternion_normalize(quaternion_along(rows)), -1))
        self.raw = torch.nn.Parameter(torch.cat([torch.zeros_like(raw), raw], -1))

    def of(self, raw: Any, start: Any) -> Any:
        """See `ParameterModule`."""
        axes = from_quaternion(_turned(start, raw[:3]))
        x, y, half = exp(raw[3]), exp(raw[4]), sin(0.5 * torch.pi * _sigmoid(raw[5]))
        z = sqrt((x - y) * (x - y) + 4.0 * x * y * half * half)
        return _array(rotate(axes, (x, 0.0, 0.0, y, 0.0, z)))


class LogCholesky(ParameterModule):
    """Mass, center of mass and inertia together, always physically consistent, for the group "inertial".

    The raw numbers (..., 10) are the logarithm of the mass, those of the diagonal of the Cholesky factor of the
    covariance of mass about its center, the three entries below it, and the center of mass: the log-Cholesky
    parametrization of the pseudo-inertia. Unlike with `Covariance`, a change of mass scales the inertia with it.

    Args:
        mass: to start with, (...), kg.
        com: to start with, (..., 3), m.
        inertia: to start with, (..., 6) or (..., 3, 3), about the center of mass, kg m^2.
    """

    SHAPES: ClassVar = {"raw": (10,)}

    def __init__(self, mass: Value, com: Value, inertia: Value):
        super().__init__()
        masses, centers = _tensor("LogCholesky", mass), _tensor("LogCholesky", com)
        if not bool((masses > 0.0).all()):
            raise InputError(f"LogCholesky: the mass to start with must be positive, got {float(masses.min()):g}")
        if centers.shape != (*masses.shape, 3):
            raise InputError(
                f"LogCholesky: com must be {(*masses.shape, 3)}, as there are masses of shape {tuple(masses.shape)}; "
                f"got {tuple(centers.shape)}"
            )
        second = _second_moments(_inertias("LogCholesky", inertia)) / masses[..., None, None]
        factor = _factor(_lifted("LogCholesky", second))
        self.raw = torch.nn.Parameter(torch.cat([masses.log()[..., None], factor, centers], -1))

    def of(self, raw: Any) -> Inertial:
        """See `ParameterModule`."""
        mass = exp(raw[0])
        return Inertial(mass, raw[7:], mass * _array(from_second_moment(_square(raw[1:7]))))


class Rotation(ParameterModule):
    """Rotations, by a rotation vector from where they start: unit quaternions [w x y z], smooth within a full turn.

    Args:
        value: to start with, quaternions (..., 4).
    """

    SHAPES: ClassVar = {"raw": (3,), "start": (4,)}
    start: torch.Tensor

    def __init__(self, value: Value):
        super().__init__()
        start = _tensor("Rotation", value)
        if start.shape[-1:] != (4,) or not bool((start.norm(dim=-1) > 0.0).all()):
            raise InputError(f"Rotation: the value to start with must be quaternions (..., 4), got {_spell(start)}")
        self.register_buffer("start", start / start.norm(dim=-1, keepdim=True))
        self.raw = torch.nn.Parameter(torch.zeros_like(start[..., 1:]))

    def of(self, raw: Any, start: Any) -> Any:
        """See `ParameterModule`."""
        return _array(_turned(start, raw))


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
    """The raw numbers of positive definite matrices: the Cholesky factor, with the logarithm of its diagonal first."""
    factor = torch.linalg.cholesky(matrix.double()).to(matrix)
    below = torch.stack([factor[..., 1, 0], factor[..., 2, 0], factor[..., 2, 1]], -1)
    return torch.cat([factor.diagonal(dim1=-2, dim2=-1).log(), below], -1)


def _square(raw: Any) -> Symmetric3:
    """xx xy xz yy yz zz of the matrix with these raw numbers."""
    a, b, c = (exp(x) for x in raw[:3])
    d, e, f = raw[3:]
    return a * a, a * d, a * e, b * b + d * d, b * f + d * e, c * c + e * e + f * f


def _turned(start: Any, turn: Any) -> Quaternion:
    """A quaternion turned by a rotation vector; of unit length in the precision it is computed in."""
    return quaternion_normalize(quaternion_multiply(tuple(start), quaternion_exp(vector3(turn))))


def _sigmoid(x: Any) -> Any:
    return 0.5 + 0.5 * tanh(0.5 * x)


def _array(scalars: Sequence[Any]) -> Any:
    return np.array(scalars, dtype=object)


def _spell(tensor: torch.Tensor) -> str:
    return str(tensor.tolist()) if tensor.numel() <= 9 else f"a tensor {tuple(tensor.shape)}"
