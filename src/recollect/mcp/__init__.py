"""The memory inside an agent: a server for the model context protocol on standard input and output."""

import sys
from contextlib import suppress
from pathlib import Path

from recollect.home import is_in_group
from recollect.mcp.door import Door, Scope
from recollect.mcp.server import Server

__all__ = ["serve", "serve_sandbox"]


def serve(
    repo: str | None = None, group: str | None = None, *, has_brief: bool = True, can_write: bool = False
) -> None:
    """Answer the agent that started this process until it closes its end.

    `repo` (a folder) and `group` are walls: nothing from outside is ever answered with. With `has_brief` it tells what
    the last session left where no hook does; with `can_write` it offers the tools that record something.
    """
    folder = Path(repo).expanduser().absolute() if repo else Path.cwd()
    if group or is_in_group():
        from recollect.config import process_group  # most servers are of no group, and need no settings

        group = process_group(group)
    door = Door(Scope(folder, group, has_wall=bool(repo or group)), has_brief=has_brief, can_write=can_write)
    _serve(door)


def serve_sandbox(ipc: str) -> None:
    """The same for an agent that has neither store nor network, only a folder that it shares with the host."""
    from recollect.mcp.sandbox import SandboxDoor  # few servers run in a sandbox

    _serve(SandboxDoor(Path(ipc).expanduser().absolute()))


def _serve(door: Door) -> None:
    # Not `sys.stdin`: at exit Python would wait for the thread that reads it.
    with open(0, "rb", closefd=False) as reader, suppress(BrokenPipeError):
        Server(door).serve(reader, sys.stdout.buffer)
