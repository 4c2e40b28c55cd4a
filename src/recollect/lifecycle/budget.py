"""Decides which raw detail is dropped when the cache outgrows its budget; nothing here touches the store.

The order: analysed sessions that are old, then those analysed longest ago; over the hard cap, analysed last copies; and
only when nothing else is left, sessions without a digest.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.store import Eviction
    from recollect.store import HeldSession as Held

GIGABYTE = 1024**3
_DAY_MS = 86_400_000
_DISTRUST = 10

CADENCES = {"daily": 1, "weekly": 7, "on-hook": 1}  # days between sweeps, at most

AGE = "age"
SOFT_CAP = "soft cap"
HARD_CAP = "hard cap"
LAST_COPY = "hard cap, last copy"
UNANALYSED = "hard cap, not analysed"


@dataclass(frozen=True, slots=True)
class Limits:
    """The user's budget."""

    raw_soft_cap: int = 4 * GIGABYTE
    raw_hard_cap: int = 6 * GIGABYTE
    raw_max_age_days: int = 45
    evict_last_copy: bool = False
    distilled_cap: int = GIGABYTE
    cadence: str = "daily"

    @property
    def usual_gap_ms(self) -> int:
        """Return how long after a sweep the next one is due."""
        return CADENCES[self.cadence] * _DAY_MS


@dataclass(frozen=True, slots=True)
class Plan:
    """Lists what is dropped, in order. `analyze_first`: over the hard cap, with only unanalysed sessions left."""

    evictions: "list[Eviction]"
    bytes_after: int
    analyze_first: bool = False

    @property
    def first(self) -> "list[Eviction]":
        """Return what is dropped before sizes are measured again: the irreplaceable only when nothing else is left."""
        for reasons in ((AGE, SOFT_CAP, HARD_CAP), (LAST_COPY,), (UNANALYSED,)):
            if evictions := [eviction for eviction in self.evictions if eviction.reason in reasons]:
                return evictions
        return []


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)", re.IGNORECASE)
_POWERS = "BKMGT"


def parse_size(text: str) -> int:
    """`4GiB`, `500 MB`, `1.5GB`: bytes. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    unit = match[2].upper()
    step = 1024 if "I" in unit else 1000
    return round(float(match[1]) * float(step ** _POWERS.index(unit[0])))


def trusted_from_ms(clock: tuple[int, int] | None, now_ms: int, limits: Limits) -> int:
    """From when on the clock is trusted, so that sessions may be dropped for their age.

    `clock` is the time of the last sweep, and what this returned then. If more than a day has passed beyond the usual
    time between two sweeps, the clock may be wrong: it has to run on for a tenth of that time, or be set back.
    """
    last_ms, trusted_ms = clock or (now_ms, 0)
    if now_ms < last_ms:
        return 0
    passed_ms = now_ms - last_ms
    if passed_ms <= limits.usual_gap_ms + _DAY_MS:
        return trusted_ms
    return max(trusted_ms, now_ms + max(limits.usual_gap_ms, passed_ms // _DISTRUST))


def plan(
    held: "Sequence[Held]", raw_bytes: int, limits: Limits, now_ms: int, *, is_clock_sane: bool, is_all_analyzed: bool
) -> Plan:
    """Decide what to drop so that the `raw_bytes` of Tier 1 fit the limits.

    `is_clock_sane` is False after the clock jumped a day forward: then nothing is dropped for its age.
    `is_all_analyzed`: analysing was tried, so what is not analysed cannot be.
    """
    from recollect.store import Eviction  # settings need `Limits`, and no store

    taken, left = dict[str, Eviction](), raw_bytes

    def take(candidates: "Iterable[Held]", reason: str, down_to: int = -1) -> None:
        nonlocal left
        for session in candidates:
            if left <= down_to:
                return
            if session.session_uid not in taken:
                is_loss = reason == HARD_CAP and session.is_last_copy
                taken[session.session_uid] = Eviction(session, LAST_COPY if is_loss else reason)
                left = max(0, left - session.bytes)

    if is_clock_sane:
        horizon = horizon_ms(limits, now_ms)
        take([session for session in _spare(held, limits) if session.active_ms < horizon], AGE)
    take(_spare(held, limits), SOFT_CAP, limits.raw_soft_cap)
    if left <= limits.raw_hard_cap:
        return Plan(list(taken.values()), left)
    fresh = [session for session in held if session.analyzed_ms is None]
    if fresh and not is_all_analyzed:
        return Plan(list(taken.values()), left, analyze_first=True)
    # A fork's base can be read again, a last copy cannot.
    by_loss = sorted(_analyzed(held), key=lambda session: (session.is_last_copy, session.has_forks))
    take(by_loss, HARD_CAP, limits.raw_hard_cap)
    by_activity = sorted(fresh, key=lambda session: (session.active_ms, session.session_uid))
    take(by_activity, UNANALYSED, limits.raw_hard_cap)
    return Plan(list(taken.values()), left)


def horizon_ms(limits: Limits, now_ms: int) -> int:
    """A session that was active since then is never dropped for its age."""
    return now_ms - limits.raw_max_age_days * _DAY_MS


def _analyzed(held: "Sequence[Held]") -> "list[Held]":
    """Analysed sessions, the earliest analysed first; among those analysed together, the oldest activity first."""
    analyzed = [session for session in held if session.analyzed_ms is not None]
    return sorted(analyzed, key=lambda session: (session.analyzed_ms or 0, session.ended_ms, session.session_uid))


def _spare(held: "Sequence[Held]", limits: Limits) -> "Iterator[Held]":
    """Analysed sessions that can be read again; without the bases of forks, and without last copies unless allowed."""
    for session in _analyzed(held):
        if not session.has_forks and (limits.evict_last_copy or not session.is_last_copy):
            yield session
