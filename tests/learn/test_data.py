"""Recordings: what goes out comes back, and what is wrong with a log is said with its place."""

import numpy as np
import pytest
import torch
from every_joint import every_joint, seeded
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

import adjoin
from adjoin.errors import InputError
from adjoin.learn.data import Recording, columns, load_csv, load_npz
from adjoin.learn.excitation import fourier_excitation
from adjoin.learn.fit import fit

TIME = torch.arange(0.0, 1.0, 0.02, dtype=torch.float64)


def arm():
    return adjoin.robots.load("two_link")


def recorded(model, batch=()):
    made = fourier_excitation(model, TIME, batch, generator=seeded())
    numbers = torch.randn(*batch, len(TIME), model.nv + model.nu, generator=seeded(1), dtype=torch.float64)
    return Recording(model, made.time, made.q, made.v, made.a, numbers[..., : model.nv], numbers[..., model.nv :])


def same(a, b):
    assert a.tensors().keys() == b.tensors().keys()
    return all(torch.equal(x, b.tensors()[name]) for name, x in a.tensors().items())


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("load", [load_csv, load_npz])
@pytest.mark.parametrize("robot", [arm, every_joint])
def test_a_file_gives_back_what_was_saved(tmp_path, load, batch, robot):
    model = robot()
    before = recorded(model, batch)
    before = before if model.nu else Recording(model, *list(before.tensors().values())[:5])
    path = tmp_path / "log"
    before.save_csv(path) if load is load_csv else before.save_npz(path)
    assert same(load(path, model, dtype=torch.float64), before)
    assert load(path, model).q.dtype == torch.float32


def test_columns_are_named_after_joints():
    assert columns(arm(), "q") == [f"q:{joint.name}" for joint in arm().joints]
    names = columns(every_joint(), "tau")
    assert names[:7] == [
        "tau:base.vx",
        "tau:base.vy",
        "tau:base.vz",
        "tau:base.wx",
        "tau:base.wy",
        "tau:base.wz",
        "tau:hinge",
    ]
    assert "tau:follower" not in names
    assert columns(every_joint(), "q")[-7:] == [
        "q:hip.qw",
        "q:hip.qx",
        "q:hip.qy",
        "q:hip.qz",
        "q:cart.x",
        "q:cart.y",
        "q:cart.angle",
    ]


def test_columns_may_come_in_any_order(tmp_path):
    model = arm()
    names = ["tau:" + j.name for j in model.joints] + ["temperature"] + ["q:" + j.name for j in model.joints] + ["time"]
    rows = ["1,2,20.5,3,4,0.0", "5,6,20.5,7,8,0.1", "5,6,20.6,7,9,0.2"]
    path = tmp_path / "log.csv"
    path.write_text("\ufeff" + "\n".join([",".join(names), *rows]) + "\n", encoding="utf-8")  # as spreadsheets do
    found = load_csv(path, model, ignore=["temperature"])
    assert found.q.tolist() == [[3.0, 4.0], [7.0, 8.0], [7.0, 9.0]]
    assert found.need("test", "tau")[0][0].tolist() == [1.0, 2.0]
    assert found.v is None
    with pytest.raises(InputError, match=r"line 1: no column 'temperature'.*ignore="):
        load_csv(path, model)


def cell(line, column, text):
    def change(lines, *names):
        cells = lines[line - 1].split(",")
        cells[lines[0].split(",").index(column.format(*names))] = text
        lines[line - 1] = ",".join(cells)

    return change


def no_column(column):
    def change(lines, *names):
        place = lines[0].split(",").index(column.format(*names))
        lines[:] = [",".join(x for k, x in enumerate(line.split(",")) if k != place) for line in lines]

    return change


def renamed(old, new):
    def change(lines, *names):
        lines[0] = lines[0].replace(old.format(*names), new.format(*names), 1)

    return change


