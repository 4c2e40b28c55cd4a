"""What sessions cost: as the agent says, else tokens times the price list, which is always marked as an estimate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.kinds import SessionKey
from recollect.sessions.price_list import price_of
from recollect.sessions.relations import Relations
from recollect.store import Response, RunningTotal, Step, Store, StoredSession

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_FIRST = Response._fields.index(TOKENS[0])


@dataclass(frozen=True, slots=True)
class Money:
    """What a session used itself."""

    tokens: tuple[int, ...]
    usd: float | None
    is_estimate: bool

    def columns(self) -> dict[str, Any]:
        """As a session's row has them."""
        return {**dict(zip(TOKENS, self.tokens, strict=True)), "usd": self.usd, "usd_is_estimate": self.is_estimate}


class Payments:
    """What must be known of other sessions to tell what some cost."""

    def __init__(self, store: Store, relations: Relations, sessions: Sequence[StoredSession]) -> None:
        self._relations = relations
        below = {key for session in sessions for key in self._included(session)}
        self._below = store.steps.responses(below) if below else {}
        self._totals = store.steps.totals(set().union(*(relations.originals(session.key) for session in sessions)))

    def _included(self, session: StoredSession) -> set[SessionKey]:
        """The sub-agents whose money is part of what the agent says of this session."""
        if session.totals:
            return self._relations.all_spawned(session.key)
        if any(response.includes_sub_agents for response in session.responses):
            return self._relations.spawned(session.key)  # whose own figures include those below them
        return set()

    def money(self, session: StoredSession, own: Sequence[Step]) -> Money:
        """What a session cost, without its sub-agents; `own` are the events that it did not copy."""
        included = sorted(self._included(session))
        below = [response for key in included for response in self._below.get(key, ())]
        if session.totals:
            late, is_estimate = usd_of(_since_last_total(session))
            usd = self._stated_usd(session, own) + (late or 0.0)
            tokens = tuple(_tokens(session.responses))
        else:
            known, is_estimate = usd_of(session.responses)
            pairs = zip(_tokens(session.responses), _tokens(below), strict=True)
            tokens = tuple(max(0, mine - theirs) for mine, theirs in pairs)
            if known is None:
                return Money(tokens, None, False)
            usd = known
        taken, is_taken_estimate = usd_of(below)
        return Money(tokens, max(0.0, round(usd - (taken or 0.0), 9)), is_estimate or is_taken_estimate)

    def _stated_usd(self, session: StoredSession, own: Sequence[Step]) -> float:
        """The agent's running totals, less what they had reached in the session this one was forked from."""
        begun = min((event.ts_ms for event in own if event.ts_ms is not None), default=0)
        originals = self._relations.originals(session.key)
        before = (total for key in originals for total in self._totals.get(key, ()))
        taken = _highest(total for total in before if total.ts_ms is not None and total.ts_ms <= begun)
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


def _tokens(responses: Sequence[Response]) -> list[int]:
    """Their tokens of each sort."""
    columns = list(zip(*responses, strict=True))[_FIRST : _FIRST + len(TOKENS)]
    return [sum(column) for column in columns] or [0] * len(TOKENS)


def usd_of(responses: Sequence[Response]) -> tuple[float | None, bool]:
    """(money, whether any of it is estimated); None when no response has a known price."""
    prices = [response.usd if response.usd is not None else price_of(response) for response in responses]
    known = [price for price in prices if price is not None]
    if not known:
        return None, False
    return round(sum(known), 9), any(response.usd is None for response in responses)
