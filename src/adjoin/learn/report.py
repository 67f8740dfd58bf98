"""Reports of identification: estimates, standard errors, and what the data do not determine.

With the Jacobian J of the residuals, JᵀJ over the variance of the noise is the Fisher information. The variance is
estimated for each channel (the last dimension of the residuals), and the errors are those of least squares under it,
(JᵀJ)⁻¹ Jᵀ Sigma J (JᵀJ)⁻¹. What lies in the null space of J changes nothing in the data: it is reported in words.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adjoin.errors import InputError
from adjoin.extras import needed
from adjoin.learn.jacobian import Residuals, flatten, jacobian, pieces, raw_numbers
from adjoin.learn.losses import nmse
from adjoin.learn.parameters import Parameters
from adjoin.model import parameters

_MAX_PLOTTED = 8
_COMPONENTS = {2: "0 1", 3: "x y z", 4: "w x y z", 5: "0 1 2 3 4", 6: "xx xy xz yy yz zz"}


@dataclass(frozen=True, eq=False)
class Report:
    """The result of an identification.

    Attributes:
        names: of what was learned, as "mass of link3".
        units: of each.
        estimate: (n,).
        error: standard errors, (n,); inf for what is not identifiable.
        unidentifiable: what the data say nothing about, in sentences: what nothing depends on, and combinations.
        noise: standard deviation of the residuals of each channel.
        channels: their names.
        residuals: predicted less measured, (..., channels).
        measured: what was measured, in the same units, if it was given.
        time: of the samples, if it was given.
    """

    names: list[str]
    units: list[str]
    estimate: torch.Tensor
    error: torch.Tensor
    unidentifiable: list[str]
    noise: torch.Tensor
    channels: list[str]
    residuals: torch.Tensor
    measured: torch.Tensor | None = None
    time: torch.Tensor | None = None

    def __getitem__(self, name: str) -> tuple[float, float]:
        """Estimate and standard error by name."""
        if name not in self.names:
            raise InputError(f"no estimate {name!r}; estimates: {', '.join(self.names)}")
        k = self.names.index(name)
        return float(self.estimate[k]), float(self.error[k])

    @property
    def identifiable(self) -> torch.Tensor:
        """Which of the estimates the data determine, (n,) of booleans."""
        return self.error.isfinite()

    @property
    def nmse(self) -> float | None:
        """The normalized mean squared error, if it is known what was measured."""
        if self.measured is None:
            return None
        return float(nmse(self.measured + self.residuals, self.measured))

    def __str__(self) -> str:
        width = max([len(name) for name in self.names] + [4])
        lines = [f"{'what':<{width}}  {'estimate':>12}  {'std. error':>10}  {'%':>7}  unit"]
        for name, unit, value, error in zip(
            self.names, self.units, self.estimate.tolist(), self.error.tolist(), strict=True
        ):
            if error == torch.inf:
                columns = f"{'-':>10}  {'-':>7}"
            else:
                share = f"{100.0 * error / abs(value):7.2g}" if value else f"{'-':>7}"
                columns = f"{error:10.3g}  {share}"
            note = (
                "  not identifiable" if error == torch.inf else "  not told apart from 0" if error > abs(value) else ""
            )
            lines.append(f"{name:<{width}}  {value:12.6g}  {columns}  {unit}{note}")
        if self.unidentifiable:
            lines += ["", "The data do not determine:", *[f"  - {said}" for said in self.unidentifiable]]
        noise = ", ".join(
            f"{name} {value:.3g}" for name, value in zip(self.channels[:12], self.noise.tolist(), strict=False)
        )
        more = f", ... ({len(self.channels) - 12} more)" if len(self.channels) > 12 else ""
        lines += ["", f"{self.residuals.numel()} residuals; standard deviation: {noise}{more}"]
        if (share := self.nmse) is not None:
            lines.append(f"normalized mean squared error {share:.3g}")
        return "\n".join(lines)

    def plot(self) -> Any:
        """A matplotlib figure, a row a channel: the first motion, measured and predicted, and residuals of all."""
        count = min(len(self.channels), _MAX_PLOTTED)
        length = self.residuals.shape[-2]
        time = torch.arange(length) if self.time is None else self.time.reshape(-1, length)[0].detach().cpu()
        again = (time.diff() <= 0.0).nonzero().flatten().tolist()  # where another motion begins
        first = slice(again[0] + 1 if again else length)
        time, residuals = time[first], self.residuals.reshape(-1, length, len(self.channels))[0, first].detach().cpu()
        figure = needed("matplotlib.figure", "plot", "Report.plot").Figure(
            figsize=(10, 1.0 + 1.5 * count), layout="constrained"
        )
        axes: Any = figure.subplots(count, 2, squeeze=False, width_ratios=(3, 1))
        for k, (left, right) in enumerate(axes):
            if self.measured is not None:
                measured = self.measured.reshape(-1, length, len(self.channels))[0, first, k].detach().cpu()
                left.plot(time, measured, ".", markersize=2, color="#808080", label="measured")
                left.plot(time, measured + residuals[:, k], linewidth=1.0, color="#0072b2", label="predicted")
            else:
                left.plot(time, residuals[:, k], linewidth=0.8, color="#0072b2", label="residual")
            left.set_ylabel(self.channels[k], fontsize="small")
            right.hist(self.residuals[..., k].reshape(-1).detach().cpu().numpy(), bins=40, color="#0072b2")
            left.tick_params(labelbottom=k == count - 1)
            right.set_yticks([])
        axes[0, 0].legend(fontsize="small", loc="upper right")
        axes[0, 1].set_title("residuals", fontsize="medium")
        axes[-1, 0].set_xlabel("sample" if self.time is None else "time, s")
        return figure


def report(
    residuals: Residuals | Sequence[Residuals],
    module: torch.nn.Module,
    *,
    quantities: Callable[[Any], dict[str, torch.Tensor]] | None = None,
    measured: torch.Tensor | None = None,
    time: torch.Tensor | None = None,
    channels: Sequence[str] | None = None,
    scale: torch.Tensor | None = None,
    mode: str = "forward",
) -> Report:
    """Report how well residuals determine a module's numbers, at where they are now.

    Args:
        residuals: takes `module()` and returns predicted less measured, (..., channels), weighted as they were fitted.
            Several such functions, each for a part of the samples, need less memory than one.
        module: what was learned: `Parameters`, or any module.
        quantities: takes `module()` and returns what to report, name -> tensor; by default the parameters that were
            learned if the module returns a robot's `params`, and its raw numbers otherwise.
        measured: (..., channels), for the plot.
        time: (...), for the plot.
        channels: names of the last dimension.
        scale: what residuals are multiplied with to be in the units of what was measured.
        mode: of the Jacobian, see `jacobian`.

    Returns:
        Estimates, standard errors and what is not identifiable.
    """
    values, root, information = [], None, None
    for piece in pieces(residuals):
        value, slopes = jacobian(piece, module, mode)
        if value.ndim < 2:
            value, slopes = value.reshape(-1, 1), slopes.reshape(-1, 1, slopes.shape[-1])
        flat = slopes.reshape(-1, *slopes.shape[-2:])
        rows = flat.flatten(0, 1) if root is None else torch.cat([root, flat.flatten(0, 1)])
        root = torch.linalg.qr(rows, mode="r").R
        added = torch.einsum("sca,scb->cab", flat, flat)
        information = added if information is None else information + added
        values.append(value)
    assert root is not None
    assert information is not None
    count = values[0].shape[-1]
    return summary(
        torch.cat(values),
        root,
        information,
        *quantities_of(module, quantities),
        measured=measured,
        time=time,
        channels=[f"channel {k}" for k in range(count)] if channels is None else list(channels),
        scale=scale,
    )


def summary(
    residuals: torch.Tensor,
    root: torch.Tensor,
    information: torch.Tensor,
    names: list[str],
    units: list[str],
    estimate: torch.Tensor,
    turn: torch.Tensor,
    channels: list[str],
    measured: torch.Tensor | None = None,
    time: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
) -> Report:
    """Return a report from factors of the Jacobian.

    Args:
        residuals: (..., channels).
        root: a matrix whose square rootᵀ root is JᵀJ, (m, raw numbers).
        information: JᵀJ of each channel, (channels, raw numbers, raw numbers).
        names: of the quantities.
        units: of the quantities.
        estimate: of the quantities, (n,).
        turn: derivative of the quantities to the raw numbers, (n, raw numbers).
        channels: names.
        measured: for the plot.
        time: for the plot.
        scale: of the channels, see `report`.
    """
    size, basis, null = directions(root)
    count = residuals[..., 0].numel()
    free = max(count - basis.shape[1] / residuals.shape[-1], 1.0)
    variance = residuals.reshape(-1, residuals.shape[-1]).square().sum(0) / free
    sigma = torch.einsum("c,cab->ab", variance, information)
    scaled = turn / size
    inverse = (basis * (1.0 / (root / size @ basis).square().sum(0))) @ basis.mT
    covariance = inverse @ (sigma / size[:, None] / size) @ inverse
    error = torch.einsum("na,ab,nb->n", scaled, covariance, scaled).clamp(min=0.0).sqrt()
    undetermined = (scaled @ null).norm(dim=-1) > 1e-5 * scaled.norm(dim=-1)
    error = torch.where(undetermined, torch.inf, error)
    sentences = in_words(scaled @ null, names)
    residuals = residuals if scale is None else residuals * scale
    noise = (residuals.reshape(-1, len(channels)).square().sum(0) / free).sqrt()
    return Report(names, units, estimate, error, sentences, noise, channels, residuals, measured, time)


def directions(root: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The scale of each raw number; bases of what the data determine and of what they do not, in scaled numbers."""
    length = root.norm(dim=0)
    scale = torch.where(length > 1e-12 * length.max(), length, length.max().clamp(min=torch.finfo(root.dtype).tiny))
    _, sizes, right = torch.linalg.svd(root / scale, full_matrices=True)
    rank = int((sizes > torch.finfo(root.dtype).eps ** 0.6 * sizes[:1]).sum())
    return scale, right[:rank].mT, right[rank:].mT


