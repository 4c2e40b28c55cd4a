"""Messages of JSON-RPC on standard input, a line each. Whatever comes in, the next line is read."""

import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

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
