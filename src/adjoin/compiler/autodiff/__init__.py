"""Derivatives of graphs: reverse mode, forward mode, implicit functions."""
