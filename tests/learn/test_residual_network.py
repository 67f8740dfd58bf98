import functools

import pytest
import torch
from torch.autograd import gradcheck

import adjoin
from adjoin import trace
from adjoin.errors import InputError
from adjoin.learn.data import Recording
from adjoin.learn.modules import Positive
from adjoin.learn.parameters import Parameters
from adjoin.learn.residual_network import ResidualNetwork, _chosen
from adjoin.learn.shooting import Shooting

STEPS = 100


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


@functools.cache
def pendulum():
    return adjoin.robots.load("pendulum", links=2)


def simulator(residual=None):
    return adjoin.Simulator(pendulum(), dt=0.02, integrator=adjoin.RK4(), pairs=[], limits=False, residual=residual)


def rubbing(q, v, control):
    """What only the second joint has."""
    return {"force": [0.0, -0.3 * trace.tanh(4.0 * v[1])]}


@functools.cache
def recorded(noise=0.0, damping=0.0):
    real = simulator(rubbing)
    own = real.model.parameters(dtype=torch.float64)["damping"] + damping
    path = real.rollout(
        real.state(random(8, 2), random(8, 2, seed=1)), torch.zeros(STEPS, 0).double(), {"damping": own}
    )
    time = (0.02 * torch.arange(STEPS + 1, dtype=torch.float64)).expand(8, -1)
    q, v = (x.transpose(0, 1).contiguous() for x in (path.q, path.v))
    return Recording(pendulum(), time, q + noise * random(*q.shape, seed=2), v + 5.0 * noise * random(*v.shape, seed=3))


def network(hidden=(8,), seed=0, **options):
    options = {"like": recorded(), "dtype": torch.float64, "generator": generator(seed), **options}
    return ResidualNetwork(pendulum(), ["force"], hidden, **options)


def woken(made, seed=4):
    """With an output."""
    with torch.no_grad():
        made.layers[-1].copy_(random(*made.layers[-1].shape, seed=seed))
    return made


def test_it_begins_as_exactly_nothing():
    made, plain = network(), simulator()
    sim = simulator(made)
    state, controls = plain.state(random(8, 2), random(8, 2, seed=1)), torch.zeros(STEPS, 0, dtype=torch.float64)
    path, other = sim.rollout(state, controls, tensors=made.weights()), plain.rollout(state, controls)
    assert torch.equal(path.q, other.q)
    assert torch.equal(path.v, other.v)
    assert made.zero_outputs == ["force of joint1", "force of joint2"]
    assert not made.evaluate(state.q, state.v)["force"].any()


@pytest.mark.parametrize("hidden", [(), (5,), (6, 4)])
def test_tensors_and_scalars_give_the_same_additions(hidden):
    robot = adjoin.robots.load("ant")
    adds = {"force": None, "geometry_friction": ["ground"], "gravity": None, "mass": "torso"}
    model = adjoin.Simulator(robot).model
    made = ResidualNetwork(
        model,
        adds,
        hidden,
        inputs=("q", "v", "control"),
        scale={"force": 3.0},
        dtype=torch.float64,
        generator=generator(),
    )
    woken(made)
    with torch.no_grad():
        made.mean += 0.3
        made.spread *= 2.0
    shapes = {name: tuple(x.shape) for name, x in made.weights().items()}

    @adjoin.function(q=model.nq, v=model.nv, control=model.nu, **shapes)
    def traced(q, v, control, **named):
        return made(q, v, control, **named)

    q, v, control = model.random((3,), dtype=torch.float64), random(3, model.nv), random(3, model.nu)
    expected = traced(q, v, control, **made.weights())
    found = made.evaluate(q, v, control)
    assert {name: x.shape[1:] for name, x in found.items()} == {
        "force": (model.nv,),
        "geometry_friction": (len(model.geometries), 3),
        "gravity": (3,),
        "mass": (len(model.bodies),),
    }
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name])
    assert found["mass"][:, 0].all()
    assert not found["mass"][:, 1:].any()


def test_where_a_floating_base_is_does_not_matter_but_how_it_leans_does():
    model = adjoin.robots.load("ant")
    made = woken(ResidualNetwork(model, hidden=(4,), dtype=torch.float64, generator=generator()))
    q, v = model.random((1,), dtype=torch.float64), random(1, model.nv)
    there, leaning = q.clone(), q.clone()
    there[:, :3] += 5.0
    leaning[:, 3:7] = torch.nn.functional.normalize(q[:, 3:7] + 0.5, dim=-1)
    here = made.evaluate(q, v)["force"]
    assert torch.equal(here, made.evaluate(there, v)["force"])
    assert not torch.allclose(here, made.evaluate(leaning, v)["force"])


def test_joints_without_limits_look_the_same_after_a_turn():
    made = woken(network())
    q, v = random(4, 2), random(4, 2, seed=1)
    torch.testing.assert_close(made.evaluate(q, v)["force"], made.evaluate(q + 2.0 * torch.pi, v)["force"])


