"""differentiable-robot-model beside ours, and a robot with all that it gets wrong."""

import contextlib
import functools
import io
import warnings
from pathlib import Path

import diff_robot_data

with contextlib.redirect_stderr(io.StringIO()):
    from differentiable_robot_model.robot_model import DifferentiableRobotModel as Theirs

from adjoin.compat.differentiable_robot_model.robot_model import DifferentiableRobotModel

DATA = Path(diff_robot_data.__path__[0])
ROBOTS = {
    "iiwa": "kuka_iiwa/urdf/iiwa7.urdf",
    "panda": "panda_description/urdf/panda_no_gripper.urdf",
    "fetch": "fetch_description/urdf/fetch_arm_no_gripper.urdf",
    "allegro": "allegro/urdf/allegro_hand_description_left.urdf",
    "trifinger": "trifinger_edu_description/trifinger_edu.urdf",
    "two_link": "2link_robot.urdf",
}
TIPS = {
    "iiwa": "iiwa_link_ee",
    "panda": "panda_virtual_ee_link",
    "fetch": "wrist_roll_link",
    "allegro": "link_11.0_tip",
    "trifinger": "finger_tip_link_120",
    "two_link": "endEffector",
}


@functools.cache
def ours(name):
    return DifferentiableRobotModel(DATA / ROBOTS[name], name)


@functools.cache
def theirs(name):
    return theirs_of(DATA / ROBOTS[name])


def theirs_of(path):
    silent = io.StringIO()
    with contextlib.redirect_stderr(silent), contextlib.redirect_stdout(silent), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # its parser leaves the file open
        return Theirs(str(path))


def awkward(
    mass="0.7",
    com="0.05 0.02 -0.1",
    inertia='ixx="0.03" ixy="0.002" ixz="-0.001" iyy="0.02" iyz="0.003" izz="0.025"',
    tool="0.1 -0.05 0.2",
    tool_angles="0.3 0.2 -0.4",
    elbow="0.02 0.3 0.1",
    elbow_angles="0.4 -0.2 0.9",
    damping="0.3",
):
    """A skew axis, a slide, a continuous joint without limits, turned inertias, a weld, links in no order."""
    return f"""<robot name="awkward">
  <link name="base"><inertial><origin xyz="0.1 0 0.2"/><mass value="3"/>
    <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.12" iyz="0" izz="0.09"/></inertial></link>
  <link name="hand"><inertial><origin xyz="0 0.1 0.05" rpy="0.5 -0.3 1.1"/><mass value="0.4"/>
    <inertia ixx="0.011" ixy="0.001" ixz="0" iyy="0.006" iyz="0.001" izz="0.008"/></inertial></link>
  <link name="tool"><inertial><origin xyz="{com}"/><mass value="{mass}"/><inertia {inertia}/></inertial></link>
  <link name="upper"><inertial><origin xyz="0 0 0.2" rpy="0.2 0.7 -0.3"/><mass value="2"/>
    <inertia ixx="0.05" ixy="0.004" ixz="0" iyy="0.06" iyz="0.005" izz="0.03"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.1 0 0.1"/><mass value="1.5"/>
    <inertia ixx="0.03" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.02"/></inertial></link>
  <joint name="wrist" type="continuous"><parent link="tool"/><child link="hand"/>
    <origin xyz="0 0 0.1" rpy="0 0.5 0"/><axis xyz="0 1 0"/></joint>
  <joint name="weld" type="fixed"><parent link="lower"/><child link="tool"/>
    <origin xyz="{tool}" rpy="{tool_angles}"/></joint>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
    <origin xyz="0 0 0.5" rpy="0.1 0.2 0.3"/><axis xyz="0.48 -0.6 0.64"/>
    <limit lower="-2" upper="1" effort="50" velocity="3"/><dynamics damping="0.1" friction="0.2"/></joint>
  <joint name="slide" type="prismatic"><parent link="upper"/><child link="lower"/>
    <origin xyz="{elbow}" rpy="{elbow_angles}"/><axis xyz="0.6 0 0.8"/>
    <limit lower="-0.2" upper="0.3" effort="20" velocity="1"/><dynamics damping="{damping}"/></joint>
</robot>"""
