"""The parametrizations of differentiable-robot-model under their own names, arguments and state, without their defects.

Import them from here in the place of theirs. New programs are better served by `adjoin.learn.modules`.
Here too the value is a function of the raw numbers that kernels take in.
"""

import math
from typing import Any, ClassVar

import numpy as np
import torch

from adjoin.errors import InputError
from adjoin.learn.modules import ParameterModule
from adjoin.spatial.inertia import from_second_moment, rotate, to_matrix
from adjoin.spatial.rotation import from_quaternion, quaternion_exp, quaternion_log, to_quaternion
from adjoin.spatial.vector import matrix3, vector3
from adjoin.trace import cos, sqrt, tanh

_DIAGONAL_FIRST = ([0, 1, 2, 1, 2, 2], [0, 1, 2, 0, 0, 1])
"""Rows and columns of a triangle's entries as `l` has them."""


class SymmMatNet(torch.nn.Module):
    """Symmetric matrices from their entries: those of the diagonal, then those below it, row by row.

    Args:
        qdim: rows of a matrix.
    """

    def __init__(self, qdim: int):
        super().__init__()
        self._qdim = qdim

    def forward(self, l: torch.Tensor) -> torch.Tensor:  # noqa: E741
        """Return matrices, (batch, qdim, qdim), from (batch, qdim (qdim + 1) / 2)."""
        lower = _triangle(l, self._qdim)
        return lower + lower.tril(-1).transpose(-2, -1)


