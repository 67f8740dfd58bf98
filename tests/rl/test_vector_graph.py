"""A step of many environments as one CUDA graph."""

import pytest
import torch

from adjoin.rl import Environment, Vector, make_task

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
