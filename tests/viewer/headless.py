import base64
import io
import json
import re
import shutil
import subprocess
import time
import urllib.request

import numpy as np
import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--window-size=560,420",
    "--remote-debugging-port=0",
)


def changes(picture, before):
    """How many pixels are clearly others."""
    return np.count_nonzero(np.abs(picture - before).max(-1) > 40)


class Browser:
    """Chromium without a window, driven over its DevTools protocol; it keeps all that the pages asked for and said."""

    def __init__(self, folder):
        from websockets.sync.client import connect

        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            pytest.skip("needs chromium")
        self._log = (folder / "chromium.log").open("w")
        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"], stdout=self._log, stderr=self._log
        )
        address = self.wait(lambda: re.search(r"ws://(127\.0\.0\.1:\d+)/", (folder / "chromium.log").read_text()))[1]
        with urllib.request.urlopen(f"http://{address}/json") as reply:
            page = next(target for target in json.load(reply) if target["type"] == "page")
        self._socket = connect(page["webSocketDebuggerUrl"], max_size=None)
        self._sent = 0
        self.events = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self._socket.close()
        self._process.terminate()
        self._process.wait(10)
        self._log.close()

    def call(self, method, **parameters):
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=90))
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, address):
        self.events.clear()
        self.call("Page.navigate", url=address)

    def run(self, script):
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self):
        from PIL import Image

        data = base64.b64decode(self.call("Page.captureScreenshot")["data"])
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)

    def settled(self):
        """The picture once the scene has faded in and stopped changing."""
        pictures = [self.picture()]

        def same():
            pictures.append(self.picture())
            ground = (pictures[-1][200:, :100].max(-1) < 250).mean()
            return ground > 0.8 and np.abs(pictures[-1] - pictures[-2]).max() <= 2

        self.wait(same)
        return pictures[-1]

    def changed(self, before, pixels):
        """The picture once it differs from another in so many pixels."""
        pictures = []

        def other():
            pictures.append(self.settled())
            return changes(pictures[-1], before) >= pixels

        self.wait(other)
        return pictures[-1]

    def wait(self, condition, seconds=90.0):
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.1)
        return found

    @property
    def addresses(self):
        """Where requests went."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return asked + [e["params"]["url"] for e in self.events if e["method"] == "Network.webSocketCreated"]

    @property
    def complaints(self):
        """Errors in the console."""
        named = [(event["method"], event["params"]) for event in self.events]
        thrown = [given for method, given in named if method == "Runtime.exceptionThrown"]
        said = [given for method, given in named if method == "Runtime.consoleAPICalled" and given["type"] == "error"]
        logged = [given for method, given in named if method == "Log.entryAdded" and given["entry"]["level"] == "error"]
        return thrown + said + logged
