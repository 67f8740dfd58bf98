"""What a kind of joint is: sizes, motion, limits, random samples, and its names in files and plots."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import torch

from adjoin.errors import InputError
from adjoin.spatial.motion import Spatial, Transform
from adjoin.spatial.rotation import Quaternion
from adjoin.spatial.scalar import Scalar, cos, is_number, sin
from adjoin.spatial.vector import scale
from adjoin.trace import maximum, minimum

if TYPE_CHECKING:
    from adjoin.model.joint import Joint

LocalMotion = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""q, v and a of a joint."""


@dataclass(frozen=True)
class Sampler:
    """A source of random tensors (*batch, size)."""

    batch: tuple[int, ...]
    generator: torch.Generator | None
    dtype: torch.dtype
    device: torch.device | str | None

    def uniform(self, low: float, high: float, size: int = 1) -> torch.Tensor:
        """Return numbers spread evenly from `low` to `high`."""
        options = {"generator": self.generator, "dtype": self.dtype, "device": self.device}
        return low + (high - low) * torch.rand(*self.batch, size, **options)

    def normal(self, size: int) -> torch.Tensor:
        """Return numbers of the standard normal distribution."""
        options = {"generator": self.generator, "dtype": self.dtype, "device": self.device}
        return torch.randn(*self.batch, size, **options)


