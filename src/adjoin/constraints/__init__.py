"""Constraint rows, contact models, solvers and their adjoints."""
