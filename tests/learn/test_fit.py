"""Fits: true parameters from torques and from accelerations, by any optimizer; bad data are refused before."""

import functools
import importlib
import itertools
from dataclasses import replace

import pytest
import torch
from every_joint import seeded

import adjoin
from adjoin.errors import InputError
from adjoin.learn.data import Recording
from adjoin.learn.excitation import fourier_excitation
from adjoin.learn.fit import fit
from adjoin.learn.modules import LogCholesky, Positive
from adjoin.learn.parameters import Parameters

fit_module = importlib.import_module("adjoin.learn.fit")  # the package has the function by this name
TIME = torch.arange(0.0, 4.0, 0.02, dtype=torch.float64)


@functools.cache
def robot():
    model = adjoin.robots.load("pendulum", links=3)
    return model.with_parameters({"damping": torch.tensor([0.3, 0.2, 0.1]), "mass": torch.tensor([1.0, 2.0, 1.5])})


def recorded(noise=0.0, seed=0, proportional=False, samples=TIME):
    data = fourier_excitation(robot(), samples, period=4.0, generator=seeded())
    v, a = data.need("test", "v", "a")
    tau = adjoin.rnea(robot(), data.q, v, a, passive=True)
    size = tau.abs() if proportional else tau.std(0)
    return replace(data, tau=tau + noise * size * torch.randn(tau.shape, generator=seeded(seed), dtype=tau.dtype))


def wrong():
    learned = Parameters(robot(), torch.float64).learn("mass", Positive(torch.full((3,), 1.2, dtype=torch.float64)))
    return learned.learn("damping", Positive(torch.full((3,), 0.05, dtype=torch.float64)))


def values(learned):
    params = learned()
    return torch.cat([params["mass"], params["damping"]]).detach()


EXACT = torch.tensor([1.0, 2.0, 1.5, 0.3, 0.2, 0.1], dtype=torch.float64)


@pytest.mark.parametrize("target", ["torque", "acceleration"])
def test_exact_data_give_the_parameters(target):
    learned = wrong()
    found = fit(robot(), learned, recorded(), target=target)
    assert torch.allclose(values(learned), EXACT, rtol=1e-5)
    assert found.training[0] > 1e-2
    assert found.training[-1] < 1e-9


def test_lbfgs_finds_them_too():
    learned = wrong()
    optimizer = torch.optim.LBFGS(learned.parameters(), lr=1.0, line_search_fn="strong_wolfe")
    fit(robot(), learned, recorded(), optimizer=optimizer, epochs=15)
    assert torch.allclose(values(learned), EXACT, rtol=1e-2)


def test_minibatches_lower_the_loss_and_the_best_is_kept():
    learned = wrong()
    optimizer = torch.optim.Adam(learned.parameters(), lr=0.02)
    found = fit(
        robot(), learned, recorded(0.05), optimizer=optimizer, epochs=40, batch=32, validation=0.25, generator=seeded()
    )
    assert len(found.training) == len(found.validation)
    assert min(found.validation) < 0.1 * found.validation[0]
    assert torch.allclose(values(learned)[1:3], EXACT[1:3], rtol=0.05)


def test_it_ends_when_nothing_gets_better():
    learned = wrong()
    before = values(learned)
    optimizer = torch.optim.SGD(learned.parameters(), lr=0.0)
    found = fit(robot(), learned, recorded(), optimizer=optimizer, epochs=50, patience=3)
    assert len(found.training) == 1 + 3
    assert torch.equal(values(learned), before)


def test_the_best_parameters_come_back_when_it_gets_worse():
    learned = wrong()
    data = recorded()
    fit(robot(), learned, data)
    best = values(learned)
    optimizer = torch.optim.SGD(learned.parameters(), lr=1e-2, maximize=True)
    fit(robot(), learned, data, optimizer=optimizer, epochs=5)
    assert torch.equal(values(learned), best)


def test_standard_errors_are_the_spread_over_noise():
    scores = []
    for seed in range(25):
        learned = wrong()
        found = fit(robot(), learned, recorded(0.05, seed), check=False).report
        assert found.names[:3] == [f"mass of {body.name}" for body in robot().bodies]
        scores.append((values(learned) - EXACT) / found.error)
    scores = torch.stack(scores)
    assert scores.square().mean().sqrt().item() == pytest.approx(1.0, abs=0.15)
    assert scores.mean(0).abs().max() < 4.0 / 25**0.5


def test_noise_in_proportion_is_weighed_by_itself():
    errors = {}
    for noise in ("joint", "proportional"):
        errors[noise] = 0.0
        for seed in range(5):
            learned = wrong()
            fit(robot(), learned, recorded(0.05, seed, proportional=True), noise=noise, check=False)
            errors[noise] += float((values(learned) / EXACT - 1.0).abs().mean())
    assert errors["proportional"] < 0.5 * errors["joint"]


def test_inertias_stay_physical_in_heavy_noise():
    learned = Parameters(robot(), torch.float64).learn("inertial", LogCholesky)
    fit(robot(), learned, recorded(2.0, samples=TIME[::4]), epochs=20)
    learned.check = True
    assert (learned()["mass"] > 0.0).all()


