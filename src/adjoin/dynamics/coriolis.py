"""The Coriolis matrix C, with Mdot - 2 C skew-symmetric.

Echeandia and Wensing 2021, Numerical methods to compute the Coriolis matrix and Christoffel symbols for rigid-body
systems: of all matrices with C v = the velocity's part of the bias forces, the one of Christoffel symbols of bodies.
"""

from collections.abc import Mapping

from adjoin.dynamics.call import Array, call
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.dynamics.subtrees import Subtrees
from adjoin.model.model import Model
from adjoin.spatial.scalar import Scalar


@quantity("coriolis_matrix", "q", "v", square=True)
def coriolis_matrix_of(state: State) -> list[list[Scalar]]:
    """Compute `coriolis_matrix` over scalars."""
    subtrees = Subtrees(state, state.v)
    return subtrees.coriolis(subtrees.rates(1.0))


def coriolis_matrix(model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the Coriolis matrix: C v is what the velocity adds to the bias forces, and Mdot - 2 C is skew-symmetric.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        C, (..., nv, nv).
    """
    return call("coriolis_matrix", model, q, v, params=params)
