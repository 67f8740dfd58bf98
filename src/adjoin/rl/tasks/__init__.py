"""The tasks that ship, one file a robot."""

from adjoin.rl.tasks import cartpole, humanoid, locomotion, panda, pendulum, planar, quadruped

__all__ = ["cartpole", "humanoid", "locomotion", "panda", "pendulum", "planar", "quadruped"]
