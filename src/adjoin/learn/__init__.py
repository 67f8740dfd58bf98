"""Learnable robot models and system identification."""
