"""What recall, knowledge, api, web, MCP and hooks read through: seven protocols that another store could meet as well.

A method does what the docstring of its namesake in the SQLite store promises; `tests/store/test_ports.py` holds any
implementation to it. A store of another kind has numbers of its own for sessions (`stream`) and events (`id`), which
mean nothing outside it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from recollect.kinds import SessionKey
from recollect.schema import Session, Signal
from recollect.store.search import EventFilter, Scored, Wanted
from recollect.store.tables.activity import Span, SpentRow, StatRow
from recollect.store.tables.events import EventHeader
from recollect.store.tables.facts import ExchangeRow, Note, StoredFact
from recollect.store.tables.sessions import ANY_SESSION, Match, SessionFilter, SessionHeader

if TYPE_CHECKING:
    from recollect.store import Store


class SessionReads(Protocol):
    """Sessions: rows, headers, how they belong together."""

    def find_named(self, key: SessionKey) -> Session | None: ...

    def find(
        self, criteria: SessionFilter = ANY_SESSION, *, sort: str = "recent", limit: int | None = None, offset: int = 0
    ) -> list[Session]: ...

    def count(self, criteria: SessionFilter = ANY_SESSION) -> int: ...

    def of(self, keys: Collection[SessionKey]) -> dict[SessionKey, SessionHeader]: ...

    def named(self, uids: Collection[str]) -> dict[str, SessionHeader]: ...

    def named_like(self, text: str) -> list[Match]: ...

    def keys(self, criteria: SessionFilter) -> list[SessionKey]: ...

    def names(self, of: str) -> list[str]: ...

    def folders(self) -> list[tuple[str, str]]: ...

    def latest(self, limit: int, offset: int) -> dict[SessionKey, int]: ...

    def recent(self, limit: int, criteria: SessionFilter, offset: int = 0) -> list[SessionHeader]: ...

    def recent_count(self, criteria: SessionFilter) -> int: ...

    def roots_of_repo(self, name: str) -> set[str]: ...

    def households(self, uids: Collection[str]) -> list[SessionKey]: ...

    def trees(self, keys: Collection[SessionKey]) -> set[str]: ...

    def kin(self, uid: str) -> list[tuple[SessionHeader, str]]: ...


class DigestReads(Protocol):
    """Digests and signals, and the words that digests are found by."""

    def find(self, key: SessionKey) -> bytes | None: ...

    def text(self, key: SessionKey) -> str | None: ...

    def words(self, uids: Collection[str]) -> dict[str, str]: ...

    def count(self, expression: str | None = None) -> int: ...

    def word_counts(self, words: Collection[str]) -> dict[str, int]: ...

    def search(
        self, expression: str, criteria: SessionFilter, *, is_evicted: bool = False, most: int = 1_000
    ) -> list[tuple[SessionHeader, float]]: ...

    def roots(self, expression: str) -> set[str]: ...

    def evicted_with_edits(self) -> list[SessionKey]: ...

    def signals(
        self,
        criteria: SessionFilter,
        session: SessionKey | None = None,
        signal: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Signal]: ...

    def signal_count(self, criteria: SessionFilter, session: SessionKey | None, signal: str | None) -> int: ...


class EventReads(Protocol):
    """Events without their payloads."""

    def rows(
        self,
        key: SessionKey,
        columns: Sequence[str],
        *,
        last: int | None = None,
        calls: str | None = None,
        span: range | None = None,
        kinds: Collection[str] | None = None,
    ) -> list[tuple[Any, ...]]: ...

    def place(self, key: SessionKey, name: str) -> int | None: ...

    def of(self, events: Collection[int]) -> dict[int, EventHeader]: ...

    def by_uid(self, uids: Collection[str]) -> dict[str, EventHeader]: ...

    def keys(self, streams: Collection[int]) -> dict[int, SessionKey]: ...

    def streams(self, keys: Collection[SessionKey]) -> dict[SessionKey, int]: ...

    def around(self, event: EventHeader, count: int) -> tuple[list[EventHeader], list[EventHeader]]: ...

    def ends(self, streams: Collection[int]) -> dict[int, tuple[EventHeader | None, EventHeader | None]]: ...

    def request(self, stream: int, *, is_last: bool = False, is_own: bool = False) -> EventHeader | None: ...

    def requests(self, streams: Collection[int]) -> list[str]: ...

    def with_edits(self) -> set[int]: ...

    def request_of(self, event: EventHeader) -> EventHeader | None: ...

    def next_request(self, event: EventHeader) -> EventHeader | None: ...

    def answer_to(self, event: EventHeader, *, is_last: bool) -> EventHeader | None: ...

    def calls_after(self, event: EventHeader, count: int) -> list[EventHeader]: ...

    def results(self, calls: Collection[EventHeader]) -> dict[int, list[EventHeader]]: ...


class PayloadReads(Protocol):
    """What events hold."""

    def iter(self, key: SessionKey, places: Sequence[tuple[int, int]]) -> Iterator[bytes]: ...


class WordReads(Protocol):
    """The full text of events."""

    def tokens(self, text: str) -> list[str]: ...

    def expression(self, wanted: Wanted) -> str: ...

    def months(self) -> dict[str, int]: ...

    def frequencies(self, tokens: Iterable[str]) -> dict[str, dict[str, int]]: ...

    def counts(self, wanted: Wanted) -> dict[str, int]: ...

    def words_with(self, part: str, limit: int, *, at_end: bool = False) -> list[str]: ...

    def find(
        self, month: str, wanted: Wanted, weights: Sequence[float], chosen: EventFilter, of_session: int
    ) -> list[Scored]: ...

    def matching(self, wanted: Wanted, chosen: EventFilter) -> list[Scored]: ...

    def sessions_with(self, wanted: Wanted, chosen: EventFilter) -> set[int]: ...

    def streams_of(self, chosen: EventFilter) -> set[int]: ...

    def newest(self, chosen: EventFilter, limit: int, below: int | None = None) -> list[Scored]: ...

    def latest(self, chosen: EventFilter, of_session: int) -> list[Scored]: ...

    def limit_time(self, seconds: float | None) -> None: ...


class FactReads(Protocol):
    """Facts with their evidence, what users said of them, and exchanges."""

    def select(
        self,
        predicates: Sequence[str] = (),
        sessions: SessionFilter = ANY_SESSION,
        *,
        kind: str | None = None,
        words: str | None = None,
        subject: tuple[str, str] | None = None,
        object: tuple[str, str] | None = None,
        naming: str | None = None,
        file: str | None = None,
        uid: str | None = None,
        with_rejected: bool = False,
    ) -> list[StoredFact]: ...

    def errors_showing(self, lines: Sequence[str]) -> list[str]: ...

    def has_amendments(self) -> bool: ...

    def moment_of(self, place: int, predicates: Sequence[str], sessions: SessionFilter) -> int | None: ...

    def exchanges(self, sessions: SessionFilter, latest: int | None = None) -> list[ExchangeRow]: ...

    def notes(self) -> list[tuple[Note, str | None]]: ...


class TallyReads(Protocol):
    """What sessions add up to."""

    def stats(self, by: str, span: Span) -> list[StatRow]: ...

    def blocks(self) -> list[tuple[str, int]]: ...

    def spent(self, span: Span) -> list[SpentRow]: ...

    def first_minute(self, sessions: SessionFilter = ANY_SESSION) -> int | None: ...

    def money_of_active(self, since_ms: int) -> dict[str, float]: ...

    def blurred(self, by: str, span: Span) -> int: ...

    def heatmap(self, span: Span) -> list[tuple[int, int, int]]: ...


class StoreReads(Protocol):
    """A store as it is read."""

    group: str | None

    @property
    def sessions(self) -> SessionReads: ...

    @property
    def digests(self) -> DigestReads: ...

    @property
    def events(self) -> EventReads: ...

    @property
    def payloads(self) -> PayloadReads: ...

    @property
    def words(self) -> WordReads: ...

    @property
    def facts(self) -> FactReads: ...

    @property
    def activity(self) -> TallyReads: ...


if TYPE_CHECKING:

    def read_through(store: Store) -> StoreReads:  # the SQLite store meets them
        return store
