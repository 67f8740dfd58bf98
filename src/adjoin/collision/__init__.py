"""Shapes, the pairs that can touch, and where they do."""
