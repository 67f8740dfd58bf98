"""The report: errors are right, and what cannot be known is named."""

from dataclasses import replace

import pytest
import torch
from every_joint import seeded

import adjoin
from adjoin.errors import InputError
from adjoin.learn.modules import Positive, Unconstrained
from adjoin.learn.parameters import Parameters
from adjoin.learn.report import report


def linear(seed=0, samples=400, noise=(0.1, 0.1)):
    rows = torch.randn(samples, 2, 3, generator=seeded(7), dtype=torch.float64)
    exact = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    spread = torch.tensor(noise, dtype=torch.float64)
    measured = rows @ exact + spread * torch.randn(samples, 2, generator=seeded(seed), dtype=torch.float64)
    flat = rows.reshape(-1, 3)
    module = Unconstrained(torch.linalg.lstsq(flat, measured.reshape(-1, 1)).solution[:, 0])
    return exact, rows, report(lambda x: rows @ x - measured, module, measured=measured)


def test_errors_of_a_linear_model_are_the_textbook_ones():
    _, rows, found = linear()
    flat = rows.reshape(-1, 3)
    expected = 0.1 * torch.linalg.inv(flat.mT @ flat).diagonal().sqrt()
    assert torch.allclose(found.error, expected, rtol=0.06)
    assert found.noise.tolist() == pytest.approx([0.1, 0.1], rel=0.1)
    assert found.nmse == pytest.approx(0.01 / 5.25, rel=0.2)


@pytest.mark.parametrize("noise", [(0.1, 0.1), (0.01, 1.0)])
def test_errors_are_the_spread_over_noise_also_of_channels_that_differ(noise):
    scores = []
    for seed in range(100):
        exact, _, found = linear(seed, 100, noise)
        scores.append((found.estimate - exact) / found.error)
    assert torch.stack(scores).square().mean().sqrt().item() == pytest.approx(1.0, abs=0.1)


def test_few_samples_are_divided_by_the_degrees_of_freedom_that_are_left():
    found = [linear(seed, samples=4)[2] for seed in range(300)]
    # 8 residuals less 3 numbers; without them the variance would be 5 / 8 of this.
    assert torch.stack([x.noise.square() for x in found]).mean().item() == pytest.approx(0.01, rel=0.1)
    _, rows, _ = linear(samples=4)
    flat = rows.reshape(-1, 3)
    expected = 0.01 * torch.linalg.inv(flat.mT @ flat).diagonal()
    assert torch.allclose(torch.stack([x.error.square() for x in found]).mean(0), expected, rtol=0.1)


