"""A motion as one HTML file that plays by itself."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from adjoin.collision.terrain import Heightfield
from adjoin.model.model import Model
from adjoin.viewer import server
from adjoin.viewer.drawing import Drawing
from adjoin.viewer.motion import Array, ContactArrays, Motion, motion
from adjoin.viewer.replay_page import Replay, titled, with_overlay
from adjoin.viewer.scene import Scene
from adjoin.viewer.soft import SoftBody, SoftScene
from adjoin.viewer.visuals import Source, visuals_of


def record(
    model: Model,
    q: Array,
    dt: float,
    path: str | os.PathLike[str],
    contacts: ContactArrays | None = None,
    *,
    title: str | None = None,
    frames: bool = False,
    center_of_mass: bool = False,
    spacing: float | None = None,
    terrain: Heightfield | None = None,
    source: Source | None = None,
    rate: float = 30.0,
    soft: Sequence[SoftBody] = (),
) -> Replay:
    """Write a motion as a standalone HTML file: it plays offline, from file://, and asks nothing of any network.

    Args:
        model: the robot.
        q: (steps, nq), or (steps, environments, nq) for many robots in a grid.
        dt: seconds from one step to the next.
        path: of the file.
        contacts: forces to draw as arrows: what `Simulator.contacts` gave for these steps, or the output "contacts"
            of a rollout.
        title: of the page; by default the robot's name.
        frames: whether to draw the frames of links.
        center_of_mass: whether to draw the center of mass.
        spacing: between environments, m.
        terrain: heights in the place of the ground.
        source: the robot's URDF or MJCF file, whose visual shapes and meshes are drawn; or what `read_visuals`
            gave, if they lie elsewhere.
        rate: frames a second that are kept at most; the file's size grows with it.
        soft: soft bodies that move beside the robot, of the same steps.

    Returns:
        The path, which in a notebook shows the page.
    """
    shown = motion("record", model, q, dt, contacts, rate=rate, soft=soft)
    drawing = Drawing(model, shown.q.shape[1], visuals_of(model, source))
    page = replay(drawing, shown, spacing, terrain, frames=frames, center_of_mass=center_of_mass)
    recording = Replay(path)
    recording.write_text(titled(page, title or model.name), encoding="utf-8")
    return recording


def replay(drawing: Drawing, shown: Motion, *scenery: Any, **what: bool) -> str:
    """Return the HTML of a motion; scenery and what else is drawn are as for `Scene` and `Scene.draw`."""
    running = server.start("127.0.0.1", 0)
    try:
        scene = Scene(running, drawing, shown.q[0], *scenery)
        scene.frame(shown.sample)
        _draw(scene, shown, 0, what)
        bodies = SoftScene(running, shown.soft, shown.indices) if shown.soft else None
        recorder = running.get_scene_serializer()
        for frame in range(1, len(shown.q)):
            recorder.insert_sleep(shown.period)
            _draw(scene, shown, frame, what)
            if bodies is not None:
                bodies.draw(frame)
        recorder.insert_sleep(shown.period)
        return with_overlay(recorder.as_html(), "" if bodies is None else bodies.legend)
    finally:
        server.stop(running)


def _draw(scene: Scene, shown: Motion, frame: int, what: Mapping[str, bool]) -> None:
    scene.draw(shown.q[frame], None if shown.forces is None else shown.forces.at(frame), **what)
