"""The server that an agent starts and talks to over standard input and output: JSON-RPC, a message a line.

It speaks both eras of the protocol: the one in which `initialize` opens a connection, and the one in which every
request names its version (`server/discover`). An agent waits for it before its first request, so nothing is loaded
that the first answer does not need; the store is opened when a tool is called, to read, and closed again. Whatever
comes in, the next line is read.
"""

import json
import math
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any, BinaryIO

from recollect import __version__
from recollect.mcp.door import Door
from recollect.model.home import HOOK_TOOL

MOST_BYTES = 4 * 1024 * 1024  # of a message; arguments of a tool take a few hundred
_PARSE_ERROR = -32700


class BadFrame(Exception):
    """A line that is no message; `code` and the text are what its sender gets."""

    def __init__(self, reason: str, code: int = _PARSE_ERROR) -> None:
        super().__init__(reason)
        self.code = code


def iter_frames(stream: BinaryIO, most_bytes: int = MOST_BYTES) -> Iterator[Any]:
    """Each message as Python values, or the BadFrame that it is."""
    while line := stream.readline(most_bytes + 1):
        if len(line) > most_bytes and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(most_bytes)
            yield BadFrame(f"Message longer than {most_bytes} bytes")
        elif line.strip():
            yield parse(line)


def parse(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        return BadFrame("Message nested too deeply")
    except ValueError as error:  # also: not UTF-8
        return BadFrame(f"Not JSON: {str(error)[:100]}")


def _finite(number: str) -> float:
    """A number that an answer can repeat: JSON has neither NaN nor infinity."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"no such number: {number[:20]}")
    return value


HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _INTERNAL, _BAD_VERSION = -32600, -32601, -32602, -32603, -32022
_ME = {"name": "recollect", "title": "Recollect", "version": __version__}
_CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
_CACHEABLE = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)

Object = Mapping[str, Any]


class Refused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Server:
    """One connection. `door` answers for what is recalled, this class for the protocol."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._cancelled: set[Any] = set()
        self._methods: dict[str, Callable[[Object], Object]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda params: {},
            "tools/list": lambda params: {"tools": door.tools()},
            "tools/call": self._call,
            "resources/list": lambda params: {"resources": door.resources()},
            "resources/templates/list": lambda params: {"resourceTemplates": door.resource_templates()},
            "resources/read": self._read,
            "prompts/list": lambda params: {"prompts": door.prompts()},
            "prompts/get": self._prompt,
        }

    def serve(self, reader: BinaryIO, writer: BinaryIO) -> None:
        """Answer until the agent closes its end. Reading goes on meanwhile, so that a request can be cancelled."""
        waiting: SimpleQueue[Any] = SimpleQueue()
        ended = object()

        def read() -> None:
            for frame in iter_frames(reader):
                self._note_cancelled(frame)
                waiting.put(frame)
            waiting.put(ended)

        threading.Thread(target=read, daemon=True).start()
        while (frame := waiting.get()) is not ended:
            answer = self.answer(frame)
            if answer is not None:
                writer.write(json.dumps(answer).encode() + b"\n")
                writer.flush()

    def _note_cancelled(self, frame: Any) -> None:
        params = frame.get("params") if isinstance(frame, dict) else None
        if isinstance(params, dict) and frame.get("method") == "notifications/cancelled":
            request = params.get("requestId")
            if isinstance(request, str | int):
                self._cancelled.add(request)

    def answer(self, frame: Any) -> Any:
        """What is answered to a message; None to a notification, and to what was cancelled."""
        if isinstance(frame, BadFrame):
            return _failure(None, {"code": frame.code, "message": str(frame)})
        if isinstance(frame, list) and frame:
            return [answer for item in frame if (answer := self._answer_one(item)) is not None] or None
        return self._answer_one(frame)

    def _answer_one(self, frame: Any) -> Any:
        if not isinstance(frame, dict) or not isinstance(frame.get("method"), str):
            is_answer = isinstance(frame, dict) and ("result" in frame or "error" in frame)
            return None if is_answer else _failure(_id(frame), {"code": _INVALID_REQUEST, "message": "Not a request"})
        if "id" not in frame:
            return None
        if not isinstance(frame["id"], str | int | float) or isinstance(frame["id"], bool):
            return _failure(None, {"code": _INVALID_REQUEST, "message": "`id` must be a string or a number"})
        if self._is_cancelled(frame["id"]):
            return None
        try:
            result = self._result(frame["method"], frame.get("params"))
        except Refused as refusal:
            return _failure(frame["id"], refusal.error)
        except Exception:  # the top of a door: one bad request must not end the agent's memory
            traceback.print_exc(file=sys.stderr)
            return _failure(frame["id"], {"code": _INTERNAL, "message": "Recollect could not handle this request"})
        answer = {"jsonrpc": "2.0", "id": frame["id"], "result": result}
        return None if self._is_cancelled(frame["id"]) else answer

    def _is_cancelled(self, request: Any) -> bool:
        if request not in self._cancelled:
            return False
        self._cancelled.discard(request)
        return True

    def _result(self, method: str, params: Any) -> Object:
        params = {} if params is None else params
        if not isinstance(params, dict):
            raise Refused(_INVALID_PARAMS, "`params` must be an object")
        version = _meta(params).get(_VERSION_KEY)
        if version is not None and version not in MODERN:
            supported = [*MODERN, *HANDSHAKES]
            raise Refused(
                _BAD_VERSION, "Unsupported protocol version", {"supported": supported, "requested": str(version)}
            )
        if method not in self._methods:
            raise Refused(_NO_METHOD, f"No such method: {method[:100]}")
        result = self._methods[method](params)
        if version is None:
            return result
        cached = {"ttlMs": 0, "cacheScope": "private"} if method in _CACHEABLE else {}
        return {"resultType": "complete", **cached, **result, "_meta": {_SERVER_KEY: _ME}}

    def _initialize(self, params: Object) -> Object:
        asked = params.get("protocolVersion")
        version = asked if asked in HANDSHAKES else HANDSHAKES[-1]
        return {"protocolVersion": version, "serverInfo": _ME, **self._offer(params.get("clientInfo"))}

    def _discover(self, params: Object) -> Object:
        return {"supportedVersions": [*MODERN, *HANDSHAKES], **self._offer(_meta(params).get(_CLIENT_KEY))}

    def _offer(self, client: Any) -> dict[str, Any]:
        name = client.get("name") if isinstance(client, dict) else None
        instructions = self._door.instructions(name if isinstance(name, str) else "")
        return {"capabilities": _CAPABILITIES, "instructions": instructions}

    def _call(self, params: Object) -> Object:
        name, arguments = params.get("name"), params.get("arguments")
        if name == HOOK_TOOL and isinstance(arguments, dict):
            return {"content": [{"type": "text", "text": self._door.hook(arguments)}], "isError": False}
        if not isinstance(name, str) or not self._door.has_tool(name):
            raise Refused(_INVALID_PARAMS, f"No such tool: {str(name)[:100]}")
        if not isinstance(arguments, dict | None):
            raise Refused(_INVALID_PARAMS, "`arguments` must be an object")
        text, is_error = self._door.call(name, arguments or {}, _meta(params))
        return {"content": [{"type": "text", "text": text}], "isError": is_error}

    def _read(self, params: Object) -> Object:
        uri = params.get("uri")
        text = self._door.read(uri) if isinstance(uri, str) else None
        if text is None:
            raise Refused(_INVALID_PARAMS, "Resource not found", {"uri": str(uri)[:500]})
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}

    def _prompt(self, params: Object) -> Object:
        arguments = params.get("arguments")
        text = self._door.prompt(str(params.get("name")), arguments if isinstance(arguments, dict) else {})
        if text is None:
            raise Refused(_INVALID_PARAMS, f"No such prompt: {str(params.get('name'))[:100]}")
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def _meta(params: Object) -> Object:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _id(frame: Any) -> Any:
    frame_id = frame.get("id") if isinstance(frame, dict) else None
    return frame_id if isinstance(frame_id, str | int) and not isinstance(frame_id, bool) else None


def _failure(request: Any, error: Object) -> Object:
    return {"jsonrpc": "2.0", "id": request, "error": error}
