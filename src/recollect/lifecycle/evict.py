"""Keeps the store within its budget: measure, plan, drop, measure again. Runs at the end of every sweep.

Before anything is dropped, its digest is read back and the eviction is recorded on disk. So if this is interrupted, the
next sweep finishes it. What must not go unnoticed is passed to the command in `[notify] command`, if there is one.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from recollect import analysis
from recollect.lifecycle.budget import LAST_COPY, UNANALYSED, Limits, Plan, horizon_ms, plan, trusted_from_ms
from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import Busy, StoreDamaged, StoreUnwritable
from recollect.store import DATA_LOSS, LAST_COPY_EVICTED, Eviction, RetentionEvent, Store

_SECONDS = 10
Notice = dict[str, str | int | None]  # never a word of a session's content


def _notice(event: str, at_ms: int, session: str | None, size: int) -> Notice:
    return {"event": event, "at": rfc3339(at_ms), "session": session, "bytes": size}


def send(command: Sequence[str], notices: Sequence[Notice]) -> bool:
    """Give the command one JSON document on stdin; return whether it succeeded. A sweep never fails because of it."""
    if not command or not notices:
        return False
    import subprocess  # slow to load, and most sweeps have nothing to report

    document = orjson.dumps({"recollect": 1, "events": notices}) + b"\n"
    try:
        process = subprocess.run(list(command), input=document, timeout=_SECONDS, capture_output=True, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return process.returncode == 0


_AT_ONCE = 50  # other writers wait meanwhile
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_SMALL_BYTES = 256 * 1024 * 1024  # a database of this size is rewritten in a second or two
_LOSSES = {LAST_COPY: LAST_COPY_EVICTED, UNANALYSED: DATA_LOSS}

Advance = Callable[[int, int], None]  # done, total


@dataclass(slots=True)
class BudgetReport:
    """Counts what was dropped and what is left, with what to warn about."""

    raw_bytes: int = 0
    distilled_bytes: int = 0
    sessions_evicted: int = 0
    bytes_evicted: int = 0
    data_loss: int = 0
    last_copies_evicted: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Holds the sizes of the tiers, what would be evicted now, and unrecoverable losses, newest first."""

    raw_bytes: int
    bytes_after: int
    distilled_bytes: int
    last_copy_bytes: int
    limits: Limits
    evictions: list[Eviction]
    losses: dict[str, int]
    lost: list[RetentionEvent]

    def to_json(self) -> dict[str, Any]:
        evictions = [
            {"session_uid": eviction.held.session_uid, "bytes": eviction.held.bytes, "reason": eviction.reason}
            for eviction in self.evictions
        ]
        lost = [
            {"at": rfc3339(loss.at_ms), "event": loss.event, "session_uid": loss.session_uid, "bytes": loss.bytes}
            for loss in self.lost
        ]
        return asdict(self) | {"evictions": evictions, "lost": lost}


def keep_within_budget(
    store: Store, limits: Limits, host: str, advance: Advance, *, notify: Sequence[str] = ()
) -> BudgetReport:
    """Drop raw detail until Tier 1 fits; warn if Tier 2 does not. The sweep's lock must be held."""
    work = _Work(store, limits, host, now_ms())
    work.run(advance)
    send(notify, work.notices)
    return work.report


def finish_evictions(store: Store) -> None:
    """Finish interrupted evictions. Must run before anything is read, because what is read then is new."""
    if unfinished := store.evictions.unfinished():
        store.evictions.drop_raw(sorted(unfinished))
        _leave_nothing(store, now_ms())


def look_ahead(store: Store, limits: Limits, host: str) -> Outlook:
    """Measure the store and plan what would be evicted now; changes nothing."""
    moment = now_ms()
    held, raw = store.sizes.held(host, moment), store.sizes.raw_bytes()
    is_sane = moment >= trusted_from_ms(store.evictions.clock(), moment, limits)
    planned = plan(held, raw, limits, moment, is_clock_sane=is_sane, is_all_analyzed=True)
    return Outlook(
        raw_bytes=raw,
        bytes_after=planned.bytes_after,
        distilled_bytes=store.sizes.distilled_bytes(),
        last_copy_bytes=sum(session.bytes for session in held if session.is_last_copy),
        limits=limits,
        evictions=planned.evictions,
        losses=store.evictions.loss_counts(),
        lost=store.evictions.losses(),
    )


