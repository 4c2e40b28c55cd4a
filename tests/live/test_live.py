"""What a host appends is there at once: in its history, its lists, and every search."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from recollect.api import Memory, doctor, open_memory
from recollect.live import Live, route
from recollect.live.jsonl import Line
from recollect.model.clock import now_ms
from recollect.model.errors import NotFound, UsageError
from tests.forget.traces import left_in
from tests.logs import AGENT_LOGS, lines, session_id


@pytest.fixture
def live(memory: Memory) -> Iterator[Live]:
    yield Live(memory)


def _contents(live: Live, key: str) -> list[object]:
    return [message.content for message in live.get_history(key)]


def _found(live: Live, query: str, **options: object) -> set[str]:
    return {hit.session_uid for hit in live.search(query, **options).hits}  # type: ignore[arg-type]


def test_messages_come_back_as_they_were_appended(live: Live) -> None:
    parts = [{"type": "text", "text": "look at this"}, {"type": "quote", "text": "that", "n": 3}]

    live.append_message("telegram:42", "user", "hello")
    live.append_message(
        "telegram:42", "assistant", parts, "parts", "acme", "m-1", {"input": 7, "output": 3}, {"a": [1]}
    )

    first, second = live.get_history("telegram:42")
    assert (first.role, first.content, first.content_type) == ("user", "hello", "text")
    assert (second.content, second.content_type, second.provider, second.model) == (parts, "parts", "acme", "m-1")
    assert (second.tokens, second.metadata) == ({"input": 7, "output": 3}, {"a": [1]})
    assert _contents(live, "telegram:42")[-1:] == [live.get_history("telegram:42", 1)[0].content]
    assert live.get_history("telegram:43") == []


def test_a_list_shows_the_last_message_the_counts_and_the_cost_at_once(live: Live) -> None:
    live.session("telegram:42", user_id="u1", character_id="c1", title="Trip", metadata={"lang": "id"})
    live.append_message("telegram:42", "user", "where to?")
    live.append_message("telegram:42", "assistant", "Bali", model="claude-sonnet-4-5", tokens={"input": 100_000})
    live.record_tool_call("telegram:42", "bash", {"command": "pytest -q"}, "2 failed", "error")
    time.sleep(0.002)  # or both were active in the same millisecond
    live.append_message("cli:1", "user", "later")

    latest, trip = live.list_sessions()

    assert latest.key == "cli:1"
    assert (trip.key, trip.channel, trip.chat_id, trip.user_id) == ("telegram:42", "telegram", "42", "u1")
    assert (trip.character_id, trip.title, trip.metadata) == ("c1", "Trip", {"lang": "id"})
    assert (trip.message_count, trip.tool_calls, trip.tokens) == (2, 1, 100_000)
    assert (trip.usd, trip.usd_is_estimate) == (0.3, True)
    assert trip.last_message is not None and trip.last_message.content == "Bali"
    assert [session.key for session in live.list_sessions("telegram")] == ["telegram:42"]


@pytest.mark.parametrize(
    "query",
    [
        "zanzibar",
        "/srv/app/settings.toml",
        "https://example.com/a?b=1",
        "npm run build:prod",
        "perpanjangan langganan",
        "部署完成",
        "支払い",
    ],
)
def test_every_kind_of_text_is_found_at_once(live: Live, query: str) -> None:
    text = (
        "Zanzibar: see /srv/app/settings.toml and https://example.com/a?b=1, then `npm run build:prod`;"
        " perpanjangan langganan sudah selesai, 部署完成了, 支払いを確認します"
    )
    appended = live.append_message("telegram:42", "assistant", text)
    live.append_message("cli:1", "user", "something else altogether")

    assert _found(live, query) == {appended.session_uid}


def test_channel_session_and_exclusion_narrow_a_search(live: Live) -> None:
    uids = {
        key: live.append_message(key, "user", f"the mango order of {key}").session_uid
        for key in ("telegram:1", "telegram:2", "cli:1")
    }

    assert _found(live, "mango") == set(uids.values())
    assert _found(live, "mango", channel="telegram") == {uids["telegram:1"], uids["telegram:2"]}
    assert _found(live, "mango", session="telegram:2") == {uids["telegram:2"]}
    assert _found(live, "mango", exclude="cli:1") == {uids["telegram:1"], uids["telegram:2"]}
    assert [hit.session_uid for hit in live.search("").hits] == [uids["cli:1"], uids["telegram:2"], uids["telegram:1"]]


def test_sessions_of_coding_agents_are_no_part_of_a_hosts_search(live: Live, tmp_path: Path) -> None:
    log, session = AGENT_LOGS[0], session_id(1)
    log.write(tmp_path / "home", lines([*log.opening(session), log.message(session, 1, "papaya")]), session)
    with open_memory(tmp_path / "store", [f"{log.agent}={tmp_path / 'home'}"]) as memory:
        memory.sweep()
        assert memory.search("papaya")
    live.append_message("cli:1", "user", "mango")

    assert _found(live, "papaya") == set()


def test_a_message_with_the_same_id_is_stored_once(live: Live) -> None:
    first = live.append_message("cli:1", "user", "once", message_id="m1")
    second = live.append_message("cli:1", "user", "once", message_id="m1")

    assert (first.is_new, second.is_new) == (True, False)
    assert _contents(live, "cli:1") == ["once"]
    assert live.list_sessions()[0].message_count == 1


def test_nothing_of_an_archived_session_is_found_under_its_old_key(live: Live) -> None:
    old = live.append_message("telegram:42", "user", "quokka")
    live.new_session("telegram:42")
    new = live.append_message("telegram:42", "user", "wombat")

    assert old.session_uid != new.session_uid
    assert _contents(live, "telegram:42") == ["wombat"]
    assert _found(live, "quokka", session="telegram:42") == set()
    assert [session.key for session in live.list_sessions()] == ["telegram:42"]
    archived = live.list_sessions(with_archived=True)[1]
    assert archived.session_uid == old.session_uid and archived.key.startswith("telegram:42#")
    assert _contents(live, archived.key) == ["quokka"]
    assert live.memory.session(old.session_uid).key == archived.key
    live.memory.sweep()
    assert live.memory.session(old.session_uid).key == archived.key


def test_after_the_slash_command_no_row_of_either_database_has_the_old_key(live: Live) -> None:
    live.append_message("telegram:42", "user", "quokka")
    route(live, "telegram:42", "/new")
    live.memory.sweep()

    assert {owner for owner, _ in _rows_with(live, "telegram:42")} == {"live"}
    (new,) = (row for _, row in _rows_with(live, "telegram:42"))
    assert live.session("telegram:42").session_uid == f"live:{new}"
    assert live.list_sessions()[0].message_count == 0


def _rows_with(live: Live, value: str) -> list[tuple[str, str]]:
    """Every row of a store that has a value in one of its columns: its table, and the session it is of."""
    found = []
    for database in live.memory._store.databases:
        for (table,) in database.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            names = [row[1] for row in database.rows(f"PRAGMA table_info({table})")]
            rows = (dict(zip(names, row, strict=True)) for row in database.rows(f"SELECT * FROM {table}"))
            found += [(table, row.get("native_id", "")) for row in rows if value in row.values()]
    return found


def test_a_new_session_without_keeping_the_old_leaves_no_byte_of_it(live: Live, tmp_path: Path) -> None:
    live.append_message("telegram:42", "user", "xylograph quixotry", metadata={"note": "brobdingnag"})
    live.append_message("cli:1", "user", "kept words")
    assert left_in(tmp_path / "store", ["xylograph", "brobdingnag"])

    live.new_session("telegram:42", keep=False)
    live.append_message("telegram:42", "user", "fresh")

    assert left_in(tmp_path / "store", ["xylograph", "quixotry", "brobdingnag"]) == set()
    assert (_contents(live, "telegram:42"), _contents(live, "cli:1")) == (["fresh"], ["kept words"])


def test_a_compacted_history_begins_with_its_summary_and_all_of_it_is_still_found(live: Live) -> None:
    for number in range(30):
        live.append_message("cli:1", "user", f"word{number}x")

    live.compact("cli:1", "They said thirty words", keep_last=2)
    live.append_message("cli:1", "user", "after")

    assert _contents(live, "cli:1") == ["They said thirty words", "word28x", "word29x", "after"]
    assert _found(live, "word3x")


def test_attached_files_are_references_and_moved_ones_are_found_by_hash(memory: Memory, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    picture, lost = files / "cat.png", files / "lost.png"
    picture.write_bytes(b"\x89PNG rarebytesofthecat" * 50)
    lost.write_bytes(b"gone")
    live = Live(memory, media_roots=[files])
    live.attach_media("telegram:42", "photo", picture)
    live.attach_media("telegram:42", "photo", lost, "image/png")
    assert [media.state for media in live.media("telegram:42")] == ["present", "present"]

    (files / "sub").mkdir()
    picture.rename(files / "sub" / "renamed.png")
    lost.unlink()
    moved, missing = live.media("telegram:42")

    assert (moved.state, moved.found_path, moved.mime) == ("moved", str(files / "sub" / "renamed.png"), "image/png")
    assert (missing.state, missing.found_path) == ("missing", None)
    assert left_in(tmp_path / "store", ["rarebytesofthecat"]) == set()
    assert _found(live, "cat.png")
    with pytest.raises(NotFound):
        live.attach_media("telegram:42", "photo", lost)


def test_bytes_inside_a_message_are_never_stored(live: Live, tmp_path: Path) -> None:
    data = "cmFyZWJ5dGVzb2Z0aGVjYXQ" * 40
    live.append_message("cli:1", "user", [{"type": "image", "source": {"media_type": "image/png", "data": data}}])

    assert left_in(tmp_path / "store", ["cmFyZWJ5dGVzb2Z0aGVjYXQ"]) == set()
    (message,) = live.get_history("cli:1")
    assert message.content[0]["source"]["data"]["media"]["mime"] == "image/png"


def test_no_secret_reaches_the_disk(live: Live, tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    live.session("cli:1", title=f"use {secret}", metadata={"header": f"token {secret}"})
    live.append_message("cli:1", "user", f"my key is {secret}", metadata={"again": secret})
    live.record_tool_call("cli:1", "http", {"auth": secret}, f"sent {secret}")

    assert secret not in str(live.get_history("cli:1"))
    assert left_in(tmp_path / "store", [secret]) == set()


def test_live_sessions_are_ordinary_sessions(live: Live, tmp_path: Path) -> None:
    appended = live.append_message("telegram:42", "user", "please fix the parser")
    live.append_message("telegram:42", "assistant", "done: the parser works", model="m-1", tokens={"output": 5})
    live.memory.sweep()

    session = live.memory.session(appended.session_uid)
    assert (session.key, session.channel, session.message_count, session.event_count) == (
        "telegram:42",
        "telegram",
        2,
        2,
    )
    assert live.memory.digest(session).requests[0].text == "please fix the parser"
    assert live.memory.search("parser channel:telegram")
    (held,) = live.memory._store.sizes.held(live.memory.settings.host, now_ms())
    assert held.is_last_copy  # so that neither its age nor the soft cap evicts it
    live.memory.export(tmp_path / "export", [appended.session_uid])
    with open_memory(tmp_path / "other") as other:
        other.import_sessions(tmp_path / "export")
        assert _contents(Live(other), "telegram:42") == ["please fix the parser", "done: the parser works"]
        assert other.session(appended.session_uid).content_hash == session.content_hash


def test_a_lost_cache_is_made_again_with_the_keys(live: Live, tmp_path: Path) -> None:
    live.append_message("telegram:42", "user", "old")
    live.new_session("telegram:42")
    live.append_message("telegram:42", "user", "first")
    live.append_message("telegram:42", "assistant", "second")
    before = [(session.key, session.message_count) for session in live.list_sessions(with_archived=True)]
    live.memory.sweep()
    live.memory.close()
    for path in (tmp_path / "store").glob("cache.db*"):
        path.unlink()

    with open_memory(tmp_path / "store") as memory:
        again = Live(memory)
        assert _contents(again, "telegram:42") == ["first", "second"]
        assert [(session.key, session.message_count) for session in again.list_sessions(with_archived=True)] == before
        again.append_message("telegram:42", "user", "third")
        assert _contents(again, "telegram:42") == ["first", "second", "third"]


def test_forgetting_a_live_session_frees_its_key(live: Live, tmp_path: Path) -> None:
    appended = live.append_message("telegram:42", "user", "xylograph")
    live.memory.forget(live.memory.plan_forgetting(appended.session_uid))

    assert left_in(tmp_path / "store", ["xylograph"]) == set()
    assert live.append_message("telegram:42", "user", "anew").session_uid != appended.session_uid
    assert live.delete("telegram:42") and not live.delete("telegram:42")


def test_asyncio_hosts_have_the_same_methods(live: Live) -> None:
    async def talk() -> list[object]:
        await asyncio.gather(*(live.aio.append_message("cli:1", "user", str(number)) for number in range(20)))
        return [message.content for message in await live.aio.get_history("cli:1")]

    assert asyncio.run(talk()) == [str(number) for number in range(20)]
    live.aio.close()


def test_wrong_arguments_are_named(live: Live) -> None:
    with pytest.raises(UsageError, match="Unknown token type: prompt"):
        live.append_message("cli:1", "user", "x", tokens={"prompt": 1})
    with pytest.raises(UsageError, match="key of a session is empty"):
        live.append_message(" ", "user", "x")
    with pytest.raises(NotFound, match="No session with this key"):
        live.compact("cli:9")


def test_opening_a_store_again_changes_nothing(live: Live, tmp_path: Path) -> None:
    live.append_message("cli:1", "user", "x")
    commits = live.memory._store.commits()

    with open_memory(tmp_path / "store") as memory:
        assert _contents(Live(memory), "cli:1") == ["x"]

    assert live.memory._store.commits() == commits


def test_a_sweep_while_a_host_appends_stores_the_same_as_any_other(live: Live, tmp_path: Path) -> None:
    for number in range(1, 7):
        log, session = AGENT_LOGS[number % len(AGENT_LOGS)], session_id(number)
        log.write(tmp_path / log.agent, log.content(30, session), session)
    roots = [log.root_flag(tmp_path / log.agent) for log in AGENT_LOGS]
    live.append_message("cli:1", "user", "the host is at work")

    with open_memory(tmp_path / "store", roots) as memory, open_memory(tmp_path / "clean", roots) as clean:
        memory.sweep()
        clean.sweep()
        held = {session.session_uid: session.content_hash for session in memory.sessions() if session.agent != "live"}

        assert held == {session.session_uid: session.content_hash for session in clean.sessions()}
        assert len(held) == 6
    live.append_message("cli:1", "user", "and goes on")
    assert _contents(live, "cli:1") == ["the host is at work", "and goes on"]
    assert [finding for finding in doctor(tmp_path / "store", roots) if finding.level == "problem"] == []


def test_a_hosts_sessions_belong_to_the_group_it_names(memory: Memory) -> None:
    appended = Live(memory, group="team").append_message("cli:1", "user", "hello")
    memory.sweep()

    assert memory.session(appended.session_uid).group == "team"


def test_an_append_costs_the_same_whatever_the_store_holds(live: Live) -> None:
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    def cost() -> float:
        """What the database does for one more message, in the middle of several: now and then it tidies its index."""
        nonlocal steps
        costs = []
        for _ in range(9):
            steps = 0
            live.append_message("cli:1", "user", "one more message")
            costs.append(steps)
        return median(costs)

    live.append_message("cli:1", "user", "first")
    live.memory._store.databases[0].connection.set_progress_handler(count, 10)
    small = cost()
    for number in range(60):
        lines = [Line(f"{number}-{line}", "user", f"words of line {line} {number}") for line in range(50)]
        live.append_lines("cli:1" if number % 2 else f"cli:{number}", lines, {})

    assert cost() <= small * 1.2


def test_the_last_messages_cost_the_same_however_long_the_session_is(live: Live) -> None:
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    def cost() -> int:
        nonlocal steps
        steps = 0
        live.get_history("cli:1", 5)
        return steps

    for number in range(10):
        live.append_message("cli:1", "user", f"message {number}")
    live.memory._store.databases[0].connection.set_progress_handler(count, 1)
    short = cost()
    for number in range(100):
        live.append_message("cli:1", "user", f"message {number}")

    assert cost() <= short * 1.2
