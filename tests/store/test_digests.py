"""Digests in the store: made once, made again when they must be, never worse than before."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from recollect import analysis
from recollect.agentkit.protocol import EventRecord, SessionInfo
from recollect.analysis.distiller import TINY_BYTES
from recollect.api import Filters, Memory, open_memory
from recollect.model import schema
from recollect.model.errors import NotFound, StoreDamaged
from recollect.store import ANY_SESSION
from recollect.store.sqlite.database import checksum_layer
from recollect.store.tables.digest_rows import seal_digest
from tests.builders import AGENT, BEGIN_MS, Home, event, sweep, usage


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    from recollect.agents import adapters
    from tests.builders import ScriptedAdapter

    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    return Home(tmp_path / "home")


def _talk(session: str, count: int = 3) -> list[EventRecord]:
    """`count` requests, each answered."""
    told = []
    for number in range(1, 2 * count, 2):
        told.append(event(session, number, schema.USER_MSG, f"please do thing {number}", role="user"))
        told.append(event(session, number + 1, schema.ASSISTANT_MSG, f"Done with thing {number}.", role="assistant"))
    return told


def _distil(memory: Memory) -> int:
    """Distil what is pending; return of how many sessions that is."""
    pending = memory._store.digest_rows.pending(analysis.VERSION)
    analysis.distil_pending(memory._store, lambda done, total: None)
    return len(pending)


def test_a_sweep_makes_digest_and_outcome(tmp_path: Path, home: Home) -> None:
    home.write("a", *_talk("s1"))

    memory = sweep(tmp_path / "store", home)

    (session,) = memory.sessions()
    found = memory.digest(session)
    assert (found.request_count, found.covers.event_count) == (3, 6)
    assert session.outcome == found.outcome.outcome == schema.SUCCESS
    assert session.analyzed_at is not None


def test_nothing_new_is_not_analysed_again(tmp_path: Path, home: Home) -> None:
    home.write("a", *_talk("s1"))
    memory = sweep(tmp_path / "store", home)

    assert _distil(memory) == 0


def test_a_session_that_grew_is_analysed_and_no_time_of_it_runs_backwards(tmp_path: Path, home: Home) -> None:
    home.write("a", *_talk("s1", 2))
    memory = sweep(tmp_path / "store", home)
    (before,) = memory.sessions()
    home.append("a", *_talk("s1", 4)[4:])

    memory.sweep()

    (after,) = memory.sessions()
    assert memory.digest(after).request_count == 4
    for session in (before, after):
        assert session.discovered_at <= session.ingested_at <= session.analyzed_at


def test_another_distiller_makes_all_digests_again(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("a", *_talk("s1"))
    memory = sweep(tmp_path / "store", home)
    (before,) = memory.sessions()
    monkeypatch.setattr(analysis, "VERSION", analysis.VERSION + 1)

    count = _distil(memory)

    (after,) = memory.sessions()
    assert count == 1
    assert memory.digest(after).covers.distiller == analysis.VERSION
    for session in (before, after):
        assert session.discovered_at <= session.ingested_at <= session.analyzed_at
    assert _distil(memory) == 0


def _drop_events(memory: Memory, *sessions: str) -> None:
    """What retention leaves in the cache of a session: nothing."""
    with memory._store._cache.transaction() as connection:
        for session in sessions:
            connection.execute(
                "DELETE FROM events WHERE stream = (SELECT id FROM streams WHERE native_id = ?)", (session,)
            )


def test_a_digest_is_never_replaced_by_one_that_covers_less(tmp_path: Path, home: Home) -> None:
    home.write("a", *_talk("s1"))
    memory = sweep(tmp_path / "store", home)
    (session,) = memory.sessions()
    before = memory.digest(session)
    with memory._store._cache.transaction() as connection:
        connection.execute("DELETE FROM events WHERE position > 2")
    memory._store.streams.set_all_dirty()

    memory.sweep()

    (after,) = memory.sessions()
    assert memory.digest(after) == before
    assert after.outcome == before.outcome.outcome
    assert memory.stats("agent").lines[0].turns == 3
    assert _distil(memory) == 0


def test_a_session_without_events_keeps_its_digest_whatever_distiller_comes(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("a", *_talk("s1"))
    memory = sweep(tmp_path / "store", home)
    (session,) = memory.sessions()
    before = memory.digest(session)
    _drop_events(memory, "s1")
    monkeypatch.setattr(analysis, "VERSION", analysis.VERSION + 1)

    first, second = _distil(memory), _distil(memory)

    assert (first, second) == (1, 0)
    assert memory.digest(session) == before


def _seal(memory: Memory, name: str) -> bool:
    """The part of an eviction that has a digest outlive its events."""
    with memory._store._memory.transaction() as connection:
        return seal_digest(connection, (AGENT, name))


def test_a_sealed_digest_is_extended_by_what_comes_after(tmp_path: Path, home: Home) -> None:
    first = _talk("s1", 2)
    home.write("a", *first, usage("s1", "u1", input_tokens=1_000_000))
    memory = sweep(tmp_path / "store", home)
    assert _seal(memory, "s1")
    _drop_events(memory, "s1")
    home.append("a", *_talk("s1", 3)[4:])

    memory.sweep()

    (after,) = memory.sessions()
    found = memory.digest(after)
    assert (found.request_count, found.covers.event_count) == (3, 6)
    assert [quote.text for quote in found.requests] == [f"please do thing {number}" for number in (1, 3, 5)]
    assert memory.stats("agent").lines[0].turns == 3
    memory._store.streams.set_all_dirty()
    memory.sweep()
    assert memory.digest(after) == found  # extending again from the same part adds nothing
    assert memory.stats("agent").lines[0].turns == 3


def test_there_is_nothing_to_seal_before_the_digest(tmp_path: Path, home: Home) -> None:
    assert _seal(sweep(tmp_path / "store", home), "nobody") is False


def _household(answer: str) -> list[object]:
    """A root with one sub-agent."""
    info = SessionInfo("root/sub", parent_native_id="root", root_native_id="root", session_class=schema.SUB_AGENT)
    sub = [
        event("root/sub", 1, schema.USER_MSG, "count the files", role="user"),
        event("root/sub", 2, schema.ASSISTANT_MSG, answer, role="assistant"),
    ]
    return [*_talk("root", 1), info, *sub]


def test_a_tiny_sub_agent_is_a_line_in_its_roots_digest(tmp_path: Path, home: Home) -> None:
    home.write("a", *_household("Found 3 files."))

    memory = sweep(tmp_path / "store", home)

    root = memory.session("root")
    (sub,) = memory.sub_agents(root)
    assert memory.digest(root).sub_agents == ("[success] count the files → Found 3 files.",)
    assert sub.analyzed_at is not None
    with pytest.raises(NotFound) as error:
        memory.digest(sub)
    assert root.session_uid in (error.value.hint or "")


def test_a_bigger_sub_agent_has_both(tmp_path: Path, home: Home) -> None:
    home.write("a", *_household("Found them. " + "x" * TINY_BYTES))

    memory = sweep(tmp_path / "store", home)

    root = memory.session("root")
    (sub,) = memory.sub_agents(root)
    assert len(memory.digest(root).sub_agents) == 1
    assert memory.digest(sub).request_count == 1


def test_a_digest_says_before_the_first_analysis_what_to_do(tmp_path: Path, home: Home) -> None:
    home.write("a", *_talk("s1"))
    memory = sweep(tmp_path / "store", home)
    (session,) = memory.sessions()
    with memory._store._memory.transaction() as connection:
        connection.execute("DELETE FROM digests")
        connection.execute("UPDATE sessions SET analyzed_ms = NULL")

    with pytest.raises(NotFound) as error:
        memory.digest(memory.sessions()[0])

    assert "sweep" in (error.value.hint or "")
    assert session.analyzed_at is not None


def test_a_damaged_digest_is_noticed(tmp_path: Path, home: Home) -> None:
    home.write("a", *_talk("s1"))
    memory = sweep(tmp_path / "store", home)
    with memory._store._memory.transaction() as connection:
        connection.execute("UPDATE digests SET digest = replace(digest, 'thing', 'thang')")

    with pytest.raises(StoreDamaged):
        memory.digest(memory.sessions()[0])


def test_a_group_that_cannot_be_written_leaves_nothing_of_it(tmp_path: Path, home: Home) -> None:
    for number in range(3):
        home.write(f"s{number}", *_talk(f"s{number}", 1))
    memory = sweep(tmp_path / "store", home)
    with memory._store._memory.transaction() as connection:
        for table in ("digests", "digest_text", "activity"):
            connection.execute(f"DELETE FROM {table}")
        connection.execute("UPDATE sessions SET analyzed_ms = NULL")
        connection.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON activity WHEN (SELECT count(*) FROM digests) = 3"
            " BEGIN SELECT raise(ABORT, 'stop'); END"
        )

    with pytest.raises(Exception, match="stop"):
        _distil(memory)

    assert memory._store._memory.value("SELECT count(*) FROM digests") == 0
    assert all(session.analyzed_at is None for session in memory.sessions())


def test_sessions_distilled_in_one_sweep_share_one_moment(tmp_path: Path, home: Home) -> None:
    day = 86_400_000
    for number in (3, 1, 2):
        told = _talk(f"s{number}", 1)
        for one in told:
            one.ts_ms = (one.ts_ms or 0) + number * day
        home.write(f"s{number}", *told)
    memory = sweep(tmp_path / "store", home)

    assert len({session.analyzed_at for session in memory.sessions()}) == 1


def test_a_session_is_found_by_the_words_of_its_digest(tmp_path: Path, home: Home) -> None:
    home.write("a", event("s1", 1, schema.USER_MSG, "why does the zeppelin sink", role="user"))
    home.write("b", event("s2", 1, schema.USER_MSG, "paint the boat", role="user"))
    memory = sweep(tmp_path / "store", home)
    _drop_events(memory, "s1", "s2")

    found = memory._store.digests.search('"zeppelin"', ANY_SESSION)
    assert [header.session_uid for header, _ in found] == [f"{AGENT}:s1"]


def test_a_session_that_turned_out_to_be_none_leaves_nothing(tmp_path: Path, home: Home) -> None:
    home.write("a", *_talk("s1"), usage("s1", "u1", input_tokens=10))
    memory = sweep(tmp_path / "store", home)

    memory._store.session_rows.drop([(AGENT, "s1")])

    for table in ("digests", "signals", "activity", "tool_use", "command_use", "digest_text"):
        assert memory._store._memory.value(f"SELECT count(*) FROM {table}") == 0


def test_what_an_older_version_counted_by_hours_is_kept_and_said_to_be_so(tmp_path: Path, home: Home) -> None:
    call = event("s1", 1, schema.TOOL_CALL, "ran ls", role="assistant", tool="shell", call_id="c1")
    told = event("s1", 2, schema.TOOL_RESULT, "ok", role="tool", tool="shell")
    told.call_id = "c1"
    home.write("a", event("s1", 0, role="user"), call, told, usage("s1", "u", output_tokens=7))
    sweep(tmp_path / "store", home).close()
    with closing(apsw.Connection(str(tmp_path / "store" / "memory.db"), vfs=checksum_layer())) as connection:
        version = connection.pragma("user_version")
        for table, old, minutes in (("activity", "hour", 60), ("tool_use", "day", 1440), ("command_use", "day", 1440)):
            connection.execute("DROP INDEX IF EXISTS activity_by_minute")
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN minute TO {old}")
            connection.execute(f"UPDATE {table} SET {old} = {old} / {minutes}")
            connection.execute(f"ALTER TABLE {table} DROP COLUMN span")
        connection.execute("ALTER TABLE tool_use DROP COLUMN event")
        connection.execute("ALTER TABLE command_use DROP COLUMN event")
        connection.execute("CREATE INDEX activity_by_hour ON activity (hour)")
        connection.pragma("user_version", version - 2)

    with open_memory(tmp_path / "store") as memory:
        moment = datetime.fromtimestamp(BEGIN_MS / 1000, UTC).replace(minute=30).isoformat()
        exact, cut = memory.stats("command"), memory.stats("month", Filters(since=moment))

    assert [(line.name, line.uses) for line in exact.lines] == [("ls", 1)]
    assert exact.notes == ()
    assert cut.total.output_tokens == 7
    assert len(cut.notes) == 1
    assert "1 session" in cut.notes[0]
