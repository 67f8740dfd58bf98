"""Random headers of requests and random messages of pages: none of another page is answered, no wrong value taken."""

import asyncio
import math
import random

import adjoin

HOSTS = ("127.0.0.1", "localhost", "[::1]", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example")
HOSTS += ("[::", "")
VALUES = (math.nan, math.inf, -math.inf, 1e9, -1e9, "0", "", None, True, [], [0.1], {}, b"0", 10**400, 0.1, 0.2, -0.3)


def requests(count: int, seed: int) -> dict[str, int]:
    """Half headers, half messages."""
    from viser import _messages

    from adjoin.viewer import Viewer
    from adjoin.viewer.server import is_own

    rng = random.Random(seed)
    outcomes = {"answered": 0, "refused": 0, "messages taken": 0, "messages dropped": 0}
    for _ in range(count // 2):
        host, other = rng.choice(HOSTS), rng.choice(HOSTS)
        port = rng.choice((80, 8080, 65535))
        origins = rng.choice(
            ([], [f"http://{other}:{port}"], [other], ["null"], ["http://"], [f"http://{host}:{port}"])
        )
        own = is_own("127.0.0.1", [f"{host}:{port}"] * rng.choice((1, 1, 1, 0, 2)), origins)
        outcomes["answered" if own else "refused"] += 1
        assert not own or ("evil" not in host and all(origin == f"http://{host}:{port}" for origin in origins))
    with Viewer(adjoin.robots.load("two_link"), 2, port=0) as viewer:
        interface = viewer._server.gui._websock_interface
        controls = [sliders[0] for _, _, sliders in viewer._sliders._joints] + [viewer._sliders._environment]
        for _ in range(count - count // 2):
            control, value = rng.choice(controls), rng.choice(VALUES)
            updates = {rng.choice(("value", "value", "value", "min", "max", "label", "nothing")): value}
            before = control.value
            message = _messages.GuiUpdateMessage(control._impl.uuid, updates)
            asyncio.run(interface._handle_incoming_message(0, message))
            outcomes["messages taken" if control.value != before else "messages dropped"] += 1
            assert control.min <= control.value <= control.max
            assert control.max < 10.0
    return outcomes
