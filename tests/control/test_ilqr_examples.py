import re


def numbers(pattern, text):
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None
    return [float(number) for number in found.groups()]


def test_most_boxes_are_pushed_to_their_poses(run_example):
    (there,) = numbers(r"(\d+) of 8 boxes are within", run_example("22_push.py"))
    assert there >= 7


def test_go2_stands_up_and_trots(run_example):
    pattern = r"base at (\S+) m of (\S+) m,.*status (\d).*speed (\S+) m/s of.*more than (\S+) degrees"
    height, wanted, status, speed, tilt = numbers(pattern, run_example("23_trot.py"))
    assert status == 0.0
    assert abs(height - wanted) < 0.01
    assert 0.45 < speed < 0.55
    assert tilt < 5.0
