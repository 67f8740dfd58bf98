import functools
import math

import pytest
import torch

import adjoin
from adjoin.errors import InputError
from adjoin.learn.data import Recording
from adjoin.learn.modules import Bounded, Positive, Unconstrained
from adjoin.learn.parameters import Parameters
from adjoin.learn.shooting import Shooting, tridiagonal_solve
from adjoin.learn.shooting_residuals import NamedParameters
from adjoin.learn.variable_projection import search_from_measured_starts
from adjoin.learn.window_starts import Candidates, fitted, improve_starts, window_losses

STEPS = 80


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def recorded(sim, q, v, params, noise=(0.0, 0.0), every=1, steps=STEPS, external=None, seed=1):
    """What a simulator does from some starts, with noise."""
    controls = torch.zeros(steps, sim.model.nu, dtype=torch.float64)
    path = sim.rollout(sim.state(q, v), controls, params, external=external)
    seen = sim.model.integrate(path.q, noise[0] * random(*path.v.shape, seed=seed))
    speed = path.v + noise[1] * random(*path.v.shape, seed=seed + 1000)
    time = (sim.dt * torch.arange(steps + 1, dtype=torch.float64)).expand(*q.shape[:-1], -1)
    control = torch.zeros(*time.shape, sim.model.nu, dtype=torch.float64)
    sampled = [x.movedim(0, -2)[..., ::every, :].contiguous() for x in (seen, speed)]
    return Recording(sim.model, time[..., ::every], *sampled, control=control[..., ::every, :])


class Sliding(torch.nn.Module):
    """One coefficient of sliding friction for all shapes."""

    def __init__(self, value):
        super().__init__()
        self.value = Positive(tensor(value))

    def forward(self):
        return torch.cat([self.value(), tensor(0.005, 1e-4)])


@functools.cache
def ball():
    """Balls that are thrown, bounce, and slide before they roll."""
    sim = adjoin.Simulator(adjoin.robots.load("ball"), dt=2e-3)
    q = tensor(0.0, 0.0, 0.12, 1.0, 0.0, 0.0, 0.0).repeat(6, 1)
    q[:, 2] += 0.01 * torch.arange(6)
    return sim, q, tensor(2.0, 0.0, -0.5, 0.0, 0.0, 0.0) + 0.3 * random(6, 6)


def bouncing(sim, friction, restitution):
    own = sim.model.parameters(dtype=torch.float64)["geometry_friction"]
    own[:, 0] = friction
    return {"geometry_friction": own, "contact_restitution": tensor(restitution).squeeze()}


def guessed(sim, friction=0.3, restitution=0.4):
    learned = Parameters(sim.model, dtype=torch.float64).learn("geometry_friction", Sliding(friction))
    return [learned, NamedParameters(contact_restitution=Bounded(tensor(restitution).squeeze(), 0.0, 1.0))]


def found(modules):
    with torch.no_grad():
        return float(modules[0]()["geometry_friction"][0, 0]), float(modules[1]()["contact_restitution"])


@functools.cache
def pendulum():
    sim = adjoin.Simulator(adjoin.robots.load("pendulum", links=2), dt=0.01, pairs=[])
    return sim, 0.8 * random(5, 2), random(5, 2, seed=1)


def heavy(value, damping):
    sim, _, _ = pendulum()
    own = sim.model.parameters(dtype=torch.float64)
    own["mass"][1], own["damping"][:] = value, damping
    return {name: own[name] for name in ("mass", "damping")}


def weighed(mass=1.0, damping=0.05):
    sim, _, _ = pendulum()
    learned = Parameters(sim.model, dtype=torch.float64).learn("mass", Positive(tensor(mass)), of="link2")
    return learned.learn("damping", Positive(tensor(damping)))


def differences(shooting, values, step=1e-6):
    """Of the residuals, by central differences along each number of some tensors."""
    columns = []
    for value in values:
        for k in range(value.numel()):
            sides = []
            for sign in (1.0, -1.0):
                with torch.no_grad():
                    value.view(-1)[k] += sign * step
                    sides.append(shooting.residuals())
                    value.view(-1)[k] -= sign * step
            columns.append((sides[0] - sides[1]) / (2.0 * step))
    return torch.stack(columns)