def test_pieces_of_the_data_are_the_whole():
    rows = torch.randn(60, 2, 3, generator=seeded(), dtype=torch.float64)
    module = Unconstrained(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    whole = report(lambda x: rows @ x - 1.0, module)
    parts = report([lambda x, k=k: rows[k : k + 20] @ x - 1.0 for k in (0, 20, 40)], module)
    assert torch.allclose(parts.error, whole.error)
    assert torch.equal(parts.residuals, whole.residuals)


def pendulum():
    return adjoin.robots.load("pendulum", links=2)


def holding(model, q):
    v = torch.zeros_like(q)
    (exact,) = (adjoin.rnea(model, q, v, v),)
    return lambda params: adjoin.rnea(model, q, v, v, params=params) - exact


def test_a_scale_that_masses_and_gravity_share_is_told_in_words():
    model = pendulum()
    learned = Parameters(model, torch.float64).learn("mass", Positive).learn("gravity", Unconstrained)
    q = model.random((30,), generator=seeded(), dtype=torch.float64)
    found = report(holding(model, q), learned)
    names = [f"mass of {body.name}" for body in model.bodies]
    shared = [said for said in found.unidentifiable if names[0] in said]
    assert len(shared) == 1
    assert shared[0].startswith("only a combination: a change by +1 gravity z")
    assert all(name in shared[0] for name in names)
    assert [found[name][1] for name in names] == [torch.inf, torch.inf]
    assert found.unidentifiable[0] == "nothing depends on gravity y"


def test_what_rests_does_not_show_damping():
    model = pendulum()
    learned = Parameters(model, torch.float64).learn("mass", Positive)
    learned.learn("damping", lambda value: Positive(value + 0.1))
    q = model.random((30,), generator=seeded(), dtype=torch.float64)
    exact = adjoin.rnea(model, q, 0.0 * q, 0.0 * q)
    found = report(lambda p: adjoin.rnea(model, q, 0.0 * q, 0.0 * q, params=p, passive=True) - exact, learned)
    assert found.unidentifiable == [f"nothing depends on {', '.join(f'damping of {j.name}' for j in model.joints)}"]
    assert found.identifiable.tolist() == [True, True, False, False]
    assert found.units == ["kg", "kg", "N m s/rad", "N m s/rad"]


def test_errors_are_of_the_parameter_not_of_its_raw_numbers():
    model = pendulum()
    q = model.random((50,), generator=seeded(), dtype=torch.float64)
    v, a = torch.randn(2, 50, 2, generator=seeded(1), dtype=torch.float64)
    measured = adjoin.rnea(model, q, v, a)
    measured = measured + 0.1 * torch.randn(measured.shape, generator=seeded(2), dtype=measured.dtype)
    errors = []
    for kind in (Positive, Unconstrained):
        learned = Parameters(model, torch.float64).learn("mass", kind)
        errors.append(report(lambda p: adjoin.rnea(model, q, v, a, params=p) - measured, learned).error)
    assert torch.allclose(errors[0], errors[1], rtol=1e-9)


def test_learned_parts_alone_are_reported_and_shared_numbers_for_all():
    model = adjoin.robots.load("two_link")
    q, v, a = torch.randn(3, 20, 2, generator=seeded(), dtype=torch.float64)
    learned = Parameters(model, torch.float64).learn("com", Unconstrained, of=["arm2"])
    learned.learn("damping", Positive(torch.tensor([0.4])))
    found = report(lambda p: adjoin.rnea(model, q, v, a, params=p, passive=True), learned)
    assert found.names == [
        "com x of arm2",
        "com y of arm2",
        "com z of arm2",
        *[f"damping of {j.name}" for j in model.joints],
    ]
    assert found["damping of interArm"] == found["damping of baseHinge"]
    assert found.unidentifiable == ["nothing depends on com z of arm2"]


def test_other_modules_and_quantities_of_ones_own():
    rows = torch.randn(50, 3, 2, generator=seeded(), dtype=torch.float64)
    module = torch.nn.ParameterDict({"b": torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))})

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self):
            return self.inner["b"]

    found = report(lambda b: rows @ b, Line(), channels=["x", "y", "z"])
    assert found.names == ["inner.b[0]", "inner.b[1]"]
    assert found.channels == ["x", "y", "z"]
    own = report(lambda b: rows @ b, Line(), quantities=lambda b: {"sum": b.sum(), "product": b[0] * b[1]})
    assert own.names == ["sum", "product"]
    assert own.estimate.tolist() == [3.0, 2.0]


def test_the_table_says_what_is_not_known():
    _, _, found = linear()
    assert str(found).splitlines()[0].split() == ["what", "estimate", "std.", "error", "%", "unit"]
    assert "raw[1]" in str(found)
    model = pendulum()
    learned = Parameters(model, torch.float64).learn("gravity", Unconstrained)
    q = model.random((30,), generator=seeded(), dtype=torch.float64)
    text = str(report(holding(model, q), learned))
    assert "not identifiable" in text
    assert "The data do not determine:\n  - nothing depends on gravity" in text
    with pytest.raises(InputError, match=r"no estimate 'mass'; estimates: raw\[0\], raw\[1\], raw\[2\]"):
        found["mass"]


def test_the_plot_has_a_row_a_channel():
    pytest.importorskip("matplotlib")
    _, _, found = linear()
    axes = found.plot().get_axes()
    assert len(axes) == 4
    assert len(axes[0].get_lines()) == 2
    assert len(axes[0].get_lines()[0].get_xdata()) == 400
    two = replace(found, time=torch.arange(400) % 150)
    assert len(two.plot().get_axes()[0].get_lines()[0].get_xdata()) == 150
