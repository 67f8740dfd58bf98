"""How quantities are called: alone, together, inside traced functions, by torch's transforms; and what errors say."""

import collections
import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import torch
from kernel_checks import check_kernel
from peers import close, robot
from reference import CORE, samples
from small import chain, tree

import adjoin
from adjoin.compiler.runtime.kernel import launched
from adjoin.dynamics import call as calls
from adjoin.dynamics.aba import aba, minverse
from adjoin.dynamics.call import call, compute
from adjoin.dynamics.crba import crba
from adjoin.dynamics.passive import passive_forces
from adjoin.dynamics.quantity import QUANTITIES, quantity
from adjoin.dynamics.rnea import bias_forces, gravity_forces, rnea
from adjoin.errors import AdjoinError, InputError, ModelError, TraceError

META = torch.device("meta")


def alone(model, q, v, a, tau, **more):
    """Each quantity by its own function."""
    return {
        "rnea": rnea(model, q, v, a, **more),
        "bias_forces": bias_forces(model, q, v, **more),
        "gravity_forces": gravity_forces(model, q),
        "crba": crba(model, q),
        "aba": aba(model, q, v, tau, **more),
        "minverse": minverse(model, q),
        "passive_forces": passive_forces(model, q, v),
    }


@pytest.mark.parametrize("model", [tree(), chain("free", "revolute", "revolute")], ids=lambda model: model.name)
def test_together_is_the_same_as_alone(model):
    q, v, a, tau = samples(model, 6)
    external = {"tip": torch.randn(6, 6, dtype=torch.float64)}
    together = compute(model, q, v, a, tau, quantities=[*CORE, "passive_forces"], external=external, reference="world")
    expected = alone(model, q, v, a, tau, external=external, reference="world")
    assert together.keys() == expected.keys()
    for name, value in expected.items():
        close(together[name], value, 1e-12)


def launches(model, *quantities):
    """The programs that computing these on tensors launches."""
    before = {id(program) for program in launched(META, torch.float64)}
    q, v, a = (torch.zeros(3, n, dtype=torch.float64, device=META) for n in (model.nq, model.nv, model.nv))
    compute(model, q, v, a, a, quantities=list(quantities))
    return [program for program in launched(META, torch.float64) if id(program) not in before]


def test_what_quantities_share_is_computed_once_in_one_launch():
    go2 = robot("go2")
    model = go2.with_parameters({"mass": 1.5 * go2.parameters(dtype=torch.float64)["mass"]})  # with kernels of its own
    names = ("aba", "bias_forces", "minverse")
    single = {name: launches(model, name) for name in names}
    assert [len(programs) for programs in single.values()] == [1, 1, 1]
    (together,) = launches(model, *names)
    used = collections.Counter(node.op for node in together.schedule.order)
    joints = model.nv - 6
    assert used["sin"] == used["cos"] == joints, "the transforms of the joints are those of all quantities"
    # Forward dynamics begins with the forces of bias_forces on each body, and its inertias are those of minverse.
    aba_alone, bias_alone, minverse_alone = (single[name][0].operations for name in names)
    assert together.operations < aba_alone + 0.3 * bias_alone + 0.7 * minverse_alone


def test_labels_and_options():
    model = tree()
    q, v, a, _ = samples(model, 3)
    got = compute(model, q, v, a, quantities={"M": "crba", "active": "rnea", "needed": ("rnea", {"passive": True})})
    assert list(got) == ["M", "active", "needed"]
    close(got["M"], crba(model, q), 1e-13)
    close(got["active"], rnea(model, q, v, a), 1e-13)
    close(got["needed"], rnea(model, q, v, a, passive=True), 1e-13)


def test_only_the_inputs_that_are_needed_are_asked_for():
    model = robot("two_link")
    q, v, a, tau = samples(model, 3)
    assert torch.equal(compute(model, q, quantities=["crba"])["crba"], crba(model, q))
    assert torch.equal(compute(model, q, v, a, tau, quantities=["crba"])["crba"], crba(model, q))
    wrong_size_but_unused = torch.zeros(3, 7, dtype=torch.float64)
    assert torch.equal(compute(model, q, a=wrong_size_but_unused, quantities=["crba"])["crba"], crba(model, q))


