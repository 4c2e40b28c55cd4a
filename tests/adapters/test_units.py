"""A database of many sessions: each is a source of its own, and the database stays as its program left it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import orjson
import pytest

import recollect
from recollect import Memory, open_memory
from recollect.agentkit.files import read_database
from recollect.model.errors import SourceUnreadable

SAMPLES = Path(recollect.__file__).parent / "samples"
CRASH, COUNT = "ses_e0e08d28fffek6schwDDyh8SRM", "ses_e0e08dbd7ffeumtDH1yOQhfB6V"
CHILD = f"{COUNT}/ses_e0e08d7beffeR80Ak0qTmKrLad"
COLUMNS = {"session": {"id"}, "account": set[str]()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return shutil.copytree(SAMPLES / "opencode", tmp_path / "opencode")


@pytest.fixture
def database(home: Path) -> Iterator[apsw.Connection]:
    """The program's own connection, which keeps a write-ahead log."""
    connection = apsw.Connection(str(home / "opencode.db"))
    connection.pragma("journal_mode", "wal")
    yield connection
    connection.close()


@pytest.fixture
def sweep(tmp_path: Path, home: Path) -> Iterator[Callable[[], Memory]]:
    with open_memory(tmp_path / "store", [f"opencode={home}"]) as memory:

        def run() -> Memory:
            memory.sweep()
            return memory

        yield run


def add_message(database: apsw.Connection, session: str, number: int, text: str) -> None:
    """Add a request as the program does: a message, its part, and the next number of the session's changes."""
    at_ms = 1_800_000_000_000 + number
    message, part = f"msg_f{number:04}", f"prt_f{number:04}"
    told = {"role": "user", "time": {"created": at_ms}}
    database.execute(
        "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message, session, at_ms, at_ms, orjson.dumps(told).decode())
    )
    said = orjson.dumps({"type": "text", "text": text}).decode()
    database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", (part, message, session, at_ms, at_ms, said))
    database.execute("UPDATE event_sequence SET seq = seq + 1 WHERE aggregate_id = ?", (session,))


def texts(memory: Memory, session: str) -> list[str]:
    return [event.summary for event in memory.events(memory.session(session), "user_msg")]


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}


def test_each_session_of_a_database_is_a_session_with_its_own_source(sweep: Callable[[], Memory]) -> None:
    memory = sweep()

    sessions = {session.native_session_id: session for session in memory.sessions()}
    assert set(sessions) == {CRASH, COUNT, CHILD}
    assert sessions[CHILD].parent_session_uid == f"opencode:{COUNT}"
    assert sessions[CHILD].spawn_call_id
    assert [source.path.rpartition("#")[2] for source in sessions[CRASH].sources] == [CRASH]
    assert "exit 1: KeyError: 'missing-key'" in [e.summary for e in memory.events(sessions[CRASH], "error")]


def test_only_a_session_that_changed_is_read_again(
    sweep: Callable[[], Memory], tmp_path: Path, database: apsw.Connection
) -> None:
    sweep()
    add_message(database, CRASH, 1, "and the quokka?")

    memory = sweep()

    assert texts(memory, CRASH)[-1] == "and the quokka?"
    assert memory.sweep().lines_read == 0


def test_a_change_that_is_only_in_the_write_ahead_log_is_read(
    sweep: Callable[[], Memory], home: Path, database: apsw.Connection
) -> None:
    sweep()
    before = (home / "opencode.db").stat().st_mtime_ns
    add_message(database, COUNT, 1, "a wombat in the log")

    memory = sweep()

    assert (home / "opencode.db").stat().st_mtime_ns == before
    assert texts(memory, COUNT)[-1] == "a wombat in the log"


def test_reading_leaves_every_file_of_the_program_as_it_was(
    sweep: Callable[[], Memory], home: Path, database: apsw.Connection
) -> None:
    add_message(database, COUNT, 1, "a wombat in the log")
    before = files_below(home)

    sweep()

    assert {"opencode.db", "opencode.db-wal"} <= before.keys()
    assert files_below(home) == before


def test_a_log_that_its_program_left_behind_is_read_and_stays(
    sweep: Callable[[], Memory], home: Path, tmp_path: Path, database: apsw.Connection
) -> None:
    add_message(database, COUNT, 1, "a wombat in the log")
    for name in ("opencode.db", "opencode.db-wal"):
        (tmp_path / name).write_bytes((home / name).read_bytes())
    database.close()
    for name in ("opencode.db", "opencode.db-wal"):
        shutil.copy(tmp_path / name, home / name)
    before = files_below(home)

    memory = sweep()

    assert texts(memory, COUNT)[-1] == "a wombat in the log"
    assert files_below(home) == before


