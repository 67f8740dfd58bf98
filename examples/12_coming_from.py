"""Coming from Pinocchio, differentiable-robot-model, MuJoCo, MJX or BARD: the same calls side by side.

One learns: what a call of theirs is called here, where conventions differ, and that the numbers agree. A library that
is not installed is left out. docs/coming_from.md has the whole table of names.
"""

import argparse
import importlib
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import adjoin

HAND = "iiwa_link_7"
LEFT_OUT = rb'<(visual|collision|adjoin)\b.*?</\1>|<joint[^>]*"fixed".*?</joint>|<link name="iiwa_link_ee"/>'
SOURCE = re.sub(LEFT_OUT, b"", adjoin.robots.source("iiwa7"), flags=re.DOTALL)
Calls = dict[str, tuple[Any, str]]  # their name -> what theirs gives, and our name


def ours(arm: adjoin.Model, q: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    """Ours, by name: the model first, then tensors of any batch shape."""
    sim = adjoin.Simulator(arm.with_motors(), dt=2e-3, pairs=[], limits=False)
    return {
        "forward_kinematics": lambda: adjoin.forward_kinematics(arm, q, HAND),
        "jacobian": lambda: adjoin.jacobian(arm, q, HAND, reference="local_world_aligned"),
        "rnea": lambda: adjoin.rnea(arm, q, v, a),
        "rnea, passive=True": lambda: adjoin.rnea(arm, q, v, a, passive=True),
        "crba": lambda: adjoin.crba(arm, q),
        "aba": lambda: adjoin.aba(arm, q, v, a),
        "Simulator.step": lambda: sim.step(sim.state(q, v), a).v,
    }


def each(call: Callable[..., Any], *given: torch.Tensor) -> np.ndarray:
    return np.stack([np.array(call(*state)) for state in zip(*[x.numpy() for x in given], strict=True)])


def pinocchio(file: str, q: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> Calls:
    """One state at a time. Quaternions are [x y z w] there and [w x y z] here; siblings are sorted by name there."""
    pin: Any = importlib.import_module("pinocchio")
    model = pin.buildModelFromUrdf(file)
    data, frame, axes = model.createData(), model.getFrameId(HAND), pin.LOCAL_WORLD_ALIGNED

    def placed(q: Any) -> Any:
        pin.framesForwardKinematics(model, data, q)
        return data.oMf[frame].homogeneous

    return {
        "framesForwardKinematics": (each(placed, q), "forward_kinematics"),
        "computeFrameJacobian": (each(lambda q: pin.computeFrameJacobian(model, data, q, frame, axes), q), "jacobian"),
        "rnea": (each(lambda *state: pin.rnea(model, data, *state), q, v, a), "rnea"),
        "crba": (each(lambda q: pin.crba(model, data, q), q), "crba"),
        "aba": (each(lambda *state: pin.aba(model, data, *state), q, v, a), "aba"),
    }


def drm(file: str, q: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> Calls:
    """Single precision. With `adjoin.compat.differentiable_robot_model` in its place a program runs as it is."""
    warnings.simplefilter("ignore", ResourceWarning)  # its parser leaves the file open
    robot: Any = importlib.import_module("differentiable_robot_model.robot_model").DifferentiableRobotModel(file)
    tau = robot.compute_inverse_dynamics(*[x.float() for x in (q, v, a)])
    return {"compute_inverse_dynamics": (tau, "rnea, passive=True")}


def mujoco(file: str, q: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> Calls:
    """One state at a time. Damping of joints counts in mj_inverse. Free joints: linear velocity in world axes there."""
    mj: Any = importlib.import_module("mujoco")
    data = mj.MjData(model := mj.MjModel.from_xml_path(file))

    def after(call: Callable[..., None], **given: Any) -> Any:
        for key, value in given.items():
            getattr(data, key)[:] = value
        call(model, data)
        return data

    inverse = each(lambda q, v, a: after(mj.mj_inverse, qpos=q, qvel=v, qacc=a).qfrc_inverse, q, v, a)
    step = each(lambda q, v, a: after(mj.mj_step, qpos=q, qvel=v, qfrc_applied=a).qvel, q, v, a)
    return {"mj_inverse": (inverse, "rnea, passive=True"), "mj_step": (step, "Simulator.step")}


def mjx(file: str, q: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> Calls:
    """Batches by jax.vmap and jax.jit; here by batch shapes, and kernels compile when first called."""
    jax, mj, mjx = (importlib.import_module(name) for name in ("jax", "mujoco", "mujoco.mjx"))
    jax.config.update("jax_enable_x64", True)
    data = mjx.make_data(model := mjx.put_model(mj.MjModel.from_xml_path(file)))
    step = jax.jit(jax.vmap(lambda q, v, a: mjx.step(model, data.replace(qpos=q, qvel=v, qfrc_applied=a)).qvel))
    return {"mjx.step": (np.array(step(*[x.numpy() for x in (q, v, a)])), "Simulator.step")}


def main(quick: bool = False, folder: Path | None = None) -> None:
    count, file = 5 if quick else 100, (folder or Path(tempfile.mkdtemp())) / "arm.urdf"
    file.write_bytes(SOURCE)
    arm = adjoin.load(file)
    q, v, a = arm.random((count,), dtype=torch.float64), *torch.randn(2, count, arm.nv, dtype=torch.float64)
    calls = ours(arm, q, v, a)
    for peer in (pinocchio, drm, mujoco, mjx):
        print(f"\n{peer.__name__}: {peer.__doc__}")
        try:
            for name, (theirs, our) in peer(str(file), q, v, a).items():
                expected = calls[our]()
                off = (torch.as_tensor(theirs) - expected).abs().max() / expected.abs().max()
                print(f"  {name:<34} adjoin.{our:<19} differ by {off:.0e}")
        except ImportError as missing:
            print(f"  not run: {missing}")
    print("\nbard: not run. FK, Jacobian, RNEA, CRBA and ABA of its paper have the names of Pinocchio's here.")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer states")
    options.add_argument("--folder", type=Path, help="where the robot's file goes")
    main(**vars(options.parse_args()))
