"""How light bodies and coordinates are at rest: MuJoCo's `invweight0`, by which soft constraints are scaled."""

import numpy as np

from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.dynamics.tendon import tendon_of
from adjoin.model.equality import EqualityConstraint
from adjoin.model.model import Model
from adjoin.model.parts import INITIAL, WORLD, Geometry
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_point


class InverseWeights:
    """Inverses of inertias in the model's initial configuration, else in its neutral one, averaged over directions.

    Attributes:
        bodies: (moving its center of mass, turning) of each body, 1/kg and 1/(kg m²).
        dofs: of each coordinate; those of one joint that are alike share their mean.
        tendons: of each tendon, as it says or else in that configuration.
    """

    def __init__(self, model: Model):
        robot = Robot(model)
        initial = next((key.q for key in model.keyframes if key.name == INITIAL), None)
        state = State(robot, list(initial) if initial is not None else model.neutral().double().tolist())
        inertia = np.array(crba_of(state), dtype=float).reshape(model.nv, model.nv)
        inertia = np.tril(inertia) + np.tril(inertia, -1).T
        inverse = np.linalg.inv(inertia) if model.nv else inertia
        self.bodies: list[tuple[float, float]] = []
        for body, part in enumerate(model.bodies):
            center = transform_point(state.poses[body], part.com)
            jacobian = np.zeros((6, model.nv))
            for ancestor in robot.ancestors(body):
                rotation, position = state.poses[ancestor]
                for dof, (angular, linear) in robot.subspaces[ancestor]:
                    turning = vector.apply(rotation, angular)
                    arm = vector.subtract(center, position)
                    moving = vector.add(vector.apply(rotation, linear), vector.cross(turning, arm))
                    jacobian[:, dof] += [*moving, *turning]
            diagonal = np.diag(jacobian @ inverse @ jacobian.T)
            self.bodies.append((float(diagonal[:3].mean()), float(diagonal[3:].mean())))
        self.dofs = np.diag(inverse).copy().tolist()
        for joint, at in model.independent_joints:
            units = joint.type.units
            for unit in dict.fromkeys(units):
                places = [at.v + k for k, other in enumerate(units) if other == unit]
                mean = sum(self.dofs[i] for i in places) / len(places)
                for i in places:
                    self.dofs[i] = mean
        self.tendons: list[float] = []
        for tendon in model.tendons:
            jacobian = np.zeros(model.nv)
            if not tendon.inverse_weight:
                for dof, arm in tendon_of(state, tendon)[1].arms.items():
                    jacobian[dof] = arm
            self.tendons.append(tendon.inverse_weight or float(jacobian @ inverse @ jacobian))

    def of_equality(self, model: Model, equality: EqualityConstraint) -> tuple[float, float]:
        """Of what one of the model's equalities holds: (moving, turning)."""
        if any(equality.inverse_weight):
            return equality.inverse_weight
        names = [name for name in (equality.first, equality.second) if name]
        if equality.kind == "joint":
            light = sum(self.dofs[model.coordinates[model.joint_index(name)].v] for name in names)
            return light, light
        if equality.kind == "tendon":
            light = sum(self.tendons[model.tendon_index(name)] for name in names)
            return light, light
        bodies = [model.frames[model.frame_index(name)].body for name in names]
        both = [self.bodies[body] for body in bodies if body != WORLD]
        return sum(light for light, _ in both), sum(light for _, light in both)

    def of_shape(self, shape: Geometry) -> tuple[float, float]:
        """Of the body that a shape is on."""
        if shape.body == WORLD:
            return (0.0, 0.0)
        return shape.inverse_weight if any(shape.inverse_weight) else self.bodies[shape.body]
