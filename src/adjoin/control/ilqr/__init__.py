"""Iterative LQR and differential dynamic programming, for a batch of problems at once."""

from adjoin.control.ilqr.iterations import StopReason
from adjoin.control.ilqr.solver import ILQR, ILQRResult

__all__ = ["ILQR", "ILQRResult", "StopReason"]
