"""MJCFs and the robots that ship against MuJoCo: inertia matrix, bias, inverse and forward dynamics, forces, springs.

MuJoCo's free joint has its linear velocity in world axes, ours in the body's: u = T v with T = diag(R, 1), so that
du/dt = T a + T' v with T' v = R (omega x v), forces are Tᵀ of MuJoCo's, and M is Tᵀ M T.
"""

import functools
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import samples, worst

import adjoin
from adjoin.dynamics.call import compute
from adjoin.dynamics.energy import kinetic_energy, potential_energy
from adjoin.dynamics.passive import passive_forces
from adjoin.errors import ModelWarning
from adjoin.io.load import load
from adjoin.model.parts import WORLD
from adjoin.spatial.rotation import from_quaternion, to_quaternion

sys.path.insert(0, str(Path(__file__).parents[1] / "io"))
from corpus import MJCFS

mujoco = pytest.importorskip("mujoco")

STATES = 112  # full vectors of eight
MOVING = [name for name in MJCFS if name != "mujoco/msh.xml"]  # msh.xml has meshes only

# MuJoCo has followers only as soft constraints (Panda's second finger) and refuses links without mass (the humanoid's,
# the hopper's and the cheetah's, whose MJCFs are among those above).
ZOO = [name for name in adjoin.robots.names() if name not in ("panda", "humanoid", "hopper", "half_cheetah")]

EVERY_JOINT = """
<mujoco>
  <option gravity="0.5 -1 -9"/>
  <worldbody>
    <body name="base" pos="0.1 0.2 0.3" euler="10 20 30">
      <freejoint/>
      <geom type="box" size="0.1 0.2 0.3" pos="0.05 0 0.02" euler="5 0 40"/>
      <body name="arm" pos="0.3 -0.1 0.2" euler="0 50 10">
        <joint type="ball" pos="0.05 0.1 0" stiffness="4" damping="0.3" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0 0.1 0.3 0.2" size="0.05"/>
        <body name="hand" pos="0.1 0.3 0.2">
          <joint type="hinge" axis="1 0 1" pos="0.02 0 0.05" stiffness="2" springref="25" damping="0.1" ref="15"/>
          <joint type="hinge" axis="0 1 0" pos="-0.02 0.03 0" armature="0.02" damping="0.2"/>
          <joint type="slide" axis="1 2 -1" stiffness="30" springref="0.1" damping="2"/>
          <geom type="ellipsoid" size="0.1 0.05 0.07" pos="0 0 0.1"/>
        </body>
      </body>
      <body name="wheel" pos="-0.2 0 0">
        <joint type="hinge" axis="0 1 0" damping="0.05"/>
        <geom type="cylinder" size="0.1 0.02" euler="90 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    # MuJoCo writes MUJOCO_LOG.TXT into the working folder when a file uses deprecated attributes.
    monkeypatch.chdir(tmp_path)


def quiet(m):
    """MuJoCo's model without contacts and what else we do not simulate: only the rigid-body dynamics is left."""
    flags = mujoco.mjtDisableBit
    m.opt.disableflags |= int(flags.mjDSBL_CONSTRAINT) | int(flags.mjDSBL_ACTUATION)
    m.opt.density = m.opt.viscosity = 0.0
    m.opt.wind[:] = 0.0
    m.tendon_stiffness[:] = m.tendon_damping[:] = m.tendon_armature[:] = 0.0
    return m


def mirrored(model):
    """One of our models as MuJoCo's, body by body in the same order."""
    spec = mujoco.MjSpec()
    spec.option.gravity = model.gravity
    kinds = mujoco.mjtJoint
    types = {"free": kinds.mjJNT_FREE, "prismatic": kinds.mjJNT_SLIDE}
    made = {WORLD: spec.worldbody}
    for index, body in enumerate(model.bodies):
        xx, xy, xz, yy, yz, zz = body.inertia
        made[index] = made[body.parent].add_body(
            name=body.name,
            pos=body.position,
            quat=to_quaternion(body.rotation),
            mass=body.mass,
            ipos=body.com,
            fullinertia=[xx, yy, zz, xy, xz, yz],
            explicitinertial=True,
        )
        joint = made[index].add_joint(name=body.joint.name, type=types.get(body.joint.kind, kinds.mjJNT_HINGE))
        if body.joint.kind != "free":
            own = body.joint
            joint.axis, joint.armature, joint.springref = own.axis, own.armature[0], own.spring_reference[0]
            joint.damping, joint.stiffness = [own.damping[0], 0, 0], [own.stiffness[0], 0, 0]
    return spec.compile()


