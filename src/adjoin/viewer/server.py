"""Starting and stopping viser quietly: what there is to say, the viewer says itself."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adjoin.errors import InputError
from adjoin.extras import needed


def start(host: str, port: int) -> Any:
    """Return a viser server.

    Raises:
        InputError: viser is not installed, or there is no such address to listen on.
    """
    viser = needed("viser", "viewer", "the viewer")
    if not isinstance(port, int) or not 0 <= port < 65536:
        raise InputError(f"Viewer: port must be a whole number from 0 to 65535, got {port!r}")
    try:  # where there is no such address, viser would wait indefinitely
        socket.create_server((host, 0)).close()
    except (OSError, TypeError) as error:
        raise InputError(f"Viewer: cannot listen on host {host!r}: {error}; 127.0.0.1 is this machine alone") from None
    with _quiet():
        return viser.ViserServer(host=host, port=port, verbose=False)


def stop(server: Any) -> None:
    """Stop serving."""
    with _quiet():
        server.stop()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages that viser prints through rich."""
    import rich

    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before
