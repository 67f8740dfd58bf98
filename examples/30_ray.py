"""Training with Ray: two workers learn one policy together, then trials compare learning rates.

Needs the extra: pip install "adjoin[ray]". `train` finds that a worker's processes have met already, and takes part.
"""

import tempfile
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import ray.train  # pyright: ignore[reportMissingImports]
import ray.tune  # pyright: ignore[reportMissingImports]
from ray.train.torch import TorchTrainer  # pyright: ignore[reportMissingImports]

SMALL = {"iterations": 3, "environments": 4, "horizon": 4, "critic_passes": 1, "progress": False, "device": "cpu"}


def worker(config: dict[str, Any]) -> None:
    """The body of a worker or of a trial: the same function as in a script."""
    from adjoin.rl import train

    run = train("cartpole", folder=config.get("folder"), checkpoint_every=1, resume=True, **config["options"])
    numbers = {"loss": run.rows[-1]["actor_loss"], "steps": run.rows[-1]["steps"]}
    if config["workers"] == 1:
        ray.tune.report(numbers)
    else:  # the first worker hands the checkpoint to Ray too
        first = ray.train.get_context().get_world_rank() == 0
        ray.train.report(numbers, ray.train.Checkpoint.from_directory(config["folder"]) if first else None)


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        together = TorchTrainer(
            worker,
            train_loop_config={"workers": 2, "folder": f"{folder}/policy", "options": SMALL},
            scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=ray.train.RunConfig(
                storage_path=folder,
                failure_config=ray.train.FailureConfig(max_failures=1),  # a lost worker: on from the last checkpoint
            ),
        )
        result = together.fit()
        assert result.metrics is not None
        print(f"two workers: {result.metrics['steps']:.0f} actions")

        rates = ray.tune.grid_search([1e-3, 1e-2])
        trials = ray.tune.Tuner(
            ray.tune.with_resources(worker, {"cpu": 1}),
            param_space={"workers": 1, "options": {**SMALL, "actor_rate": rates}},
            run_config=ray.tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        best = trials.get_best_result("loss", "min")
        assert best.config is not None
        print(f"{len(trials)} trials, the best with actor_rate {best.config['options']['actor_rate']}")
    ray.shutdown()


if __name__ == "__main__":
    main()
