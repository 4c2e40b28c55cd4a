"""The ledger: what it was given it gives back, and what is not as it was written is named."""

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.model.errors import StoreUnwritable
from recollect.store.ledger import Ledger
from tests.faults.rig import scratch
from tests.test_api import SCHEMAS, breaches


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def held(ledger: Ledger) -> list[tuple[str, dict[str, object]]]:
    return [(record.kind, record.data) for record in ledger.records()]


def test_records_come_back_in_the_order_they_were_written(ledger: Ledger) -> None:
    ledger.append("note", {"text": "one"})
    ledger.append("tombstone", {"agent": "a"})
    ledger.append("note", {"text": "two \u2028 lines"})

    assert held(ledger) == [
        ("note", {"text": "one"}),
        ("tombstone", {"agent": "a"}),
        ("note", {"text": "two \u2028 lines"}),
    ]
    assert [record.data for record in ledger.records("note")] == [{"text": "one"}, {"text": "two \u2028 lines"}]
    assert ledger.damage() == []


def test_every_line_keeps_to_the_schema_and_its_sum_can_be_checked_by_anybody(ledger: Ledger) -> None:
    ledger.append("note", {"text": 'it has ,"sum":" inside'})
    (line,) = ledger.path.read_bytes().splitlines()

    assert breaches(SCHEMAS["ledger"], json.loads(line)) == []
    told = line[: line.rindex(b',"sum"')] + b"}"
    assert json.loads(line)["sum"] == hashlib.blake2b(told, digest_size=8).hexdigest()


def test_a_ledger_that_is_not_there_is_empty(ledger: Ledger) -> None:
    assert held(ledger) == []
    assert ledger.damage() == []


def test_only_the_user_may_read_it(ledger: Ledger) -> None:
    ledger.append("note", {})
    ledger.append("note", {"n": 1})
    ledger.rewrite(lambda record: bool(record.data))

    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_a_crashed_append_left_is_cut_off_by_the_next(data: st.DataObject) -> None:
    with scratch() as folder:
        ledger = Ledger(folder)
        ledger.append("note", {"text": "first"})
        whole = ledger.path.read_bytes()
        ledger.append("note", {"text": "second " + "x" * data.draw(st.integers(0, 200_000))})
        torn = data.draw(st.integers(len(whole), ledger.path.stat().st_size - 1))
        os.truncate(ledger.path, torn)

        assert held(ledger) == [("note", {"text": "first"})]
        assert ledger.damage() == []
        ledger.append("note", {"text": "third"})

        assert held(ledger) == [("note", {"text": "first"}), ("note", {"text": "third"})]
        assert ledger.path.read_bytes().startswith(whole)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_every_changed_byte_is_noticed_and_costs_its_line_only(data: st.DataObject) -> None:
    with scratch() as folder:
        ledger = Ledger(folder)
        for number in range(3):
            ledger.append("note", {"number": number, "text": "words"})
        content = bytearray(ledger.path.read_bytes())
        lines = bytes(content).splitlines(keepends=True)
        place = data.draw(st.integers(0, len(content) - 2))
        content[place] ^= data.draw(st.integers(1, 255))
        ledger.path.write_bytes(content)
        line = sum(place >= sum(map(len, lines[:number])) for number in range(3))

        assert any(f"line {line} " in message for message in ledger.damage())
        assert {record.data["number"] for record in ledger.records()} <= {0, 1, 2} - {line - 1} or content[place] == 10


def test_a_rewrite_leaves_out_what_is_refused_and_keeps_damaged_lines(ledger: Ledger) -> None:
    for number in range(4):
        ledger.append("note", {"number": number})
    damaged = ledger.path.read_bytes().replace(b'"number":3', b'"number":9')
    ledger.path.write_bytes(damaged)

    assert ledger.rewrite(lambda record: record.data["number"] != 1) == 1

    assert [record.data["number"] for record in ledger.records()] == [0, 2]
    assert ledger.damage() != []
    assert [path.name for path in ledger.path.parent.iterdir() if path.suffix == ".new"] == []


def test_a_rewrite_that_refuses_nothing_touches_nothing(ledger: Ledger) -> None:
    ledger.append("note", {})
    before = ledger.path.stat()

    assert ledger.rewrite(lambda record: True) == 0

    assert (ledger.path.stat().st_ino, ledger.path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_an_update_replaces_data_and_keeps_damaged_lines(ledger: Ledger) -> None:
    for number in range(3):
        ledger.append("note", {"number": number})
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"number":2', b'"number":9'))
    damage, times = ledger.damage(), [record.at_ms for record in ledger.records()]

    assert ledger.update(lambda record: {"number": 7} if record.data["number"] == 1 else None)

    assert [record.data["number"] for record in ledger.records()] == [0, 7]
    assert [record.at_ms for record in ledger.records()] == times
    assert ledger.damage() == damage
    assert not ledger.update(lambda record: dict(record.data))


def test_a_read_only_ledger_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnwritable, match="read-only"):
        Ledger(tmp_path, read_only=True).append("note", {})
