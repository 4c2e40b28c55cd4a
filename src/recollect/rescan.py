"""The rules of redaction applied to what is already stored: every text of every session, and every byte it lay in."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from recollect.account import AccountRules, account_for
from recollect.distill import distil_pending
from recollect.recall.index import index_pending
from recollect.redact.marks import OLDER, OTHER, compare_versions
from recollect.redact.redactor import Redactor
from recollect.store import Store
from recollect.store.events import in_pieces
from recollect.store.rewrite import (
    SESSION_TEXTS,
    UNFINISHED,
    HeldEvent,
    HeldStream,
    NewPayloads,
    NewStream,
    SideText,
)

Advance = Callable[[int, int], None]  # done, total

_STREAMS_AT_ONCE = 64


@dataclass(slots=True)
class RescanReport:
    """What a rescan looked at and replaced; `replaced` counts by rule."""

    sessions: int = 0
    sessions_changed: int = 0
    events_changed: int = 0
    unscannable: int = 0
    replaced: dict[str, int] = field(default_factory=dict)


def rescan(
    store: Store, redactor: Redactor, rules: AccountRules, advance: Advance, *, dry_run: bool = False
) -> RescanReport:
    """Apply the rules to every session that went through older rules, or none. The sweep's lock must be held."""
    streams = [stream for stream in store.rewrites.streams() if _is_due(stream, redactor.version)]
    if not dry_run:
        _drop_leftovers(store)
    report = _rescan(store, redactor, streams, advance, dry_run=dry_run)
    was_stopped = any(stream.redacted_with == UNFINISHED for stream in streams)  # the last time
    if (report.sessions_changed or was_stopped) and not dry_run:
        account_for(store, rules, lambda done, total: None)  # their content hashes; a sweep does the rest
        index_pending(store)
        distil_pending(store, lambda done, total: None)
        store.remains.scrub()
        store.rewrites.finish(streams, redactor.version)
    return report


def rescan_unredacted(store: Store, make_redactor: Callable[[], Redactor], advance: Advance) -> RescanReport:
    """Apply the rules to sessions stored before there were any. Part of a sweep, before sessions are accounted for."""
    _drop_leftovers(store)
    if not store.rewrites.has_unredacted():
        return RescanReport()
    streams = [stream for stream in store.rewrites.streams() if stream.redacted_with is None]
    redactor = make_redactor()
    report = _rescan(store, redactor, streams, advance, dry_run=False)
    store.rewrites.finish(streams, redactor.version)
    return report


def _drop_leftovers(store: Store) -> None:
    """Packs and bytes with the old text that an earlier rescan, or one that was killed, did not come to remove."""
    store.remains.scrub_if_due()
    if leftovers := store.rewrites.leftovers():
        store.rewrites.drop(leftovers)


def _is_due(stream: HeldStream, version: str) -> bool:
    return bool(stream.needs_rescan) or is_outdated(stream.redacted_with, version)


def is_outdated(redacted_with: str | None, version: str) -> bool:
    return redacted_with is None or compare_versions(redacted_with, version) in (OLDER, OTHER)


def _rescan(
    store: Store, redactor: Redactor, streams: Sequence[HeldStream], advance: Advance, *, dry_run: bool
) -> RescanReport:
    report = RescanReport(sessions=len(streams))
    before, unscannable = redactor.replaced.copy(), redactor.unscannable
    for start in range(0, len(streams), _STREAMS_AT_ONCE):
        _rescan_some(store, redactor, streams[start : start + _STREAMS_AT_ONCE], report, dry_run)
        advance(min(start + _STREAMS_AT_ONCE, len(streams)), len(streams))
    _rescan_rest(store, redactor, dry_run)
    report.replaced = dict(sorted((redactor.replaced - before).items()))
    report.unscannable = redactor.unscannable - unscannable
    return report


def _rescan_some(
    store: Store, redactor: Redactor, streams: Sequence[HeldStream], report: RescanReport, dry_run: bool
) -> None:
    """Some sessions; what they left behind goes when all of them are safe on the disk."""
    unchanged: list[HeldStream] = []
    old: list[Path] = []
    for stream in streams:
        new, events = _renewed(store, redactor, stream)
        if new is None:
            unchanged.append(stream)
            continue
        report.sessions_changed += 1
        report.events_changed += events
        if not dry_run:
            old += store.rewrites.replace(stream, new)
    if not dry_run:
        settled = [stream for stream in unchanged if stream.redacted_with != UNFINISHED]
        store.rewrites.mark(settled, redactor.version)
        if len(unchanged) < len(streams):
            store.rewrites.drop(old)


