"""What a user holds says what it is; kernels are built ahead of time; long rollouts answer Ctrl-C."""

import os
import signal
import threading
import time

import pytest
import torch
from llvmlite.binding import ffi

import adjoin
from adjoin.compiler.ir import program
from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.fork import generating
from adjoin.control import Controls, Objective
from adjoin.simulation import rolled


def test_a_simulator_says_what_it_is_and_what_it_has_compiled():
    sim = adjoin.Simulator(adjoin.robots.load("ball"), dt=2e-3)
    text = repr(sim)
    for part in ("'ball', dt=0.002", "PGS(", "SemiImplicit(", "1 points, ball and ground", "rows: 3", "none yet"):
        assert part in text
    sim.prebuild(gradients=False)
    assert "step (compiled), rollout (compiled)" in repr(sim)
    state = sim.state("home", batch=3)
    assert repr(state) == "SimulatorState(q (3, 7), v (3, 6), memory: status (3,); torch.float32, cpu, status: fine)"
    bad = state.q.clone()
    bad[1] = torch.nan
    assert "status: 1 not fine" in repr(sim.state(bad))
    path = sim.rollout(state, steps=2, outputs=["contacts"])
    assert repr(path).startswith("Trajectory(q (3, 3, 7), v (3, 3, 6), memory: status (3, 3), outputs: contacts;")


def test_an_objective_says_what_it_is():
    sim = adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.02, pairs=[])
    task = Objective(sim, sim.state(), 5, cost=lambda q: q @ q, variables=Controls())
    assert repr(task) == "Objective('two_link', 5 steps, 1 scenarios: cost; 10 decision variables: Controls)"


def test_after_prebuild_nothing_is_traced_or_differentiated(monkeypatch):
    sim = adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.02, pairs=[])
    sim.prebuild(4)

    def refuse(*_):
        raise AssertionError("traced again")

    monkeypatch.setattr("adjoin.simulation.rollout.trace", refuse)
    monkeypatch.setattr("adjoin.compiler.runtime.kernel.vjp", refuse)
    start = sim.state(batch=4)
    controls = torch.zeros(1, 4, 2, requires_grad=True)
    state = start.replace(q=start.q.requires_grad_(), v=start.v.requires_grad_())
    for last in (sim.step(state, controls[0]), sim.rollout(state, controls).last):
        (last.q.sum() + last.v.sum()).backward()
    assert controls.grad is not None


def test_threads_that_call_a_new_simulator_at_once_trace_it_once(monkeypatch):
    count, ready = [], threading.Barrier(16)
    sim = adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.03, pairs=[])
    original = program.trace

    def counted(name, *arguments):
        count.append(name)
        return original(name, *arguments)

    monkeypatch.setattr("adjoin.simulation.rollout.trace", counted)
    found = []

    def run():
        ready.wait()
        found.append(sim.rollout(sim.state(), torch.ones(3, 2)).last.q)

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert all(torch.equal(q, found[0]) for q in found)
    assert len(count) == len(set(count)) == 2  # the step, and the scan over it


@pytest.mark.parametrize("held", [ffi.lib._lock, generating], ids=["in LLVM", "generating code"])
def test_a_fork_while_another_thread_compiles_does_not_hang(held):
    cache, entered, release = BoundedCache(4), threading.Event(), threading.Event()

    def compute():
        with held:
            entered.set()
            release.wait(0.3)
        release.wait()
        return 1

    thread = threading.Thread(target=lambda: cache.get("kernel", compute))
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        with held:
            os._exit(cache.get("kernel", lambda: 0))
    deadline = time.monotonic() + 60.0
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if done[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    release.set()
    thread.join()
    assert done == (child, 0)
    assert cache.get("kernel", compute) == 1


@pytest.mark.parametrize(("batch", "cost"), [((), 1e-3), ((2048,), 2e-2), ((16, 16), 3e-6)])
def test_a_long_rollout_is_launched_in_pieces_that_an_interrupt_can_come_between(monkeypatch, batch, cost):
    now, taken = [0.0], []
    monkeypatch.setattr(rolled.time, "perf_counter", lambda: now[0])
    for start, end in rolled._timed_pieces(100_000, batch):
        assert start == (taken[-1][1] if taken else 0)
        taken.append((start, end))
        now[0] += cost * (end - start)
    assert taken[-1][1] == 100_000
    lengths = [cost * (end - start) for start, end in taken[1:]]
    assert max(lengths) <= rolled.MAX_LAUNCH_TIME + cost
    assert len(taken) < 100_000 * cost / rolled.MAX_LAUNCH_TIME * 1.5 + 10  # and no more of them than that takes
    assert [*rolled._timed_pieces(3, (64,))] == [(0, 3)]
