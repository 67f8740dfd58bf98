"""Robot files and recordings with random damage: each loads, or raises our error, in bounded time and memory."""

import tempfile
from pathlib import Path

import torch
from fuzz import BYTES, Fuzzer
from test_damaged_recordings import damaged

import adjoin
from adjoin.learn import Recording


def urdf(count: int, seed: int) -> dict[str, int]:
    """Mutated URDFs, their meshes and saved models."""
    return _fuzzed(("urdf", "mesh", "saved"), count, seed)


def mjcf(count: int, seed: int) -> dict[str, int]:
    """Mutated MJCFs, compiled by MuJoCo."""
    return _fuzzed(("mjcf",), count, seed)


def _fuzzed(kinds: tuple[str, ...], count: int, seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as place:
        fuzzer = Fuzzer(Path(place))
        fuzzer.seeds = [one for one in fuzzer.seeds if one[0] in kinds]
        for case in range(count):
            fuzzer.run(1_000_000_007 * seed + case)
        assert fuzzer.grown() < BYTES
        return {**fuzzer.outcomes, "slowest, ms": round(1e3 * fuzzer.slowest)}


def recordings(count: int, seed: int) -> dict[str, int]:
    """CSV and NPZ files with random damage."""
    model = adjoin.robots.load("two_link")
    time = torch.arange(6, dtype=torch.float64) / 100
    refused = 0
    with tempfile.TemporaryDirectory() as place:
        recording = Recording(model, time, torch.sin(time)[:, None].repeat(1, 2))
        recording.save_csv(Path(place) / "log.csv")
        recording.save_npz(Path(place) / "log.npz")
        cases = range(1_000_000_007 * seed, 1_000_000_007 * seed + count)
        for name, which in (("log.csv", cases[::2]), ("log.npz", cases[1::2])):
            refused += damaged(model, Path(place), name, which)
    return {"refused": refused, "loaded": count - refused}
