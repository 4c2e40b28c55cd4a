"""Values that sessions have newly named, hidden in what was stored of these sessions before."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from recollect.forget.erase import drop_prepared
from recollect.kinds import SessionKey
from recollect.store import HIDES_LEARNED, Store, by_root

if TYPE_CHECKING:
    from recollect.redact import KnownValues, Redactor


def hide_named(store: Store, redactor: "Callable[[], Redactor]") -> None:
    """Hide what is due in each session and its sub-agents; a scrub is due then.

    Values that were just read are at hand. What a stopped sweep left due is known by the digits of its mark only.
    """
    due = store.named_values.due()
    if not due:
        return
    rules, hidden = redactor(), list[SessionKey]()
    for root, marks in by_root(due).items():
        values = rules.known_values(marks, store.named_values.at_hand.get(root, ()))
        hidden += [key for key in (root, *store.erasure.named_after(root)) if _hide(store, key, values)]
    if hidden:
        store.rewrites.drop_old()
        store.kept.drop(hidden)
        drop_prepared(store)
    store.named_values.settle(due)


def _hide(store: Store, key: SessionKey, values: "KnownValues") -> bool:
    """Write a session again without these values, if any of its events has one; whether any had."""
    from recollect.forget.rescan import changed_payloads  # loads the rules of redaction, and most sweeps need none

    is_held = False
    # Again if a live host has appended meanwhile, for then nothing was replaced.
    while (stream := store.raw.find(*key)) and (payloads := changed_payloads(store, stream, values)[0]):
        is_held = True
        store.erasure.owe_scrub()
        store.redaction.hide_in_session(key, values)
        store.rewrites.replace(stream, payloads, HIDES_LEARNED, stream.redacted_with)
    return is_held
