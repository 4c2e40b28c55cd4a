"""A budget of tokens that holds whatever happens: what a call may cost at most is on the disk before it is made."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from recollect.store import note_tokens, read_tokens


class BudgetReached(Exception):
    """The next call might cost more than is left."""


class TokenMeter:
    """Counts the tokens of a push. Without a `budget`, what today's other pushes left of `tokens_per_day`."""

    def __init__(self, folder: Path, tokens_per_day: int, budget: int | None = None) -> None:
        self._folder = folder
        self._days = read_tokens(folder)
        self._day = datetime.now(UTC).date().isoformat()
        self._before = self._days.get(self._day, 0)
        self._reserved = 0
        self.budget = max(0, tokens_per_day - self._before) if budget is None else budget
        self.calls = self.input_tokens = self.output_tokens = self.unaccounted_tokens = 0
        self.is_spent = False

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.unaccounted_tokens

    @property
    def today(self) -> int:
        return self._before + self.tokens

    @property
    def this_month(self) -> int:
        earlier = sum(tokens for day, tokens in self._days.items() if day[:7] == self._day[:7] and day != self._day)
        return earlier + self.today

    def reserve(self, most: int) -> None:
        """Set aside what a call costs at most. Raises BudgetReached, from then on for every call of this push."""
        if self.is_spent or self.tokens + self._reserved + most > self.budget:
            self.is_spent = True
            raise BudgetReached("The next call might exceed the token budget")
        self._reserved += most
        self._note()

    def settle(self, most: int, usage: Mapping[str, int] | None) -> None:
        """Count what a call did cost: nothing if it was refused (`usage` is empty), all of it if nobody says."""
        self._reserved -= most
        if usage is None:
            self.unaccounted_tokens += most
        else:
            self.input_tokens += usage.get("prompt_tokens", 0)
            self.output_tokens += usage.get("completion_tokens", 0)
        self.calls += 1
        self._note()

    def _note(self) -> None:
        note_tokens(self._folder, self._days | {self._day: self.today + self._reserved})
