import functools
import math

import pytest
import torch

import adjoin
from adjoin.errors import InputError
from adjoin.learn.modules import Bounded, Covariance, LogCholesky, Positive, Rotation, Unconstrained
from adjoin.learn.parameters import Parameters
from adjoin.learn.report import _parameter_labels
from adjoin.model.parameters import find

F64 = torch.float64
LIMITS = ("lower", "upper")


@functools.cache
def arm():
    return adjoin.robots.load("two_link").with_servos(20.0, 1.0)


@functools.cache
def quadruped():
    return adjoin.robots.load("go2")


def bodies(model):
    return [body.name for body in model.bodies]


def state(model, *batch):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*batch, model.nv, generator=generator, dtype=F64) for _ in range(3))


class Limit(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = torch.nn.Parameter(value)

    def forward(self):
        return self.value


@pytest.mark.parametrize("name", [name for name, value in quadruped().parameters().items() if value.numel()])
def test_every_parameter_can_be_learned_and_starts_as_the_model_has_it(name):
    model = quadruped()
    learned = Parameters(model, F64).learn(name, Limit if name in LIMITS else Unconstrained)
    assert list(learned()) == [name]
    torch.testing.assert_close(learned()[name], model.parameters(dtype=F64)[name], rtol=0.0, atol=0.0)
    for other in learned.parameters():
        assert other.dtype == F64


@functools.cache
def tied():
    path = (adjoin.Waypoint("joint", "baseHinge"), adjoin.Waypoint("joint", "interArm"))
    string = adjoin.Tendon("string", path, stiffness=3.0, lower=-1.0, upper=1.0)
    gear = adjoin.EqualityConstraint("gear", "joint", "baseHinge", "interArm")
    return arm().with_tendon(string).with_equality(gear)


@pytest.mark.parametrize("name", [name for name in tied().parameters() if name.startswith(("tendon", "equality"))])
def test_parameters_of_tendons_and_equalities_can_be_learned_and_are_named(name):
    model, limits = tied(), ("tendon_lower", "tendon_upper")
    owner = "string" if name.startswith("tendon") else "gear"
    learned = Parameters(model, F64).learn(name, Limit if name in limits else Unconstrained, of=owner)
    assert torch.equal(learned()[name], model.parameters(dtype=F64)[name])
    labels = _parameter_labels(model, find(name), learned()[name].shape)
    assert len(labels) == learned()[name].numel()
    assert all(label.endswith(f" of {owner}") for label in labels)
    with pytest.raises(InputError, match="'foot'"):
        Parameters(model, F64).learn(name, Unconstrained, of="foot")


@pytest.mark.parametrize("name", ["effort_limit", "velocity_limit"])
def test_what_no_kernel_reads_cannot_be_learned(name):
    with pytest.raises(InputError, match=f"parameter '{name}' has no effect on a call"):
        Parameters(quadruped(), F64).learn(name, Limit)


def test_only_what_was_chosen_is_learned():
    model = quadruped()
    chosen = ["FL_thigh", "RR_calf"]
    learned = Parameters(model, F64).learn("mass", Positive(torch.tensor([2.0, 3.0])), of=chosen)
    mass, own = learned()["mass"], model.parameters(dtype=F64)["mass"]
    for index, name in enumerate(bodies(model)):
        expected = {"FL_thigh": 2.0, "RR_calf": 3.0}.get(name, own[index].item())
        assert mass[index].item() == pytest.approx(expected, rel=1e-7)
    (gradient,) = torch.autograd.grad(mass.sum(), learned.parts["mass"][0].raw)
    torch.testing.assert_close(gradient, torch.tensor([2.0, 3.0], dtype=F64), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("value", [torch.tensor(0.7), torch.tensor([0.7])])
def test_one_value_can_be_shared(value):
    model = quadruped()
    joints = [joint.name for joint in model.joints[1:]]
    learned = Parameters(model).learn("damping", Positive(value), of=joints)
    damping = learned()["damping"]
    torch.testing.assert_close(damping, torch.tensor([0.0] * 6 + [0.7] * 12))
    damping.sum().backward()
    assert learned.parts["damping"][0].raw.grad.item() == pytest.approx(12 * 0.7)


def test_several_modules_of_one_parameter_go_to_their_places():
    model = arm()
    learned = Parameters(model, F64)
    for value, name in ((5.0, bodies(model)[1]), (4.0, bodies(model)[0])):
        learned.learn("mass", Positive(value), of=name)
    assert learned()["mass"].tolist() == pytest.approx([4.0, 5.0])


def test_values_per_environment_act_as_if_given_one_by_one():
    model = arm()
    masses = torch.tensor([[1.0], [2.0], [3.0]], dtype=F64)
    inertias = Covariance(model.parameters(dtype=F64)["inertia"][1:] * masses[..., None])
    learned = Parameters(model, F64)
    learned.learn("mass", Positive(masses), of=bodies(model)[1]).learn("inertia", inertias, of=bodies(model)[1])
    params = learned()
    assert params["mass"].shape == (3, 2)
    assert params["inertia"].shape == (3, 2, 6)
    q, v, a = state(model, 3)
    together = adjoin.rnea(model, q, v, a, params=params)
    for k in range(3):
        alone = adjoin.rnea(model, q[k], v[k], a[k], params={name: value[k] for name, value in params.items()})
        torch.testing.assert_close(together[k], alone)
    together.square().sum().backward()
    assert all(bool((parameter.grad != 0.0).all()) for parameter in learned.parts["mass"].parameters())


def inertial_and_more():
    model = arm()
    learned = Parameters(model, F64)
    learned.learn("inertial", LogCholesky, of=bodies(model)[1])
    learned.learn("joint_rotation", Rotation).learn("damping", lambda value: Positive(value + 0.1))
    learned.learn("gravity", Unconstrained).learn(
        "joint_position", lambda value: Bounded(value, value - 0.1, value + 0.2)
    )
    return model, learned


def test_gradients_of_dynamics_reach_the_raw_numbers():
    model, learned = inertial_and_more()
    q, v, a = state(model, 2)
    raws = dict(learned.named_parameters())

    def torques(*values):
        params = torch.func.functional_call(learned, dict(zip(raws, values, strict=True)), ())
        return adjoin.rnea(model, q, v, a, params=params, passive=True)

    torch.autograd.gradcheck(torques, tuple(raw.detach().clone().requires_grad_() for raw in raws.values()))
    adjoin.aba(model, q, v, a, params=learned()).sum().backward()
    assert all(raw.grad.isfinite().all() for name, raw in raws.items() if "damping" not in name)


def test_the_simulator_takes_them_shared_and_per_environment():
    model = arm()
    sim = adjoin.Simulator(model, dt=1e-2)
    start = sim.state(batch=4, dtype=F64)
    control = torch.ones(20, 4, model.nu, dtype=F64)
    learned = Parameters(model, F64)
    learned.learn("actuator_gain", Positive(torch.full((4, 1), 20.0)), of=model.actuators[0].name)
    learned.learn("mass", Positive, of=bodies(model)[1])
    path = sim.rollout(start, control, params=learned())
    path.q[-1, 0].sum().backward()
    gain, mass = (part.raw.grad for part in (learned.parts["actuator_gain"][0], learned.parts["mass"][0]))
    assert gain[0] != 0.0
    assert not gain[1:].any()
    assert mass != 0.0
    step = sim.step(start, control[0], params=learned())
    torch.testing.assert_close(step.q, path.q[1])


def test_the_model_gets_the_learned_values():
    model, learned = inertial_and_more()
    with torch.no_grad():
        for raw in learned.parameters():
            raw.add_(0.01)
    found = learned.model()
    q, v, a = state(model, 2)
    torch.testing.assert_close(adjoin.rnea(found, q, v, a), adjoin.rnea(model, q, v, a, params=learned()))
    assert found.gravity == pytest.approx((0.01, 0.01, -9.80))


def test_a_state_dict_carries_the_learned_values_over():
    _, learned = inertial_and_more()
    with torch.no_grad():
        for raw in learned.parameters():
            raw.add_(0.01)
    _, again = inertial_and_more()
    again.load_state_dict(learned.state_dict())
    for name, value in learned().items():
        torch.testing.assert_close(again()[name], value, rtol=0.0, atol=0.0)
    assert learned.float()()["mass"].dtype == torch.float32


class Gives(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self):
        return self.value


BAD_INERTIA = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 3.0])