@functools.cache
def pair(name):
    """MuJoCo's model and ours in a vacuum, with slack tendons and without dry friction, a constraint in MuJoCo."""
    if name == "every joint":
        m, model = mujoco.MjModel.from_xml_string(EVERY_JOINT), load(EVERY_JOINT)
    elif name in ZOO:
        model = adjoin.robots.load(name)
        m = mirrored(model)
    else:
        try:
            m = mujoco.MjModel.from_xml_path(str(MJCFS[name]))
        except ValueError as error:
            pytest.skip(f"MuJoCo {mujoco.__version__} does not read it: {error}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)
            model = load(MJCFS[name], unsupported="warn")
    slack = {name: torch.zeros(len(model.tendons)) for name in ("tendon_stiffness", "tendon_damping")}
    model = replace(model, medium=type(model.medium)())
    return quiet(m), model.with_parameters({"friction": torch.zeros(model.nv), **slack})


def turned(model, q, v):
    """T, and T' v."""
    T, drift = np.eye(model.nv), np.zeros(model.nv)
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        if joint.kind == "free":
            here = slice(at.v, at.v + 3)
            T[here, here] = from_quaternion(tuple(q[at.q + 3 : at.q + 7]))
            drift[here] = T[here, here] @ np.cross(v[at.v + 3 : at.v + 6], v[here])
    return T, drift


@pytest.mark.parametrize("name", ["every joint", *MOVING, *ZOO])
def test_inertia_bias_inverse_and_forward_dynamics(name):
    m, model = pair(name)
    data = mujoco.MjData(m)
    q, v, a, tau = samples(model, STATES)
    passive = {"passive": True}
    ours = compute(
        model,
        q,
        v,
        a,
        tau,
        quantities={"M": "crba", "bias": "bias_forces", "inverse": ("rnea", passive), "forward": ("aba", passive)},
    )
    theirs = {key: [] for key in ours}
    for q_, v_, a_, tau_ in zip(*(x.numpy() for x in (q, v, a, tau)), strict=True):
        T, drift = turned(model, q_, v_)
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q_, T @ v_, T @ tau_
        mujoco.mj_forward(m, data)
        M = np.zeros((m.nv, m.nv))
        mujoco.mj_fullM(m, data, M)
        theirs["M"].append(T.T @ M @ T)
        theirs["bias"].append(T.T @ (data.qfrc_bias + M @ drift))
        theirs["forward"].append(T.T @ (data.qacc - drift))
        data.qacc[:] = T @ a_ + drift
        mujoco.mj_inverse(m, data)
        theirs["inverse"].append(T.T @ data.qfrc_inverse)
    assert not data.ncon
    for key, expected in theirs.items():
        assert worst(ours[key], expected) < 1e-10, key


@pytest.mark.parametrize("name", ["every joint", "gymnasium/ant.xml", "gymnasium/humanoid.xml"])
def test_forces_on_bodies(name):
    # MuJoCo's act at the center of mass, in world axes; ours at the frame's origin.
    m, model = pair(name)
    data = mujoco.MjData(m)
    q, v, _, tau = samples(model, 8)
    links = [mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_BODY, body) for body in range(m.nbody)]
    chosen = {link: body for body, link in enumerate(links) if body and link}
    wrenches = torch.randn(8, len(chosen), 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved, theirs = wrenches.clone(), []
    for i in range(8):
        T, drift = turned(model, q[i].numpy(), v[i].numpy())
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q[i], T @ v[i].numpy(), T @ tau[i].numpy()
        for k, body in enumerate(chosen.values()):
            data.xfrc_applied[body] = wrenches[i, k]
        mujoco.mj_forward(m, data)
        for k, body in enumerate(chosen.values()):
            arm = data.xipos[body] - data.xpos[body]
            moved[i, k, 3:] += torch.from_numpy(np.cross(arm, wrenches[i, k, :3].numpy()))
        theirs.append(T.T @ (data.qacc - drift))
    ours = compute(
        model,
        q,
        v,
        tau=tau,
        quantities={"a": ("aba", {"passive": True})},
        external={link: moved[:, k] for k, link in enumerate(chosen)},
        reference="local_world_aligned",
    )["a"]
    assert worst(ours, theirs) < 1e-10


def test_springs_damping_and_energy():
    m, model = pair("every joint")
    m.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    data = mujoco.MjData(m)
    q, v, _, _ = samples(model, STATES, spin=1.0)
    forces, energies = [], []
    for q_, v_ in zip(q.numpy(), v.numpy(), strict=True):
        T, _ = turned(model, q_, v_)
        data.qpos[:], data.qvel[:] = q_, T @ v_
        mujoco.mj_forward(m, data)
        forces.append(T.T @ data.qfrc_passive)
        energies.append([data.energy[1], data.energy[0]])
    assert np.abs(forces).max(0)[6:].min() > 0.01
    assert worst(passive_forces(model, q, v), forces) < 1e-10
    ours = torch.stack([kinetic_energy(model, q, v), potential_energy(model, q, springs=True)], -1)
    assert worst(ours, energies) < 1e-10
