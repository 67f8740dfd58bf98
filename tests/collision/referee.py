"""The distance of two shapes that are apart, as coal and MuJoCo find it."""

import functools

import coal
import mujoco
import numpy as np
from places import COUNTS, cloud, turn


@functools.cache
def _coal_hull():
    points = coal.StdVec_Vec3s()
    for vertex in cloud():
        points.append(np.array(vertex))
    return coal.Convex.convexHull(points, False, "")


_COAL = {
    "sphere": lambda x: coal.Sphere(x[0]),
    "capsule": lambda x: coal.Capsule(x[0], 2.0 * x[1]),
    "box": lambda x: coal.Box(2.0 * x[0], 2.0 * x[1], 2.0 * x[2]),
    "cylinder": lambda x: coal.Cylinder(x[0], 2.0 * x[1]),
    "ellipsoid": lambda x: coal.Ellipsoid(*x),
    "hull": lambda _: _coal_hull(),
}


def coal_distance(kinds, parts):
    """Of one pair of shapes."""
    p, q, x, r, s, y = (part.tolist() for part in parts)
    poses = [coal.Transform3s(np.array(turn(rotation)), np.array(at)) for at, rotation in ((p, q), (r, s))]
    result, request = coal.DistanceResult(), coal.DistanceRequest()
    request.gjk_tolerance = 1e-9
    shapes = [_COAL[kind](size) for kind, size in zip(kinds, (x, y), strict=True)]
    coal.distance(shapes[0], poses[0], shapes[1], poses[1], request, result)
    return result.min_distance


def mujoco_distances(kinds, parts, rows):
    """Of some rows of a batch; MuJoCo moves the frame of a mesh to its center, so poses are written into bodies."""
    vertices = " ".join(f"{x} {y} {z}" for x, y, z in cloud())
    bodies = []
    for kind in kinds:
        numbers = " ".join(["0.1"] * COUNTS[kind])
        geom = 'type="mesh" mesh="cloud"' if kind == "hull" else f'type="{kind}" size="{numbers}"'
        bodies.append(f'<body mocap="true"><geom {geom}/></body>')
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><asset><mesh name="cloud" vertex="{vertices}"/></asset>'
        f"<worldbody>{''.join(bodies)}</worldbody></mujoco>"
    )
    model.opt.ccd_tolerance = 1e-9
    data = mujoco.MjData(model)
    found = []
    for k in rows:
        p, q, x, r, s, y = (part[k].tolist() for part in parts)
        data.mocap_pos[:], data.mocap_quat[:] = [p, r], [q, s]
        for i, (kind, size) in enumerate(zip(kinds, (x, y), strict=True)):
            if kind != "hull":
                model.geom_size[i] = size
        mujoco.mj_kinematics(model, data)
        found.append(mujoco.mj_geomDistance(model, data, 0, 1, 10.0, None))
    return found
