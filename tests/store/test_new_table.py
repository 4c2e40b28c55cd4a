"""A table is one declaration: whatever must reach every table reaches a new one."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import Memory, doctor, open_memory, restore
from recollect.model.kinds import SessionKey
from recollect.store import open_store
from recollect.store.sqlite.database import Database
from recollect.store.tables import fulltext
from recollect.store.tables.table import (
    BY_DIGEST,
    BY_SESSION,
    BY_SOURCE,
    BY_STREAM,
    CACHE,
    MEMORY,
    Column,
    Table,
    column,
)
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep
from tests.forget.traces import left_in

WORD = "zqxjkvbpwyfgm"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
FIRST = SessionKey(AGENT, "s1")


class Case(NamedTuple):
    """Where a throw-away table belongs, and how its row for the first session is found."""

    database: str
    owner: str
    keys: tuple[Column, ...]
    values: str


CASES = {
    "of sessions": Case(MEMORY, BY_SESSION, column.plain("agent", "native_session_id"), f"'{AGENT}', 's1'"),
    "of digests": Case(
        MEMORY,
        BY_DIGEST,
        column.numbers("digest", "is_sealed"),
        "(SELECT id FROM digests WHERE native_session_id = 's1'), 0",
    ),
    "of streams": Case(CACHE, BY_STREAM, column.numbers("stream"), "(SELECT id FROM streams WHERE native_id = 's1')"),
    "of sources": Case(
        CACHE, BY_SOURCE, column.numbers("source"), "(SELECT id FROM sources WHERE path LIKE '%s1.jsonl')"
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    case = CASES[request.param]
    texts = (*column.texts("note"), *column.documents("more"))
    table = Table(
        "notes",
        case.database,
        (column.row_number("id"), *case.keys, *texts),
        owner=case.owner,
        is_exported=case.database == MEMORY,
    )
    monkeypatch.setattr(fulltext, "NOTES", table, raising=False)
    return case


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    for session in ("s1", "s2"):
        home.write(session, SessionInfo(session, title="a title"), event(session, 1, text=f"hello of {session}"))
    return home


@pytest.fixture
def memory(tmp_path: Path, home: Home, case: Case) -> Iterator[Memory]:
    """A store with a row in the new table, which says a rare word and a secret of the first session."""
    with sweep(tmp_path / "store", home) as memory:
        with _database(memory, case).transaction() as connection:
            _insert(connection, case)
        yield memory


def _insert(connection: apsw.Connection, case: Case) -> None:
    note, more = f"{WORD} with {SECRET}", f'{{"more": "{SECRET}"}}'
    connection.execute(f"INSERT INTO notes SELECT NULL, {case.values}, ?, ?", (note, more))


def _database(memory: Memory, case: Case) -> Database:
    return memory._store.databases[0 if case.database == CACHE else 1]


def _notes(memory: Memory, case: Case) -> list[tuple[str, str]]:
    return _database(memory, case).rows("SELECT note, more FROM notes")


def test_forgetting_its_session_leaves_no_byte_of_it(tmp_path: Path, memory: Memory) -> None:
    assert left_in(tmp_path / "store", [WORD]) == {WORD}

    memory.forget(memory.plan_forgetting("s1"))

    memory.close()
    assert left_in(tmp_path / "store", [WORD]) == set()


def test_its_session_is_found_by_a_word_in_it(memory: Memory) -> None:
    planned = memory.plan_forgetting(match=WORD)

    assert planned.keys == {FIRST}


def test_newer_rules_reach_its_texts(tmp_path: Path, memory: Memory, case: Case, home: Home) -> None:
    (tmp_path / "store" / "config.toml").write_text(f"[redact.rules]\nown = '{WORD}'\n")
    memory.close()

    with open_memory(tmp_path / "store", [home.flag]) as memory:
        memory.rescan()

        ((note, more),) = _notes(memory, case)
        assert note.startswith("[REDACTED:own:") and "[REDACTED:github-token:" in note
        assert "[REDACTED:github-token:" in more
    (tmp_path / "store" / "config.toml").unlink()
    assert left_in(tmp_path / "store", [WORD, SECRET]) == set()


@pytest.mark.parametrize("damage", ["note = x'00'", "more = '{'"])
def test_a_check_names_rows_that_were_never_written(
    tmp_path: Path, memory: Memory, case: Case, home: Home, damage: str
) -> None:
    with _database(memory, case).transaction() as connection:
        connection.execute(f"UPDATE notes SET {damage}")
    memory.close()

    findings = doctor(tmp_path / "store", [home.flag], deep=True)

    assert any("1 rows of notes are damaged" in finding.message for finding in findings)


def test_an_export_carries_it_if_it_lasts(tmp_path: Path, memory: Memory, case: Case) -> None:
    rows = list(memory._store.lasting.iter_rows(FIRST))

    with open_store(tmp_path / "other", create=True) as other:
        other.lasting.put(FIRST, rows)

        assert list(other.lasting.iter_rows(FIRST)) == rows
        assert other.check.damage() == []
    assert [name for name, _ in rows].count("notes") == (case.database == MEMORY)


def test_a_backup_brings_it_back(tmp_path: Path, memory: Memory, case: Case) -> None:
    before = _notes(memory, case)
    memory.backup(tmp_path / "backup.tar.zst")
    memory.close()

    restore(tmp_path / "backup.tar.zst", tmp_path / "restored")

    with open_memory(tmp_path / "restored") as restored:
        assert _notes(restored, case) == before
