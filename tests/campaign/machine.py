"""Processes killed while they compile, caches with flipped bits, threads that call at once: no wrong result."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import adjoin

RESULT = """
import hashlib, torch, adjoin
sim = adjoin.Simulator(adjoin.robots.load("two_link"), 1e-3)
path = sim.rollout(sim.state(torch.full((2, 2), 0.3)), steps=20)
print(hashlib.sha256(path.q.numpy().tobytes()).hexdigest())
"""


def _start(folder: str) -> "subprocess.Popen[str]":
    settings = {**os.environ, "ADJOIN_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RESULT]
    return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def kills(count: int, seed: int) -> dict[str, int]:
    """Kill a process that compiles into a cache, again and again; what is left in the cache gives the right result."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as whole:
        began = time.perf_counter()
        expected = _start(whole).communicate()[0]
        whole_run = time.perf_counter() - began
    assert expected
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in range(count):
            process = _start(folder)
            time.sleep(rng.uniform(0.0, whole_run))
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if (case + 1) % 10 == 0 or case + 1 == count:
                assert _start(folder).communicate()[0] == expected, f"case {case}"
    return {"killed": killed, "ended before": count - killed}


def bit_flips(count: int, seed: int) -> dict[str, int]:
    """Flip a bit of an entry of the kernel cache: it is read as it was, or not at all."""
    from adjoin.compiler.runtime.cache import Cache

    rng = random.Random(seed)
    outcomes = {"missed": 0, "intact": 0}
    with tempfile.TemporaryDirectory() as place:
        store = Cache(Path(place) / "cache")
        payload = rng.randbytes(3000)
        key = "0123456789abcdef" * 4
        store.put(key, payload)
        entry = Path(place) / "cache" / f"{key}.kernel"
        data = entry.read_bytes()
        for case in range(count):
            bad = bytearray(data)
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            entry.write_bytes(bad)
            entry.chmod(0o600)
            found = store.get(key)
            assert found is None or found == payload, f"case {case}"
            outcomes["missed" if found is None else "intact"] += 1
    return outcomes


def threads(count: int, seed: int) -> dict[str, int]:
    """64 threads step one new simulator at once; every result is that of one thread alone."""
    model = adjoin.robots.load("two_link")
    generator = torch.Generator().manual_seed(seed)
    sim = adjoin.Simulator(model, 1e-3)
    starts = torch.rand(64, 4, model.nq, generator=generator)

    def call(case: int) -> torch.Tensor:
        return sim.rollout(sim.state(starts[case % 64]), steps=5).q

    with ThreadPoolExecutor(64) as pool:
        results = list(pool.map(call, range(count)))
    expected = [call(case) for case in range(min(64, count))]
    wrong = sum(not torch.equal(result, expected[case % 64]) for case, result in enumerate(results))
    assert not wrong, f"{wrong} results differ"
    return {"equal": count}