def test_the_jacobian_is_that_of_finite_differences_through_contact():
    sim, q, v = ball()
    modules = guessed(sim)
    shooting = Shooting(sim, modules, recorded(sim, q, v, bouncing(sim, 0.2, 0.6)), 20, noise=(0.1, 1.0), free=True)
    slopes = shooting.jacobian()
    raw = [x for module in modules for x in module.parameters()]
    torch.testing.assert_close(slopes.learned, differences(shooting, raw), rtol=1e-5, atol=1e-6)
    assert slopes.learned.abs().amax((1, 2, 3)).min() > 1e-2
    by_start = differences(shooting, [shooting.start[1][3]])
    torch.testing.assert_close(slopes.starts[6:, 3], by_start[:, 3], rtol=1e-5, atol=1e-6)


def test_forward_and_reverse_mode_agree():
    sim, q, v = ball()
    modules = guessed(sim)
    shooting = Shooting(sim, modules, recorded(sim, q, v, bouncing(sim, 0.2, 0.6)), 20)
    slopes, rest = shooting.jacobian().learned, shooting.residuals()
    raw = [x for module in modules for x in module.parameters()]
    gradients = torch.cat([x.reshape(-1) for x in torch.autograd.grad(rest.square().sum(), raw)])
    torch.testing.assert_close(2.0 * (slopes * rest.detach()).sum((1, 2, 3)), gradients)


@pytest.mark.parametrize("every", [1, 4])
def test_exact_data_give_exact_friction_and_restitution(every):
    sim, q, v = ball()
    modules = guessed(sim)
    data = recorded(sim, q, v, bouncing(sim, 0.2, 0.6), every=every)
    history = Shooting(sim, modules, data, 20 // every, robust=1.0).solve(40, tolerance=1e-12)
    assert history[-1] < 1e-12 * history[0]
    assert found(modules) == pytest.approx((0.2, 0.6), rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"method": "lbfgs", "rate": 1.0}])
def test_descent_finds_them_too(options):
    sim, q, v = pendulum()
    learned = weighed()
    shooting = Shooting(sim, learned, recorded(sim, q, v, heavy(1.4, 0.1)), 20)
    history = shooting.descend(40 if options else 250, **{"rate": 0.03, **options})
    assert history[-1] < 1e-5 * history[0]
    with torch.no_grad():
        assert float(learned()["mass"][1]) == pytest.approx(1.4, rel=2e-2)


def test_free_starts_take_the_bias_of_noise_away():
    sim, q, v = pendulum()
    data = recorded(sim, q, v, heavy(1.4, 0.1), (0.02, 0.1))
    errors = []
    for free in (False, True):
        learned = weighed()
        shooting = Shooting(sim, learned, data, 20, noise=(0.02, 0.1), free=free)
        assert shooting.solve(20)[-1] == pytest.approx(1.0 if free else 2.0, rel=0.3 if free else 0.6)
        errors.append(abs(shooting.report()["mass of link2"][0] / 1.4 - 1.0))
    assert errors[1] < 0.02
    assert errors[1] < errors[0]


def test_standard_errors_are_as_large_as_the_errors():
    sim, q, v = pendulum()
    scores = []
    for seed in range(12):
        learned = weighed(1.3, 0.09)
        data = recorded(sim, q, v, heavy(1.4, 0.1), (0.01, 0.05), seed=seed)
        shooting = Shooting(sim, learned, data, 40, noise=(0.01, 0.05), free=True)
        shooting.solve(8)
        report = shooting.report()
        truth = {"mass of link2": 1.4, "damping of joint1": 0.1}
        scores.append([(report[name][0] - value) / report[name][1] for name, value in truth.items()])
        assert report.noise[0] == pytest.approx(0.01, rel=0.15)
        assert report.noise[2] == pytest.approx(0.05, rel=0.15)
    spread = tensor(*scores).square().mean(0).sqrt()
    assert (spread > 0.5).all()
    assert (spread < 1.6).all()


def test_free_starts_are_taken_from_the_degrees_of_freedom():
    sim, q, v = pendulum()
    data = recorded(sim, q, v, heavy(1.4, 0.1), (0.01, 0.05))
    shooting = Shooting(sim, weighed(1.4, 0.1), data, 5, noise=(0.01, 0.05), free=True)
    shooting.solve(8)
    noise = shooting.report().noise / tensor(0.01, 0.01, 0.05, 0.05)
    # Starts of 4 numbers for each window of 5 samples of 4: without their share the noise would be 0.89 of this.
    assert float(noise.square().mean().sqrt()) == pytest.approx(1.0, rel=0.05)


