"""A store with a few sessions of one checkout and one elsewhere, and the server as an agent starts it."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import open_memory
from recollect.loopback import bind
from recollect.model.schema import ASSISTANT_MSG, EDIT, ERROR, TOOL_RESULT
from tests.builders import AGENT, Home, ScriptedAdapter, event

REMOTE = "git@github.com:acme/zoo.git"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `checkout`, and a `store` that knows six sessions in it and one of another repository."""
    folder = tmp_path_factory.mktemp("mcp")
    adapters()[AGENT] = ScriptedAdapter()
    checkout = folder / "checkout"
    subprocess.run(["git", "init", "-q", checkout], check=True)
    subprocess.run(["git", "-C", checkout, "remote", "add", "origin", REMOTE], check=True)
    home = Home(folder / "home")
    for number in range(6):
        home.write(f"walrus-{number}", *session(f"walrus-{number}", number, str(checkout)))
    home.write("elsewhere", *session("elsewhere", 9, str(folder / "other"), remote="git@github.com:acme/attic.git"))
    with open_memory(folder / "store", [home.flag]) as memory:
        (folder / "other").mkdir()
        memory.groups.add("attic", folder / "other")
        assert memory.sweep().failures == []
    yield folder
    del adapters()[AGENT]


def session(name: str, number: int, cwd: str, remote: str = REMOTE) -> list[Any]:
    """A request, a failing tool, an edit, a long output and an answer."""
    start = number * 1000
    edit = event(name, start + 2, EDIT, "edited src/walrus.py", call_id=f"b-{name}")
    edit.payload["input"] = {"file_path": "src/walrus.py", "old_string": "a", "new_string": "b"}
    return [
        SessionInfo(name, cwd=cwd, git_remote=remote, git_branch="main"),
        event(name, start, text=f"feed the walrus, round {number}"),
        event(name, start + 1, ERROR, f"KeyError: 'herring-{number}'", call_id=f"a-{name}"),
        edit,
        event(name, start + 3, TOOL_RESULT, "fish " * 8000),
        event(name, start + 4, ASSISTANT_MSG, f"The walrus of round {number} is fed."),
    ]


@contextmanager
def serving(app_of: Callable[[int], Any]) -> Iterator[str]:
    """The address of a server over HTTP, made by a function of its port."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `mcp-http`")
    with bind(None, 0) as opened:
        port = opened.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app_of(port), log_level="warning", lifespan="off"))
        thread = threading.Thread(target=lambda: server.run(sockets=[opened]))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.should_exit = True
            thread.join(10)


class Agent:
    """Just enough of an agent to talk to the server over its standard input and output."""

    def __init__(self, place: Path, *options: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "mcp", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=place / "checkout",
            env={**os.environ, "RECOLLECT_HOME": str(place / "store"), **environment},
        )
        self._sent = 0

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self.process.stdout.close()

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, **params: Any) -> Any:
        self._sent += 1
        self.write(
            json.dumps({"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params}).encode() + b"\n"
        )
        answer = self.read()
        assert answer["id"] == self._sent
        return answer

    def call(self, tool: str, **arguments: Any) -> str:
        """The text of a tool's answer."""
        text: str = self.ask("tools/call", name=tool, arguments=arguments)["result"]["content"][0]["text"]
        return text


@pytest.fixture(scope="module")
def agent(place: Path) -> Iterator[Agent]:
    with Agent(place) as started:
        yield started
