"""Maps over meshes: random steps against the interpreter, autograd through it, and finite differences."""

import inspect
import random
import re
from functools import partial

import numpy as np
import pytest
import torch
from random_programs import _bounded, _grow

from adjoin.compiler.maps import call, rollout
from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.reference import interpret_rollout
from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage, StepSequence
from adjoin.compiler.runtime.cpu import maps
from adjoin.compiler.runtime.cuda import maps as cuda_maps
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.cuda.maps import render
from adjoin.compiler.runtime.cuda.sort import sort_text
from adjoin.compiler.runtime.map_plan import Launch, in_order
from adjoin.compiler.runtime.map_target import MapTarget
from adjoin.continuum import ParticleMaterial, Particles
from adjoin.errors import InputError, TraceError
from adjoin.trace import scan, tanh, to_float

NODES, ELEMENTS, PROBES, STEPS = 37, 21, 3, 6


def random_runner(seed, atomic=False):
    """A step of random functions: elements gather from nodes and add to nodes, probes read the result."""
    rng = random.Random(seed)

    def mixed(values, count, salt):
        grown = _grow(random.Random(f"{seed} {salt}"), values, 8)
        return [_bounded(value) for value in grown[-count:]]

    def element(x, k, h, u, m):
        values = mixed([*x.ravel(), *k, h, u], 6, "element")
        flux = np.array(values, dtype=object).reshape(3, 2)
        share = 0.1 * m * np.outer(flux[:, 0], k[0] + np.arange(5.0))
        return {"flux": flux, "share": share, "stress": values[0] * values[1]}

    def node(x, flux, h, m, share):
        values = mixed([*x, *flux, h, m[0]], 2, "node")
        values[0] = values[0] + tanh(share @ share)
        return {"x'": np.array([0.9 * a + 0.1 * b for a, b in zip(x, values, strict=True)]), "energy": tanh(values[0])}

    def probe(x, u):
        return {"reading": mixed([*x[0], u], 1, "probe")[0]}

    fields = [
        Field("x", "nodes", (2,), "state"),
        Field("k", "elements", (2,), "parameter"),
        Field("m", "nodes", (5,), "parameter"),
        Field("h", None, (), "parameter"),
        Field("u", None, (), "control"),
        Field("flux", "elements", (2,), "temporary", "corners"),
        Field("share", "elements", (5,), "temporary", "corners"),
        Field("stress", "elements", (), "output"),
        Field("energy", None, (), "output"),
        Field("reading", "probes", (), "output"),
    ]
    connections = [
        Connection("corners", "elements", "nodes", 3, atomic=atomic),
        Connection("place", "probes", "nodes", 1, atomic=atomic),
    ]
    of_element = {"x": Read("x", "corners"), "k": Read("k"), "h": Read("h"), "u": Read("u"), "m": Read("m", "corners")}
    of_node = {"x": Read("x"), "flux": Read("flux", "corners"), "h": Read("h"), "m": Read("m")}
    stages = [
        Stage("element", "elements", element, of_element),
        Stage("node", "nodes", node, of_node | {"share": Read("share", "corners")}),
        Stage("probe", "probes", probe, {"x": Read("x'", "place"), "u": Read("u")}),
    ]
    table = np.array([rng.sample(range(NODES), 3) for _ in range(ELEMENTS)])
    tables = {"corners": table, "place": np.array([[5], [0], [5]])}
    sequence = StepSequence(fields, connections, stages)
    return StepRunner(sequence, {"nodes": NODES, "elements": ELEMENTS, "probes": PROBES}, tables)


def random_inputs(batch=(), dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1).to(dtype).requires_grad_()

    state = {"x": tensor(*batch, NODES, 2)}
    parameters = {"k": tensor(ELEMENTS, 2), "m": tensor(*batch, NODES, 5), "h": tensor()}
    return state, parameters, {"u": tensor(STEPS, *batch)}


def weighted(*results):
    """A loss in which every number counts differently."""
    total = 0.0
    for result in results:
        weights = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).reshape(result.shape)
        total = total + (weights * result * (1.0 + 0.3 * result)).sum()
    return total


def loss_and_gradients(runner, inputs, **options):
    leaves = [tensor for part in inputs for tensor in part.values()]
    states, outputs = runner.rollout(*inputs, **options)
    loss = weighted(*states.values(), *outputs.values())
    return loss, torch.autograd.grad(loss, leaves, allow_unused=True)


