import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import adjoin
from adjoin.cli import main
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cuda.assembler import find_ptxas
from adjoin.errors import InputError

COMMANDS = ("info", "robots", "check", "view", "simulate", "soft", "heat", "particles", "cloth")
COMMANDS += ("bench", "cache", "demo", "completion")
ADJOIN = [sys.executable, "-m", "adjoin"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def told(capsys):
    """Runs a command that must end with a code; gives what it printed, and what it said on standard error."""

    def run(line, code=0):
        assert main(line.split()) == code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return captured.out, captured.err

    return run


@pytest.fixture
def data(told):
    """Runs a command with --json; gives its one object, and sees that nothing else was printed."""
    return lambda line, code=0: json.loads(told(f"{line} --json", code)[0])


def test_help_lists_every_command_and_needs_no_torch():
    code = "import sys; from adjoin.cli import main; main(['--help']); assert not {'torch', 'numpy'} & {*sys.modules}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for command in COMMANDS:
        assert f"\n    {command}" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command, told):
    out, _ = told(f"{command} --help")
    assert f"\nexamples:\n  {'source <(' * (command == 'completion')}adjoin {command}" in out


def test_the_version_is_said(told):
    assert told("--version")[0] == f"adjoin {adjoin.__version__}\n"


@pytest.mark.parametrize("line", ["", "nothing", "info", "simulate ball --dt 0", "simulate ball --environments 1.5"])
def test_wrong_usage_ends_with_2(line, told):
    _, err = told(line, 2)
    assert "usage: adjoin" in err


