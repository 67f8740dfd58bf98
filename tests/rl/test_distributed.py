"""Two processes under torchrun: they learn together, and go on after one of them was killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from adjoin.rl import load_checkpoint
from adjoin.rl.command import main
from adjoin.rl.log import read_log

SMALL = ["--environments", "4", "--option", "horizon=4", "--option", "critic_passes=1", "--quiet", "--device", "cpu"]


def torchrun(folder, *arguments, restarts=0, code=None, **variables):
    program = ["-m", "adjoin.rl.train"] if code is None else [str(code)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", str(restarts), *program, "cartpole", "--folder", str(folder), *SMALL, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


def test_two_processes_learn_together_and_survive_a_killed_worker(tmp_path):
    """A worker kills itself after the second of five iterations; torchrun starts both again, and they resume."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys\n"
        "from adjoin.rl.learner import Learner\n"
        "from adjoin.rl.command import main\n"
        "once, iterate = sys.argv[3] + '/killed', Learner.iterate\n"
        "def killed(self):\n"
        "    if self.iteration == 3 and os.environ['RANK'] == '1' and not os.path.exists(once):\n"
        "        open(once, 'w').close()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return iterate(self)\n"
        "Learner.iterate = killed\n"
        "code = main()\n"
        "tasks = '/proc/self/task'\n"
        "names = [open(f'{tasks}/{one}/comm').read() for one in os.listdir(tasks)] if os.path.isdir(tasks) else []\n"
        "assert not any('gloo' in name for name in names), names\n"  # they would outlive Python, and abort
        "sys.exit(code)\n"
    )
    folder = tmp_path / "killed_run"
    more = ["--iterations", "5", "--checkpoint-every", "2", "--resume", "--json"]
    done = torchrun(folder, *more, restarts=1, code=program)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (folder / "killed").exists()
    rows = read_log(folder / "log.csv")
    assert [row["iteration"] for row in rows] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert rows[-1]["steps"] == 5 * 2 * 4 * 4
    assert json.loads(done.stdout.splitlines()[-1])["steps"] == 5 * 2 * 4 * 4
    tensors, header = load_checkpoint(folder / "last.safetensors")
    assert header["processes"] == 2
    networks = [name for name in tensors if name.startswith("0/modules/")]
    assert all(torch.equal(tensors[name], tensors["1" + name[1:]]) for name in networks)  # the same weights
    assert not torch.equal(tensors["0/vector/0"], tensors["1/vector/0"])  # other environments
    pytest.importorskip("matplotlib")
    assert Path(folder, "returns.png").stat().st_size > 5_000


def test_a_missing_extra_is_said_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["cartpole", "--folder", str(tmp_path / "run")]) == 1
    assert "a plot of returns needs matplotlib: pip install 'adjoin[rl]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_processes_of_one_machine_add_up_in_shared_memory(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "from adjoin.rl import distributed, shared_sum\n"
        "with distributed.joined(torch.device('cpu')):\n"
        "    assert distributed._shared is not None\n"
        "    rank, generator = dist.get_rank(), torch.Generator().manual_seed(dist.get_rank())\n"
        "    sizes = [(), (1,), (7, 3), (5000,), (shared_sum.CAPACITY // 4 + 1,)] * 40\n"  # the last goes by Gloo
        "    for turn, size in enumerate(sizes):\n"
        "        dtype = (torch.float32, torch.float64, torch.int64)[turn % 3]\n"
        "        x = (100 * torch.randn(size, generator=generator)).to(dtype)\n"
        "        wanted = x.clone()\n"
        "        dist.all_reduce(wanted)\n"
        "        found = distributed.total(x)\n"
        "        assert found.dtype == dtype and found.shape == x.shape\n"
        "        size_of_sum = x.abs()\n"
        "        dist.all_reduce(size_of_sum)\n"
        "        rounding = 2 * torch.finfo(dtype).eps if dtype.is_floating_point else 0\n"  # of two sums in any order
        "        assert ((found - wanted).abs() <= rounding * size_of_sum).all()\n"
        "        same = found.to(torch.float64).reshape(-1)\n"
        "        both = [torch.empty_like(same) for _ in range(dist.get_world_size())]\n"
        "        dist.all_gather(both, same)\n"
        "        assert all(torch.equal(one, both[0]) for one in both)\n"
        "    assert distributed.mean(torch.tensor([float(rank)])).tolist() == [1.0]\n"
        "    shared_sum.TIMEOUT = 0.2\n"
        "    if rank == 0:\n"
        "        try:\n"
        "            distributed.total(torch.ones(3))\n"
        "        except RuntimeError as error:\n"
        "            assert 'process 1 of 3 did not come to a sum within 0.2 s' in str(error)\n"
        "        else:\n"
        "            raise AssertionError('nobody else was there')\n"
        "    dist.barrier()\n"
        "assert distributed._shared is None\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(program)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-6000:]