def tasks_of(adjoint):
    return [*adjoint.replay, *adjoint.tasks]


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_random_steps_agree_with_the_interpreter_and_with_finite_differences(seed, atomic):
    runner = random_runner(seed, atomic)
    inputs = random_inputs()
    leaves = [tensor for part in inputs for tensor in part.values()]
    loss, gradients = loss_and_gradients(runner, inputs, keep=1)
    states, outputs = interpret_rollout(runner, *inputs, STEPS)
    expected = weighted(*states.values(), *outputs.values())
    assert torch.allclose(loss, expected, rtol=1e-13)
    references = torch.autograd.grad(expected, leaves, allow_unused=True)
    for gradient, reference in zip(gradients, references, strict=True):
        reference = torch.zeros_like(gradient) if reference is None else reference
        assert torch.allclose(gradient, reference, rtol=1e-9, atol=1e-10)
    generator = torch.Generator().manual_seed(seed)
    directions = [torch.rand(leaf.shape, generator=generator, dtype=leaf.dtype) - 0.5 for leaf in leaves]

    def moved(distance):
        values = iter([leaf.detach() + distance * d for leaf, d in zip(leaves, directions, strict=True)])
        parts = [{name: next(values) for name in part} for part in inputs]
        states, outputs = runner.rollout(*parts, keep=1)
        return weighted(*states.values(), *outputs.values())

    slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    assert torch.allclose(slope, (moved(1e-7) - moved(-1e-7)) / 2e-7, rtol=1e-5)


def test_checkpoints_and_kept_states_do_not_change_a_bit():
    runner = random_runner(0)
    inputs = random_inputs(batch=(2,))
    for keep in (None, 1, 3):
        results = [
            loss_and_gradients(runner, inputs, keep=keep, checkpoints=Checkpoints(every, on_host=every == 2))
            for every in ("all", "sqrt", 2)
        ]
        for loss, gradients in results[1:]:
            assert loss.equal(results[0][0])
            assert all(a.equal(b) for a, b in zip(gradients, results[0][1], strict=True))


