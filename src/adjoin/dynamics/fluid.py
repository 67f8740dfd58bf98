"""Forces of a medium on bodies that move in it: MuJoCo's two models (its documentation, Computation, "Passive forces").

A body is a box of the same inertia that feels viscosity and drag, or its shapes are ellipsoids that also feel lift and
the mass of what they displace. Velocities and forces are in the axes of the box or ellipsoid.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from adjoin.dynamics.generalized_forces import joint_forces
from adjoin.dynamics.state import State
from adjoin.model.fluid import FluidShape, Medium
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import ZERO_SPATIAL, Spatial, force_to_parent, spatial_add, transform_multiply
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum, sqrt

LEAST = 1e-15
TINY = 1e-30  # m^8 m/s: a thin plate has an area to the fourth power far below LEAST


class Load(NamedTuple):
    """What a medium does to a body.

    Attributes:
        moment: N m.
        force: N.
    """

    moment: Vector3
    force: Vector3


def fluid_forces(state: State) -> list[Scalar]:
    """Return the generalized forces of the medium, nv scalars."""
    robot = state.robot
    if not robot.model.medium.shapes:
        return [0.0] * robot.nv
    density, viscosity, wind = map(robot.numbers, ("fluid_density", "fluid_viscosity", "wind"))
    medium = replace(robot.model.medium, density=density, viscosity=viscosity, wind=vector.vector3(wind))
    forces: list[Spatial] = [ZERO_SPATIAL] * robot.count
    for shape in medium.shapes:
        frame = robot.model.frame_index(shape.frame)
        body = robot.model.frames[frame].body
        if body == WORLD:
            continue
        place = transform_multiply(robot.frames[frame], (shape.rotation, shape.position))
        angular, linear = state.velocities[body]
        linear = vector.add(linear, vector.cross(angular, place[1]))
        wind = vector.apply_transposed(state.poses[body][0], medium.wind)
        turning = vector.apply_transposed(place[0], angular)
        moving = vector.apply_transposed(place[0], vector.subtract(linear, wind))
        load = (_ellipsoid if shape.coefficients else _box)(medium, shape, turning, moving)
        forces[body] = spatial_add(forces[body], force_to_parent(place, (load.moment, load.force)))
    return joint_forces(state, forces)


def _box(medium: Medium, shape: FluidShape, turning: Vector3, moving: Vector3) -> Load:
    """Return viscosity as on a sphere of the mean edge, and drag on the faces."""
    x, y, z = shape.size
    diameter = (x + y + z) / 3.0
    slow_turn, slow_move = (math.pi * c * medium.viscosity for c in (diameter**3, 3.0 * diameter))
    areas = (y * z, x * z, x * y)
    levers = (x * (y**4 + z**4), y * (x**4 + z**4), z * (x**4 + y**4))
    moment = [-(slow_turn + medium.density * c / 64.0 * abs(w)) * w for c, w in zip(levers, turning, strict=True)]
    force = [-(slow_move + 0.5 * medium.density * c * abs(v)) * v for c, v in zip(areas, moving, strict=True)]
    return Load(vector.vector3(moment), vector.vector3(force))


def _ellipsoid(medium: Medium, shape: FluidShape, turning: Vector3, moving: Vector3) -> Load:
    """Return added mass, lift, viscosity and drag of an ellipsoid."""
    share, blunt, slender, angular, kutta, magnus = shape.coefficients[:6]
    masses, inertias = shape.coefficients[6:9], shape.coefficients[9:]
    density, size = medium.density, shape.size
    momentum = vector.vector3([density * m * v for m, v in zip(masses, moving, strict=True)])
    spin = vector.vector3([density * i * w for i, w in zip(inertias, turning, strict=True)])
    force = vector.cross(momentum, turning)
    moment = vector.add(vector.cross(momentum, moving), vector.cross(spin, turning))
    a, b, c = size
    volume = 4.0 / 3.0 * math.pi * a * b * c
    force = vector.add(force, vector.scale(magnus * density * volume, vector.cross(turning, moving)))
    squares = ((b * c) ** 2, (c * a) ** 2, (a * b) ** 2)
    normal = vector.vector3([s * v for s, v in zip(squares, moving, strict=True)])
    across, along = vector.dot(normal, normal), vector.dot(normal, moving)
    speed = _length(moving)
    shadow = math.pi * _root(across / maximum(along, LEAST))
    cosine = along / maximum(speed * across, TINY)
    circulation = vector.scale(kutta * density * cosine * shadow, vector.cross(normal, moving))
    force = vector.add(force, vector.cross(circulation, moving))
    greatest, least = max(size), min(size)
    middle = a + b + c - greatest - least
    full = math.pi * greatest * middle
    diameter = 2.0 / 3.0 * (a + b + c)
    drag = medium.viscosity * 3.0 * math.pi * diameter
    drag = drag + density * speed * (shadow * blunt + slender * (full - shadow))
    force = vector.subtract(force, vector.scale(drag, moving))
    widest = 8.0 / 15.0 * math.pi * middle * greatest**4
    wide = [8.0 / 15.0 * math.pi * size[k] * max(size[k - 2], size[k - 1]) ** 4 for k in range(3)]
    weighed = [w * (angular * i + slender * (widest - i)) for i, w in zip(wide, turning, strict=True)]
    drag = medium.viscosity * math.pi * diameter**3 + density * _length(vector.vector3(weighed))
    moment = vector.subtract(moment, vector.scale(drag, turning))
    return Load(vector.scale(share, moment), vector.scale(share, force))


def _root(x: Scalar) -> Scalar:
    return sqrt(maximum(x, LEAST * LEAST))


def _length(x: Vector3) -> Scalar:
    return _root(vector.dot(x, x))