def test_inside_a_traced_function_quantities_are_traced_there():
    model = robot("two_link")

    @adjoin.function(q=2, v=2, tau=2, mass=2, wrench=6)
    def energy_rate(q, v, tau, mass, wrench):
        found = compute(
            model, q, v, tau=tau, quantities=["crba", "aba"], params={"mass": mass}, external={"endEffector": wrench}
        )
        a = aba(model, q, v, tau, {"endEffector": wrench}, {"mass": mass})
        return {"power": v @ (found["crba"] @ found["aba"]), "same": a - found["aba"]}

    q, v, _, tau = samples(model, 4)
    mass, wrench = torch.rand(4, 2, dtype=torch.float64) + 0.5, torch.randn(4, 6, dtype=torch.float64)
    got = energy_rate(q, v, tau, mass, wrench)
    params = {"mass": mass}
    a = aba(model, q, v, tau, {"endEffector": wrench}, params)
    close(got["power"], torch.einsum("bi,bij,bj->b", v, crba(model, q, params), a), 1e-12)
    assert not got["same"].any()


def test_constants_inside_a_traced_function_are_folded():
    model = robot("two_link")
    q = np.array([0.3, -0.2])

    @adjoin.function(v=2)
    def momentum(v):
        return crba(model, q) @ v

    v = torch.randn(5, 2, dtype=torch.float64)
    close(momentum(v), (crba(model, torch.from_numpy(q)) @ v.mT).mT, 1e-13)
    assert momentum.kernel.program.operations == 6  # four products, two sums


def test_a_robot_without_joints_has_empty_vectors_and_matrices():
    model = adjoin.Model("nothing", ())
    found = compute(model, *torch.zeros(4, 3, 0), quantities=list(CORE))
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        name: (3, 0, 0) if name in ("crba", "minverse") else (3, 0) for name in CORE
    }
    q, v, a, _ = torch.zeros(4, 3, 0)
    for matrix in (adjoin.coriolis_matrix(model, q, v), *adjoin.aba_derivatives(model, q, v, a)):
        assert matrix.shape == (3, 0, 0)


# Nothing shared, nothing kept


def test_results_do_not_alias_each_other_or_the_inputs():
    model = robot("two_link")
    q, v, a, tau = samples(model, 3)
    kept = [x.clone() for x in (q, v, a, tau)]
    first = compute(model, q, v, a, tau, quantities=list(CORE))
    before = {name: value.clone() for name, value in first.items()}
    second = compute(model, q + 1.0, v, a, tau, quantities=list(CORE))
    for name, value in first.items():
        assert torch.equal(value, before[name])
        assert not torch.equal(value, second[name]) or name == "gravity_forces"
        value.fill_(7.0)
    assert torch.equal(compute(model, q, v, a, tau, quantities=list(CORE))["rnea"], before["rnea"])
    addresses = [value.data_ptr() for value in (*first.values(), *second.values(), q, v, a, tau)]
    assert len(set(addresses)) == len(addresses)
    for x, y in zip((q, v, a, tau), kept, strict=True):
        assert torch.equal(x, y)


def test_a_model_goes_with_its_kernels_when_nobody_holds_it():
    model = robot("two_link").with_parameters({"mass": torch.tensor([1.25, 2.5])})
    q, v, a, _ = samples(model, 2)
    rnea(model, q, v, a)
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None


def test_equal_models_share_their_kernels():
    one = robot("two_link").with_parameters({"mass": torch.tensor([1.5, 2.5])})
    other = robot("two_link").with_parameters({"mass": torch.tensor([1.5, 2.5])})
    q, v, a, _ = samples(one, 2)
    assert one is not other
    assert torch.equal(rnea(one, q, v, a), rnea(other, q, v, a))


def test_from_many_threads_at_once_a_kernel_is_traced_once(monkeypatch):
    model = chain("revolute", "prismatic", "ball")
    q, v, a, tau = samples(model, 32)
    plain, traced, barrier, results = calls._compile, [], threading.Barrier(64), [None] * 64

    def counted(*args):
        traced.append(args)
        return plain(*args)

    def work(i):
        barrier.wait()
        results[i] = compute(model, q, v, a, tau, quantities=["aba", "rnea"])

    monkeypatch.setattr(calls, "_compile", counted)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traced) == 1
    for result in results:
        assert torch.equal(result["aba"], results[0]["aba"])
        assert torch.equal(result["rnea"], results[0]["rnea"])