def test_continuity_holds_windows_together():
    sim, q, v = pendulum()
    data, gaps = recorded(sim, q, v, heavy(1.4, 0.1), (0.02, 0.1)), []
    for continuity in (None, 0.01):
        learned = weighed()
        shooting = Shooting(sim, learned, data, 20, noise=(0.02, 0.1), free=True, continuity=continuity)
        shooting.solve(20)
        path = sim.rollout(
            sim.state(shooting.q[0] + shooting.start[0], shooting.v[0] + shooting.start[1]),
            torch.zeros(20, 1, 0, dtype=torch.float64),
            learned(),
        )
        ends, starts = (path.q[place].detach().unflatten(0, (5, -1)) for place in (-1, 0))
        gaps.append(float((ends[:, :-1] - starts[:, 1:]).square().mean().sqrt()))
        with torch.no_grad():
            assert float(learned()["mass"][1]) == pytest.approx(1.4, rel=0.02)
    assert gaps[1] < 0.05 * gaps[0]


def test_a_tight_continuity_is_single_shooting():
    sim, q, v = pendulum()
    data, masses = recorded(sim, q, v, heavy(1.4, 0.1), (0.02, 0.1)), []
    for steps, continuity in ((20, 1e-3), (STEPS, None)):
        learned = weighed()
        Shooting(sim, learned, data, steps, noise=(0.02, 0.1), free=True, continuity=continuity).solve(
            40, tolerance=1e-10
        )
        with torch.no_grad():
            masses.append(float(learned()["mass"][1]))
    # The sample where two windows meet counts twice in the first.
    assert masses[0] == pytest.approx(masses[1], rel=2e-3)


def test_blocks_that_meet_only_the_next_are_solved_as_one_matrix():
    count, size = 4, 3
    lower = random(2, count * size, count * size)
    whole = torch.zeros_like(lower)
    for i in range(count):
        for j in range(max(0, i - 1), min(count, i + 2)):
            rows, columns = slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size)
            whole[:, rows, columns] = (lower + lower.mT)[:, rows, columns]
    whole += 20.0 * torch.eye(count * size, dtype=torch.float64)
    tiles = whole.unflatten(-1, (count, size)).unflatten(-3, (count, size)).transpose(-2, -3)
    blocks = torch.stack([tiles[:, k, k] for k in range(count)], 1)
    below = torch.stack([tiles[:, k + 1, k] for k in range(count - 1)], 1)
    right = random(2, count, size, 2, seed=3)
    expected = torch.linalg.solve(whole, right.flatten(1, 2)).unflatten(1, (count, size))
    torch.testing.assert_close(tridiagonal_solve(blocks, below, right), expected)


def test_a_robust_loss_leaves_outliers_out():
    sim, q, v = pendulum()
    data = recorded(sim, q, v, heavy(1.4, 0.1), (0.002, 0.01))
    data.v[2, 30:35] += 3.0
    errors = []
    for robust in (None, 3.0):
        learned = weighed()
        shooting = Shooting(sim, learned, data, 20, noise=(0.002, 0.01), free=True, robust=robust)
        shooting.solve(30)
        with torch.no_grad():
            errors.append(abs(float(learned()["mass"][1]) / 1.4 - 1.0))
    assert errors[1] < 5e-3
    assert errors[1] < 0.2 * errors[0]


