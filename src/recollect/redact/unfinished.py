"""Secrets of which only the beginning is written yet: a message that is still growing may end within one."""

import re

from recollect.redact.formats import TOKENS

_LEAST_OPENER = 3
_MOST_CHARS = 5000  # more than a token has
_OPENERS = sorted({word for rule in TOKENS for word in rule.openers if len(word) >= _LEAST_OPENER}, key=len)
# A few characters of a token are worth nothing to anybody; a run of small letters is a word.
_BEGINNING = re.compile(
    rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, reversed(_OPENERS)))})(?=\S*[A-Z0-9])[A-Za-z0-9_.~+/=-]{{8,}}\Z"
)


def find_beginning(text: str) -> str | None:
    """The beginning of a token at the very end of a text, if there may be one."""
    match = _BEGINNING.search(text[-_MOST_CHARS:])
    return match[0] if match else None
