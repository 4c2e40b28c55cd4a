"""What people decided elsewhere: a sentence given by hand, or a file of decisions."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from recollect.clock import now_ms
from recollect.knowledge.predicates import fact_uid
from recollect.store import Note

_HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+)$")
_ITEM = re.compile(r"^\s*[-*]\s+(?P<text>\S.+)$")
_DATED = re.compile(r"^(?P<date>\d{4}-\d\d-\d\d)[:,]?\s+(?P<rest>.+)$")
_TOPIC = re.compile(r"^\*\*(?P<topic>[^*]{2,60})\*\*:?\s+(?P<rest>.+)$|^(?P<plain>[A-Z][\w /-]{2,40}): (?P<after>.+)$")


def make_note(
    text: str,
    topic: str,
    repo: str | None,
    origin: str,
    group: str,
    *,
    since_ms: int | None = None,
    number: int = 0,
    reason: str | None = None,
) -> Note:
    """A note; its id depends on what it says and how many came before it, so that the same one is kept once."""
    at_ms = now_ms()
    uid = fact_uid("note", origin, group, repo or "", topic, text, str(since_ms or number))
    return Note(uid, group, repo, origin, topic or text[:120], text, reason, since_ms or at_ms, at_ms)


def parse_notes(content: str, origin: str, repo: str | None, group: str) -> list[Note]:
    """The decisions of a file: a JSON list, or the items and record headings of a Markdown file."""
    if content.lstrip().startswith("["):
        return [
            make_note(
                item["text"], str(item.get("topic") or ""), repo, origin, group, since_ms=_date_ms(item.get("date"))
            )
            for item in _objects(content)
        ]
    return [make_note(text, topic, repo, origin, group, since_ms=since_ms) for text, topic, since_ms in _items(content)]


def _objects(content: str) -> list[dict[str, Any]]:
    try:
        listed = orjson.loads(content)
    except orjson.JSONDecodeError:
        return []
    return [item for item in listed if isinstance(item, dict) and isinstance(item.get("text"), str)]


def _date_ms(date: Any) -> int | None:
    try:
        return round(datetime.fromisoformat(f"{str(date)[:10]}T00:00:00+00:00").timestamp() * 1000)
    except ValueError:
        return None


def _items(content: str) -> Iterator[tuple[str, str, int | None]]:
    """List items, each with its topic if it begins with one, and its date.

    The heading above is the topic of the only item below it; a topic has one decision at a time.
    """
    listed: list[tuple[int, str, str]] = []  # the line of the heading, its title, the item
    number, above = 0, ""
    for line_number, line in enumerate(content.splitlines()):
        if heading := _HEADING.match(line):
            number, above = line_number, heading["title"].strip()
        elif item := _ITEM.match(line):
            listed.append((number, above, item["text"].strip()))
    counts = Counter(number for number, _, _ in listed)
    for number, title, text in listed:
        since_ms, topic = None, title if counts[number] == 1 else ""
        if dated := _DATED.match(text):
            text, since_ms = dated["rest"], _date_ms(dated["date"])
        if named := _TOPIC.match(text):
            topic, text = named["topic"] or named["plain"], named["rest"] or named["after"]
        yield text, topic, since_ms
