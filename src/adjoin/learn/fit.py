"""Parameters from measured motions: so that inverse dynamics returns the torques, or forward dynamics accelerations.

Any `Parameters`, with any modules, and any optimizer of torch; without one, Gauss-Newton on all of the data, which
needs a few passes where first-order methods need thousands.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from adjoin.dynamics.aba import aba
from adjoin.dynamics.rnea import rnea
from adjoin.errors import InputError
from adjoin.learn.data import Recording, columns
from adjoin.learn.excitation import random_states
from adjoin.learn.jacobian import MAX_RAW_NUMBERS, Residuals, flatten, jacobian, raw_numbers
from adjoin.learn.levenberg_marquardt import minimize
from adjoin.learn.losses import NMSE, spreads
from adjoin.learn.parameters import Parameters
from adjoin.learn.report import Report, quantities_of, report, require_excitation
from adjoin.model.model import Model
from adjoin.progress import Progress, until_interrupt

TARGETS = {"torque": "tau", "acceleration": "a"}
_MAX_CHECKED = 200
"""Raw numbers up to which it is checked, before anything is learned, whether the data can determine them."""
_SAMPLES = 256
_CHUNK = 16_384
_REWEIGHTINGS = 2
NOISES = ("joint", "proportional")


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `fit`.

    Attributes:
        training: the loss before the first epoch or iteration, and after each.
        validation: the loss on the items held out, if there are any.
    """

    training: list[float]
    validation: list[float]
    _report: Report | None

    @property
    def report(self) -> Report:
        """Estimates, standard errors and what is not identifiable."""
        if self._report is None:
            raise InputError(f"Fit: a report is for modules with up to {MAX_RAW_NUMBERS} raw numbers")
        return self._report


def predict(model: Model, params: dict[str, torch.Tensor], item: dict[str, torch.Tensor], target: str) -> torch.Tensor:
    """Return torques of a motion or accelerations of torques, with the joints' springs, damping and friction.

    Args:
        model: the robot.
        params: parameters that replace its own.
        item: q, v and a, or q, v and tau, as of a `Recording`.
        target: "torque" or "acceleration".

    Returns:
        (..., nv).
    """
    if target == "torque":
        return rnea(model, item["q"], item["v"], item["a"], params=params, passive=True)
    return aba(model, item["q"], item["v"], item["tau"], params=params, passive=True)


def fit(
    model: Model,
    learned: Parameters,
    recording: Recording,
    *,
    target: str = "torque",
    optimizer: torch.optim.Optimizer | None = None,
    noise: str = "joint",
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    epochs: int = 100,
    batch: int = 256,
    validation: float = 0.0,
    patience: int = 10,
    check: bool = True,
    progress: bool = False,
    return_on_interrupt: bool = False,
    generator: torch.Generator | None = None,
) -> Fit:
    """Learn parameters from q, v, a and tau.

    Args:
        model: the robot.
        learned: what is learned, and where it begins; changed in place.
        recording: of q, v, a and tau.
        target: what is predicted: "torque" by inverse dynamics, or "acceleration" by forward dynamics.
        optimizer: of torch, over `learned.parameters()`. `torch.optim.LBFGS` gets all data at once, others minibatches.
            Without one it is Gauss-Newton on all data.
        noise: what Gauss-Newton weighs residuals by, estimated as it goes: "joint", the standard deviation of each
            joint's residuals, or "proportional", for noise that is a share of each measured number.
        loss: of predicted and measured, for an optimizer of torch; the normalized mean squared error by default.
        epochs: at most this many, or iterations of Gauss-Newton.
        batch: samples in a minibatch.
        validation: the share of the samples that is held out, to end early.
        patience: epochs without a better loss (on what is held out, if anything is) after which it ends; the best
            parameters are kept.
        check: whether to ask first if the data can determine what random motions would.
        progress: whether to show a bar.
        return_on_interrupt: whether Ctrl-C ends it with the best so far instead of raising KeyboardInterrupt.
        generator: of random numbers, for minibatches and for what is held out.

    Returns:
        The losses and a report.

    Raises:
        InputError: the data lack something, or excite too little.
    """
    if target not in TARGETS:
        raise InputError(f"fit: no target {target!r}; targets: {', '.join(TARGETS)}")
    if epochs < 1 or batch < 1 or patience < 1 or not 0.0 <= validation < 1.0:
        raise InputError("fit: epochs, batch and patience must be at least 1, validation from 0 and below 1")
    if noise not in NOISES:
        raise InputError(f"fit: no noise {noise!r}; noises: {', '.join(NOISES)}")
    recording.need("fit", "q", "v", "a", "tau")
    like = next(iter(learned.parameters()), None)
    if like is None:
        raise InputError("fit: nothing is to be learned; begin with learned.learn(...)")
    samples = recording.samples().to(like)
    if check:
        check_excitation(model, learned, samples, target)
    training, held_out = samples.split(1.0 - validation, generator) if validation else (samples, None)
    (measured,) = training.need("fit", TARGETS[target])
    task = _Task(model, learned, target, NMSE(measured) if loss is None else loss)
    scale = _sizes(measured).expand_as(measured)

    def residuals(part: slice) -> Residuals:
        return lambda params: (predict(model, params, training[part], target) - measured[part]) / scale[part]

    parts = [residuals(slice(begin, begin + _CHUNK)) for begin in range(0, len(training), _CHUNK)]
    curves: tuple[list[float], list[float]] = ([], [])
    if optimizer is not None:
        with until_interrupt(return_on_interrupt):
            task.train(training, held_out, optimizer, epochs, batch, patience, progress, generator, curves)
    elif loss is None and held_out is None:
        with until_interrupt(return_on_interrupt):
            minimize(parts, learned, curves[0], epochs, mode="samples", progress=progress)
            for _ in range(_REWEIGHTINGS):  # the weights need the residuals, which need the weights
                with torch.no_grad():
                    predicted = predict(model, learned(), training[:], target)
                scale = _weights(predicted, measured, noise).expand_as(measured)
                minimize(parts, learned, [], epochs, mode="samples")
        with torch.no_grad():
            curves[0].append(float(task.loss(training[:])))
    else:
        raise InputError("fit: Gauss-Newton takes neither a loss nor a validation set; give an optimizer to use them")
    if len(flatten(raw_numbers(learned))) > MAX_RAW_NUMBERS:
        return Fit(*curves, None)
    names = columns(model, TARGETS[target])
    told = {"measured": measured, "time": training.time, "channels": names, "scale": scale}
    return Fit(*curves, report(parts, learned, mode="samples", **told))


