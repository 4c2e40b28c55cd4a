"""The words of single events, out of the packs."""

from collections.abc import Collection

import orjson

from recollect.store import Store
from recollect.store.cards import SessionKey
from recollect.store.excerpts import EventCard
from recollect.text import evidence, payload_text


class Texts:
    """Reads events' texts, each once; a session's pack is opened once for all that are asked for together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: dict[int, SessionKey] = {}
        self._texts: dict[int, str] = {}
        self.cards: dict[int, EventCard] = {}

    def __getitem__(self, event: int) -> str:
        return self._texts[event]

    def __contains__(self, event: int) -> bool:
        return event in self._texts

    def read(self, events: Collection[int]) -> None:
        """Have these at hand. An event that was deleted meanwhile stays away."""
        missing = set(events) - self._texts.keys()
        if not missing:
            return
        cards = self._store.excerpts.of(missing)
        self.cards |= cards
        by_stream: dict[int, list[EventCard]] = {}
        for card in sorted(cards.values(), key=lambda card: card.payload_start):
            by_stream.setdefault(card.stream, []).append(card)
        self._keys |= self._store.excerpts.keys(by_stream.keys() - self._keys.keys())
        for stream, some in by_stream.items():
            for card, payload in zip(some, self._payloads(stream, some), strict=True):
                self._texts[card.id] = evidence(payload_text(card.kind, orjson.loads(payload))) or card.summary

    def _payloads(self, stream: int, cards: list[EventCard]) -> list[bytes]:
        places = [(card.payload_start, card.payload_bytes) for card in cards]
        return list(self._store.events.iter_payloads(*self._keys[stream], places))

    def payloads(self, cards: list[EventCard]) -> list[dict[str, object]]:
        """Whole payloads of one session's events, in the order given."""
        if not cards:
            return []
        self._keys |= self._store.excerpts.keys({cards[0].stream} - self._keys.keys())
        return [orjson.loads(raw) for raw in self._payloads(cards[0].stream, cards)]
