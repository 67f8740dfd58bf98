"""Vectors, rotations, motions, forces and inertias over any scalar: floats, torch tensors, traced expressions."""
