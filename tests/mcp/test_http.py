"""The server over HTTP: for the official client in both eras, and for nobody without the token or from elsewhere."""

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from recollect.mcp.door import TOOLS, Scope
from recollect.mcp.http import App, HttpDoor, read_token
from tests.mcp.conftest import serving

httpx = pytest.importorskip("httpx2", reason="comes with the official client")


@contextmanager
def _serving(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Address and token of a server of that store."""
    monkeypatch.setenv("RECOLLECT_HOME", str(place / "store"))
    token = read_token(place / "store")
    with serving(lambda port: App(HttpDoor(Scope(place / "checkout")), port, token)) as address:
        yield address, token


def _post(
    address: str, token: str | None, body: bytes = b"{}", method: str = "POST", **headers: str
) -> tuple[int, str]:
    """Status and body of an answer."""
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(address, body if method == "POST" else None, given, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("mode", ["2026-07-28", "auto", "legacy"])
def test_the_official_client_lists_and_calls_in_both_eras(
    place: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async def talk(address: str, token: str) -> tuple[set[str], str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(address, http_client=http), mode=cast("Any", mode)) as client,
        ):
            tools = {tool.name for tool in (await client.list_tools()).tools}
            answer = await client.call_tool("session_search", {"query": "walrus"})
            return tools, str(answer.content[0])

    with _serving(place, monkeypatch) as (address, token):
        tools, found = asyncio.run(talk(address, token))

    assert tools == {tool.name for tool in TOOLS}
    assert "feed the walrus" in found


@pytest.mark.parametrize(
    ("status", "reason", "given"),
    [
        (401, "Authorization", {"token": None}),
        (401, "Authorization", {"token": "wrong"}),
        (421, "127.0.0.1", {"Host": "evil.example"}),
        (421, "127.0.0.1", {"Host": "evil.example:7392"}),
        (403, "web pages", {"Origin": "https://evil.example"}),
        (403, "web pages", {"Origin": "null"}),
        (405, "POST", {"method": "GET"}),
        (405, "POST", {"method": "DELETE"}),
        (404, "/mcp", {"path": "/"}),
        (400, "2026-07-28", {"MCP_Protocol_Version": "1999-01-01"}),
        (413, "longer", {"body": b" " * 5_000_000}),
    ],
)
def test_what_is_not_from_here_is_refused_with_a_reason(
    place: Path, monkeypatch: pytest.MonkeyPatch, status: int, reason: str, given: dict[str, Any]
) -> None:
    with _serving(place, monkeypatch) as (address, token):
        path = given.pop("path", "/mcp")
        answer = _post(address.removesuffix("/mcp") + path, given.pop("token", token), **given)

    assert answer[0] == status and reason in answer[1]


def test_a_notification_is_taken_and_nonsense_answered_with_an_error(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _serving(place, monkeypatch) as (address, token):
        noted = _post(address, token, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        nonsense = _post(address, token, b"nonsense")
        hook = {"name": "hook_event", "arguments": {"agent": "claude", "hook_event_name": "Stop"}}
        frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": hook}
        hooked = _post(address, token, json.dumps(frame).encode())

    assert noted == (202, "")
    assert json.loads(nonsense[1])["error"]["code"] == -32700
    assert json.loads(hooked[1])["result"]["content"][0]["text"] == "{}"


def test_the_command_prints_its_address_and_a_token_that_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(place / "store"))
    command = [sys.executable, "-m", "recollect", "mcp", "--http"]
    printed = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=place / "checkout") as process:
            assert process.stdout is not None
            address, header = process.stdout.readline().strip(), process.stdout.readline().strip()
            printed.append(header)
            status = 0
            for _ in range(100):
                with suppress(urllib.error.URLError):
                    status, _ = _post(
                        address, header.rpartition(" ")[2], b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
                    )
                    break
                time.sleep(0.1)
            process.terminate()
            assert status == 200

    assert printed[0] == printed[1]
    assert (place / "store" / "mcp-token").stat().st_mode & 0o777 == 0o600


def test_servers_that_start_at_once_agree_on_one_token(tmp_path: Path) -> None:
    asking = (
        "import sys, pathlib; from recollect.mcp.http import read_token; print(read_token(pathlib.Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", asking, str(tmp_path / "store")]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    tokens = {server.communicate()[0].strip() for server in servers}

    assert len(tokens) == 1
    assert len(tokens.pop()) == 43
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["mcp-token"]


@pytest.mark.parametrize("content", ["", "short", "x" * 42])
def test_no_server_starts_with_a_token_that_can_be_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    (tmp_path / "mcp-token").write_text(content)
    command = [sys.executable, "-m", "recollect", "mcp", "--http"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"Token is too short ({len(content)} characters instead of 43)" in done.stderr


def test_a_full_disk_leaves_no_token_and_the_next_start_makes_one(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("64k")
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()

    with pytest.raises(OSError, match="No space"):
        read_token(disk)
    left = [path.name for path in disk.iterdir()]
    filler.unlink()

    assert left == ["filler"]
    assert len(read_token(disk)) == 43
