"""Sample enhancement on the ant of Qiao et al., ICML 2021 (their Figure 5), beside MBPO, SAC and PPO.

Returns of the policy without noise after 30,000, 60,000 and 100,000 environment steps. Ten environments act at once,
with as many updates of the policy after each of their actions, so that there is one update per environment step.
"""

from collections.abc import Iterator
from typing import Any

from adjoin.rl import Learner, evaluate, make_task, train

MARKS = (30_000, 60_000, 100_000)  # environment steps
SEEDS = 4
SETTINGS: dict[str, Any] = {"environments": 10, "epoch_steps": 100, "updates": 10, "exploration_steps": 100}
MODEL = {"model_every": 50, "model_updates": 100, "model_rollouts": 10_000}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "sample enhancement": ("sample_enhancement", MODEL),
    "sample enhancement, one row, clipped": ("sample_enhancement", {**MODEL, "one_row": True}),
    "MBPO": ("mbpo", MODEL),
    "SAC": ("mbpo", {"model": False}),
}
PPO_ENVIRONMENTS = 50


def learning_curve(label: str, seed: int, device: str, marks: tuple[int, ...] = MARKS) -> dict[int, float]:
    """Mean returns of eight episodes without noise, by environment steps."""
    returns: dict[int, float] = {}
    if label == "PPO":
        return ppo_curve(seed, device, marks)
    algorithm, options = RUNS[label]

    def watch(learner: Learner, row: dict[str, float]) -> bool:
        if int(row["steps"]) in marks:
            returns[int(row["steps"])] = evaluate(learner.environment, learner.act, 8, seed=1).mean().item()
        return row["steps"] >= marks[-1]

    each = SETTINGS["environments"] * SETTINGS["epoch_steps"]
    chosen = {**SETTINGS, **options, "iterations": marks[-1] // each, "seed": seed}
    train("ant2021", algorithm, device=device, progress=False, until=watch, **chosen)
    return returns


def ppo_curve(seed: int, device: str, marks: tuple[int, ...]) -> dict[int, float]:
    """The same by PPO of rsl_rl, at the first iteration after each mark."""
    import torch
    from rl_ppo import PPO, STEPS

    torch.manual_seed(seed)
    run = PPO(make_task("ant2021"), PPO_ENVIRONMENTS, device)
    returns: dict[int, float] = {}
    for _ in run.learn(float("inf"), 1):
        steps = (run.iterations + 1) * PPO_ENVIRONMENTS * STEPS
        for mark in marks:
            if steps >= mark and mark not in returns:
                returns[mark] = evaluate(run.environment, run.policy, 8, seed=1).mean().item()
        if len(returns) == len(marks):
            break
    return returns


def sample_enhancement(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    marks = (2_000,) if quick else MARKS
    curves: dict[str, dict[str, list[float]]] = {}
    for label in [*RUNS, "PPO"]:
        runs = [learning_curve(label, seed, device, marks) for seed in range(1 if quick else SEEDS)]
        curves[label] = {str(mark): [round(run[mark], 1) for run in runs] for mark in marks}
        for mark in marks:
            mean = sum(run[mark] for run in runs) / len(runs)
            yield {"name": f"ant2021, {label}, return after {mark:,} steps", "value": mean, "unit": ""}
    yield {"table": curves}