# Kernels


def test_the_kernel_of_several_quantities_satisfies_what_every_kernel_must():
    model = tree()

    @adjoin.function(q=model.nq, v=model.nv, stiffness=model.nv)
    def function(q, v, stiffness):
        quantities = ["bias_forces", "gravity_forces", "passive_forces"]
        return compute(model, q, v, quantities=quantities, params={"stiffness": stiffness})

    q, v, _, _ = samples(model, 5, spin=1.0)
    check_kernel(function.kernel, [q, v, 1.0 + torch.rand(5, model.nv, dtype=torch.float64)], second=False)


# torch's transforms


def test_vmap_is_the_batch():
    model = chain("free", "revolute")
    q, v, a, _ = samples(model, 5)
    expected = rnea(model, q, v, a)
    assert torch.equal(torch.func.vmap(lambda q, v, a: rnea(model, q, v, a))(q, v, a), expected)
    assert torch.equal(torch.func.vmap(lambda q, v: rnea(model, q, v, a[0]))(q, v), rnea(model, q, v, a[0]))


def test_jacobians_and_products_of_torch_func():
    model = chain("revolute", "prismatic", "revolute")
    q, v, a, _ = (x[0] for x in samples(model, 1, spin=1.0))
    reverse = torch.func.jacrev(rnea, argnums=(1, 2, 3))(model, q, v, a)
    forward = torch.func.jacfwd(rnea, argnums=(1, 2, 3))(model, q, v, a)
    for one, other in zip(reverse, forward, strict=True):
        close(one, other, 1e-12)
    close(reverse[2], crba(model, q), 1e-12)
    move = torch.randn(3, dtype=torch.float64)
    _, product = torch.func.jvp(lambda q: rnea(model, q, v, a), (q,), (move,))
    close(product, reverse[0] @ move, 1e-12)
    _, pull = torch.func.vjp(lambda q: rnea(model, q, v, a), q)
    close(pull(move)[0], reverse[0].mT @ move, 1e-12)
    batched = torch.func.vmap(torch.func.jacrev(lambda q: rnea(model, q, v, a)))(q.expand(4, 3))
    close(batched[3], reverse[0], 1e-12)
    hessian = torch.func.hessian(lambda q: rnea(model, q, v, a)[0])(q)
    close(hessian, hessian.mT, 1e-10)


def test_torch_compile():
    model = robot("two_link")
    q, v, a, tau = samples(model, 4)

    def loss(q, v, tau):
        return (aba(model, q, v, tau) ** 2).sum() + torch.sin(rnea(model, q, v, a)).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results = []
    for function in (loss, compiled):
        leaves = [x.clone().requires_grad_() for x in (q, v, tau)]
        value = function(*leaves)
        results.append((value, *torch.autograd.grad(value, leaves)))
    for one, other in zip(*results, strict=True):
        close(one.detach(), other.detach(), 1e-12)


def test_torch_compile_of_a_first_call_compiles_the_kernel_and_ignores_other_models():
    """Its guards held every model with kernels, so that it failed when one of them went, and compiled again later."""
    model, graphs = chain("revolute", "prismatic", "revolute"), []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    other = chain("prismatic", "revolute")
    crba(other, torch.zeros(2))
    compiled = torch.compile(lambda *state: rnea(model, *state), fullgraph=True, backend=backend)
    state = samples(model, 4)[:3]
    close(compiled(*state), rnea(model, *state), 1e-12)
    del other
    gc.collect()
    crba(chain("ball", "revolute"), torch.tensor([1.0, 0, 0, 0, 0]))
    compiled(*state)
    assert len(graphs) == 1


# Errors

