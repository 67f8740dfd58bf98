"""Iterative LQR and differential dynamic programming, for a batch of problems at once."""

from adjoin.control.ilqr.solver import ILQR, ILQRResult

__all__ = ["ILQR", "ILQRResult"]
