"""The contact model of hard contact, whichever solver is used."""

from dataclasses import dataclass

from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Expr, maximum, minimum, select


@dataclass(frozen=True, kw_only=True)
class ContactModel:
    """The constants of contact and of other constraints.

    Calls of the simulator may pass each of the numbers in `params`, as `contact_<name>`.

    Attributes:
        error_reduction: the share of an error in position (a penetration, an open loop) that one step corrects.
        recovery: the greatest speed at which a penetration is corrected, m/s or rad/s; what was pushed out keeps it.
        softness: regularization, as a share of the inverse of the robot's mass: keeps impulses determined where
            several can do the same, as under the four corners of a box.
        restitution: speed after an impact over speed before it.
        threshold: speed of an impact below which nothing bounces, m/s.
        elliptic: whether friction is bounded by a cone instead of a pyramid.
    """

    error_reduction: Scalar = 0.2
    recovery: Scalar = 0.1
    softness: Scalar = 1e-4
    restitution: Scalar = 0.0
    threshold: Scalar = 0.1
    elliptic: bool = False

    def __post_init__(self):
        for name in self.parameters:
            value = getattr(self, name)
            if isinstance(value, Expr):
                continue
            if name in ("error_reduction", "restitution") and not 0.0 <= value <= 1.0:
                raise InputError(f"{type(self).__name__}: {name} must be between 0 and 1, got {value!r}")
            if not value >= 0.0:
                raise InputError(f"{type(self).__name__}: {name} must not be negative, got {value!r}")

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the numbers that calls may pass as `params`."""
        return ("error_reduction", "recovery", "softness", "restitution", "threshold")

    def approach(self, distance: Scalar, speed: Scalar, dt: float) -> Scalar:
        """What is added to the speed of something that only pushes, so that it need only not be negative.

        Args:
            distance: how far it is from touching, negative inside, m or rad.
            speed: at which it parts now, m/s or rad/s.
            dt: s.
        """
        bias = self.resting(distance, dt)
        traced = isinstance(self.restitution, Expr)
        if traced or self.restitution > 0.0:
            bounces = (speed < -self.threshold) & (distance + dt * speed < 0.0)
            bounces = bounces & (self.restitution > 0.0) if traced else bounces
            bias = select(bounces, minimum(bias, self.restitution * speed), bias)
        return bias

    def resting(self, distance: Scalar, dt: float) -> Scalar:
        """What is added to the speed of something that does not bounce; see `approach`."""
        apart = maximum(distance, 0.0) * (1.0 / dt)
        inside = maximum(minimum(distance, 0.0) * (self.error_reduction / dt), -self.recovery)
        return apart + inside
