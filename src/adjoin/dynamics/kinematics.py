"""Where frames are and how they move: poses, spatial velocities and accelerations (Featherstone, chapters 2 and 4)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from adjoin.dynamics.call import REFERENCES, Array, Reference, call, call_quantity
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.errors import InputError, unknown_name
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import (
    IDENTITY_TRANSFORM,
    ZERO_SPATIAL,
    Spatial,
    Transform,
    motion_to_parent,
    transform_inverse,
    transform_multiply,
    transform_point,
)
from adjoin.spatial.rotation import (
    IDENTITY_QUATERNION,
    Quaternion,
    from_quaternion,
    quaternion_conjugate,
    quaternion_multiply,
    quaternion_normalize,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Vector3

OUTPUTS = ("homogeneous", "matrix", "quaternion")

FrameNames = str | tuple[str, ...]
Pose = TypeVar("Pose")
Turned = tuple[Quaternion, Vector3]
"""A pose whose rotation is a unit quaternion."""


def call_for_frames(
    name: str, model: Model, inputs: Sequence[Any], params: Mapping[str, Any] | None, frame: Any, **options: Any
) -> Any:
    """Compute `call` for a quantity that has a frame and a reference of its own and knows no external forces."""
    frame = frame if isinstance(frame, str) else tuple(frame)
    return call_quantity(name, model, inputs, (("frame", frame), *options.items()), params=params)


def map_frames(function: str, model: Model, frames: FrameNames, compute: Callable[[int], Any]) -> Any:
    """`compute(index)` for one frame given by name, or a list of them for several."""
    if isinstance(frames, str):
        return compute(find_frame(function, model, frames))
    if not frames:
        raise InputError(f"{function}: no frames were named; name one, or several, of those in model.frames")
    return [compute(find_frame(function, model, name)) for name in frames]


def find_frame(function: str, model: Model, name: str) -> int:
    """Return index of a frame by name, for the function that was called with it."""
    names = [frame.name for frame in model.frames]
    if name not in names:
        raise InputError(f"{function}: {unknown_name('frame', 'frames', name, names)}")
    return names.index(name)


def check_reference(function: str, reference: Reference) -> None:
    """Raise if there is no such reference."""
    if reference not in REFERENCES:
        raise InputError(f"{function}: no reference {reference!r}; references: {', '.join(REFERENCES)}")


def poses_seen_from(
    robot: Robot,
    start: int,
    first: Pose,
    links: Sequence[Pose],
    times: Callable[[Pose, Pose], Pose],
    over: Callable[[Pose, Pose], Pose],
) -> dict[int, Pose]:
    """Return the poses of all bodies and of the world, going through the tree from one of them.

    Args:
        robot: the tree.
        start: the body to go from, or WORLD.
        first: its pose in the frame that all poses shall be in.
        links: of each body in its parent.
        times: a b.
        over: a b⁻¹.
    """
    poses = {start: first}
    for body in robot.ancestors(start):
        poses[robot.parents[body]] = over(poses[body], links[body])
    for body, parent in enumerate(robot.parents):
        if body not in poses:
            poses[body] = times(poses[parent], links[body])
    return poses


def transforms_from(state: State, start: int = WORLD, first: Transform = IDENTITY_TRANSFORM) -> dict[int, Transform]:
    """Compute `poses_seen_from` with matrices."""
    return poses_seen_from(state.robot, start, first, state.transforms, transform_multiply, _transform_over)


def transforms_from_frame(state: State, frame: int | None) -> dict[int, Transform]:
    """Return the poses of all bodies and of the world, seen from a frame, or from the world if it is None."""
    if frame is None:
        return transforms_from(state)
    return transforms_from(state, state.robot.model.frames[frame].body, transform_inverse(state.robot.frames[frame]))


def _transform_over(a: Transform, b: Transform) -> Transform:
    rotation = vector.multiply(a[0], vector.transpose(b[0]))
    return rotation, vector.subtract(a[1], vector.apply(rotation, b[1]))


def _turned_from_frame(state: State, frame: int | None) -> dict[int, Turned]:
    """Compute `transforms_from_frame` with quaternions, composed along the tree, without branches."""
    robot = state.robot
    links = []
    for body, (turn, (_, position)) in enumerate(zip(_quaternions(robot, "joint"), state.transforms, strict=True)):
        joint = robot.joint(body)
        moved = joint.type.quaternion(joint, state.coordinates(body))
        links.append((quaternion_multiply(turn, moved), position))
    body, first = WORLD, (IDENTITY_QUATERNION, ZERO)
    if frame is not None:
        body = robot.model.frames[frame].body
        first = _turned_over(first, _turned_frames(robot)[frame])
    return poses_seen_from(robot, body, first, links, _turned_times, _turned_over)


def _turned_times(a: Turned, b: Turned) -> Turned:
    return quaternion_multiply(a[0], b[0]), transform_point((from_quaternion(a[0]), a[1]), b[1])


def _turned_over(a: Turned, b: Turned) -> Turned:
    turn = quaternion_multiply(a[0], quaternion_conjugate(b[0]))
    return turn, vector.subtract(a[1], vector.apply(from_quaternion(turn), b[1]))


def _turned_frames(robot: Robot) -> list[Turned]:
    return [(turn, position) for turn, (_, position) in zip(_quaternions(robot, "frame"), robot.frames, strict=True)]


def _quaternions(robot: Robot, owner: str) -> list[Quaternion]:
    """Return the quaternions of the placements of joints or frames."""
    rows = [tuple(row) for row in robot.numbers(f"{owner}_rotation")]
    return [quaternion_normalize(row) for row in rows] if f"{owner}_rotation" in robot.params else rows


@quantity("forward_kinematics", "q")
def forward_kinematics_of(
    state: State, frames: FrameNames | None = None, output: str = "homogeneous", relative_to: str | None = None
) -> Any:
    """Compute `forward_kinematics` over scalars."""
    function, robot = "forward_kinematics", state.robot
    model = robot.model
    if output not in OUTPUTS:
        raise InputError(f"{function}: no output {output!r}; outputs: {', '.join(OUTPUTS)}")
    start = None if relative_to is None else find_frame(function, model, relative_to)
    names = tuple(frame.name for frame in model.frames) if frames is None else frames
    if output == "quaternion":
        turned, on_body = _turned_from_frame(state, start), _turned_frames(robot)

        def seven(frame: int) -> list[Scalar]:
            turn, position = _turned_times(turned[model.frames[frame].body], on_body[frame])
            return [*position, *turn]

        return map_frames(function, model, names, seven)
    poses = transforms_from_frame(state, start)

    def rows(frame: int) -> list[list[Scalar]]:
        rotation, position = transform_multiply(poses[model.frames[frame].body], robot.frames[frame])
        last = [[0.0, 0.0, 0.0, 1.0]] if output == "homogeneous" else []
        return [[*row, x] for row, x in zip(rotation, position, strict=True)] + last

    return map_frames(function, model, names, rows)


@quantity("frame_velocity", "q", "v")
def frame_velocity_of(state: State, frame: FrameNames, reference: Reference = "world") -> Any:
    """Compute `frame_velocity` over scalars."""
    function, model = "frame_velocity", state.robot.model
    check_reference(function, reference)

    def six(index: int) -> list[Scalar]:
        body = model.frames[index].body
        return linear_first(
            _expressed(state, index, reference, state.velocities[body]) if body != WORLD else ZERO_SPATIAL
        )

    return map_frames(function, model, frame, six)


@quantity("frame_acceleration", "q", "v", "a")
def frame_acceleration_of(
    state: State, frame: FrameNames, reference: Reference = "world", classical: bool = False
) -> Any:
    """Compute `frame_acceleration` over scalars."""
    function, model = "frame_acceleration", state.robot.model
    check_reference(function, reference)

    def six(index: int) -> list[Scalar]:
        body = model.frames[index].body
        if body == WORLD:
            return linear_first(ZERO_SPATIAL)
        velocity = state.velocities[body] if classical else None
        return linear_first(_expressed(state, index, reference, state.accelerations[body], velocity))

    return map_frames(function, model, frame, six)


def _expressed(state: State, frame: int, reference: str, motion: Spatial, velocity: Spatial | None = None) -> Spatial:
    """Express a motion of a frame's body, in body coordinates, as the reference says; with omega x v of a velocity."""
    rotation, position = state.robot.frames[frame]
    pose = state.poses[state.robot.model.frames[frame].body]

    def at_reference(m: Spatial) -> Spatial:
        if reference == "world":
            return motion_to_parent(pose, m)
        return m[0], vector.add(m[1], vector.cross(m[0], position))

    angular, linear = at_reference(motion)
    if velocity is not None:
        linear = vector.add(linear, vector.cross(*at_reference(velocity)))
    if reference == "local":
        return vector.apply_transposed(rotation, angular), vector.apply_transposed(rotation, linear)
    if reference == "local_world_aligned":
        return vector.apply(pose[0], angular), vector.apply(pose[0], linear)
    return angular, linear


