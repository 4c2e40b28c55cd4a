"""What is read of a damaged line."""

import time

import orjson
import pytest

from recollect.agentkit.log import salvage

BLOCK = {"type": "text", "text": "x" * 200}
RECORD = {"parentUuid": None, "type": "user", "sessionId": "s", "message": {"content": [BLOCK] * 3}, "uuid": "u"}


def line(blocks: int = 3) -> bytes:
    return orjson.dumps({**RECORD, "message": {"content": [BLOCK] * blocks}})


def test_two_records_on_one_line_are_both_read() -> None:
    found = salvage(line() + line())

    assert (found.records, found.bad) == ([RECORD, RECORD], None)


def test_the_record_glued_to_a_torn_one_is_read() -> None:
    found = salvage(line()[:-40] + line())

    assert found.records == [RECORD]
    assert found.bad == "cut off, the next record glued to it"


def test_a_block_inside_a_torn_record_is_no_record() -> None:
    torn = line().partition(b'"text":"xx')[0] + b'"text":"torn"}'

    found = salvage(torn)

    assert (found.records, found.bad) == ([], "not JSON")


@pytest.mark.parametrize("glued", [False, True])
def test_work_on_a_torn_line_grows_with_its_length_only(glued: bool) -> None:
    def seconds(blocks: int) -> float:
        raw = line(blocks)[:-40] + (line(blocks) if glued else b"")
        begun = time.process_time()
        salvage(raw)
        return time.process_time() - begun

    # Eight times the length; quadratic work would take sixty-four times as long.
    assert seconds(24_000) < 30 * max(seconds(3_000), 0.005)


def test_a_lone_surrogate_costs_one_character() -> None:
    found = salvage(b'{"text": "a \\ud83c b", "deep": [{"x\\udfff": 1}]}')

    assert found.records == [{"text": "a \ufffd b", "deep": [{"x\ufffd": 1}]}]
    assert found.is_lossy
