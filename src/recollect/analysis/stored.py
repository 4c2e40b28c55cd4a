"""What was distilled from a session, read back. Loads none of the rules that distil."""

from recollect.distill import Exchange, ExchangeRules, cut, parse_digest
from recollect.errors import NotFound
from recollect.kinds import SessionKey
from recollect.schema import FILES_LANE, Digest, Session
from recollect.store import Store


def find_digest(store: Store, session: Session) -> Digest:
    """The stored digest of a session; raises NotFound with what to do instead if it has none."""
    raw = store.digests.find(SessionKey(session.agent, session.native_session_id))
    if raw is not None:
        return parse_digest(raw)
    if session.analyzed_at is None:
        advice = (
            "`recollect sweep` makes it"
            if session.evicted_at is None
            else "`recollect retention rehydrate` reads it again"
        )
        raise NotFound(f"No digest yet: {session.session_uid}", advice)
    raise NotFound(
        f"Too small for a digest of its own: {session.session_uid}",
        f"it is a line in the digest of {session.root_session_uid}",
    )


def find_exchanges(store: Store, session: Session, rules: ExchangeRules) -> list[Exchange]:
    """The exchanges of a session whose events are held; those that were dropped before them count."""
    key = SessionKey(session.agent, session.native_session_id)
    steps = [step for step in store.steps.of(key) if step.lane != FILES_LANE]
    payloads = store.steps.payloads(key, steps)
    pairs = ((step, payloads[step.event_uid]) for step in steps)
    return list(cut(session.session_uid, pairs, rules, store.digests.dropped_requests(*key)))
