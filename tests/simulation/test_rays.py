"""Rays meet shapes, meshes and terrain where they are, many at once and with gradients."""

import mujoco
import mujoco_models
import mujoco_tables
import numpy as np
import torch

import adjoin

SCENE = """
<mujoco>
  <asset><mesh name="rock" vertex="0 0 0  0.4 0 0.1  0 0.5 0  0.1 0.1 0.6  0.5 0.5 0.3  -0.2 0.1 0.3"/></asset>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <geom type="mesh" mesh="rock" pos="0.5 0.2 0.1"/>
    <geom type="capsule" size="0.1 0.2" pos="-0.4 0.3 0.3" euler="40 20 0"/>
    <body name="drone" pos="0 0 1.5"><freejoint/><geom name="hull" type="box" size="0.1 0.1 0.05" mass="1"/></body>
  </worldbody>
</mujoco>
"""
X, Y = np.linspace(-0.7, 0.9, 9), np.linspace(-0.5, 0.8, 7)


def scanning(model, **options):
    model = model.with_sensor(adjoin.Sensor.height_scan("scan", "drone", X, Y, above=0.5))
    return adjoin.Simulator(model, 1e-3, pairs=[], **options)


def poses(count):
    q = torch.zeros(count, 7, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    q[:, :3] = 0.3 * torch.randn(count, 3, generator=generator, dtype=torch.float64) + torch.tensor([0.0, 0.0, 1.5])
    q[:, 3:] = torch.nn.functional.normalize(torch.randn(count, 4, generator=generator, dtype=torch.float64), dim=-1)
    return q


def begins(q):
    """Where the rays of a scan begin."""
    x_axis = adjoin.transforms.quaternion_to_matrix(q[:, 3:])[:, :2, 0]
    c, s = torch.nn.functional.normalize(x_axis, dim=-1).unbind(-1)
    x, y = (grid.flatten() for grid in torch.meshgrid(torch.tensor(X), torch.tensor(Y), indexing="ij"))
    across = torch.stack([c[:, None] * x - s[:, None] * y, s[:, None] * x + c[:, None] * y], -1) + q[:, None, :2]
    return torch.cat([across, (q[:, None, 2:3] + 0.5).expand(*across.shape[:2], 1)], -1)


def test_scans_are_mujocos():
    sim, q = scanning(adjoin.load(SCENE)), poses(5)
    measured = sim.rollout(sim.state(q), steps=1, outputs=["sensors"]).outputs["sensors"][0]
    m = mujoco.MjModel.from_xml_string(SCENE)
    data, expected = mujoco.MjData(m), []
    for pose, origins in zip(q, begins(q), strict=True):
        data.qpos[:] = pose
        mujoco.mj_kinematics(m, data)
        down, hit = np.array([0.0, 0.0, -1.0]), np.zeros(1, dtype=np.int32)
        expected.append([mujoco.mj_ray(m, data, o, down, None, 1, 1, hit) for o in origins.numpy()])
    expected = torch.tensor(expected, dtype=torch.float64)
    assert expected.std() > 0.1
    torch.testing.assert_close(measured, expected, rtol=0.0, atol=1e-6)  # MuJoCo's vertices are float32


def test_rays_meet_terrain():
    heights = 0.3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    terrain = adjoin.Heightfield(heights, spacing=(0.4, 0.3))
    model = adjoin.load(SCENE.replace('<geom type="plane" size="5 5 1"/>', ""))
    slanted = torch.nn.functional.normalize(torch.randn(40, 3, generator=torch.Generator().manual_seed(2)), dim=-1)
    slanted[:, 2] = -slanted[:, 2].abs() - 0.05
    slanted = torch.nn.functional.normalize(slanted.double(), dim=-1)
    rays = torch.cat([torch.tensor([0.1, 0.05, 0.0]).double().expand(40, 3), slanted], -1).flatten().tolist()
    model = model.with_sensor(adjoin.Sensor("eye", "rays", "drone", rays=tuple(rays)))
    sim = adjoin.Simulator(model, 1e-3, pairs=[("hull", "ground")], terrain=terrain)
    q = poses(3)
    q[:, 3:] = torch.tensor([1.0, 0.0, 0.0, 0.0])

    def read(q):
        return sim.rollout(sim.state(q), steps=1, outputs=["sensors"]).outputs["sensors"][0]

    measured = read(q)
    ends = q[:, None, :3] + torch.tensor([0.1, 0.05, 0.0]) + measured[..., None] * slanted
    far = torch.linspace(0.0, 1.0, 2001, dtype=torch.float64)[:, None]
    hits = 0
    for k in range(3):
        for end, length in zip(ends[k], measured[k], strict=True):
            begin = q[k, :3] + torch.tensor([0.1, 0.05, 0.0])
            path = begin + far * (end - begin)
            above = path[:, 2] - ground(terrain, path[:, :2])
            assert length > 0.0
            assert above[:-4].min() > 0.0  # nothing was passed before
            hits += bool(above[-1].abs() < 1e-9)
    assert hits > 90  # others end at the rock or the capsule
    assert torch.autograd.gradcheck(lambda q: read(q)[:, ::7], (q[:1].requires_grad_(),), eps=1e-7, atol=1e-4)


def ground(terrain, places):
    """The height of bilinear ground."""
    rows, columns = terrain.shape
    u = [(places[:, k] - terrain.origin[k]) / terrain.spacing[k] for k in range(2)]
    u = [x.clamp(0.0, n - 1.0) for x, n in zip(u, (columns, rows), strict=True)]
    i, j = (x.floor().clamp(max=n - 2.0).long() for x, n in zip(u, (columns, rows), strict=True))
    s, t = u[0] - i, u[1] - j
    h = terrain.heights
    low = h[j, i] * (1 - s) + h[j, i + 1] * s
    return low * (1 - t) + (h[j + 1, i] * (1 - s) + h[j + 1, i + 1] * s) * t


FIELD = """
<mujoco>
  <asset><hfield name="hills" nrow="3" ncol="7" size="1.5 1 0.5 0.1" elevation="{}"/></asset>
  <worldbody>
    <geom type="hfield" hfield="hills" pos="0.2 0.1 0.05"/>
    <body name="drone" pos="0 0 1.2">
      <freejoint/><geom type="box" size="0.1 0.1 0.02" mass="1"/>
      <site name="down" euler="180 0 0"/><site name="ahead" euler="160 25 0"/><site name="aside" euler="200 -20 0"/>
    </body>
  </worldbody>
  <sensor><rangefinder site="down"/><rangefinder site="ahead"/><rangefinder site="aside"/></sensor>
</mujoco>
"""


def test_rays_meet_the_height_field_of_a_file():
    # Heights along x only: then MuJoCo's triangles and cells that are bilinear are the same ground.
    text = FIELD.format(" ".join(["0 0.6 0.2 1 0.4 0.1 0.8"] * 3))
    model, sim = mujoco_models.engines(text)
    expected = []

    def states():
        for data in mujoco_models.random_states(model, 12, spread=0.1):
            expected.append(data.sensordata.copy())
            yield data

    with mujoco_tables.interpreted():
        state, _, _ = mujoco_models.states_of(sim, model, states())
        measured = sim.rollout(state, steps=1, outputs=["sensors"]).outputs["sensors"][0]
    assert min(x.min() for x in expected) > 0.1
    assert np.std(expected) > 0.05
    torch.testing.assert_close(measured, torch.tensor(np.array(expected)), rtol=0.0, atol=1e-6)
