"""Kernels for a GPU on a CPU, thread by thread: they compute what the interpreter does; see `warp_emulator`."""

import ctypes

import pytest
import torch
from kernel_checks import close
from random_programs import random_program
from test_lists import compacted
from test_outline import nested
from test_random_programs import GRAPHS, INTEGERS, STEPS, make_inputs
from warp_emulator import DONE, SUPPORTED, EmulatedBackend, EmulatedKernel

import adjoin
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.codegen import spill
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime import backend
from adjoin.compiler.runtime.cuda import frame
from adjoin.compiler.runtime.interpreter import interpret

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="threads are switched by code for x86-64")


def check(program, inputs, integers=None, threads=32):
    """A kernel's results, of which every element is written, beside the interpreter's."""
    integers = integers or {}
    kernel = EmulatedKernel(program, 64 if inputs[0].dtype == torch.float64 else 32, threads)
    for got, wanted in zip(launched(kernel, inputs, integers), interpret(program, inputs, integers), strict=True):
        assert close(wanted.reshape(got.shape), got, 1e3).all()


def launched(kernel, inputs, integers):
    program = kernel.program
    batch = max(t.shape[-2] for spec, t in zip(program.inputs, inputs, strict=True) if not spec.shared)
    outputs = []
    for spec in program.outputs:
        steps = () if spec.steps is None else (integers.get(str(spec.steps), spec.steps),)
        rows = kernel.partial_sums(batch) if spec.shared else batch
        outputs.append(torch.full((*steps, rows, spec.size), torch.nan, dtype=inputs[0].dtype))
    kernel.launch(inputs, outputs, batch, [integers[name] for name in program.integers])
    return [o.sum(-2, keepdim=True) if spec.shared else o for spec, o in zip(program.outputs, outputs, strict=True)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch", [1, 33, 64])
def test_random_programs(seed, dtype, batch):
    check(random_program(seed, 12), make_inputs(seed, dtype, batch), INTEGERS)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_random_programs(seed):
    program = vjp(random_program(seed, 12), [True] * 4)[0]
    inputs = make_inputs(seed, batch=40)
    for spec in program.inputs[len(inputs) :]:
        inputs.append(torch.ones((STEPS,) * (spec.steps is not None) + (40, spec.size), dtype=torch.float64))
    check(program, inputs, INTEGERS)


@pytest.mark.parametrize("large", [0, 1 << 30])
def test_values_that_wait_in_memory(monkeypatch, large):
    monkeypatch.setattr(frame, "REGISTERS", 8 if large else 8 + frame.UNDER_WAY)
    monkeypatch.setattr(frame, "LARGE_PROGRAM", large)
    for name, value in (("FAR", 50), ("LONG", 0)):
        monkeypatch.setattr(spill, name, value)
    monkeypatch.setattr(frame, "BLOCK", 32)
    check(random_program(1, GRAPHS), make_inputs(1, batch=40), INTEGERS)


def test_rows_apart_and_rows_that_all_share():
    program = random_program(2, 12)
    inputs = make_inputs(2, batch=70)
    inputs[0] = torch.cat([inputs[0], inputs[0]], -1)[:, :6]  # rows that do not follow one another
    inputs[1] = inputs[1][:1].expand(70, -1)
    check(program, inputs, INTEGERS)


@pytest.mark.parametrize("threads", [32, 128])
def test_lists_whose_length_differs_between_threads(threads):
    program, _ = trace("compacted", compacted, [TensorSpec("x", (8,)), TensorSpec("w", (8,))])
    x, w = torch.randn(2, 150, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    check(program, [x, w], threads=threads)


def test_branches_and_arrays_within_one_another():
    program, _ = trace("nested", nested, [TensorSpec("x", (6,))])
    check(program, [torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)])


CONTACT = """<mujoco><option timestep="0.004"/><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 0.18"><freejoint/><geom type="box" size="0.1 0.1 0.05"/>
<body pos="0.2 0 0"><joint axis="0 1 0" range="-60 60"/><geom type="capsule" size="0.05 0.1"/></body></body>
</worldbody></mujoco>"""


def path_and_gradients(document, solver, q, v):
    """Positions and velocities of three steps, and gradients of where they lead."""
    sim = adjoin.Simulator(adjoin.load(document), contact=solver)
    leaves = [x.clone().requires_grad_() for x in (q, v)]
    path = sim.rollout(sim.state(*leaves), torch.zeros(3, len(q), 0, dtype=q.dtype))
    loss = path.q[-1].sum() + path.v[-1].square().sum()
    return path.q.detach(), path.v.detach(), *torch.autograd.grad(loss, leaves)


def check_steps(monkeypatch, document, solver, q, v):
    """Steps in contact, and gradients, of which every bit is that of a kernel for a CPU."""
    here = path_and_gradients(document, solver, q, v)
    assert all(x.isfinite().all() for x in here)
    assert (here[1][-1] != v).any(-1).all()
    monkeypatch.setattr(backend, "_registered", {**backend._registered, "cpu": EmulatedBackend()})
    for one, other in zip(here, path_and_gradients(document, solver, q, v), strict=True):
        assert torch.equal(one, other)
    return here


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("solver", [adjoin.Newton(), adjoin.PGS()], ids=["Newton", "PGS"])
def test_steps_in_contact_and_their_gradients_have_the_bits_of_a_cpu(solver, dtype, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    q = torch.tensor([0.0, 0.0, 0.04, 1.0, 0.0, 0.0, 0.0, 0.2], dtype=dtype).repeat(33, 1)
    q[:, 2] += 0.03 * torch.rand(33, generator=generator, dtype=dtype)
    v = 0.3 * torch.randn(33, 7, generator=generator, dtype=dtype)
    check_steps(monkeypatch, CONTACT, solver, q, v)


HILLS = """<mujoco><option timestep="0.004"/><asset>
<hfield name="hills" nrow="4" ncol="5" size="1 1 0.2 0.3" elevation="0 1 2 1 0  2 1 0 1 2  1 0 1 2 1  0 2 1 0 2"/>
<mesh name="stone" vertex="-.1 -.1 -.1 .1 -.1 -.1 .1 .1 -.1 -.1 .1 -.1 0 0 .12"/></asset>
<worldbody><geom type="hfield" hfield="hills"/><body pos="0 0 0.3"><freejoint/><geom {} mass="1"/></body></worldbody>
</mujoco>"""


@pytest.mark.parametrize(
    "shape",
    [
        'type="sphere" size="0.1"',
        'type="capsule" size="0.06 0.1"',
        'type="box" size="0.1 0.08 0.06"',
        'type="mesh" mesh="stone"',
    ],
    ids=["sphere", "capsule", "box", "mesh"],
)
def test_shapes_on_a_height_field_have_the_bits_of_a_cpu(shape, monkeypatch):
    pytest.importorskip("mujoco")
    document = HILLS.format(shape)
    generator = torch.Generator().manual_seed(2)
    q = torch.zeros(33, 7, dtype=torch.float64)
    q[:, :2] = torch.rand(33, 2, generator=generator, dtype=torch.float64) - 0.5
    q[:, 3:] = torch.nn.functional.normalize(torch.randn(33, 4, generator=generator, dtype=torch.float64), dim=-1)
    q = adjoin.Simulator(adjoin.load(document)).drop(q).q
    q[:, 2] -= 0.02  # inside the ground
    v = 0.3 * torch.randn(33, 6, generator=generator, dtype=torch.float64)
    _, after, *_ = check_steps(monkeypatch, document, adjoin.Newton(), q, v)
    falling = (after[-1, :, 3:] - v[:, 3:]).abs().amax(-1) < 1e-9
    assert falling.double().mean() < 0.2  # the ground turns almost all of them


def test_a_thread_that_does_not_come_to_a_barrier_is_noticed(monkeypatch):
    kernel = EmulatedKernel(random_program(0, 12), 64)
    turn, seen = kernel._turn, []

    def lost(number, place):
        seen.append(number)
        if len(seen) == 5:  # the fifth thread ends at once
            ctypes.c_int64.from_address(place + 8).value = DONE
        else:
            turn(number, place)

    monkeypatch.setattr(kernel, "_turn", lost)
    with pytest.raises(AssertionError, match=r"threads \[4\] did not come to a barrier"):
        launched(kernel, make_inputs(0, batch=40), INTEGERS)
