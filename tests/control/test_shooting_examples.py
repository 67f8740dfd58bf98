"""The examples of shooting run, and their losses fall to what is stated."""

import re


def test_swing_up(run_example):
    said = run_example("18_swing_up.py")
    losses = {name.strip(): float(loss) for name, loss in re.findall(r"^(.{12}) loss (\S+),", said, re.MULTILINE)}
    assert losses.keys() == {"cart-pole", "acrobot", "three links"}
    assert losses["cart-pole"] < 1.3
    assert losses["acrobot"] < 1.0
    assert losses["three links"] < 10.0
    heights = [float(x) / float(y) for x, y in re.findall(r"the tip at (\S+) m of (\S+) m", said)]
    assert min(heights) > 0.99


def test_co_design(run_example):
    said = run_example("21_co_design.py")
    motion, gains, lengths = (float(x) for x in re.findall(r"loss (\S+),", said))
    assert motion < 0.8
    assert gains < 0.95 * motion
    assert lengths < 0.6 * motion
