import io
import logging
import re
import time
from contextlib import redirect_stderr

import pytest
import torch

import adjoin
from adjoin import progress
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.progress import Progress, announced


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(stream, pieces=20, stop=None, error=None):
    with redirect_stderr(stream):
        for _, end in (bar := Progress(pieces, True, "rounds")):
            bar.note = f"loss {end}"
            if end == stop:
                if error:
                    raise error
                break
    return stream.getvalue()


def test_a_terminal_shows_a_bar_that_moves(monkeypatch):
    monkeypatch.setattr(progress, "REDRAW_INTERVAL", -1.0)
    drawn = run(Terminal()).split("\r")
    assert len(drawn) > 20
    assert sum("\n" in part for part in drawn) == 1
    for done in range(1, 21):
        assert any(f"{done}/20 [" in part and f"loss {done}]" in part for part in drawn)
    assert re.match(r"100%\|.+\| 20/20 \[00:00<00:00, .* rounds/s, loss 20\]\n", drawn[-1])


def test_a_log_file_gets_few_lines_and_no_carriage_returns(monkeypatch):
    (line,) = run(io.StringIO()).splitlines()
    assert re.fullmatch(r"100%\|#+\| 20/20 \[00:00<00:00, .* rounds/s, loss 20\]", line)
    monkeypatch.setattr(progress, "LOG_INTERVAL", -1.0)
    shown = run(io.StringIO())
    assert len(shown.splitlines()) == 20
    assert "\r" not in shown
    assert shown.isascii()


def test_a_notebook_shows_a_bar_that_moves(monkeypatch):
    monkeypatch.setattr(progress, "REDRAW_INTERVAL", -1.0)
    assert run(type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()).count("\r") > 20


def test_pieces_of_any_size_are_counted_by_where_they_end():
    shown = io.StringIO()
    with redirect_stderr(shown):
        assert list(Progress([(0, 30), (30, 45)], True)) == [(0, 30), (30, 45)]
    assert "45/45 [" in shown.getvalue()
    assert "steps/s" in shown.getvalue()


def test_a_bar_that_is_not_shown_prints_nothing():
    shown = io.StringIO()
    with redirect_stderr(shown):
        assert list(Progress(3, False)) == [(0, 1), (1, 2), (2, 3)]
    assert shown.getvalue() == ""


def test_a_loop_that_ends_early_says_how_far_it_came():
    assert " 7/20 [" in run(io.StringIO(), stop=8)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_or_error_ends_the_loop_and_the_bar(error):
    stream = Terminal()
    with pytest.raises(error):
        run(stream, stop=8, error=error())
    assert " 7/20 [" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_what_takes_long_is_announced_and_what_does_not_is_not(monkeypatch, capsys):
    monkeypatch.setattr(progress, "ANNOUNCE_AFTER", 0.05)
    monkeypatch.setattr(progress._log, "hasHandlers", lambda: False)
    with announced("thinking"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "adjoin: thinking ...\n"
    with announced("winking"):
        pass
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_kernel_that_takes_long_to_compile_is_announced_to_those_who_log(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(progress, "ANNOUNCE_AFTER", 0.001)
    model = adjoin.robots.load("panda")
    with caplog.at_level(logging.INFO, "adjoin"):
        adjoin.aba(model, *torch.zeros(3, 2, model.nv))
    assert any(
        re.fullmatch(r"compiling aba\(panda\) \(.*,.* operations\) for this CPU ...", text) for text in caplog.messages
    )


def test_an_error_is_not_held_back(monkeypatch):
    with pytest.raises(ZeroDivisionError), announced("dividing"):
        print(1 / 0)


@pytest.mark.parametrize(
    "stage",
    [
        "runtime.cpu.kernel.render",
        "runtime.cpu.kernel.CpuTarget.compile",
        "runtime.backend.Binary.pack",
        "runtime.kernel.vjp",
    ],
)
def test_an_interrupt_while_a_kernel_is_made_leaves_nothing_broken(monkeypatch, tmp_path, stage):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "kernels"))
    weight = 1.0 + len(stage)  # a kernel of its own

    @adjoin.function(q=3)
    def cost(q):
        return weight * (q @ q)

    def interrupted(*_):
        raise KeyboardInterrupt

    def gradient():
        q = torch.ones(2, 3, requires_grad=True)
        cost(q).sum().backward()
        return q.grad

    with monkeypatch.context() as patch:
        patch.setattr(f"adjoin.compiler.{stage}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gradient()
    assert gradient().tolist() == [[2.0 * weight] * 3] * 2


def test_an_interrupt_of_a_rollout_with_a_bar_propagates(monkeypatch):
    sim = adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.01, pairs=[])
    state = sim.state(torch.zeros(2))
    launch, launches = Kernel.run, []

    def interrupted(*arguments, **options):
        launches.append(1)
        if len(launches) == 3:
            raise KeyboardInterrupt
        return launch(*arguments, **options)

    monkeypatch.setattr(Kernel, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sim.rollout(state, steps=50, progress=True)
    assert len(sim.rollout(state, steps=50, progress=True).q) == 51
