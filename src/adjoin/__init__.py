"""Differentiable simulation of articulated bodies for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjoin import compat, continuum, control, coupling, errors, learn, rl, robots, trace, transforms, viewer
    from adjoin.collision.terrain import Heightfield
    from adjoin.compiler.runtime.function import Integer, PerStep, Table, function
    from adjoin.constraints.adjoints import AnticipatingAdjoint, ImplicitAdjoint, UnrolledAdjoint
    from adjoin.constraints.compliant import Compliant
    from adjoin.constraints.joint_equality import JointEquality
    from adjoin.constraints.newton import Newton
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
    from adjoin.io.budget import Budget
    from adjoin.io.load import load
    from adjoin.io.store import save
    from adjoin.io.urdf_write import to_urdf
    from adjoin.model.compose import forest
    from adjoin.model.equality import EqualityConstraint
    from adjoin.model.joint import Joint, Mimic
    from adjoin.model.model import Model
    from adjoin.model.parts import Actuator, Body, Frame, Geometry, HeightGrid, Keyframe
    from adjoin.model.sensor import Sensor
    from adjoin.model.tendon import Tendon, Waypoint
    from adjoin.simulation.arguments import AsTable, PerEnvironment
    from adjoin.simulation.checkpointing import checkpointed_rollout
    from adjoin.simulation.graphed import graphed
    from adjoin.simulation.integrators import RK4, SemiImplicit
    from adjoin.simulation.measurement import measure
    from adjoin.simulation.runge_kutta import ConstrainedRK4
    from adjoin.simulation.simulator import Simulator
    from adjoin.simulation.state import SimulatorState, Trajectory
    from adjoin.simulation.world import World

__version__ = "0.1.0"

__all__ = [
    "PGS",
    "RK4",
    "Actuator",
    "AnticipatingAdjoint",
    "AsTable",
    "Body",
    "Budget",
    "Compliant",
    "ConstrainedRK4",
    "EqualityConstraint",
    "Frame",
    "FrameConstraint",
    "Geometry",
    "HeightGrid",
    "Heightfield",
    "ImplicitAdjoint",
    "Integer",
    "Joint",
    "JointEquality",
    "Keyframe",
    "Mimic",
    "Model",
    "Newton",
    "PerEnvironment",
    "PerStep",
    "SemiImplicit",
    "Sensor",
    "Simulator",
    "SimulatorState",
    "Table",
    "Tendon",
    "Trajectory",
    "UnrolledAdjoint",
    "Waypoint",
    "World",
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
    "continuum",
    "control",
    "coriolis_matrix",
    "coupling",
    "crba",
    "errors",
    "forest",
    "forward_kinematics",
    "frame_acceleration",
    "frame_velocity",
    "from_inertial_parameters",
    "function",
    "graphed",
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
    "measure",
    "mechanical_energy",
    "minverse",
    "passive_forces",
    "potential_energy",
    "potential_energy_regressor",
    "rl",
    "rnea",
    "rnea_derivatives",
    "robots",
    "save",
    "to_urdf",
    "torque_regressor",
    "trace",
    "transforms",
    "viewer",
]

# Imported when first used, so that importing the package costs nothing that is not used.
_MODULES = {
    "adjoin": (
        "compat",
        "continuum",
        "control",
        "coupling",
        "errors",
        "learn",
        "rl",
        "robots",
        "trace",
        "transforms",
        "viewer",
    ),
    "adjoin.collision.terrain": ("Heightfield",),
    "adjoin.compiler.runtime.function": ("Integer", "PerStep", "Table", "function"),
    "adjoin.constraints.adjoints": ("AnticipatingAdjoint", "ImplicitAdjoint", "UnrolledAdjoint"),
    "adjoin.constraints.compliant": ("Compliant",),
    "adjoin.constraints.joint_equality": ("JointEquality",),
    "adjoin.constraints.newton": ("Newton",),
    "adjoin.constraints.pgs": ("PGS",),
    "adjoin.dynamics.aba": ("aba", "minverse"),
    "adjoin.dynamics.call": ("compute",),
    "adjoin.dynamics.centroidal": (
        "center_of_mass",
        "center_of_mass_acceleration",
        "center_of_mass_jacobian",
        "center_of_mass_velocity",
        "centroidal_momentum",
        "centroidal_momentum_matrix",
        "centroidal_momentum_matrix_derivative",
        "centroidal_momentum_rate",
    ),
    "adjoin.dynamics.constrained_dynamics": ("constrained_dynamics", "impulse_dynamics"),
    "adjoin.dynamics.coriolis": ("coriolis_matrix",),
    "adjoin.dynamics.crba": ("crba",),
    "adjoin.dynamics.derivatives": ("aba_derivatives", "rnea_derivatives"),
    "adjoin.dynamics.energy": ("kinetic_energy", "mechanical_energy", "potential_energy"),
    "adjoin.dynamics.frame_constraint": ("FrameConstraint",),
    "adjoin.dynamics.inverse_kinematics": ("inverse_kinematics",),
    "adjoin.dynamics.jacobian": ("jacobian", "jacobian_derivative"),
    "adjoin.dynamics.kinematics": ("forward_kinematics", "frame_acceleration", "frame_velocity"),
    "adjoin.dynamics.passive": ("passive_forces",),
    "adjoin.dynamics.regressor": (
        "from_inertial_parameters",
        "inertial_parameters",
        "kinetic_energy_regressor",
        "potential_energy_regressor",
        "torque_regressor",
    ),
    "adjoin.dynamics.rnea": ("bias_forces", "gravity_forces", "rnea"),
    "adjoin.io.budget": ("Budget",),
    "adjoin.io.load": ("load",),
    "adjoin.io.store": ("save",),
    "adjoin.io.urdf_write": ("to_urdf",),
    "adjoin.model.compose": ("forest",),
    "adjoin.model.equality": ("EqualityConstraint",),
    "adjoin.model.joint": ("Joint", "Mimic"),
    "adjoin.model.model": ("Model",),
    "adjoin.model.parts": ("Actuator", "Body", "Frame", "Geometry", "HeightGrid", "Keyframe"),
    "adjoin.model.sensor": ("Sensor",),
    "adjoin.model.tendon": ("Tendon", "Waypoint"),
    "adjoin.simulation.arguments": ("AsTable", "PerEnvironment"),
    "adjoin.simulation.checkpointing": ("checkpointed_rollout",),
    "adjoin.simulation.graphed": ("graphed",),
    "adjoin.simulation.integrators": ("RK4", "SemiImplicit"),
    "adjoin.simulation.measurement": ("measure",),
    "adjoin.simulation.runge_kutta": ("ConstrainedRK4",),
    "adjoin.simulation.simulator": ("Simulator",),
    "adjoin.simulation.state": ("SimulatorState", "Trajectory"),
    "adjoin.simulation.world": ("World",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adjoin' has no attribute {name!r}")
    home = _HOMES[name]
    value = (
        importlib.import_module(f"adjoin.{name}") if home == "adjoin" else getattr(importlib.import_module(home), name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
