"""Drop-in replacement for differentiable-robot-model 0.2.3: change the import line and keep the program."""

from adjoin.compat.differentiable_robot_model import data_utils, rigid_body_params, spatial_vector_algebra
from adjoin.compat.differentiable_robot_model.robot_model import (
    DifferentiableFrankaPanda,
    DifferentiableKUKAiiwa,
    DifferentiableRobotModel,
    DifferentiableTrifingerEdu,
    DifferentiableTwoLinkRobot,
)
from adjoin.compat.differentiable_robot_model.training import train_epoch

__all__ = [
    "DifferentiableFrankaPanda",
    "DifferentiableKUKAiiwa",
    "DifferentiableRobotModel",
    "DifferentiableTrifingerEdu",
    "DifferentiableTwoLinkRobot",
    "data_utils",
    "rigid_body_params",
    "spatial_vector_algebra",
    "train_epoch",
]
