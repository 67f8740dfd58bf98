"""Optimal control: objectives over rollouts, optimisers of them, trajectories and feedback."""