def test_known_pushes_make_a_mass_known():
    sim, q, v = ball()
    push = torch.zeros(STEPS, 6, 6, dtype=torch.float64)
    push[10:30, :, 0] = 2.0
    own = sim.model.parameters(dtype=torch.float64)["mass"]
    data = recorded(sim, q, v, {"mass": 1.3 * own}, external={"ball": push})
    seen = torch.cat([push, push[-1:]]).transpose(0, 1)
    learned = Parameters(sim.model, dtype=torch.float64).learn("mass", Positive)
    Shooting(sim, learned, data, 20, external={"ball": seen}).solve(20, tolerance=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(learned()["mass"], 1.3 * own, rtol=1e-6, atol=0.0)
    with pytest.raises(InputError, match=r"external\['ball'\] has shape \(80, 6, 6\); it must be \(6, 81, 6\)"):
        Shooting(sim, learned, data, 20, external={"ball": push})


def test_what_the_data_do_not_determine_is_said_before_and_after():
    sim, q, v = ball()
    data = recorded(sim, q + tensor(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0), v, {}, steps=20)
    learned = Parameters(sim.model, dtype=torch.float64).learn("geometry_friction", Sliding(0.3))
    with pytest.raises(InputError, match="too little excitation: nothing that is learned changes these motions"):
        Shooting(sim, learned, data).solve()
    falling = learned.learn("gravity", Unconstrained(tensor(0.1, 0.1, -9.0)))
    with pytest.warns(UserWarning, match=r"too little excitation: .* parts.geometry_friction.0.value.raw"):
        Shooting(sim, falling, data).solve(3)
    report = Shooting(sim, falling, data).report()
    assert math.isinf(report["geometry_friction x of ball"][1])
    assert math.isfinite(report["gravity x"][1])
    assert any("geometry_friction" in sentence for sentence in report.unidentifiable)


def test_friction_that_another_shape_hides_is_said_by_name():
    sim, q, v = ball()
    data = recorded(sim, q, v, bouncing(sim, 0.2, 0.0), steps=20)
    learned = Parameters(sim.model, dtype=torch.float64).learn("gravity", Unconstrained(tensor(0.0, 0.0, -9.0)))
    learned.learn("geometry_friction", Sliding(0.1), of="ball")  # that of the ground is 1
    report = Shooting(sim, learned, data).report()
    assert math.isinf(report["geometry_friction x of ball"][1])
    assert any("of ball is hidden by that of ground, which is greater" in said for said in report.unidentifiable)
    above = Parameters(sim.model, dtype=torch.float64).learn("geometry_friction", Sliding(1.1), of="ball")
    assert not any("hidden" in said for said in Shooting(sim, above, data).report().unidentifiable)


def test_a_report_names_what_was_learned_and_shows_the_fit():
    sim, q, v = ball()
    modules = guessed(sim)
    shooting = Shooting(sim, modules, recorded(sim, q, v, bouncing(sim, 0.2, 0.6)), 20)
    shooting.solve(20)
    report = shooting.report()
    assert report["contact_restitution"][0] == pytest.approx(0.6, rel=1e-3)
    assert [report.channels[k] for k in (0, 5, 6, 11)] == [
        "q:root_joint.x",
        "q:root_joint.turn_z",
        "v:root_joint.vx",
        "v:root_joint.wz",
    ]
    assert report.residuals.shape == report.measured.shape == (6, 80, 12)
    assert (report.time.diff() > 0.0).all()
    assert len(report.plot().axes) == 16


def test_a_simulation_that_explodes_names_its_window():
    sim, q, v = pendulum()
    data = recorded(sim, q, v, {})
    data.v[3, 40] = 1e7
    learned = weighed()
    with pytest.raises(InputError, match="window 2 of trajectory 3 does not stay finite"):
        Shooting(sim, learned, data, 20).solve()


def test_progress_shows_a_bar(capsys):
    sim, q, v = pendulum()
    Shooting(sim, weighed(), recorded(sim, q, v, heavy(1.4, 0.1)), 20).solve(3, progress=True)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["solve", "descend"])
def test_an_interrupt_propagates_unless_the_partial_result_is_asked_for(method, monkeypatch):
    sim, q, v = pendulum()
    data = recorded(sim, q, v, heavy(1.4, 0.1))

    def run(**options):
        learned = weighed()
        shooting, calls = Shooting(sim, learned, data, 20), []
        plain = shooting._run

        def interrupted(*arguments, **named):
            calls.append(1)
            if len(calls) == 9:
                raise KeyboardInterrupt
            return plain(*arguments, **named)

        monkeypatch.setattr(shooting, "_run", interrupted)
        return shooting, getattr(shooting, method)(10, **options)

    with pytest.raises(KeyboardInterrupt):
        run(progress=True)
    shooting, history = run(return_on_interrupt=True)
    assert history[-1] < history[0]
    assert float(shooting.loss().detach()) == pytest.approx(min(history))


