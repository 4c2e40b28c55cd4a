"""The protocol's own conformance suite, where it is installed.

Most of its scenarios call tools, prompts and resources of its own example server. What any server can be asked is here.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from recollect.mcp.door import Scope
from recollect.mcp.http import App, HttpDoor
from tests.conftest import ON_DISK
from tests.mcp.conftest import serving

FOLDER = ON_DISK / "recollect-conformance"
NODE = FOLDER / "node_modules" / "node" / "bin" / "node"
SUITE = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
)


class Trusting(App):
    """The suite knows no tokens: whoever asks is given one."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = [*scope.get("headers", []), (b"authorization", b"Bearer open")]
        await super().__call__(scope | {"headers": headers}, receive, send)


@pytest.mark.skipif(
    not (NODE.exists() and SUITE.exists()),
    reason=f"needs `npm install --prefix {FOLDER} @modelcontextprotocol/conformance node@22`",
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_suite_finds_nothing_wrong(place: Path, monkeypatch: pytest.MonkeyPatch, scenario: str) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(place / "store"))
    with serving(lambda port: Trusting(HttpDoor(Scope(place / "checkout")), port, "open")) as address:
        command = [NODE, SUITE, "server", "--url", address, "--scenario", scenario]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "0 failed" in done.stdout
