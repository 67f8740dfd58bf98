"""Which shapes of one robot can touch each other, where its file does not say.

MJCF files say which shapes touch. Others, such as URDF, do not, and robots in them often have shapes that overlap where
links are joined. Of the pairs that filters let touch, these are left out:

- of neighbors: a link and the one that it is jointed to, also where links on fixed joints are between them, and the
  base of a robot that is fixed to the world;
- of shapes that overlap when the robot is at rest: in a key frame, or in the neutral configuration if it is inside the
  joints' limits. MoveIt's assistant calls these "in collision by default";
- of shapes that cannot meet while joints are inside their limits; see `reach`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from adjoin.collision.broad_phase import bounding_box, bounding_radius
from adjoin.collision.overlap import overlap
from adjoin.collision.pairs import Pair, parents, strangers
from adjoin.collision.reach import out_of_reach
from adjoin.collision.shape import Shape
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_multiply, transform_point

AT_REST, UNREACHABLE = "overlap at rest", "out of reach"


class LeftOut(NamedTuple):
    """A pair of shapes of one robot, not of neighbors, that the filters let touch, and that does not.

    Attributes:
        first: Name of a shape.
        second: Name of the other.
        reason: Why: "overlap at rest" or "out of reach".
    """

    first: str
    second: str
    reason: str


def counted(left_out: Sequence[LeftOut]) -> str:
    """Return how many pairs were left out, by reason, for messages."""
    counts = Counter(pair.reason for pair in left_out)
    return ", ".join(f"{counts[reason]} pairs ({reason})" for reason in (AT_REST, UNREACHABLE) if counts[reason])


def prune(model: Model, pairs: Sequence[Pair], limits: bool = True) -> tuple[list[Pair], list[LeftOut]]:
    """Leave out the pairs of shapes of one robot that this module's rules name; never the model's own `pairs`.

    Args:
        model: The robots and what is around them.
        pairs: What the filters let touch.
        limits: Whether joints have limits.

    Returns:
        The others, and what was left out.
    """
    names = [shape.name for shape in model.geometries]
    listed = {frozenset((pair.first, pair.second)) for pair in model.pairs}
    above = parents(model)
    neighbors, inside, mounted = set(), [], []
    for pair in pairs:
        shapes = [model.geometries[index] for index in pair.shapes]
        moving = [shape.body for shape in shapes if shape.body != WORLD]
        on_world = len(moving) == 1 and above[moving[0]] == WORLD
        if frozenset(shape.name for shape in shapes) in listed or any(shape.kind == "plane" for shape in shapes):
            continue
        if strangers(model, pair.shapes):
            # A base that a file welds to the world beside the arm that turns on it is not a part of its tree.
            if on_world and not model.joints[moving[0]].type.floating:
                mounted.append(pair)
        elif on_world:
            neighbors.add(pair.shapes)
        else:
            inside.append(pair)
    reasons = dict.fromkeys(_overlapping(model, [*inside, *mounted]), AT_REST)
    if limits:
        rest = [pair for pair in inside if pair.shapes not in reasons]
        reasons.update({pair.shapes: UNREACHABLE for pair in out_of_reach(model, rest)})
    left = [LeftOut(names[i], names[j], reason) for (i, j), reason in sorted(reasons.items())]
    return [pair for pair in pairs if pair.shapes not in reasons and pair.shapes not in neighbors], left


def resting_configurations(model: Model) -> list[Sequence[float]]:
    """Return where a robot rests: its key frames, and the neutral configuration if it is inside the joints' limits.

    Where there is neither, the neutral configuration is brought inside them.
    """
    neutral, inside = [], []
    for joint, _ in model.independent_joints:
        limited = joint.type.limited == "coordinate"
        neutral += joint.type.neutral
        inside += [min(max(x, joint.lower), joint.upper) if limited else x for x in joint.type.neutral]
    keys: list[Sequence[float]] = [key.q for key in model.keyframes]
    return [inside, *keys] if neutral == inside or not keys else keys


def _overlapping(model: Model, pairs: Sequence[Pair]) -> set[tuple[int, int]]:
    """The pairs of shapes that overlap when the robot is at rest."""
    found: set[tuple[int, int]] = set()
    geometries = model.geometries
    radii = [bounding_radius(shape, shape.size) for shape in geometries]
    middles = [vector.vector3(bounding_box(shape, shape.size)[0]) for shape in geometries]
    for q in resting_configurations(model) if pairs else ():
        state = State(Robot(model), q)
        placed = zip(geometries, state.robot.geometries, strict=True)
        poses = [transform_multiply(state.pose(shape.body), place) for shape, place in placed]
        centers = [transform_point(pose, middle) for pose, middle in zip(poses, middles, strict=True)]
        for pair in pairs:
            i, j = pair.shapes
            apart = vector.norm(vector.subtract(centers[i], centers[j]))
            if apart >= radii[i] + radii[j] + pair.margin or pair.shapes in found:
                continue
            a, b = (Shape(geometries[k].kind, geometries[k].size, poses[k], geometries[k].vertices) for k in (i, j))
            if overlap(a, b, pair.margin):
                found.add(pair.shapes)
    return found
