"""Learnable robot models and system identification: see docs/learning.md."""

from adjoin.learn.data import Recording, columns, load_csv, load_npz
from adjoin.learn.excitation import fourier_excitation, random_excitation, sine_excitation
from adjoin.learn.filtering import differentiate, low_pass, low_pass_positions
from adjoin.learn.fit import Fit, check_excitation, fit, predict
from adjoin.learn.jacobian import jacobian
from adjoin.learn.levenberg_marquardt import gauss_newton
from adjoin.learn.losses import NMSE, nmse
from adjoin.learn.modules import (
    Bounded,
    Covariance,
    Inertial,
    LogCholesky,
    ParameterModule,
    Positive,
    PositiveDefinite,
    Rotation,
    Symmetric,
    Triangular,
    Unconstrained,
)
from adjoin.learn.parameters import Parameters
from adjoin.learn.regression import BaseParameters, Regression, least_squares
from adjoin.learn.report import Report, report
from adjoin.learn.residual_network import ResidualNetwork
from adjoin.learn.shooting import Shooting
from adjoin.learn.shooting_residuals import NamedParameters

__all__ = [
    "NMSE",
    "BaseParameters",
    "Bounded",
    "Covariance",
    "Fit",
    "Inertial",
    "LogCholesky",
    "NamedParameters",
    "ParameterModule",
    "Parameters",
    "Positive",
    "PositiveDefinite",
    "Recording",
    "Regression",
    "Report",
    "ResidualNetwork",
    "Rotation",
    "Shooting",
    "Symmetric",
    "Triangular",
    "Unconstrained",
    "check_excitation",
    "columns",
    "differentiate",
    "fit",
    "fourier_excitation",
    "gauss_newton",
    "jacobian",
    "least_squares",
    "load_csv",
    "load_npz",
    "low_pass",
    "low_pass_positions",
    "nmse",
    "predict",
    "random_excitation",
    "report",
    "sine_excitation",
]
