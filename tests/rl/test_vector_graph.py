"""A step of many environments as one CUDA graph."""

import pytest
import torch

from adjoin.rl import Environment, Vector, make_task, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("task", ["cartpole", "go2"])
def test_a_graph_steps_as_the_calls_that_it_recorded(task):
    device = torch.device("cuda")
    environment = Environment(make_task(task), device=device)
    vectors = [Vector(environment, 32, torch.Generator(device).manual_seed(3), graph=graph) for graph in (False, True)]
    draw = torch.Generator(device).manual_seed(4)
    with torch.no_grad():
        for step in range(60):
            action = 2.0 * torch.rand(32, environment.action_size, generator=draw, device=device) - 1.0
            plain, replayed = (vector.step(action) for vector in vectors)
            if step == 20:  # a state that comes from elsewhere is the one that goes on
                vectors[1].state = vectors[0].state
            for name, a, b in zip(plain._fields, plain, replayed, strict=True):
                assert torch.equal(a, b), (step, name)
    assert plain.observation.isfinite().all()


@pytest.mark.parametrize("algorithm", ["mbpo", "sample_enhancement", "policy_enhancement"])
def test_an_epoch_of_graphs_learns_as_the_calls_that_they_recorded(algorithm):
    options = {"iterations": 3, "epoch_steps": 20, "exploration_steps": 20, "model_every": 10, "model_updates": 3}
    options |= {"model_rollouts": 16, "batch": 32, "hidden": (16,), "environments": 2, "updates": 2}
    runs = [train("pendulum", algorithm, device="cuda", progress=False, graph=graph, **options) for graph in (0, 1)]
    plain, replayed = (run.learner.tensors() for run in runs)
    for name, x in plain.items():
        assert torch.allclose(x.double(), replayed[name].double(), rtol=1e-4, atol=1e-5), name
