"""Environments as other packages want them: gymnasium, rsl-rl-lib, skrl, torchrl and stable-baselines3."""