FLAWS = {
    "text": (cell(17, "q:{0}", "abc"), "log.csv, line 17, column 'q:{0}': 'abc' is not a finite number"),
    "nan": (cell(9, "tau:{1}", "nan"), "log.csv, line 9, column 'tau:{1}': 'nan' is not a finite number"),
    "back in time": (cell(20, "time", "0.1"), "log.csv, line 20, column 'time': time does not grow: 0.1 s"),
    "standing time": (cell(20, "time", "0.34"), "log.csv, line 20, column 'time': time does not grow: 0.34 s"),
    "a gap": (lambda lines, *_: lines.pop(30), "log.csv, line 31, column 'time': a gap: 0.6 s comes after 0.56 s"),
    "a gap after an empty line": (
        lambda lines, *_: (lines.insert(9, ""), lines.pop(31)),
        "log.csv, line 32, column 'time': a gap: 0.6 s comes after 0.56 s",
    ),
    "a short line": (lambda lines, *_: lines.insert(4, "1,2"), "log.csv, line 5: 2 columns, the first line names"),
    "no time": (no_column("time"), "log.csv, line 1: columns missing: time"),
    "part of v": (no_column("v:{1}"), "log.csv, line 1: columns missing: v:{1}"),
    "a stranger": (
        renamed("q:{0}", "q:knee"),
        "log.csv, line 1: no column 'q:knee'; columns of this robot: time, q:{0}",
    ),
    "twice": (renamed("q:{0}", "q:{1}"), "log.csv, line 1: column 'q:{1}' is there twice"),
    "no lines": (lambda lines, *_: lines.__delitem__(slice(1, None)), "log.csv: at least two lines of numbers"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_what_is_wrong_with_a_log_is_said_with_its_place(tmp_path, flaw):
    names = [joint.name for joint in arm().joints]
    change, message = FLAWS[flaw]
    path = tmp_path / "log.csv"
    recorded(arm()).save_csv(path)
    lines = path.read_text().splitlines()
    change(lines, *names)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        load_csv(path, arm())
    assert message.format(*names) in str(caught.value)


def test_flaws_of_npz_files_and_tensors_are_named(tmp_path):
    model, good = arm(), recorded(arm())
    path = tmp_path / "log.npz"
    with pytest.raises(InputError, match=r"q has shape \(50, 3\); 'two_link' needs \(50, 2\)"):
        Recording(model, TIME, torch.zeros(50, 3))
    bad = good.q.clone()
    bad[7, 1] = torch.nan
    with pytest.raises(InputError, match=f"q:{model.joints[1].name} of sample 7 is nan"):
        Recording(model, TIME, bad)
    Recording(model, TIME.flip(0), good.q).save_npz(path)
    with pytest.raises(InputError, match=r"log\.npz: sample 1: time does not grow"):
        load_npz(path, model)
    np.savez(path, time=TIME.numpy(), position=good.q.numpy())
    with pytest.raises(InputError, match="no array 'position'; arrays: time, q"):
        load_npz(path, model)
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="not an NPZ file"):
        load_npz(path, model)


def test_loaders_give_every_item_once():
    data = recorded(arm())
    plain = DataLoader(data, batch_size=8, shuffle=True, generator=seeded())
    quick = DataLoader(data, sampler=BatchSampler(RandomSampler(data, generator=seeded()), 8, False), batch_size=None)
    for batches in (plain, quick, data.batches(8, seeded())):
        items = list(batches)
        assert items[0]["q"].shape == (8, 2)
        assert torch.equal(torch.cat([item["time"] for item in items]).sort().values, TIME)


def test_windows_overlap_by_one_sample():
    data = recorded(arm(), (3,))
    cut = data.windows(10)
    assert cut.q.shape == (3 * 4, 11, 2)
    assert torch.equal(cut.q[0, -1], cut.q[1, 0])
    assert torch.equal(cut.q[4], data.q[1, :11])
    assert torch.equal(cut.time[1], TIME[10:21])
    assert len(data.windows(10, stride=5)) == 3 * 8
    with pytest.raises(InputError, match="steps must be 1 to 49"):
        data.windows(50)


def test_samples_and_split_keep_what_belongs_together():
    data = recorded(arm(), (3,)).samples()
    first, second = data.split(0.75, seeded())
    assert len(first) == 112
    assert len(second) == 38
    both = torch.cat([first.q, second.q])
    assert torch.equal(both[both[:, 0].argsort()], data.q[data.q[:, 0].argsort()])
    row = int((data.q == first.q[5]).all(-1).nonzero()[0])
    assert torch.equal(data[row]["tau"], first[5]["tau"])


def test_joints_that_rest_and_quantities_that_lack_are_named():
    model = arm()
    still = fourier_excitation(model, TIME, still=[model.joints[1].name], generator=seeded())
    with pytest.raises(InputError, match=rf"too little excitation: .* {model.joints[1].name} \(0.0e\+00\)"):
        still.check_moves()
    recorded(model).check_moves()
    learned = adjoin.learn.parameters.Parameters(model).learn("mass", adjoin.learn.modules.Positive)
    with pytest.raises(InputError, match="fit needs 'tau'; the recording has time, q, v, a"):
        fit(model, learned, still)
