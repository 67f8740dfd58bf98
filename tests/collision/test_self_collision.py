"""Which shapes of one robot touch where its file does not say."""

import functools
import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from narrow import cloud, nearest, sample

import adjoin
from adjoin.collision import reach
from adjoin.collision.overlap import overlap
from adjoin.collision.pairs import pairs
from adjoin.collision.self_collision import AT_REST, UNREACHABLE, prune, resting_configurations
from adjoin.collision.shape import Shape
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.spatial.motion import transform_multiply
from adjoin.spatial.rotation import from_quaternion

ROBOTS = ("go2", "laikago", "panda", "allegro", "racecar", "xarm7")


@functools.cache
def pruned(name):
    model = adjoin.robots.load(name)
    found = pairs(model)[0]
    return model, found, *prune(model, found)


def shapes_at(model, q):
    """The shapes where they are in a configuration, over numbers."""
    state = State(Robot(model), q)
    placed = zip(model.geometries, state.robot.geometries, strict=True)
    return [Shape(s.kind, s.size, transform_multiply(state.pose(s.body), at), s.vertices) for s, at in placed]


def overlapping(model, chosen, q):
    shapes = shapes_at(model, q)
    return {p.shapes for p in chosen if overlap(shapes[p.first], shapes[p.second], p.margin)}


def test_whether_shapes_overlap_is_the_sign_of_their_distance():
    for kinds in [("box", "hull"), ("cylinder", "ellipsoid"), ("capsule", "box"), ("sphere", "cylinder")]:
        parts = sample(kinds, 60, seed=3, spread=0.35)
        distance = nearest(kinds, parts)[0]
        distance = distance if distance.dim() == 1 else distance.min(-1).values
        assert 10 < (distance < 0.0).sum() < 50
        for i in range(60):
            p, q, x, r, s, y = (tuple(part[i].tolist()) for part in parts)
            hulls = [cloud() if kind == "hull" else () for kind in kinds]
            a = Shape(kinds[0], x, (from_quaternion(q), p), hulls[0])
            b = Shape(kinds[1], y, (from_quaternion(s), r), hulls[1])
            assert overlap(a, b) == bool(distance[i] < 0.0)
            assert overlap(a, b, float(distance[i]) + 1e-5)
            assert not overlap(a, b, float(distance[i]) - 1e-5) or distance[i] < 1e-5


