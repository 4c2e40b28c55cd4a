"""What fixed an error before, looked up in what a sweep prepared. Silent unless the very same error was fixed."""

import json

from recollect.home import is_in_group
from recollect.knowledge import is_same_failure, signatures_of
from recollect.recall import fixes_path

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from typing import Any

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
            return signature, _text(fix)
    return "", ""


def _text(fix: "dict[str, Any]") -> str:
    from recollect.recall import AGENT, Recalled, fenced  # its patterns take a while, and most errors are new

    times = f"seen in {fix['sessions']} sessions" if fix["sessions"] > 1 else "seen once"
    again = f", came back {fix['returns']} times" if fix["returns"] else ""
    heading = f"{times}{again}; fixed in session {fix['session']} (confidence {fix['confidence']}) by:"
    text, _ = fenced([Recalled(AGENT, heading, fix["text"], fix["at_ms"], fix["repo"])], _MOST_BYTES)
    return f"{_LEAD}\n{text}"