@pytest.mark.parametrize(
    ("name", "module", "of", "message"),
    [
        ("mas", Positive, None, "no parameter 'mas'; parameters: inertial, mass, com, "),
        ("mass", Positive, "foot", "'mass': no body 'foot'; bodies: arm1, arm2"),
        ("mass", Positive, "endEffector", "no body 'endEffector'; .* is welded to the body 'arm2'"),
        ("damping", Positive, "arm1", "'damping': no joint 'arm1'; joints: baseHinge, interArm"),
        ("geometry_size", Positive, "foot", "no geometry 'foot'; geometries: "),
        ("actuator_gain", Positive, "joint9", "no actuator 'joint9'; actuators: baseHinge, interArm"),
        ("mass", Positive, ["arm1", "arm1"], "must name each body once"),
        ("gravity", Unconstrained, "arm1", "belongs to the world"),
        ("mass", 3.0, None, "needs a torch.nn.Module, or a class of them; got a float"),
        ("mass", Gives(3.0), None, "mass of 'arm1', 'arm2': Gives returned a float"),
        ("mass", Gives(torch.ones(3)), None, r"mass of 'arm1', 'arm2': Gives returned shape \(3,\); .* \(..., 2\)"),
        ("com", Gives(torch.ones(2)), "arm1", r"com of 'arm1': Gives returned shape \(2,\); .* \(..., 1, 3\)"),
        ("com", Gives(torch.ones(2, 2, dtype=F64)), "arm1", "returned torch.float64 on cpu"),
        ("mass", Gives(torch.tensor([1.0, -2.0])), None, "mass of 'arm2': Gives returned -2.0; .* negative"),
        ("mass", Gives(torch.tensor([math.nan, 1.0])), None, "mass of 'arm1': Gives returned nan; .* NaN"),
        (
            "mass",
            Gives(torch.tensor([[1.0, 1.0], [1.0, -1.0]])),
            None,
            "environment 1: mass of 'arm2': Gives returned -1",
        ),
        ("com", Gives(torch.full((3,), math.inf)), None, "com of 'arm1', 'arm2': Gives .* must be finite"),
        ("inertia", Gives(BAD_INERTIA), "arm2", "inertia of 'arm2': Gives .* triangle inequality"),
        ("inertia", Gives(-torch.eye(3)), "arm2", "inertia of 'arm2': Gives .* physical"),
        ("joint_rotation", Gives(torch.ones(4)), "arm1", "joint_rotation of 'arm1': .* unit length"),
        ("damping", Gives(torch.tensor(-1.0)), "interArm", "damping of 'interArm': .* negative"),
        ("upper", Gives(torch.tensor(math.nan)), "interArm", "upper of 'interArm': .* NaN"),
        ("inertial", Gives(torch.ones(2)), "arm2", r"Gives must return the tuple \(mass, com, inertia\), got a Tensor"),
        ("inertial", Gives((torch.ones(1), torch.ones(1, 3), BAD_INERTIA)), "arm2", "inertia of 'arm2': .* triangle"),
    ],
)
def test_bad_input_is_named(name, module, of, message):
    model = arm()
    learned = Parameters(model)
    with pytest.raises(InputError, match=message):
        learned.learn(name, module, of)
    assert learned() == {}
    assert not learned.state_dict()


