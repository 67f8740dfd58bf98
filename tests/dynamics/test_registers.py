"""Kernels of a GPU keep in registers what they can: of a gradient of forward dynamics, little waits in memory."""

import adjoin
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.runtime.cuda import frame
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.trace import function


def test_most_of_what_a_gradient_needs_again_is_computed_again(monkeypatch):
    model = adjoin.robots.load("go2")

    @function(q=model.nq, v=model.nv, tau=model.nv)
    def forward(q, v, tau):
        return adjoin.aba(model, q, v, tau)

    gradient, _ = vjp(forward.kernel.program, [True, True, True])
    target = CudaTarget(90)
    (lane,) = target.lanes(32)

    def spilled():
        text = target.render(gradient, lane).text
        return sum("ptr addrspace(5) %t" in line and "store" in line for line in text.splitlines())

    few = spilled()
    monkeypatch.setattr(frame, "REPEATS", 0)
    in_order = spilled()
    monkeypatch.setattr(frame.Renderer, "choose_order", lambda self: None)
    as_given = spilled()
    assert 0 < 2 * few < in_order < 0.8 * as_given