def _sizes(measured: torch.Tensor) -> torch.Tensor:
    """The standard deviation of each joint, (nv,); joints in which nothing happens count like the one with most."""
    spread = spreads(measured)
    return torch.where(spread > 0.0, spread, spread.max().clamp(min=torch.finfo(spread.dtype).tiny))


def _weights(predicted: torch.Tensor, measured: torch.Tensor, noise: str) -> torch.Tensor:
    """The size of the noise, up to a factor: (nv,) or (samples, nv)."""
    spread = _sizes(measured)
    if noise == "proportional":
        return predicted.abs() + 1e-3 * spread
    return (predicted - measured).square().mean(0).sqrt().maximum(1e-9 * spread)


@dataclass(frozen=True)
class _Task:
    """What is predicted, and how far off it is."""

    model: Model
    learned: Parameters
    target: str
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def loss(self, item: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.criterion(predict(self.model, self.learned(), item, self.target), item[TARGETS[self.target]])

    def train(
        self,
        training: Recording,
        held_out: Recording | None,
        optimizer: torch.optim.Optimizer,
        epochs: int,
        batch: int,
        patience: int,
        progress: bool,
        generator: torch.Generator | None,
        curves: tuple[list[float], list[float]],
    ) -> None:
        """See `fit`; the losses of training and of what is held out go into the curves."""
        sets = [training] if held_out is None else [training, held_out]
        best, since = copy.deepcopy(self.learned.state_dict()), 0
        full_batch = isinstance(optimizer, torch.optim.LBFGS)
        try:
            for epoch, _ in Progress(epochs + 1, progress, "epochs"):
                with torch.no_grad():
                    for curve, data in zip(curves, sets, strict=False):
                        curve.append(float(self.loss(data[:])))
                losses = curves[len(sets) - 1]
                if not losses[-1] < torch.inf:
                    raise InputError(f"fit: the loss is {losses[-1]} after {epoch} epochs; take smaller steps")
                if epoch and losses[-1] >= min(losses[:-1]):
                    since += 1
                else:
                    best, since = copy.deepcopy(self.learned.state_dict()), 0
                if since == patience or epoch == epochs:
                    break
                for item in [training[:]] if full_batch else training.batches(batch, generator):
                    self._step(optimizer, item)
        finally:
            self.learned.load_state_dict(best)

    def _step(self, optimizer: torch.optim.Optimizer, item: dict[str, torch.Tensor]) -> None:
        def closure() -> float:
            optimizer.zero_grad()
            value = self.loss(item)
            value.backward()
            return value  # pyright: ignore[reportReturnType]

        optimizer.step(closure)


def check_excitation(model: Model, learned: Parameters, recording: Recording, target: str = "torque") -> None:
    """Raise `InputError` if the data say nothing about parameters that random motions of the robot would determine.

    Args:
        model: the robot.
        learned: what is to be learned.
        recording: of q, v, a and tau.
        target: see `fit`.
    """
    recording.need("check_excitation", "q", "v", "a", "tau")
    samples = recording.samples().to(next(iter(learned.parameters())))
    if len(flatten(raw_numbers(learned))) > _MAX_CHECKED:
        samples.check_moves()
        return
    chosen = torch.linspace(0, len(samples) - 1, min(_SAMPLES, len(samples)), device=samples.time.device).long()

    def root(item: dict[str, torch.Tensor]) -> torch.Tensor:
        _, slopes = jacobian(lambda params: predict(model, params, item, target), learned, "samples")
        return torch.linalg.qr(slopes.reshape(-1, slopes.shape[-1])).R

    def quantities() -> tuple[list[str], torch.Tensor]:
        names, _, _, turn = quantities_of(learned)
        return names, turn

    what = "directions of what is to be learned"
    require_excitation("fit", what, root(samples[chosen]), root(random_states(model, _SAMPLES, samples.q)), quantities)
