"""The program that looks for a regular expression in texts, so that one which never comes to an end can be ended.

Loads nothing but the standard library, to be there at once. It is told the expression, then texts, each with its
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
_SECONDS = 30  # for a text; who asks gives up long before, unless nobody is there any more


def _read_text(asked: BinaryIO) -> str | None:
    head = asked.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return asked.read(LENGTH.unpack(head)[0]).decode("utf-8", "surrogatepass")


def serve(asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more texts."""
    pattern = re.compile(_read_text(asked) or "")
    while (text := _read_text(asked)) is not None:
        if hasattr(signal, "alarm"):
            signal.alarm(_SECONDS)
        found = pattern.search(text)
        answers.write(PLACE.pack(*(found.span() if found else NOWHERE)))
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks is interrupted too, and ends this
    serve(sys.stdin.buffer, sys.stdout.buffer)