def test_wrong_input_is_told_what_would_be_right():
    sim, q, v = pendulum()
    learned, data = weighed(), recorded(sim, q, v, {})
    with pytest.raises(InputError, match="Shooting needs 'v'; the recording has time, q"):
        Shooting(sim, learned, Recording(sim.model, data.time, data.q))
    with pytest.raises(InputError, match=r"the recording is of 'pendulum.*', not of 'ball'"):
        Shooting(ball()[0], learned, data)
    with pytest.raises(InputError, match=r"samples are 0\.01 s apart; .* multiple of the simulator's dt, 0\.004 s"):
        Shooting(adjoin.Simulator(sim.model, dt=0.004, pairs=[]), learned, data)
    with pytest.raises(InputError, match=r"noise of v must be one positive number or 2, got 0\.0"):
        Shooting(sim, learned, data, noise=(1.0, 0.0))
    with pytest.raises(InputError, match="continuity is for starts that are free"):
        Shooting(sim, learned, data, continuity=1.0)
    with pytest.raises(InputError, match="robust must be positive, got -1"):
        Shooting(sim, learned, data, robust=-1)
    with pytest.raises(InputError, match="no method 'sgd'; methods: adam, lbfgs"):
        Shooting(sim, learned, data).descend(method="sgd")
    with pytest.raises(InputError, match="nothing is learned"):
        Shooting(sim, [], data).solve()


def test_starts_in_a_local_minimum_are_found_again_each_window_for_itself():
    sim, q, v = ball()
    recording = recorded(sim, q, v, bouncing(sim, 0.3, 0.4), every=4, noise=(1e-4, 1e-3))
    shooting = Shooting(sim, guessed(sim), recording, 10, noise=(1e-4, 1e-3), free=True, robust=3.0)
    windows = torch.arange(len(shooting.v[0]))
    candidates = Candidates(shooting, shooting.raw[None])
    right, losses = fitted(candidates, torch.zeros_like(windows), windows, shooting.start)
    strayed = right[0].clone()
    strayed[3, 2] += 0.03
    shooting.start = (strayed, right[1])
    assert window_losses(shooting)[3] > 10.0 * losses[3]
    assert improve_starts(shooting)
    assert (window_losses(shooting) < losses + 1.0).all()
    assert not improve_starts(shooting)


def test_errors_of_a_robust_fit_are_those_of_its_influence():
    sim, q, v = ball()
    recording = recorded(sim, q, v, bouncing(sim, 0.3, 0.4), every=4)
    plain, robust = (Shooting(sim, guessed(sim), recording, 10, free=True, robust=cutoff) for cutoff in (None, 3.0))
    noise = random(200, 200, 3)
    assert (plain._influence(noise, plain.weights(noise)) == 1.0).all()
    weights = robust.weights(noise)
    counted = (noise * robust._influence(noise, weights)).square().mean((0, 1))
    # Of a mean of Gaussian numbers by Cauchy's loss at three deviations, the variance is 1.07 that of the plain mean.
    variance = counted / weights.square().mean((0, 1))
    values = torch.linspace(-8.0, 8.0, 4001, dtype=torch.float64)
    density = torch.exp(-0.5 * values.square()) / math.sqrt(2.0 * math.pi) * values.diff()[0]
    square = (values / 3.0).square()
    psi, bend = values / (1.0 + square), (1.0 - square) / (1.0 + square).square()
    expected = (psi.square() * density).sum() / (bend * density).sum().square()
    torch.testing.assert_close(variance, expected.expand(3), rtol=0.02, atol=0.0)
    assert 1.0 < expected < 1.1


def test_windows_at_the_edge_of_a_jump_do_not_hold_up_the_others():
    sim, q, v = ball()
    noise = (1e-3, 1e-2)
    recording = recorded(sim, q, v, bouncing(sim, 0.3, 0.4), every=4, noise=noise)
    at_truth, solved = (
        Shooting(sim, guessed(sim, *first), recording, 10, noise=noise, free=True, robust=3.0)
        for first in ((0.3, 0.4), (0.2, 0.2))
    )
    for seed in range(2):
        improve_starts(at_truth, seed)
    solved.solve()
    assert window_losses(solved).sum() < window_losses(at_truth).sum() + 1.0
    for name, truth in (("geometry_friction x of ground", 0.3), ("contact_restitution", 0.4)):
        estimate, error = solved.report()[name]
        assert abs(estimate - truth) < 3.0 * error


def test_a_search_from_measured_starts_takes_the_best_of_its_points():
    sim, q, v = ball()
    recording = recorded(sim, q, v, bouncing(sim, 0.3, 0.4), every=4)
    shooting = Shooting(sim, guessed(sim, 0.3, 0.4), recording, 10, robust=3.0)
    right = shooting.raw
    wrong = right + tensor(0.0, 6.0)
    search_from_measured_starts(shooting, wrong, right)
    assert (shooting.raw == right).all()
    search_from_measured_starts(shooting, right - tensor(0.0, 1.5))
    assert torch.allclose(shooting.raw, right)