MODEL = robot("two_link")
Q = torch.zeros(3, 2)
SIX = torch.zeros(6)
ARM = {"arm1": SIX}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rnea(MODEL, Q[:, :1], Q, Q), "rnea(two_link): 'q' must have the shape (..., 2), got (3, 1)"),
        (lambda: rnea(MODEL, Q, Q, torch.zeros(3)), "rnea(two_link): 'a' must have the shape (..., 2), got (3,)"),
        (lambda: crba(MODEL, torch.tensor(1.0)), "crba(two_link): 'q' must have the shape (..., 2), got ()"),
        (
            lambda: aba(MODEL, Q, Q, Q.double()),
            "aba(two_link): all inputs must have one dtype and device; 'q' is torch.float32 on cpu, 'tau' is "
            "torch.float64 on cpu",
        ),
        (
            lambda: crba(MODEL, Q.int()),
            "crba(two_link): 'q' must be float32 or float64, got torch.int32; convert it with .to()",
        ),
        (lambda: rnea(MODEL, Q, None, Q), "rnea(two_link): 'v' must be a torch tensor, got NoneType"),
        (
            lambda: rnea(MODEL, None, Q, Q),
            "rnea: 'q' must be a torch tensor (..., 2), or scalars (2) in a traced function; got a NoneType of shape "
            "()",
        ),
        (
            lambda: crba(MODEL, Q.numpy()),
            "crba: 'q' must be a torch tensor (..., 2), or scalars (2) in a traced function; got a ndarray of shape "
            "(3, 2)",
        ),
        (
            lambda: rnea(MODEL, [0.0, 0.0], torch.zeros(2), [0.0, 0.0]),
            "rnea: 'v' must be a torch tensor (..., 2), or scalars (2) in a traced function; got a Tensor of shape "
            "(2,)",
        ),
        (
            lambda: rnea(MODEL, Q, Q[:2], Q),
            "rnea(two_link): batch shapes do not broadcast: 'q' (3,), 'v' (2,), 'a' (3,)",
        ),
        (
            lambda: rnea("two_link", Q, Q, Q),
            "rnea: the model must be an adjoin.Model, as adjoin.load gives; got a str",
        ),
        (lambda: rnea(MODEL, Q, Q, Q, {"foot": SIX}), "no link 'foot'; links: base, arm1, arm2, endEffector"),
        (
            lambda: rnea(MODEL, Q, Q, Q, {"arm1": torch.zeros(5)}),
            "rnea(two_link): 'external['arm1']' must have the shape (..., 6), got (5,)",
        ),
        (
            lambda: rnea(MODEL, Q, Q, Q, {"arm1": [0.0] * 6}),
            "rnea(two_link): 'external['arm1']' must be a torch tensor, got list",
        ),
        (
            lambda: rnea(MODEL, Q, Q, Q, torch.zeros(3, 6)),
            "rnea: 'external' must be a mapping from frame names to (..., 6), or of shape (..., 2, 6), one row a body; "
            "got (3, 6)",
        ),
        (
            lambda: rnea(MODEL, Q, Q, Q, "arm1"),
            "rnea: 'external' must be a mapping from frame names to (..., 6), or of shape (..., 2, 6), one row a body; "
            "got str",
        ),
        (
            lambda: aba(MODEL, Q, Q, Q, ARM, reference="body"),
            "aba: no reference 'body'; references: local, world, local_world_aligned",
        ),
        (lambda: crba(MODEL, Q, {"weight": Q}), "no parameter 'weight'; parameters: mass, com, inertia, joint_pos"),
        (
            lambda: crba(MODEL, Q, {"mass": torch.zeros(3)}),
            "parameter 'mass' has shape (3,); it needs (..., 2) after any batch dimensions",
        ),
        (
            lambda: crba(MODEL, Q, {"mass": torch.zeros(4, 2)}),
            "parameter 'mass' has shape (4, 2); it needs (..., 2) after batch dimensions that broadcast to (3,)",
        ),
        (lambda: crba(MODEL, Q, {"mass": [1.0, 2.0]}), "parameter 'mass' is a list; it must be a torch tensor"),
        (
            lambda: crba(MODEL, Q, {"mass": torch.ones(2).double()}),
            "crba(two_link): all inputs must have one dtype and device; 'q' is torch.float32 on cpu, 'params['mass']' "
            "is torch.float64 on cpu",
        ),
        (lambda: compute(MODEL, Q, quantities=[]), "compute needs at least one quantity"),
        (
            lambda: compute(MODEL, Q, quantities="crba"),
            "compute: quantities must be a list of names, or a mapping from labels; got 'crba'",
        ),
        (
            lambda: crba(MODEL, Q, {"effort_limit": torch.ones(2)}),
            "parameter 'effort_limit' has no effect on a call: it is read from the model, by with_motors and ",
        ),
        (
            lambda: rnea(MODEL, Q, Q, Q, params={"velocity_limit": torch.ones(2)}),
            "parameter 'velocity_limit' has no effect on a call: it is read from the model, by learn.excitation; "
            "set it with model.with_parameters({'velocity_limit': ...}). Parameters of a call: mass, com, inertia, ",
        ),
        (
            lambda: compute(MODEL, Q, quantities=["mass_matrix"]),
            "compute: no quantity 'mass_matrix'; quantities: aba, ",
        ),
        (lambda: compute(MODEL, Q, quantities=["rnea", "aba"]), "compute needs 'v' and 'a' and 'tau' for rnea, aba"),
        (
            lambda: compute(MODEL, Q, Q, Q, quantities={"tau": ("rnea", {"friction": True})}),
            "compute: rnea has no option 'friction'; options: passive",
        ),
        (
            lambda: compute(MODEL, Q, quantities={"M": ("crba", {"passive": True})}),
            "compute: crba has no option 'passive'; options: none",
        ),
    ],
)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises(AdjoinError) as error:
        call()
    assert str(error.value).startswith(message)
    assert isinstance(error.value, (InputError, ModelError))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: crba(MODEL, x), "crba: 'q' must be a torch tensor (..., 2), or scalars (2) in a traced function"),
        (lambda x: crba(MODEL, x[:2], {"weight": x[:2]}), "no parameter 'weight'; parameters: mass, com, inertia"),
        (
            lambda x: crba(MODEL, x[:2], {"mass": x}),
            "crba: 'params['mass']' must be a torch tensor (..., 2), or scalars",
        ),
        (
            lambda x: bias_forces(MODEL, x[:2], x[:2], {"arm1": x}),
            "bias_forces: 'external['arm1']' must be a torch tensor (..., 6), or scalars (6) in a traced function",
        ),
    ],
)
def test_what_is_wrong_inside_a_traced_function_is_said(body, message):
    def traced(x):
        return body(x)

    with pytest.raises((InputError, TraceError)) as error:
        adjoin.function(x=3)(traced)
    assert message in str(error.value)