def require_excitation(
    who: str, what: str, root: torch.Tensor, possible: torch.Tensor, quantities: Callable[[], tuple[list[str], Any]]
) -> None:
    """Raise `InputError` if data determine less than random motions would.

    Args:
        who: the function that is called.
        what: is determined, as "base parameters".
        root: a factor of JᵀJ of the data, see `summary`.
        possible: the same of random motions.
        quantities: returns names, and the derivative of the quantities to the raw numbers.
    """
    size, basis, null = directions(root)
    count, most = basis.shape[1], directions(possible)[1].shape[1]
    if count < most:
        names, turn = quantities()
        sentences = in_words((turn / size) @ null, names)
        listed = "; ".join(sentences[:6]) + (f"; and {len(sentences) - 6} more" if len(sentences) > 6 else "")
        raise InputError(
            f"{who}: too little excitation: the data determine {count} {what}, random motions would determine {most}. "
            f"What they leave open: {listed}. Record motions that do, learn less, or give check=False"
        )


def in_words(null: torch.Tensor, names: list[str]) -> list[str]:
    """A null space, (quantities, directions), in sentences about as few quantities as may be."""
    rows = null.mT.clone()
    rows = rows[rows.norm(dim=-1) > 0.0]
    sentences: list[str] = []
    alone: list[int] = []
    for k in range(len(rows)):
        # Gauss-Jordan elimination with the largest entry there is for a pivot leaves sparse rows.
        remaining = rows[k:]
        if float(remaining.abs().max()) <= 1e-9 * float(null.abs().max()):
            rows = rows[:k]
            break
        pivot = int(remaining.abs().argmax())
        row, column = k + pivot // rows.shape[1], pivot % rows.shape[1]
        rows[[k, row]] = rows[[row, k]]
        rows[k] /= rows[k, column].clone()
        others = torch.arange(len(rows)) != k
        rows[others] -= rows[others, column, None] * rows[k]
    for row in rows:
        nonzero = (row.abs() > 1e-6 * row.abs().max()).nonzero().flatten().tolist()
        nonzero.sort(key=row.abs().tolist().__getitem__, reverse=True)
        if len(nonzero) == 1:
            alone.append(nonzero[0])
            continue
        terms = ", ".join(f"{float(row[k]):+.3g} {names[k]}" for k in nonzero[:6])
        more = f", and {len(nonzero) - 6} more" if len(nonzero) > 6 else ""
        sentences.append(f"only a combination: a change by {terms}{more} changes nothing")
    if alone:
        sentences.insert(0, f"nothing depends on {', '.join(names[k] for k in sorted(alone))}")
    return sentences


