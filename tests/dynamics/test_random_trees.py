"""Random trees of every kind of joint: against Pinocchio, among themselves, and compiled."""

import random

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import CORE, Reference, on_floats, samples, worst
from small import KINDS, body, inertia, pose, unit

import adjoin
from adjoin.dynamics.call import compute
from adjoin.model.joint import Joint, Mimic
from adjoin.model.joint_types import JOINT_TYPES
from adjoin.model.parts import WORLD, Body, Frame
from adjoin.spatial.motion import transform_multiply
from adjoin.spatial.vector import IDENTITY, ZERO

SINGLE = ("revolute", "continuous", "prismatic")


def random_axis(rng):
    """Along an axis of coordinates, either way, or anywhere."""
    if rng.random() < 0.5:
        place, sign = rng.randrange(3), rng.choice([-1.0, 1.0])
        return tuple(sign if i == place else 0.0 for i in range(3))
    return unit(rng, 3)


def random_joint(rng, name, kind, leaders):
    """A joint of a kind; one of a single coordinate may follow another, with drives and springs of its own."""
    size = JOINT_TYPES[kind].nv
    mimic = None
    if kind in SINGLE and leaders and rng.random() < 0.4:
        mimic = Mimic(rng.choice(leaders), rng.choice([-2.0, -0.5, 0.7, 1.0]), rng.uniform(-0.5, 0.5))
    armature = tuple(rng.choice([0.0, rng.uniform(0.01, 0.3)]) for _ in range(size))
    return Joint(name, kind, axis=random_axis(rng), armature=armature, mimic=mimic)


def random_tree(seed, kinds, follow=True, depth_first=True):
    """A model with these joints and random branches; some bodies have up to three joints, as in MJCF.

    Pinocchio wants branches one after the other, depth first; we take bodies in any order, parents first.
    """
    rng = random.Random(seed)
    bodies, leaders, ends = [], [], [WORLD]
    for i, kind in enumerate(kinds):
        parent = rng.choice(ends)
        if depth_first:
            ends = ends[: ends.index(parent) + 1]
        extra = rng.choice([0, 0, 1, 2]) if kind in SINGLE else 0
        for k in range(extra):
            joint = random_joint(rng, f"j{i}_{k}", rng.choice(SINGLE), ())
            position, rotation = pose(rng) if k == 0 else (ZERO, IDENTITY)
            bodies.append(Body(f"b{i}_{k}", parent, joint, position, rotation))
            leaders.append(joint.name)
            parent = len(bodies) - 1
        joint = random_joint(rng, f"j{i}", kind, leaders if follow and not extra else ())
        together = {"position": ZERO, "rotation": IDENTITY} if extra else {}
        bodies.append(body(rng, f"b{i}", parent, joint, **together))
        if kind in SINGLE:
            leaders.append(joint.name)
        ends.append(len(bodies) - 1)
    position, rotation = pose(rng)
    gravity = tuple(rng.uniform(-10, 10) for _ in range(3))
    return adjoin.Model("random", tuple(bodies), (Frame("tip", len(bodies) - 1, position, rotation),), gravity=gravity)


seeds, some_kinds = st.integers(0, 2**32), st.lists(st.sampled_from(KINDS), min_size=1, max_size=6)
trees = st.builds(random_tree, seeds, some_kinds)
any_trees = st.builds(random_tree, seeds, some_kinds, depth_first=st.booleans())


def state_of(model, seed=0):
    return [x[0] for x in samples(model, 1, seed)]


@settings(max_examples=150, deadline=None)
@given(model=trees)
def test_values_are_pinocchios(model):
    numbers, theirs = state_of(model), Reference(model)
    state = on_floats(model, *numbers)
    condition = np.linalg.cond(theirs.answer(*numbers, ("crba",))["crba"])
    # Several joints on one body may line up.
    quantities = [name for name in CORE if condition < 1e6 or name not in ("aba", "minverse")]
    for name, expected in theirs.answer(*numbers, quantities).items():
        assert worst([CORE[name](state)], [expected]) < 1e-10, name


@settings(max_examples=80, deadline=None)
@given(model=any_trees)
def test_forward_dynamics_undoes_inverse_dynamics(model):
    q, v, a, _ = state_of(model)
    state = on_floats(model, q, v, a)
    M = np.array(CORE["crba"](state))
    assume(np.linalg.cond(M) < 1e6)
    tau = CORE["rnea"](state)
    assert worst([CORE["aba"](on_floats(model, q, v, tau=tau))], [a]) < 1e-9
    bias = np.array(CORE["bias_forces"](state))
    assert worst([M @ a.numpy() + bias], [tau], beside=[bias]) < 1e-12
    assert worst([M @ np.array(CORE["minverse"](state))], [np.eye(model.nv)]) < 1e-9


