"""The server speaks both eras of the protocol, to the official client, and survives whatever is sent to it."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from mcp import Client, StdioServerParameters, stdio_client
from recollect.mcp.door import TOOLS, Door, Scope
from recollect.mcp.server import Server
from tests.faults.rig import IS_SOAK
from tests.mcp.conftest import Agent
from tests.shapes import places_in, replaced
from tests.tally import count

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
MOST_KILOBYTES = 30 * 1024


@pytest.mark.parametrize("mode", ["2026-07-28", "auto", "legacy"])
def test_the_official_client_lists_and_calls_everything_in_both_eras(place: Path, mode: str) -> None:
    async def talk() -> tuple[set[str], str, str, str]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "recollect", "mcp"],
            cwd=place / "checkout",
            env={**os.environ, "RECOLLECT_HOME": str(place / "store")},
        )
        async with Client(stdio_client(server), mode=cast("Any", mode)) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            answer = await client.call_tool("session_search", {"query": "walrus"})
            resource = (await client.list_resources()).resources[0]
            digest = await client.read_resource(str(resource.uri))
            templates = (await client.list_resource_templates()).resource_templates
            prompt = (await client.list_prompts()).prompts[0]
            asked = await client.get_prompt(prompt.name, {"topic": "the walrus"})
            assert len(templates) == 1
            return tools, str(answer.content[0]), str(digest.contents[0]), str(asked.messages[0].content)

    tools, found, digest, prompt = asyncio.run(talk())

    assert tools == {tool.name for tool in TOOLS}
    assert "feed the walrus" in found and "feed the walrus" in digest and "the walrus" in prompt


@pytest.mark.parametrize("asked", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_handshake_gets_the_version_it_asks_for(agent: Agent, asked: str) -> None:
    result = agent.ask("initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "x", "version": "1"})

    assert result["result"]["protocolVersion"] == asked


def test_an_unknown_version_is_refused_with_the_known_ones(agent: Agent) -> None:
    answer = agent.ask("tools/list", _meta={VERSION_KEY: "2031-01-01"})

    assert answer["error"]["code"] == -32022
    assert "2026-07-28" in answer["error"]["data"]["supported"]


def test_a_modern_answer_carries_what_that_era_requires(agent: Agent) -> None:
    result = agent.ask("tools/list", _meta={VERSION_KEY: "2026-07-28"})["result"]

    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
    assert "resultType" not in agent.ask("tools/list")["result"]


def _malformed() -> Iterator[bytes]:
    frames = [
        b"{", b"nonsense", b"\xff\xfe\x00", b"[]", b"null", b"17", b'"text"', b"{}", b'{"id": 1}', b"[1, 2]",
        b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', b'{"jsonrpc": "2.0", "id": true, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 5, "method": 7}', b'{"jsonrpc": "2.0", "id": 5, "method": "no/such"}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": 3}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "rm -rf", "arguments": {}}}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "get_session", "arguments": []}}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "prompts/get", "params": {"name": {}}}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "\\ud800"}',
        b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}',
    ]  # fmt: skip
    for number in range(1000):
        yield frames[number % len(frames)] + b" " * (number % 7) + b"\n"


def test_a_thousand_malformed_frames_are_answered_with_errors(agent: Agent) -> None:
    taken, frames = [], list(_malformed())
    for frame in frames:
        agent.write(frame)
        answer = agent.read()
        refusals = answer if isinstance(answer, list) else [answer]
        if not all("error" in refusal for refusal in refusals):
            taken.append(frame)

    count("frame", len(frames), len(frames) - len(taken))
    assert taken == []
    assert agent.ask("ping")["result"] == {}


_ODD: tuple[Any, ...] = (None, True, -1, 2**70, 1e300, "", "x" * 9000, "\ud800", "\x00", [], [[]], {}, {"a": {}}, "{}")


def _mutated() -> Iterator[Any]:
    """Requests of every kind with one value replaced. Their ids stay, so that each has an answer of its own."""
    requests: list[tuple[str, dict[str, Any]]] = [
        ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a"}}),
        ("tools/list", {"cursor": "x", "_meta": {VERSION_KEY: "2026-07-28"}}),
        ("prompts/get", {"name": "history", "arguments": {"query": "walrus"}}),
        ("resources/read", {"uri": "recollect://session/x"}),
        *(("tools/call", {"name": tool.name, "arguments": dict.fromkeys(tool.properties, "x")}) for tool in TOOLS),
    ]
    for method, params in requests:
        frame = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        for place, odd in product(places_in(frame)[1:], _ODD):
            if place != ("id",):
                yield replaced(frame, place, odd)


def test_a_request_with_any_wrong_value_is_answered_and_the_next_too(agent: Agent) -> None:
    frames = list(_mutated())[:: 1 if IS_SOAK else 12]
    held = 0
    for number, frame in enumerate(frames):
        agent.write(json.dumps(frame | {"id": f"frame-{number}"}).encode() + b"\n")
        answer = agent.read()
        held += answer.get("id") in (f"frame-{number}", None) and ("result" in answer) != ("error" in answer)

    count("frame", len(frames), held)
    assert held == len(frames)
    assert agent.ask("ping")["result"] == {}


@pytest.mark.parametrize(
    "frame",
    [b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * 50_000_000 + b'"}', b'{"a":' * 100_000, b"[" * 100_000],
    ids=["50 MB", "nested objects", "nested lists"],
)
def test_a_huge_or_deep_frame_is_refused_and_the_next_answered(place: Path, frame: bytes) -> None:
    with Agent(place) as agent:
        agent.write(frame + b"\n")

        is_held = agent.read()["error"]["code"] == -32700 and agent.ask("ping")["result"] == {}
        count("frame", 1, is_held)
        assert is_held
        assert _peak_kilobytes(agent) < MOST_KILOBYTES


def _peak_kilobytes(agent: Agent) -> int:
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_arguments_that_do_not_fit_are_answered_in_words(agent: Agent, tool: Any) -> None:
    refused = agent.ask(
        "tools/call", name=tool.name, arguments={"no-such-argument": 1} | dict.fromkeys(tool.required, "x")
    )

    assert refused["result"]["isError"]
    for name, known in tool.properties.items():
        wrong = 7 if known["type"] == "string" else "seven"
        arguments = dict.fromkeys(tool.required, "x") | {name: wrong}
        answer = agent.ask("tools/call", name=tool.name, arguments=arguments)["result"]
        is_held = answer["isError"] and f"`{name}`" in answer["content"][0]["text"]
        count("frame", 1, is_held)
        assert is_held


def test_the_first_answer_needs_no_store_and_little_memory(place: Path) -> None:
    program = (
        "import sys; from recollect.mcp import serve; serve();"
        "print(sorted({'apsw', 'orjson', 'msgspec', 'click', 'rich', 'zstandard', 'tomllib'} & set(sys.modules)),"
        " file=sys.stderr)"
    )
    frames = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}).encode() + b"\n"
        for method in ("initialize", "server/discover", "tools/list", "prompts/list")
    )
    done = subprocess.run([sys.executable, "-c", program], input=frames, capture_output=True, timeout=30)

    assert done.stdout.count(b"\n") == 4
    assert done.stderr.decode().strip() == "[]"
    with Agent(place) as agent:
        agent.ask("initialize")
        assert _peak_kilobytes(agent) < MOST_KILOBYTES


class _SlowDoor(Door):
    """A door whose tools take until the cancellation has arrived."""

    def __init__(self, arrived: threading.Event) -> None:
        super().__init__(Scope(Path("/")))
        self._arrived = arrived

    def call(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[str, bool]:
        assert self._arrived.wait(10)
        return "too late", False


class _Reader(BytesIO):
    """Says when all of it has been read."""

    def __init__(self, data: bytes, read: threading.Event) -> None:
        super().__init__(data)
        self._read = read

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(-1 if size is None else size)
        if not line:
            self._read.set()
        return line


def test_a_cancelled_request_gets_no_answer() -> None:
    frames = [
        {"id": 1, "method": "tools/call", "params": {"name": "session_search", "arguments": {}}},
        {"id": 2, "method": "tools/call", "params": {"name": "session_search", "arguments": {}}},
        {"method": "notifications/cancelled", "params": {"requestId": 1}},
        {"id": 3, "method": "ping"},
    ]
    arrived, written = threading.Event(), BytesIO()
    lines = "".join(json.dumps({"jsonrpc": "2.0", **frame}) + "\n" for frame in frames).encode()

    Server(_SlowDoor(arrived)).serve(_Reader(lines, arrived), written)

    assert [json.loads(line)["id"] for line in written.getvalue().splitlines()] == [2, 3]
