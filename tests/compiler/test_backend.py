"""The seams of the compiler: backends are found by device, and only that of GPUs knows GPUs."""

from pathlib import Path

import pytest
import torch
from random_programs import STEPS, random_program

from adjoin import trace as at
from adjoin.compiler.runtime import backend, interpreter
from adjoin.compiler.runtime.backend import backend_for, find_target, register
from adjoin.compiler.runtime.cpu.kernel import CpuTarget, host
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.interpreter import InterpretedKernel
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.compiler.runtime.meta import MetaKernel
from adjoin.compiler.runtime.operator import call
from adjoin.errors import InputError

ROOT = Path(backend.__file__).parents[1]


def test_only_the_gpu_backend_knows_warps_and_address_spaces():
    for file in ROOT.rglob("*.py"):
        if "cuda" not in file.parts:
            assert not any(word in file.read_text() for word in ("WARP", "addrspace", "nvvm", "ptx_kernel")), file


def test_devices_have_backends():
    program = at.function(x=2)(lambda x: x * 2).kernel.program
    device = torch.device("meta")
    assert isinstance(backend_for("meta").executable(program, 32, device), MetaKernel)
    assert isinstance(backend_for("mps").executable(program, 32, device), InterpretedKernel)


def test_targets_have_names():
    assert find_target("host") == host()
    assert find_target("sm_86") == CudaTarget(86)
    with pytest.raises(InputError, match="no processor 'gfx942' to compile for; 'host' is this CPU"):
        find_target("gfx942")
    other = CpuTarget("x86_64-unknown-linux-gnu", "haswell", "", 256, True)
    assert (host().description, other.description) == ("this CPU", "the CPU haswell")


@pytest.fixture
def interpreted(monkeypatch):
    """A CPU that has no compiler."""
    monkeypatch.setattr(backend, "_registered", {})
    register("cpu", interpreter)


def test_what_no_backend_compiles_for_is_interpreted(interpreted):
    kernel = Kernel(random_program(77, 20))
    flat = [torch.randn(shape, dtype=torch.float64) for shape in ((7, 6), (7, 3), (1, 2), (STEPS, 7, 2))]
    leaves = [x.clone().requires_grad_() for x in (flat[0], flat[1], flat[2][0], flat[3])]
    results = call(kernel, leaves, (STEPS,))
    assert isinstance(kernel.executable(leaves[0].device, torch.float64), InterpretedKernel)
    expected = interpreter.interpret(kernel.program, flat, {"steps": STEPS})
    for result, reference in zip(results, expected, strict=True):
        assert torch.equal(result.detach(), reference.reshape(result.shape))
    assert torch.autograd.gradcheck(lambda *x: call(kernel, list(x), (STEPS,))[0].sum(0), leaves, atol=1e-4, rtol=1e-3)
