"""The user's own rules, and the texts they allow to stay."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from recollect.errors import BadConfig

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_LEAST_LITERAL = 3


@dataclass(frozen=True, slots=True)
class RedactionRules:
    """`rules` maps names to regular expressions: the group `secret`, the first group or the whole match is replaced.

    `allow` lists texts that are never replaced; between slashes, a regular expression for a whole secret.
    """

    rules: Mapping[str, str] = field(default_factory=dict)
    allow: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with the rules."""
        content = repr((sorted(self.rules.items()), sorted(self.allow)))
        return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


class UserRule:
    """A compiled rule, and a word that is part of every match, if the expression has one."""

    def __init__(self, name: str, pattern: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadConfig(f"Invalid name for a redaction rule: {name}", "use lower-case letters, digits and dashes")
        self.name = name
        self.pattern = compiled(pattern, f"redact.rules.{name}")
        if self.pattern.search(""):
            raise BadConfig(f"Redaction rule matches the empty text: {name}", "make it require at least one character")
        self.literal = required_literal(pattern)
        groups = self.pattern.groupindex
        self.group = groups.get("secret", min(1, self.pattern.groups))


class AllowList:
    """The texts that stay."""

    def __init__(self, allow: tuple[str, ...]) -> None:
        self._texts = frozenset(text.encode() for text in allow if not _is_expression(text))
        expressions = [text[1:-1] for text in allow if _is_expression(text)]
        self._patterns = [compiled(pattern, "redact.allow") for pattern in expressions]

    def has(self, secret: bytes) -> bool:
        if secret in self._texts:
            return True
        return any(pattern.fullmatch(secret.decode("utf-8", "replace")) for pattern in self._patterns)


def _is_expression(text: str) -> bool:
    return len(text) > 2 and text[0] == text[-1] == "/"


def compiled(pattern: str, setting: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadConfig(f"Invalid regular expression in `{setting}` ({error}): {pattern}") from error


def required_literal(pattern: str) -> str | None:
    """The longest plain word that is part of every match, in lower case; None if there is none.

    Only characters that JSON writes as they are count, so that the word can be searched for in JSON too.
    """
    from re import _parser  # type: ignore[attr-defined]

    best = max(_words(_parser.parse(pattern)), key=len, default="")
    return best if len(best) >= _LEAST_LITERAL else None


def _words(nodes: object) -> list[str]:
    words, word = [], ""
    for kind, value in nodes:  # type: ignore[attr-defined]
        name = str(kind)
        if name == "LITERAL" and 32 < value < 127 and chr(value) not in '"\\/':
            word += chr(value).lower()
            continue
        words.append(word)
        word = ""
        if name == "SUBPATTERN":
            words += _words(value[3])
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] > 0:
            words += _words(value[2])
    return [*words, word]
