import dataclasses
import math

import numpy as np
import pinocchio
import pytest
import torch
from kernel_checks import check_kernel
from kinds import every_kind
from peers import ROBOTS, close, peer, robot, states

from adjoin.compiler.runtime.function import Function
from adjoin.dynamics.aba import aba
from adjoin.dynamics.call import compute
from adjoin.dynamics.constrained_dynamics import constrained_dynamics, impulse_dynamics
from adjoin.dynamics.crba import crba
from adjoin.dynamics.frame_constraint import FrameConstraint
from adjoin.dynamics.jacobian import jacobian
from adjoin.dynamics.rnea import rnea
from adjoin.errors import InputError
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Body, Frame
from adjoin.spatial.rotation import from_quaternion

EXACT = 1e-13
"""Regularization that leaves no trace in float64."""

FEET = tuple(FrameConstraint(f"{leg}_foot", kind="point") for leg in ("FL", "FR", "RL", "RR"))


def tip(model):
    """The frame that most degrees of freedom move."""
    depth = [0]
    for body in model.bodies:
        depth.append((depth[body.parent + 1] if body.parent != WORLD else 0) + body.joint.nv)
    return max(model.frames, key=lambda frame: (depth[frame.body + 1], frame.name)).name


def dense(peer, q, v, tau, constraint):
    """Acceleration, force and velocity after the impact, by the whole system and Pinocchio's matrices."""
    pin, data, nv = peer.pin, peer.pin.createData(), peer.pin.nv
    q, v, tau, local = peer.q(q), v.numpy(), tau.numpy(), pinocchio.ReferenceFrame.LOCAL
    frame, size = peer.frame(constraint.frame), 6 if constraint.kind == "weld" else 3
    J = pinocchio.computeFrameJacobian(pin, data, q, frame, local)[:size]
    pinocchio.forwardKinematics(pin, data, q, v, np.zeros(nv))
    spatial = pinocchio.getFrameAcceleration(pin, data, frame, local).vector
    drift = spatial if size == 6 else pinocchio.getFrameClassicalAcceleration(pin, data, frame, local).linear
    upper = np.triu(pinocchio.crba(pin, data, q))
    M = upper + np.triu(upper, 1).T
    bias = pinocchio.rnea(pin, data, q, v, np.zeros(nv))
    system = np.block([[M, -J.T], [J, np.zeros((size, size))]])
    both = np.linalg.lstsq(system, np.concatenate([tau - bias, -drift]), rcond=1e-12)[0]
    after = np.linalg.lstsq(system, np.concatenate([M @ v, np.zeros(size)]), rcond=1e-12)[0]
    return both[:nv], both[nv:], after[:nv]


@pytest.mark.parametrize("name", [name for name in ROBOTS if robot(name).nv >= 6])
def test_a_frame_held_to_the_world_agrees_with_the_dense_system(name):
    model = robot(name)
    kind = "weld" if name not in ("racecar", "ant", "spined_quadruped", "allegro") else "point"
    held = FrameConstraint(tip(model), kind=kind)
    q, v, tau = states(model, 12)
    options = {"constraints": (held,), "regularization": EXACT}
    both = {name: (name, options) for name in ("constrained_dynamics", "impulse_dynamics")}
    results = compute(model, q, v, tau=tau, quantities=both)
    (acceleration, forces), (after, _) = results.values()
    for i in range(len(q)):
        expected = dense(peer(name), q[i], v[i], tau[i], held)
        close(acceleration[i], expected[0], 1e-9)
        close(forces[i, 0, : len(expected[1])], expected[1], 1e-9)
        close(after[i], expected[2], 1e-9)


def pinocchio_constraint(peer, q, constraint, gains=(0.0, 0.0)):
    """Pinocchio's constraint; a point between two frames is taken where the first one is."""
    pin, data = peer.pin, peer.pin.createData()
    pinocchio.framesForwardKinematics(pin, data, peer.q(q))
    first = pin.frames[peer.frame(constraint.frame)]
    joint, placement = 0, pinocchio.SE3(np.array(from_quaternion(constraint.rotation)), np.array(constraint.position))
    if constraint.other:
        second = pin.frames[peer.frame(constraint.other)]
        joint, placement = second.parentJoint, second.placement * placement
        if constraint.kind == "point":
            placement = data.oMi[joint].inverse() * data.oMf[peer.frame(constraint.frame)]
    kind = pinocchio.ContactType.CONTACT_6D if constraint.kind == "weld" else pinocchio.ContactType.CONTACT_3D
    made = pinocchio.RigidConstraintModel(
        kind, pin, first.parentJoint, first.placement, joint, placement, pinocchio.ReferenceFrame.LOCAL
    )
    made.setBaumgarteCorrectorParameters(pinocchio.BaumgarteCorrectorParameters(*gains))
    return made


