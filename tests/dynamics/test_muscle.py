"""Muscles against MuJoCo's own functions, over lengths and speeds."""

import numpy as np
import pytest

from adjoin.dynamics.muscle import muscle_gain

mujoco = pytest.importorskip("mujoco")


@pytest.mark.parametrize("force", [-1.0, 30.0])
def test_active_force_is_that_of_mujoco(force):
    parameters = np.array([0.75, 1.05, force, 200.0, 0.5, 1.6, 1.5, 1.3, 1.2])
    lengths, acceleration = np.array([0.2, 0.5]), 2.5
    for length in np.linspace(0.05, 1.0, 40):
        for rate in (-2.0, -0.3, 0.0, 0.2, 1.5):
            expected = mujoco.mju_muscleGain(length, rate, lengths, acceleration, parameters)
            gain, _ = muscle_gain(length, rate, [*parameters, *lengths, acceleration])
            assert float(gain) == pytest.approx(expected, rel=1e-12, abs=1e-12)
