"""One truth, the store, and JSONL files that follow from it, whatever stops a save."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.api import Memory, open_memory
from recollect.live import Backfill, Live, SessionManager
from tests.conftest import REPOSITORY
from tests.faults.rig import IS_SOAK
from tests.test_api import SCHEMAS, breaches

SESSIONS = 10_000 if IS_SOAK else 60

# A host that is killed between the two writes of a save; in one order by the manager, in the other by an older host.
_KILLED = """
import os, signal, sys
from recollect.api import open_memory
from recollect.live import Live, SessionManager

memory = open_memory(sys.argv[1])
manager = SessionManager(Live(memory), sys.argv[2])
session = manager.get_or_create("cli:1")
session.add_message("user", sys.argv[4])
if sys.argv[3] == "store-first":
    manager._write = lambda key, added: os.kill(os.getpid(), signal.SIGKILL)
    manager.save(session)
with open(os.path.join(sys.argv[2], "cli%3A1.jsonl"), "ab") as file:
    file.write(b'{"type":"message","id":"own-1","role":"user","content":"' + sys.argv[4].encode() + b'"}\\n')
    if sys.argv[3] == "torn":
        file.write(b'{"type":"message","id":"own-2","ro')
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def manager(memory: Memory, tmp_path: Path) -> Iterator[SessionManager]:
    yield SessionManager(Live(memory), tmp_path / "files")


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _said(path: Path) -> list[object]:
    return [line["content"] for line in _lines(path) if "role" in line]


def test_a_save_is_in_the_store_and_in_a_file_that_can_be_read_by_itself(
    manager: SessionManager, tmp_path: Path
) -> None:
    session = manager.get_or_create("telegram:42")
    session.add_message("user", "hello")
    session.add_message("assistant", "hi", model="m-1", tokens={"output": 2})
    manager.save(session)
    manager.add_message(session, "user", "more")

    path = tmp_path / "files" / "telegram%3A42.jsonl"
    first, *_ = lines = _lines(path)
    assert (first["type"], first["key"], first["channel"]) == ("session", "telegram:42", "telegram")
    assert _said(path) == ["hello", "hi", "more"]
    assert lines[2]["model"] == "m-1" and lines[2]["tokens"] == {"output": 2}
    assert manager.get_history("telegram:42") == session.get_history()
    assert manager.get_or_create("telegram:42").get_history(1) == [{"role": "user", "content": "more"}]
    assert [row.key for row in manager.list()] == ["telegram:42"]


def test_a_file_is_made_again_from_the_store(manager: SessionManager, tmp_path: Path) -> None:
    session = manager.get_or_create("cli:1")
    manager.add_message(session, "user", "one")
    manager.add_message(session, "assistant", [{"type": "text", "text": "two"}])
    path = tmp_path / "files" / "cli%3A1.jsonl"
    before = path.read_bytes()
    path.unlink()

    manager.get_or_create("cli:1")

    assert path.read_bytes() == before


@pytest.mark.parametrize("order", ["store-first", "file-first", "torn"])
def test_after_a_kill_between_the_two_writes_both_agree_again(memory: Memory, tmp_path: Path, order: str) -> None:
    files = tmp_path / "files"
    manager = SessionManager(Live(memory), files)
    manager.add_message(manager.get_or_create("cli:1"), "user", "before")
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "store"), str(files), order, "the last words"]
    assert subprocess.run(command, cwd=REPOSITORY).returncode == -signal.SIGKILL

    session = manager.get_or_create("cli:1")
    manager.add_message(session, "user", "after")

    words = ["before", "the last words", "after"]
    assert [message["content"] for message in session.messages] == words
    assert _said(files / "cli%3A1.jsonl") == words
    assert [message.content for message in manager.live.get_history("cli:1")] == words
    assert [status.state for status in manager.status()] == ["in step"]


