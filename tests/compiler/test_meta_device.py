import torch

import adjoin
from adjoin.compiler.runtime.kernel import launched

META = torch.device("meta")


def test_a_call_on_the_meta_device_gives_shapes_and_names_what_it_would_launch():
    model = adjoin.robots.load("two_link")
    q, v, tau = (torch.zeros(5, 2, dtype=torch.float64, device=META, requires_grad=True) for _ in range(3))
    a = adjoin.aba(model, q, v, tau)
    assert a.shape == (5, 2)
    assert a.device == META
    a.sum().backward()
    assert tau.grad is not None
    assert tau.grad.shape == (5, 2)
    names = [program.name for program in launched(META, torch.float64)]
    assert [name for name in names if name.startswith("aba(two_link)")] == ["aba(two_link)", "aba(two_link)_vjp"]
    assert not [program for program in launched(META, torch.float32) if program.name.startswith("aba(two_link)")]


def test_a_gradient_that_is_summed_over_the_batch_has_its_shape_there_too():
    mass = torch.ones(2, device=META, requires_grad=True)
    q, v, tau = torch.zeros(3, 5, 2, device=META)
    adjoin.aba(adjoin.robots.load("two_link"), q, v, tau, params={"mass": mass}).sum().backward()
    assert mass.grad is not None
    assert mass.grad.shape == (2,)
