"""Kinematics and dynamics of trees of rigid bodies, one file an algorithm, written once over scalars."""
