"""The tasks that ship, one file a robot."""

from adjoin.rl.tasks import cartpole, locomotion, panda, pendulum, planar, quadruped

__all__ = ["cartpole", "locomotion", "panda", "pendulum", "planar", "quadruped"]
