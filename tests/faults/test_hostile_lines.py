"""Lines no agent should write and every agent has written: a damaged line costs that line only."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.api import open_memory
from tests.faults.rig import IS_LONG, IS_SOAK, Held, run, scratch, sweep, sweep_file
from tests.logs import (
    AGENT_LOGS,
    CLAUDE,
    CODEX,
    GROK,
    AgentLog,
    Record,
    claude_answer,
    claude_call,
    claude_result,
    claude_user,
    grok_update,
    line,
    lines,
    session_id,
    timestamp,
)
from tests.shapes import places_in, replaced
from tests.tally import count

SESSION = session_id()
EXAMPLES = 1000 if IS_LONG else 100 if IS_SOAK else 15
MANY = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _between(log: AgentLog, raw: bytes) -> bytes:
    """A session with `raw` as a line between two ordinary messages."""
    first, last = log.message(SESSION, 1, "before"), log.message(SESSION, 900, "after")
    return lines(log.opening(SESSION)) + line(first) + raw + b"\n" + line(last)


def _message_with(log: AgentLog, raw_text: bytes, number: int = 2) -> bytes:
    """A message whose JSON string is these bytes, as they are."""
    return line(log.message(SESSION, number, "@@")).rstrip(b"\n").replace(b"@@", raw_text)


def _assert_neighbours(held: Held) -> None:
    assert held.texts[0] == "before"
    assert held.texts[-1] == "after"


# Where lines end


def test_an_unfinished_last_line_waits_for_the_next_sweep_and_is_then_read_once(tmp_path: Path, log: AgentLog) -> None:
    content = log.content(3, words="café")
    written = content[:-30]
    store, home = tmp_path / "store", tmp_path / "home"
    path = log.write(home, written)

    early = sweep(store, log.root_flag(home))
    path.write_bytes(content)
    late = sweep(store, log.root_flag(home))

    assert early.texts == ["café 1", "café 2"]
    assert late.texts == ["café 1", "café 2", "café 3"]
    assert late.report.events_new == 1
    assert late.problems == []


def test_a_whole_record_that_lacks_only_its_line_end_is_read_once(tmp_path: Path, log: AgentLog) -> None:
    content = log.content(3)
    early = sweep_file(tmp_path, log, content[:-1])

    late = sweep_file(tmp_path, log, content + b"no JSON\n" + line(log.message(SESSION, 4, "hello 4")))

    assert early.texts == ["hello 1", "hello 2", "hello 3"]
    assert late.texts == ["hello 1", "hello 2", "hello 3", "hello 4"]
    assert [problem.line for problem in late.problems] == [len(log.opening(SESSION)) + 4]


@pytest.mark.parametrize("pieces", [1, 7, 24])
def test_a_file_read_in_pieces_gives_the_same_hash_as_read_at_once(tmp_path: Path, log: AgentLog, pieces: int) -> None:
    content = log.content(12, words="né\u2028e")
    whole = sweep_file(tmp_path / "whole", log, content)
    step = len(content) // pieces + 1

    for end in range(step, len(content) + step, step):
        held = sweep_file(tmp_path / "pieces", log, content[:end])

    assert held.hashes == whole.hashes
    assert held.texts == whole.texts


@pytest.mark.parametrize("cut", [1, 3])
def test_a_last_line_cut_inside_a_character_is_no_problem(tmp_path: Path, cut: int) -> None:
    content = lines([claude_user(SESSION, 1, "before")]) + line(claude_user(SESSION, 2, "🦊"))
    inside = content.index("🦊".encode()) + cut

    held = sweep_file(tmp_path, CLAUDE, content[:inside])

    assert held.texts == ["before"]
    assert held.problems == []


def test_line_ends_of_other_systems_and_empty_lines_cost_nothing(tmp_path: Path, log: AgentLog) -> None:
    content = (
        b"\xef\xbb\xbf" + log.content(3).replace(b"\n", b"\r\n") + b"\r\n\n  \n" + line(log.message(SESSION, 4, "last"))
    )

    held = sweep_file(tmp_path, log, content)

    assert held.texts == ["hello 1", "hello 2", "hello 3", "last"]
    assert held.problems == []


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\u001c", "\x0b", "\x0c"], ids=ascii)
def test_only_the_line_feed_ends_a_line(tmp_path: Path, log: AgentLog, odd: str) -> None:
    written = odd if ord(odd) > 0x1F else f"\\u{ord(odd):04x}"

    held = sweep_file(tmp_path, log, _between(log, _message_with(log, f"a{written}b".encode())))

    assert held.texts == ["before", f"a{odd}b", "after"]
    assert held.problems == []


@pytest.mark.parametrize("control", [b"\x0b", b"\x0c", b"\x1c"], ids=repr)
def test_a_raw_control_character_costs_at_most_its_own_line(tmp_path: Path, log: AgentLog, control: bytes) -> None:
    held = sweep_file(tmp_path, log, _between(log, _message_with(log, b"a" + control + b"b")))

    _assert_neighbours(held)
    assert len(held.texts) + len(held.problems) == 3


# Torn writes


def _glued(log: AgentLog) -> tuple[bytes, list[str], int]:
    """Every way to cut one record and glue the next to it, a line each."""
    torn = line(log.message(SESSION, 1, "torn")).rstrip(b"\n")
    step = 1 if IS_SOAK else 3
    cuts = range(1, len(torn), step)
    texts = [f"glued {cut}" for cut in cuts]
    glued = [torn[:cut] + line(log.message(SESSION, 10 + cut, text)) for cut, text in zip(cuts, texts, strict=True)]
    return lines(log.opening(SESSION)) + b"".join(glued), texts, len(texts)


def test_a_record_glued_to_a_torn_one_is_recovered(tmp_path: Path, log: AgentLog) -> None:
    content, texts, cuts = _glued(log)

    held = sweep_file(tmp_path, log, content)

    recovered = set(held.texts)
    is_held = len(recovered & set(texts)) >= 0.95 * cuts and len(held.problems) == cuts
    count("line", cuts, cuts * is_held)
    assert is_held
    assert "torn" not in recovered


def test_the_torn_part_of_a_line_is_kept_as_a_problem_at_its_place(tmp_path: Path, log: AgentLog) -> None:
    first = line(log.message(SESSION, 1, "before"))
    torn = line(log.message(SESSION, 2, "torn"))[:-25]
    opening = lines(log.opening(SESSION))

    held = sweep_file(tmp_path, log, opening + first + torn + line(log.message(SESSION, 3, "after")))

    assert held.texts == ["before", "after"]
    (problem,) = held.problems
    assert problem.offset == len(opening + first)
    assert problem.line == len(log.opening(SESSION)) + 2
    assert problem.excerpt.encode() == torn[:200]


def test_two_whole_records_on_one_line_are_both_read(tmp_path: Path, log: AgentLog) -> None:
    both = line(log.message(SESSION, 2, "one")).rstrip(b"\n") + line(log.message(SESSION, 3, "two")).rstrip(b"\n")

    held = sweep_file(tmp_path, log, _between(log, both))

    assert held.texts == ["before", "one", "two", "after"]


def test_a_block_of_nul_bytes_is_a_problem_and_what_follows_is_read(tmp_path: Path, log: AgentLog) -> None:
    nul = b"\x00" * 4096
    content = _between(log, nul + b"\n" + nul + _message_with(log, b"behind"))

    held = sweep_file(tmp_path, log, content)

    assert held.texts == ["before", "behind", "after"]
    assert [problem.reason for problem in held.problems] == ["block of NUL bytes"] * 2


# Text that is no Unicode, and text that is odd Unicode


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"caf\xff\xfe", "caf\ufffd\ufffd"), (b"a\\ud83cb", "a\ufffdb"), (b"\\udc00\\ud800", "\ufffd\ufffd")],
    ids=["invalid UTF-8", "lone surrogate", "surrogates in the wrong order"],
)
def test_what_is_no_character_is_replaced_and_the_event_marked_lossy(
    tmp_path: Path, log: AgentLog, raw: bytes, text: str
) -> None:
    held = sweep_file(tmp_path, log, _between(log, _message_with(log, raw)))

    assert [found.rstrip("\ufffd") for found in held.texts] == ["before", text.rstrip("\ufffd"), "after"]
    assert "\ufffd" in held.texts[1]
    assert held.event(held.texts[1]).metadata["lossy"] is True
    assert "lossy" not in held.event("after").metadata


def test_a_nul_character_in_a_text_is_kept(tmp_path: Path, log: AgentLog) -> None:
    held = sweep_file(tmp_path, log, _between(log, _message_with(log, b"a\\u0000b")))

    assert held.texts == ["before", "a\x00b", "after"]
    assert held.problems == []


def test_a_surrogate_in_an_id_or_a_folder_name_does_not_end_the_sweep(tmp_path: Path) -> None:
    record = claude_user(SESSION, 2, "odd names") | {"sessionId": "s-\ud800", "uuid": "u-\udfff", "cwd": "/x/\ud800"}
    raw = json.dumps(record).encode()

    held = sweep_file(tmp_path, CLAUDE, _between(CLAUDE, raw))

    assert sorted(held.texts) == ["after", "before", "odd names"]


# Values


@pytest.mark.parametrize("depth", [1_500, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'], ids=["lists", "objects"])
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "cut off"])
def test_deep_nesting_costs_one_line_and_little_time(
    tmp_path: Path, log: AgentLog, depth: int, opening: str, is_closed: bool
) -> None:
    closing = ("]" if opening == "[" else "}") * depth if is_closed else ""
    deep = (opening * depth + "1" + closing).encode()
    nested = _message_with(log, b"deep").replace(b'"deep"', deep)
    begun = time.process_time()

    held = sweep_file(tmp_path, log, _between(log, deep + b"\n" + nested))

    assert time.process_time() - begun < 2
    _assert_neighbours(held)
    assert held.accounted >= 4
    assert held.report.bad_lines >= 1


@pytest.mark.parametrize("depth", range(240, 262))
def test_arguments_nested_as_deep_as_a_json_writer_goes_cost_nothing(tmp_path: Path, depth: int) -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "call-1", "title": "look", "rawInput": "@@"}
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    raw = line(grok_update(SESSION, 2, call)).replace(b'"@@"', deep).rstrip(b"\n")

    held = sweep_file(tmp_path, GROK, _between(GROK, raw))

    _assert_neighbours(held)
    assert [event.tool for event in held.events] == [None, "look", None]


NUMBERS = [
    "9" * 309,
    "9" * 4000,
    "9" * 5000,
    "-" + "9" * 5000,
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    str(2**63),
    str(2**64),
    "-1",
    "0.5",
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:24])
def test_a_number_no_column_takes_is_no_token_count(tmp_path: Path, log: AgentLog, number: str) -> None:
    counted = line(log.tokens(SESSION, 2, 5))
    odd = line(log.tokens(SESSION, 3, "@@")).replace(b'"@@"', number.encode()).rstrip(b"\n")

    held = sweep_file(tmp_path, log, _between(log, counted + odd))

    assert {"before", "after"} <= set(held.texts)
    (session,) = held.sessions
    assert session.cost.input_tokens == 5


def test_token_counts_that_add_up_past_64_bits_do_not_end_the_sweep(tmp_path: Path, log: AgentLog) -> None:
    huge = 2**63 - 1
    counts = line(log.tokens(SESSION, 2, huge)) + line(log.tokens(SESSION, 3, huge))

    held = sweep_file(tmp_path, log, _between(log, counts.rstrip(b"\n")))

    assert {"before", "after"} <= set(held.texts)
    assert len(held.sessions) == 1


def test_totals_of_sessions_that_add_up_past_64_bits_can_be_told(tmp_path: Path, log: AgentLog) -> None:
    for number in (1, 2, 3):
        session = session_id(number)
        records = [*log.opening(session), log.message(session, 1, "hello"), log.tokens(session, 2, 2**62)]
        log.write(tmp_path / "home", lines(records), session)
    sweep(tmp_path / "store", log.root_flag(tmp_path / "home"))

    with open_memory(tmp_path / "store") as memory:
        status = memory.status()

    assert status.sessions == 3


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:24])
def test_an_impossible_number_in_any_field_costs_at_most_its_line(tmp_path: Path, log: AgentLog, number: str) -> None:
    record = log.message(SESSION, 2, "numbers")
    places = [place for place in places_in(record) if place]
    odd = [line(replaced(record, place, "@@")).replace(b'"@@"', number.encode()) for place in places]

    held = sweep_file(tmp_path, log, _between(log, b"".join(odd).rstrip(b"\n")))

    assert {"before", "after"} <= set(held.texts)
    assert held.report.lines_read == len(log.opening(SESSION)) + len(odd) + 2


@pytest.mark.parametrize("count", [309, 4000, 5000])
def test_a_number_of_many_digits_in_an_input_is_kept_as_text(tmp_path: Path, count: int) -> None:
    digits = b"9" * count
    raw = line(claude_call(SESSION, 2, "@@")).replace(b'"@@"', digits).rstrip(b"\n")

    held = sweep_file(tmp_path, CLAUDE, _between(CLAUDE, raw))

    assert digits in json.dumps(held.payloads[1]).encode()


def test_of_two_equal_keys_the_last_wins(tmp_path: Path, log: AgentLog) -> None:
    name = b'"content":"@@"' if log is CLAUDE else b'"text":"@@"'
    raw = _message_with(log, b"@@").replace(name, name.replace(b"@@", b"first") + b"," + name.replace(b"@@", b"last"))

    held = sweep_file(tmp_path, log, _between(log, raw))

    assert held.texts == ["before", "last", "after"]


@pytest.mark.parametrize("raw", [b"[1,2]", b"7", b'"text"', b"null", b"true", b"-0.0", b"[]", b"{}", b"NaN"], ids=repr)
def test_a_line_that_is_no_record_is_a_problem(tmp_path: Path, log: AgentLog, raw: bytes) -> None:
    held = sweep_file(tmp_path, log, _between(log, raw))

    assert held.texts == ["before", "after"]
    assert held.accounted == held.report.lines_read


# Ids, parents, clocks


@pytest.mark.parametrize("between", ["", "between"], ids=["in a row", "apart"])
def test_a_record_told_twice_is_one_event(tmp_path: Path, log: AgentLog, between: str) -> None:
    record = line(log.message(SESSION, 2, "twice"))
    other = line(log.message(SESSION, 3, between)) if between else b""

    held = sweep_file(tmp_path, log, _between(log, record + other + record.rstrip(b"\n")))

    # Where it stands is where the file told it last, or first if its time says so: however the file is cut into pieces.
    assert held.texts.count("twice") == 1
    assert [text for text in held.texts if text != "twice"] == ["before", *([between] if between else []), "after"]


@pytest.mark.parametrize("is_in_two_sweeps", [False, True])
def test_two_records_with_one_id_and_other_content_are_both_kept(
    tmp_path: Path, log: AgentLog, is_in_two_sweeps: bool
) -> None:
    first, second = (line(log.message(SESSION, 2, text)) for text in ("one", "other"))
    between, last = line(log.message(SESSION, 3, "between")), line(log.message(SESSION, 4, "last"))
    opening = lines(log.opening(SESSION))
    if is_in_two_sweeps:
        sweep_file(tmp_path, log, opening + first + between)

    held = sweep_file(tmp_path, log, opening + first + between + second + last)

    assert sorted(held.texts) == ["between", "last", "one", "other"]


def test_missing_parents_and_circles_of_parents_cost_nothing(tmp_path: Path) -> None:
    ids = [claude_user(SESSION, number, "")["uuid"] for number in range(6)]
    parents = {1: ids[1], 2: ids[3], 3: ids[2], 4: "no such record", 5: 17}
    records = [
        claude_user(SESSION, number, f"hello {number}") | {"parentUuid": parent} for number, parent in parents.items()
    ]

    held = sweep_file(tmp_path, CLAUDE, lines(records))

    assert held.texts == [f"hello {number}" for number in parents]


def test_a_chain_of_parents_may_be_longer_than_any_stack(tmp_path: Path) -> None:
    held = sweep_file(tmp_path, CLAUDE, CLAUDE.content(3000))

    assert len(held.texts) == 3000


@pytest.mark.parametrize("field", ["parent_thread_id", "forked_from_id"])
def test_sessions_that_descend_from_each_other_can_still_be_shown(tmp_path: Path, field: str) -> None:
    home = tmp_path / "home"
    above = {1: session_id(2), 2: session_id(1), 3: session_id(3)}
    for number, parent in above.items():
        session = session_id(number)
        (meta,) = CODEX.opening(session)
        records = [meta | {"payload": meta["payload"] | {field: parent}}, CODEX.message(session, 1, f"hello {number}")]
        CODEX.write(home, lines(records), session)
    script = (
        "import sys; from recollect.api import open_memory\n"
        "memory = open_memory(None, [sys.argv[1]]); memory.sweep()\n"
        "print(sorted(item.payload.get('text') for s in memory.sessions() for item in memory.transcript(s)"
        " if item.session == s))"
    )

    done = _python(script, tmp_path, CODEX.root_flag(home))

    assert done.stdout.strip() == "['hello 1', 'hello 2', 'hello 3']", done.stderr


ODD_TIMES: list[Any] = [
    "1970-01-01T00:00:00.000Z",
    "2999-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z",
    "0001-01-01T00:00:00.000Z",
    "+99999-01-01T00:00:00Z",
    "2026-02-31T00:00:00Z",
    "2026-11-15T18:00:00",
    "yesterday",
    "",
    None,
    0,
    -1,
    1e300,
    [],
    {},
]


@pytest.mark.parametrize("log", [CLAUDE, CODEX], ids=lambda log: log.agent)
def test_odd_clocks_neither_lose_nor_reorder_events(tmp_path: Path, log: AgentLog) -> None:
    records = [
        log.message(SESSION, number, f"hello {number}") | {"timestamp": told}
        for number, told in enumerate(ODD_TIMES, start=1)
    ]
    backwards = log.message(SESSION, 100, "earlier") | {"timestamp": timestamp(-5000)}
    missing = {name: value for name, value in log.message(SESSION, 101, "none").items() if name != "timestamp"}

    held = sweep_file(tmp_path, log, lines([*log.opening(SESSION), *records, backwards, missing]))

    assert held.texts == [f"hello {number}" for number in range(1, len(records) + 1)] + ["earlier", "none"]
    assert held.event("hello 2").ts == ODD_TIMES[1]
    assert held.event("hello 8").ts is None
    assert held.event("earlier").ts == timestamp(-5000)
    assert held.event("none").ts is None


@pytest.mark.parametrize("time_ms", [0, -1, 2**63, 2**64, 1e300, 99999999999999, None, "soon", [], 1.5, True], ids=repr)
def test_an_impossible_moment_loses_no_event(tmp_path: Path, time_ms: Any) -> None:
    record = GROK.message(SESSION, 2, "when")
    record["params"]["_meta"]["agentTimestampMs"] = time_ms
    record["timestamp"] = time_ms

    held = sweep_file(tmp_path, GROK, _between(GROK, line(record).rstrip(b"\n")))

    assert sorted(held.texts) == ["after", "before", "when"]


def test_sessions_with_odd_clocks_can_be_listed_and_shown(tmp_path: Path, log: AgentLog) -> None:
    for number, told in enumerate(ODD_TIMES, start=1):
        session = session_id(number)
        content = lines([*log.opening(session), log.message(session, 1, f"hello {number}") | {"timestamp": told}])
        log.write(tmp_path / "home", content, session)
    script = (
        "import sys; from recollect.cli import main\n"
        "main(['sweep', '--root', sys.argv[1]], standalone_mode=False)\n"
        "main(['sessions'], standalone_mode=False); main(['status'], standalone_mode=False)\n"
        f"main(['show', '{session_id(3)}'], standalone_mode=False)"
    )

    done = _python(script, tmp_path, log.root_flag(tmp_path / "home"))

    assert done.returncode == 0, done.stderr
    assert "hello 3" in done.stdout


# Size


def _python(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: its memory can be measured, and it may die."""
    return run([sys.executable, "-P", "-c", script, *arguments], folder / "store", timeout=120)


