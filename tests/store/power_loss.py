"""Sweeps on a disk that loses power: recorded once, then cut at random instants."""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from recollect.ingest.builder import Protection
from recollect.model.errors import RecollectError
from recollect.model.kinds import SessionKey
from recollect.redact import RedactionRules
from recollect.store import DigestRows, SessionRows, Store, open_store
from recollect.store.sqlite import database as sqlite
from tests.conftest import with_key
from tests.faults.rig import Held, Struck, examine, sweep
from tests.faults.work import Writers
from tests.store.broken import BUGS
from tests.store.tape import ACKNOWLEDGE, Tape, taped

_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Recording:
    """Some work of growing sessions on one tape, and what a store must hold in the end."""

    tape: Tape
    writers: Writers
    clean: Held


Work = Callable[[Path, Writers], None]


def sweep_and_grow(store: Path, writers: Writers) -> None:
    for _ in range(_ROUNDS):
        writers.write([4] * 6)
        sweep(store, *writers.roots)


def record(folder: Path, seed: int, bug: str | None = None, work: Work = sweep_and_grow) -> Recording:
    """Tape what some work does to a store."""
    writers = Writers(folder / "home", seed, big_share=0.04)
    store = with_key(folder / "store")
    Protection(store, RedactionRules()).redactor()  # what it keeps beside the store is no part of the tape
    with pytest.MonkeyPatch.context() as patch, taped(store) as tape:
        _checkpoint_often(patch)
        _note_what_is_acknowledged(patch, tape)
        if bug is not None:
            BUGS[bug](patch.setattr)
        work(store, writers)
    tape.check()
    writers.finish()
    return Recording(tape, writers, sweep(with_key(folder / "clean"), *writers.roots))


def _checkpoint_often(patch: pytest.MonkeyPatch) -> None:
    """As in the middle of a long sweep: the log is moved into the database between two commits."""
    pragmas = tuple((name, 30 if name == "wal_autocheckpoint" else value) for name, value in sqlite._PRAGMAS)
    patch.setattr(sqlite, "_PRAGMAS", pragmas)


def _note_what_is_acknowledged(patch: pytest.MonkeyPatch, tape: Tape) -> None:
    """Once a session's row or its digest is put, it must be there whatever happens."""
    put, put_digests = SessionRows.put, DigestRows.put

    def noted(self: SessionRows, rows: Any) -> None:
        put(self, rows)
        tape.acknowledge({row.session_uid: row.event_count for row, _ in rows})

    def noted_digests(self: DigestRows, rows: Any, at_ms: int) -> int:
        listed = list(rows)
        kept_back = put_digests(self, listed, at_ms)
        tape.acknowledge({_digest_of(f"{row.agent}:{row.native_session_id}"): row.event_count for row in listed})
        return kept_back

    patch.setattr(SessionRows, "put", noted)
    patch.setattr(DigestRows, "put", noted_digests)


def _digest_of(session_uid: str) -> str:
    return f"digest of {session_uid}"


def cut_power(recording: Recording, chance: random.Random, disks: int) -> Struck:
    """Cut the power at so many random instants, and look at each disk."""
    acts = len(recording.tape.acts)
    return _cut_after(recording, [chance.randrange(1, acts + 1) for _ in range(disks)], chance)


def cut_power_once_acknowledged(recording: Recording, chance: random.Random) -> Struck:
    """Cut the power right after each acknowledgement: the next sync may be a few acts away, too few for chance."""
    acts = enumerate(recording.tape.acts, 1)
    return _cut_after(recording, [number for number, act in acts if act.kind == ACKNOWLEDGE], chance)


def _cut_after(recording: Recording, cuts: list[int], chance: random.Random) -> Struck:
    struck = Struck(0, [])
    for cut in cuts:
        with tempfile.TemporaryDirectory() as folder:
            recording.tape.make_disk(cut, chance, Path(folder))
            findings = _look(Path(folder), recording, cut)
        struck += Struck(1, [f"power cut after act {cut}: {finding}" for finding in findings])
    return struck


def _look(store: Path, recording: Recording, cut: int) -> list[str]:
    try:
        with open_store(store, create=True) as opened:
            findings = [
                *opened.check.damage(),
                *_missing(opened, recording.tape.acknowledged(cut)),
                *_unreadable(opened),
            ]
    except RecollectError as error:
        findings = [f"does not open: {error.message}"]
    return findings + examine(store, recording.writers, recording.clean)


def _missing(store: Store, acknowledged: list[dict[str, int]]) -> list[str]:
    held: dict[str, int] = {}
    for session in store.sessions.find():
        held[session.session_uid] = session.event_count
        if digest := store.digest_rows.read_back(session.agent, session.native_session_id):
            held[_digest_of(session.session_uid)] = digest["event_count"]
    told = {uid: count for row in acknowledged for uid, count in row.items()}
    return [f"acknowledged and missing: {uid}" for uid, count in told.items() if held.get(uid, -1) < count]


def _unreadable(store: Store) -> list[str]:
    """Sessions whose payloads are not what their rows say, before any sweep could mend them."""
    found = []
    for agent, native_id in store.streams.names():
        rows = store.events.rows(SessionKey(agent, native_id), ("payload_start", "payload_bytes", "payload_hash"))
        try:
            payloads = store.payloads.iter(SessionKey(agent, native_id), [row[:2] for row in rows])
            if [sha256(payload).digest()[:16] for payload in payloads] != [row[2] for row in rows]:
                found.append(f"payloads are not what was stored: {native_id}")
        except RecollectError as error:
            found.append(error.message)
    return found
