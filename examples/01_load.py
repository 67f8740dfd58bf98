"""Load a robot, look at it, move it about its configuration space, change it, save it."""

import tempfile
from pathlib import Path

import torch

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


def main() -> None:
    # From text here; a path works the same. The fixed tool is welded to `lower` and stays as a frame.
    arm = adjoin.load(ARM)
    print(arm, "\n")

    # A mistake in the file is an error that says where and what.
    try:
        adjoin.load(ARM.replace('upper="1.5"', 'upper="-2"'))
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
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "both.safetensors"
        adjoin.save(both, file)
        assert adjoin.load(file) == both
    assert adjoin.load(adjoin.to_urdf(arm)).nv == arm.nv


if __name__ == "__main__":
    main()
