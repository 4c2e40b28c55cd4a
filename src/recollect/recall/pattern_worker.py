"""The program that looks for a regular expression in texts, so that one which never ends can be killed.

Loads nothing but the standard library, to start at once. It reads the expression, then texts, each with its
length before it, and answers every text with the place of the first match.
"""

import re
import signal
import struct
import sys
from typing import BinaryIO

LENGTH = struct.Struct("<q")
PLACE = struct.Struct("<qq")
NOWHERE = (-1, -1)
_SECONDS = 30  # for a text; the parent gives up long before, unless nobody is there any more


def _read_text(source: BinaryIO) -> str | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return source.read(LENGTH.unpack(head)[0]).decode("utf-8", "surrogatepass")


def serve(source: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more texts."""
    pattern = re.compile(_read_text(source) or "")
    while (text := _read_text(source)) is not None:
        if hasattr(signal, "alarm"):
            signal.alarm(_SECONDS)
        found = pattern.search(text)
        answers.write(PLACE.pack(*(found.span() if found else NOWHERE)))
        answers.flush()


def run() -> None:
    """Be the program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this
    serve(sys.stdin.buffer, sys.stdout.buffer)
