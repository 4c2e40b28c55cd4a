"""The server: one socket on the loopback, one user."""

import socket
from collections.abc import Callable

import uvicorn

from recollect.api import open_memory
from recollect.loopback import HOST
from recollect.web.app import Site, make_app
from recollect.web.guard import Tokens
from recollect.web.live import Live
from recollect.web.readers import Readers

USUAL_PORT = 7391


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
