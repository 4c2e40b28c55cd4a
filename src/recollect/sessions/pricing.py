"""What sessions cost: as the agent says, else tokens times the price list, which is always marked as an estimate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from recollect.kinds import SessionKey
from recollect.sessions.price_list import price_of
from recollect.sessions.relations import Relations
from recollect.store import Response, RunningTotal, Store, StoredSession

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_FIRST = Response._fields.index(TOKENS[0])
HOUR_MS = 3_600_000
PICO = 10**12


@dataclass(frozen=True, slots=True)
class Money:
    """What a session used itself."""

    tokens: tuple[int, ...]
    usd: float | None
    is_estimate: bool

    def columns(self) -> dict[str, Any]:
        """As a session's row has them."""
        return {**dict(zip(TOKENS, self.tokens, strict=True)), "usd": self.usd, "usd_is_estimate": self.is_estimate}


class Used(NamedTuple):
    """What responses of one model used in one hour. Whole numbers, so that any order of adding gives the same."""

    hour: int | None
    model: str | None
    responses: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    priced: int  # responses whose price is known
    picodollars: int  # of these
    unstated: int  # responses of which the agent does not say what they cost
    with_sub_agents: int  # responses whose figures include those of sub-agents

    @property
    def key(self) -> tuple[int | None, str | None]:
        return self.hour, self.model


def add_up(responses: Iterable[Response], before: Iterable[Used] = ()) -> list[Used]:
    """What responses used by hour and model, together with what was used before."""
    sums: dict[tuple[int | None, str | None], tuple[int, ...]] = {used.key: used[2:] for used in before}
    for response in responses:
        key = None if response.ts_ms is None else response.ts_ms // HOUR_MS, response.model
        new, old = _figures(response), sums.get(key)
        sums[key] = new if old is None else tuple(map(int.__add__, old, new))
    used = (Used(*key, *figures) for key, figures in sums.items())
    return sorted(used, key=lambda one: (one.hour is not None, one.hour or 0, one.model or ""))


def _figures(response: Response) -> tuple[int, ...]:
    usd = response.usd if response.usd is not None else price_of(response)
    tokens: tuple[Any, ...] = response[_FIRST : _FIRST + len(TOKENS)]
    is_priced, is_unstated = int(usd is not None), int(response.usd is None)
    return 1, *tokens, is_priced, round((usd or 0.0) * PICO), is_unstated, int(bool(response.includes_sub_agents))


def tokens_of(used: Sequence[Used]) -> list[int]:
    """Tokens of each sort."""
    return [sum(getattr(one, name) for one in used) for name in TOKENS]


def usd_of(used: Sequence[Used]) -> tuple[float | None, bool]:
    """(money, whether any of it is estimated); None when no response has a known price."""
    if not any(one.priced for one in used):
        return None, False
    return round(sum(one.picodollars for one in used) / PICO, 9), any(one.unstated for one in used)


class Payments:
    """What must be known of other sessions to tell what some cost."""

    def __init__(
        self, store: Store, relations: Relations, sessions: Sequence[tuple[StoredSession, Sequence[Used]]]
    ) -> None:
        self._relations = relations
        below = {key for session, used in sessions for key in self._included(session, used)}
        self._below = store.steps.responses(below) if below else {}
        originals = (relations.originals(session.key) for session, _ in sessions if session.totals)
        self._totals = store.steps.totals(set().union(*originals))

    def _included(self, session: StoredSession, used: Sequence[Used]) -> set[SessionKey]:
        """The sub-agents whose money is part of what the agent says of this session."""
        if session.totals:
            return self._relations.all_spawned(session.key)
        if any(one.with_sub_agents for one in used):
            return self._relations.spawned(session.key)  # whose own figures include those below them
        return set()

    def money(self, session: StoredSession, used: Sequence[Used], started_ms: int | None) -> Money:
        """What a session cost that used this in all, without its sub-agents; it began its own work at `started_ms`."""
        included = sorted(self._included(session, used))
        below = add_up(response for key in included for response in self._below.get(key, ()))
        if session.totals:
            late, is_estimate = usd_of(add_up(_since_last_total(session)))
            usd = self._stated_usd(session, started_ms or 0) + (late or 0.0)
            tokens = tuple(tokens_of(used))
        else:
            known, is_estimate = usd_of(used)
            pairs = zip(tokens_of(used), tokens_of(below), strict=True)
            tokens = tuple(max(0, mine - theirs) for mine, theirs in pairs)
            if known is None:
                return Money(tokens, None, False)
            usd = known
        taken, is_taken_estimate = usd_of(below)
        return Money(tokens, max(0.0, round(usd - (taken or 0.0), 9)), is_estimate or is_taken_estimate)

    def _stated_usd(self, session: StoredSession, begun_ms: int) -> float:
        """The agent's running totals, less what they had reached in the session this one was forked from."""
        originals = self._relations.originals(session.key)
        before = (total for key in originals for total in self._totals.get(key, ()))
        taken = _highest(total for total in before if total.ts_ms is not None and total.ts_ms <= begun_ms)
        highest = _highest(session.totals)
        return round(sum(usd - min(usd, taken.get(ledger, 0.0)) for ledger, usd in highest.items()), 9)


def _since_last_total(session: StoredSession) -> list[Response]:
    """Responses that no total has yet: agents write it when a run ends, and one that is killed never does."""
    last_ms = max((total.ts_ms for total in session.totals if total.ts_ms is not None), default=None)
    if last_ms is None:
        return []
    return [response for response in session.responses if response.ts_ms is not None and response.ts_ms > last_ms]


def _highest(totals: Iterable[RunningTotal]) -> dict[str, float]:
    """The highest total of each ledger."""
    highest: dict[str, float] = {}
    for total in totals:
        highest[total.ledger] = max(total.usd, highest.get(total.ledger, 0.0))
    return highest