class JointType:
    """A kind of joint. It has no state: what differs between joints of one kind is in `Joint`.

    A subclass gives `name`, `transform` and `directions`. The rest has defaults, which are those of a joint whose q
    moves by adding v (`additive`); one that moves otherwise overrides the methods that say how. Coordinates are
    sequences of scalars of any kind, nq for q and nv for v, so that tensors, floats and traced kernels share them.

    Attributes:
        name: `Joint.kind`, as files and digests have it.
        neutral: the q at which the body's frame is in the joint's placement; its length is nq.
        units: "rad" or "m" for each number of v; its length is nv.
        constants: names of the numbers in `Joint.constants`, such as the pitch of a screw.
        has_axis: whether `Joint.axis` has a meaning.
        additive: whether q moves by adding v.
        has_quaternion: whether the last four numbers of q are a unit quaternion [w x y z].
        wraps: whether the last number of q is an angle that means the same after a full turn.
        floating: whether the body moves freely: q begins with its position, and v is [linear; angular] in its axes.
        limited: what `Joint.lower` and `Joint.upper` bound: the one coordinate; the angle from neutral, by `upper`
            alone; or nothing.
        q_names: endings of the names of q's columns in a log; none where there is one number.
        v_names: the same for v.
        slider_names: names of the numbers that `to_sliders` returns, one for each degree of freedom; none for one.
        urdf: the joint's type in URDF files, if they have it.
        urdf_needs_limit: whether URDF demands a <limit> with lower and upper.
        mjcf: the joint's type in MJCF files, if they have it.
    """

    name: ClassVar[str]
    neutral: ClassVar[tuple[float, ...]] = (0.0,)
    units: ClassVar[tuple[str, ...]] = ("rad",)
    constants: ClassVar[tuple[str, ...]] = ()
    has_axis: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    has_quaternion: ClassVar[bool] = False
    wraps: ClassVar[bool] = False
    floating: ClassVar[bool] = False
    limited: ClassVar[Literal["coordinate", "angle"] | None] = "coordinate"
    q_names: ClassVar[tuple[str, ...]] = ("",)
    v_names: ClassVar[tuple[str, ...]] = ("",)
    slider_names: ClassVar[tuple[str, ...]] = ()
    urdf: ClassVar[str | None] = None
    urdf_needs_limit: ClassVar[bool] = False
    mjcf: ClassVar[str | None] = None
    __slots__ = ()

    @property
    def nq(self) -> int:
        """Return how many numbers of q a joint of this kind takes."""
        return len(self.neutral)

    @property
    def nv(self) -> int:
        """Return how many numbers of v a joint of this kind takes: its degrees of freedom."""
        return len(self.units)

    # Kinematics

    def transform(self, joint: "Joint", q: Sequence[Scalar]) -> Transform:
        """Return the pose of the body's frame in the joint's placement. Quaternions must have unit length."""
        raise NotImplementedError(f"joint type {self.name!r} has no transform")

    def directions(self, joint: "Joint") -> tuple[Spatial, ...]:
        """Return the motion subspace: a motion (angular, linear) for each number of v, constant in the body's frame."""
        raise NotImplementedError(f"joint type {self.name!r} has no directions")

    def quaternion(self, joint: "Joint", q: Sequence[Scalar]) -> Quaternion:
        """Return the rotation of `transform`; by default a turn about the axis by the last coordinate."""
        half = 0.5 * q[-1]
        return (cos(half), *scale(sin(half), joint.axis))

    # The configuration manifold

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        """Return the q reached by moving with v for unit time."""
        return [x + y for x, y in zip(q, v, strict=True)]

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        """Return dq/dt of a joint that moves with v."""
        return list(v)

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
        """Return the v that leads from q0 to q1 in unit time, the short way round."""
        return [y - x for x, y in zip(q0, q1, strict=True)]

    def difference_slopes(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[list[Scalar]]:
        """Return the derivative of `difference` to q1 on the tangent space, nv by nv."""
        return [[1.0 if i == k else 0.0 for k in range(self.nv)] for i in range(self.nv)]

    def normalize(self, q: Sequence[Scalar]) -> list[Scalar]:
        """Return the same configuration with a unit quaternion, or with its angle within one turn."""
        return list(q)

    # A step of semi-implicit Euler; see `simulation.euler`

    def drift(self, v: Sequence[Scalar]) -> list[Scalar]:
        """Return dv/dt of a body that nothing acts on: not zero where v is in axes that turn with the body."""
        return [0.0] * self.nv

    def advance(self, q: Sequence[Scalar], v: Sequence[Scalar], dt: Scalar) -> tuple[list[Scalar], list[Scalar]]:
        """Return the q after a time step, and v, given in the axes of the step's beginning, in the axes of its end."""
        return self.integrate(q, [dt * x for x in v]), list(v)

    def chart_rate(self, offset: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        """Return how fast coordinates about a configuration change where they are `offset`: those of `advance`.

        Args:
            offset: the coordinates: dt times the velocity that `advance` takes.
            v: the velocity there, in the axes of the configuration that they are about.
        """
        return list(v)

    def turned(self, q0: Sequence[Scalar], q1: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        """Return v, given in the axes of the body at q0, in those at q1."""
        return list(v)

    # Limits and ranges

    def clamp(self, q: Sequence[Scalar], lower: Scalar, upper: Scalar) -> list[Scalar]:
        """Return the nearest q inside the limits."""
        if self.limited != "coordinate":
            return list(q)
        x = maximum(q[0], lower) if is_bound(lower) else q[0]
        return [minimum(x, upper) if is_bound(upper) else x]

    def reach(self, joint: "Joint") -> tuple[float, ...]:
        """Return how far random samples and excitation move a joint without limits about its middle, nv numbers."""
        return tuple(math.pi if unit == "rad" else 1.0 for unit in self.units)

    def sample(self, joint: "Joint", lower: Sequence[float], upper: Sequence[float], sampler: Sampler) -> torch.Tensor:
        """Return random configurations inside the limits of q, (*batch, nq)."""
        ends = zip(lower, upper, self.reach(joint), strict=True)
        return torch.cat([sampler.uniform(*finite_range(*end)) for end in ends], -1)

    # Coordinates around a center, nv plain numbers; see `learn.local_coordinates`

    def local_coordinates(self, center: Sequence[Scalar], q: Sequence[Scalar]) -> list[Scalar]:
        """Return q in coordinates around a center, nv numbers."""
        return self.difference(center, q)

    def local_motion(
        self, center: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor
    ) -> LocalMotion:
        """Return q, v and a of local coordinates (..., nv) that have these first and second derivatives in time."""
        return center + value, rate, second

    def features(self, joint: "Joint", q: Sequence[Scalar]) -> list[Scalar]:
        """Return what a network reads of q: numbers without jumps, bounded where the joint turns freely."""
        return list(q)

    # The viewer

    def to_sliders(self, q: Sequence[float]) -> list[float]:
        """Return one number for each degree of freedom, as sliders show it."""
        return list(q)

    def from_sliders(self, joint: "Joint", numbers: Sequence[float]) -> list[float]:
        """Return the q that sliders say, inside the joint's limits."""
        return list(numbers)


JOINT_TYPES: dict[str, JointType] = {}
"""Every kind of joint by name."""

Kind = TypeVar("Kind", bound=JointType)


def joint_type(kind: type[Kind]) -> type[Kind]:
    """Register a subclass of `JointType` under its name; a class decorator.

    Raises:
        InputError: there is a kind of that name.
    """
    if kind.name in JOINT_TYPES:
        raise InputError(f"joint_type: there is a joint type {kind.name!r} already: {type(JOINT_TYPES[kind.name])!r}")
    JOINT_TYPES[kind.name] = kind()
    return kind


def finite_range(low: float, high: float, reach: float) -> tuple[float, float]:
    """Return a finite range: missing ends are twice the reach from the other end, or at the reach about 0."""
    if math.isinf(low) and math.isinf(high):
        return -reach, reach
    return (high - 2.0 * reach if math.isinf(low) else low), (low + 2.0 * reach if math.isinf(high) else high)


def is_bound(limit: Scalar) -> bool:
    """Return whether a limit bounds anything: it is traced, or a finite number."""
    return not (is_number(limit) and math.isinf(limit))
