"""Starting and stopping viser quietly, and guarding it.

Any page that a browser shows can send requests to this machine. So a request is answered only if it names this machine
(`Host`, against names that are made to lead here) and comes from the viewer's own page (`Origin`); what a page sends
is taken only if its own controls could have sent it.
"""

import http
import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

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
    with _quiet(), _guarded(host):
        server = viser.ViserServer(host=host, port=port, verbose=False)
    _check_messages(server)
    return server


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


_starting = threading.Lock()


@contextmanager
def _guarded(host: str) -> Iterator[None]:
    """Have the server that starts meanwhile refuse requests of other pages; viser has no option for it."""
    module = needed("websockets.asyncio.server", "viewer", "the viewer")
    plain = module.serve

    def serve(*arguments: Any, process_request: Any = None, **options: Any) -> Any:
        def process(connection: Any, request: Any) -> Any:
            if not is_own(host, request.headers.get_all("Host"), request.headers.get_all("Origin")):
                return connection.respond(http.HTTPStatus.FORBIDDEN, "This is not a request of the viewer's page.\n")
            return None if process_request is None else process_request(connection, request)

        return plain(*arguments, process_request=process, **options)

    with _starting:
        module.serve = serve
        try:
            yield
        finally:
            module.serve = plain


def is_own(listening: str, hosts: list[str], origins: list[str]) -> bool:
    """Return whether a request is one of the viewer's own page, or of a program that is no browser.

    Args:
        listening: the address that the viewer listens on.
        hosts: the request's headers `Host`.
        origins: its headers `Origin`; browsers set it, other programs do not.
    """
    try:
        name = urlsplit(f"http://{hosts[0]}").hostname or ""
        own = len(hosts) == 1 and (name in ("localhost", listening, socket.gethostname().lower()) or _is_address(name))
        return own and len(origins) <= 1 and all(urlsplit(origin).netloc == hosts[0] for origin in origins)
    except (IndexError, ValueError):  # no host, or an address that cannot be read
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_messages(server: Any) -> None:
    """Take from pages only values that their controls can have, and no files."""
    from viser import _messages

    gui = server.gui
    interface, handle = gui._websock_interface, gui._handle_gui_updates

    async def checked(client: Any, message: Any) -> None:
        control = gui._gui_input_handle_from_uuid.get(message.uuid) if isinstance(message.uuid, str) else None
        if control is not None and is_possible(control, message.updates):
            await handle(client, message)

    interface.unregister_handler(_messages.GuiUpdateMessage, handle)
    interface.register_handler(_messages.GuiUpdateMessage, checked)
    interface.unregister_handler(_messages.FileTransferStartUpload)
    interface.unregister_handler(_messages.FileTransferPart)


def is_possible(control: Any, updates: Any) -> bool:
    """Return whether a control of the page can have changed like this."""
    if not isinstance(updates, dict) or set(updates) != {"value"}:
        return False
    value = updates["value"]
    options = getattr(control, "options", None)
    if options is not None:
        return value in options
    if isinstance(control.value, bool):
        return isinstance(value, bool)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and control.min <= value <= control.max and (not isinstance(control.value, int) or value % 1 == 0)