def quantities_of(
    module: torch.nn.Module, quantities: Callable[[Any], dict[str, torch.Tensor]] | None = None
) -> tuple[list[str], list[str], torch.Tensor, torch.Tensor]:
    """Names, units, values, and derivatives to the raw numbers, of what is to be reported."""
    model = module._model if isinstance(module, Parameters) else None
    if quantities is None and model is None:
        raw = raw_numbers(module)
        values = flatten(raw)
        labels = [label for name, value in raw.items() for label in _labels(name, tuple(value.shape))]
        return labels, [""] * len(labels), values, torch.eye(len(values)).to(values)
    chosen = quantities or (lambda params: params)
    names, units, values, turns = [], [], [], []
    with torch.no_grad():
        shapes = {name: tuple(value.shape) for name, value in chosen(module()).items()}
    for name, shape in shapes.items():
        value, turn = jacobian(lambda outputs, name=name: chosen(outputs)[name], module)
        value, turn = value.reshape(-1), turn.reshape(-1, turn.shape[-1])
        known = parameters.find(name) if model is not None and quantities is None else None
        labels = _labels(name, shape) if known is None else _parameter_labels(model, known, shape)
        moving = (turn != 0.0).any(-1) if known is not None else torch.ones(len(value), dtype=torch.bool)
        names += [label for label, moves in zip(labels, moving.tolist(), strict=True) if moves]
        label_units = [""] * len(labels) if known is None else units_of(model, known, len(labels))
        units += [unit for unit, moves in zip(label_units, moving.tolist(), strict=True) if moves]
        values.append(value[moving])
        turns.append(turn[moving])
    return names, units, torch.cat(values), torch.cat(turns)