def test_gradients_of_weights_through_a_rollout_are_those_of_finite_differences():
    made = woken(network((3,)))
    sim = simulator(made)
    state = sim.state(random(2, 2), random(2, 2, seed=1))

    def rolled(*layers):
        values = {f"layers.{k}": layer for k, layer in enumerate(layers)}
        weights = torch.func.functional_call(_Weights(made), {f"made.{name}": x for name, x in values.items()}, ())
        path = sim.rollout(state, torch.zeros(10, 0, dtype=torch.float64), tensors=weights)
        return path.q[-1], path.v[-1]

    assert gradcheck(rolled, [x.detach().clone().requires_grad_() for x in made.layers], atol=1e-6)


class _Weights(torch.nn.Module):
    def __init__(self, made):
        super().__init__()
        self.made = made

    def forward(self):
        return self.made.weights()


def test_it_learns_what_the_model_lacks_together_with_a_parameter():
    data = recorded(damping=0.2)
    made = network((8,), inputs=("v",))
    learned = Parameters(pendulum(), dtype=torch.float64).learn("damping", Positive(torch.tensor([0.1])), of="joint1")
    sim = simulator(made)
    shooting = Shooting(sim, [learned, made], data, 20, noise=(0.01, 0.05))
    history = shooting.solve(25)
    assert history[-1] < 1e-4 * history[0]
    v = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)[:, None] * torch.tensor([0.0, 1.0])
    added = made.evaluate(torch.zeros_like(v), v)["force"]
    expected = -0.3 * torch.tanh(4.0 * v[:, 1]) - 0.2 * v[:, 1]
    torch.testing.assert_close(added[:, 1], expected, rtol=0.0, atol=0.03)


def test_with_sparsity_it_stays_zero_where_the_data_ask_for_nothing():
    for sparsity, silent in ((0.0, []), (20.0, ["force of joint1"])):
        made = network()
        shooting = Shooting(simulator(made), made, recorded(noise=2e-3), 20, noise=(2e-3, 1e-2))
        history = shooting.descend(200, rate=0.03, sparsity=sparsity)
        assert made.zero_outputs == silent
        assert history[-1] < 0.05 * history[0]
    assert made.prune() == silent
    assert shooting.solve(10)[-1] < 0.5 * history[-1]
    assert made.zero_outputs == silent
    with torch.no_grad():
        added = made.evaluate(random(5, 2), random(5, 2, seed=1))["force"]
    assert not added[:, 0].any()
    assert added[:, 1].all()


def test_a_penalty_that_is_too_dear_keeps_all_of_it_silent():
    made = network()
    shooting = Shooting(simulator(made), made, recorded(noise=2e-3), 20, noise=(2e-3, 1e-2))
    history = shooting.descend(20, rate=0.03, sparsity=1e6)
    assert made.zero_outputs == made.outputs
    assert history[-1] == history[0]


def test_the_proximal_step_shortens_what_an_output_has():
    made = woken(network())
    before = made.layers[-1].detach().clone()
    made.shrink(torch.tensor([0.5, 1e3], dtype=torch.float64))
    after = made.layers[-1].detach()
    torch.testing.assert_close(after[0].norm(), before[0].norm() - 0.5)
    torch.testing.assert_close(after[0] / after[0].norm(), before[0] / before[0].norm())
    assert not after[1].any()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    made.proximal(optimizer, 2.0)
    torch.testing.assert_close(made.layers[-1].detach()[0].norm(), before[0].norm() - 0.7)


def test_unknown_names_list_those_there_are():
    with pytest.raises(InputError, match="no parameter 'torque'; parameters: force, mass"):
        ResidualNetwork(pendulum(), ["torque"])
    with pytest.raises(InputError, match="'force': no joint 'elbow'; joints: joint1, joint2"):
        ResidualNetwork(pendulum(), {"force": "elbow"})
    with pytest.raises(InputError, match="no input tau; inputs: q, v, control"):
        ResidualNetwork(pendulum(), inputs=("q", "tau"))
    with pytest.raises(InputError, match=r"'actuator_gain' of 'pendulum.*' has no numbers to add to"):
        ResidualNetwork(pendulum(), ["actuator_gain"])


def test_a_network_adds_to_the_numbers_of_the_link_that_was_named():
    model = adjoin.robots.load("two_link")
    link = model.bodies[1].name
    labels, shape, indices = _chosen(model, "com", link)
    assert shape == (2, 3)
    assert indices == [3, 4, 5]
    assert labels == [f"com of {link} {k}" for k in range(3)]


def test_the_proximal_step_of_adam_divides_by_the_size_that_adam_divides_by(monkeypatch):
    made = woken(network())
    optimizer = torch.optim.Adam(made.parameters(), lr=0.1, betas=(0.9, 0.99), eps=1e-8)
    last = made.layers[-1]
    for parameter in made.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer.step()
    thresholds = []
    monkeypatch.setattr(made, "shrink", thresholds.append)
    made.proximal(optimizer, 2.0)
    assert torch.allclose(thresholds[0], torch.full((len(last),), 0.1 * 2.0 / (0.5 + 1e-8), dtype=torch.float64))
