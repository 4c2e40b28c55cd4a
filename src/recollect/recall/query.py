"""The query language: words, "phrases", -not, OR, and filters such as `repo:shop-api`. See docs/search.md.

Reading a query never fails. Invalid syntax is searched for as words, with a note.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from recollect.clock import parse_moment
from recollect.kinds import KINDS, OUTCOMES, SESSION_CLASSES

MOST_WORDS = 64
MOST_CHARS = 4096

IS_VALUES = ("error", "decision", "open", "starred")
OF_SESSIONS_ONLY = ("open", "starred")  # of these: what sessions are, not events
HAS_VALUES = ("edit",)
ROLES = ("user", "assistant", "tool", "system")
OF_EVENTS = ("kind", "tool", "role", "is")  # filters that only events can answer
_ENUMERATED = ("kind", "outcome", "role", "is", "has", "class")

_ITEM = re.compile(
    r"""(?P<minus>-(?=[^\s-]))?          # -not; two of them begin a flag
        (?:(?P<name>[A-Za-z]+):(?=\S))?  # a filter's name
        (?:"(?P<quoted>[^"]*)"(?!\S)|(?P<open>"[^"]*$)|(?P<bare>\S+))""",
    re.VERBOSE,
)
# Compiled at their first use, and kept by `re`: most queries need none of them.
_FILTER = r'(?<!\S)(?P<minus>-)?(?P<name>[A-Za-z]+):(?:"(?P<quoted>[^"]*)"|(?P<bare>\S+))(?!\S)'
_LIKE_A_FILTER = r"[A-Za-z][\w.-]*"  # and not like a URL, a port, a line or a path
_FLAG = r"-[A-Za-z]{1,2}"  # `-v`, `-rf`: nobody excludes so short a word
# A pasted command, in which `-name` is an option: by what only a shell reads, or by how it begins.
_SHELL = r"[|;<>$`]|&&|(?<!\S)(?:--\w|-[A-Za-z]{1,2}(?!\S)|\.(?!\S)|(?:\.{1,2}|~)/|['\"]?\*\.)"
_PROGRAMS = (
    r"ansible|apt|aws|awk|az|bash|brew|bun|bundle|cargo|chmod|chown|cmake|composer|cp|curl|"
    r"deno|docker|dotnet|du|flutter|gcc|gcloud|gem|gh|git|gradle|grep|"
    r"helm|java|jq|journalctl|kubectl|ln|ls|mise|mv|mvn|mypy|npm|npx|"
    r"openssl|php|pip|pnpm|poetry|ps|psql|pytest|python3?|rails|rg|rm|rsync|ruby|ruff|scp|"
    r"sed|sh|sqlite3|ssh|sudo|swift|systemctl|tail|tar|terraform|tsc|uv|wget|xargs|"
    r"yarn"
)
# Of those that are plain verbs too, only with an option that has a value.
_VERBS = r"(?:diff|find|go|head|kill|make|node|touch)\s.*\s-\w+\s+[^-\s]"
_PUNCTUATION = ",;:!?\"'"
_BRACKETS = ("()", "[]", "{}")
_OTHER_WIDTH = "[\uff01-\uff9f]+"
_COMMAND = rf"{_SHELL}|\A\s*(?:(?:{_PROGRAMS})\s|{_VERBS})"


class Phrase(NamedTuple):
    """Words to look for, in this order and next to each other."""

    text: str
    is_prefix: bool = False
    is_quoted: bool = False


class Filter(NamedTuple):
    name: str
    value: str
    is_excluded: bool = False
    is_option: bool = False  # given by an option: what matches nothing is an error then


