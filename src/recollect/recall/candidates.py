"""The sessions that match, while they are ranked."""

from collections.abc import Collection, Mapping
from typing import Any

from recollect import kinds
from recollect.store import Scored, SessionHeader, Store


class Sessions:
    """Which session a stream of events belongs to. Remembers what it has read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._headers: dict[int, SessionHeader] = {}
        self._roots: dict[str, SessionHeader] = {}

    def load(self, streams: Collection[int]) -> None:
        """Have these at hand, with the sessions that started them."""
        missing = set(streams) - self._headers.keys()
        if not missing:
            return
        keys = self._store.events.keys(missing)
        headers = self._store.sessions.of(keys.values())
        for stream, key in keys.items():
            header = self._headers[stream] = headers.get(key) or nameless(kinds.session_uid(*key))
            if header.session_uid == header.root_session_uid:
                self._roots[header.session_uid] = header
        self.named({self._headers[stream].root_session_uid for stream in keys})

    def named(self, uids: Collection[str]) -> Mapping[str, SessionHeader]:
        """Sessions by their ids, those among them that are known."""
        self._roots |= self._store.sessions.named(set(uids) - self._roots.keys())
        return self._roots

    def header(self, stream: int) -> SessionHeader:
        return self._headers[stream]

    def root(self, stream: int) -> SessionHeader:
        """The session that a sub-agent's events are shown under."""
        header = self._headers[stream]
        return self._roots.get(header.root_session_uid, header)

    def streams_below(self, uids: Collection[str]) -> set[int]:
        """The streams at hand of these sessions and their sub-agents."""
        return {stream for stream in self._headers if self.root(stream).session_uid in uids} if uids else set()


class Candidate:
    """A session that matches, with its best events, the best first, and the best digest of it and its sub-agents."""

    def __init__(self, header: SessionHeader) -> None:
        self.header = header
        self.events: list[Scored] = []
        self.digest: SessionHeader | None = None
        self.score = 0.0
        self.is_verbatim = False
        self.is_complete = True
        self.missing: tuple[str, ...] = ()

    def order(self) -> tuple[Any, ...]:
        """By what candidates are sorted; the newer one wins a tie."""
        last_ms = max((event.ts_ms or 0 for event in self.events), default=self.header.ended_ms or 0)
        return (not self.is_verbatim, not self.is_complete, -self.score, -last_ms, self.header.session_uid)


def nameless(uid: str) -> SessionHeader:
    """A session that a sweep has begun to read and has not accounted for yet."""
    agent, _, native_id = uid.partition(":")
    return SessionHeader(agent, native_id, uid, uid, None, None, None, None, None)
