"""The spaces of an environment, as gymnasium has them."""

from typing import Any

import numpy as np

from adjoin.extras import needed
from adjoin.rl.environment import Environment


def boxes(environment: Environment) -> tuple[Any, Any]:
    """Return the spaces of observations and of actions of one environment."""
    box = needed("gymnasium", "gymnasium", "a space").spaces.Box
    observation = box(-np.inf, np.inf, (environment.observation_size,), np.float32)
    return observation, box(-1.0, 1.0, (environment.action_size,), np.float32)
