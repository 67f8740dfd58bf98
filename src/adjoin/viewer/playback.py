"""The timeline of a page: a motion that plays, halts, goes slower or step by step."""

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from adjoin.viewer.motion import Motion
from adjoin.viewer.scene import Forces
from adjoin.viewer.soft import SoftScene

SPEEDS = {"0.1x": 0.1, "0.25x": 0.25, "0.5x": 0.5, "1x": 1.0, "2x": 2.0, "4x": 4.0}


class Playback:
    """Controls and the thread behind them; they appear with the first motion.

    Args:
        server: a viser server.
        show: called with q, forces and whether the motion stands still, for every frame.
        save: makes the HTML of a motion.
    """

    def __init__(
        self,
        server: Any,
        show: Callable[[torch.Tensor, Forces | None, bool], None],
        save: Callable[[Motion], bytes],
        name: str,
    ):
        self._gui, self._show, self._save, self._name = server.gui, show, save, name
        self._server, self._scene = server, server.scene
        self._soft: SoftScene | None = None
        self._motion: Motion | None = None
        self._folder: Any = None
        self._frame, self._time = 0, 0.0
        self._speed = 1.0
        self._lock = threading.RLock()
        self._playing, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="adjoin-viewer", daemon=True)
        self._thread.start()

    def load(self, motion: Motion) -> None:
        """Play another motion from its beginning."""
        with self._lock:
            self.pause()
            self._motion, self._frame, self._time = motion, 0, 0.0
            self._scene.remove_by_name("/soft")
            self._soft = SoftScene(self._server, motion.soft, motion.indices) if motion.soft else None
            if self._folder is not None:
                self._folder.remove()
            self._add_controls(motion)
            self._draw(still=True)
            self.play()

    def play(self) -> None:
        """Continue from the current frame."""
        if self._motion is not None:
            self._button.label = "Pause"
            self._playing.set()

    def pause(self) -> None:
        """Pause."""
        if self._playing.is_set():
            self._playing.clear()
            self._button.label = "Play"

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._playing.set()
        self._thread.join()

    def _add_controls(self, motion: Motion) -> None:
        last = max((len(motion.q) - 1) * motion.period, motion.period)
        self._folder = self._gui.add_folder("Motion", order=-1.0)
        with self._folder:
            if self._soft is not None and self._soft.legend:
                self._gui.add_html(self._soft.legend)
            self._timeline = self._gui.add_slider("Time (s)", 0.0, last, motion.period, 0.0)
            self._button = self._gui.add_button("Play")
            step = self._gui.add_button_group("Step", ("-1", "+1"))
            speed = self._gui.add_dropdown("Speed", tuple(SPEEDS), initial_value=f"{self._speed:g}x")
            save = self._gui.add_button("Save as HTML", hint="A file that plays offline")
        self._button.on_click(lambda _: self.pause() if self._playing.is_set() else self.play())
        self._timeline.on_update(self._sought)
        step.on_click(lambda event: self._step(int(event.target.value)))
        save.on_click(self._saved)

        def change_speed(_: Any) -> None:
            self._speed = SPEEDS[speed.value]

        speed.on_update(change_speed)

    def _run(self) -> None:
        before = time.perf_counter()
        while True:
            if not self._playing.is_set():
                self._playing.wait()
                before = time.perf_counter()
            if self._closed:
                return
            with self._lock:
                now = time.perf_counter()
                if self._playing.is_set() and self._motion is not None:
                    period, count = self._motion.period, len(self._motion.q)
                    self._time = (self._time + self._speed * (now - before)) % (count * period)
                    frame = min(int(self._time / period), count - 1)
                    if frame != self._frame:
                        self._frame = frame
                        self._draw()
                before = now
            time.sleep(1.0 / 120.0)

    def _draw(self, still: bool = False) -> None:
        if self._motion is not None:
            forces = None if self._motion.forces is None else self._motion.forces.at(self._frame)
            self._show(self._motion.q[self._frame], forces, still)
            if self._soft is not None:
                self._soft.draw(self._frame)
            self._timeline.value = self._frame * self._motion.period

    def _seek(self, frame: int) -> None:
        with self._lock:
            if self._motion is not None:
                self._frame = min(max(frame, 0), len(self._motion.q) - 1)
                self._time = self._frame * self._motion.period
                self._draw(still=True)

    def _step(self, by: int) -> None:
        self.pause()
        self._seek(self._frame + by)

    def _sought(self, event: Any) -> None:
        """The timeline was dragged; moved by playing, it has no client."""
        if event.client is not None and self._motion is not None:
            self.pause()
            self._seek(round(event.target.value / self._motion.period))

    def _saved(self, event: Any) -> None:
        if self._motion is not None:
            event.target.disabled = True
            event.client.send_file_download(f"{self._name}.html", self._save(self._motion), save_immediately=True)
            event.target.disabled = False
