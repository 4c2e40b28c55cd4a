"""The same server over HTTP, for clients that cannot start a program: on the loopback only, for who knows the token.

Each request is a POST with one message, answered with one message as JSON; there are no sessions and no streams.
"""

import asyncio
import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

from recollect.loopback import HOST, has_own_host, has_own_origin, headers_of, read_body
from recollect.mcp.door import INSTRUCTIONS, Door
from recollect.mcp.server import HANDSHAKES, MODERN, MOST_BYTES, Server, parse
from recollect.model.errors import RecollectError
from recollect.model.files import write_new

PATH = "/mcp"
_TOKEN_NAME = "mcp-token"
_TOKEN_BYTES, _LEAST_CHARS = 32, 43
_VERSION_HEADER = "mcp-protocol-version"
Message = dict[str, Any]


class Refusal(Enum):
    """Why a request gets no answer: status and reason."""

    WRONG_HOST = 421, "This server answers only to 127.0.0.1 and localhost"
    FOREIGN = 403, "Requests from web pages are refused"
    NO_TOKEN = 401, "The header `Authorization: Bearer TOKEN` is missing or wrong; `recollect mcp --http` prints it"
    WRONG_PATH = 404, f"The server is at {PATH}"
    WRONG_METHOD = 405, "Only POST is answered: there are no streams"
    WRONG_VERSION = 400, f"Unsupported protocol version; supported: {', '.join((*MODERN, *HANDSHAKES))}"
    TOO_LONG = 413, f"Message longer than {MOST_BYTES} bytes"


class HttpDoor(Door):
    """A door for any number of clients: none of them is the agent that a brief is meant for, or whose hooks ask."""

    def instructions(self, client: str) -> str:
        return INSTRUCTIONS

    def hook(self, payload: Mapping[str, Any]) -> str:
        return "{}"


def judge(method: str, path: str, headers: Mapping[str, str], port: int, token: str) -> Refusal | None:
    """Decide about a request by its headers; None lets it pass."""
    given = headers.get("authorization", "").removeprefix("Bearer ")
    if not has_own_host(headers, port):
        return Refusal.WRONG_HOST
    if not has_own_origin(headers, port):
        return Refusal.FOREIGN
    if not hmac.compare_digest(given.encode(), token.encode()):
        return Refusal.NO_TOKEN
    if path != PATH:
        return Refusal.WRONG_PATH
    if method != "POST":
        return Refusal.WRONG_METHOD
    return None if headers.get(_VERSION_HEADER, MODERN[0]) in (*MODERN, *HANDSHAKES) else Refusal.WRONG_VERSION


class App:
    """The server as an ASGI application."""

    def __init__(self, door: Door, port: int, token: str) -> None:
        self._door, self._port, self._token = door, port, token

    async def __call__(self, scope: Message, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        if scope["type"] != "http":
            return
        refusal: Refusal | None = Refusal.WRONG_HOST
        if (headers := headers_of(scope["headers"])) is not None:
            refusal = judge(scope["method"], scope["path"], headers, self._port, self._token)
        body = None if refusal else await read_body(receive, MOST_BYTES)
        if refusal is None and body is None:
            refusal = Refusal.TOO_LONG
        if refusal is not None:
            await _send(send, refusal.value[0], refusal.value[1].encode() + b"\n", b"text/plain; charset=utf-8")
            return
        answer = await asyncio.to_thread(lambda: Server(self._door).answer(parse(body or b"")))
        content = b"" if answer is None else json.dumps(answer).encode()
        await _send(send, 202 if answer is None else 200, content, b"application/json")


async def _send(send: Callable[[Message], Any], status: int, content: bytes, kind: bytes) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    headers += [(b"allow", b"POST")] if status == Refusal.WRONG_METHOD.value[0] else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def read_token(folder: Path) -> str:
    """The token of a store, made when it is first asked for: clients have it in their settings."""
    path = folder / _TOKEN_NAME
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        with suppress(FileExistsError):  # a server that starts at the same time was first
            write_new(path, secrets.token_urlsafe(_TOKEN_BYTES).encode())
    token = path.read_text().strip()
    if len(token) < _LEAST_CHARS:
        raise RecollectError(
            f"Token is too short ({len(token)} characters instead of {_LEAST_CHARS}): {path}",
            "delete the file: a new token is made, which your clients then need",
        )
    return token


def serve_http(door: Door, opened: socket.socket, folder: Path, announce: Callable[[str, str], None]) -> None:
    """Answer until interrupted. `announce` gets the address and the token, once."""
    import uvicorn  # needs the extra

    port, token = opened.getsockname()[1], read_token(folder)
    config = uvicorn.Config(App(door, port, token), log_level="warning", access_log=False, lifespan="off")
    announce(f"http://{HOST}:{port}{PATH}", token)
    uvicorn.Server(config).run(sockets=[opened])
