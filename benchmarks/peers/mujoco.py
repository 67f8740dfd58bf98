"""MuJoCo on our quadrupeds; imported only where it is installed."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoin.io.urdf_write import to_urdf
from adjoin.model.model import Model

mujoco: Any = importlib.import_module("mujoco")


class MuJoCo:
    """One of our robots with its servos as MuJoCo has it, with a ground that only some of its shapes touch.

    Args:
        model: with servos.
        touching: names of the shapes that touch the ground.
        dt: seconds a step.
    """

    def __init__(self, model: Model, touching: list[str], dt: float):
        spec = mujoco.MjSpec.from_string(to_urdf(model))
        spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
        for shape in spec.geoms:
            shape.contype, shape.conaffinity = int(shape.name in touching), 0
        plane = mujoco.mjtGeom.mjGEOM_PLANE
        spec.worldbody.add_geom(name="ground", type=plane, size=[0.0, 0.0, 1.0], contype=0, conaffinity=1)
        for old in list(spec.actuators):
            spec.delete(old)
        for drive in model.actuators:
            added = spec.add_actuator(name=drive.name, target=drive.joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            added.gainprm[0] = drive.gain
            added.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            added.biasprm[:3] = drive.bias
        spec.option.timestep = dt
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        home = model.keyframe("home")
        spec.add_key(name="home", qpos=home.q, ctrl=home.control)
        self.model = spec.compile()
        self.text = spec.to_xml()
        self.name = f"MuJoCo {mujoco.__version__}"

    def stepping(self, q: np.ndarray, control: np.ndarray, steps: int) -> Callable[[], Any]:
        """A call that takes steps from rest, robot after robot on the thread that calls, and keeps all states.

        Args:
            q: (batch, nq).
            control: (nu,).
            steps: how many.
        """
        from mujoco import rollout

        data = mujoco.MjData(self.model)
        size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        start = np.zeros((len(q), size))
        start[:, 1 : 1 + q.shape[1]] = q
        into = np.empty((len(q), steps, size))
        controls = np.broadcast_to(control, (len(q), steps, len(control))).copy()

        def run() -> Any:
            return rollout.rollout(self.model, [data], start, controls, state=into)[0]

        return run
