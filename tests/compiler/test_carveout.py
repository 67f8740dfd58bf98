"""How a multiprocessor's memory is divided between what blocks share and the cache of what registers cannot hold."""

import torch

import adjoin
from adjoin.compiler.runtime.cuda import kernel as cuda
from adjoin.compiler.runtime.cuda.kernel import CudaKernel

MULTIPROCESSORS, SHARED = 132, 228 << 10  # an H200


def kernel_of(monkeypatch, tile, fitting, caches=True):
    program = adjoin.function(x=2)(lambda x: x * 2.0).kernel.program
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    made = CudaKernel(program, 32, torch.device("cuda"))
    facts = {cuda._MULTIPROCESSORS: MULTIPROCESSORS, cuda._MULTIPROCESSOR_SHARED: SHARED}
    monkeypatch.setattr(cuda, "device_attribute", lambda which, device: facts[which])
    made._tile, made._fitting, made._caches = tile, {1: fitting}, caches
    return made


def test_only_what_the_blocks_need_is_shared(monkeypatch):
    kernel = kernel_of(monkeypatch, tile=18_384, fitting=8)
    each = 18_384 + cuda.BLOCK_SHARED
    for blocks, here in ((1, 1), (132, 1), (133, 2), (256, 2), (1024, 8), (100_000, 8)):
        percent = kernel._choose_carveout(blocks, 1)
        assert (percent - 1) * SHARED < 100 * here * each <= percent * SHARED


def test_all_is_shared_where_blocks_need_more(monkeypatch):
    assert kernel_of(monkeypatch, tile=40_000, fitting=32)._choose_carveout(100_000, 1) == 100


def test_the_driver_chooses_for_kernels_that_hold_all_in_registers(monkeypatch):
    assert kernel_of(monkeypatch, tile=18_384, fitting=8, caches=False)._choose_carveout(256, 1) == cuda.DEFAULT
