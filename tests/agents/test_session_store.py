"""The store behind the Claude Agent SDK: its own conformance suite, and a session that the real agent resumes."""

import asyncio
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.api import Memory, open_memory
from recollect.live import RecollectSessionStore
from recollect.live.manager import Transcripts
from tests.agents.conftest import FIX, GREET_AGAIN, PATIENCE_S, SCRIPTS, _environment, mock_model
from tests.agents.sdk import load_sdk
from tests.conftest import SHARED, needs_shared, with_key
from tests.forget.traces import left_in

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = {"project_key": "proj", "session_id": "0e0303b9-5a0c-4f6e-9d6c-0f5d8c1a2b3c"}


def _entry(number: int, text: str) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "parentUuid": None,
        "sessionId": KEY["session_id"],
        "timestamp": f"2026-11-18T10:00:{number:02d}.000Z",
        "cwd": "/srv/app",
        "message": {"role": "user", "content": text},
    }


@pytest.fixture(scope="module")
def sdk() -> Any:
    return load_sdk()


def test_the_sdks_conformance_suite_passes(sdk: Any, tmp_path: Path) -> None:
    from claude_agent_sdk.testing import run_session_store_conformance

    stores: list[RecollectSessionStore] = []

    def make() -> RecollectSessionStore:
        stores.append(RecollectSessionStore(open_memory(with_key(tmp_path / str(len(stores))))))
        return stores[-1]

    asyncio.run(run_session_store_conformance(make))

    assert len(stores) > 14


def test_mirrored_entries_are_stored_once_and_found_like_a_swept_session(sdk: Any, memory: Memory) -> None:
    transcripts = Transcripts(memory)
    entries = [_entry(1, "the quokka question"), {"type": "mode", "mode": "normal"}, _entry(2, "and another")]

    transcripts.append(KEY, entries[:2])
    transcripts.append(KEY, [entries[0], entries[2]])

    assert transcripts.load(KEY) == entries
    (hit,) = memory.search("quokka")
    assert hit.session_uid == f"claude:{KEY['session_id']}"
    memory.sweep()
    session = memory.session(hit.session_uid)
    assert (session.cwd, session.message_count, session.title) == ("/srv/app", 2, "the quokka question")
    assert memory.digest(session).request_count == 2


def test_a_secret_resumes_as_its_mark_and_a_forgotten_session_stays_forgotten(
    sdk: Any, memory: Memory, tmp_path: Path
) -> None:
    transcripts = Transcripts(memory)
    transcripts.append(KEY, [_entry(1, f"the xylograph key is {SECRET}")])

    (entry,) = transcripts.load(KEY) or []
    assert SECRET not in entry["message"]["content"] and "xylograph" in entry["message"]["content"]
    assert left_in(tmp_path / "store", [SECRET]) == set()
    memory.forget(memory.plan_forgetting(KEY["session_id"]))
    assert transcripts.load(KEY) is None
    assert left_in(tmp_path / "store", ["xylograph"]) == set()
    with pytest.raises(Exception, match="Session was forgotten"):
        transcripts.append(KEY, [_entry(2, "again")])


def test_a_session_moves_to_another_machine_by_an_export(sdk: Any, memory: Memory, tmp_path: Path) -> None:
    entries = [_entry(1, "first"), {"type": "mode", "mode": "normal"}]
    Transcripts(memory).append(KEY, entries)
    memory.sweep()
    memory.export(tmp_path / "export")

    with open_memory(tmp_path / "other") as other:
        other.import_sessions(tmp_path / "export")

        assert Transcripts(other).load(KEY) == entries


@needs_shared
def test_genuine_transcripts_come_back_whole_and_a_sweep_of_their_files_adds_nothing(sdk: Any, tmp_path: Path) -> None:
    files = sorted((SHARED / "genuine").glob("claude*/**/projects/*/*.jsonl"), key=lambda path: path.stat().st_size)
    chosen = [path for path in files if path.stat().st_size < 400_000][-4:]
    assert chosen
    home = tmp_path / "home"
    with open_memory(with_key(tmp_path / "store"), [f"claude={home}"]) as memory:
        transcripts = Transcripts(memory)
        for path in chosen:
            entries = [json.loads(line) for line in path.read_bytes().splitlines()]
            key = {"project_key": path.parent.name, "session_id": path.stem}
            transcripts.append(key, entries)
            loaded = transcripts.load(key) or []
            redacted = [transcripts._appender.redactor.value(entry) for entry in entries]
            assert loaded == redacted
            target = home / "projects" / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)

        assert memory.sweep().events_new == 0


def test_the_real_agent_resumes_a_session_whose_local_file_was_deleted(
    sdk: Any, agents_folder: Path, tmp_path: Path
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    with mock_model(tmp_path) as port, open_memory(with_key(tmp_path / "store")) as memory:
        environment = _environment(agents_folder, MOCK_PORT=str(port), AGENT_HOME=str(home), HOME=str(home))
        subprocess.run([SCRIPTS / "mkproj.sh", project], env=environment, check=True, capture_output=True)
        store = RecollectSessionStore(memory)
        options = sdk.ClaudeAgentOptions(
            session_store=store,
            cli_path=agents_folder / "claude/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
            cwd=project,
            permission_mode="bypassPermissions",
            env={
                "HOME": str(home),
                "CLAUDE_CONFIG_DIR": str(home / ".claude"),
                "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
                "ANTHROPIC_API_KEY": "dummy-key-for-mock",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "IS_SANDBOX": "1",
            },
        )

        async def ask(prompt: str, **more: Any) -> Any:
            messages = [message async for message in sdk.query(prompt=prompt, options=replace(options, **more))]
            return messages[-1]

        first = asyncio.run(asyncio.wait_for(ask(FIX), PATIENCE_S))
        transcripts = list((home / ".claude" / "projects").rglob("*.jsonl"))
        assert transcripts
        shutil.rmtree(home / ".claude" / "projects")
        again = asyncio.run(asyncio.wait_for(ask(GREET_AGAIN, resume=first.session_id), PATIENCE_S))

        assert (first.is_error, again.is_error) == (False, False)
        assert again.session_id == first.session_id
        requests = [path.read_text() for path in (tmp_path / "requests").iterdir()]
        assert all(FIX in request for request in requests if GREET_AGAIN in request)
        assert any(GREET_AGAIN in request for request in requests)
        memory.sweep()
        session = memory.session(first.session_id)
        asked = [request.text for request in memory.digest(session).requests]
        assert asked == [FIX, GREET_AGAIN]
        store.close()
