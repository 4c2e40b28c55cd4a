"""What the closed parts of a long session left, as it is kept between sweeps."""

from dataclasses import dataclass

import msgspec

from recollect.analysis import VERSION
from recollect.distill import Part
from recollect.knowledge import Lessons
from recollect.sessions import Used, decode_totals
from recollect.store import ACCOUNT, DIGEST, Pending, StoredSession


@dataclass(frozen=True, slots=True)
class Closed:
    """All that was distilled from closed parts, what they teach, and what they used."""

    part: Part
    lessons: Lessons
    used: list[Used]


class _Made(msgspec.Struct):
    """Which version kept a state: only its own can be read."""

    version: int


class _State(_Made):
    """What closed parts were distilled with: with anything else they are distilled again."""

    session_class: str
    cwd: str | None
    part: Part
    lessons: Lessons


def pack_closed(closed: Closed, session: Pending) -> bytes:
    state = _State(VERSION, session.session_class, session.cwd, closed.part, closed.lessons)
    return msgspec.json.encode(state)


def find_closed(session: Pending, stored: StoredSession) -> Closed | None:
    """What was kept of a session; None if nothing was, or it would be distilled otherwise now."""
    if stored.kept is None or session.sealed is not None or session.is_lost:
        return None
    kept = stored.kept.states[DIGEST]
    if msgspec.json.decode(kept, type=_Made).version != VERSION:
        return None
    state = _decode(kept)
    if (state.session_class, state.cwd) != (session.session_class, session.cwd):
        return None
    return Closed(state.part, state.lessons, decode_totals(stored.kept.states[ACCOUNT]).used)


_decode = msgspec.json.Decoder(_State).decode
