"""Differentiable simulation of articulated bodies for PyTorch."""

__version__ = "0.1.0"
