import math
from pathlib import Path

import pytest
import torch
from headless import Browser, changes

import adjoin

pytest.importorskip("viser")

from adjoin.viewer import Viewer, record

COARSE = "?fixedDpr=0.4"  # few pixels, since there is no GPU


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(browser):
    with Viewer(adjoin.robots.load("panda"), port=0) as viewer:
        browser.open(f"{viewer.url}/{COARSE}")
        browser.wait(lambda: browser.run("document.querySelectorAll('[role=slider]').length") == 8)
        yield viewer
        browser.open("about:blank")


def test_the_page_shows_the_robot(browser, page):
    seen = browser.settled()
    for node in page._scene.moving:
        node.visible = False
    empty = browser.changed(seen, 1000)
    for node in page._scene.moving:
        node.visible = True
    assert changes(browser.changed(empty, 1000), seen) < 20


def test_a_slider_of_the_page_moves_a_link(browser, page):
    before, q = browser.settled(), page.q.clone()
    browser.run("document.querySelectorAll('[role=slider]')[3].focus()")
    browser.press("Home")
    browser.wait(lambda: page.q[0, 3] != q[0, 3])
    assert page.q[0, 3] == pytest.approx(page.model.joints[3].lower, abs=1e-3)
    assert torch.equal(torch.cat([page.q[0, :3], page.q[0, 4:]]), torch.cat([q[0, :3], q[0, 4:]]))
    browser.changed(before, 500)


def test_the_page_asks_nothing_of_other_machines_and_has_no_errors(browser, page):
    browser.settled()
    address = page.url.removeprefix("http://")
    assert f"http://{address}/{COARSE}" in browser.addresses
    allowed = (f"http://{address}/", f"ws://{address}", "data:", f"blob:http://{address}/")
    assert [found for found in browser.addresses if not found.startswith(allowed)] == []
    assert browser.complaints == []


def test_another_page_cannot_talk_to_the_viewer(browser):
    with Viewer(adjoin.robots.load("two_link"), port=0) as viewer:
        address = viewer.url.replace("http://", "ws://")
        for page, answer in (("data:text/html,<title>foreign</title>", "refused"), (viewer.url + COARSE, "open")):
            browser.open(page)
            browser.wait(lambda: browser.run("document.readyState") == "complete")
            browser.run(
                f"answer = ''; viewer = new WebSocket('{address}', ['viser-v' + 0]);"
                "viewer.onopen = () => answer = 'open'; viewer.onerror = () => answer ||= 'refused'"
            )
            assert browser.wait(lambda: browser.run("answer")) == answer
        browser.open("about:blank")


def test_a_recording_plays_from_a_file(browser, tmp_path):
    model = adjoin.robots.load("two_link")
    swing = torch.sin(torch.linspace(0.0, 2.0 * math.pi, 200))[:, None] * torch.tensor([1.0, -0.7])
    file = record(model, swing, 0.01, tmp_path / "swing.html", title="A & B")
    assert isinstance(file, Path)
    assert 5e5 < file.stat().st_size < 1.2e6
    browser.open(file.as_uri() + COARSE)
    clock = "document.querySelector('input')?.value"
    browser.wait(lambda: float(browser.run(clock) or 0.0) > 0.0)
    first = browser.picture()
    browser.wait(lambda: changes(browser.picture(), first) > 200)
    assert browser.run("document.title") == "A & B"
    assert [found for found in browser.addresses if not found.startswith(("file://", "data:", "blob:"))] == []
    assert browser.complaints == []