def _renewed(store: Store, redactor: Redactor, stream: HeldStream) -> tuple[NewStream | None, int]:
    """What a session becomes, and how many of its events change; None if nothing does."""
    events = store.rewrites.events(stream)
    new = NewStream(texts=_texts(redactor, events), side_texts=_side_texts(redactor, store.rewrites.side_texts(stream)))
    changed = {row[-1] for row in new.texts}
    payloads = NewPayloads()
    for some in in_pieces(events, attrgetter("bytes")):
        places = [(event.start, event.bytes) for event in some]
        content = list(store.events.iter_payloads(stream.agent, stream.native_id, places))
        replaced = redactor.payloads(content)
        changed |= {some[number].id for number in replaced}
        if replaced:
            new.payloads = payloads
        for number, event in enumerate(some):
            payloads.add(event.id, replaced.get(number, content[number]))
    if payloads.size < stream.stream_bytes:
        new.payloads = payloads  # earlier states of messages that grew lie between; nobody reads them any more
    if new.payloads is None and not new.texts and not new.side_texts:
        return None, 0
    return new, len(changed)


def _texts(redactor: Redactor, events: Sequence[HeldEvent]) -> list[tuple[Any, ...]]:
    """The rows of events whose short texts change."""
    summaries = redactor.texts([event.texts[0] or "" for event in events])
    metadata = redactor.payloads([(event.texts[1] or "{}").encode() for event in events])
    found: list[tuple[Any, ...]] = []
    for number, event in enumerate(events):
        told = metadata[number].decode() if number in metadata else event.texts[1]
        texts = (summaries.get(number, event.texts[0]), told)
        names = tuple(name and redactor.functional(name) for name in event.names)
        if texts != event.texts or names != event.names:
            found.append((*texts, *names, event.id))
    return found


def _side_texts(redactor: Redactor, texts: Iterable[SideText]) -> list[SideText]:
    """Those that change, as they become."""
    found = []
    sides = list(texts)
    for number in redactor.suspects([_decoded(side.text) for side in sides]):
        side = sides[number]
        new = _side_text(redactor, side)
        if new != side.text:
            found.append(side._replace(text=new))
    return found


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


def _side_text(redactor: Redactor, side: SideText) -> str | bytes:
    if isinstance(side.text, bytes):
        return redactor.text(_decoded(side.text)).encode("utf-8", "surrogateescape")
    if side.column in ("info", "state"):
        return redactor.payloads([side.text.encode()]).get(0, side.text.encode()).decode()
    return redactor.text(side.text)


def _rescan_rest(store: Store, redactor: Redactor, dry_run: bool) -> None:
    """Rows of sessions, and what was read from sources that no session came of."""
    sides = _side_texts(redactor, store.rewrites.side_texts(None))
    sessions = [row for row in (_session(redactor, *told) for told in store.rewrites.sessions()) if row is not None]
    paths = _renamed_paths(redactor, store.rewrites.paths())
    if dry_run:
        return
    store.remains.owe_scrub()
    if paths:
        store.rewrites.rename_paths(paths)
    if store.evictions.rewrite_texts(partial(_document, redactor), redactor.text) or paths:
        store.remains.scrub()
    store.remains.owe_no_scrub()
    if sides or sessions:
        store.rewrites.write_side_texts(sides)
        store.rewrites.write_sessions(sessions)
        store.rewrites.drop([])


def _renamed_paths(redactor: Redactor, paths: Sequence[str]) -> list[tuple[str, str]]:
    suspects = [paths[number] for number in redactor.suspects(paths)]
    renamed = ((redactor.functional(path), path) for path in suspects)
    return [(new, old) for new, old in renamed if new != old]


def _document(redactor: Redactor, content: bytes) -> bytes:
    return redactor.payloads([content]).get(0, content)


def _session(redactor: Redactor, agent: str, native_id: str, *told: str | None) -> tuple[Any, ...] | None:
    title, *documents = told[: len(SESSION_TEXTS)]
    new: list[str | None] = [title and redactor.text(title)]
    new += [text and redactor.payloads([text.encode()]).get(0, text.encode()).decode() for text in documents]
    new += [name and redactor.functional(name) for name in told[len(SESSION_TEXTS) :]]
    return (*new, agent, native_id) if tuple(new) != told else None
