"""Keeping the store within its budget: measure, plan, drop, measure again. Runs at the end of every sweep.

Whatever goes, its digest was read back first, and the note that it goes is on the disk before the first byte is
deleted. So whatever stops this, the next sweep goes on with it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from recollect.clock import now_ms, rfc3339
from recollect.config import Settings
from recollect.distill import distil_pending
from recollect.errors import Busy, StoreDamaged, StoreUnwritable
from recollect.notify import Notice, tell
from recollect.retention import (
    DATA_LOSS,
    LAST_COPY,
    Eviction,
    Plan,
    Share,
    find_stays,
    horizon_ms,
    is_clock_sane,
    plan,
)
from recollect.store import Store, ballast, evictions
from recollect.store.tiers import Held

_AT_ONCE = 50  # others wait to write meanwhile
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_SMALL_BYTES = 256 * 1024 * 1024  # a database of this size is written anew in a second or two
_FORECAST_DAYS = 30  # how far back the growth is measured
_LOSSES = {LAST_COPY: evictions.LAST_COPY_EVICTED, DATA_LOSS: evictions.DATA_LOSS}

Advance = Callable[[int, int], None]  # done, total


@dataclass(slots=True)
class BudgetReport:
    """What keeping within the budget did. `losses` are sessions that cannot be had again, with what they were."""

    raw_bytes: int = 0
    distilled_bytes: int = 0
    sessions_evicted: int = 0
    bytes_evicted: int = 0
    data_loss: int = 0
    last_copies_evicted: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outlook:
    """How the tiers stand. `last_copies_go_at` is when the hard cap will take last copies if work goes on like this."""

    raw_bytes: int
    distilled_bytes: int
    last_copy_bytes: int
    growth_bytes_per_day: int
    last_copies_go_at: str | None
    losses: dict[str, int]
    plan: Plan
    stays: dict[str, Share]


def keep_within_budget(store: Store, settings: Settings, advance: Advance, *, at_ms: int | None = None) -> BudgetReport:
    """Drop raw detail until Tier 1 fits; warn if Tier 2 does not. The sweep's lock must be held."""
    work = _Work(store, settings, now_ms() if at_ms is None else at_ms)
    if work.has_work():
        with ballast.more_room(store.folder, work.report.raw_bytes):
            work.run(advance)
    work.look_at_tier_2()
    tell(settings.notify, work.notices)
    work.note_time()
    return work.report


def finish_evictions(store: Store) -> None:
    """Go on with what was stopped. Must be done before anything is read, for what comes then is new."""
    left = store.evictions.unfinished()
    if left:
        store.evictions.drop_raw(sorted(left))
        _leave_nothing(store, now_ms())


def look_ahead(store: Store, settings: Settings, at_ms: int | None = None) -> Outlook:
    """What would go now, and how things will come. Changes nothing."""
    limits, moment = settings.limits, now_ms() if at_ms is None else at_ms
    held = store.tiers.held(settings.host, moment)
    raw = store.tiers.raw_bytes()
    is_sane = is_clock_sane(store.evictions.last_look_ms(), moment, limits)
    planned = plan(held, raw, limits, moment, is_clock_sane=is_sane, is_all_analyzed=True)
    last = sum(one.bytes for one in held if one.is_last_copy)
    growth = _growth(held, moment)
    return Outlook(
        raw_bytes=raw,
        distilled_bytes=store.tiers.distilled_bytes(),
        last_copy_bytes=last,
        growth_bytes_per_day=growth,
        last_copies_go_at=_date(limits.raw_hard_cap - last, growth, moment) if last else None,
        losses=store.evictions.loss_counts(),
        plan=planned,
        stays=find_stays(held, planned),
    )


def _growth(held: Sequence[Held], at_ms: int) -> int:
    """Bytes a day of what was done in the last weeks: the years that a first sweep reads are no growth."""
    begun = at_ms - _FORECAST_DAYS * _DAY_MS
    return round(sum(one.bytes for one in held if one.ended_ms >= begun) / _FORECAST_DAYS)


def _date(room: int, growth: int, at_ms: int) -> str | None:
    """When room will be used up, if that is within some years."""
    days = room / growth if growth else 10_000
    return rfc3339(at_ms + round(max(0.0, days) * _DAY_MS)) if days < 1000 else None


