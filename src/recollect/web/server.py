"""The server: one socket on the loopback, one user."""

import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from recollect.api import open_memory
from recollect.errors import Busy
from recollect.web.app import Site, make_app
from recollect.web.guard import Tokens
from recollect.web.live import Live
from recollect.web.readers import Readers

HOST = "127.0.0.1"
USUAL_PORT = 7391


def bind(port: int | None) -> socket.socket:
    """A socket on the loopback: on this port, or without one on the usual port, or any if that is taken."""
    for candidate in (USUAL_PORT, 0) if port is None else (port,):
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            opened.bind((HOST, candidate))
            return opened
        opened.close()
    raise Busy(f"Port is taken: {port}", "choose another with `--port`, or leave it out")


def serve(opened: socket.socket, tell: Callable[[str], None], *, read_only: bool = False) -> None:
    """Answer until interrupted. `tell` gets the address that opens the page, once."""
    tokens, port = Tokens(), opened.getsockname()[1]
    readers = Readers(lambda: open_memory(read_only=True))
    with readers.lend():  # raises now, in the terminal, if there is no store
        pass
    live = Live(readers, may_sweep=not read_only)
    app = make_app(Site(readers, tokens, live, read_only), port)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    live.start()
    tell(f"http://{HOST}:{port}/#code={tokens.code}")
    try:
        uvicorn.Server(config).run(sockets=[opened])
    finally:
        live.stop()
        readers.close()
