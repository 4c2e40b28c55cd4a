"""The memory inside an agent: a server for the model context protocol on standard input and output."""

import sys
from contextlib import suppress
from pathlib import Path

from recollect.mcp.door import Door, Scope
from recollect.mcp.server import Server
from recollect.model.errors import NotFound
from recollect.model.home import is_in_group

__all__ = ["serve", "serve_http", "serve_sandbox"]

TYPE_CHECKING = False  # `typing` takes a while to load, and agents wait
if TYPE_CHECKING:
    from collections.abc import Callable

_USUAL_PORT = 7392


def serve(repo: str | None = None, group: str | None = None, *, can_write: bool = False, is_core: bool = False) -> None:
    """Answer the agent that started this process until it closes its end.

    `repo` (a folder) and `group` are walls: no answer has anything from outside. With `can_write`, tools that record
    something are on; with `is_core`, only the three reading tools that matter most.
    """
    _serve(Door(_scope(repo, group), can_write=can_write, is_core=is_core))


def _scope(repo: str | None, group: str | None) -> Scope:
    """Return what the server may see; raises NotFound if its group does not exist."""
    folder = Path(repo).expanduser().absolute() if repo else Path.cwd()
    if group or is_in_group():
        # Most servers are of no group, and need neither the settings nor the store at their start.
        from recollect.api import open_memory
        from recollect.config import process_group

        group = process_group(group)
        if group is not None:
            open_memory(create=False, read_only=True, group=group).close()
    return Scope(folder, group, has_wall=bool(repo or group))


def serve_http(
    repo: str | None,
    group: str | None,
    *,
    can_write: bool,
    is_core: bool,
    port: int | None,
    announce: "Callable[[str, str], None]",
) -> None:
    """The same over HTTP, for clients that cannot start it; `announce` gets its address and its token."""
    from recollect.config import store_folder  # few servers answer over HTTP
    from recollect.loopback import bind
    from recollect.mcp.http import HttpDoor, serve_http

    with bind(port, _USUAL_PORT) as opened:
        serve_http(
            HttpDoor(_scope(repo, group), can_write=can_write, is_core=is_core), opened, store_folder(), announce
        )


def serve_sandbox(ipc: str) -> None:
    """The same for an agent that has neither store nor network, only a folder that it shares with the host."""
    from recollect.mcp.sandbox import SandboxDoor  # few servers run in a sandbox

    path = Path(ipc).expanduser().absolute()
    if not path.is_dir():
        raise NotFound(f"No such folder: {path}", "`recollect group mounts` prints what to mount there")
    _serve(SandboxDoor(path))


def _serve(door: Door) -> None:
    # Not `sys.stdin`: at exit Python would wait for the thread that reads it.
    with open(0, "rb", closefd=False) as reader, suppress(BrokenPipeError):
        Server(door).serve(reader, sys.stdout.buffer)
