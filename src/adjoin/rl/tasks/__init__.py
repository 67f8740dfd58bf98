"""The tasks that ship, one file a robot."""

from adjoin.rl.tasks import cartpole, pendulum

__all__ = ["cartpole", "pendulum"]