@pytest.fixture
def _quantities():
    """Quantities that a test registers are forgotten after it."""
    before = dict(QUANTITIES)
    yield
    QUANTITIES.clear()
    QUANTITIES.update(before)


@pytest.mark.usefixtures("_quantities")
@pytest.mark.parametrize("name", ["v", "a", "tau"])
def test_a_quantity_cannot_read_what_it_does_not_declare(name):
    @quantity("doubled", "q")
    def doubled(state):
        return [2.0 * x for x in getattr(state, name)]

    message = (
        rf"quantity 'doubled' reads '{name}', but declares only 'q'; add it: @quantity\('doubled', 'q', '{name}'\)"
    )
    with pytest.raises(InputError, match=message):
        call("doubled", MODEL, Q)
    with pytest.raises(InputError, match="quantity 'hasty': no input 'u'; inputs: q, v, a, tau"):
        quantity("hasty", "q", "u")


@pytest.mark.usefixtures("_quantities")
def test_a_quantity_that_is_registered_again_is_replaced_and_another_of_its_name_is_refused():
    def define(factor):
        @quantity("stretched", "q")
        def stretched(state):
            return [factor * x for x in state.q]

    define(2.0)
    assert torch.equal(call("stretched", MODEL, Q + 1.0), 2.0 * (Q + 1.0))
    define(3.0)
    assert torch.equal(call("stretched", MODEL, Q + 1.0), 3.0 * (Q + 1.0))
    assert torch.equal(compute(MODEL, Q + 1.0, quantities=["stretched"])["stretched"], 3.0 * (Q + 1.0))
    with pytest.raises(InputError, match=r"quantity 'rnea' is registered already, by adjoin.dynamics.rnea.rnea_of"):
        quantity("rnea", "q")(lambda state: state.q)


def test_quantities_need_no_import_of_their_own():
    lines = (
        "import adjoin",
        "model = adjoin.robots.load('two_link')",
        "found = adjoin.compute(model, model.random((2,)), quantities={'J': ('jacobian', {'frame': 'arm2'})})",
        "print(tuple(found['J'].shape))",
    )
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert run.stdout == "(2, 6, 2)\n"
