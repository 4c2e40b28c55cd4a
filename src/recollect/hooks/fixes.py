"""What a failed call or a prompt brings to mind: the fix of its error, or an earlier session that was asked the same.

Looked up in what a sweep prepared. Silent unless the very same error was fixed, or the match is strong: most errors and
prompts are new.
"""

import json
import re

from recollect.hooks.answers import HookEvent
from recollect.knowledge import error_in, is_same_failure, signatures_of
from recollect.model.home import is_in_group
from recollect.model.text import CJK, spaced
from recollect.recall import AGENT, USER, Recalled, fenced, fixes_path, read_requests

_MOST_BYTES = 3_000
_LEAD = "Recollect: this error has occurred before; `recall_error` shows more."


def find_fix(store_folder: str, error_text: str, session: str) -> tuple[str, str]:
    """The fingerprint of the error and the text to add about it; empty if nothing is certain."""
    for signature in () if is_in_group() else signatures_of(error_text):
        try:
            with open(fixes_path(store_folder, signature), encoding="utf-8") as file:
                fix = json.load(file).get(signature)
        except (OSError, ValueError, AttributeError):  # also: damaged
            continue
        if not isinstance(fix, dict) or fix["session"].endswith(session):
            continue  # a session knows what it did itself
        if is_same_failure(fix["text"].partition("\n")[0].removeprefix("error: "), error_text):
            times = f"seen in {fix['sessions']} sessions" if fix["sessions"] > 1 else "seen once"
            again = f", came back {fix['returns']} times" if fix["returns"] else ""
            heading = f"{times}{again}; fixed in session {fix['session']} (confidence {fix['confidence']}) by:"
            text, _ = fenced([Recalled(AGENT, heading, fix["text"], fix["at_ms"], fix["repo"])], _MOST_BYTES)
            return signature, f"{_LEAD}\n{text}"
    return "", ""


_READ_CHARS = 4_000
_LEAST_WORDS = 12  # of both requests: shorter ones (“review this branch”) are about something else each time
_LEAST_SHARED = 0.75  # of the words of both
_ASKED_BEFORE = "Recollect: an earlier session here had nearly the same request; `get_session` reads it."
_WORD = re.compile(rf"[^\W_]{{3,}}|[{CJK}]{{2}}")


def find_reminder(store_folder: str, event: HookEvent) -> tuple[str, str, str]:
    """The subject of the reminder, the fingerprint of the error a prompt shows, and the text to add; or empty texts."""
    error = error_in(event.prompt[:_READ_CHARS])
    signature, text = find_fix(store_folder, error, event.session) if error else ("", "")
    if text:
        return signature, signature, text
    session, text = ("", "") if is_in_group() else _asked_before(store_folder, event)
    return session, "", text


def _asked_before(store_folder: str, event: HookEvent) -> tuple[str, str]:
    """The session here that had nearly the same request, and the text to add about it."""
    words = _words(event.prompt)
    if len(words) < _LEAST_WORDS:
        return "", ""
    for asked in reversed(read_requests(store_folder, event.folder)):
        session = asked["session"]
        others = _words(asked["text"])
        is_same = len(others) >= _LEAST_WORDS and len(words & others) >= _LEAST_SHARED * len(words | others)
        if is_same and not session.endswith(event.session):
            record = Recalled(USER, f"session {session} was asked:", asked["text"], repo=asked["repo"])
            return session, f"{_ASKED_BEFORE}\n{fenced([record], _MOST_BYTES)[0]}"
    return "", ""


def _words(text: str) -> set[str]:
    return set(_WORD.findall(spaced(text[:_READ_CHARS]).lower()))
