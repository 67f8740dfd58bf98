"""MJX on a model that MuJoCo wrote, on one core, in a process of its own: `simulation.py --mjx PYTHON` runs it.

    python benchmarks/mjx_peer.py MODEL.xml STEPS

It prints one JSON object: seconds of a rollout and of its gradient to the first state and the controls, both compiled
and in float64, and the peak memory of the gradient above what the process held before. The solver takes one iteration,
because with more its loop has no gradient.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


def best(function: Callable[[], Any], repetitions: int = 5) -> float:
    """Seconds of a call that has been compiled."""
    times = []
    for _ in range(repetitions):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def kilobytes(field: str) -> int:
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if field in line).split()[1])


def main(file: str, steps: int) -> dict[str, Any]:
    modules: list[Any] = [importlib.import_module(name) for name in ("jax", "jax.numpy", "mujoco", "mujoco.mjx")]
    jax, jnp, mujoco, mjx = modules

    jax.config.update("jax_enable_x64", True)
    host = mujoco.MjModel.from_xml_path(file)
    host.opt.iterations = host.opt.ls_iterations = 1
    start = mujoco.MjData(host)
    mujoco.mj_resetDataKeyframe(host, start, 0)
    model, data = mjx.put_model(host), mjx.put_data(host, start)
    controls = jnp.tile(data.ctrl, (steps, 1))

    def rollout(q: Any, v: Any, controls: Any) -> Any:
        def step(state: Any, control: Any) -> Any:
            q, v, warm = state
            after = mjx.step(model, data.replace(qpos=q, qvel=v, qacc_warmstart=warm, ctrl=control))
            return (after.qpos, after.qvel, after.qacc_warmstart), (after.qpos, after.qvel)

        return jax.lax.scan(step, (q, v, data.qacc_warmstart), controls)[1]

    def loss(*given: Any) -> Any:
        q, v = rollout(*given)
        return q.sum() + v.sum()

    given = data.qpos, data.qvel, controls
    began = time.perf_counter()
    forward = jax.jit(rollout).lower(*given).compile()
    both = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*given).compile()
    found: dict[str, Any] = {"compile": time.perf_counter() - began}
    jax.block_until_ready(forward(*given))
    found["forward"] = best(lambda: jax.block_until_ready(forward(*given)))
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    gradients = jax.block_until_ready(both(*given))
    found["memory"] = (kilobytes("VmHWM") - before) * 1024
    found["finite"] = bool(all(jnp.isfinite(g).all() for g in gradients))
    found["both"] = best(lambda: jax.block_until_ready(both(*given)), 3)
    return found | {"name": f"MJX {mujoco.__version__}, JAX {jax.__version__}"}


if __name__ == "__main__" and len(sys.argv) > 2:
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
