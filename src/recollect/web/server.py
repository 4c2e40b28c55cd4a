"""The server: one socket on the loopback, one user."""

import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path

import uvicorn

from recollect.api import open_memory
from recollect.files import work_name, write_new
from recollect.loopback import HOST
from recollect.web.app import Site, make_app
from recollect.web.guard import Tokens
from recollect.web.live import Live
from recollect.web.readers import Readers

USUAL_PORT = 7391


_PATIENCE_S = 5  # with a browser that was started


def serve(opened: socket.socket, tell: Callable[[str], None], *, opens: bool, read_only: bool = False) -> None:
    """Answer until interrupted. `tell` gets the address that works once, unless a browser `opens` it."""
    tokens, port = Tokens(), opened.getsockname()[1]
    readers = Readers(lambda: open_memory(read_only=True))
    with readers.lend() as memory:  # raises now, in the terminal, if there is no store
        forwarder = memory.settings.folder / f"{work_name('web')}.html"
    live = Live(readers, may_sweep=not read_only)
    app = make_app(Site(readers, tokens, live, read_only), port)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    live.start()
    address = f"http://{HOST}:{port}/#code={tokens.code}"
    if opens:
        threading.Thread(target=_open, args=(address, forwarder, tokens, tell), daemon=True).start()
    else:
        tell(address)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # uvicorn ends by it, and raises it again
    try:
        _Server(config, live).run(sockets=[opened])
    finally:
        forwarder.unlink(missing_ok=True)
        readers.close()


class _Server(uvicorn.Server):
    """Ends the streams to open pages before it waits for what is being answered."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._live.stop()
        await super().shutdown(sockets)


def _open(address: str, forwarder: Path, tokens: Tokens, tell: Callable[[str], None]) -> None:
    """Have the browser open a file that only this user may read; its arguments are for every user to see."""
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}"><title>Recollect</title>'
    write_new(forwarder, page.encode())

    def start() -> None:  # returns when the browser of a terminal ends
        if not webbrowser.open(forwarder.as_uri()):
            tokens.settled.set()

    threading.Thread(target=start, daemon=True).start()
    if not (tokens.settled.wait(_PATIENCE_S) and tokens.is_used):
        tell(address)
    tokens.settled.wait()
    forwarder.unlink(missing_ok=True)