def pinocchio_dynamics(peer, q, v, tau, constraints, gains=(0.0, 0.0)):
    models, data = pinocchio.StdVec_RigidConstraintModel(), pinocchio.StdVec_RigidConstraintData()
    for constraint in constraints:
        made = pinocchio_constraint(peer, q, constraint, gains)
        models.append(made)
        data.append(made.createData())
    whole = peer.pin.createData()
    pinocchio.initConstraintDynamics(peer.pin, whole, models, data)
    settings = pinocchio.ProximalSettings(1e-15, 1e-10, 20)
    acceleration = pinocchio.constraintDynamics(
        peer.pin, whole, peer.q(q), v.numpy(), tau.numpy(), models, data, settings
    )
    return acceleration, np.array(whole.lambda_c)


@pytest.mark.parametrize(
    ("name", "constraints", "gains"),
    [
        ("go2", FEET, (0.0, 0.0)),
        ("go2", (FrameConstraint("FL_foot", "RR_foot"),), (0.0, 0.0)),
        ("go2", (FrameConstraint("FL_foot", "RR_foot", "point"), FrameConstraint("FR_foot")), (0.0, 0.0)),
        (
            "iiwa7",
            (FrameConstraint(tip(robot("iiwa7")), position=(0.3, 0.2, 0.5), rotation=(0.5, -0.5, 0.5, 0.5)),),
            (90.0, 19.0),
        ),
        (
            "g1",
            (
                FrameConstraint("left_rubber_hand", "right_rubber_hand", position=(0.1, 0.2, 0.3)),
                FrameConstraint("left_ankle_roll_link", position=(0.0, 0.1, 0.2), kind="point"),
            ),
            (30.0, 7.0),
        ),
    ],
    ids=["feet", "loop", "loop of points", "stabilized arm", "stabilized humanoid"],
)
def test_pinocchio_agrees(name, constraints, gains):
    model = robot(name)
    q, v, tau = states(model, 12, seed=3)
    if any(c.other and c.kind == "point" for c in constraints):
        # While the point moves, Pinocchio's rows see it from the world, ours from the body that holds it.
        v, _ = impulse_dynamics(model, q, v, constraints, regularization=EXACT)
    acceleration, forces = constrained_dynamics(
        model, q, v, tau, constraints, regularization=EXACT, stabilization=gains
    )
    for i in range(len(q)):
        expected, multipliers = pinocchio_dynamics(peer(name), q[i], v[i], tau[i], constraints, gains)
        close(acceleration[i], expected, 1e-8)
        parts = [forces[i, k, : 6 if c.kind == "weld" else 3] for k, c in enumerate(constraints)]
        close(torch.cat(parts), multipliers, 1e-8)


def test_joints_of_every_kind_and_joints_that_follow_others():
    model = every_kind()
    q, v, tau = states(model, 12)
    held = (FrameConstraint("slider_site"), FrameConstraint("wheel_site", "pusher_site", "point"))
    v, _ = impulse_dynamics(model, q, v, held, regularization=EXACT)
    acceleration, forces = constrained_dynamics(model, q, v, tau, held, regularization=EXACT)
    step, pulled = 1e-5, 0.0
    for k, (constraint, size) in enumerate(zip(held, (6, 3), strict=True)):

        def moving(time, constraint=constraint, size=size):
            later = model.integrate(q, v, time)
            J = jacobian(model, later, constraint.frame, "local", relative_to=constraint.other)[:, :size]
            return J, (J @ (v + time * acceleration)[..., None])[..., 0]

        J, velocity = moving(0.0)
        close(velocity, torch.zeros(12, size))
        close((moving(step)[1] - moving(-step)[1]) / (2 * step), torch.zeros(12, size), 1e-5)
        pulled = pulled + (J.mT @ forces[:, k, :size, None])[..., 0]
    close(rnea(model, q, v, acceleration) - tau, pulled, 1e-9)


