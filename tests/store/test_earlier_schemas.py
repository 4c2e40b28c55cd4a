"""Stores whose tables and indexes are those of an earlier version, read and brought up to date."""

from pathlib import Path

import apsw
import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import open_memory
from recollect.store import EventFilter, Term, Wanted, open_for_reading
from recollect.store.sqlite.database import connect
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    return Home(tmp_path / "home")


def test_a_store_of_an_earlier_version_has_repositories_named(tmp_path: Path, home: Home) -> None:
    home.write("s", SessionInfo("s", cwd="/home/x/shop"), event("s", 1))
    sweep(tmp_path / "store", home).close()
    connection = connect(tmp_path / "store/memory.db", read_only=False)
    for name in ("came", "went", "moved"):
        connection.execute(f"DROP TRIGGER session_{name}")
    connection.execute("ALTER TABLE rules DROP COLUMN has_moved")
    connection.pragma("user_version", 2)
    connection.close()

    home.write("later", SessionInfo("later", cwd="/home/x/notes"), event("later", 2))

    with sweep(tmp_path / "store", home) as memory:
        assert memory.session("later").repo == "notes"


def test_a_store_of_an_earlier_version_answers_the_same(tmp_path: Path, home: Home) -> None:
    for name in ("one", "two"):
        home.write(name, event(name, 1, text="the walrus sleeps"), event(name, 2, text="the otter swims"))
    with sweep(tmp_path / "store", home) as memory:
        before = memory.search("walrus otter")
    connection = connect(tmp_path / "store/cache.db", read_only=False)
    connection.execute("DROP INDEX events_by_number")
    connection.close()

    with open_memory(tmp_path / "store", read_only=True) as memory:
        without = memory.search("walrus otter")
    connection = connect(tmp_path / "store/cache.db", read_only=False)
    connection.pragma("user_version", 2)
    connection.close()
    with open_memory(tmp_path / "store", read_only=True) as memory:
        after = memory.search("walrus otter")

    assert [hit.session_uid for hit in before] == ["scripted:one", "scripted:two"]
    assert before == without == after


def test_words_are_looked_up_without_reading_the_events_that_have_them(tmp_path: Path, home: Home) -> None:
    home.write("one", event("one", 1, text="the walrus sleeps"))
    sweep(tmp_path / "store", home).close()

    with open_for_reading(tmp_path / "store") as store:
        read: list[str] = []
        store.databases[0].connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda told: read.append(told["sql"]))
        index = store.words
        index.sessions_with(Wanted(((Term("walrus"),),)), EventFilter())

    (sql,) = (sql for sql in read if "MATCH" in sql)
    with open_for_reading(tmp_path / "store") as store:
        plan = store.databases[0].rows(f"EXPLAIN QUERY PLAN {sql}", ("walrus",))
    assert any("COVERING INDEX events_by_number" in row[-1] for row in plan)
