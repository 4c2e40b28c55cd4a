"""Any text is a query: good syntax is understood, bad syntax is looked for as words and said so."""

import random
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.api import Memory
from recollect.model.errors import UsageError
from recollect.model.schema import ASSISTANT_MSG, USER_MSG
from recollect.recall.query import FILTERS, MOST_CHARS, MOST_WORDS, Filter, Phrase, Query, parse_query
from tests.builders import Home, event, sweep
from tests.conftest import REPOSITORY
from tests.faults.rig import IS_SOAK

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def parse(text: str) -> Query:
    return parse_query(text, NOW)


def needs(text: str) -> list[list[str]]:
    return [[phrase.text for phrase in need] for need in parse(text).needs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two", [["one"], ["two"]]),
        ('"one two" three', [["one two"], ["three"]]),
        ("one OR two three", [["one", "two"], ["three"]]),
        ("one OR two OR three", [["one", "two", "three"]]),
        ("one one", [["one"]]),
        ("one or two", [["one"], ["or"], ["two"]]),
        ("--no-verify -v -rf", [["--no-verify"], ["-v"], ["-rf"]]),
        ("https://example.com/a?b=c", [["https://example.com/a?b=c"]]),
        ("error: no such file", [["error:"], ["no"], ["such"], ["file"]]),
        ("", []),
        ("ｃｓｖ　ﾒｰﾙ", [["csv"], ["メール"]]),
    ],
)
def test_words_phrases_and_choices(text: str, expected: list[list[str]]) -> None:
    assert needs(text) == expected
    assert parse(text).notes == ()


def test_exclusions_prefixes_and_filters() -> None:
    query = parse('pars* -"not this" -that repo:shop-api -agent:one file:"a b.py" since:7d')

    assert query.needs == ((Phrase("pars", is_prefix=True),),)
    assert query.excluded == (Phrase("not this", is_quoted=True), Phrase("that"))
    assert query.filters == (
        Filter("repo", "shop-api"),
        Filter("agent", "one", True),
        Filter("file", "a b.py"),
        Filter("since", "7d"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"never closed', [["never"], ["closed"]]),
        ("kind:nonsense", [["kind:nonsense"]]),
        ("since:someday", [["since:someday"]]),
        ("is:funny", [["is:funny"]]),
        ("OR", [["OR"]]),
        ("one OR", [["one"], ["OR"]]),
        ("-one", [["one"]]),
    ],
)
def test_bad_syntax_is_looked_for_as_words_and_said_so(text: str, expected: list[list[str]]) -> None:
    assert needs(text) == expected
    assert len(parse(text).notes) == 1


def test_a_long_query_is_cut_and_said_so() -> None:
    words = parse(" ".join(f"w{number}" for number in range(MOST_WORDS + 5)))
    chars = parse("x " * MOST_CHARS)

    assert len(words.needs) == MOST_WORDS
    assert len(words.notes) == 1
    assert len(chars.text) <= MOST_CHARS
    assert chars.notes


@given(st.text())
def test_reading_a_query_never_fails(text: str) -> None:
    assert isinstance(parse(text), Query)


def test_every_filter_is_on_the_page_about_searching() -> None:
    page = (REPOSITORY / "docs" / "search.md").read_text()

    assert [name for name in FILTERS if f"`{name}:" not in page] == []


@pytest.fixture
def memory(tmp_path: Path, home: Home) -> Memory:
    """A few hundred events with all that queries are made of in them."""
    chance = random.Random(1)
    for number in range(10):
        texts = [" ".join(chance.choices(_PIECES, k=20)) for _ in range(30)]
        kinds = [chance.choice((USER_MSG, ASSISTANT_MSG)) for _ in texts]
        records = [
            event(f"s{number}", place, kind, text)
            for place, (kind, text) in enumerate(zip(kinds, texts, strict=True), start=1)
        ]
        home.write(f"log{number}", *records)
    return sweep(tmp_path / "store", home)


_PIECES = (
    "alpha", "beta", '"', "'", "-", "--", "*", "(", ")", "NEAR", "AND", "OR", "NOT", "^", ":", "repo:", "is:error",
    "since:7d", "kind:edit", "session:s1", "{said}", "数据库", "连接", "é", "\u0301", "\u200b", "\ud7ff", "💥", "\0",
    "\\", "%", "_", "src/a.py", "x" * 300, "file:", "-agent:scripted", "camelCaseName", "1e999", "]]", "?", "[a-", "$^",
    "\n",
)  # fmt: skip


def test_no_query_fails_and_none_takes_long(memory: Memory) -> None:
    chance = random.Random(7)
    slowest = 0.0
    for _ in range(100_000 if IS_SOAK else 600):
        query = chance.choice(("", " ")).join(chance.choices(_PIECES, k=chance.randint(0, 8)))
        begun = time.process_time()
        memory.answer(query, limit=3)
        slowest = max(slowest, time.process_time() - begun)

    assert slowest < 1
    memory.close()


@pytest.mark.parametrize("mode", ["substring", "regex"])
def test_no_piece_of_text_fails(memory: Memory, mode: str) -> None:
    chance = random.Random(8)
    for _ in range(2_000 if IS_SOAK else 60):
        piece = "".join(chance.choices(_PIECES, k=chance.randint(1, 3)))
        with suppress(UsageError) if mode == "regex" else nullcontext():
            memory.answer(piece, mode=mode, limit=2, scan_seconds=0.2)
    memory.close()


def test_a_query_of_a_hundred_thousand_words_is_cut_not_run(memory: Memory) -> None:
    begun = time.process_time()
    answer = memory.answer(" ".join(f"word{number}" for number in range(100_000)))

    assert time.process_time() - begun < 1
    assert any("characters" in note for note in answer.notes)
    memory.close()
