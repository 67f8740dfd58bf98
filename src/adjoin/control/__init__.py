"""Optimal control: objectives over rollouts, optimizers of them, trajectories and feedback. See docs/control.md."""

from adjoin.control.decision import Controls, Learned, Numbers, Spline
from adjoin.control.descent import LBFGS, SGD, Adam, GaussNewton
from adjoin.control.ilqr import ILQR, Solution
from adjoin.control.lqr import Regulator, lqr
from adjoin.control.mpc import MPC
from adjoin.control.objective import Objective
from adjoin.control.optimize import Found, History, optimize
from adjoin.control.plot import plot_losses
from adjoin.control.sampling import CMAES, MPPI

__all__ = [
    "CMAES",
    "ILQR",
    "LBFGS",
    "MPC",
    "MPPI",
    "SGD",
    "Adam",
    "Controls",
    "Found",
    "GaussNewton",
    "History",
    "Learned",
    "Numbers",
    "Objective",
    "Regulator",
    "Solution",
    "Spline",
    "lqr",
    "optimize",
    "plot_losses",
]
