"""Many files with one hostile value each: none is lost, and a sweep takes little longer than without the values."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.rig import IS_LONG, IS_SOAK, Held, sweep
from tests.logs import AgentLog, line, lines, session_id
from tests.shapes import places_in, replaced, shapes_of
from tests.tally import count

FILES = 5000 if IS_LONG else 3000 if IS_SOAK else 150
SLOWER = 10

# What stands where a value was: numbers no column takes, nesting no parser likes, what is no text.
_POISONS = (
    "9" * 309,
    "-" + "9" * 4000,
    "9" * 5000,
    "1" + "0" * 400 + ".5",
    "1e999",
    "NaN",
    str(2**64),
    "[" * 254 + "]" * 254,
    *('{"a":' * depth + "1" + "}" * depth for depth in (249, 250, 251, 252, 253, 254, 255, 300)),
    '{"type":' * 1100 + "1" + "}" * 1100,
    "[" * 100_000,
    '"\\ud800 \\udfff"',
    '"\\u0000"',
    '{"\\ud800": "\\udc00"}',
    '{"type": 1, "type": []}',
    '"' + "*a" * 2000 + '"',
    "true",
    "[[], {}, null]",
)


def _poisoned(chance: random.Random, record: Any) -> bytes:
    """The record with one of its values replaced."""
    odd = replaced(record, chance.choice(places_in(record)[1:]), "@@")
    return line(odd).replace(b'"@@"', chance.choice(_POISONS).encode())


def _write(home: Path, log: AgentLog, middles: list[bytes]) -> None:
    for number, middle in enumerate(middles, 1):
        session = session_id(number)
        before, after = log.message(session, 1, "before"), log.message(session, 900, "after")
        log.write(home, lines([*log.opening(session), before]) + middle + line(after), session)


def _sweep_timed(folder: Path, log: AgentLog, middles: list[bytes]) -> tuple[Held, float]:
    _write(folder / "home", log, middles)
    begun = time.process_time()
    held = sweep(folder / "store", log.root_flag(folder / "home"))
    return held, time.process_time() - begun


def test_of_many_poisoned_files_none_is_lost_and_the_sweep_ends_soon(tmp_path: Path, log: AgentLog) -> None:
    chance = random.Random(14)
    shapes = chance.choices(shapes_of(log), k=FILES)
    _, clean_seconds = _sweep_timed(tmp_path / "clean", log, [line(record) for record in shapes])

    held, seconds = _sweep_timed(tmp_path / "poisoned", log, [_poisoned(chance, record) for record in shapes])

    assert held.report.failures == []
    texts = Counter(held.texts)
    count("line", FILES, min(texts["before"], texts["after"]))
    assert (texts["before"], texts["after"]) == (FILES, FILES)
    assert seconds <= SLOWER * clean_seconds
