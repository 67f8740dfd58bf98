"""Kernels through the disk cache: warm starts, damaged entries, unusable folders, many processes at once."""

import os
import subprocess
import sys
import warnings

import pytest
import torch

from adjoin import trace as at
from adjoin.compiler.runtime.cache import Cache, CacheWarning
from adjoin.compiler.runtime.cpu import kernel as cpu

PROGRAM = """
import sys, torch
from adjoin import trace as at
f = at.function(x=4)(lambda x: at.loop(3, lambda i, c: at.sin(c) + x[0] * x[1], x[2]) + at.exp(-x * x))
x = torch.arange(40, dtype=torch.float64).reshape(10, 4) / 10
x.requires_grad_()
out = f(x)
out.sum().backward()
print(repr((out.sum() + x.grad.sum()).item()))
"""


def make():
    return at.function(x=2)(lambda x: at.sin(x[0]) * x[1])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_warm_start_compiles_nothing(folder, monkeypatch):
    x = torch.randn(5, 2)
    expected = make()(x)
    assert len(Cache().entries()) == 1

    def fail(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(cpu.CpuTarget, "compile", fail)
    monkeypatch.setattr(cpu, "render", fail)
    assert torch.equal(make()(x), expected)


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[: len(d) // 2], lambda d: d[:-1], lambda d: b"", lambda d: d[:200] + bytes([d[200] ^ 1]) + d[201:]],
)
def test_a_damaged_entry_is_compiled_again(folder, damage):
    x = torch.randn(5, 2)
    expected = make()(x)
    (entry,) = folder.glob("*.kernel")
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert torch.equal(make()(x), expected)
    (entry,) = folder.glob("*.kernel")
    assert entry.read_bytes() == whole


def test_an_unusable_folder_costs_one_warning(folder):
    folder.mkdir()
    folder.chmod(0o777)
    x = torch.randn(5, 2)
    with pytest.warns(CacheWarning) as caught:
        first = make()(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(make()(x), first)
    assert len(caught) == 1
    assert list(folder.iterdir()) == []


def test_the_key_tells_formats_targets_and_options_apart(folder):
    x = torch.randn(5, 2)
    make()(x), make()(x.double()), make()(x[:1]), at.function(x=2)(lambda x: at.sin(x[0]) * x[1] * 2)(x)
    assert len(Cache().entries()) == 4
    make()(x), make()(x.double()), make()(x[:1])
    assert len(Cache().entries()) == 4


def test_processes_compiling_the_same_kernel_at_once(folder):
    environment = {**os.environ, "ADJOIN_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    results = {process.communicate(timeout=300)[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(results) == 1
    assert len(Cache().entries()) == 2  # a kernel and its gradient
