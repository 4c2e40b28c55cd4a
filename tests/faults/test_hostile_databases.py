"""Databases of sessions that are not what they seem: what is damaged costs itself only, and nothing is made there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import orjson
import pytest

import recollect
from tests.faults.rig import NOBODY, command, error_lines, needs_root, run, sweep

SAMPLE = Path(recollect.__file__).parent / "samples" / "opencode"
CRASH, COUNT = "ses_e0e08d28fffek6schwDDyh8SRM", "ses_e0e08dbd7ffeumtDH1yOQhfB6V"
CHILD = f"{COUNT}/ses_e0e08d7beffeR80Ak0qTmKrLad"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = shutil.copytree(SAMPLE, tmp_path / "home")
    yield home
    assert not {path.name for path in home.iterdir()} & {"opencode.db-shm", "opencode.db-journal"}


def change(home: Path, *statements: str) -> None:
    with closing(apsw.Connection(str(home / "opencode.db"))) as database:
        for statement in statements:
            database.execute(statement)


def sessions(tmp_path: Path, home: Path) -> set[str]:
    held = sweep(tmp_path / "store", f"opencode={home}")
    assert held.report.failures == []
    return {session.native_session_id for session in held.sessions}


def reason(tmp_path: Path, home: Path) -> str:
    """Why the database is not read, as a command of its own says that must not hang."""
    done = run(command("sweep", "--root", f"opencode={home}"), tmp_path / "store", timeout=20)
    assert done.returncode == 3
    [told] = error_lines(done)
    return told.removeprefix(f"Skipped {home / 'opencode.db'}: ")


def test_a_fifo_in_the_place_of_a_database_is_reported_and_never_waited_for(tmp_path: Path, home: Path) -> None:
    (home / "opencode.db").unlink()
    os.mkfifo(home / "opencode.db")

    assert reason(tmp_path, home) == "is not a regular file"


def test_a_log_of_changes_that_is_a_fifo_or_a_link_is_not_opened(tmp_path: Path, home: Path) -> None:
    os.mkfifo(home / "opencode.db-wal")

    assert reason(tmp_path, home) == "is not a regular file"

    (home / "opencode.db-wal").unlink()
    (tmp_path / "private").write_bytes(b"PRIVATE KEY")
    (home / "opencode.db-wal").symlink_to(tmp_path / "private")

    assert "link" in reason(tmp_path, home)


def test_a_link_to_a_database_is_not_followed(tmp_path: Path, home: Path) -> None:
    (home / "opencode.db").rename(tmp_path / "elsewhere.db")
    (home / "opencode.db").symlink_to(tmp_path / "elsewhere.db")

    assert sessions(tmp_path, home) == set()


@needs_root
def test_a_database_of_another_user_is_reported_and_not_read(tmp_path: Path, home: Path) -> None:
    os.chown(home / "opencode.db", NOBODY, NOBODY)

    assert reason(tmp_path, home) == "belongs to another user"


@pytest.mark.parametrize("page", [0, 1, 5, 20])
def test_garbage_in_a_page_hangs_nothing_and_is_reported_or_harmless(tmp_path: Path, home: Path, page: int) -> None:
    content = bytearray((home / "opencode.db").read_bytes())
    size = int.from_bytes(content[16:18], "big")
    content[page * size : page * size + size] = os.urandom(size)[: max(0, len(content) - page * size)]
    (home / "opencode.db").write_bytes(content)

    done = run(command("sweep", "--root", f"opencode={home}"), tmp_path / "store", timeout=20)

    assert done.returncode in (0, 3)
    assert b"Traceback" not in done.stderr.encode()


def test_a_database_that_is_cut_off_is_reported(tmp_path: Path, home: Path) -> None:
    os.truncate(home / "opencode.db", 5000)

    assert "cannot be read as a database" in reason(tmp_path, home)


@pytest.mark.parametrize("table", ["session", "message", "part", "project"])
def test_a_missing_table_is_reported(tmp_path: Path, home: Path, table: str) -> None:
    change(home, "PRAGMA foreign_keys = off", f"DROP TABLE {table}")

    failures = sweep(tmp_path / "store", f"opencode={home}").report.failures

    assert failures
    assert all(f"no such table: {table}" in why for _, why in failures)


def test_without_the_numbers_of_changes_sessions_are_read_all_the_same(tmp_path: Path, home: Path) -> None:
    change(home, "DROP TABLE event_sequence")

    assert sessions(tmp_path, home) == {CRASH, COUNT, CHILD}


@pytest.mark.parametrize(
    "data",
    [
        "'{'",
        "'[1]'",
        "''",
        "7",
        "x'ff00fe'",
        "CAST(x'7b22ff' AS TEXT)",
        '\'{"type":"text"}\' || char(0)',
        "printf('%1048576s', 'x')",
        "replace(printf('%100000s', ''), ' ', '[')",
    ],
)
@pytest.mark.parametrize("table", ["part", "message"])
def test_a_row_that_is_no_json_object_costs_that_row_only(tmp_path: Path, home: Path, table: str, data: str) -> None:
    whole = sweep(tmp_path / "whole", f"opencode={home}")
    change(home, f"UPDATE {table} SET data = {data} WHERE id = (SELECT min(id) FROM {table})")

    held = sweep(tmp_path / "store", f"opencode={home}")

    assert held.report.failures == []
    assert [problem.reason for problem in held.problems] == ["not a JSON object"]
    assert len(held.sessions) == 3
    assert len(held.events) >= len(whole.events) - 2


def test_a_text_of_a_megabyte_and_a_nul_in_it_are_held(tmp_path: Path, home: Path) -> None:
    text = orjson.dumps({"type": "text", "text": "nul \0 and " + "long " * 200_000}).decode()
    change(home, f"UPDATE part SET data = '{text}' WHERE id = (SELECT min(id) FROM part)")

    held = sweep(tmp_path / "store", f"opencode={home}")

    assert held.problems == []
    assert any(len(text) > 900_000 for text in held.texts)


@pytest.mark.parametrize(
    "values",
    [
        "title = x'ff'",
        "title = 7, directory = 8, version = 9.5",
        "time_created = 'never', time_updated = x'00ff'",
        "directory = CAST(x'ff' AS TEXT)",
        "parent_id = id",
        "parent_id = CAST(x'ff' AS TEXT)",
        "parent_id = 'gone'",
        "title = printf('%1048576s', 'x')",
        "title = char(0) || 'x' || char(27) || '[2J'",
    ],
)
def test_a_damaged_session_costs_at_most_itself(tmp_path: Path, home: Path, values: str) -> None:
    change(home, f"UPDATE session SET {values} WHERE id = '{CRASH}'")

    held = sweep(tmp_path / "store", f"opencode={home}")

    assert {session.native_session_id for session in held.sessions} | {CRASH} == {CRASH, COUNT, CHILD}
    assert {path.rpartition("#")[2] for path, _ in held.report.failures} <= {CRASH}


@pytest.mark.parametrize("name", ["x'ff'", "CAST(x'ff' AS TEXT)", "'../../etc'", "'a#b'", "''", "char(0)"])
def test_a_session_with_an_impossible_name_hides_no_other(tmp_path: Path, home: Path, name: str) -> None:
    change(home, "PRAGMA foreign_keys = off", f"UPDATE session SET id = {name} WHERE id = '{CRASH}'")

    assert {COUNT, CHILD} <= sessions(tmp_path, home)


def test_a_circle_of_parents_ends(tmp_path: Path, home: Path) -> None:
    change(home, f"UPDATE session SET parent_id = '{CRASH}' WHERE id = '{COUNT}'")
    change(home, f"UPDATE session SET parent_id = '{COUNT}' WHERE id = '{CRASH}'")

    assert len(sessions(tmp_path, home)) == 3


@pytest.mark.parametrize("has_sequence", [True, False])
def test_ten_thousand_sessions_are_listed_in_seconds(tmp_path: Path, home: Path, *, has_sequence: bool) -> None:
    """Each is empty: reading is not what is looked at here."""
    adapter = recollect.agents.adapters()["opencode"]
    columns = "project_id, slug, directory, title, version, time_created, time_updated"
    change(
        home,
        f"INSERT INTO session (id, parent_id, {columns}) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
        f" FROM n WHERE i < 10000) SELECT 'ses_' || i, iif(i > 1, 'ses_' || (i - 1), NULL), {columns}"
        f" FROM session, n WHERE id = '{CRASH}'",
        *(() if has_sequence else ("DROP TABLE event_sequence",)),
    )
    [container] = adapter.discover(home)

    units = adapter.units(container)

    assert len(units) == 10_003