class _Work:
    """One run over the budget."""

    def __init__(self, store: Store, settings: Settings, at_ms: int) -> None:
        self._store = store
        self._limits = settings.limits
        self._host = settings.host
        self.at_ms = at_ms
        self._is_clock_sane = is_clock_sane(store.evictions.last_look_ms(), at_ms, settings.limits)
        self._remade: set[str] = set()  # sessions whose digest could not be read back and was made anew
        self._kept: set[str] = set()  # those for which that did not help
        self.notices: list[Notice] = []
        self.report = BudgetReport(raw_bytes=store.tiers.raw_bytes(enough=settings.limits.raw_soft_cap))

    def has_work(self) -> bool:
        is_over = self.report.raw_bytes > self._limits.raw_soft_cap
        return is_over or (self._is_clock_sane and self._store.tiers.has_older(horizon_ms(self._limits, self.at_ms)))

    def run(self, advance: Advance) -> None:
        """Plan and drop until the plan is empty: what the index gives back is only known afterwards."""
        is_all_analyzed = False
        while (planned := self._plan(is_all_analyzed)).evictions or planned.analyze_first:
            set_aside = len(self._remade)
            self._apply(planned.first, advance)
            if planned.analyze_first or len(self._remade) > set_aside:
                distil_pending(self._store, lambda done, total: None)
            is_all_analyzed = is_all_analyzed or planned.analyze_first
        _leave_nothing(self._store, self.at_ms)
        size, cap = self._store.tiers.raw_bytes(), self._limits.raw_hard_cap
        self.report.raw_bytes = size
        if size > cap:
            self.report.warnings.append(
                f"{size:,} bytes are left that cannot be dropped, more than retention.raw_hard_cap ({cap:,}): raise it"
            )

    def _plan(self, is_all_analyzed: bool) -> Plan:
        held = [one for one in self._store.tiers.held(self._host, self.at_ms) if one.session_uid not in self._kept]
        return plan(
            held,
            self._store.tiers.raw_bytes(),
            self._limits,
            self.at_ms,
            is_clock_sane=self._is_clock_sane,
            is_all_analyzed=is_all_analyzed,
        )

    def _apply(self, planned: Sequence[Eviction], advance: Advance) -> None:
        """Drop these sessions, but for those whose digest cannot be read back."""
        for start in range(0, len(planned), _AT_ONCE):
            some = planned[start : start + _AT_ONCE]
            prepared = [one for eviction in some if (one := self._prepared(eviction)) is not None]
            if prepared:
                self._drop(prepared)
            advance(start + len(some), len(planned))
        if planned:
            self._store.evictions.leave_no_word()

    def _prepared(self, eviction: Eviction) -> evictions.Eviction | None:
        """An eviction with the digest read back; None if that fails, for then raw is all there is."""
        held = eviction.held
        try:
            digest = self._store.digests.read_back(held.agent, held.native_id)
        except StoreDamaged:
            digest = None
        loss = _LOSSES.get(eviction.reason)
        if digest is None and loss != evictions.DATA_LOSS:
            self._set_aside(held)
            return None
        return evictions.Eviction(held.agent, held.native_id, eviction.reason, held.bytes, digest, loss)

    def _set_aside(self, held: Held) -> None:
        """Have a digest made anew that cannot be read back; if that was in vain, keep the session."""
        if held.session_uid not in self._remade and self._store.digests.set_outdated(held.agent, held.native_id):
            self._remade.add(held.session_uid)
            return
        self._kept.add(held.session_uid)
        self.report.warnings.append(f"Kept, for its digest cannot be read back: {held.session_uid}")

    def _drop(self, some: list[evictions.Eviction]) -> None:
        names = evictions.names_of(some)
        self._store.evictions.add(some, self.at_ms)
        self._store.evictions.drop_raw(names)
        self.report.sessions_evicted += len(some)
        self.report.bytes_evicted += sum(one.bytes for one in some)
        self.report.data_loss += sum(one.loss == evictions.DATA_LOSS for one in some)
        self.report.last_copies_evicted += sum(one.loss == evictions.LAST_COPY_EVICTED for one in some)
        self.notices += [
            Notice(one.loss, rfc3339(self.at_ms), ":".join(one.name), one.bytes) for one in some if one.loss
        ]

    def note_time(self) -> None:
        """Note when ages were looked at; to the hour, for a sweep that finds nothing new is to write nothing."""
        last = self._store.evictions.last_look_ms()
        if last is None or abs(self.at_ms - last) > _HOUR_MS:
            self._store.evictions.set_last_look(self.at_ms)

    def look_at_tier_2(self) -> None:
        """Digests are never dropped: when they outgrow their cap somebody has to know."""
        size, cap = self._store.tiers.distilled_bytes(), self._limits.distilled_cap
        self.report.distilled_bytes = size
        if size > cap:
            self.report.warnings.append(
                f"Digests take {size:,} bytes, more than retention.distilled_cap ({cap:,}); nothing of them is dropped"
            )
            self.notices.append(Notice("distilled_over_cap", rfc3339(self.at_ms), None, size))


def _leave_nothing(store: Store, at_ms: int) -> None:
    """See to it that no byte of what was dropped is left. For lack of room, or readers, the last of it has to wait.

    Words leave the index at once. What SQLite leaves behind in unused parts of pages (a few words of ten thousand)
    needs all of cache.db written anew: a large one is, but once a day.
    """
    begun_ms = store.evictions.unfinished_since_ms()
    if begun_ms is None:
        return
    names = store.evictions.unfinished()
    store.evictions.leave_no_word()
    if store.tiers.cache_bytes() <= _SMALL_BYTES or begun_ms <= at_ms - _DAY_MS:
        with suppress(StoreUnwritable, Busy):
            store.evictions.leave_no_byte()
            store.evictions.finish(names)
