"""Scripted sessions for the rules: who says what, what is run with which output, what is edited."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from recollect.agentkit.protocol import EventRecord, SessionInfo
from recollect.api import Memory
from recollect.model import schema
from recollect.model.kinds import OPENED_PULL_REQUEST
from recollect.store import StoredFact, open_store
from tests.builders import BEGIN_MS, Home, event, sweep

DAY_MS = 24 * 3_600_000


class Script:
    """A session of the scripted agent, written step by step; each step takes a second."""

    def __init__(self, name: str, day: int = 0, repo: str = "github.com/acme/shop", cwd: str = "/srv/shop") -> None:
        self.name = name
        self._begin_ms = BEGIN_MS + (day - 30) * DAY_MS
        self._number = 0
        self.records: list[Any] = [SessionInfo(name, cwd=cwd, git_remote=f"https://{repo}.git", born_ms=self._begin_ms)]

    def _add(self, kind: str, text: str, payload: dict[str, Any] | None = None, **fields: Any) -> EventRecord:
        self._number += 1
        made = event(self.name, self._number, kind, text, ts_ms=self._begin_ms + self._number * 1000, **fields)
        if payload is not None:
            made = structs.replace(made, payload=payload)
        self.records.append(made)
        return made

    def wait(self, seconds: int) -> "Script":
        self._begin_ms += seconds * 1000
        return self

    def user(self, text: str) -> "Script":
        self._add(schema.USER_MSG, text, role="user")
        return self

    def agent(self, text: str) -> "Script":
        self._add(schema.ASSISTANT_MSG, text, role="assistant")
        return self

    def run(self, command: str, output: str, exit_code: int = 0, *, is_test: bool = False) -> "Script":
        call_id = f"{self.name}-call-{self._number}"
        kind = schema.TEST_RUN if is_test else schema.TOOL_CALL
        call = {"input": {"command": command}}
        self._add(kind, f"ran {command}", call, role="assistant", tool="Bash", call_id=call_id)
        failed = exit_code != 0
        summary = f"exit {exit_code}: {(output.strip() or 'no output').splitlines()[-1]}" if failed else output.strip()
        self._add(
            schema.ERROR if failed else schema.TOOL_RESULT,
            summary[:180],
            {"output": output},
            role="tool",
            tool="Bash",
            call_id=call_id,
            status="error" if failed else "ok",
            is_error=failed,
        )
        return self

    def edit(self, path: str, old: str, new: str, line: int | None = None) -> "Script":
        """An edit; with the number of its first line if one is given."""
        call_id = f"{self.name}-call-{self._number}"
        call: dict[str, Any] = {"input": {"file_path": path, "old_string": old, "new_string": new}}
        if line is not None:
            lines = [f"-{one}" for one in old.splitlines()] + [f"+{one}" for one in new.splitlines()]
            diff = f"@@ -{line},9 +{line},9 @@\n" + "\n".join(lines) + "\n"
            call = {"input": {"changes": {path: {"type": "update", "unified_diff": diff}}}}
        self._add(schema.EDIT, f"edited {path}", call, role="assistant", tool="Edit", call_id=call_id)
        self._add(
            schema.TOOL_RESULT, "done", {"output": "done"}, role="tool", tool="Edit", call_id=call_id, status="ok"
        )
        return self

    def ask(self, question: str, options: Sequence[str], answer: str) -> "Script":
        call_id = f"{self.name}-call-{self._number}"
        asked = {"input": {"questions": [{"question": question, "options": [{"label": one} for one in options]}]}}
        fields = {"tool": "AskUser", "call_id": call_id}
        self._add(schema.TOOL_CALL, f"asked: {question}", asked, role="assistant", **fields)
        said = {"output": f'The user answered: "{question}"="{answer}"'}
        self._add(schema.DECISION, f"answered: {question} {answer}", said, role="user", status="ok", **fields)
        return self

    def link(self, address: str) -> "Script":
        self._add(schema.LIFECYCLE, f"{OPENED_PULL_REQUEST}{address}", role="system")
        return self

    def look(self, tool: str, what: str) -> "Script":
        call_id = f"{self.name}-call-{self._number}"
        self._add(schema.TOOL_CALL, what, {"input": {}}, role="assistant", tool=tool, call_id=call_id)
        self._add(schema.TOOL_RESULT, "text", {"output": "text"}, role="tool", tool=tool, call_id=call_id, status="ok")
        return self


def remembered(folder: Path, *scripts: Script) -> Memory:
    """A memory that has read these sessions in one sweep."""
    home = Home(folder / "home")
    for script in scripts:
        home.write(script.name, *script.records)
    return sweep(folder / "store", home)


def stored_facts(memory: Memory, *predicates: str) -> list[StoredFact]:
    """Every fact of these predicates, or of all, as it is stored."""
    with open_store(memory.settings.folder) as store:
        return store.facts.select(predicates)