def test_threads_do_not_change_a_bit_and_variants_do_not_touch_each_other(monkeypatch):
    monkeypatch.setattr("adjoin.compiler.runtime.cpu.maps.WORTHWHILE", 0)
    runner = random_runner(1)
    state, parameters, controls = random_inputs(batch=(4,), dtype=torch.float32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(loss_and_gradients(runner, (state, parameters, controls))[1])
    finally:
        torch.set_num_threads(threads)
    assert all(a.equal(b) for a, b in zip(*results, strict=True))
    broken = {"x": state["x"].detach().clone()}
    broken["x"][2, 0, 0] = torch.nan
    good, _ = runner.rollout(state, parameters, controls)
    bad, _ = runner.rollout(broken, parameters, controls)
    assert bad["x"][2].isnan().any()
    assert all(bad["x"][i].equal(good["x"][i]) for i in (0, 1, 3))


def test_atomic_sums_of_many_threads_lose_nothing(monkeypatch):
    """Every element adds to every node of a small mesh, so that threads meet; checkpoints and variants as well."""
    monkeypatch.setattr("adjoin.compiler.runtime.cpu.maps.WORTHWHILE", 0)
    elements = 4096
    rng = np.random.default_rng(0)
    table = np.array([rng.permutation(NODES)[:3] for _ in range(elements)])
    generator = torch.Generator().manual_seed(0)
    state, parameters, controls = random_inputs(batch=(2,))
    parameters["k"] = torch.rand((elements, 2), generator=generator, dtype=torch.float64).requires_grad_()
    runners = [
        random_runner(3, atomic).with_tables({"elements": elements}, {"corners": table}) for atomic in (False, True)
    ]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for checkpoints in (Checkpoints("all"), Checkpoints("sqrt")):
            (one, expected), (other, found) = [
                loss_and_gradients(runner, (state, parameters, controls), keep=3, checkpoints=checkpoints)
                for runner in runners
            ]
            assert torch.allclose(one, other, rtol=1e-12)
            for a, b in zip(expected, found, strict=True):
                assert torch.allclose(a, b, rtol=1e-8, atol=1e-9)
    finally:
        torch.set_num_threads(threads)


def test_stages_whose_arrays_exceed_the_stack_have_a_workspace():
    """Each lane of each variant remembers a long path and walks it back; the answer has a closed form."""
    count = 9000  # more than fits the stack

    def far(x, k):
        _, path = scan(lambda _, carry, __: (carry + k, carry), x, length=count)
        total, _ = scan(lambda i, carry, value: (carry + value * to_float(i), None), 0.0, path)
        return {"x'": x + 1e-12 * total}

    fields = [Field("x", "nodes", (), "state"), Field("k", "nodes", (), "parameter")]
    sequence = StepSequence(fields, [], [Stage("far", "nodes", far, {"x": Read("x"), "k": Read("k")})])
    runner = StepRunner(sequence, {"nodes": 700}, {})
    x = torch.randn(3, 700, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    k = torch.rand(700, dtype=torch.float64, requires_grad=True)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            last = runner.rollout({"x": x}, {"k": k}, steps=2)[0]["x"]
            found.append([last, *torch.autograd.grad((last * x).sum(), k)])
    finally:
        torch.set_num_threads(threads)
    assert all(a.equal(b) for a, b in zip(*found, strict=True))
    one = x
    for _ in range(2):
        one = one + 1e-12 * (count * (count - 1) // 2 * one + count * (count - 1) * (2 * count - 1) // 6 * k)
    assert torch.allclose(found[0][0], one, rtol=1e-12)
    assert torch.allclose(found[0][1], torch.autograd.grad((one * x).sum(), k)[0], rtol=1e-9)
    target = CudaTarget(90)
    for task in [*sequence.forward, *tasks_of(sequence.adjoint({"k"}))]:
        made = MapTarget(target, task.map, render)
        rendered = made.render(task.map.program, made.lanes(64)[0])
        assert rendered.workspace[""] >= count
        assert ".entry kernel" in target.ptx(rendered.text)


def test_sums_over_crowded_cells_in_rounds_as_gpus_add_them(monkeypatch):
    """The code for GPUs has no vectors, and a CPU can run it: one lane at a time."""
    generator = torch.Generator().manual_seed(0)
    x = 0.4 + 0.3 * torch.rand(100, 2, generator=generator, dtype=torch.float64)  # about 11 a cell
    v = torch.randn(100, 2, generator=generator, dtype=torch.float64)

    def run():
        world = Particles((12, 12), 0.1, 1e-3, ParticleMaterial("elastic"))
        return world.rollout(world.state(x, v), 1e-3, steps=20).x

    by_vectors = run()
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "off")
    monkeypatch.setattr(MapTarget, "lanes", lambda target, bits: (target.processor.lanes(bits)[0],))
    assert torch.allclose(run(), by_vectors, atol=1e-14)


class StepsAtOnce:
    """The backend of CPUs, which runs launches in the order of GPUs: what is computed again for 4 steps at once."""

    def __getattr__(self, name):
        return getattr(maps, name)

    def steps_at_once(self, lanes):
        return 4

    def run(self, launches, first, count, sign, variants):
        self.longest = max(self.longest, *[launch.steps for launch in launches])
        for i, offset, steps in in_order(launches, count, sign):
            maps.run([launches[i]], first + offset, steps, 1, variants)

    longest = 0


@pytest.mark.parametrize("checkpoints", [Checkpoints("all"), Checkpoints(5)])
def test_steps_that_are_computed_again_at_once_do_not_change_a_bit(monkeypatch, checkpoints):
    generator = torch.Generator().manual_seed(0)
    world = Particles((12, 12), 0.1, 1e-3, ParticleMaterial("elastic"), gravity=(3.0, -50.0))
    x = 0.4 + 0.3 * torch.rand(2, 60, 2, generator=generator, dtype=torch.float64)
    v = 20.0 * torch.randn(2, 60, 2, generator=generator, dtype=torch.float64)  # cells change within a few steps

    def run(keep):
        start = [x.clone().requires_grad_(), v.clone().requires_grad_()]
        shear = torch.full((60,), 300.0, dtype=torch.float64, requires_grad=True)
        options = {"steps": 22, "keep": keep, "checkpoints": checkpoints, "params": {"shear": shear}}
        last = world.rollout(world.state(*start), 1e-3, **options)
        return torch.autograd.grad(weighted(last.x, last.F), [*start, shear])

    inputs = random_inputs(batch=(2,))
    one_by_one = [*run(None), *run(11), *loss_and_gradients(random_runner(0), inputs, keep=1)[1]]
    at_once = StepsAtOnce()
    monkeypatch.setattr("adjoin.compiler.maps.call.backend", lambda device: at_once)
    found = [*run(None), *run(11), *loss_and_gradients(random_runner(0), inputs, keep=1)[1]]
    assert at_once.longest == 4
    assert all(a.equal(b) for a, b in zip(one_by_one, found, strict=True))


def test_launches_for_several_steps_come_before_the_steps():
    launches = [Launch(None, 1, (), steps=4), Launch(None, 1, ())]
    assert list(in_order(launches, 6, -1)) == [
        (0, -3, 4), (1, 0, 1), (1, -1, 1), (1, -2, 1), (1, -3, 1), (0, -5, 2), (1, -4, 1), (1, -5, 1)
    ]  # fmt: skip
    assert list(in_order(launches, 5, 1))[-2:] == [(0, 4, 1), (1, 4, 1)]


def test_both_backends_have_what_a_rollout_calls():
    calls = set(re.findall(r"backend(?:\(device\))?\.(\w+)\(", inspect.getsource(call) + inspect.getsource(rollout)))
    assert {"compile_map", "run", "sort_launches", "steps_at_once", "sums"} <= calls
    assert [name for backend in (maps, cuda_maps) for name in calls if not hasattr(backend, name)] == []
    assert cuda_maps.steps_at_once(16_641) == 8
    assert cuda_maps.steps_at_once(1) == 16
    assert cuda_maps.steps_at_once(300_000) == maps.steps_at_once(1) == 1


@pytest.mark.parametrize("atomic", [False, True])
def test_every_kernel_is_written_for_gpus(atomic):
    sequence = random_runner(2, atomic).sequence
    particles = Particles((10, 10), 0.1, 1e-3, ParticleMaterial("elastic"), atomic=atomic)._runner(5).sequence
    tasks = [*sequence.forward, *tasks_of(sequence.adjoint({"k", "m", "h", "u"}))]
    tasks += [*particles.forward, *tasks_of(particles.adjoint({"shear"}))]
    target = CudaTarget(90)
    for task in tasks:
        for bits in (32, 64) if task.map is not None else ():
            made = MapTarget(target, task.map, partial(render, early=True))
            ptx = target.ptx(made.render(task.map.program, made.lanes(bits)[0]).text)
            assert ".entry kernel" in ptx
            assert 0 < ptx.index("griddepcontrol.wait") < ptx.index("ld.global")  # what was before may still write
    sort = target.ptx(sort_text(early=True))
    assert sort.count(".entry") == sort.count("griddepcontrol.wait") == 2
    assert "griddepcontrol" not in CudaTarget(80).ptx(sort_text())


def test_errors_say_what_would_be_right():
    runner = random_runner(0)
    state, parameters, controls = random_inputs()
    with pytest.raises(InputError, match="no state 'y'; states: x"):
        runner.rollout({"y": state["x"]}, parameters, controls)
    with pytest.raises(InputError, match=r"'k' must have the shape \(\*batch, 21, 2\), got \(20, 2\)"):
        runner.rollout(state, parameters | {"k": parameters["k"][:20]}, controls)
    with pytest.raises(InputError, match="exceed the budget of 1,000 bytes; even every='sqrt' takes"):
        runner.rollout(state, parameters, controls, checkpoints=Checkpoints(budget=1000))
    with pytest.raises(InputError, match=r"even every='sqrt' takes 620 bytes; 9 steps would fit, or fewer variants"):
        Checkpoints(budget=95).interval(900, 10)
    assert Checkpoints("sqrt", budget=95).interval(9, 10) == 3
    with pytest.raises(InputError, match="keep must divide the 6 steps"):
        runner.rollout(state, parameters, controls, keep=4)
    table = runner.arrays["corners"].copy()
    table[4, 1] = 99
    broken = StepRunner(runner.sequence, runner.sizes, runner.arrays | {"corners": table})
    with pytest.raises(InputError, match="member 4 names 99 at corner 1, but there are 37, 0 to 36"):
        broken.rollout(state, parameters, controls)
    with pytest.raises(TraceError, match="no stage writes the next value of the state 'x'"):
        StepSequence([Field("x", "nodes", (), "state")], [], [])
    with pytest.raises(TraceError, match="a stage before must write 'cell' for atomic contributions"):
        StepSequence(
            [Field("x", "points", (), "state"), Field("cell", "points", (), "index"), Field("m", "points", via="near")],
            [Connection("near", "points", "nodes", 1, "cell", atomic=True)],
            [Stage("s", "points", lambda x: {"x'": x, "cell": x, "m": np.array([x])}, {"x": Read("x")})],
        )
    with pytest.raises(TraceError, match="no field 'y'; fields: x"):
        StepSequence(
            [Field("x", "nodes", (), "state")], [], [Stage("s", "nodes", lambda y: {"x'": y}, {"y": Read("y")})]
        )
