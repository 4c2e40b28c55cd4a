"""One of many processes at a store: writes its batches, or looks again and again until it is told to stop.

write FOLDER NUMBER BATCHES EVENTS   prints how many events it stored
read FOLDER WRITERS EVENTS           prints how often it looked, and everything it saw torn
"""

import dataclasses
import select
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import orjson

from recollect.model.errors import RecollectError
from recollect.model.kinds import SessionKey
from recollect.store import Store, open_store
from tests.builders import AGENT
from tests.store.rows import batch, noise, put

_ONE_SNAPSHOT = (
    "SELECT (SELECT count(*) FROM events), (SELECT sum(next_seq - 1) FROM streams), (SELECT sum(offset) FROM sources)"
)


def write(folder: str, number: str, batches: str, events: str) -> None:
    """Every fifth batch goes to a session that all writers share; some are too big for the database."""
    size = int(events)
    stored = 0
    with open_store(Path(folder), create=True) as store:
        _wait()
        for which in range(int(batches)):
            padding = "|" + noise(90_000, which) if which % 10 == 3 else ""
            names = range(which * size, (which + 1) * size)
            texts = {
                f"{number}.{name}": f"writer {number} event {name}{padding * (name % size == 0)}" for name in names
            }
            session = "shared" if which % 5 == 4 else f"own-{number}"
            made = batch(texts, session=session, offset=(which + 1) * size)
            source = made.source._replace(path=f"/home/x/{number}.jsonl")
            stored += put(store, dataclasses.replace(made, source=source)).events_new
    print(stored)


def read(folder: str, writers: str, events: str) -> None:
    looks, torn = 0, []
    sessions = ["shared", *(f"own-{number}" for number in range(int(writers)))]
    connection = apsw.Connection(str(Path(folder) / "cache.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(20_000)
    with open_store(Path(folder)) as store:
        _wait()
        while not select.select([sys.stdin], [], [], 0)[0]:
            torn += [*_snapshot(connection), *_session(store, sessions[looks % len(sessions)], int(events))]
            looks += 1
    print(orjson.dumps({"looks": looks, "torn": torn[:5]}).decode())


def _snapshot(connection: apsw.Connection) -> Iterator[str]:
    """In one instant: rows, what sessions count, and how far the cursors say that was read."""
    rows, counted, offsets = connection.execute(_ONE_SNAPSHOT).get
    if not rows == (counted or 0) == (offsets or 0):
        yield f"{rows} events, {counted} counted, cursors at {offsets}"


def _session(store: Store, session: str, events: int) -> Iterator[str]:
    """Whole batches only, and every payload is the one of its row."""
    rows = store.events.rows(SessionKey(AGENT, session), ("native_id", "payload_start", "payload_bytes"))
    if len(rows) % events:
        yield f"{len(rows)} events of {session}"
    try:
        payloads = list(store.payloads.iter(SessionKey(AGENT, session), sorted(row[1:] for row in rows)))
    except RecollectError as error:
        yield error.message
        return
    texts = {orjson.loads(payload)["text"].partition("|")[0] for payload in payloads}
    wanted = {"writer {} event {}".format(*name.split(".")) for name, _, _ in rows}
    if texts != wanted:
        yield f"{len(texts ^ wanted)} payloads of {session}"


def _wait() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
