"""Prompts typed while the agent works: each is held once, whether the log tells it again or not."""

from datetime import timedelta
from pathlib import Path

import pytest

from recollect.api import Memory
from recollect.model.schema import QUEUE_ONLY, USER_MSG
from tests import logs
from tests.conftest import swept, with_key
from tests.logs import CLAUDE, claude_answer, claude_user, moment, session_id, timestamp

SESSION = session_id()
SECRET = "use sk-ant-api03-" + "fH3kP9vQ2m" * 9 + "AA for it"


def enqueued(number: int, text: str) -> logs.Record:
    about = {"type": "queue-operation", "operation": "enqueue", "timestamp": timestamp(number), "sessionId": SESSION}
    return {**about, "content": text}


def left(number: int, operation: str) -> logs.Record:
    return {"type": "queue-operation", "operation": operation, "timestamp": timestamp(number), "sessionId": SESSION}


RECORDS = [
    claude_user(SESSION, 1, "fix the parser"),
    enqueued(2, "and its tests"),
    claude_answer(SESSION, 3, "I am on it"),
    enqueued(4, SECRET),
    enqueued(5, "merge main before that"),
    left(6, "dequeue"),
    claude_user(SESSION, 7, "and its tests"),
    left(8, "remove"),
    claude_user(SESSION, 9, SECRET),
    left(10, "popAll"),
    claude_answer(SESSION, 11, "done"),
]


def write(home: Path, records: list[logs.Record]) -> str:
    CLAUDE.write(home, logs.lines(records), SESSION)
    return CLAUDE.root_flag(home)


def told(memory: Memory) -> list[tuple[str, str | None]]:
    (session,) = memory.sessions()
    return [(event.summary, event.status) for event in memory.events(session)]


def test_a_log_read_line_by_line_holds_what_one_read_at_once_holds(tmp_path: Path) -> None:
    stores = [with_key(tmp_path / name) for name in ("at once", "by lines")]
    with swept(stores[0], write(tmp_path / "home", RECORDS)) as memory:
        whole, hashes = told(memory), {session.content_hash for session in memory.sessions()}

    for count in range(1, len(RECORDS) + 1):
        with swept(stores[1], write(tmp_path / "home", RECORDS[:count])) as memory:
            pieces, grown = told(memory), {session.content_hash for session in memory.sessions()}

    assert (pieces, grown) == (whole, hashes)
    assert [summary for summary, status in whole if status == QUEUE_ONLY] == ["merge main before that"]
    assert len(whole) == 6


def test_a_prompt_still_in_the_queue_is_found(tmp_path: Path) -> None:
    with swept(tmp_path / "store", write(tmp_path / "home", RECORDS[:2])) as memory:
        (session,) = memory.sessions()

        assert told(memory)[-1] == ("and its tests", QUEUE_ONLY)
        assert session.cost.turns == 2
        assert [hit.session_uid for hit in memory.search("tests")] == [session.session_uid]


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_an_older_copy_of_the_log_does_not_bring_a_delivered_prompt_back(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    # The copy began later in the session, so that nothing in it stands at the place it has in the whole log.
    roots = {"old": write(tmp_path / "old", RECORDS[2:5]), "new": write(tmp_path / "new", RECORDS)}

    for number in (1, 2):
        memory = swept(tmp_path / "store", *(roots[name] for name in order[:number]))
        summaries = [event.summary for event in memory.events(memory.sessions()[0], USER_MSG)]
        memory.close()

    assert len(summaries) == len(set(summaries)) == 4


def test_a_digest_follows_when_a_prompt_turns_out_to_be_delivered(tmp_path: Path) -> None:
    waiting = [
        claude_user(SESSION, 1, "begin"),
        claude_answer(SESSION, 2, "ok"),
        *(enqueued(n, "continue") for n in (100, 200, 300, 400)),
    ]
    with swept(tmp_path / "store", write(tmp_path / "home", waiting)) as memory:
        assert memory.digest(memory.sessions()[0]).request_count == 5

    ended = [*waiting, claude_user(SESSION, 407, "continue"), claude_answer(SESSION, 408, "All done.")]
    with swept(tmp_path / "store", write(tmp_path / "home", ended)) as memory:
        digest = memory.digest(memory.sessions()[0])

    assert digest.request_count == 2
    assert digest.final_answer is not None
    assert digest.final_answer.text == "All done."


@pytest.mark.parametrize(("days", "count"), [(0, 1), (9, 2)])
def test_the_same_words_of_days_later_are_another_prompt(tmp_path: Path, days: int, count: int) -> None:
    later = {**claude_user(SESSION, 5, "continue"), "timestamp": f"2026-11-{15 + days:02d}T23:00:00.000Z"}
    records = [claude_user(SESSION, 1, "begin"), enqueued(2, "continue"), claude_answer(SESSION, 3, "ok"), later]
    for length in (3, 4):  # in two pieces, and the store decides
        memory = swept(tmp_path / "store", write(tmp_path / "home", records[:length]))
        with memory, swept(tmp_path / f"whole {length}", write(tmp_path / "home", records[:length])) as whole:
            held = [event.summary for event in memory.events(memory.sessions()[0], USER_MSG)]
            assert held.count("continue") == whole_count(whole, "continue")

    assert held.count("continue") == count


def requeued(milliseconds: int) -> logs.Record:
    """A prompt that a faulty version puts back into its queue."""
    at = moment(10) + timedelta(milliseconds=milliseconds)
    return {**enqueued(10, "run the tests"), "timestamp": f"{at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"}


@pytest.mark.parametrize("is_delivered", [False, True])
def test_a_prompt_queued_again_every_80_ms_is_one_prompt(tmp_path: Path, is_delivered: bool) -> None:
    again = [requeued(80 * n) for n in range(2000)]  # for 160 s
    if is_delivered:
        again.insert(20, claude_user(SESSION, 12, "run the tests"))
    records = [claude_user(SESSION, 1, "begin"), *again]
    for length in (300, len(records)):  # the run goes on after the first sweep
        memory = swept(tmp_path / "store", write(tmp_path / "home", records[:length]))
        with memory:
            prompts = [summary for summary, _ in told(memory)]

    assert prompts == ["begin", "run the tests"]


def whole_count(memory: Memory, words: str) -> int:
    return [summary for summary, _ in told(memory)].count(words)


def test_reading_again_writes_nothing(tmp_path: Path) -> None:
    with swept(tmp_path / "store", write(tmp_path / "home", RECORDS)) as memory:
        report = memory.sweep(verify=True)

    assert (report.events_new, report.events_replaced) == (0, 0)
