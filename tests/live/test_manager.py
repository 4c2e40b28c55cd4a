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
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


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
    assert path.read_text().splitlines()[2] == "not json"
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


CALL = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": '{"command": "npm run build"}'}}
CHAT = [
    {"_type": "metadata", "created_at": "2026-05-01T10:00:00.1", "last_consolidated": 4, "metadata": {"lang": "id"}},
    {"role": "user", "content": "Build the site", "timestamp": "2026-05-01T10:00:00.1"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "timestamp": "2026-05-01T10:00:01.1"},
    {"role": "tool", "tool_call_id": "c1", "name": "exec", "content": "built in 3 s", "ts": "2026-05-01T10:00:02.1"},
    {"_type": "note", "text": "of another program"},
    {"role": "assistant", "content": "Built.", "timestamp": "2026-05-01T10:00:05.1", "reasoning": "it ran"},
]  # fmt: skip


def _write_chat(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(map(json.dumps, CHAT)) + "\nnot json\n")


@pytest.mark.parametrize("name", ["telegram%3A42.jsonl", "telegram_42.jsonl"])
def test_calls_of_tools_in_a_file_come_back_from_the_store_and_in_the_next_file(
    manager: SessionManager, tmp_path: Path, name: str
) -> None:
    _write_chat(tmp_path / "files" / name)

    session = manager.get_or_create("telegram:42")
    session.add_message("assistant", None, tool_calls=[CALL, CALL | {"id": "c2"}])
    session.add_message("tool", "built in 2 s", tool_call_id="c2", name="exec")
    manager.save(session)

    path = tmp_path / "files" / "telegram%3A42.jsonl"
    said = [{key: value for key, value in line.items() if key in ("role", "content", "tool_calls")} for line in CHAT]
    expected = [line for line in said if line] + [
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "c2"}]},
        {"role": "tool", "content": "built in 2 s"},
    ]
    shown = [line for line in _lines(path) if "role" in line]
    assert [{key: line[key] for key in ("role", "content", "tool_calls") if key in line} for line in shown] == expected
    assert manager.get_or_create("telegram:42").get_history(200) == manager.get_history("telegram:42", 200)
    assert manager.get_history("telegram:42")[2] == {key: CHAT[3][key] for key in CHAT[3] if key != "ts"}
    listed = manager.list()[0]
    assert (listed.key, listed.channel, listed.tool_calls) == ("telegram:42", "telegram", 3)
    (hit, *_) = manager.live.search("npm run build").hits
    assert "tool_call" in {match.kind for match in hit.matches}
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{name}.old"]


def test_a_key_with_an_underscore_is_not_taken_for_a_channel(manager: SessionManager, tmp_path: Path) -> None:
    _write_chat(tmp_path / "files" / "my_notes.jsonl")

    session = manager.get_or_create("my_notes")

    assert len(session.messages) == 4
    assert [row.key for row in manager.list()] == ["my_notes"]
    assert manager.get_or_create("my:notes").messages == []
    assert manager.delete("my_notes")
    assert list((tmp_path / "files").iterdir()) == []


def test_what_a_save_does_not_know_stays_in_the_file(manager: SessionManager, tmp_path: Path) -> None:
    path = tmp_path / "files" / "telegram%3A42.jsonl"
    _write_chat(path)

    manager.add_message(manager.get_or_create("telegram:42"), "user", "more")

    first, *rest = path.read_text().splitlines()
    assert json.loads(first)["last_consolidated"] == 4
    assert rest[3] == json.dumps(CHAT[4])
    assert json.loads(rest[4])["reasoning"] == "it ran"
    assert rest[5] == "not json"
    assert json.loads(rest[6])["content"] == "more"
    manager.derive("telegram:42")
    assert path.read_text().splitlines()[6] == "not json"


def test_an_import_names_each_line_that_it_skips(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "old" / "telegram_42.jsonl"
    _write_chat(path)

    report = Backfill(Live(memory)).run(tmp_path / "old")

    assert report.skipped == [(str(path), 5, "no message"), (str(path), 7, "not JSON")]
    assert (report.messages_new, report.bad_lines) == (4, 2)
    assert [session.key for session in Live(memory).list_sessions()] == ["telegram:42"]


def test_a_name_that_is_too_long_for_a_file_is_cut(manager: SessionManager) -> None:
    for key in ("x" * 300, "é" * 100, "x" * 299 + "y"):
        manager.add_message(manager.get_or_create(key), "user", f"I am {key[-1]}")
        manager.archive(key)
        manager.add_message(manager.get_or_create(key), "user", "again")

    assert {status.state for status in manager.status()} == {"in step"}
    assert len(manager.status()) == 6
    assert manager.get_history("x" * 300) == [{"role": "user", "content": "again"}]


def test_a_history_is_as_long_as_it_was_asked_for(manager: SessionManager) -> None:
    for number in range(102):
        manager.live.append_message("telegram:1", "user", f"message {number}")

    session = manager.get_or_create("telegram:1")

    assert len(session.get_history(200)) == len(manager.get_history("telegram:1", 200)) == 102
    assert len(session.get_history()) == len(manager.get_history("telegram:1")) == 50


def test_a_deleted_session_leaves_no_file_and_no_message(manager: SessionManager, tmp_path: Path) -> None:
    _write_chat(tmp_path / "files" / "telegram_42.jsonl")
    manager.add_message(manager.get_or_create("telegram:42"), "user", "more")

    assert manager.delete("telegram:42")

    assert list((tmp_path / "files").iterdir()) == []
    assert manager.list() == []
    assert not manager.delete("telegram:42")
    assert manager.get_or_create("telegram:42").messages == []


def test_a_tilde_is_the_home_for_files_and_media(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "photo.png").write_bytes(b"x")

    manager = SessionManager(Live(memory, media_roots=["~"]), "~/files")
    manager.add_message(manager.get_or_create("cli:1"), "user", "hello")
    manager.live.attach_media("cli:1", "photo", "~/photo.png")

    assert (tmp_path / "files" / "cli%3A1.jsonl").exists()
    assert manager.live.media("cli:1")[0].path == str(tmp_path / "photo.png")


def test_the_status_of_a_store_counts_what_a_host_has_just_appended(manager: SessionManager) -> None:
    for number in range(3):
        manager.live.append_message("cli:1", "user", f"message {number}")
    manager.live.record_tool_call("cli:1", "exec", {"command": "ls"}, "x")

    memory = manager.live.memory
    counted = memory.status().events, memory.overview().events
    memory.sweep()

    assert counted == (5, 5) == (memory.status().events, memory.overview().events)
    assert memory.status().sources.sources_gone == 0  # a host is no file that could be gone
