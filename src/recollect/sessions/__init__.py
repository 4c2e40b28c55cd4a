"""What is known of whole sessions: their rows, how they are related, where they worked, what they cost."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from recollect.store import Store

DEFAULT_TASK_PATTERNS = (
    # Branch names join words with `_`, which `\b` takes for a part of the word.
    r"(?<![^\W_])(?!(?:UTF|ISO|SHA|RFC|GPT|MD|CVE|X)-)[A-Z][A-Z0-9]+(?:-[A-Z0-9]+)*-\d+(?:-T\d+)?(?![^\W_])",
    r"(?<![\w/&])#\d+\b",
)


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The settings that shape a session's row. Here, because every command reads the settings."""

    task_patterns: tuple[re.Pattern[str], ...] = field(
        default_factory=lambda: tuple(re.compile(pattern) for pattern in DEFAULT_TASK_PATTERNS)
    )

    def text(self, domains: Mapping[str, str]) -> str:
        """All that rows depend on, to be compared with what they were made with."""
        patterns = [pattern.pattern for pattern in self.task_patterns]
        return orjson.dumps({"tasks": patterns, "domains": sorted(domains.items())}).decode()


def is_settled(store: "Store", rules: AccountRules, domains: Mapping[str, str]) -> bool:
    """Whether every session's row shows all that is held of it, by these rules."""
    return store.sessions.rules() == rules.text(domains) and not store.streams.dirty()
