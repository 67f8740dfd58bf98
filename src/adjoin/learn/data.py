"""Recorded motions: time, q, v, a, forces and controls, from memory, from CSV and from NPZ.

The columns of a CSV file, in any order, after one line with their names:

    time              s
    q:<joint>         rad or m; one column a number where a joint has more:
                      ball q:<joint>.qw .qx .qy .qz, planar .x .y .angle, free .x .y .z .qw .qx .qy .qz
    v:<joint>         the velocity; ball v:<joint>.wx .wy .wz, planar .vx .vy .w, free .vx .vy .vz .wx .wy .wz
    a:<joint>         dv/dt, named like v
    tau:<joint>       N m or N, named like v
    u:<actuator>      the control
    trajectory        0, 1, ...: which of several trajectories of the same length; optional

time and q must be there; of the others all columns or none. Joints that mimic others have no columns. An NPZ file has
arrays time (...), q (..., nq), v, a, tau (..., nv) and control (..., nu), in the order of the model.
"""

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from adjoin.errors import InputError, unknown_name
from adjoin.learn.archive import MAX_BYTES, read_npz
from adjoin.model.model import Model

GAP = 1.5
"""A step of time this many times as long as the median one is a gap."""

_ENCODING = "utf-8-sig"  # with or without the mark that spreadsheets begin a file with
_PREFIXES = {"q": "q", "v": "v", "a": "a", "tau": "tau", "control": "u"}

