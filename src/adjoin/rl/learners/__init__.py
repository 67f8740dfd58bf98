"""The learners that ship, one file each."""

from adjoin.rl.learners import shac

__all__ = ["shac"]
