"""The viewer: a page on this machine in which a robot is moved by hand or goes through a motion."""

import html
import threading
from collections.abc import Sequence

import torch

from adjoin.collision.terrain import Heightfield
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.viewer import server
from adjoin.viewer.drawing import Drawing
from adjoin.viewer.motion import Array, ContactArrays, Motion, configuration, motion
from adjoin.viewer.playback import Playback
from adjoin.viewer.replay import replay
from adjoin.viewer.replay_page import titled
from adjoin.viewer.scene import Forces, Scene
from adjoin.viewer.sliders import Sliders
from adjoin.viewer.soft import SoftBody
from adjoin.viewer.visuals import Source, visuals_of


class Viewer:
    """A page with the robot in it.

    Args:
        model: the robot.
        environments: how many of it stand in a grid.
        port: to listen on; if it is taken, the next that is free. 0 takes any.
        host: address to listen on; other machines reach the page only if it is not a local one.
        spacing: between environments, m.
        terrain: heights in the place of the ground.
        source: the robot's URDF or MJCF file, whose visual shapes and meshes are drawn; or what `read_visuals`
            gave, if they lie elsewhere.
        title: of the panel; by default the robot's name.

    Attributes:
        url: of the page.
        q: what is shown, (environments, nq).
    """

    def __init__(
        self,
        model: Model,
        environments: int = 1,
        port: int = 8080,
        host: str = "127.0.0.1",
        *,
        spacing: float | None = None,
        terrain: Heightfield | None = None,
        source: Source | None = None,
        title: str | None = None,
    ):
        if not isinstance(model, Model):
            raise InputError(f"Viewer: the model must be an adjoin.Model, got a {type(model).__name__}")
        if not isinstance(environments, int) or environments < 1:
            raise InputError(f"Viewer: environments must be a whole number of at least 1, got {environments!r}")
        drawing = Drawing(model, environments, visuals_of(model, source))
        self.model, self.q = model, drawing.standing().repeat(environments, 1)
        self._forces: Forces | None = None
        self._lock = threading.RLock()
        self._server = server.start(host, port)
        self.url = f"http://{host}:{self._server.get_port()}"
        gui = self._server.gui
        gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(240, 127, 60))
        gui.set_panel_label(title or model.name)
        self._scene = Scene(self._server, drawing, self.q, spacing, terrain)
        self._scene.light()
        self._title, self._scenery = title or model.name, (spacing, terrain)
        self._playback = Playback(self._server, self._frame, self._save, model.name)
        with gui.add_folder("Show"):
            self._frames = gui.add_checkbox("Frames", False)
            self._center_of_mass = gui.add_checkbox("Center of mass", False)
            self._arrows = gui.add_checkbox("Contact forces", True, visible=False)
        for box in (self._frames, self._center_of_mass, self._arrows):
            box.on_update(lambda _: self._draw())
        self._sliders = Sliders(gui, model, self.q, self._moved)

    def show(self, q: Array) -> None:
        """Show a configuration, (nq,) for all environments or (environments, nq); a motion that plays stops."""
        shown = configuration("Viewer.show", self.model, q, 2, len(self.q))
        self._playback.pause()
        with self._lock:
            self.q, self._forces = shown.clone(), None
            self._scene.frame(self.q)
            self._draw()
            self._sliders.follow(self.q)

    def play(self, q: Array, dt: float, contacts: ContactArrays | None = None, soft: Sequence[SoftBody] = ()) -> None:
        """Play a motion over and over, with a timeline in the page; returns at once.

        Args:
            q: (steps, nq) or (steps, environments, nq).
            dt: seconds from one step to the next.
            contacts: forces to draw as arrows: what `Simulator.contacts` gave for these steps, or the output
                "contacts" of a rollout.
            soft: soft bodies that move beside the robot, of the same steps.
        """
        shown = motion("Viewer.play", self.model, q, dt, contacts, environments=len(self.q), soft=soft)
        self._arrows.visible = contacts is not None
        self._scene.frame(shown.sample)
        self._playback.load(shown)

    def close(self) -> None:
        """Stop playing and serving."""
        self._playback.close()
        server.stop(self._server)

    def __enter__(self) -> "Viewer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return f'<iframe src="{html.escape(self.url)}" style="width: 100%; height: 480px; border: 0"></iframe>'

    def _frame(self, q: torch.Tensor, forces: Forces | None, still: bool) -> None:
        """Show a frame of the motion; when it stands still, the sliders follow."""
        with self._lock:
            self.q, self._forces = q, forces
            self._draw()
            if still:
                self._sliders.follow(q)

    def _save(self, shown: Motion) -> bytes:
        what = {"frames": self._frames.value, "center_of_mass": self._center_of_mass.value}
        return titled(replay(self._scene.drawing, shown, *self._scenery, **what), self._title).encode()

    def _moved(self, q: torch.Tensor) -> None:
        """Show what the sliders say."""
        self._playback.pause()
        with self._lock:
            self.q, self._forces = q, None
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            self._scene.draw(
                self.q,
                self._forces if self._arrows.value else None,
                frames=self._frames.value,
                center_of_mass=self._center_of_mass.value,
            )