class _CholeskyFactor:
    """How matrices L Lᵀ come from the entries of L, the diagonal first."""

    _qdim = 3
    _bias = 0.0

    def get_raw_l(self, raw_l_input: torch.Tensor) -> torch.Tensor:
        """Return the entries of L without the bias."""
        return raw_l_input

    def get_l(self, raw_l_input: torch.Tensor) -> torch.Tensor:
        """Return the entries of L."""
        raw = self.get_raw_l(raw_l_input)
        return torch.cat([raw[:, : self._qdim] + self._bias, raw[:, self._qdim :]], -1)

    def get_L(self, l: torch.Tensor) -> torch.Tensor:  # noqa: E741
        """Return L, (batch, qdim, qdim), from its entries."""
        return _triangle(l, self._qdim)

    def get_symm_pos_semi_def_matrix_and_l(self, raw_l_input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return L Lᵀ, (batch, qdim, qdim), and the entries of L."""
        entries = self.get_l(raw_l_input)
        lower = self.get_L(entries)
        return lower @ lower.transpose(-2, -1), entries


class CholeskyNet(_CholeskyFactor, torch.nn.Module):
    """Positive matrices L Lᵀ from the entries of L: those of the diagonal, to which a bias is added, then the others.

    Args:
        qdim: rows of a matrix.
        bias: added to the diagonal of L.
    """

    def __init__(self, qdim: int, bias: float):
        super().__init__()
        self._qdim, self._bias = qdim, bias


def _triangle(entries: torch.Tensor, rows: int) -> torch.Tensor:
    """Return lower triangular matrices from the entries of the diagonal, then those below it, row by row."""
    matrix = torch.diag_embed(entries[:, :rows])
    row, column = torch.tril_indices(rows, rows, -1)
    matrix[:, row, column] = entries[:, rows:]
    return matrix


class _Unconstrained(ParameterModule):
    """Any value."""

    param: torch.nn.Parameter
    SHAPES: ClassVar = {"param": ()}

    def of(self, param: Any) -> Any:
        """See `ParameterModule`."""
        return param

    def forward(self) -> torch.Tensor:
        """Return the value."""
        return self.param


class UnconstrainedScalar(_Unconstrained):
    """Any number.

    Args:
        init_val: to start with, a tensor; by default a random one from 0 to 1.
    """

    def __init__(self, init_val: torch.Tensor | None = None):
        super().__init__()
        self.param = torch.nn.Parameter(torch.rand(1) if init_val is None else init_val)


class PositiveScalar(ParameterModule):
    """A number of at least `min_val`: the square of the raw one more.

    Args:
        min_val: the least value.
        init_param_std: standard deviation of the raw number to start with.
        init_param: the value to start with, a tensor, in place of a random one.
    """

    SHAPES: ClassVar = {"l": ()}

    def __init__(self, min_val: float = 0.0, init_param_std: float = 1.0, init_param: torch.Tensor | None = None):
        super().__init__()
        self._min_val = min_val
        if init_param is None:
            raw = torch.empty(1, 1).normal_(mean=0.0, std=init_param_std)
        else:
            if not bool((init_param >= min_val).all()):
                raise InputError(f"PositiveScalar: init_param is {init_param.tolist()}; min_val is {min_val}")
            raw = torch.sqrt(init_param.detach() - min_val)
        self.l = torch.nn.Parameter(raw.squeeze())

    def of(self, l: Any) -> Any:  # noqa: E741 their name
        """See `ParameterModule`."""
        return l * l + self._min_val

    def forward(self) -> torch.Tensor:
        """Return the value."""
        return self.l * self.l + self._min_val


class UnconstrainedTensor(_Unconstrained):
    """Any matrix.

    Args:
        dim1: rows.
        dim2: columns.
        init_tensor: to start with; by default random.
        init_std: standard deviation of the random one.
    """

    def __init__(self, dim1: int, dim2: int, init_tensor: torch.Tensor | None = None, init_std: float = 0.1):
        super().__init__()
        raw = torch.empty(dim1, dim2).normal_(mean=0.0, std=init_std) if init_tensor is None else init_tensor
        if tuple(raw.shape) != (dim1, dim2):
            raise InputError(f"UnconstrainedTensor: init_tensor must be {(dim1, dim2)}, got {tuple(raw.shape)}")
        self.param = torch.nn.Parameter(raw)


class Symm3DInertiaMatrixNet(ParameterModule):
    """Any symmetric inertia matrix, by the six entries of a triangle, the diagonal first.

    Args:
        init_param_std: standard deviation of the raw numbers to start with.
        init_param: the matrix to start with, (3, 3) or (1, 3, 3).
        is_initializing_params: whether to start with `init_param`.
    """

    SHAPES: ClassVar = {"l": (6,)}

    def __init__(
        self,
        init_param_std: float = 0.01,
        init_param: torch.Tensor | None = None,
        is_initializing_params: bool = True,
    ):
        super().__init__()
        matrix = _initial(init_param, is_initializing_params)
        raw = torch.empty(6).normal_(std=init_param_std) if matrix is None else self._triangle(matrix)[_DIAGONAL_FIRST]
        self.l = torch.nn.Parameter(raw)

    def _triangle(self, matrix: torch.Tensor) -> torch.Tensor:
        return matrix

    def of(self, l: Any) -> Any:  # noqa: E741
        """See `ParameterModule`."""
        return np.array([[l[0], l[3], l[4]], [l[3], l[1], l[5]], [l[4], l[5], l[2]]], dtype=object)


class SymmPosDef3DInertiaMatrixNet(_CholeskyFactor, Symm3DInertiaMatrixNet):
    """A positive definite inertia matrix, by its Cholesky factor; see `Symm3DInertiaMatrixNet`.

    Args:
        bias: what is added to the diagonal.
    """

    bias: torch.Tensor
    SHAPES: ClassVar = {"l": (6,), "bias": ()}

    def __init__(
        self,
        bias: float = 1e-7,
        init_param_std: float = 0.01,
        init_param: torch.Tensor | None = None,
        is_initializing_params: bool = True,
    ):
        self._diagonal = bias
        super().__init__(init_param_std, init_param, is_initializing_params)
        self.register_buffer("bias", torch.tensor(bias), persistent=False)

    def _triangle(self, matrix: torch.Tensor) -> torch.Tensor:
        return _cholesky(type(self).__name__, matrix, self._diagonal)

    def of(self, l: Any, bias: Any) -> Any:  # noqa: E741
        """See `ParameterModule`."""
        return np.array(to_matrix(_square(l, bias)), dtype=object)


class CovParameterized3DInertiaMatrixNet(SymmPosDef3DInertiaMatrixNet):
    """A physical inertia matrix, by the Cholesky factor of the covariance of mass; see its base."""

    def _triangle(self, matrix: torch.Tensor) -> torch.Tensor:
        return super()._triangle(0.5 * matrix.trace() * torch.eye(3).to(matrix) - matrix)

    def of(self, l: Any, bias: Any) -> Any:  # noqa: E741
        """See `ParameterModule`."""
        return np.array(to_matrix(from_second_moment(_square(l, bias))), dtype=object)


class TriangParam3DInertiaMatrixNet(ParameterModule):
    """A physical inertia matrix, by its axes and principal moments that are the sides of a triangle.

    Args:
        bias: the least of the first two moments.
        init_param_std: standard deviation of the raw numbers to start with.
        init_param: the matrix to start with, (3, 3) or (1, 3, 3).
        is_initializing_params: whether to start with `init_param`.
    """

    SHAPES: ClassVar = {"turn": (3,), "first": (), "second": (), "angle": (), "bias": ()}
    bias: torch.Tensor

    def __init__(
        self,
        bias: float,
        init_param_std: float = 0.01,
        init_param: torch.Tensor | None = None,
        is_initializing_params: bool = True,
    ):
        super().__init__()
        matrix = _initial(init_param, is_initializing_params)
        turn, sides, angle = torch.empty(3).normal_(std=init_param_std), (None, None), None
        if matrix is not None:
            moments, axes = np.linalg.eigh(matrix.double().numpy())
            moments, axes = moments[::-1], axes[:, ::-1] * np.linalg.det(axes[:, ::-1])
            turn = torch.tensor(quaternion_log(to_quaternion(matrix3(axes.tolist()))), dtype=matrix.dtype)
            cosine = (moments[0] ** 2 + moments[1] ** 2 - moments[2] ** 2) / (2.0 * moments[0] * moments[1])
            if not (abs(cosine) < 1.0 and min(moments[:2]) > bias):
                listed = ", ".join(f"{moment:g}" for moment in moments)
                raise InputError(
                    f"TriangParam3DInertiaMatrixNet: the principal moments of init_param are {listed}; the first two "
                    f"must be above bias={bias:g}, and none as great as the two others together"
                )
            sides = tuple(torch.tensor(moment, dtype=matrix.dtype) for moment in moments[:2])
            angle = torch.logit(torch.tensor([[math.acos(cosine) / math.pi]], dtype=matrix.dtype))
        self.inertia_ori_axis_angle = torch.nn.Parameter(turn)
        self.J1net = PositiveScalar(min_val=bias, init_param_std=0.1, init_param=sides[0])
        self.J2net = PositiveScalar(min_val=bias, init_param_std=0.1, init_param=sides[1])
        self.alpha_param_net = UnconstrainedTensor(1, 1, init_tensor=angle, init_std=init_param_std)
        self.register_buffer("bias", torch.tensor(bias), persistent=False)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """See `ParameterModule`."""
        angle = self.alpha_param_net.param.reshape(())
        return self.inertia_ori_axis_angle, self.J1net.l, self.J2net.l, angle, self.bias

    def of(self, turn: Any, first: Any, second: Any, angle: Any, bias: Any) -> Any:
        """See `ParameterModule`."""
        x, y = first * first + bias, second * second + bias
        between = math.pi * (0.5 + 0.5 * tanh(0.5 * angle))
        z = sqrt(x * x + y * y - 2.0 * x * y * cos(between))
        axes = from_quaternion(quaternion_exp(vector3(turn)))
        return np.array(to_matrix(rotate(axes, (x, 0.0, 0.0, y, 0.0, z))), dtype=object)


def _initial(init_param: torch.Tensor | None, is_initializing_params: bool) -> torch.Tensor | None:
    """The matrix to start with, if there is one."""
    if init_param is None or not is_initializing_params:
        return None
    if init_param.numel() != 9:
        raise InputError(f"init_param must be an inertia matrix (3, 3) or (1, 3, 3), got {tuple(init_param.shape)}")
    return init_param.detach().reshape(3, 3)


def _cholesky(label: str, matrix: torch.Tensor, bias: float) -> torch.Tensor:
    factor, info = torch.linalg.cholesky_ex(matrix.double() - bias * torch.eye(3, dtype=torch.float64))
    if int(info):
        raise InputError(f"{label}: no raw numbers stand for init_param={matrix.tolist()} with bias={bias:g}")
    return factor.to(matrix)


def _square(l: Any, bias: Any) -> tuple[Any, ...]:  # noqa: E741
    """xx xy xz yy yz zz of L Lᵀ + bias."""
    a, b, c, d, e, f = l
    return a * a + bias, a * d, a * e, b * b + d * d + bias, b * f + d * e, c * c + e * e + f * f + bias
