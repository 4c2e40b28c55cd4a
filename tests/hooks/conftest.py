"""A checkout, a home and a store of the first agent that names its session in the environment, and its hooks."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recollect.api import open_memory
from tests.conftest import with_key

RUN = "from recollect.hooks.command import run; run()"
SESSION = "5f0c2f6e-0000-4000-8000-000000000001"


@dataclass
class Desk:
    """Where an agent works: `hook` is what it would call, with its own environment."""

    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        """Of what an agent starts there."""
        return {
            "PATH": os.environ["PATH"],
            "RECOLLECT_HOME": str(self.store),
            "CLAUDE_CONFIG_DIR": str(self.home),
            "CODEX_HOME": str(self.folder / "none"),
            "GROK_HOME": str(self.folder / "none"),
        }

    def transcript(self, session: str) -> Path:
        return self.home / "projects" / "-project" / f"{session}.jsonl"

    def write(self, session: str, *texts: str) -> Path:
        """A session in which the user asked for these things and got `done` for an answer."""
        path = self.transcript(session)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for number, text in enumerate(texts):
                for role, said in (("user", text), ("assistant", [{"type": "text", "text": "done"}])):
                    record = {
                        "type": role,
                        "uuid": f"{session[:-8]}{number:06d}{role[:2].encode().hex()[:2]}",
                        "sessionId": session,
                        "cwd": str(self.project),
                        "timestamp": f"2026-11-15T18:00:{number:02d}.000Z",
                        "message": {"role": role, "content": said} | ({"id": f"m{number}"} if role != "user" else {}),
                    }
                    file.write(json.dumps(record) + "\n")
        return path

    def sweep(self) -> None:
        """Sweep, after the one that a hook may have started."""
        until = time.monotonic() + 30
        with open_memory(with_key(self.store), [f"claude={self.home}"]) as memory:
            while memory.is_sweeping() and time.monotonic() < until:
                time.sleep(0.05)
            assert memory.sweep().failures == []

    def hook(self, event: str, session: str = SESSION, agent: str = "claude", **fields: Any) -> str:
        """What the hook prints; it must end well, whatever happens."""
        variable = {"claude": "CLAUDE_CODE_SESSION_ID", "grok": "GROK_SESSION_ID"}.get(agent, "UNUSED")
        payload = {"hook_event_name": event, "session_id": session, "cwd": str(self.project), **fields}
        done = subprocess.run(
            [sys.executable, "-I", "-c", RUN],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env={**self.environment, variable: session},
            timeout=20,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    def added(self, event: str, **fields: Any) -> str:
        """The text that a hook adds to what the model reads; empty if none."""
        answer = self.hook(event, **fields)
        return str(json.loads(answer)["hookSpecificOutput"]["additionalContext"]) if answer else ""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "desk")
    made.project.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", made.project], check=True)
    yield made
    with suppress(FileNotFoundError, NotADirectoryError), (made.store / "spool" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a sweep that a hook started ends first
