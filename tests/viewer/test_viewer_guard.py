"""What the viewer answers, and what it takes from a page."""

import asyncio
import http.client

import pytest

import adjoin

_messages = pytest.importorskip("viser._messages")

from adjoin.viewer import Viewer  # noqa: E402
from adjoin.viewer.server import is_own  # noqa: E402


@pytest.fixture(scope="module")
def viewer():
    with Viewer(adjoin.robots.load("two_link"), 2, port=0) as opened:
        yield opened


@pytest.mark.parametrize(
    ("hosts", "origins", "own"),
    [
        (["127.0.0.1:8080"], [], True),
        (["localhost:9000"], ["http://localhost:9000"], True),
        (["[::1]:8080"], ["http://[::1]:8080"], True),
        (["evil.example:8080"], [], False),
        (["evil.example:8080"], ["http://evil.example:8080"], False),
        (["127.0.0.1:8080"], ["http://evil.example"], False),
        (["127.0.0.1:8080"], ["http://127.0.0.1:9999"], False),
        (["127.0.0.1:8080"], ["null"], False),
        (["127.0.0.1:8080"], ["http://127.0.0.1:8080", "http://127.0.0.1:8080"], False),
        (["127.0.0.1:8080", "127.0.0.1:8080"], [], False),
        (["[nonsense"], [], False),
        ([], [], False),
    ],
)
def test_only_the_viewers_own_page_is_answered(hosts, origins, own):
    assert is_own("127.0.0.1", hosts, origins) == own


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example", "Upgrade": "websocket", "Connection": "Upgrade"}, 403),
    ],
)
def test_requests_of_other_pages_are_refused(viewer, headers, status):
    socket = {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    connection = http.client.HTTPConnection(viewer.url.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", "/", headers=headers | (socket if "Upgrade" in headers else {}))
        assert connection.getresponse().status == status
    finally:
        connection.close()


def test_what_no_control_could_send_changes_nothing(viewer):
    interface = viewer._server.gui._websock_interface
    joint, environment = viewer._sliders._joints[0][2][0], viewer._sliders._environment
    step = viewer._server.gui.add_button_group("Group", ("a", "b"))

    def send(control, **updates):
        message = _messages.GuiUpdateMessage(control._impl.uuid, updates)
        asyncio.run(interface._handle_incoming_message(0, message))
        return control.value

    assert send(joint, value=0.25) == 0.25
    assert send(environment, value=1) == 1
    assert send(step, value="b") == "b"
    for value in (float("nan"), float("inf"), 10**400, 1e9, "0.1", None, True, [0.1], {"a": 1}):
        assert send(joint, value=value) == 0.25
    for value in (2, -1, 0.5):
        assert send(environment, value=value) == 1
    assert send(step, value="c") == "b"
    send(joint, max=1e9)
    assert joint.max < 10.0
    send(viewer._frames, value="yes")
    assert viewer._frames.value is False
    assert not {_messages.FileTransferStartUpload, _messages.FileTransferPart} & set(interface._incoming_handlers)
