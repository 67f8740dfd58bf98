"""Steps of MuJoCo's next to ours: one file, one start, the same controls."""

import mujoco
import numpy as np
import torch

import adjoin


def engines(xml, contact=None, **options):
    """MuJoCo's model with tight tolerances, and a simulator of the same file."""
    model = mujoco.MjModel.from_xml_string(xml)
    tighten(model)
    options.setdefault("self_collision", True)
    sim = adjoin.Simulator(adjoin.load(xml), model.opt.timestep, contact or adjoin.Newton(), **options)
    return model, sim


def tighten(model):
    """Let MuJoCo's solvers converge; what it does against slip beyond that is not simulated here."""
    model.opt.tolerance, model.opt.ls_tolerance, model.opt.ccd_tolerance = 1e-16, 1e-10, 1e-12
    model.opt.iterations = model.opt.ls_iterations = model.opt.ccd_iterations = 200
    model.opt.noslip_iterations = 0


def velocity_from_mujoco(model, q, v):
    """MuJoCo's velocity, with that of floating bodies in their own axes."""
    v = np.array(v)
    for j in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        place, start = model.jnt_qposadr[j], model.jnt_dofadr[j]
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, q[place + 3 : place + 7])
        v[start : start + 3] = matrix.reshape(3, 3).T @ v[start : start + 3]
    return v


def random_states(model, count, seed=0, speed=1.0, spread=0.3):
    """MuJoCo's data of random states near the beginning, with random controls and activations."""
    generator, data = np.random.default_rng(seed), mujoco.MjData(model)
    for _ in range(count):
        mujoco.mj_resetData(model, data)
        mujoco.mj_integratePos(model, data.qpos, spread * generator.standard_normal(model.nv), 1.0)
        data.qvel[:] = speed * generator.standard_normal(model.nv)
        data.ctrl[:] = generator.uniform(-1.0, 1.0, model.nu)
        data.act[:] = generator.uniform(0.0, 1.0, model.na)
        mujoco.mj_forward(model, data)
        yield data


def states_of(sim, model, datas):
    """Our state, controls and MuJoCo's state a step later, of several data."""
    start, expected = [], []
    for data in datas:
        start.append(
            (data.qpos.copy(), velocity_from_mujoco(model, data.qpos, data.qvel), data.ctrl.copy(), data.act.copy())
        )
        mujoco.mj_step(model, data)
        expected.append((data.qpos.copy(), velocity_from_mujoco(model, data.qpos, data.qvel), data.act.copy()))
    q, v, control, activation = (torch.tensor(np.array(x)) for x in zip(*start, strict=True))
    state = sim.state(q, v)
    if model.na:
        state = state.replace(memory={**state.memory, "activation": activation})
    return state, control, [torch.tensor(np.array(x)) for x in zip(*expected, strict=True)]


def difference(xml, count=8, contact=None, **options):
    """The largest difference of one step from random states, over how much the velocity changes."""
    picks = {key: options.pop(key) for key in ("seed", "speed", "spread") if key in options}
    model, sim = engines(xml, contact, **options)
    state, control, (q, v, activation) = states_of(sim, model, random_states(model, count, **picks))
    after = sim.step(state, control if model.nu else None)
    scale = max((v - state.v).abs().max().item(), 1e-3)
    parts = [(after.q - q).abs().max(), (after.v - v).abs().max()]
    if model.na:
        parts.append((after.memory["activation"] - activation).abs().max())
    return max(float(x) for x in parts) / scale