class Query(NamedTuple):
    """A query, read: every one of `needs` has a phrase that must be there; filters of one name are a choice."""

    text: str
    needs: tuple[tuple[Phrase, ...], ...] = ()
    excluded: tuple[Phrase, ...] = ()
    filters: tuple[Filter, ...] = ()
    notes: tuple[str, ...] = ()
    sentence: str = ""  # all of its words as they were typed; empty if it says more than words

    @property
    def is_empty(self) -> bool:
        return not (self.needs or self.filters)

    @property
    def has_of_events(self) -> bool:
        """Whether a filter asks for events, which a digest does not have."""
        return any(item.name in OF_EVENTS and item.value not in OF_SESSIONS_ONLY for item in self.filters)

    def values(self, name: str, *, is_excluded: bool = False) -> list[str]:
        return [item.value for item in self.filters if item.name == name and item.is_excluded == is_excluded]


def parse_query(text: str, now: datetime) -> Query:
    """Read a query; `now` is what `since:7d` counts from."""
    notes: list[str] = []
    text = _cut(text, notes)
    items = list(_items(text, now, notes))
    if any(isinstance(item, Phrase) and is_excluded for item, is_excluded in items) and re.search(_COMMAND, text):
        typed = items
        items = [
            (item._replace(text=f"-{item.text}") if is_excluded and isinstance(item, Phrase) else item, False)
            for item, is_excluded in typed
        ]
        option = next(item.text for item, is_excluded in typed if is_excluded and isinstance(item, Phrase))
        notes.append(f"Treated as a command: `-{option}` excludes nothing")
    needs: list[tuple[Phrase, ...]] = []
    excluded: list[Phrase] = []
    is_choice = False
    for place, (item, is_excluded) in enumerate(items):
        if item == Phrase("OR"):
            is_choice = bool(needs) and _is_needed(items, place - 1) and _is_needed(items, place + 1)
            if not is_choice:
                notes.append("`OR` needs a word on each side: searched for as a word")
                needs.append((item,))
        elif isinstance(item, Phrase) and is_excluded:
            excluded.append(item)
        elif isinstance(item, Phrase):
            if is_choice:
                needs[-1] = (*needs[-1], item)
            elif (item,) not in needs:
                needs.append((item,))
            is_choice = False
    filters = tuple(item for item, _ in items if isinstance(item, Filter))
    if excluded and not needs and not filters:
        notes.append("Only exclusions: searched for as words")
        needs, excluded = [(phrase,) for phrase in excluded], []
    phrases = [item for item, _ in items if isinstance(item, Phrase)]
    is_plain = not (excluded or any(phrase.is_quoted or phrase.is_prefix for phrase in phrases))
    sentence = " ".join(phrase.text for phrase in phrases) if is_plain else ""
    return Query(text, tuple(needs), tuple(excluded), filters, tuple(notes), sentence)


def without_filters(text: str, now: datetime) -> tuple[str, tuple[Filter, ...]]:
    """A text to be found as it is, without the filters in it; if there is nothing else in it, they are the text."""
    filters: list[Filter] = []

    def taken_out(match: re.Match[str]) -> str:
        value = match["bare"] if match["quoted"] is None else match["quoted"]
        found = _filter(match["name"], value, bool(match["minus"]), now)
        if found is None:
            return match[0]
        filters.append(found)
        return ""

    rest = re.sub(_FILTER, taken_out, text).strip()
    return (rest, tuple(filters)) if filters and rest else (text, ())


def _is_needed(items: list[tuple[Phrase | Filter, bool]], place: int) -> bool:
    if not 0 <= place < len(items):
        return False
    item, is_excluded = items[place]
    return isinstance(item, Phrase) and item != Phrase("OR") and not is_excluded


