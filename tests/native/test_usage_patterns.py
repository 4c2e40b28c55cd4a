"""The four ways in which chat hosts use Claude Code's storage, run as a host's own document prints them."""

import ast
import asyncio
import inspect
import json
import re
import secrets
import uuid
from pathlib import Path
from typing import Any

import pytest

from recollect.agents.claude.native import ChatMessage, ClaudeStorageProvider
from tests.conftest import SHARED, needs_shared

NEW_SESSION = """\
provider = ClaudeStorageProvider(base_dir="~/.claude")
session_id = str(uuid.uuid4())

# Log initial user message
await provider.log_message(
    project_path="/path/to/project",
    message=ChatMessage(role="user", content="Hello"),
    session_id=session_id,
)
"""
RESUMED_SESSION = """\
# Get existing sessions
conversations = await provider.get_sessions(
    project_path="/path/to/project"
)

# Load latest session
messages = await provider.get_session_messages(
    project_path="/path/to/project",
    session_id=conversations[0]["sessionId"],
    limit=50  # Last 50 messages
)
"""
SUB_AGENT = """\
# Sub-agent gets own short ID
agent_id = "a" + secrets.token_hex(3)  # e.g., "a753668"

# But shares parent sessionId
await provider.log_message(
    project_path="/path/to/project",
    message=agent_message,
    session_id=parent_session_id,  # Same as parent!
    agent_id=agent_id,  # Different agent ID
)

# Creates: agent-a753668.jsonl in project dir
# Creates: {sessionId}-agent-a753668.json in todos/
"""
TODOS = """\
# Not part of ClaudeStorageProvider!
# Separate JSON file management:

todo_path = (
    f"~/.claude/todos/{session_id}-agent-{agent_id}.json"
)
with open(todo_path, "w") as f:
    json.dump(todos, f)
"""
PATTERNS = (NEW_SESSION, RESUMED_SESSION, SUB_AGENT, TODOS)

Names = dict[str, Any]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    """What the patterns refer to, in a home of their own. Python's `open` leaves `~` as it is; this one does not."""
    monkeypatch.setenv("HOME", str(tmp_path))
    given: Names = {"ChatMessage": ChatMessage, "ClaudeStorageProvider": ClaudeStorageProvider}
    given |= {"uuid": uuid, "secrets": secrets, "json": json}
    given["open"] = lambda path, mode: Path(path).expanduser().open(mode)
    return given


def run(pattern: str, names: Names) -> None:
    found = eval(compile(pattern, "pattern", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(found):
        asyncio.run(found)


def test_a_new_session_begins_with_its_first_message(names: Names, tmp_path: Path) -> None:
    run(NEW_SESSION, names)

    (path,) = (tmp_path / ".claude" / "projects").rglob("*.jsonl")
    entry = json.loads(path.read_text())
    assert (path.parent.name, path.stem) == ("-path-to-project", names["session_id"])
    assert (entry["type"], entry["cwd"], entry["parentUuid"]) == ("user", "/path/to/project", None)
    assert entry["message"] == {"role": "user", "content": "Hello"}


def test_the_latest_session_is_resumed_with_its_last_messages(names: Names) -> None:
    run(NEW_SESSION, names)
    home = names["provider"].home
    for number in range(80):
        role = "user" if number % 2 else "assistant"
        home.session(names["session_id"]).append_message({"role": role, "content": f"message {number}"})

    run(RESUMED_SESSION, names)

    assert len(names["messages"]) == 50
    assert names["messages"][0] == ChatMessage("assistant", "message 30")
    assert names["messages"][-1] == ChatMessage("user", "message 79")


def test_a_sub_agent_has_a_log_and_todos_of_its_own_in_its_parents_session(names: Names, tmp_path: Path) -> None:
    run(NEW_SESSION, names)
    names |= {"parent_session_id": names["session_id"], "agent_message": ChatMessage("user", "Count them")}

    run(SUB_AGENT, names)

    agent, project = names["agent_id"], tmp_path / ".claude" / "projects" / "-path-to-project"
    # Claude Code looks for it in the folder of the session; up to 2.1.1 it was beside the session's file.
    (path,) = project.rglob(f"agent-{agent}.jsonl")
    entry = json.loads(path.read_text())
    assert (entry["sessionId"], entry["agentId"], entry["isSidechain"]) == (names["session_id"], agent, True)
    assert (tmp_path / ".claude" / "todos" / f"{names['session_id']}-agent-{agent}.json").read_text() == "[]"
    (found,) = names["provider"].home.session(names["session_id"]).sub_agents()
    assert found.message_count() == 1


def test_todos_that_a_host_writes_itself_are_read(names: Names) -> None:
    run(NEW_SESSION, names)
    names |= {"parent_session_id": names["session_id"], "agent_message": ChatMessage("user", "Count them")}
    run(SUB_AGENT, names)
    todos = [{"content": "Count", "status": "in_progress", "priority": "high", "activeForm": "Counting"}]

    run(TODOS, names | {"todos": todos})

    home = names["provider"].home
    assert home.todos(names["session_id"], agent_id=names["agent_id"]) == todos
    home.write_todos(names["session_id"], todos, agent_id=names["agent_id"])
    assert home.todos(names["session_id"], agent_id=names["agent_id"]) == todos


@needs_shared
def test_the_patterns_are_those_of_the_document() -> None:
    (document,) = (SHARED / "seeds").glob("004_*.txt")

    assert tuple(re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)) == PATTERNS
