"""Every robot of example-robot-data that loads, against Pinocchio."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import CORE, Reference, on_floats, samples, worst

from adjoin.dynamics.aba import aba, minverse
from adjoin.dynamics.call import compute
from adjoin.errors import InputError
from adjoin.io.load import load

sys.path.insert(0, str(Path(__file__).parents[1] / "io"))
from corpus import ACCEPT, LOADED, URDF_FOLDER

# Joints of these move nothing: links without mass at the tips are accepted flaws.
SINGULAR = {
    "bluevolta_description/urdf/bluevolta_bravo7_gripper.urdf": "bravo_finger2_joint",
    "bravo7_description/urdf/bravo7_gripper.urdf": "bravo_finger2_joint",
    "falcon_description/urdf/falcon_bravo7_gripper.urdf": "bravo_finger2_joint",
    "romeo_description/urdf/romeo.urdf": "LHand",
    "romeo_description/urdf/romeo_laas_small.urdf": "r_gripper_joint",
}
# Its eye links have almost no mass (M's condition number reaches 3e9), so an inverse has fewer digits than 1e-10.
NEARLY_SINGULAR = "icub_description/robots/icub.urdf"
# From this many degrees of freedom on, a hundred states over Python numbers take less time than a compilation.
LARGE = 24
STATES = 112  # full vectors of eight


def read(name):
    return load(URDF_FOLDER / "robots" / name, meshes="ignore", accept=ACCEPT.get(name, ()))


def ours(model, q, v, a, tau, quantities):
    if model.nv < LARGE:
        return compute(model, q, v, a, tau, quantities=list(quantities))
    rows = []
    for row in zip(q, v, a, tau, strict=True):
        state = on_floats(model, *row)
        rows.append([CORE[name](state) for name in quantities])
    return {name: np.array([row[i] for row in rows]) for i, name in enumerate(quantities)}


@pytest.mark.parametrize("name", LOADED)
def test_torques_matrix_and_accelerations_are_pinocchios(name):
    model = read(name)
    q, v, a, tau = samples(model, STATES)
    quantities = ("rnea", "crba") if name in SINGULAR else ("rnea", "crba", "aba")
    got, theirs = ours(model, q, v, a, tau, quantities), Reference(model).answers(q, v, a, tau, quantities)
    for quantity in quantities:
        tolerance = 1e-10
        if quantity == "aba" and name == NEARLY_SINGULAR:
            tolerance = np.finfo(float).eps * float(np.linalg.cond(theirs["crba"]).max())
        assert worst(got[quantity], theirs[quantity]) < tolerance, quantity


@pytest.mark.parametrize("name", SINGULAR)
def test_joints_that_move_nothing_are_named(name):
    model = read(name)
    q, v, _, tau = samples(model, 1)
    for call in (lambda: aba(model, q, v, tau), lambda: minverse(model, q)):
        with pytest.raises(InputError, match=f"joint '{SINGULAR[name]}' moves no mass and has no armature"):
            call()


@pytest.mark.parametrize("name", ["talos_data/robots/talos_reduced.urdf", "ur_description/urdf/ur5_robot.urdf"])
def test_on_a_floating_base_turning_fast(name):
    model = load(URDF_FOLDER / "robots" / name, meshes="ignore", floating_base=True)
    q, v, a, tau = samples(model, STATES)
    got, theirs = ours(model, q, v, a, tau, ("rnea", "crba", "aba")), Reference(model).answers(q, v, a, tau)
    for quantity, value in got.items():
        assert worst(value, theirs[quantity]) < 1e-10, quantity
    assert torch.linalg.vector_norm(v[:, 3:6], dim=-1).max() > 20.0
