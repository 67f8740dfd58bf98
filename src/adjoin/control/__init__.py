"""Optimal control: objectives over rollouts, optimizers of them, trajectories and feedback. See docs/control.md."""

from adjoin.control.continuation import Continuation
from adjoin.control.ilqr import ILQR, ILQRResult, StopReason
from adjoin.control.lqr import Regulator, lqr
from adjoin.control.mpc import MPC
from adjoin.control.objective import Inputs, Objective
from adjoin.control.optimize import History, OptimizeResult, optimize
from adjoin.control.optimizers.gauss_newton import GaussNewton
from adjoin.control.optimizers.gradient_descent import SGD, Adam
from adjoin.control.optimizers.lbfgs import LBFGS
from adjoin.control.optimizers.sampling import CMAES, MPPI
from adjoin.control.pareto import ParetoFront, pareto_front, plot_pareto
from adjoin.control.plot import plot_losses
from adjoin.control.variables import Controls, ModuleParameters, Spline, Variables

__all__ = [
    "CMAES",
    "ILQR",
    "LBFGS",
    "MPC",
    "MPPI",
    "SGD",
    "Adam",
    "Continuation",
    "Controls",
    "GaussNewton",
    "History",
    "ILQRResult",
    "Inputs",
    "ModuleParameters",
    "Objective",
    "OptimizeResult",
    "ParetoFront",
    "Regulator",
    "Spline",
    "StopReason",
    "Variables",
    "lqr",
    "optimize",
    "pareto_front",
    "plot_losses",
    "plot_pareto",
]
