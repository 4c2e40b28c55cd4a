"""What a prompt brings to mind: the fix of an error that it shows, or an earlier session that was asked the same.

Silent unless the match is strong: most prompts are new.
"""

import os
import re

from recollect.api import Filters, open_memory
from recollect.errors import RecollectError
from recollect.home import is_in_group
from recollect.hooks.event import HookEvent
from recollect.hooks.fixes import find_fix
from recollect.knowledge.signature import error_in
from recollect.recall.fence import USER, Recalled, fenced

_MOST_BYTES = 3_000
_REQUEST_CHARS = 600
_READ_CHARS = 4_000
_LEAST_WORDS = 5  # of both requests
_LEAST_SHARED = 0.75  # of the words of both
_CANDIDATES = 5
_LEAD = "Recollect: an earlier session here was asked nearly the same; `get_session` reads it."
_WORD = re.compile(r"[^\W_]{3,}")


def find_reminder(store_folder: str, event: HookEvent) -> tuple[str, str, str]:
    """What it is about, the fingerprint of the error a prompt shows, and what to tell the agent; empty for nothing."""
    error = error_in(event.prompt[:_READ_CHARS])
    signature, text = find_fix(store_folder, error, event.session) if error else ("", "")
    if text:
        return signature, signature, text
    session, text = ("", "") if is_in_group() else _asked_before(event)
    return session, "", text


def _asked_before(event: HookEvent) -> tuple[str, str]:
    """The session that was asked nearly the same here, and what to tell of it."""
    words = _words(event.prompt)
    if len(words) < _LEAST_WORDS:
        return "", ""
    try:
        with open_memory(create=False, read_only=True) as memory:
            here = Filters(repo=os.path.realpath(event.folder))
            # Looking for typing errors would take as long as the rest: a request that is the same has the same words.
            exclude, query = [event.session], " ".join(words)
            hits = memory.answer(
                query, here, limit=_CANDIDATES, matches=1, context=0, exclude=exclude, corrects=False
            ).hits
    except RecollectError:  # nothing is known of this repository, or no session has these words
        return "", ""
    for hit in hits:
        request = hit.first_request.snippet if hit.first_request else hit.title or ""
        if _is_same(words, _words(request)):
            record = Recalled(USER, f"session {hit.session_uid} was asked:", request[:_REQUEST_CHARS], repo=hit.repo)
            return hit.session_uid, f"{_LEAD}\n{fenced([record], _MOST_BYTES)[0]}"
    return "", ""


def _is_same(words: list[str], others: list[str]) -> bool:
    """Whether two requests are nearly the same by their words."""
    shared, total = set(words) & set(others), set(words) | set(others)
    return len(set(others)) >= _LEAST_WORDS and len(shared) >= _LEAST_SHARED * len(total)


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(text[:_READ_CHARS].lower())))