def linear_first(m: Spatial) -> list[Scalar]:
    """Return a spatial vector as public arrays have it: [linear; angular]."""
    return [*m[1], *m[0]]


def forward_kinematics(
    model: Model,
    q: Array,
    frames: str | Sequence[str] | None = None,
    params: Mapping[str, Array] | None = None,
    *,
    output: str = "homogeneous",
    relative_to: str | None = None,
) -> Array:
    """Compute the poses of frames. Only the joints between them and where they are seen from are computed.

    Quaternions are products of the joints' own along the tree, so that they and their gradients are smooth everywhere.
    Their sign is the one this gives: a revolute joint that goes round once turns it over, and so does the quaternion of
    a ball or free joint if it is given with the other sign.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        frames: names of links or sites, by default all in the order of `model.frames`; one name alone leaves out the
            dimension n.
        params: parameters to take the place of the model's.
        output: "homogeneous" 4x4 matrices; "matrix": 3x4, [R | p]; "quaternion": [x y z, w x y z].
        relative_to: name of the frame that the poses are seen from; by default the world.

    Returns:
        (..., n, 4, 4), (..., n, 3, 4) or (..., n, 7).
    """
    chosen = frames if frames is None or isinstance(frames, str) else tuple(frames)
    options = {"frames": chosen, "output": output, "relative_to": relative_to}
    return call("forward_kinematics", model, q, params=params, **options)


