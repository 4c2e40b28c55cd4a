"""Every line of a log becomes events, or is on the skip list, or is a bad line: none vanishes."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import BadLine, EventRecord, Record, Skipped
from recollect.agents import adapters
from tests.logs import AGENT_LOGS, AgentLog, line, session_id
from tests.shapes import Place, places_in, replaced, shapes_of, value_at

MUTANTS = 500
_VALUES = (None, True, 0, -1, 2**70, 1.5, "", " ", "text", [], ["text"], [[]], {}, {"0": "a"}, {"type": "text"}, [{}])


def mutate(chance: random.Random, record: Any) -> Any:
    """The record with one to three of its values replaced by others of any type."""
    for _ in range(chance.randint(1, 3)):
        place = chance.choice(places_in(record)[1:] or [()])
        record = replaced(record, place, chance.choice(_VALUES)) if place else record
    return record


def records_of(log: AgentLog, root: Path, raw: bytes) -> list[Record]:
    """What a log of this one line is read as."""
    path = log.write(root, raw)
    adapter = adapters()[log.agent]
    (source,) = [source for source in adapter.discover(root) if source.path == path]
    return list(adapter.read(source, None))


def outcome_of(log: AgentLog, root: Path, raw: bytes) -> str:
    """What a log of this one line becomes."""
    kinds = Counter(type(record) for record in records_of(log, root, raw))
    if kinds[EventRecord]:
        return "event"
    return "skipped" if kinds[Skipped] else "bad" if kinds[BadLine] else "vanished"


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
def test_a_record_of_any_shape_is_an_event_a_skip_or_a_bad_line(tmp_path: Path, log: AgentLog) -> None:
    chance = random.Random(8)
    shapes = shapes_of(log)
    raws = [line(mutate(chance, chance.choice(shapes))) for _ in range(MUTANTS)]

    outcomes = {raw: outcome_of(log, tmp_path, raw) for raw in raws}

    assert [raw for raw, outcome in outcomes.items() if outcome == "vanished"] == []


WORDS = "words in another shape"
_WORD_FIELDS = {"text", "thinking", "content", "aggregated_output", "stdout", "stderr", "summary_text"}
_SHAPES = ([{"type": "text", "text": WORDS}], {"value": WORDS}, {"type": "text", "text": {"value": WORDS}}, [WORDS])


def has_words(log: AgentLog, root: Path, record: Any) -> bool:
    events = [event for event in records_of(log, root, line(record)) if isinstance(event, EventRecord)]
    return any(WORDS in repr(event.payload) for event in events)


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
def test_words_are_kept_in_whatever_shape_a_service_writes_them(tmp_path: Path, log: AgentLog) -> None:
    places = [(record, place) for record in shapes_of(log) for place in places_in(record) if is_words(record, place)]
    read = [(record, place) for record, place in places if has_words(log, tmp_path, replaced(record, place, WORDS))]

    lost = {
        (place, repr(shape))
        for record, place in read
        for shape in _SHAPES
        if not has_words(log, tmp_path, replaced(record, place, shape))
    }

    assert read
    assert lost == set()


def is_words(record: Any, place: Place) -> bool:
    """Whether a place in a record holds words of the agent, the user or a tool."""
    if not _WORD_FIELDS & set(place):
        return False
    return isinstance(value_at(record, place), str) and place[-1] not in (
        "type",
        "id",
        "name",
        "signature",
        "tool_use_id",
    )


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
def test_events_skips_and_bad_lines_of_a_log_are_all_its_lines(tmp_path: Path, log: AgentLog) -> None:
    chance = random.Random(9)
    shapes = shapes_of(log)
    raws = [b"\n", b" \r\n", b"rubbish\n"] + [line(mutate(chance, chance.choice(shapes))) for _ in range(MUTANTS)]
    alone = Counter(outcome_of(log, tmp_path, raw) for raw in raws)
    path = log.write(tmp_path, b"".join(raws), session_id(2))
    adapter = adapters()[log.agent]
    (source,) = [source for source in adapter.discover(tmp_path) if source.path == path]

    records = list(adapter.read(source, None))

    skipped = sum(record.count for record in records if isinstance(record, Skipped))
    bad = sum(isinstance(record, BadLine) for record in records)
    assert alone["event"] + alone["skipped"] + alone["bad"] == len(raws)
    assert bad == alone["bad"]
    assert skipped >= alone["skipped"]
