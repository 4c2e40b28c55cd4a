"""What the tests of self-care share."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from recollect import Finding
from recollect.api import Memory, doctor, open_memory
from recollect.model.kinds import SessionKey
from recollect.model.schema import to_json
from recollect.store import Store
from tests.builders import Home
from tests.retention.rig import evict_all, opened, row, write

# Set when a session is stored, and different each time
_ARRIVAL = ("discovered_at", "ingested_at", "analyzed_at", "sources")


def problems(store: Path, home: Home) -> list[Finding]:
    """What a deep look at a store finds wrong."""
    return [finding for finding in doctor(store, [home.flag], deep=True) if finding.level == "problem"]


def hashes(store: Path) -> dict[str, str | None]:
    with open_memory(store, create=False) as memory:
        return {session.session_uid: session.content_hash for session in memory.sessions()}


def held(store: Path) -> dict[str, Any]:
    """All that a store tells: sessions without what belongs to their arrival, events, payloads."""
    with open_memory(store, create=False) as memory:
        return {session.session_uid: _told(memory, session) for session in memory.sessions()}


def evicted_and_held(tmp_path: Path) -> tuple[Home, Path]:
    """A store with a session that was evicted and one that is held; their logs are gone."""
    home, store = Home(tmp_path / "logs"), tmp_path / "distilled"
    write(home, "evicted")
    with opened(store, home) as memory:
        memory.sweep()
        evict_all(memory)
        write(home, "held")
        memory.sweep()
    lose_home(home)
    return home, store


def distilled(store: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The digest of each session, and the sessions' rows."""
    with open_memory(store) as memory:
        found = memory.sessions()
        return {session.session_uid: memory.digest(session) for session in found}, [row(session) for session in found]


def leave_only_its_row(opened: Store) -> None:
    """The session `small` as if its events had been dropped, and the ledger told nothing of it."""
    opened.session_rows.set(("evicted_ms",), {SessionKey("scripted", "small"): (1,)})
    with opened.databases[0].transaction() as connection:
        stream = opened.streams.names()["scripted", "small"]
        for table in ("events", "frames", "usage", "stream_sources"):
            connection.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
        connection.execute("DELETE FROM streams WHERE id = ?", (stream,))
    opened.rewrites.drop_old()


def _told(memory: Memory, session: Any) -> Any:
    events = memory.events(session, with_copies=True)
    row = {name: value for name, value in to_json(session).items() if name not in _ARRIVAL}
    places = {"seq": None, "payload_ref": None}  # where content lies is the store's own business
    told = [to_json(event) | places for event in events]
    return row, told, list(memory.payloads(session, events))


def copy_while_open(store: Path, target: Path) -> Path:
    """The files of a store as a crash would leave them; by another process, since this one has them open."""
    subprocess.run(["cp", "-a", str(store), str(target)], check=True)
    return target


def flip(path: Path, offset: int, bits: int = 0x40) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


def pack_of(store: Path, size: str) -> Path:
    """The largest or the smallest pack."""
    packs = sorted((store / "packs").rglob("*.pack"), key=lambda path: path.stat().st_size)
    return packs[-1] if size == "largest" else packs[0]


def lose_home(home: Home) -> None:
    """The agent has deleted its logs, and something else is in their place."""
    shutil.rmtree(home.folder)
    home.folder.mkdir()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