def frame_velocity(
    model: Model,
    q: Array,
    v: Array,
    frame: str | Sequence[str],
    reference: Reference = "world",
    params: Mapping[str, Array] | None = None,
) -> Array:
    """Return the spatial velocity of a frame.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        frame: name of a link or site, or several.
        reference: "world": world axes, and the velocity of the point of the body that is at the world's origin;
            "local": the frame's own axes and origin; "local_world_aligned": the frame's origin, world axes.
        params: parameters to take the place of the model's.

    Returns:
        [linear; angular], (..., 6), or (..., n, 6) for several frames.
    """
    return call_for_frames("frame_velocity", model, (q, v), params, frame, reference=reference)


def frame_acceleration(
    model: Model,
    q: Array,
    v: Array,
    a: Array,
    frame: str | Sequence[str],
    reference: Reference = "world",
    params: Mapping[str, Array] | None = None,
    *,
    classical: bool = False,
) -> Array:
    """Return the spatial acceleration of a frame; without gravity.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        a: acceleration dv/dt, (..., nv).
        frame: name of a link or site, or several.
        reference: axes and point, see `frame_velocity`.
        params: parameters to take the place of the model's.
        classical: whether the linear part is the acceleration of the body's point, as an accelerometer there would
            feel it but for gravity; a spatial acceleration has omega x v less.

    Returns:
        [linear; angular], (..., 6), or (..., n, 6) for several frames.
    """
    options = {"reference": reference, "classical": classical}
    return call_for_frames("frame_acceleration", model, (q, v, a), params, frame, **options)
