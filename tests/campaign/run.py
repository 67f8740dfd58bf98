"""The campaign: faults and hostile input, counted and seeded. It takes about an hour on two cores; on demand only.

    make campaign                                   # all parts at their full counts
    python tests/campaign/run.py --scale 0.01       # a hundredth of the cases
    python tests/campaign/run.py --only urdf threads --seed 7 --out report.json

Each part raises at the first case that goes wrong, and prints the number of that case. The report has what was really
run: counts, outcomes, seconds.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

HERE = Path(__file__).parent
for room in ("io", "learn", "campaign"):
    sys.path.insert(0, str(HERE.parent / room))

import files  # noqa: E402
import machine  # noqa: E402
import states  # noqa: E402
import viewer_requests  # noqa: E402

import adjoin  # noqa: E402

PARTS = {
    "urdf": (files.urdf, 100_000),
    "mjcf": (files.mjcf, 50_000),
    "recordings": (files.recordings, 20_000),
    "viewer": (viewer_requests.requests, 20_000),
    "kills": (machine.kills, 148),
    "bit flips": (machine.bit_flips, 4_800),
    "threads": (machine.threads, 12_800),
    "poison": (states.poison, 300),
    "steps": (states.steps, 1_000_000),
}
"""What each part runs, and how many cases at full scale."""

SLICES = {"urdf": 16, "mjcf": 16, "recordings": 16, "kills": 16}
"""Parts that processes can share, and into how many slices, each with a seed of its own."""


def run_part(name: str, count: int, seed: int, jobs: int) -> dict[str, int]:
    """Run a part, in slices if processes can share it, and return its outcomes."""
    slices = min(SLICES.get(name, 1), count)
    if slices == 1:
        return PARTS[name][0](count, seed)
    counts = [count // slices + (i < count % slices) for i in range(slices)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(PARTS[name][0], counts, [slices * seed + i for i in range(slices)]))
    names = dict.fromkeys(outcome for part in parts for outcome in part)
    return {n: (max if n == "slowest, ms" else sum)(part.get(n, 0) for part in parts) for n in names}


def main() -> int:
    """Run the parts, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full counts")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, help="write the report as JSON")
    arguments = parser.parse_args()
    report = {
        "adjoin": adjoin.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seed": arguments.seed,
        "parts": {},
    }
    for name in arguments.only:
        full = PARTS[name][1]
        count = max(1, round(arguments.scale * full))
        began = time.perf_counter()
        outcomes = run_part(name, count, arguments.seed, arguments.jobs)
        taken = time.perf_counter() - began
        report["parts"][name] = {"cases": count, "of": full, "seconds": round(taken, 1), "outcomes": outcomes}
        print(f"{name}: {count} of {full} cases in {taken:.0f} s: {outcomes}", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
