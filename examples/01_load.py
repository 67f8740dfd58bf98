"""Load a robot, look at it, move it about its configuration space, change it, save it.

One learns: a file becomes an immutable model that prints as a table; mistakes are named with line and reason; free
bases live on a manifold; robots can be changed and put together. `adjoin view` shows them in a browser.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import adjoin

ARM = """
<robot name="arm">
  <link name="base"/>
  <link name="upper">
    <inertial><origin xyz="0 0 0.2"/><mass value="2"/>
      <inertia ixx="0.03" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.002"/></inertial>
    <collision><origin xyz="0 0 0.2"/><geometry><capsule radius="0.04" length="0.4"/></geometry></collision>
  </link>
  <link name="lower">
    <inertial><origin xyz="0 0 0.15"/><mass value="1"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.001"/></inertial>
  </link>
  <link name="tool"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-1.5" upper="1.5" velocity="3" effort="40"/><dynamics damping="0.1"/>
  </joint>
  <joint name="elbow" type="continuous">
    <origin xyz="0 0 0.4"/><parent link="upper"/><child link="lower"/><axis xyz="0 1 0"/>
  </joint>
  <joint name="flange" type="fixed"><origin xyz="0 0 0.3"/><parent link="lower"/><child link="tool"/></joint>
</robot>
"""


def draw(axes: Any, model: adjoin.Model, q: torch.Tensor) -> None:
    """Every frame as a dot, every body joined with its parent and its frames."""
    places = {frame.name: pose for frame, pose in zip(model.frames, adjoin.forward_kinematics(model, q), strict=True)}
    names = [body.name for body in model.bodies]
    lines = [(body.name, names[body.parent]) for body in model.bodies if body.parent >= 0]
    lines += [(frame.name, names[frame.body]) for frame in model.frames if frame.body >= 0]
    for ends in lines:
        axes.plot(*torch.stack([places[end][:3, 3] for end in ends], 1), ".-", color="C0", linewidth=2)
    axes.set(title=f"{model.name}: {len(names)} bodies, nv {model.nv}", xlabel="x, m", ylabel="y, m", zlabel="z, m")
    axes.set_aspect("equal")
    axes.locator_params(nbins=4)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    # From text here; a path works the same. The fixed tool is welded to `lower` and stays as a frame.
    arm = adjoin.load(ARM)
    print(arm, "\n")

    # Files are taken as they come, with a warning; strict=True makes a mistake an error that says where and what.
    try:
        adjoin.load(ARM.replace('upper="1.5"', 'upper="-2"'), strict=True)
    except adjoin.errors.ModelError as error:
        print(f"refused: {error}\n")

    # A quadruped with a free base: nq = nv + 1, because of the quaternion.
    dog = adjoin.robots.load("go2")
    q = torch.tensor(dog.keyframe("home").q, dtype=torch.float64)
    v = torch.zeros(dog.nv, dtype=torch.float64)
    v[5] = 1.0  # turn about the vertical, rad/s
    turned = dog.integrate(q, v, 0.5)
    print("orientation after half a second:", [round(x, 4) for x in turned[3:7].tolist()])
    print("and back:", dog.difference(turned, q)[3:6].tolist(), "\n")

    # Every physical number has a name; gradients of anything computed from them come with torch.
    mass = dog.parameters(dtype=torch.float64)["mass"]
    heavier = dog.with_parameters({"mass": mass * 1.1})
    print(f"{dog.name}: {dog.mass:.3f} kg, loaded: {heavier.mass:.3f} kg\n")

    # Robots together: a tool on a link, or several in one world.
    both = adjoin.forest({"dog": dog, "arm": arm}, {"arm": ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))})
    print(repr(both))

    # Saved without pickle, equal when loaded; and exported as URDF.
    adjoin.save(both, folder / "both.safetensors")
    assert adjoin.load(folder / "both.safetensors") == both
    assert adjoin.load(adjoin.to_urdf(arm)).nv == arm.nv

    figure = Figure(figsize=(11, 5), layout="constrained")
    for place, model in enumerate((dog,) if quick else (dog, adjoin.robots.load("g1"))):
        home = torch.tensor(model.keyframe("home").q, dtype=torch.float64)
        draw(figure.add_subplot(1, 2, place + 1, projection="3d"), model, home)
    picture = folder / "load.png"
    figure.savefig(picture, dpi=100)
    print(f"what was loaded: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="only the quadruped")
    options.add_argument("--folder", type=Path, help="where the model and the picture go")
    main(**vars(options.parse_args()))
