"""The learners that ship, one file each."""

from adjoin.rl.learners import apg, mbpo, sapo, shac

__all__ = ["apg", "mbpo", "sapo", "shac"]