@pytest.mark.parametrize("name", ROBOTS)
def test_what_is_out_of_reach_never_meets(name):
    model, found, _, left = pruned(name)
    names = [shape.name for shape in model.geometries]
    far = {(pair.first, pair.second) for pair in left if pair.reason == UNREACHABLE}
    unmet = [pair for pair in found if (names[pair.first], names[pair.second]) in far]
    assert len(unmet) == len(far)
    q = model.random((150,), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # At the ends of the ranges, too, and beyond them by a little.
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in model.limits())
    side = torch.rand(q.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    ends = torch.where(side, low - 0.04, high + 0.04)
    extreme = torch.where(ends.isfinite(), ends, q)
    for configuration in torch.cat([q, extreme]).tolist():
        assert not overlapping(model, unmet, configuration)


def test_some_pairs_are_out_of_reach_and_their_number_is_bounded_from_below():
    counts = {name: sum(pair.reason == UNREACHABLE for pair in pruned(name)[3]) for name in ROBOTS}
    assert counts["laikago"] >= 30
    assert counts["panda"] >= 60
    assert counts["racecar"] >= 4


@pytest.mark.parametrize("name", ROBOTS)
def test_nothing_that_is_left_in_overlaps_at_rest(name):
    model, found, kept, left = pruned(name)
    assert len(kept) < len(found)
    names = [shape.name for shape in model.geometries]
    resting = {(pair.first, pair.second) for pair in left if pair.reason == AT_REST}
    for q in resting_configurations(model):
        assert not overlapping(model, kept, q)
        resting -= {(names[i], names[j]) for i, j in overlapping(model, found, q)}
    assert not resting


LINK = (
    '<link name="{0}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    "{1}</link>"
)
BALL = '<collision><origin xyz="{0} 0 0"/><geometry><sphere radius="{1}"/></geometry></collision>'
JOINT = (
    '<joint name="{0}{1}" type="{2}"><parent link="{0}"/><child link="{1}"/><origin xyz="{3} 0 0"/><axis xyz="0 0 1"/>'
    '<limit lower="{4}" upper="{5}" effort="1" velocity="1"/></joint>'
)


def chain(low, high, radius=0.1, fixed=False):
    """Balls in a row, 1 m from joint to joint."""
    links = [LINK.format(name, BALL.format(0.5, radius)) for name in "abcd"]
    kinds = ["revolute", "fixed" if fixed else "revolute", "revolute"]
    joints = [JOINT.format(*pair, kind, 1.0, low, high) for pair, kind in zip(("ab", "bc", "cd"), kinds, strict=True)]
    return adjoin.load(f'<robot name="chain">{"".join(links + joints)}</robot>', floating_base=True)


def simulator(model, **options):
    return adjoin.Simulator(model, ground=False, **{"self_collision": True, **options})


def touching(model, **options):
    return {tuple(name[0] for name in pair) for pair in simulator(model, **options).contact_names}


def test_neighbors_do_not_touch_and_fixed_joints_do_not_part_them():
    every = {("a", "c"), ("a", "d"), ("b", "d")}
    assert touching(chain(-3.0, 3.0)) == every
    assert touching(chain(-3.0, 3.0, fixed=True)) == {("a", "d")}
    assert not touching(chain(-3.0, 3.0), self_collision=False)
    # On a fixed base, which is a neighbor of what turns on it.
    fixed = adjoin.load(adjoin.to_urdf(chain(-3.0, 3.0)), lock={"root_joint": (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)})
    assert touching(fixed) == every


def test_joint_limits_keep_links_apart_only_where_joints_have_limits():
    model = chain(-0.3, 0.3)
    assert not touching(model)
    assert {pair.reason for pair in simulator(model).left_out} == {UNREACHABLE}
    assert touching(model, limits=False) == {("a", "c"), ("a", "d"), ("b", "d")}
    # The end of the chain comes back to its beginning only if all joints turn by far.
    assert touching(chain(-1.0, 1.0)) <= {("a", "d")}


def test_shapes_that_overlap_at_rest_are_left_out_and_named():
    sim = simulator(chain(-3.0, 3.0, radius=1.1))
    assert {pair[:2] for pair in sim.left_out} == {("a/0", "c/0"), ("b/0", "d/0")}
    assert {pair.reason for pair in sim.left_out} == {AT_REST}
    assert touching(sim.model) == {("a", "d")}
    assert "left out: 2 pairs (overlap at rest)" in repr(sim)
    # Those that are named touch in any case.
    named = adjoin.Simulator(sim.model, ground=False, pairs=[("a", "c")])
    assert named.contact_names == [("a/0", "c/0")]
    assert not named.left_out


def test_a_joint_without_limits_turns_by_a_full_turn_and_a_follower_as_its_leader():
    model = chain(-0.3, 0.5)
    assert reach.joint_range(model, 1) == pytest.approx((-0.4, 0.6))
    assert reach.joint_range(chain(-6.0, 0.0), 1) == (-math.pi, math.pi)
    panda = adjoin.robots.load("panda")
    follower = next(i for i, joint in enumerate(panda.joints) if joint.mimic)
    assert reach.joint_range(panda, follower) == pytest.approx((-0.01, 0.05), abs=1e-3)


def test_legs_of_a_falling_robot_stop_each_other():
    """Two thighs swing toward each other and stop where they touch."""
    swinging = chain(-3.0, 3.0)
    sim = simulator(swinging, contact=adjoin.PGS(iterations=30))
    q = swinging.neutral(dtype=torch.float64)
    q[7:] = torch.tensor([2.4, 2.0, 0.0])
    v = torch.zeros(swinging.nv, dtype=torch.float64)
    v[6:8] = 4.0
    depth = []
    for own in (sim, adjoin.Simulator(swinging, ground=False, self_collision=False)):
        path = own.rollout(own.state(q, v), steps=400)
        poses = adjoin.forward_kinematics(swinging, path.q[-1])
        centers = poses[:, :3, 3] + 0.5 * poses[:, :3, 0]
        first = [frame.name for frame in swinging.frames].index("a")
        depth.append(float((centers[first] - centers[first + 2]).norm()))
    assert depth[0] > 0.199
    assert depth[1] < depth[0] - 0.01