@pytest.mark.parametrize("restitution", [0.0, 0.4])
def test_impulses_agree_with_pinocchio(restitution):
    model, two = robot("go2"), peer("go2")
    q, v, _ = states(model, 20)
    after, impulses = impulse_dynamics(model, q, v, FEET, restitution, regularization=EXACT)
    for i in range(len(q)):
        at = two.q(q[i])
        rows = [
            pinocchio.computeFrameJacobian(two.pin, two.data, at, two.frame(c.frame), pinocchio.ReferenceFrame.LOCAL)
            for c in FEET
        ]
        J = np.concatenate([row[:3] for row in rows])
        close(after[i], pinocchio.impulseDynamics(two.pin, two.data, at, v[i].numpy(), J, restitution, 0.0), 1e-9)
        close(impulses[i, :, :3].reshape(-1), two.data.impulse_c, 1e-9)
        close(J @ after[i].numpy(), -restitution * J @ v[i].numpy(), 1e-9)


def test_the_forces_are_those_that_external_forces_would_need_to_be():
    model = robot("go2")
    q, v, tau = states(model, 8)
    acceleration, forces = constrained_dynamics(model, q, v, tau, FEET, passive=True)
    acting = {c.frame: forces[:, k] for k, c in enumerate(FEET)}
    close(aba(model, q, v, tau, acting, passive=True), acceleration)
    assert float(forces[..., 3:].abs().max()) == 0.0


def test_external_forces_and_parameters_act():
    model = robot("go2")
    q, v, tau = states(model, 4)
    push = {"base": torch.randn(4, 6, dtype=torch.float64)}
    params = {"mass": 1.5 * model.parameters(dtype=torch.float64)["mass"]}
    acceleration, forces = constrained_dynamics(model, q, v, tau, FEET, push, params, reference="world")
    pushed = rnea(model, q, v, acceleration, push, params, reference="world")
    held = rnea(model, q, v, acceleration, {c.frame: forces[:, k] for k, c in enumerate(FEET)}, params)
    close(held + pushed - rnea(model, q, v, acceleration, None, params), tau)


def test_forces_of_frames_at_rest_do_no_work_and_loops_leave_the_momentum_alone():
    model = robot("g1")
    loop = FrameConstraint("left_rubber_hand", "right_rubber_hand")
    q, v, tau = states(model, 8)
    v, _ = impulse_dynamics(model, q, v, loop, regularization=EXACT)
    acceleration, forces = constrained_dynamics(model, q, v, tau, loop, regularization=EXACT)
    constraining = rnea(model, q, v, acceleration) - tau
    assert float(forces.abs().max()) > 10.0
    close((constraining * v).sum(-1), torch.zeros(8))
    close(constraining[:, :6], torch.zeros(8, 6))


def test_the_same_constraint_twice_shares_the_force():
    model = robot("go2")
    q, v, tau = states(model, 8)
    once = constrained_dynamics(model, q, v, tau, FEET, regularization=EXACT)
    twice = constrained_dynamics(model, q, v, tau, FEET + FEET)
    close(twice.acceleration, once.acceleration, 1e-9)
    close(twice.forces, torch.cat([once.forces, once.forces], 1) / 2, 1e-9)
    single = constrained_dynamics(model, q.float(), v.float(), tau.float(), FEET + FEET)
    close(single.acceleration, once.acceleration, 1e-3)
    close(single.forces[:, :4] + single.forces[:, 4:], once.forces, 1e-3)


def test_gradients_survive_a_constraint_that_is_given_twice():
    model = robot("iiwa7")
    held = FrameConstraint(tip(model))
    q, v, tau = (x.requires_grad_() for x in states(model, 4))
    weights = torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    once, twice = (
        torch.autograd.grad((constrained_dynamics(model, q, v, tau, held).acceleration * weights).sum(), (q, v, tau))
        for held in (held, (held, held))
    )
    for a, b in zip(once, twice, strict=True):
        close(b, a, 1e-8)


def test_float32_is_close_to_float64():
    model = robot("go2")
    q, v, tau = states(model, 200)
    exact = constrained_dynamics(model, q, v, tau, FEET, regularization=EXACT)
    single = constrained_dynamics(model, q.float(), v.float(), tau.float(), FEET)
    close(single.acceleration, exact.acceleration, 1e-4)
    close(single.forces, exact.forces, 1e-4)


