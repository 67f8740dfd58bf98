"""Functions of symmetric matrices by their eigenvalues, over scalars, with gradients where eigenvalues meet.

Eigenvectors have no derivative where two eigenvalues are equal, but functions of the matrix do. So the vectors Q are
found by Jacobi's rotations and are constants to every derivative. The matrix in their axes, W = Qᵀ A Q, is not: its
diagonal has the eigenvalues, and beside the diagonal it is zero with a derivative. A function with the eigenvalues f
then is Q (diag f + ratios ∘ W) Qᵀ off the diagonal, with the divided differences of f as ratios (Daleckii and Krein).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoin.trace import detach, select, sqrt

SWEEPS = 5
"""Of Jacobi's rotations in three dimensions: they converge quadratically. In two dimensions one rotation is exact."""


class Spectrum:
    """A symmetric matrix by its eigenvalues.

    Args:
        A: the matrix, (n, n) with n 2 or 3.

    Attributes:
        values: eigenvalues, n scalars with derivatives; in no order.
    """

    def __init__(self, A: Any):
        n = len(A)
        flat = detach([A[i, j] for i in range(n) for j in range(n)])
        self.vectors = _jacobi(np.array(flat, dtype=object).reshape(n, n))
        self.rotated = self.vectors.T @ A @ self.vectors
        self.values = [self.rotated[i, i] for i in range(n)]

    def function(self, values: Sequence[Any], ratio: Callable[[int, int], Any]) -> Any:
        """Return the matrix with other eigenvalues.

        Args:
            values: the new eigenvalues.
            ratio: gives their divided difference (values[i] - values[j]) / (self.values[i] - self.values[j]), and its
                limit where both are equal.
        """
        n = len(values)
        core = np.diag(np.array(values, dtype=object))
        for i, j in itertools.combinations(range(n), 2):
            (slope,) = detach([ratio(i, j)])
            core[i, j] = core[j, i] = slope * self.rotated[i, j]
        return self.vectors @ core @ self.vectors.T


def _jacobi(A: Any) -> Any:
    """Return the eigenvectors of a symmetric matrix as columns."""
    n = len(A)
    A, vectors = A.copy(), np.eye(n).astype(object)
    for _ in range(1 if n == 2 else SWEEPS):
        for p, q in itertools.combinations(range(n), 2):
            difference, twice = A[q, q] - A[p, p], 2.0 * A[p, q]
            below = abs(difference) + sqrt(difference * difference + twice * twice)
            t = select(difference < 0.0, -twice, twice) / select(below > 0.0, below, 1.0)
            c = 1.0 / sqrt(1.0 + t * t)
            turn = np.eye(n).astype(object)
            turn[p, p] = turn[q, q] = c
            turn[p, q], turn[q, p] = t * c, -t * c
            A, vectors = turn.T @ A @ turn, vectors @ turn
    return vectors