def test_an_archived_session_has_a_file_of_its_own(manager: SessionManager, tmp_path: Path) -> None:
    session = manager.get_or_create("cli:1")
    manager.add_message(session, "user", "old")

    manager.archive("cli:1")
    manager.add_message(manager.get_or_create("cli:1"), "user", "new")

    archived, current = sorted((tmp_path / "files").glob("*.jsonl"), key=lambda path: len(path.name), reverse=True)
    assert (_said(archived), _said(current)) == (["old"], ["new"])
    assert {status.state for status in manager.status()} == {"in step"}


def test_an_older_hosts_file_is_read_and_kept(manager: SessionManager, tmp_path: Path) -> None:
    path = tmp_path / "files" / "cli%3A1.jsonl"
    path.write_text(
        '{"_type": "metadata", "created_at": "2026-01-01T10:00:00", "metadata": {"lang": "id"}}\n'
        '{"role": "user", "content": "halo", "timestamp": "2026-01-01T10:00:00"}\n'
        "not json\n"
        '{"role": "assistant", "content": "apa kabar", "timestamp": "2026-01-01T10:00:01"}'
    )
    assert [(status.state, status.only_in_file, status.bad_lines) for status in manager.status()] == [
        ("not imported", 2, 1)
    ]

    session = manager.get_or_create("cli:1")

    assert [message["content"] for message in session.messages] == ["halo", "apa kabar"]
    assert session.metadata == {"lang": "id"}
    assert _said(path) == ["halo", "apa kabar"]
    assert "not json" in path.with_name("cli%3A1.jsonl.old").read_text()
    assert [status.state for status in manager.status()] == ["in step"]


def _old_files(folder: Path) -> None:
    folder.mkdir()
    for number in range(SESSIONS):
        lines = [
            {"role": "user", "content": f"question {number}", "timestamp": f"2026-01-01T10:{number % 60:02d}:00Z"},
            {"role": "assistant", "content": f"answer {number}", "timestamp": f"2026-01-01T10:{number % 60:02d}:01Z"},
        ]
        content = "\n".join(json.dumps(line) for line in lines)
        (folder / f"telegram%3A{number}.jsonl").write_text(content)


def test_a_second_import_writes_nothing(memory: Memory, tmp_path: Path) -> None:
    _old_files(tmp_path / "old")
    live = Live(memory)

    planned = Backfill(live).run(tmp_path / "old", dry_run=True)
    assert live.list_sessions() == []
    first = Backfill(live).run(tmp_path / "old")
    commits = memory._store.commits()
    second = Backfill(live).run(tmp_path / "old")

    assert (planned.messages_new, planned.sessions_new) == (first.messages_new, first.sessions_new)
    assert (first.files, first.sessions_new, first.messages_new) == (SESSIONS, SESSIONS, 2 * SESSIONS)
    assert (second.messages_new, second.messages_known) == (0, 2 * SESSIONS)
    assert memory._store.commits() == commits
    (newest, *_), (hit,) = live.list_sessions(), live.search(f"answer {SESSIONS - 1}", limit=1).hits
    assert (newest.created_at or "").startswith("2026-01-01T10:")
    assert hit.title == f"question {SESSIONS - 1}"


def test_import_and_status_on_the_command_line(tmp_path: Path) -> None:
    _old_files(tmp_path / "old")
    environment = {**os.environ, "RECOLLECT_HOME": str(tmp_path / "store")}

    def run(*words: str) -> dict[str, object]:
        command = [sys.executable, "-m", "recollect", *words, "--json"]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    assert run("import", "jsonl", str(tmp_path / "old"), "--dry-run")["messages_new"] == 2 * SESSIONS
    imported = run("import", "jsonl", str(tmp_path / "old"))
    assert imported["messages_new"] == 2 * SESSIONS
    status = run("live", "status", str(tmp_path / "old"))
    assert breaches(SCHEMAS["jsonl-import"], imported) + breaches(SCHEMAS["live-status"], status) == []
    assert status["sessions"] == SESSIONS
    assert {file["state"] for file in status["files"]} == {"in step"}  # type: ignore[attr-defined,index]
    with open_memory(tmp_path / "store") as memory:
        assert memory.search("question")
