"""When within a step something hits: its impulse acts from then on, not from the beginning of the step.

A step without this lets an impact act from its beginning, so that a ball that begins higher by dh comes out of the step
higher by dh. It should come out lower by the restitution times dh: the classical correction of a derivative at an
event (Aizerman and Gantmacher, Determination of stability by linear approximation of a periodic solution of a system of
differential equations with discontinuous right-hand sides, 1958), which the split step has in its values too.
"""

from typing import NamedTuple

from adjoin.constraints.blocks import Row
from adjoin.constraints.contact_model import ContactModel
from adjoin.spatial.scalar import Scalar
from adjoin.trace import minimum, select


class Impact(NamedTuple):
    """What something that only pushes does in a step.

    Attributes:
        offset: u of its row, if the velocity did not change.
        share: of the step that is over when it hits, from 0 to 1; 0 if it does not.
    """

    offset: Scalar
    share: Scalar


def impact(contact: ContactModel, row: Row, change: Scalar, dt: float) -> Impact:
    """Find when something hits at the velocity that it would have without constraints, and at what speed it parts.

    It hits at the speed of that time, parts with the restitution times as much, and then goes on to change its speed as
    it would without constraints.

    Args:
        contact: The constants of contact.
        row: The normal row.
        change: By how much its speed would change in the step without constraints.
        dt: The time step, s.
    """
    resting = contact.resting(row.gap, dt)
    ending = row.speed + change
    through = (row.gap + dt * ending < 0.0) & (ending < 0.0)
    after = select(row.gap > 0.0, row.gap / (-dt * select(through, ending, -1.0)), 0.0)
    share = select(through, minimum(after, 1.0), 0.0)
    hitting = row.speed + share * change
    bounces = through & (hitting < -contact.threshold) & (contact.restitution > 0.0)
    parting = minimum((1.0 + contact.restitution) * hitting - ending, 0.0)
    return Impact(row.speed + select(bounces, parting, resting), select(bounces, share, 0.0))