def four_bar(tilt=(1.0, 0.0, 0.0, 0.0)):
    """A crank with a coupler on it, and a rocker, hinged to the ground about y; their ends meet at q = 0."""

    def rod(name, parent, position, length):
        across = 1.0 * length**2 / 12.0
        return Body(
            name,
            parent,
            Joint(name, "revolute", axis=(0.0, 1.0, 0.0)),
            position=position,
            mass=1.0,
            com=(length / 2.0, 0.0, 0.0),
            inertia=(1e-3, 0.0, 0.0, across, 0.0, across),
        )

    # At q = 0 every rod lies along x: 0.3 to 1.2, then the rocker from 1.9 back is turned by its placement.
    bodies = (
        rod("crank", WORLD, (0.0, 0.0, 0.0), 0.3),
        rod("coupler", 0, (0.3, 0.0, 0.0), 0.9),
        rod("rocker", WORLD, (0.8, 0.0, 0.0), 0.7),
    )
    turned = from_quaternion(tilt)
    frames = (
        Frame("end of coupler", 1, (0.9, 0.0, 0.0), turned),
        Frame("end of rocker", 2, (0.7, 0.0, 0.0)),
    )
    return Model("four_bar", bodies, frames)


def ends(model, q):
    """Where coupler and rocker end, in the plane."""
    crank, coupler, rocker = q[..., 0], q[..., 0] + q[..., 1], q[..., 2]
    first = torch.stack([0.3 * crank.cos() + 0.9 * coupler.cos(), -0.3 * crank.sin() - 0.9 * coupler.sin()], -1)
    second = torch.stack([0.8 + 0.7 * rocker.cos(), -0.7 * rocker.sin()], -1)
    return first, second


def energy(model, q, v):
    kinetic = 0.5 * (v * (crba(model, q) @ v[..., None])[..., 0]).sum(-1)
    crank, coupler, rocker = q[..., 0], q[..., 0] + q[..., 1], q[..., 2]
    heights = -0.15 * crank.sin() - (0.3 * crank.sin() + 0.45 * coupler.sin()) - 0.35 * rocker.sin()
    return kinetic + 9.81 * heights


@pytest.mark.parametrize("tilt", [(1.0, 0.0, 0.0, 0.0), (0.5, 0.5, -0.5, 0.5), (0.8, 0.0, 0.36, 0.48)])
def test_a_four_bar_linkage_keeps_its_loop_closed_and_its_energy(tilt):
    model = four_bar(tilt)
    loop = FrameConstraint("end of coupler", "end of rocker", "point")
    # Crank upright at first: the coupler reaches from (0, 0.3) to the end of the rocker by the law of cosines.
    apart = math.hypot(0.8, 0.3)
    down = math.atan2(0.3, 0.8)
    inner = math.acos((apart**2 + 0.9**2 - 0.7**2) / (2 * apart * 0.9))
    coupler = down - inner
    end = (0.9 * math.cos(coupler), 0.3 - 0.9 * math.sin(coupler))
    q = torch.tensor([-math.pi / 2, coupler + math.pi / 2, -math.atan2(end[1], end[0] - 0.8)], dtype=torch.float64)
    close(*ends(model, q))
    v, _ = impulse_dynamics(model, q, torch.tensor([6.0, 0.0, 0.0], dtype=torch.float64), loop)
    before, dt = energy(model, q, v), 1e-3
    assert float(v.abs().min()) > 0.1

    def slope(q, v):
        tau = torch.zeros(3, dtype=torch.float64)
        return v, constrained_dynamics(model, q, v, tau, loop, stabilization=(100.0, 20.0)).acceleration

    turned = 0.0
    for _ in range(1000):
        one = slope(q, v)
        two = slope(q + dt / 2 * one[0], v + dt / 2 * one[1])
        three = slope(q + dt / 2 * two[0], v + dt / 2 * two[1])
        four = slope(q + dt * three[0], v + dt * three[1])
        q, v = (
            x + dt / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip((q, v), one, two, three, four, strict=True)
        )
        turned += abs(float(dt * v[0]))
    first, second = ends(model, q)
    assert turned > 3.0
    assert float((first - second).abs().max()) < 1e-9
    assert abs(float(energy(model, q, v) - before)) < 1e-7 * abs(float(before))