def elsewhere(model, placement):
    """The same robot, mounted in another place."""
    moved = []
    for one in model.bodies:
        if one.parent == WORLD:
            rotation, position = transform_multiply(placement, (one.rotation, one.position))
            one = Body(one.name, WORLD, one.joint, position, rotation, one.mass, one.com, one.inertia)
        moved.append(one)
    return moved


@settings(max_examples=40, deadline=None)
@given(model=any_trees, seed=st.integers(0, 2**20))
def test_a_robot_does_not_feel_where_it_is_mounted(model, seed):
    position, rotation = pose(random.Random(seed))
    gravity = tuple(float(x) for x in np.array(rotation) @ np.array(model.gravity))
    other = adjoin.Model("elsewhere", tuple(elsewhere(model, (rotation, position))), gravity=gravity)
    numbers = state_of(model, seed)
    for name in ("rnea", "crba", "gravity_forces"):
        one, two = (CORE[name](on_floats(m, *numbers)) for m in (model, other))
        assert worst([one], [two], beside=1e-3) < 1e-11, name


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), kinds=st.lists(st.sampled_from(SINGLE), min_size=1, max_size=5))
def test_a_planar_joint_is_two_slides_and_a_turn(seed, kinds):
    # On the left a planar base, whose velocity is in its own axes; on the right a chain with two massless bodies.
    rng = random.Random(seed)
    mass, com, about = inertia(rng)
    rest = random_tree(seed, kinds, follow=False)
    X, Y, Z = np.eye(3).tolist()

    def on(base, offset):
        moved = []
        for one in rest.bodies:
            parent = one.parent + len(base) if one.parent != WORLD else len(base) - 1
            moved.append(Body(one.name, parent, one.joint, one.position, one.rotation, one.mass, one.com, one.inertia))
        return adjoin.Model(offset, (*base, *moved), gravity=rest.gravity)

    planar = on([Body("base", WORLD, Joint("base", "planar"), mass=mass, com=com, inertia=about)], "planar")
    chain = on(
        [
            Body("x", WORLD, Joint("x", "prismatic", axis=tuple(X))),
            Body("y", 0, Joint("y", "prismatic", axis=tuple(Y))),
            Body("base", 1, Joint("base", "revolute", axis=tuple(Z)), mass=mass, com=com, inertia=about),
        ],
        "chain",
    )
    assert (planar.nq, planar.nv) == (chain.nq, chain.nv)
    q, v, a, _ = (x.numpy() for x in state_of(planar))
    c, s, rate = np.cos(q[2]), np.sin(q[2]), v[2]
    T = np.eye(planar.nv)
    T[:2, :2] = [[c, -s], [s, c]]
    drift = np.zeros(planar.nv)
    drift[:2] = rate * T[:2, :2] @ [-v[1], v[0]]
    left, right = on_floats(planar, q, v, a), on_floats(chain, q, T @ v, T @ a + drift)
    M = np.array(CORE["crba"](right))
    assert worst([CORE["crba"](left)], [T.T @ M @ T]) < 1e-11
    assert worst([CORE["rnea"](left)], [T.T @ np.array(CORE["rnea"](right))], beside=1e-3) < 1e-11


@pytest.mark.parametrize("seed", range(6))
def test_kernels_give_what_python_numbers_give(seed):
    rng = random.Random(seed)
    model = random_tree(seed, [rng.choice(KINDS) for _ in range(5)], depth_first=False)
    inputs = samples(model, 8)
    compiled = compute(model, *inputs, quantities=list(CORE))
    states = [on_floats(model, *row) for row in zip(*inputs, strict=True)]
    for name, value in compiled.items():
        assert worst(value, [CORE[name](state) for state in states]) < 1e-11, name


def test_the_trees_are_of_every_kind():
    models = [random_tree(seed, KINDS) for seed in range(20)]
    assert {joint.kind for model in models for joint in model.joints} == set(KINDS)
    assert any(joint.mimic for model in models for joint in model.joints)
    assert any(one.mass == 0.0 for model in models for one in model.bodies)
    assert any(one.parent == WORLD for model in models for one in model.bodies[1:])
    for model in models:
        assert model.nq == sum(joint.type.nq for joint in model.joints if not joint.mimic)
        assert torch.isfinite(samples(model, 1)[0]).all()