def test_a_value_that_turns_bad_later_is_named_unless_checks_are_off():
    model = arm()
    learned = Parameters(model).learn("mass", Unconstrained).learn("com", Unconstrained)
    with torch.no_grad():
        learned.parts["com"][0].raw[1, 2] = math.nan
    with pytest.raises(InputError, match=r"com of 'arm2': Unconstrained returned .*NaN"):
        learned()
    learned.check = False
    assert learned()["com"].isnan().any()


def test_nothing_is_learned_twice():
    learned = Parameters(arm()).learn("inertial", LogCholesky, of="arm2").learn("gravity", Unconstrained)
    learned.learn("mass", Positive, of="arm1")
    with pytest.raises(InputError, match="'mass' of 'arm2' is learned already, as 'inertial'"):
        learned.learn("mass", Positive, of="arm2")
    with pytest.raises(InputError, match="'inertial' of 'arm1' is learned already, as 'mass'"):
        learned.learn("inertial", LogCholesky, of="arm1")
    with pytest.raises(InputError, match="'gravity' is learned already"):
        learned.learn("gravity", Unconstrained)


def test_batches_that_do_not_fit_together_are_named():
    learned = Parameters(arm()).learn("mass", Positive(torch.ones(3, 1)), of="arm1")
    learned.learn("mass", Positive(torch.ones(4, 1)), of="arm2")
    with pytest.raises(InputError, match=r"'mass' have batch shapes that do not broadcast: \(3,\), \(4,\)"):
        learned()