class _Work:
    """One run over the budget."""

    def __init__(self, store: Store, limits: Limits, host: str, at_ms: int) -> None:
        self._store = store
        self._limits = limits
        self._host = host
        self._at_ms = at_ms
        self._trusted_from_ms = trusted_from_ms(store.evictions.clock(), at_ms, limits)
        self._is_clock_sane = at_ms >= self._trusted_from_ms
        self._remade: set[str] = set()  # sessions whose unreadable digest was made anew
        self._kept: set[str] = set()  # sessions for which that did not help
        self.notices: list[Notice] = []
        self.report = BudgetReport(raw_bytes=store.sizes.raw_bytes(enough=limits.raw_soft_cap))

    def run(self, advance: Advance) -> None:
        horizon = horizon_ms(self._limits, self._at_ms)
        is_over = self.report.raw_bytes > self._limits.raw_soft_cap
        if is_over or (self._is_clock_sane and self._store.sizes.has_older(horizon)):
            self._evict(advance)
        self.report.distilled_bytes = size = self._store.sizes.distilled_bytes()
        if size > (cap := self._limits.distilled_cap):  # digests are never dropped
            self.report.warnings.append(
                f"Digests take {size:,} bytes, over retention.distilled_cap ({cap:,}); they are never evicted"
            )
            self.notices.append(_notice("distilled_over_cap", self._at_ms, None, size))
        # When ages were checked: to the hour, because a sweep that finds nothing new writes nothing.
        clock = self._store.evictions.clock()
        if clock is None or abs(self._at_ms - clock[0]) > _HOUR_MS:
            self._store.evictions.set_clock(self._at_ms, self._trusted_from_ms)

    def _evict(self, advance: Advance) -> None:
        """Plan and drop until the plan is empty: what the index frees is only known afterwards.

        Tidying up may take a page or two, so that more has to go.
        """
        self._drop_planned(advance)
        if self._plan(is_all_analyzed=True).evictions:
            self._drop_planned(advance)
        self.report.raw_bytes = size = self._store.sizes.raw_bytes()
        if size > (cap := self._limits.raw_hard_cap):
            self.report.warnings.append(
                f"{size:,} bytes cannot be evicted, more than retention.raw_hard_cap ({cap:,}): raise it"
            )

    def _drop_planned(self, advance: Advance) -> None:
        is_all_analyzed = False
        while (planned := self._plan(is_all_analyzed)).evictions or planned.analyze_first:
            set_aside = len(self._remade)
            self._drop(planned.first, advance)
            if planned.analyze_first or len(self._remade) > set_aside:
                analysis.distil_pending(self._store, lambda done, total: None)
            is_all_analyzed = is_all_analyzed or planned.analyze_first
        _leave_nothing(self._store, self._at_ms)

    def _plan(self, is_all_analyzed: bool) -> Plan:
        return plan(
            [one for one in self._store.sizes.held(self._host, self._at_ms) if one.session_uid not in self._kept],
            self._store.sizes.raw_bytes(),
            self._limits,
            self._at_ms,
            is_clock_sane=self._is_clock_sane,
            is_all_analyzed=is_all_analyzed,
        )

    def _drop(self, planned: Sequence[Eviction], advance: Advance) -> None:
        """Drop these sessions, except those whose digest cannot be read back."""
        for start in range(0, len(planned), _AT_ONCE):
            batch = planned[start : start + _AT_ONCE]
            ready = list(filter(None, map(self._prepared, batch)))
            if ready:
                self._store.evictions.add(ready, self._at_ms)
                self._store.evictions.drop_raw([eviction.key for eviction in ready])
            for held, _, _, loss in ready:
                self.report.sessions_evicted += 1
                self.report.bytes_evicted += held.bytes
                self.report.data_loss += loss == DATA_LOSS
                self.report.last_copies_evicted += loss == LAST_COPY_EVICTED
                if loss:
                    self.notices.append(_notice(loss, self._at_ms, f"{held.agent}:{held.native_id}", held.bytes))
            advance(start + len(batch), len(planned))
        if planned:
            self._store.erasure.leave_no_word()

    def _prepared(self, eviction: Eviction) -> Eviction | None:
        """An eviction with the digest read back; None if that fails, because then raw is all there is.

        A digest that cannot be read is made anew. If that was tried before, the session is kept.
        """
        held, loss, digests = eviction.held, _LOSSES.get(eviction.reason), self._store.digest_rows
        digest = None
        with suppress(StoreDamaged):
            digest = digests.read_back(*eviction.key)
        if digest is not None or loss == DATA_LOSS:
            return eviction._replace(digest=digest, loss=loss)
        if held.session_uid not in self._remade and digests.set_outdated(*eviction.key):
            self._remade.add(held.session_uid)
        else:
            self._kept.add(held.session_uid)
            self.report.warnings.append(f"Kept because its digest cannot be read back: {held.session_uid}")
        return None


def _leave_nothing(store: Store, at_ms: int) -> None:
    """Remove every byte of what was dropped. Without room, or while somebody reads, the last of it waits.

    Words leave the index at once. What SQLite leaves in unused parts of pages (a few words of ten thousand) takes a
    rewrite of cache.db: a large one is rewritten once a day.
    """
    begun_ms = store.evictions.unfinished_since_ms()
    if begun_ms is None:
        return
    names = store.evictions.unfinished()
    store.erasure.leave_no_word()
    if store.sizes.cache_bytes() <= _SMALL_BYTES or begun_ms <= at_ms - _DAY_MS:
        with suppress(StoreUnwritable, Busy):
            store.evictions.finish(names)