FilePath = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Recording(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Motions of a robot. As a data set its items are what the first dimension counts, each a dict of tensors.

    `recording[i]` also takes slices and lists of indices, so that a loader can fetch a batch at once:
    `DataLoader(recording, sampler=BatchSampler(RandomSampler(recording), 256, False), batch_size=None)`.

    Attributes:
        model: the robot.
        time: (...), s.
        q: configurations, (..., nq).
        v: velocities, (..., nv), or None.
        a: accelerations dv/dt, (..., nv), or None.
        tau: generalized forces, (..., nv), or None.
        control: (..., nu), or None.
    """

    model: Model
    time: torch.Tensor
    q: torch.Tensor
    v: torch.Tensor | None = None
    a: torch.Tensor | None = None
    tau: torch.Tensor | None = None
    control: torch.Tensor | None = None

    def __post_init__(self):
        lead = tuple(self.time.shape)
        if not lead:
            raise InputError("Recording: time must have at least one dimension")
        for name, value in self.tensors().items():
            wanted = lead if name == "time" else (*lead, len(columns(self.model, name)))
            if tuple(value.shape) != wanted:
                raise InputError(
                    f"Recording: {name} has shape {tuple(value.shape)}; {self.model.name!r} needs {wanted}"
                )
            if not bool((finite := value.isfinite()).all()):
                *sample, column = (~finite if name != "time" else ~finite[..., None]).nonzero()[0].tolist()
                whose = "time" if name == "time" else columns(self.model, name)[column]
                raise InputError(
                    f"Recording: {whose} of sample {', '.join(map(str, sample))} is {value[~finite][0]:g}; "
                    f"it must be finite"
                )

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that there are, by name."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: value for name, value in tensors.items() if value is not None}

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, index: Any) -> dict[str, torch.Tensor]:
        return {name: value[index] for name, value in self.tensors().items()}

    def need(self, who: str, *names: str) -> list[torch.Tensor]:
        """Return tensors by name, or raise `InputError` if one is not there."""
        tensors = self.tensors()
        for name in names:
            if name not in tensors:
                raise InputError(f"{who} needs {name!r}; the recording has {', '.join(tensors)}")
        return [tensors[name] for name in names]

    def to(self, *args: Any, **kwargs: Any) -> "Recording":
        """Return the recording in another dtype or on another device; arguments as of `torch.Tensor.to`."""
        return replace(self, **{name: value.to(*args, **kwargs) for name, value in self.tensors().items()})

    def at(self, index: Any) -> "Recording":
        """Return the recording of some items."""
        return replace(self, **self[index])

    def samples(self) -> "Recording":
        """Return the recording with one sample an item: all leading dimensions become one."""
        lead = self.time.ndim
        return replace(self, **{name: value.flatten(0, lead - 1) for name, value in self.tensors().items()})

    def windows(self, steps: int, stride: int | None = None) -> "Recording":
        """Return the recording cut into windows for multiple shooting.

        Args:
            steps: of each window, which has steps + 1 samples: the last is where the next one may begin. The control
                of that last sample is not part of the window's motion.
            stride: from the beginning of one window to that of the next; `steps` by default.

        Returns:
            Of shape (windows, steps + 1, ...): one window an item.
        """
        lead, length = self.time.ndim, self.time.shape[-1]
        stride = steps if stride is None else stride
        if not 1 <= steps < length or stride < 1:
            raise InputError(
                f"windows: steps must be 1 to {length - 1}, as there are {length} samples, and stride at least 1; "
                f"got {steps} and {stride}"
            )

        def cut(value: torch.Tensor) -> torch.Tensor:
            windows = value.unfold(lead - 1, steps + 1, stride)
            return windows.movedim(-1, lead).flatten(0, lead - 1).contiguous()

        return replace(self, **{name: cut(value) for name, value in self.tensors().items()})

    def batches(self, size: int, generator: torch.Generator | None = None) -> Iterator[dict[str, torch.Tensor]]:
        """Yield all items once, shuffled, in batches: as a DataLoader does, without its cost for each item."""
        order = torch.randperm(len(self), generator=generator).to(self.time.device)
        for chosen in order.split(size):
            yield self[chosen]

    def split(self, fraction: float = 0.8, generator: torch.Generator | None = None) -> "tuple[Recording, Recording]":
        """Return two recordings, of that fraction of the items and of the others, chosen at random, in their order."""
        count = round(fraction * len(self))
        if not 0 < count < len(self):
            raise InputError(f"split: {fraction:g} of {len(self)} items leaves one part empty")
        order = torch.randperm(len(self), generator=generator).to(self.time.device)
        return self.at(order[:count].sort().values), self.at(order[count:].sort().values)

    def check_time(self, source: str = "Recording") -> float:
        """Raise `InputError` where time does not grow evenly: the step of time in seconds otherwise.

        Args:
            source: what the message begins with.
        """
        _check_time(self.time, lambda place: f"{source}: sample {', '.join(map(str, place))}")
        return float(self.time.diff().median())

    def check_moves(self, least: float = 1e-3) -> None:
        """Raise `InputError` if a joint hardly moves, so that nothing can be learned about it.

        Args:
            least: range of q that counts as moving, rad or m.
        """
        spread = self.q.flatten(0, -2)
        spread = (spread.amax(0) - spread.amin(0)).tolist()
        still = []
        for joint, at in self.model.independent_joints:
            most = max(spread[at.q_slice])
            if most < least and not joint.type.floating:
                still.append(f"{joint.name} ({most:.1e})")
        if still:
            raise InputError(
                f"too little excitation: over all {self.time.numel()} samples q moves by less than {least:g} at "
                f"{', '.join(still)}; record a motion of these joints"
            )

    def save_csv(self, path: FilePath) -> None:
        """Write a CSV file; the columns are those at the top of this module."""
        flat = self.samples()
        values = [value if name != "time" else value[:, None] for name, value in flat.tensors().items()]
        names = [column for name in flat.tensors() for column in columns(self.model, name)]
        if self.time.ndim > 1:
            length = self.time.shape[-1]
            values.insert(0, torch.arange(len(flat)).to(self.time).div(length, rounding_mode="floor")[:, None])
            names.insert(0, "trajectory")
        table = torch.cat(values, -1).detach().cpu().double().numpy()
        header = [f'"{name}"' if "," in name else name for name in names]
        np.savetxt(path, table, delimiter=",", header=",".join(header), comments="", fmt="%.17g", encoding="utf-8")

    def save_npz(self, path: FilePath) -> None:
        """Write an NPZ file of the arrays that there are."""
        arrays: dict[str, Any] = {name: value.detach().cpu().numpy() for name, value in self.tensors().items()}
        with open(path, "wb") as file:
            np.savez(file, **arrays)


def columns(model: Model, name: str) -> list[str]:
    """Return the names of the columns of a quantity: "time", "q", "v", "a", "tau" or "control"."""
    if name == "time":
        return ["time"]
    if name == "control":
        return [f"u:{actuator.name}" for actuator in model.actuators]
    names = []
    for joint, _ in model.independent_joints:
        endings = joint.type.q_names if name == "q" else joint.type.v_names
        names += [f"{_PREFIXES[name]}:{joint.name}{ending and '.'}{ending}" for ending in endings]
    return names


def load_csv(
    path: FilePath,
    model: Model,
    *,
    ignore: Iterable[str] = (),
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Recording:
    """Read a log.

    Args:
        path: of a CSV file with the columns at the top of this module.
        model: the robot.
        ignore: columns to leave out.
        dtype: torch's default if not given.
        device: torch's default if not given.

    Returns:
        (samples, ...), or (trajectories, samples, ...) if there is a column "trajectory".

    Raises:
        InputError: a column is missing or unknown, something is not a finite number, time does not grow, or has a gap;
            the message has the file, the line and the column.
    """
    if (size := os.path.getsize(path)) > MAX_BYTES // 4:
        raise InputError(f"{path}: it has {size} bytes; the limit for a CSV file is {MAX_BYTES // 4}, use NPZ")
    try:
        return _load_csv(path, model, ignore, dtype, device)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from None


def _load_csv(
    path: FilePath,
    model: Model,
    ignore: Iterable[str],
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> Recording:
    with open(path, newline="", encoding=_ENCODING) as file:
        header = [name.strip() for name in next(csv.reader(file), [])]
    groups = _groups(str(path), model, header, set(ignore))
    table, lines = _numbers(path, header, sorted(place for places in groups.values() for place in places))
    shape: Sequence[int] = (len(table),)
    if "trajectory" in groups:
        shape = _trajectories(str(path), table[:, groups.pop("trajectory")[0]])
    time = torch.from_numpy(table[:, groups["time"][0]].reshape(shape))

    def line(place: Sequence[int]) -> str:
        return f"{path}, line {lines[int(np.ravel_multi_index(tuple(place), tuple(shape)))]}, column 'time'"

    _check_time(time, line)
    values: dict[str, Any] = {"time": time}
    for name, places in groups.items():
        if name != "time":
            values[name] = torch.from_numpy(table[:, places].reshape(*shape, len(places)))
    kind = dtype or torch.get_default_dtype()
    return Recording(model, **{name: value.to(device=device, dtype=kind) for name, value in values.items()})


def load_npz(
    path: FilePath, model: Model, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Recording:
    """Read a log.

    Args:
        path: of an NPZ file with the arrays at the top of this module.
        model: the robot.
        dtype: torch's default if not given.
        device: torch's default if not given.

    Raises:
        InputError: an array is missing, unknown or of the wrong shape, something is not finite, time does not grow, or
            has a gap.
    """
    known = [field.name for field in fields(Recording)[1:]]
    arrays = read_npz(path)
    for name in arrays:
        if name not in known:
            raise InputError(f"{path}: {unknown_name('array', 'arrays', name, known)}")
    for name in ("time", "q"):
        if name not in arrays:
            raise InputError(f"{path}: no array {name!r}; it has {', '.join(arrays) or 'none'}")
    kind = dtype or torch.get_default_dtype()
    values: dict[str, Any] = {name: torch.from_numpy(np.asarray(x, dtype=np.float64)) for name, x in arrays.items()}
    try:
        recording = Recording(model, **values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    recording.check_time(str(path))
    return recording.to(device=device, dtype=kind)


def _groups(path: str, model: Model, header: list[str], ignore: set[str]) -> dict[str, list[int]]:
    """The indices of the columns of each quantity that is there."""
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(f"{path}, line 1: column {twice!r} is there twice")
    wanted = {name: columns(model, name) for name in ("time", *_PREFIXES)}
    known = {column for names in wanted.values() for column in names}
    for name in header:
        if name not in known and name not in ignore and name != "trajectory":
            unknown = unknown_name("column", "columns of this robot", name, [*wanted["time"], *wanted["q"]])
            raise InputError(
                f"{path}, line 1: {unknown}, "
                f"and v:, a:, tau: of the same joints, u: of actuators; leave others out with ignore=[{name!r}]"
            )
    indices = {}
    for name, expected in wanted.items():
        missing = [column for column in expected if column not in header]
        if missing and (len(missing) < len(expected) or name in ("time", "q")):
            raise InputError(f"{path}, line 1: columns missing: {', '.join(missing)}")
        if expected and not missing:
            indices[name] = [header.index(column) for column in expected]
    if "trajectory" in header and "trajectory" not in ignore:
        indices["trajectory"] = [header.index("trajectory")]
    return indices


def _numbers(path: FilePath, header: list[str], used: list[int]) -> tuple[np.ndarray[Any, Any], list[int]]:
    """The table, in which columns that are not used are 0, and the line of the file that each row is from."""
    with open(path, encoding=_ENCODING) as file:
        lines = {number: line for number, line in enumerate(file, 1) if line.strip() and number > 1}
    if len(lines) < 2:
        raise InputError(f"{path}: at least two lines of numbers are needed")
    try:
        read = np.loadtxt(list(lines.values()), delimiter=",", usecols=used, ndmin=2, quotechar='"', comments=None)
    except ValueError:
        read = np.full((1, 1), np.nan)
    if not np.isfinite(read).all():
        _find_flaw(path, header, used)
        raise InputError(f"{path}: not a table of numbers")
    table = np.zeros((len(read), len(header)))
    table[:, used] = read
    return table, list(lines)


def _find_flaw(path: FilePath, header: list[str], used: list[int]) -> None:
    """Raise `InputError` for the first thing that is not a finite number."""
    with open(path, newline="", encoding=_ENCODING) as file:
        for number, row in enumerate(csv.reader(file), 1):
            if number == 1 or not row:
                continue
            if len(row) != len(header):
                raise InputError(f"{path}, line {number}: {len(row)} columns, the first line names {len(header)}")
            for place in used:
                try:
                    fine = bool(np.isfinite(float(row[place])))
                except ValueError:
                    fine = False
                if not fine:
                    raise InputError(
                        f"{path}, line {number}, column {header[place]!r}: {row[place]!r} is not a finite number"
                    )


def _trajectories(path: str, numbers: np.ndarray[Any, Any]) -> tuple[int, int]:
    """How many there are, and of how many samples."""
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    lengths = np.diff(starts, append=len(numbers))
    if not np.array_equal(numbers[starts], np.arange(len(starts))):
        raise InputError(f"{path}, column 'trajectory': the numbers must be 0, 1, ... in order")
    if len(set(lengths.tolist())) > 1:
        raise InputError(
            f"{path}, column 'trajectory': the trajectories have {', '.join(map(str, lengths[:8].tolist()))} samples; "
            f"they must be of one length: read trajectories of other lengths from files of their own"
        )
    return len(starts), int(lengths[0])


def _check_time(time: torch.Tensor, where: Any) -> None:
    if time.shape[-1] < 2 or not time.numel():
        raise InputError(f"{where([0] * time.ndim)}: at least two samples are needed")
    steps = time.diff()
    median = float(steps.median())
    for wrong, what in ((steps <= 0.0, "time does not grow"), (steps > GAP * median, "a gap")):
        if bool(wrong.any()):
            *lead, k = wrong.nonzero()[0].tolist()
            before, after = float(time[(*lead, k)]), float(time[(*lead, k + 1)])
            hint = f"the usual step is {median:g} s; cut the log there" if what == "a gap" else "sort or cut the log"
            raise InputError(f"{where([*lead, k + 1])}: {what}: {after:g} s comes after {before:g} s; {hint}")
