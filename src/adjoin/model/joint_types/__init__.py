"""The kinds of joints, one file each: everything that depends on the kind of a joint asks its `JointType`.

| kind | q | v |
|---|---|---|
| revolute | angle about the axis, rad | rad/s |
| continuous | the same without limits; `difference` takes the short way round | rad/s |
| prismatic | displacement along the axis, m | m/s |
| ball | quaternion [w x y z] | angular velocity in the body's frame |
| planar | [x y, angle] in the plane across the axis | [vx vy, angular rate], velocity in the body's frame |
| free | [x y z, qw qx qy qz] | [linear; angular], both in the body's frame |

A continuous joint is a plain angle, not (cos, sin) as in Pinocchio: the same numbers as a revolute joint, one per
degree of freedom, and nothing to normalize. (cos q, sin q) is the mapping.

Every module of this package is imported with it, and registers its kinds by name.
"""

import importlib
import pkgutil

from adjoin.model.joint_types.base import JOINT_TYPES, JointType, joint_type

__all__ = ["JOINT_TYPES", "JointType", "joint_type"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