def test_any_module_will_do():
    class Density(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.log = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self):
            return self.log.exp() * torch.tensor([1.0, 2.0, 1.5], dtype=torch.float64)

    learned = Parameters(robot(), torch.float64).learn("mass", Density())
    with torch.no_grad():
        next(iter(learned.parameters())).fill_(0.5)
    fit(robot(), learned, recorded())
    assert learned()["mass"].tolist() == pytest.approx([1.0, 2.0, 1.5], rel=1e-6)


def test_a_joint_that_carries_nothing_does_not_drown_the_others():
    model = adjoin.robots.load("xarm7")  # its first axis is vertical: at rest its torque is rounding
    q = model.random((200,), generator=seeded(), dtype=torch.float64)
    rest = torch.zeros_like(q)
    tau = adjoin.rnea(model, q, rest, rest)
    tau = tau + 0.01 * tau.std(0) * torch.randn(tau.shape, generator=seeded(1), dtype=tau.dtype)
    data = Recording(model, torch.arange(200.0, dtype=q.dtype), q, rest, rest, tau)
    true = model.parameters(dtype=torch.float64)["mass"]
    learned = Parameters(model, torch.float64).learn("mass", Positive(0.7 * true))
    found = fit(model, learned, data, check=False).report
    assert found.unidentifiable == ["nothing depends on mass of link1"]
    assert torch.allclose(learned()["mass"][0], 0.7 * true[0], rtol=1e-3)
    assert torch.allclose(learned()["mass"][1:], true[1:], rtol=0.05)


def test_a_network_is_trained_but_has_no_report():
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(1, 800), torch.nn.Tanh(), torch.nn.Linear(800, 3))
            self.double()

        def forward(self):
            return self.layers(torch.ones(1, dtype=torch.float64)).exp()

    torch.manual_seed(0)
    learned = Parameters(robot(), torch.float64).learn("mass", Network())
    optimizer = torch.optim.Adam(learned.parameters(), lr=1e-3)
    found = fit(robot(), learned, recorded(), optimizer=optimizer, epochs=20)
    assert min(found.training) < 0.1 * found.training[0]
    with pytest.raises(InputError, match="a report is for modules with up to 2000 raw numbers"):
        assert found.report


def test_what_data_cannot_tell_is_said_before():
    learned = wrong()
    data = recorded()
    rest = torch.zeros_like(data.q)
    still = replace(data, v=rest, a=rest)
    names = [joint.name for joint in robot().joints]
    message = f"the data determine 3 directions .* would determine 6.*nothing depends on damping of {names[0]}, damping"
    with pytest.raises(InputError, match=f"too little excitation: {message}"):
        fit(robot(), learned, still)
    fit(robot(), learned, still, check=False)
    assert values(learned)[3:].tolist() == pytest.approx([0.05, 0.05, 0.05], rel=1e-9)


def test_a_bar_is_shown(capsys):
    fit(robot(), wrong(), recorded(), progress=True)
    assert "/100 [" in capsys.readouterr().err


def test_bad_arguments_are_named():
    data = recorded()
    with pytest.raises(InputError, match="no target 'speed'; targets: torque, acceleration"):
        fit(robot(), wrong(), data, target="speed")
    with pytest.raises(InputError, match="no noise 'loud'; noises: joint, proportional"):
        fit(robot(), wrong(), data, noise="loud")
    with pytest.raises(InputError, match="nothing is to be learned"):
        fit(robot(), Parameters(robot()), data)
    with pytest.raises(InputError, match="Gauss-Newton takes neither a loss nor a validation set"):
        fit(robot(), wrong(), data, validation=0.5)
    learned = Parameters(robot(), torch.float64, check=False).learn("mass", Positive(torch.ones(3) * 1.2))
    with pytest.raises(InputError, match=r"the loss is (nan|inf) after 1 epochs; take smaller steps"):
        fit(robot(), learned, data, optimizer=torch.optim.SGD(learned.parameters(), lr=1e9), epochs=3)


@pytest.mark.parametrize("optimized", [False, True])
def test_an_interrupt_propagates_unless_the_partial_result_is_asked_for(optimized, monkeypatch):
    data, plain = recorded(samples=TIME[:300]), fit_module.predict

    def run(calls, **options):
        count = itertools.count()

        def interrupted(*arguments):
            if next(count) == calls:
                raise KeyboardInterrupt
            return plain(*arguments)

        monkeypatch.setattr(fit_module, "predict", interrupted)
        learned = wrong()
        optimizer = torch.optim.Adam(learned.parameters(), 1e-2) if optimized else None
        return learned, fit(robot(), learned, data, optimizer=optimizer, check=False, **options)

    with pytest.raises(KeyboardInterrupt):
        run(9, progress=True)
    learned, result = run(9, return_on_interrupt=True)
    assert result.training[-1] < result.training[0]
    assert not torch.allclose(values(learned), values(wrong()))
    assert result.report.residuals.isfinite().all()
