"""Serving this machine's user alone: a socket on the loopback, and requests that can only come from here."""

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from recollect.model.errors import Busy

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")


def bind(port: int | None, usual_port: int) -> socket.socket:
    """A socket that listens on the loopback: on this port, else on the usual one, or any if that is taken."""
    for candidate in (usual_port, 0) if port is None else (port,):
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            opened.bind((HOST, candidate))
            opened.listen()  # only from here on can no other program take the port
            return opened
        opened.close()
    raise Busy(f"Port is taken: {port}", "choose another with `--port`, or leave it out")


def headers_of(raw: Collection[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """The headers by name; None if one that decides is there twice, because another program may read the other one."""
    names = [name for name, _ in raw if name in (b"host", b"origin", b"authorization")]
    if len(names) != len(set(names)):
        return None
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}


def has_own_host(headers: Mapping[str, str], port: int) -> bool:
    """Whether a request was sent to this machine by name: a page of another site can point its own name here."""
    return headers.get("host", "").lower() in _hosts(port)


def has_own_origin(headers: Mapping[str, str], port: int) -> bool:
    """Whether a request comes from no page, or from one of this server."""
    return "origin" not in headers or headers["origin"] in [f"http://{host}" for host in _hosts(port)]


def _hosts(port: int) -> list[str]:
    return [f"{name}:{port}" for name in _NAMES]


async def read_body(receive: Callable[[], Awaitable[MutableMapping[str, Any]]], most_bytes: int) -> bytes | None:
    """The body of a request; None as soon as it is too long."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > most_bytes:
            return None
        if not message.get("more_body"):
            return bytes(body)
