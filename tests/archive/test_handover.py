"""Files that an agent deleted, written again from the store; and what is said, asked and refused on the way."""

import shutil
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from recollect.agentkit.optional import actions_of
from recollect.api import Memory, open_memory
from recollect.cli import main
from recollect.model.errors import NotFound
from recollect.model.kinds import HUMAN_INTERVENTION, LIFECYCLE, OTHER, QUEUE_ONLY, THINKING
from recollect.model.schema import Session
from tests.conftest import SHARED, needs_shared, swept
from tests.logs import CLAUDE, CODEX, claude_answer, claude_call, claude_result, claude_user, lines, session_id

SESSION = session_id(1)
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
HOMES = sorted((SHARED / "genuine").glob("claude-*/.claude"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


@pytest.fixture
def log(home: Path) -> Path:
    """A session with a secret, a picture and a call."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
    records = [
        claude_user(SESSION, 1, [{"type": "text", "text": f"Use {SECRET} for it"}, picture]),
        claude_call(SESSION, 2, "make"),
        claude_result(SESSION, 3, "done in 3 s"),
        claude_answer(SESSION, 4, "It is built."),
    ]
    return CLAUDE.write(home, lines(records), SESSION)


def _run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def _words(session: Session, memory: Memory) -> list[object]:
    """What a session says and does, but for what only its program needs: what stands in other files is left out."""
    events = [
        event
        for event in memory.events(session, with_copies=True)
        if event.kind not in (LIFECYCLE, OTHER, THINKING) and event.status != QUEUE_ONLY and len(event.native_id) == 36
    ]
    payloads = memory.payloads(session, events)
    return [
        (event.kind, event.tool, event.call_id, event.is_error, payload.get("text"), payload.get("input"))
        for event, payload in zip(events, payloads, strict=True)
        if event.kind != HUMAN_INTERVENTION  # told by fields of the program's own, which are not written
    ]


@needs_shared
@pytest.mark.parametrize("genuine", HOMES, ids=lambda home: home.parent.name)
def test_what_is_read_from_rebuilt_files_is_what_was_read_from_the_genuine_ones(
    genuine: Path, home: Path, tmp_path: Path
) -> None:
    shutil.copytree(genuine, home)
    with swept(tmp_path / "first", f"claude={home}") as memory:
        sessions = memory.sessions(roots_only=True)
        sessions = [session for session in sessions if session.sources and memory.events(session, with_copies=True)]
        plans = [memory.handover.plan_rebuild(session) for session in sessions]
        expected = {session.session_uid: _words(session, memory) for session in sessions}
        shutil.rmtree(home / "projects")
        for plan in plans:
            memory.handover.write(plan)

    with swept(tmp_path / "second", f"claude={home}") as memory:
        rebuilt = {session.session_uid: _words(session, memory) for session in memory.sessions(roots_only=True)}

    assert len(expected) >= 4
    assert {uid: rebuilt[uid] for uid in expected} == expected


def _conversation(session: Session, memory: Memory) -> list[object]:
    """What was said, and each call with what it answered."""
    events = memory.events(session, with_copies=True)
    steps = actions_of(list(zip(events, memory.payloads(session, events), strict=True)))
    return [
        (step.event.event_uid, step.text, step.event.tool, step.payload.get("input"), step.output) for step in steps
    ]


@needs_shared
def test_a_rebuilt_log_of_grok_tells_the_same_conversation_under_the_same_ids(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(SHARED / "genuine" / "grok-1.0.41" / ".grok", home)
    with swept(tmp_path / "first", f"grok={home}") as memory:
        sessions = [
            session for session in memory.sessions(roots_only=True) if session.sources and memory.events(session)
        ]
        expected = {session.session_uid: _conversation(session, memory) for session in sessions}
        plans = [memory.handover.plan_rebuild(session) for session in sessions]
        shutil.rmtree(home / "sessions")
        for plan in plans:
            memory.handover.write(plan)
        again = memory.sweep()

    with swept(tmp_path / "second", f"grok={home}") as memory:
        rebuilt = {session.session_uid: _conversation(session, memory) for session in memory.sessions(roots_only=True)}

    assert len(expected) >= 20
    assert again.events_new == again.events_replaced == 0
    assert rebuilt == expected


def test_what_cannot_come_back_is_said_before_anything_is_written(log: Path) -> None:
    _run("sweep")
    log.unlink()

    refused = _run("resume", SESSION)

    assert refused.exit_code == 1
    assert "will be missing: 1 secrets, which are now marks" in refused.stderr
    assert "will be missing: 1 pictures or documents, which are not stored" in refused.stderr
    assert f"new file: {log}" in refused.stderr
    assert "Refusing to write" in refused.stderr
    assert not log.exists()


def test_a_session_is_written_again_where_it_was_without_its_secrets(log: Path) -> None:
    _run("sweep")
    log.unlink()

    done = _run("resume", SESSION, "--yes")

    entries = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert done.exit_code == 0
    assert f"claude --resume {SESSION}" in done.stdout
    assert [entry["type"] for entry in entries[:4]] == ["user", "assistant", "user", "assistant"]
    assert [entry["parentUuid"] for entry in entries[1:4]] == [entry["uuid"] for entry in entries[:3]]
    assert SECRET.encode() not in log.read_bytes()
    assert b"[REDACTED:" in log.read_bytes()


def test_a_session_that_is_still_there_is_left_alone(log: Path) -> None:
    _run("sweep")
    before = log.read_bytes()

    assert _run("resume", SESSION).exit_code == 0
    assert log.read_bytes() == before


def test_a_file_that_has_come_back_meanwhile_is_not_replaced(log: Path, tmp_path: Path) -> None:
    _run("sweep")
    log.unlink()
    with open_memory(tmp_path / "store") as memory:
        plan = memory.handover.plan_rebuild(memory.session(SESSION))
        log.write_text("the agent's own\n")

        with pytest.raises(NotFound, match="File exists again"):
            memory.handover.write(plan)

    assert [path.read_text() for path in log.parent.iterdir()] == ["the agent's own\n"]


def test_of_a_long_session_another_agent_gets_the_end_and_a_brief(home: Path, tmp_path: Path) -> None:
    talk = [
        record
        for turn in range(1, 9)
        for record in (
            claude_user(SESSION, 2 * turn, f"Question {turn} {'x' * 90_000}"),
            claude_answer(SESSION, 2 * turn + 1, f"Answer {turn}"),
        )
    ]
    CLAUDE.write(home, lines(talk), SESSION)
    _run("sweep")
    with open_memory(tmp_path / "store") as memory:
        plan = memory.handover.plan_handoff(memory.session(SESSION), "claude")

    assert plan.draft is not None
    written = plan.draft.files[0][1]
    assert plan.losses[0] == "the first 8 events, replaced by a brief"
    assert b"Question 4 " not in written.split(b"\n", 1)[1]
    assert b"Question 5 " in written
    assert b"Its first 8 events are left out" in written


def test_a_handoff_writes_nothing_unless_it_is_agreed_to(log: Path) -> None:
    _run("sweep")

    refused = _run("handoff", SESSION, "--to", "claude")
    done = _run("handoff", SESSION, "--to", "claude", "--yes", "--json")

    plan = orjson.loads(done.stdout)
    assert refused.exit_code == 1
    assert done.exit_code == 0
    assert plan["files"] == [str(path) for path in log.parent.rglob("*.jsonl") if path != log]
    assert " claude --resume " in plan["command"]


def test_the_next_sweep_stores_nothing_of_a_rebuilt_file_but_what_follows(
    home: Path, log: Path, tmp_path: Path
) -> None:
    _run("sweep")
    log.unlink()
    _run("sweep")
    _run("resume", SESSION, "--yes")
    with log.open("ab") as file:
        file.write(lines([claude_user(SESSION, 9, "Go on")]))

    with open_memory(tmp_path / "store") as memory:
        report = memory.sweep()
        session = memory.session(SESSION)

    assert report.events_new == 1
    assert [source.source_gone_at for source in session.sources] == [None]


def test_what_a_rebuilt_file_lacks_is_counted_by_kind(log: Path, home: Path) -> None:
    queued = {"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-11-15T18:00:09Z"}
    with log.open("ab") as file:
        file.write(lines([queued | {"sessionId": SESSION, "content": "and then test it"}]))

    with swept(home.parent / "store", f"claude={home}") as memory:
        plan = memory.handover.plan_rebuild(memory.session(SESSION))

    assert "1 event (user_msg)" in plan.losses


def test_what_an_editor_put_before_a_request_of_codex_is_written_again(tmp_path: Path) -> None:
    home = tmp_path / "codex"
    context = "# Context from my IDE setup:\n\n## Active file: a.py"
    log = CODEX.write(home, CODEX.content(1, SESSION, f"{context}\n\n## My request for Codex:\nadd a parser"), SESSION)

    with swept(tmp_path / "store", f"codex={home}") as memory:
        before = log.read_text()
        log.unlink()
        memory.handover.write(memory.handover.plan_rebuild(memory.session(SESSION)))

    assert "Active file: a.py" in before
    assert "Active file: a.py" in log.read_text()
