"""The learners that ship, one file each."""

from adjoin.rl.learners import apg, enhancement, mbpo, sapo, shac

__all__ = ["apg", "enhancement", "mbpo", "sapo", "shac"]