def test_a_mistake_is_one_line_without_a_traceback_and_ends_with_1():
    done = subprocess.run([*ADJOIN, "info", "go3"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert (
        done.stderr == "adjoin info: no file and no robot that ships is called 'go3'; did you mean the robot 'go2'?\n"
    )


def test_output_that_nobody_reads_ends_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*ADJOIN, "completion", "fish"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_name_that_the_terminal_cannot_show_is_spelled(tmp_path, monkeypatch):
    (tmp_path / "arm.urdf").write_text('<robot name="Ärmchen"><link name="a"/></robot>', encoding="utf-8")
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["info", "arm.urdf"]) == 0
    assert terminal.buffer.getvalue().startswith(b"\\xc4rmchen: 0 bodies")


def test_an_interruption_ends_with_130(told, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(adjoin.robots, "names", interrupted)
    assert told("robots", 130) == ("", "\nadjoin: interrupted\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("info nothing.urdf", "nothing.urdf: no such file"),
        ("info zzzz", "no file and no robot that ships is called 'zzzz'; `adjoin robots` lists them"),
        ("info .", ".: this is a folder; name a robot file in it"),
        ("info go2 --floating-base", "'go2' ships and loads as it is, without --floating-base"),
        ("info broken.urdf", "broken.urdf:1: not XML: syntax error (column 1)\n`adjoin check broken.urdf` looks for"),
        (
            "info massless.urdf --strict",
            "pass --accept mass to load it as it is\n`adjoin check massless.urdf` looks for every problem",
        ),
        ("simulate massless.urdf --package wrong", "--package 'wrong' must be NAME=FOLDER"),
        ("simulate ball --out none/run.npz", "none/run.npz: the folder none does not exist"),
        ("simulate ball --out .", ". is a folder; name a file to write"),
        ("simulate ball --html /dev/null/run.html", "/dev/null/run.html: the folder /dev/null does not exist"),
        ("simulate ball --device gpu", "--device 'gpu' is not cpu, cuda or cuda:N"),
        ("simulate ball --device cuda:64", "--device cuda:64: torch sees"),
        ("simulate ball --random 2", "--random 2 would give masses of 0 and less; it must be below 1"),
        ("simulate still.urdf", "'still' has no joints, so nothing moves; --floating-base puts a URDF on a free joint"),
        ("simulate ball --seconds 1e200", "--seconds 1e+200 in steps of"),
        ("simulate ball --touching foot", "no shape 'foot'; shapes: ball"),
        (
            "simulate ball --environments 1000000000000",
            "1,000,000,000,000 environments over 1 s do not fit into memory",
        ),
        ("view ball --trajectory none.npz", "none.npz: No such file or directory"),
        ("view ball --trajectory broken.urdf", "broken.urdf: not an NPZ file of plain arrays (File is not a zip file)"),
        ("view go2 --trajectory ball.npz", "for 'go2' they must be (steps, environments, 19) and (steps,)"),
        ("cache prebuild ball --gpu 90", "--gpu '90' must be an architecture such as sm_90"),
        ("cache prebuild ball --gpu sm_50", "a GPU of compute capability 5.0 is too old"),
        ("bench still.urdf", "'still' has no joints, so nothing moves"),
        ("bench ball --device gpu", "--device 'gpu' is not cpu, cuda or cuda:N"),
    ],
)
def test_what_is_wrong_is_said(line, message, told, tmp_path):
    (tmp_path / "broken.urdf").write_text("hello")
    (tmp_path / "massless.urdf").write_text(MASSLESS)
    (tmp_path / "still.urdf").write_text('<robot name="still"><link name="a"/></robot>')
    np.savez(tmp_path / "ball.npz", q=np.zeros((3, 7)), time=np.arange(3.0))
    out, err = told(line, 1)
    assert out == ""
    assert err.startswith(f"adjoin {line.split()[0]}: ")
    assert message in err


MASSLESS = """<robot name="r"><link name="a"/><link name="b"/>
<joint name="j" type="continuous"><parent link="a"/><child link="b"/></joint></robot>"""


def test_an_error_is_an_object_too(data, tmp_path):
    found = data("info g02", 1)
    assert found["error"] == "no file and no robot that ships is called 'g02'; did you mean the robot 'go2'?"
    assert (found["problem"], found["remedy"]) == tuple(found["error"].split("; "))
    (tmp_path / "massless.urdf").write_text(MASSLESS)
    found = data("info massless.urdf --strict", 1)
    assert [found[name] for name in ("file", "line", "subject")] == ["massless.urdf", 1, "link 'b'"]
    assert found["options"] == ["--accept mass"]
    (noticed,) = data("info massless.urdf")["noticed"]
    assert noticed.startswith("massless.urdf:2: joint 'j': what it moves has no inertia")


@pytest.mark.parametrize(
    ("package", "line"),
    [("viser", "simulate ball --html run.html"), ("viser", "view ball")],
)
def test_a_package_that_is_missing_is_named_before_any_work(package, line, told, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(adjoin.Simulator, "rollout", lambda *_, **__: pytest.fail("it began to work"))
    assert "pip install 'adjoin[" in told(line, 1)[1]


def test_robots_lists_all_that_ship(data, told):
    rows = {row["name"]: row for row in data("robots")["robots"]}
    assert tuple(rows) == adjoin.robots.names()
    assert (rows["go2"]["nv"], rows["go2"]["title"], rows["go2"]["license"]) == (18, "Unitree Go2", "MPL-2.0")
    assert told("robots")[0].splitlines()[8].split()[:5] == ["go2", "13", "18", "12", "16.09"]


def test_info_has_all_parts_of_a_model(data, told):
    model, found = adjoin.robots.load("go2"), data("info go2")
    assert [body["mass"] for body in found["bodies"]] == [body.mass for body in model.bodies]
    assert found["bodies"][0]["joint"]["upper"] is None  # no limit: JSON has no infinity
    assert [len(found[name]) for name in ("geometries", "actuators", "keyframes")] == [19, 12, 1]
    assert found["keyframes"][0]["q"] == list(model.keyframe("home").q)
    assert found["not_simulated"] == []
    out, _ = told("info go2")
    assert out.startswith(str(model))
    for part in (
        "\nFL_foot/0   sphere   FL_foot   0.0227 0 0",
        "\nFL_hip_joint    FL_hip_joint  ",
        "\nhome  0 0 0.2923",
    ):
        assert part in out


def test_info_says_what_is_not_simulated(told, data, tmp_path):
    extended = adjoin.robots.source("two_link").replace(b"</robot>", b"<gazebo/><gazebo/></robot>")
    (tmp_path / "extended.urdf").write_bytes(extended)
    assert data("info extended.urdf")["not_simulated"] == ["<gazebo> elements, which are another tool's (2)"]
    pytest.importorskip("mujoco")
    (
        tmp_path / "scene.xml"
    ).write_text("""<mujoco><worldbody><body name="a"><joint name="j"/><geom type="box" size="1 1 1"/></body>
        <geom type="cylinder" size="1 1"/></worldbody>
        <tendon><fixed name="t" armature="1"><joint joint="j" coef="1"/></fixed></tendon></mujoco>""")
    assert told("info scene.xml")[0].endswith("Not simulated\n  tendons with armature (t)\n")
    refused = told("info scene.xml --unsupported error", 1)[1]
    assert "not supported: tendons with armature (t); pass --unsupported warn" in refused


def test_a_saved_model_is_shown_and_checked(told, tmp_path):
    adjoin.save(adjoin.robots.load("two_link"), tmp_path / "saved.safetensors")
    assert told("info saved.safetensors")[0].startswith("two_link: 2 bodies")
    assert told("check saved.safetensors")[0] == "saved.safetensors: no problem found\n"


def test_check_tells_files_with_problems_from_those_without(told, data, tmp_path):
    (tmp_path / "massless.urdf").write_text(MASSLESS)
    out, _ = told("check go2 massless.urdf nothing.urdf", 1)
    problem = "massless.urdf:1: link 'b': it has no mass; a moving link needs a positive mass; "
    assert out == (
        "go2: no problem found\n"
        f"massless.urdf: 1 problem\n  {problem}pass --accept mass to load it as it is\n"
        "  It loads as it is with: --accept mass\n"
        "nothing.urdf: 1 problem\n  nothing.urdf: no such file\n"
    )
    found = data("check massless.urdf", 1)
    (file,) = found["files"]
    assert (found["ok"], file["loads_with"]) == (False, "--accept mass")
    assert (file["problems"][0]["line"], file["problems"][0]["options"]) == (1, ["--accept mass"])
    assert data("check massless.urdf --accept mass")["ok"]


def test_simulate_writes_the_motion_it_computed(told, data):
    found = data("simulate ball --drop 0.5 --seconds 0.2 --dt 0.004 --every 4 --environments 3 --out run --double")
    assert (found["steps"], found["environments"], found["written"], found["frozen"]) == (50, 3, ["run.npz"], 0)
    assert found["times_real_time"] == pytest.approx(found["steps_per_second"] * 0.004)
    sim = adjoin.Simulator(adjoin.robots.load("ball"), dt=0.004)
    q = torch.tensor(sim.model.keyframe("home").q, dtype=torch.float64).repeat(3, 1)
    q[:, 2] += 0.5
    path = sim.rollout(sim.state(q), q.new_zeros(50, 3, 0))
    with np.load("run.npz") as file:
        kept = [*range(0, 50, 4), 50]
        np.testing.assert_array_equal(file["q"], path.q[kept])
        np.testing.assert_array_equal(file["v"], path.v[kept])
        np.testing.assert_allclose(file["time"], np.array(kept) * 0.004)
    out, err = told("simulate ball --seconds 0.1")
    assert out.startswith("ball: 0.1 s, in ")
    assert "50/50 [" in err


def test_what_is_random_is_the_same_for_the_same_seed(told):
    line = "simulate ball --seconds 0.02 --environments 8 --random 0.3 --out"
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        told(f"{line} {name}.npz --seed {seed}")
    found = []
    for name in "abc":
        with np.load(f"{name}.npz") as file:
            found.append(dict(file))
    a, b, c = found
    assert set(a) == {"time", "q", "v", "status", "control", "mass", "inertia", "geometry_friction"}
    np.testing.assert_array_equal(a["mass"], b["mass"])
    assert not np.array_equal(a["mass"], c["mass"])
    assert np.all((a["mass"] > 0.7) & (a["mass"] < 1.3))
    np.testing.assert_allclose(a["inertia"][:, 0, 0] / a["mass"][:, 0], a["inertia"][0, 0, 0] / a["mass"][0, 0], 1e-6)


def test_simulate_holds_a_pose_with_servos(told):
    told("simulate two_link --servos 1000 100 --seconds 1 --out run.npz")
    with np.load("run.npz") as file:
        assert np.abs(file["q"]).max() < 0.1


def test_a_simulation_that_is_interrupted_keeps_what_is_done(told, monkeypatch):
    class Interrupted(adjoin.progress.Progress):
        def __iter__(self):
            for piece in super().__iter__():
                yield piece
                if piece[1] >= 20:
                    raise KeyboardInterrupt

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(adjoin.progress, "Progress", Interrupted)
    out, err = told("simulate ball --seconds 0.2 --every 5 --out run.npz", 130)
    assert "wrote run.npz" in out
    assert "adjoin: interrupted after 20 of 100 steps" in err
    with np.load("run.npz") as file:
        assert len(file["q"]) == len(file["time"]) == 5
    monkeypatch.setattr(adjoin.Simulator, "rollout", lambda *_, **__: interrupted())
    assert told("simulate ball --seconds 0.2 --out none.npz", 130) == ("", "\nadjoin: interrupted\n")


def test_the_cache_is_shown_filled_and_cleared(told, data, monkeypatch, tmp_path):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "cache"))
    assert told("cache path")[0] == f"{tmp_path / 'cache'}\n"
    assert told("cache size")[0] == "0 kernels, 0 bytes\n"
    built = data("cache prebuild pendulum --dt 0.01")
    assert built["new"] == 2 * len(built["kernels"]) > 10  # for batches and for single robots
    assert built["bytes"] == Cache().size()
    assert {"aba(pendulum1)", "aba(pendulum1)_vjp", "rollout(pendulum1)", "step(pendulum1)"} <= set(built["kernels"])
    before = Cache().entries()
    for count in (1, 5):
        told(f"simulate pendulum --dt 0.01 --seconds 0.05 --environments {count}")
    assert Cache().entries() == before
    told("simulate pendulum --dt 0.02 --seconds 0.1")
    assert len(Cache().entries()) == len(before) + 1
    assert told("cache clear")[0] == f"removed {len(before) + 1} kernels\n"
    assert data("cache size") == {"kernels": 0, "bytes": 0}
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "off")
    assert told("cache path")[0] == "off\n"
    assert "the cache is off" in told("cache prebuild pendulum", 1)[1]


