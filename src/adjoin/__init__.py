"""Differentiable simulation of articulated bodies for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjoin import compat, control, errors, learn, robots, trace, viewer
    from adjoin.collision.terrain import Heightfield
    from adjoin.compiler.runtime.function import Integer, PerStep, Table, function
    from adjoin.constraints.adjoints import AnticipatingAdjoint, ImplicitAdjoint, UnrolledAdjoint
    from adjoin.constraints.compliant import Compliant
    from adjoin.constraints.joint_equality import JointCoupling
    from adjoin.constraints.pgs import PGS
    from adjoin.dynamics.aba import aba, minverse
    from adjoin.dynamics.call import compute
    from adjoin.dynamics.centroidal import (
        center_of_mass,
        center_of_mass_acceleration,
        center_of_mass_jacobian,
        center_of_mass_velocity,
        centroidal_momentum,
        centroidal_momentum_matrix,
        centroidal_momentum_matrix_derivative,
        centroidal_momentum_rate,
    )
    from adjoin.dynamics.constrained_dynamics import constrained_dynamics, impulse_dynamics
    from adjoin.dynamics.coriolis import coriolis_matrix
    from adjoin.dynamics.crba import crba
    from adjoin.dynamics.derivatives import aba_derivatives, rnea_derivatives
    from adjoin.dynamics.energy import kinetic_energy, mechanical_energy, potential_energy
    from adjoin.dynamics.frame_constraint import FrameConstraint
    from adjoin.dynamics.inverse_kinematics import inverse_kinematics
    from adjoin.dynamics.jacobian import jacobian, jacobian_derivative
    from adjoin.dynamics.kinematics import forward_kinematics, frame_acceleration, frame_velocity
    from adjoin.dynamics.passive import passive_forces
    from adjoin.dynamics.regressor import (
        from_inertial_parameters,
        inertial_parameters,
        kinetic_energy_regressor,
        potential_energy_regressor,
        torque_regressor,
    )
    from adjoin.dynamics.rnea import bias_forces, gravity_forces, rnea
    from adjoin.io.load import load
    from adjoin.io.store import save
    from adjoin.io.urdf_write import to_urdf
    from adjoin.model.compose import forest
    from adjoin.model.joint import Joint, Mimic
    from adjoin.model.model import Model
    from adjoin.model.parts import Actuator, Body, Frame, Geometry, Keyframe
    from adjoin.simulation.checkpointing import checkpointed_rollout
    from adjoin.simulation.integrators import RK4, SemiImplicit
    from adjoin.simulation.simulator import Simulator
    from adjoin.simulation.state import SimulatorState, Trajectory

__version__ = "0.1.0"

__all__ = [
    "PGS",
    "RK4",
    "Actuator",
    "AnticipatingAdjoint",
    "Body",
    "Compliant",
    "Frame",
    "FrameConstraint",
    "Geometry",
    "Heightfield",
    "ImplicitAdjoint",
    "Integer",
    "Joint",
    "JointCoupling",
    "Keyframe",
    "Mimic",
    "Model",
    "PerStep",
    "SemiImplicit",
    "Simulator",
    "SimulatorState",
    "Table",
    "Trajectory",
    "UnrolledAdjoint",
    "aba",
    "aba_derivatives",
    "bias_forces",
    "center_of_mass",
    "center_of_mass_acceleration",
    "center_of_mass_jacobian",
    "center_of_mass_velocity",
    "centroidal_momentum",
    "centroidal_momentum_matrix",
    "centroidal_momentum_matrix_derivative",
    "centroidal_momentum_rate",
    "checkpointed_rollout",
    "compat",
    "compute",
    "constrained_dynamics",
    "control",
    "coriolis_matrix",
    "crba",
    "errors",
    "forest",
    "forward_kinematics",
    "frame_acceleration",
    "frame_velocity",
    "from_inertial_parameters",
    "function",
    "gravity_forces",
    "impulse_dynamics",
    "inertial_parameters",
    "inverse_kinematics",
    "jacobian",
    "jacobian_derivative",
    "kinetic_energy",
    "kinetic_energy_regressor",
    "learn",
    "load",
    "mechanical_energy",
    "minverse",
    "passive_forces",
    "potential_energy",
    "potential_energy_regressor",
    "rnea",
    "rnea_derivatives",
    "robots",
    "save",
    "to_urdf",
    "torque_regressor",
    "trace",
    "viewer",
]

# Loaded when first asked for, so that importing the package costs nothing that is not used.
_HOMES = {
    "Actuator": "adjoin.model.parts",
    "AnticipatingAdjoint": "adjoin.constraints.adjoints",
    "Body": "adjoin.model.parts",
    "Compliant": "adjoin.constraints.compliant",
    "Frame": "adjoin.model.parts",
    "FrameConstraint": "adjoin.dynamics.frame_constraint",
    "Geometry": "adjoin.model.parts",
    "Heightfield": "adjoin.collision.terrain",
    "ImplicitAdjoint": "adjoin.constraints.adjoints",
    "Integer": "adjoin.compiler.runtime.function",
    "Joint": "adjoin.model.joint",
    "JointCoupling": "adjoin.constraints.joint_equality",
    "Keyframe": "adjoin.model.parts",
    "Mimic": "adjoin.model.joint",
    "Model": "adjoin.model.model",
    "PGS": "adjoin.constraints.pgs",
    "PerStep": "adjoin.compiler.runtime.function",
    "RK4": "adjoin.simulation.integrators",
    "SemiImplicit": "adjoin.simulation.integrators",
    "Simulator": "adjoin.simulation.simulator",
    "SimulatorState": "adjoin.simulation.state",
    "Table": "adjoin.compiler.runtime.function",
    "Trajectory": "adjoin.simulation.state",
    "UnrolledAdjoint": "adjoin.constraints.adjoints",
    "aba": "adjoin.dynamics.aba",
    "aba_derivatives": "adjoin.dynamics.derivatives",
    "bias_forces": "adjoin.dynamics.rnea",
    "center_of_mass": "adjoin.dynamics.centroidal",
    "center_of_mass_acceleration": "adjoin.dynamics.centroidal",
    "center_of_mass_jacobian": "adjoin.dynamics.centroidal",
    "center_of_mass_velocity": "adjoin.dynamics.centroidal",
    "centroidal_momentum": "adjoin.dynamics.centroidal",
    "centroidal_momentum_matrix": "adjoin.dynamics.centroidal",
    "centroidal_momentum_matrix_derivative": "adjoin.dynamics.centroidal",
    "centroidal_momentum_rate": "adjoin.dynamics.centroidal",
    "checkpointed_rollout": "adjoin.simulation.checkpointing",
    "compat": "adjoin.compat",
    "compute": "adjoin.dynamics.call",
    "constrained_dynamics": "adjoin.dynamics.constrained_dynamics",
    "control": "adjoin.control",
    "coriolis_matrix": "adjoin.dynamics.coriolis",
    "crba": "adjoin.dynamics.crba",
    "errors": "adjoin.errors",
    "forest": "adjoin.model.compose",
    "forward_kinematics": "adjoin.dynamics.kinematics",
    "frame_acceleration": "adjoin.dynamics.kinematics",
    "frame_velocity": "adjoin.dynamics.kinematics",
    "from_inertial_parameters": "adjoin.dynamics.regressor",
    "function": "adjoin.compiler.runtime.function",
    "gravity_forces": "adjoin.dynamics.rnea",
    "impulse_dynamics": "adjoin.dynamics.constrained_dynamics",
    "inertial_parameters": "adjoin.dynamics.regressor",
    "inverse_kinematics": "adjoin.dynamics.inverse_kinematics",
    "jacobian": "adjoin.dynamics.jacobian",
    "jacobian_derivative": "adjoin.dynamics.jacobian",
    "kinetic_energy": "adjoin.dynamics.energy",
    "kinetic_energy_regressor": "adjoin.dynamics.regressor",
    "learn": "adjoin.learn",
    "load": "adjoin.io.load",
    "mechanical_energy": "adjoin.dynamics.energy",
    "minverse": "adjoin.dynamics.aba",
    "passive_forces": "adjoin.dynamics.passive",
    "potential_energy": "adjoin.dynamics.energy",
    "potential_energy_regressor": "adjoin.dynamics.regressor",
    "rnea": "adjoin.dynamics.rnea",
    "rnea_derivatives": "adjoin.dynamics.derivatives",
    "robots": "adjoin.robots",
    "save": "adjoin.io.store",
    "to_urdf": "adjoin.io.urdf_write",
    "torque_regressor": "adjoin.dynamics.regressor",
    "trace": "adjoin.trace",
    "viewer": "adjoin.viewer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adjoin' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    value = module if module.__name__ == f"adjoin.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
