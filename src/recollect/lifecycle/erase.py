"""Erasing forgotten sessions. Whatever stops it, the next forget or sweep finishes it.

What agents in sandboxes were answered and shown quotes sessions outside the databases, so none of it stays.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect import analysis, sessions
from recollect.model.errors import Busy, StoreUnwritable, UsageError
from recollect.model.files import remove, replace_file
from recollect.model.home import HOOK_LOG_NAME, PREPARED_NAME, SPENDING_NAME
from recollect.model.kinds import SessionKey, session_uid
from recollect.model.shared_folder import ANSWERS, HISTORY_NAME, TASKS_NAME, SharedFolder, open_shared
from recollect.model.text import silent
from recollect.sessions import GROUPS_FOLDER
from recollect.store import HIDES_LEARNED, TOMBSTONE, Store, Tombstone, by_root

if TYPE_CHECKING:
    from recollect.redact import KnownValues, Redactor
    from recollect.sessions import AccountRules


ANSWERS_KEPT_MS = 24 * 3_600_000


def count_answers(store: Store) -> int:
    """Count the answers that are held, as files or with their requests."""
    held = set(store.groups.answered())
    for group, _, answers in _folders(store):
        held |= {(group, name.removesuffix(".json")) for name in answers.names()}
    return len(held)


def expire_answers(store: Store, before_ms: int | None = None) -> None:
    """Delete the answers given before then; without a time all of them, and the snapshots.

    A request stays known with its outcome, so that it is not done again.
    """
    store.groups.expire_answers(before_ms)
    for _, ipc, answers in _folders(store):
        answers.drop(before_ms)
        for name in (HISTORY_NAME, TASKS_NAME) if before_ms is None else ():
            ipc.remove(name)


def _folders(store: Store) -> Iterator[tuple[str, SharedFolder, SharedFolder]]:
    """Yield the IPC folder of each group with its answers, also of removed groups."""
    for path in sorted((store.folder / GROUPS_FOLDER).glob("*/ipc")):
        with suppress(UsageError), open_shared(path) as ipc, ipc.below(ANSWERS) as answers:
            yield path.parent.name, ipc, answers


FINISHES_FORGETTING = "`recollect sweep` finishes it; it needs free space, and no other program reading the store"


def drop(store: Store, keys: Collection[SessionKey]) -> None:
    """Delete what is held of sessions; bytes of it may stay in unused parts of the databases until a scrub."""
    if store.evictions.names():
        from recollect.lifecycle.rescan import drop_lines  # loads the rules of redaction

        drop_lines(store, keys)
    store.erasure.drop(keys)
    expire_answers(store)
    _drop_sums(store)
    _shorten_log(store.folder / HOOK_LOG_NAME, {key.native_id for key in keys})
    ids = {key.native_id for key in keys} | {session_uid(*key) for key in keys}
    store.ledger.rewrite(lambda record: record.kind == TOMBSTONE or ids.isdisjoint(_texts(record.data)))


def drop_prepared(store: Store) -> None:
    """Remove files with quotes of sessions beside the databases; the log of hooks begins anew."""
    expire_answers(store)
    (store.folder / HOOK_LOG_NAME).unlink(missing_ok=True)
    _drop_sums(store)


def _drop_sums(store: Store) -> None:
    """Remove what is made of all sessions together; the next sweep makes it again."""
    (store.folder / SPENDING_NAME).unlink(missing_ok=True)
    remove(store.folder / PREPARED_NAME)


def _shorten_log(path: Path, ids: Collection[str]) -> None:
    """Take sessions out of the log of hooks: what was added to them, and what was added to others in their words."""
    with suppress(FileNotFoundError):
        lines = path.read_bytes().splitlines()
        left = [line for raw in lines if (line := _without_sessions(raw, ids)) is not None]
        replace_file(path, b"".join(line + b"\n" for line in left))


def _without_sessions(raw: bytes, ids: Collection[str]) -> bytes | None:
    """A line of that log without the text that may be a session's, or None for a session's own.

    A brief is in the words of several sessions and does not name them all.
    """
    try:
        line = json.loads(raw)
        if line["session"] in ids:
            return None
        if line["event"] == "SessionStart" or any(name in line["text"] for name in ids):
            return json.dumps(line | {"text": ""}).encode()
    except (ValueError, LookupError, TypeError):  # one that is cut off
        return None
    return raw


def finish_forgetting(store: Store, rules: "AccountRules", domains: Mapping[str, str]) -> None:
    """Finish what was stopped: a tombstone whose session is still held, or whose last step is missing."""
    store.tombstones.take_over()
    # Sub-agents of forgotten sessions that were stored before a log showed whose they are go too.
    while heirs := store.erasure.heirs(store.tombstones.names()):
        store.tombstones.add([Tombstone(*key, b"") for key in heirs])
    forgotten = store.tombstones.names()
    left = store.tombstones.unfinished() | store.erasure.existing(forgotten) if forgotten else set()
    if not left:
        return
    drop(store, left)
    # Without room, or while somebody reads, the last step has to wait; doctor reports it.
    with suppress(StoreUnwritable, Busy):
        leave_no_byte(store, rules, domains, left)


def leave_no_byte(
    store: Store, rules: "AccountRules", domains: Mapping[str, str], keys: Collection[SessionKey]
) -> None:
    """Take sessions that were dropped out of what was made of others with them, and out of every unused page."""
    sessions.settle_sessions(store, rules, domains, silent)
    sessions.name_repos(store, domains)
    analysis.distil_pending(store, lambda done, total: None)  # a root's digest has a line for each of its sub-agents
    store.erasure.scrub()
    store.tombstones.finish(keys)


def scrub_if_due(store: Store) -> None:
    """Leave no byte of what was replaced; without room, or while somebody reads, the next sweep does it."""
    with suppress(StoreUnwritable, Busy):
        store.erasure.scrub_if_due()


def drop_leftovers(store: Store) -> None:
    """Remove packs and bytes with the old text that an earlier rescan, or one that was killed, left."""
    scrub_if_due(store)
    if store.rewrites.has_old():
        store.rewrites.drop_old()


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in _texts(part)]


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
    from recollect.lifecycle.rescan import changed_payloads  # loads the rules of redaction, and most sweeps need none

    is_held = False
    # Again if a live host has appended meanwhile, for then nothing was replaced.
    while (stream := store.raw.find(*key)) and (payloads := changed_payloads(store, stream, values)[0]):
        is_held = True
        store.erasure.owe_scrub()
        store.redaction.redact_session(key, values, with_memory=True)
        store.rewrites.replace(stream, payloads, HIDES_LEARNED, stream.redacted_with)
    return is_held