def test_kernels_are_built_for_a_gpu_that_is_not_there(data, monkeypatch, tmp_path):
    if find_ptxas() is None:
        pytest.skip("needs ptxas")
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "cache"))
    built = data("cache prebuild pendulum --gpu sm_90")
    assert (built["target"], built["new"]) == ("sm_90", len(built["kernels"]))
    assert data("cache prebuild pendulum --gpu sm_90")["new"] == 0


def test_demo_passes_its_options_on(told, monkeypatch, tmp_path):
    from adjoin import demo

    called = []
    monkeypatch.setattr(demo, "main", lambda folder, quick: called.append((folder, quick)))
    told("demo")
    told(f"demo --out {tmp_path} --quick")
    assert called == [(None, False), (tmp_path, True)]


def test_view_plays_a_trajectory_and_closes(told, monkeypatch):
    viewer = pytest.importorskip("adjoin.viewer")
    calls = []

    class Recorded:
        url = "http://127.0.0.1:1234"

        def __init__(self, model, **options):
            calls.append((model.name, options))

        def play(self, q, dt):
            calls.append((q.shape, dt))

        def close(self):
            calls.append("closed")

    def wait():
        raise KeyboardInterrupt

    told("simulate ball --seconds 0.1 --environments 3 --out run.npz")
    monkeypatch.setattr(viewer, "Viewer", Recorded)
    monkeypatch.setattr("adjoin.cli.view.wait", wait)
    out, err = told("view ball --trajectory run.npz --port 1234", 130)
    assert (out, err) == ("ball is at http://127.0.0.1:1234; Ctrl-C ends it\n", "\nadjoin: interrupted\n")
    assert calls == [
        ("ball", {"environments": 3, "port": 1234, "source": None}),
        ((11, 3, 7), pytest.approx(0.01)),
        "closed",
    ]


