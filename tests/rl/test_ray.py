"""Ray Train and Tune run the same training, where Ray is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra ray is not part of dev: it is large, and starts slowly")


def test_workers_and_trials_of_ray_train():
    file = Path(__file__).parents[2] / "examples" / "30_ray.py"
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "two workers: 96 actions" in done.stdout  # 3 iterations, 4 actions in 4 environments of each of 2 workers
    assert "2 trials, the best with actor_rate" in done.stdout
