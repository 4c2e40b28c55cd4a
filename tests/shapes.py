"""The shapes of records that agents wrote, and records with other values in them."""

import json
from pathlib import Path
from typing import Any

import recollect
from tests.logs import AgentLog

Place = tuple[Any, ...]
_SIDE_FILES = ("history.jsonl", "prompt_history.jsonl", "session_index.jsonl", "events.jsonl", "chat_history.jsonl")


def shapes_of(log: AgentLog) -> list[Any]:
    """Records that the agent itself wrote, one of each shape."""
    samples = Path(recollect.__file__).parent / "samples" / log.agent
    paths = [path for path in sorted(samples.rglob("*.jsonl")) if path.name not in _SIDE_FILES]
    records = [json.loads(raw) for path in paths for raw in path.read_bytes().splitlines()]
    return list({repr(places_in(record)): record for record in records}.values())


def places_in(value: Any, path: Place = ()) -> list[Place]:
    """The path of every value inside a record, its own (empty) one first."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, child in children for place in places_in(child, (*path, key))]


def value_at(record: Any, path: Place) -> Any:
    """The value at a path of a record."""
    for key in path:
        record = record[key]
    return record


def replaced(record: Any, path: Place, value: Any) -> Any:
    """The record with another value at a path."""
    if not path:
        return value
    key, *rest = path
    changed = replaced(record[key], tuple(rest), value)
    if isinstance(record, dict):
        return record | {key: changed}
    return [*record[:key], changed, *record[key + 1 :]]
