"""The settings that shape a session's row, apart from what makes it: every command that reads settings loads them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from recollect.store import Store


_ROWS = 4  # how titles are chosen and tasks recognised: rows of another way are made again


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The settings that shape a session's row."""

    task_patterns: tuple[re.Pattern[str], ...] = ()  # without any, `tasks` knows what a task looks like

    def text(self, domains: Mapping[str, str]) -> str:
        """All that rows depend on, to be compared with what they were made with."""
        patterns = [pattern.pattern for pattern in self.task_patterns]
        return orjson.dumps({"tasks": patterns, "domains": sorted(domains.items()), "titles": _ROWS}).decode()


def is_settled(store: "Store", rules: AccountRules, domains: Mapping[str, str]) -> bool:
    """Check that every session's row shows all that is held of it, by these rules, and names its place."""
    return store.rules.text() == rules.text(domains) and not store.rules.has_moved() and not store.streams.dirty()
