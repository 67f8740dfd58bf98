"""What holds where bodies touch, whichever solver is used."""

from dataclasses import dataclass

from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Expr, maximum, minimum, select


@dataclass(frozen=True, kw_only=True)
class Law:
    """The constants of contact and of other constraints.

    Attributes:
        error_reduction: the share of an error in position (a penetration, an open loop) that one step corrects.
        recovery: the greatest speed at which a penetration is corrected, m/s or rad/s; what was pushed out keeps it.
        softness: regularization, as a share of the inverse of the robot's mass: keeps impulses determined where
            several can do the same, as under the four corners of a box.
        restitution: speed after an impact over speed before it; the simulator takes it among `params` too.
        threshold: speed of an impact below which nothing bounces, m/s.
        elliptic: whether friction is bounded by a cone instead of a pyramid.
    """

    error_reduction: float = 0.2
    recovery: float = 0.1
    softness: float = 1e-4
    restitution: Scalar = 0.0
    threshold: float = 0.1
    elliptic: bool = False

    def __post_init__(self):
        for name in ("error_reduction", "restitution"):
            if not isinstance(getattr(self, name), Expr) and not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{type(self).__name__}: {name} must be between 0 and 1, got {getattr(self, name)!r}")
        for name in ("recovery", "softness", "threshold"):
            if not getattr(self, name) >= 0.0:
                raise InputError(f"{type(self).__name__}: {name} must not be negative, got {getattr(self, name)!r}")

    def approach(self, distance: Scalar, speed: Scalar, dt: float) -> Scalar:
        """What is added to the speed of something that only pushes, so that it need only not be negative.

        Args:
            distance: how far it is from touching, negative inside, m or rad.
            speed: at which it parts now, m/s or rad/s.
            dt: s.
        """
        apart = maximum(distance, 0.0) * (1.0 / dt)
        inside = maximum(minimum(distance, 0.0) * (self.error_reduction / dt), -self.recovery)
        bias = apart + inside
        traced = isinstance(self.restitution, Expr)
        if traced or self.restitution > 0.0:
            bounces = (speed < -self.threshold) & (distance + dt * speed < 0.0)
            bounces = bounces & (self.restitution > 0.0) if traced else bounces
            bias = select(bounces, minimum(bias, self.restitution * speed), bias)
        return bias