def test_stabilization_closes_an_open_loop():
    model = four_bar()
    loop = FrameConstraint("end of coupler", "end of rocker", "point")
    q = torch.tensor([-1.5, 1.0, -1.9], dtype=torch.float64)
    v = torch.tensor([0.5, -0.3, 0.2], dtype=torch.float64)
    start = (ends(model, q)[0] - ends(model, q)[1]).norm()
    for _ in range(1000):
        pulled = constrained_dynamics(model, q, v, torch.zeros_like(v), loop, stabilization=(400.0, 40.0))
        v = v + 1e-3 * pulled.acceleration
        q = q + 1e-3 * v
    assert float(start) > 0.05
    assert float((ends(model, q)[0] - ends(model, q)[1]).norm()) < 0.01 * float(start)


def test_the_kernels_are_sound():
    model = four_bar()
    loop = FrameConstraint("end of coupler", "end of rocker", "point", position=(0.01, 0.0, -0.03))
    held = FrameConstraint("end of coupler", kind="point")

    def dynamics(q, v, tau):
        return constrained_dynamics(model, q, v, tau, loop, stabilization=(10.0, 3.0))

    def impact(q, v):
        return impulse_dynamics(model, q, v, held, 0.3)

    q, v, tau = torch.randn(3, 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    check_kernel(Function(dynamics, {"q": 3, "v": 3, "tau": 3}).kernel, [q, v, tau])
    check_kernel(Function(impact, {"q": 3, "v": 3}).kernel, [q, v])


def test_gradients_with_a_gripper_that_mimics_and_its_parameters():
    model = robot("panda")
    held = FrameConstraint(tip(model))
    q, v, tau = states(model, 4)
    mass = model.parameters(dtype=torch.float64)["mass"]
    generator = torch.Generator().manual_seed(5)
    push = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    leaves = [x.clone().requires_grad_() for x in (q, v, tau, push, mass)]
    weights = [torch.randn(4, *shape, generator=generator).double() for shape in ((model.nv,), (1, 6))]

    def scored(q, v, tau, push, mass):
        result = constrained_dynamics(
            model, q, v, tau, held, {model.bodies[3].name: push}, {"mass": mass}, stabilization=(2.0, 1.0)
        )
        return sum((r * w).sum() for r, w in zip(result, weights, strict=True))

    gradients = torch.autograd.grad(scored(*leaves), leaves)
    for k, gradient in enumerate(gradients):
        direction = torch.randn(leaves[k].shape, generator=generator, dtype=torch.float64)
        ahead, behind = (
            scored(*[x.detach() + (s * direction if i == k else 0.0) for i, x in enumerate(leaves)])
            for s in (1e-6, -1e-6)
        )
        close(((ahead - behind) / 2e-6)[None], (gradient * direction).sum()[None], 1e-6)


def test_errors_say_what_would_be_right():
    model = robot("go2")
    q, v, tau = states(model, 1)
    with pytest.raises(InputError, match="kinds: weld, point"):
        FrameConstraint("FL_foot", kind="hinge")
    with pytest.raises(InputError, match="unit quaternion"):
        FrameConstraint("FL_foot", rotation=(1.0, 1.0, 0.0, 0.0))
    with pytest.raises(InputError, match="3 finite numbers"):
        FrameConstraint("FL_foot", position=(0.0, math.nan, 0.0))
    with pytest.raises(InputError, match=r"no frame 'FL_hand'.*FL_foot"):
        constrained_dynamics(model, q, v, tau, FrameConstraint("FL_hand"))
    with pytest.raises(InputError, match="on one body"):
        constrained_dynamics(model, q, v, tau, FrameConstraint("FL_foot", "FL_calf"))
    with pytest.raises(InputError, match="one FrameConstraint or several"):
        impulse_dynamics(model, q, v, ["FL_foot"])
    with pytest.raises(InputError, match="one FrameConstraint or several"):
        impulse_dynamics(model, q, v, [])


def test_constraints_are_hashable_and_equal_by_content():
    one = FrameConstraint("a", "b", position=[1, 2, 3])
    assert one == FrameConstraint("a", "b", position=(1.0, 2.0, 3.0))
    assert len({one, dataclasses.replace(one), dataclasses.replace(one, kind="point")}) == 2
