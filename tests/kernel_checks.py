"""One helper that puts any kernel through everything a kernel must satisfy; later rooms use it for theirs."""

from collections.abc import Sequence

import torch

from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.cpu.kernel import CpuKernel, CpuTarget, host
from adjoin.compiler.runtime.interpreter import interpret
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.compiler.runtime.operator import call

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
EPSILON = {torch.float32: 1.2e-7, torch.float64: 2.3e-16}


def host_targets() -> list[CpuTarget]:
    """Every vector width this machine can run, widest first, and one without fused multiply-add."""
    widest = host()
    if not widest.triple.startswith("x86_64"):
        return [widest]
    found = [widest]
    for cpu, vector in (("haswell", 256), ("x86-64", 128)):
        if vector < widest.vector:
            found.append(CpuTarget(widest.triple, cpu, "", vector, cpu == "haswell"))
    return found


def run_on(
    target: CpuTarget, program: Program, inputs: Sequence[torch.Tensor], integers: dict[str, int], scalar: bool = False
) -> list[torch.Tensor]:
    """Run a program compiled for a given CPU target, on flat inputs like those of `interpret`."""
    kernel = CpuKernel(program, 32 if inputs[0].dtype == torch.float32 else 64, target)
    return launch(kernel, program, inputs, integers, scalar)


def launch(
    kernel: CpuKernel, program: Program, inputs: Sequence[torch.Tensor], integers: dict[str, int], scalar: bool
) -> list[torch.Tensor]:
    code = kernel.code(scalar)
    batch = max([1, *[t.shape[-2] for s, t in zip(program.inputs, inputs, strict=True) if not s.shared]])
    outputs = []
    for spec in program.outputs:
        rows = code.partial_sums(batch) if spec.shared else batch
        steps = () if spec.steps is None else (integers.get(str(spec.steps), spec.steps),)
        outputs.append(torch.full((*steps, rows, spec.size), torch.nan, dtype=inputs[0].dtype))
    code.launch(inputs, outputs, batch, [integers[name] for name in program.integers])
    return [o.sum(-2, keepdim=True) if s.shared else o for s, o in zip(program.outputs, outputs, strict=True)]


def close(a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """Whether results agree, element by element, within a multiple of the rounding unit; infinities and NaN match."""
    tolerance = scale * EPSILON[a.dtype] * (1 + a.abs().nan_to_num(0, 0, 0))
    return ((a - b).abs() <= tolerance) | (a == b) | (a.isnan() & b.isnan())


def check_invariance(kernel: Kernel, tensors: Sequence[torch.Tensor], integers: tuple[int, ...]) -> None:
    """One environment's bits do not depend on the batch around it, on threads, layout, gradients or a bad neighbor."""
    whole = call(kernel, tensors, integers)
    batch = tensors[0].shape[0] if kernel.program.inputs[0].steps is None else tensors[0].shape[1]
    dims = [0 if spec.steps is None else 1 for spec in kernel.program.inputs]
    out_dims = [0 if spec.steps is None else 1 for spec in kernel.program.outputs]

    def same(results: Sequence[torch.Tensor], rows: Sequence[int]) -> None:
        index = torch.tensor(list(rows), device=whole[0].device)
        for full, part, dim in zip(whole, results, out_dims, strict=True):
            assert torch.equal(full.index_select(dim, index).nan_to_num(7.0), part.nan_to_num(7.0))

    for rows in ([0], [batch - 1], list(range(batch // 2)), list(range(batch - 1, -1, -1)), [3, 1, 2][:batch]):
        index = torch.tensor(rows, device=tensors[0].device)
        same(call(kernel, [t.index_select(d, index) for t, d in zip(tensors, dims, strict=True)], integers), rows)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        same(call(kernel, tensors, integers), range(batch))
    finally:
        torch.set_num_threads(threads)
    strided = [torch.stack([t, t], -1)[..., 0] if t.shape[-1] else t for t in tensors]
    same(call(kernel, strided, integers), range(batch))
    tracked = [t.detach().clone().requires_grad_() for t in tensors]
    same([result.detach() for result in call(kernel, tracked, integers)], range(batch))
    if batch > 2:
        for i, dim in enumerate(dims):
            bad = tensors[i].clone()
            bad.select(dim, 1).fill_(torch.nan)
            results = call(kernel, [bad if j == i else t for j, t in enumerate(tensors)], integers)
            others = [row for row in range(batch) if row != 1]
            kept = torch.tensor(others, device=bad.device)
            same([r.index_select(d, kept) for r, d in zip(results, out_dims, strict=True)], others)


def check_gradients(kernel: Kernel, tensors: Sequence[torch.Tensor], integers: tuple[int, ...], second: bool) -> None:
    """torch's own finite-difference checks of first and second order, in float64."""
    leaves = [t.detach().double().requires_grad_() for t in tensors]

    def function(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(call(kernel, values, integers))

    assert torch.autograd.gradcheck(function, leaves, check_forward_ad=True)
    if second:
        assert torch.autograd.gradgradcheck(function, leaves, check_fwd_over_rev=True)


def check_kernel(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    integers: tuple[int, ...] = (),
    scale: float = 64,
    second: bool = True,
) -> None:
    """Compiled = interpreted in both formats, on every device; invariant; gradients right. Inputs (batch, *shape)."""
    names = dict(zip(kernel.program.integers, integers, strict=True))
    for dtype in (torch.float64, torch.float32):
        flat = [
            t.to(dtype).reshape((*t.shape[: 1 if spec.steps is None else 2], spec.size))
            for spec, t in zip(kernel.program.inputs, tensors, strict=True)
        ]
        reference = interpret(kernel.program, flat, names)
        for device in DEVICES:
            on_device = [t.to(dtype).to(device) for t in tensors]
            results = call(kernel, on_device, integers)
            for expected, got in zip(reference, results, strict=True):
                assert close(expected.flatten(), got.cpu().flatten(), scale).all()
            check_invariance(kernel, on_device, integers)
    check_gradients(
        kernel,
        [t[:2] if s.steps is None else t[:, :2] for s, t in zip(kernel.program.inputs, tensors, strict=True)],
        integers,
        second,
    )