def test_a_warning_is_one_line(told, monkeypatch):
    import warnings

    from adjoin.cli import info
    from adjoin.errors import AdjoinWarning, ModelError, Option

    def warned(_):
        options = [Option("packages", {"arm": "FOLDER"}, "to say where it is")]
        warnings.warn(AdjoinWarning("some are missing", [ModelError("not found", options=options)] * 3), stacklevel=1)
        raise InputError("and an error")

    monkeypatch.setattr(info, "run_robots", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _, err = told("robots", 1)
    assert err.splitlines() == [
        "adjoin: warning: some are missing: not found; pass --package arm=FOLDER to say where it is (and 2 more)",
        "adjoin robots: and an error",
    ]


def test_bench_measures_dynamics_simulation_and_gradients(told, data, monkeypatch):
    from adjoin.cli import bench

    monkeypatch.setattr(bench, "BATCH", 16)
    threads = torch.get_num_threads()
    found = data("bench two_link --device cpu --double")
    names = ["inverse dynamics (RNEA)", "mass matrix (CRBA)", "forward dynamics (ABA)", "ABA and its gradient"]
    assert list(found["seconds"]) == [
        *names,
        "simulation step, 0 possible contacts",
        "simulation step and its gradient",
    ]
    assert all(0.0 < seconds < 0.1 for seconds in found["seconds"].values())
    assert (found["model"], found["dtype"], found["device"]) == ("two_link", "float64", "cpu")
    out, err = told("bench ball --device cpu --quick")
    title, _, head, *rows = out.splitlines()
    assert title == f"ball (6 degrees of freedom, float32, 16 at once) on one core of {bench.cpu_name()}"
    assert re.split("  +", head.strip()) == ["nanoseconds a robot", "million a second"]
    for row, name in zip(rows, [*names, "simulation step, 1 possible contacts"], strict=True):
        nanoseconds, millions = (float(x.replace(",", "")) for x in row.removeprefix(name).split())
        assert nanoseconds * millions == pytest.approx(1e3, rel=0.01)
    assert "5/5 [" in err
    assert torch.get_num_threads() == threads


def test_the_best_time_is_the_shortest_of_a_call(monkeypatch):
    from adjoin.cli.bench import best_time

    now = iter([0.0, 9.0, 0.0, 0.01, 0.0, 0.03, 0.0, 0.05, 0.0, 0.04])  # compiling, too short, enough, two repetitions
    monkeypatch.setattr("time.thread_time", lambda: next(now))
    calls = []
    assert best_time(lambda: calls.append(1), torch.device("cpu"), 2) == 0.02
    assert len(calls) == 1 + 1 + 2 + 2 * 2


def test_dynamics_find_the_kernels_that_were_built_for_them(told, monkeypatch, tmp_path):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "cache"))
    told("cache prebuild ball --double")
    before = Cache().entries()
    model = adjoin.robots.load("ball")
    q, v, a = (torch.ones(3, n, dtype=torch.float64, requires_grad=True) for n in (7, 6, 6))
    sum(part.sum() for part in adjoin.forward_kinematics(model, q)).backward()
    for function, inputs in ((adjoin.rnea, (q, v, a)), (adjoin.crba, (q,)), (adjoin.aba, (q, v, a))):
        function(model, *inputs).sum().backward()
    sim = adjoin.Simulator(model, dt=0.002)
    sim.step(sim.state(q.detach()))
    sim.contacts(sim.state(q.detach()))
    assert Cache().entries() == before


