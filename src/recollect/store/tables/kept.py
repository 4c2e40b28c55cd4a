"""What a sweep keeps for the next one: states of long sessions, and the user's rules that all rows were made with.

Steps go on from their states instead of reading all of a long session again.
A state stands for all events of a lane before `seq` and all responses up to `cut_ms`. Triggers drop it as soon as any
of these changes, whoever changes them: what is appended never does.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from recollect.model.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables.table import BY_STREAM, CACHE, KEYS, MEMORY, Table, column, json_keys

ACCOUNT = "account"
DIGEST = "digest"
_STEPS = {ACCOUNT, DIGEST}  # nothing can be gone on from unless all of these kept their state

# `kind` and `flags` are not among them: they are marked by the step that keeps the state.
_OF_EVENTS = (
    *("event_uid", "lane", "position", "parent_uid", "ts_ms", "role", "tool", "call_id", "status", "copy_of"),
    *("retry_key", "summary", "payload_hash", "model", "metadata"),
)
_LINKS = ("parent_native_id", "root_native_id", "base_native_id", "born_ms")


def _trigger(name: str, event: str, condition: str, stream: str) -> str:
    return f"CREATE TRIGGER {name} {event} WHEN {condition} BEGIN DELETE FROM kept WHERE stream = {stream}; END"


def _on_event(name: str, event: str) -> str:
    is_before = "OLD.seq < (SELECT max(seq) FROM kept WHERE stream = OLD.stream)"
    return _trigger(name, f"{event} ON events", is_before, "OLD.stream")


def _on_usage(name: str, event: str, row: str) -> str:
    is_before = f"coalesce({row}.ts_ms, 0) <= (SELECT max(cut_ms) FROM kept WHERE stream = {row}.stream)"
    return _trigger(name, f"{event} ON usage", is_before, f"{row}.stream")


def _on_info(name: str, event: str, row: str, condition: str) -> str:
    stream = f"(SELECT id FROM streams WHERE agent = {row}.agent AND native_id = {row}.native_id)"
    return _trigger(name, f"{event} ON infos", condition, stream)


_SAME_LINKS = " AND ".join(f"o.{name} IS NEW.{name}" for name in ("agent", "native_id", "source", *_LINKS))
_HAS_CHANGED = f"NOT EXISTS (SELECT 1 FROM infos o WHERE {_SAME_LINKS})"

KEPT = Table(
    "kept",
    CACHE,
    (
        *column.numbers("stream"),
        *column.plain("step"),
        *column.identifiers("lane"),
        *column.numbers("seq", "position", "cut_ms"),
        *column.documents("state"),
    ),
    owner=BY_STREAM,
    key=("stream", "step"),
    extras=(
        _on_event("kept_event_changed", f"AFTER UPDATE OF {', '.join(_OF_EVENTS)}"),
        _on_event("kept_event_gone", "AFTER DELETE"),
        _on_usage("kept_usage_added", "AFTER INSERT", "NEW"),
        _on_usage("kept_usage_changed", "AFTER UPDATE", "OLD"),
        _on_usage("kept_usage_gone", "AFTER DELETE", "OLD"),
        # Before: an INSERT OR REPLACE shows the row it replaces to no trigger of its own.
        _on_info("kept_info_changed", "BEFORE INSERT", "NEW", _HAS_CHANGED),
        _on_info("kept_info_gone", "AFTER DELETE", "OLD", "1"),
    ),
)


class Boundary(NamedTuple):
    """Where the part of a session that a state stands for ends: `seq` is the first event after it."""

    lane: str
    seq: int
    position: int  # of the last event before it
    cut_ms: int


class Kept(NamedTuple):
    """Up to where a session need not be read again, and what each step made of it."""

    boundary: Boundary
    states: Mapping[str, bytes]


KeptState = tuple[SessionKey, Boundary, bytes]


class KeptStates:
    """The states of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, keys: Collection[SessionKey]) -> dict[SessionKey, Kept]:
        """Return those of the sessions that can be continued: every step kept its state at the same place."""
        if self._database.value("SELECT 1 FROM kept LIMIT 1") is None:
            return {}
        rows = self._database.rows(
            f"{KEYS}SELECT s.agent, s.native_id, step, lane, seq, position, cut_ms, state"
            " FROM keys CROSS JOIN streams s USING (agent, native_id) CROSS JOIN kept k ON k.stream = s.id",
            (json_keys(keys),),
        )
        states: dict[SessionKey, dict[str, tuple[Boundary, bytes]]] = {}
        for agent, native_id, step, *place, state in rows:
            states.setdefault(SessionKey(agent, native_id), {})[step] = (Boundary(*place), state.encode())
        return {
            key: Kept(by_step[ACCOUNT][0], {step: state for step, (_, state) in by_step.items()})
            for key, by_step in states.items()
            if by_step.keys() >= _STEPS and len({boundary for boundary, _ in by_step.values()}) == 1
        }

    def put(self, states: Mapping[str, Iterable[KeptState]]) -> None:
        """Keep what steps made of sessions up to a place; the events before it have their marks by now."""
        rows = [
            (*key, step, *boundary, state.decode()) for step, made in states.items() for key, boundary, state in made
        ]
        if not rows:
            return
        self._database.write_all(
            "INSERT OR REPLACE INTO kept"
            " SELECT id, ?3, ?4, ?5, ?6, ?7, ?8 FROM streams WHERE agent = ?1 AND native_id = ?2",
            rows,
        )

    def drop(self, keys: Collection[SessionKey]) -> bool:
        """Force full reads of sessions; return True if any of them had a state."""
        if not keys or self._database.value("SELECT 1 FROM kept LIMIT 1") is None:
            return False
        with self._database.transaction() as connection:
            connection.execute(
                f"{KEYS}DELETE FROM kept WHERE stream IN (SELECT id FROM keys JOIN streams USING (agent, native_id))",
                (json_keys(keys),),
            )
            return bool(connection.changes())


# What repositories and groups are named by
_PLACE = ("root_session_uid", "base_session_uid", "cwd", "git_root", "git_remote")
_OLD, _NEW = (", ".join(f"{row}.{name}" for name in _PLACE) for row in ("OLD", "NEW"))
_NOTE = "BEGIN UPDATE rules SET has_moved = 1 WHERE has_moved IS NULL; END"

# One line, or none before the first sweep. `has_moved` is written with the sessions' rows: whatever stops a
# sweep between these and the names, the next one gives them.
RULES = Table(
    "rules",
    MEMORY,
    (*column.plain("text"), *column.numbers("has_moved?")),
    extras=(
        f"CREATE TRIGGER session_came AFTER INSERT ON sessions {_NOTE}",
        f"CREATE TRIGGER session_went AFTER DELETE ON sessions {_NOTE}",
        f"CREATE TRIGGER session_moved AFTER UPDATE OF {', '.join(_PLACE)} ON sessions"
        f" WHEN ({_OLD}) IS NOT ({_NEW}) {_NOTE}",
    ),
)


class Rules:
    """The user's rules that all rows were made with."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def text(self) -> str | None:
        """None before the first sweep."""
        text = self._database.value("SELECT text FROM rules")
        return None if text is None else str(text)

    def has_moved(self) -> bool:
        """Return True if any session came, went, or worked elsewhere since `set`."""
        return bool(self._database.value("SELECT has_moved FROM rules"))

    def set(self, text: str, *, is_named: bool) -> None:
        """Note that all rows are made with these rules, or marked to be; and whether all repositories and groups are
        named."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM rules")
            connection.execute("INSERT INTO rules VALUES (?, ?)", (text, None if is_named else 1))