def units_of(model: Any, parameter: parameters.Parameter, count: int) -> list[str]:
    """The unit of each number of a parameter, for environments one after the other."""
    turning, _, sliding = parameter.unit.partition(", ")
    if parameter.owner not in ("dofs", "configuration", "joints"):
        tail = parameter.unit.split(", ")
        return tail * (count // len(tail)) if (len(tail),) == parameter.tail else [parameter.unit] * count
    sizes = {"dofs": lambda joint: joint.nv, "configuration": lambda joint: joint.nq, "joints": lambda joint: 1}
    units = [
        (sliding if joint.type.units[0] == "m" and joint.type.nv == 1 else turning) or parameter.unit
        for joint in model.joints
        for _ in range(sizes[parameter.owner](joint))
    ]
    return units * (count // len(units))


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in itertools.product(*map(range, shape))]


def _parameter_labels(model: Any, parameter: parameters.Parameter, shape: tuple[int, ...]) -> list[str]:
    """As "mass of link3", "com x of link3", "damping of joint2", with the environment if there are several."""
    owners: list[str]
    if parameter.owner == "world":
        owners = [""]
    elif parameter.owner in ("dofs", "configuration"):
        owners = _coordinate_names(model, parameter.owner)
    elif parameter.name == "actuator_gear":
        owners = [f" of {item.name}" for item in model.actuators for _ in item.gear]
    else:
        owners = [f" of {item.name}" for item in getattr(model, parameter.owner)]
    components = [f" {component}" for component in _COMPONENTS[parameter.tail[0]].split()] if parameter.tail else [""]
    labels = [f"{parameter.name}{component}{owner}" for owner in owners for component in components]
    lead = shape[: len(shape) - len(parameters.shape(model, parameter))]
    if not lead:
        return labels
    environments = [label[1:-1] for label in _labels("", lead)]
    return [f"{label} (environment {index})" for index in environments for label in labels]


def _coordinate_names(model: Any, owner: str) -> list[str]:
    names = []
    for joint in model.joints:
        count = joint.nv if owner == "dofs" else joint.nq
        names += [f" of {joint.name}{f' ({k})' if count > 1 else ''}" for k in range(count)]
    return names