def test_a_session_that_was_deleted_in_the_database_is_gone_but_kept(
    sweep: Callable[[], Memory], database: apsw.Connection
) -> None:
    sweep()
    for table, column in (("part", "session_id"), ("message", "session_id"), ("session", "id")):
        database.execute(f"DELETE FROM {table} WHERE {column} = ?", (CRASH,))

    memory = sweep()

    gone = {session.native_session_id: session.sources[0].source_gone_at for session in memory.sessions()}
    assert gone[CRASH] is not None
    assert gone[COUNT] is None
    assert len(texts(memory, CRASH)) == 2


def test_a_database_that_vanished_takes_none_of_its_sessions_along(
    sweep: Callable[[], Memory], home: Path, tmp_path: Path
) -> None:
    shutil.copy(home / "opencode.db", home / "opencode-beta.db")
    sweep()
    (home / "opencode-beta.db").unlink()

    memory = sweep()

    sources = memory.session(CRASH).sources
    assert sorted(bool(source.source_gone_at) for source in sources) == [False, True]


def test_a_sweep_that_was_killed_leaves_unread_sessions_to_the_next(
    sweep: Callable[[], Memory], home: Path, tmp_path: Path
) -> None:
    code = "from recollect.__main__ import run; run()"
    command = [sys.executable, "-c", code, "sweep", "--root", f"opencode={home}"]
    environment = {
        **os.environ,
        "RECOLLECT_HOME": str(tmp_path / "store"),
        "RECOLLECT_FAILPOINT": "before-packs-durable:kill",
    }
    subprocess.run(command, env=environment, capture_output=True, check=False)

    memory = sweep()

    assert {session.native_session_id for session in memory.sessions()} == {CRASH, COUNT, CHILD}


def test_an_excluded_session_does_not_have_the_others_read_again(
    tmp_path: Path, home: Path, database: apsw.Connection
) -> None:
    database.execute("UPDATE session SET directory = '/x/secret' WHERE id = ?", (CRASH,))
    with open_memory(tmp_path / "store", [f"opencode={home}"]) as memory:
        memory.projects.deny("/x/secret")
    with open_memory(tmp_path / "store", [f"opencode={home}"]) as memory:
        memory.sweep()
        add_message(database, COUNT, 1, "a wombat")

        report = memory.sweep()

        assert {session.native_session_id for session in memory.sessions()} == {COUNT, CHILD}
        assert report.sources_changed == 1


def test_a_forgotten_session_stays_forgotten_when_it_grows(
    sweep: Callable[[], Memory], database: apsw.Connection
) -> None:
    memory = sweep()
    memory.forget(memory.plan_forgetting(CRASH))
    add_message(database, CRASH, 1, "and the quokka?")
    add_message(database, COUNT, 2, "a wombat")

    memory = sweep()

    assert texts(memory, COUNT)[-1] == "a wombat"
    assert CRASH not in {session.native_session_id for session in memory.sessions()}


def test_a_damaged_database_is_reported_and_read_once_it_is_whole(
    sweep: Callable[[], Memory], home: Path, tmp_path: Path
) -> None:
    whole = (home / "opencode.db").read_bytes()
    (home / "opencode.db").write_bytes(b"no database" * 1000)
    memory = sweep()

    assert [problem.path for problem in memory.problems()] == [str(home / "opencode.db")]

    (home / "opencode.db").write_bytes(whole)
    memory.sweep()

    assert len(memory.sessions()) == 3
    assert memory.problems() == []


def test_what_is_not_listed_cannot_be_read(home: Path) -> None:
    for statement in ("SELECT title FROM session", "SELECT * FROM credential", "DELETE FROM session"):
        with pytest.raises(SourceUnreadable, match="database"):
            read_database(home, home / "opencode.db", COLUMNS, lambda db, sql=statement: list(db.execute(sql)))


def test_a_link_to_a_database_is_not_followed(home: Path, tmp_path: Path) -> None:
    (home / "opencode.db").rename(tmp_path / "elsewhere.db")
    (home / "opencode.db").symlink_to(tmp_path / "elsewhere.db")

    with pytest.raises(SourceUnreadable):
        read_database(home, home / "opencode.db", COLUMNS, lambda db: list(db.execute("SELECT id FROM session")))


def test_a_database_that_is_written_to_all_the_time_is_left_to_the_next_sweep(
    home: Path, database: apsw.Connection
) -> None:
    def read(connection: apsw.Connection) -> int:
        database.execute("UPDATE session SET title = title || '.'")
        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return int(connection.execute("SELECT count(id) FROM session").get)

    with pytest.raises(SourceUnreadable, match="being written"):
        read_database(home, home / "opencode.db", COLUMNS, read)