def test_soft_bodies_fall_to_the_ground_and_rest(data, tmp_path):
    found = data("soft box --cells 1 --young 2e4 --drop 0.01 --seconds 1.5 --out box.npz --vtk box")
    assert abs(found["force"] - 9.81) < 0.5  # a liter of water weighs that
    assert 0.09 < found["highest"] - found["lowest"] < 0.1
    with np.load("box.npz") as motion:
        assert motion["x"].shape == (151, 8, 3)
        assert motion["time"][-1] == 1.5
        assert np.isclose(motion["x"][0, :, 2].min(), 0.01)
    assert len([*(tmp_path / "box").glob("*.vtu")]) == 151
    assert "no such file" in data("soft missing.msh", 1)["error"]
    assert "must be at least 0" in data("soft box --drop -1", 1)["error"]


def test_heat_that_a_beam_brings_stays_in_the_body(data, tmp_path):
    found = data("heat box --cells 4 --power 100 --radius 0.03 --convection 0 --seconds 20 --out hot.npz --vtk hot")
    assert abs(found["stored"] - 2000.0) < 10.0  # J
    with np.load("hot.npz") as path:
        assert path["temperature"].shape == (101, 125)
        assert path["temperature"][0].max() == 300.0
    assert len([*(tmp_path / "hot").glob("*.vtu")]) == 101
    cooled = data("heat box --cells 2 --start 400 --convection 1e3 --seconds 60")
    assert 300.0 < cooled["lowest"] < cooled["mean"] < cooled["highest"] < 400.0
    assert "narrower than an element" in data("heat box --power 1 --radius 1e-3", 1)["error"]
    assert "--emissivity from 0 to 1" in data("heat box --emissivity 2", 1)["error"]


def test_particles_flow_and_stay_in_their_box(data, tmp_path):
    found = data("particles liquid --cells 12 --seconds 0.2 --out dam.npz --vtk dam")
    assert 0.3 < found["front"] < 1.1
    with np.load("dam.npz") as path:
        assert path["x"].shape == path["v"].shape == (21, found["particles"], 2)
        assert path["x"][0].max() < 0.5
    assert len([*(tmp_path / "dam").glob("*.vtu")]) == 21
    assert "no material 'stone'" in data("particles stone", 1)["error"]
    assert "must fit the box of 1 m" in data("particles snow --high 2", 1)["error"]


def test_cloth_hangs_over_a_ball(data, tmp_path):
    found = data("cloth --cells 4 --seconds 0.5 --out cloth.npz --vtk cloth")
    assert found["lowest"] < -0.1 < 0.0 <= found["highest"] + 0.01
    assert abs(found["force"] - 9.81 * 0.2 * 0.25) < 0.3
    with np.load("cloth.npz") as path:
        assert path["x"].shape == (51, 25, 3)
    assert len([*(tmp_path / "cloth").glob("*.vtu")]) == 51
    assert "must be at least 0" in data("cloth --drop -1", 1)["error"]
