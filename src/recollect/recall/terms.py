"""What a query is ranked by: its words, how rare they are, and what they weigh where."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recollect.recall.query import Phrase
from recollect.store import Term
from recollect.text import Columns

_WEIGHTS = {"got": 1.0, "said": 2.0, "did": 1.5, "asked": 3.0, "parts": 0.7}
WEIGHTS = tuple(_WEIGHTS[column] for column in Columns._fields)
FEW_WORDS = 4  # up to so many, it is said of each session which of them it lacks
COMMON_EVENTS = 20_000  # a word in more events is taken to be in every session


class Word(NamedTuple):
    """A word or phrase to rank by, or a choice of them, with the number of events and digests that have it."""

    choice: tuple[Phrase, ...]
    events: Mapping[str, int]  # by month
    digests: int
    is_repo: bool = False  # also the name of a repository

    @property
    def text(self) -> str:
        return self.choice[0].text

    @property
    def total(self) -> int:
        return sum(self.events.values())

    @property
    def is_known(self) -> bool:
        return bool(self.total or self.digests or self.is_repo)

    @property
    def is_required(self) -> bool:
        return any(phrase.is_quoted for phrase in self.choice)


class Terms(NamedTuple):
    """What to rank by: the words of a query, parts of them that only add to the score, and the query as a sentence."""

    words: Sequence[Word]
    parts: Sequence[Word] = ()
    sentence: Word | None = None
    excluded: Sequence[Phrase] = ()


def terms_of(choices: Sequence[Sequence[Phrase]]) -> tuple[tuple[Term, ...], ...]:
    return tuple(tuple(Term(phrase.text, phrase.is_prefix) for phrase in choice) for choice in choices)