def sound(text: str) -> str:
    """The text without what no store can hold: NUL, and halves of characters."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _of_usual_width(text: str) -> str:
    """Full-width letters and half-width kana, which input methods make, as logs have them: `ｃｓｖ` is `csv`."""
    if not re.search(_OTHER_WIDTH, text):
        return text
    import unicodedata  # few queries need it

    return re.sub(_OTHER_WIDTH, lambda match: unicodedata.normalize("NFKC", match[0]), text)


def _cut(text: str, notes: list[str]) -> str:
    text = _of_usual_width(sound(text))
    if len(text) > MOST_CHARS:
        notes.append(f"Only the first {MOST_CHARS} characters were searched for")
        text = text[:MOST_CHARS].rpartition(" ")[0] or text[:MOST_CHARS]
    return text


def _items(
    text: str, now: datetime, notes: list[str], most: int = MOST_WORDS
) -> Iterator[tuple[Phrase | Filter, bool]]:
    for number, match in enumerate(_ITEM.finditer(text)):
        if number >= most:
            notes.append(f"Only the first {MOST_WORDS} words were searched for")
            return
        if match["open"]:
            notes.append("Missing closing quotation mark: the rest was searched for as words")
            yield from _items(match["open"][1:], now, notes, most - number)
            return
        yield _item(match, now, notes)


def _item(match: re.Match[str], now: datetime, notes: list[str]) -> tuple[Phrase | Filter, bool]:
    name, value, whole = match["name"], match["quoted"], match[0]
    is_quoted = value is not None
    value = match["bare"] if value is None else value
    is_excluded = bool(match["minus"]) and not re.fullmatch(_FLAG, whole)
    if name and (found := _filter(name, value, is_excluded, now)):
        return found, is_excluded
    if name:
        if name.lower() in FILTERS:
            notes.append(f"Invalid value for `{name}:`, searched for as words: {value}")
        elif name.islower():
            from difflib import get_close_matches  # few queries need it

            near = get_close_matches(name, FILTERS, 1, 0.75)
            if near or re.fullmatch(_LIKE_A_FILTER, value):
                meant = f"; did you mean `{near[0]}:`?" if near else ""
                notes.append(f"No such filter, searched for as words: `{name}:`{meant}")
        return Phrase(f"{name}:{value}", is_quoted=is_quoted), is_excluded
    if is_quoted:
        return Phrase(value, is_quoted=True), is_excluded
    return _word(value if is_excluded or not match["minus"] else whole), is_excluded


def _filter(name: str, value: str, is_excluded: bool, now: datetime) -> Filter | None:
    """A filter, whatever the case of its name and of a value that is one of a few; None if it is none."""
    name = name.lower()
    value = value.lower() if name in _ENUMERATED else value
    return Filter(name, value, is_excluded) if name in FILTERS and FILTERS[name](value, now) else None


def _word(text: str) -> Phrase:
    is_prefix = len(text) > 1 and text.endswith("*")
    return Phrase(text.rstrip("*") if is_prefix else text, is_prefix)


def bare(text: str) -> str:
    """A word to show, without what a sentence or a line of code has around it: `panic:`, `(0.03s)`, `"src/app.py",`.

    It is searched for as typed: a bracket in the same place tells the session that it was copied from.
    """
    word = text.strip(_PUNCTUATION)
    for pair in _BRACKETS:
        is_around = word[:1] + word[-1:] == pair and not set(pair) & set(word[1:-1])
        word = word.strip(pair) if is_around or word.count(pair[0]) != word.count(pair[1]) else word
    return word.strip(_PUNCTUATION) or text


def _is_time(value: str, now: datetime) -> bool:
    try:
        time_ms(value, now)
    except (ValueError, OverflowError):
        return False
    return True


def time_ms(value: str, now: datetime) -> int:
    return round(parse_moment(value, now).timestamp() * 1000)


def _one_of(*values: str) -> Callable[[str, datetime], bool]:
    return lambda value, now: value in values


# Every filter there is, and whether it takes a value.
FILTERS: dict[str, Callable[[str, datetime], bool]] = {
    **dict.fromkeys(
        (
            "agent",
            "repo",
            "branch",
            "file",
            "tool",
            "model",
            "session",
            "group",
            "channel",
            "user",
            "domain",
            "task",
            "tag",
        ),
        lambda value, now: bool(value.strip()),
    ),
    "kind": _one_of(*KINDS),
    "outcome": _one_of(*OUTCOMES),
    "role": _one_of(*ROLES),
    "class": _one_of(*SESSION_CLASSES),
    "since": _is_time,
    "before": _is_time,
    "is": _one_of(*IS_VALUES),
    "has": _one_of(*HAS_VALUES),
}