_PEAK = (
    "import sys, resource\n"
    "from recollect.api import open_memory\n"
    "memory = open_memory(None, [sys.argv[1]]); report = memory.sweep()\n"
    "peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
    "held = [event.payload_ref[1] for session in memory.sessions() for event in memory.events(session)]\n"
    "print(max(peaks) * 1024, max(held, default=0), len(held), report.bad_lines, len(report.failures))\n"
)


def _peak(folder: Path, log: AgentLog) -> list[int]:
    """Peak memory in bytes, the largest payload, and the numbers of events, bad lines and failed files."""
    done = _python(_PEAK, folder, log.root_flag(folder / "home"))
    assert done.returncode == 0, done.stderr
    return [int(figure) for figure in done.stdout.split()]


@pytest.mark.parametrize("log", AGENT_LOGS if IS_SOAK else [CLAUDE], ids=lambda log: log.agent)
def test_memory_for_a_line_of_50_megabytes_is_bounded(tmp_path: Path, log: AgentLog) -> None:
    size = 50_000_000
    log.write(tmp_path / "home", _between(log, _message_with(log, b"wide " * (size // 5))))

    peak, largest, events, bad_lines, failures = _peak(tmp_path, log)

    assert largest >= size
    assert (events, bad_lines, failures) == (3, 0, 0)
    assert peak <= 100_000_000 + 10 * size


@pytest.mark.parametrize("log", AGENT_LOGS if IS_SOAK else [CLAUDE], ids=lambda log: log.agent)
def test_a_damaged_line_of_50_megabytes_is_one_problem_in_bounded_memory(tmp_path: Path, log: AgentLog) -> None:
    size = 50_000_000
    torn = _message_with(log, b"wide " * (size // 5))[:-40]
    log.write(tmp_path / "home", _between(log, torn))

    peak, _, events, bad_lines, failures = _peak(tmp_path, log)

    assert (events, bad_lines, failures) == (2, 1, 0)
    assert peak <= 100_000_000 + 10 * size


def test_a_line_past_the_limit_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    path = CLAUDE.write(tmp_path / "home", line(claude_user(SESSION, 1, "before")))
    with path.open("r+b") as file:
        file.seek(300 * 1024 * 1024)  # a hole: takes no room on the disk, and reads as NUL bytes
        file.write(b"\n" + line(claude_user(SESSION, 2, "after")))

    peak, _, events, bad_lines, failures = _peak(tmp_path, CLAUDE)

    assert (events, failures) == (2, 0)
    assert bad_lines >= 1
    assert peak <= 100_000_000 + 2 * 300 * 1024 * 1024


@pytest.mark.parametrize("raw", [b"\n", b"x\n", b"{}\n", b'{"id":1,', b'{"id":'], ids=repr)
def test_a_file_of_nothing_but_rubbish_fills_no_store_and_takes_little_time(tmp_path: Path, raw: bytes) -> None:
    count = 1_000_000 if IS_SOAK else 50_000
    begun = time.process_time()

    held = sweep_file(tmp_path, CODEX, _between(CODEX, raw * count))

    assert {"before", "after"} >= set(held.texts) >= {"before"}
    assert len(held.problems) <= 1000
    assert held.accounted >= held.report.lines_read - 1
    assert time.process_time() - begun < 20 * count / 200_000


# Any record, any value

_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def _genuine_shapes(log: AgentLog) -> list[Record]:
    shapes = [*log.opening(SESSION), log.message(SESSION, 2, "hello"), log.tokens(SESSION, 3, 7)]
    if log is CLAUDE:
        shapes += [claude_call(SESSION, 4, "ls"), claude_result(SESSION, 5, "a.py"), claude_answer(SESSION, 6, "done")]
    return shapes


@st.composite
def _mutants(draw: st.DrawFn, log: AgentLog) -> Any:
    """A record of a genuine shape with some of its values replaced by others of any JSON type."""
    record: Any = draw(st.sampled_from(_genuine_shapes(log)))
    for _ in range(draw(st.integers(1, 3))):
        if not isinstance(record, dict):
            break
        place = draw(st.sampled_from(places_in(record)))
        record = replaced(record, place, draw(_VALUES))
    return record


def _as_line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
@MANY
@given(data=st.data())
def test_values_of_any_type_never_cost_more_than_their_line(log: AgentLog, data: st.DataObject) -> None:
    records = data.draw(st.lists(_mutants(log), min_size=1, max_size=8))
    content = _between(log, b"".join(map(_as_line, records)).rstrip(b"\n"))

    with scratch() as folder:
        held = sweep_file(folder, log, content)

    is_held = {"before", "after"} <= set(held.texts)
    count("line", len(records), len(records) * is_held)
    assert is_held
    assert held.report.lines_read == len(log.opening(SESSION)) + len(records) + 2


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
@MANY
@given(mutant=st.data())
def test_a_message_with_a_wrong_value_is_an_event_a_skip_or_a_problem(log: AgentLog, mutant: st.DataObject) -> None:
    message = log.message(SESSION, 2, "hello")
    place = mutant.draw(st.sampled_from(places_in(message)))
    raw = _as_line(replaced(message, place, mutant.draw(_VALUES))).rstrip(b"\n")

    with scratch() as folder:
        held = sweep_file(folder, log, _between(log, raw))

    is_held = {"before", "after"} <= set(held.texts)
    count("line", 1, is_held)
    assert is_held
    assert held.accounted >= 3


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
@MANY
@given(noise=st.lists(st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b"")), min_size=1, max_size=10))
def test_lines_of_noise_never_cost_their_neighbours(log: AgentLog, noise: list[bytes]) -> None:
    with scratch() as folder:
        held = sweep_file(folder, log, _between(log, b"\n".join(noise)))

    is_held = {"before", "after"} <= set(held.texts)
    count("line", len(noise), len(noise) * is_held)
    assert is_held
    assert held.report.lines_read == len(log.opening(SESSION)) + len(noise) + 2
