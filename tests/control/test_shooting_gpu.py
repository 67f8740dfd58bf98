import pytest
import torch
from problems import SIM, STEPS, arrive, effort, rests

from adjoin.control import LBFGS, Adam, GaussNewton
from adjoin.control.objective import Objective
from adjoin.control.optimize import optimize
from adjoin.control.optimizers.sampling import CMAES, MPPI

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def objective(device, squares):
    start = SIM.state(torch.zeros(1, dtype=torch.float64, device=device))
    masses = {"mass": torch.tensor([[1.0], [1.2]], dtype=torch.float64, device=device)}
    what = {"residuals": rests} if squares else {"cost": effort, "terminal": arrive}
    return Objective(SIM, start, STEPS, params=masses, **what)


@pytest.mark.parametrize(
    "method", [Adam(), LBFGS(), GaussNewton(), CMAES(), MPPI()], ids=lambda method: type(method).__name__
)
def test_a_search_on_the_gpu_goes_as_on_the_cpu(method):
    squares = isinstance(method, GaussNewton)
    here, there = (optimize(objective(device, squares), method, starts=3, iterations=4) for device in ("cpu", "cuda"))
    assert there.variables.device.type == there.history.loss.device.type == "cuda"
    torch.testing.assert_close(there.variables.cpu(), here.variables, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(there.losses.cpu(), here.losses, rtol=1e-6, atol=1e-8)
