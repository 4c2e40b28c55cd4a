"""The index holds what the payloads say, no more and no less, whatever happens to events."""

import re
import unicodedata
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agents import adapters
from recollect.model.kinds import SessionKey
from recollect.model.schema import ASSISTANT_MSG, EDIT, ERROR, THINKING, TOOL_CALL, TOOL_RESULT, USER_MSG
from recollect.model.text import CJK_RUN, Columns, column_of, columns_of, evidence, payload_text
from recollect.store import EventFilter, Fulltext, Store, Term, Wanted, open_store
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep
from tests.faults.rig import IS_SOAK, scratch
from tests.store.rows import SESSION, batch, put

WALRUS = Wanted(((Term("walrus"),),))
EVEN = (1.0,) * len(Columns._fields)
WORDS = ("alpha", "Beta", "gamma_delta", "café", "naïve", "src/auth/login.ts", "--no-verify", "x", "404", "Straße")
HAN = ("数据库", "连接", "连接池", "池", "登录失败", "エラー", "한국어", "漢")
SEPARATORS = (" ", "\n", ", ", "/", "-", "_", ".", "→")


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def found(store: Store, *terms: Term, columns: tuple[str, ...] | None = None) -> set[int]:
    """Numbers of the events that have all terms."""
    wanted = Wanted(tuple((term,) for term in terms), columns=columns)
    index = store.words
    chosen = EventFilter(with_copies=True)
    return {hit.id for month in index.months() for hit in index.find(month, wanted, EVEN, chosen, 100_000)}


def fold(text: str) -> str:
    letters = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def tokens(text: str) -> list[str]:
    """Words as a slow reader tells them: runs of letters and digits, CJK apart from the rest."""
    pieces = re.sub(CJK_RUN, " ", fold(text))
    return re.findall(r"[^\W_]+", pieces)


def has_words(text: str, wanted: str) -> bool:
    """Whether the words of `wanted` stand in the text, in this order and next to each other."""
    needle, held = tokens(wanted), tokens(text)
    return any(held[place : place + len(needle)] == needle for place in range(len(held) - len(needle) + 1))


texts = st.lists(st.tuples(st.sampled_from((*WORDS, *HAN)), st.sampled_from(SEPARATORS)), min_size=1, max_size=12).map(
    lambda pieces: "".join(word + separator for word, separator in pieces)
)
kinds = st.sampled_from((USER_MSG, ASSISTANT_MSG, THINKING, TOOL_CALL, EDIT, TOOL_RESULT, ERROR))


def payload_of(kind: str, text: str) -> dict[str, Any]:
    if kind in (TOOL_CALL, EDIT):
        return {"input": {"command": text, "options": {"nested": [text[:5]]}}}
    return {"output": text} if kind in (TOOL_RESULT, ERROR) else {"text": text}


def stored_texts(store: Store) -> dict[int, tuple[str, str]]:
    """Kind and text of every stored event, read from the payloads."""
    told = {}
    for (agent, native_id), stream in store.streams.names().items():
        rows = store.events.rows(SessionKey(agent, native_id), ("id", "kind", "payload_start", "payload_bytes"))
        payloads = store.payloads.iter(SessionKey(agent, native_id), [(row[2], row[3]) for row in rows])
        for row, raw in zip(rows, payloads, strict=True):
            told[row[0]] = (row[1], evidence(payload_text(row[1], orjson.loads(raw))))
        assert stream
    return told


@settings(max_examples=300 if IS_SOAK else 15, deadline=None)
@given(
    st.lists(st.tuples(kinds, texts), min_size=1, max_size=12), st.lists(st.sampled_from((*WORDS, *HAN)), min_size=1)
)
def test_what_the_index_finds_is_what_a_scan_of_the_payloads_finds(
    events: list[tuple[str, str]], queries: list[str]
) -> None:
    with scratch() as folder:
        home = Home(folder / "home")
        home.write("log", *(_record(number, kind, text) for number, (kind, text) in enumerate(events, start=1)))
        with sweep(folder / "store", home) as memory:
            store = memory._store
            held = stored_texts(store)

            for query in (*WORDS, *HAN, *queries):
                for column in ("got", "said", "did", "asked"):
                    expected = {
                        number
                        for number, (kind, text) in held.items()
                        if column_of(kind) == column and _stands_in(text, query)
                    }
                    assert found(store, Term(query), columns=(column,)) == expected, (query, column)


def _record(number: int, kind: str, text: str) -> Any:
    record = event("s", number, kind, text)
    record.payload = payload_of(kind, text)
    return record


def _stands_in(text: str, query: str) -> bool:
    return query in text if re.fullmatch(CJK_RUN, query) else has_words(text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("open src/auth/login.ts now", "src/auth/login.ts"),
        ("GET https://example.com/a/b?page=2&q=x#top", "https://example.com/a/b?page=2&q=x#top"),
        ("git commit --no-verify -m x", "--no-verify"),
        ("call parseInvoiceHeader here", "parseInvoiceHeader"),
        ("call parseInvoiceHeader here", "invoice header"),
        ("def parse_invoice_header():", "parseInvoiceHeader"),
        ("in snake_case_name we trust", "snake_case_name"),
        ("error TS2345: no", "ts2345"),
        ("commit 4f2a9c1b", "4f2a9c1b"),
        ("Le CAFÉ est fermé", "cafe ferme"),
        ("修改parseHeader函数,返回401错误", "401"),
        ("修改parseHeader函数,返回401错误", "函数"),
        ("データベース接続エラー", "接続"),
        ("把连接池改大", "池"),
        ("한국어 메시지", "국어"),
    ],
)
def test_exact_things_are_found(tmp_path: Path, home: Home, text: str, query: str) -> None:
    home.write("log", event("s", 1, ASSISTANT_MSG, text), event("s", 2, ASSISTANT_MSG, "something else"))

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search(query)

    assert [match.seq for match in hit.matches] == [1]


def test_two_runs_of_letters_make_no_third_word(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, USER_MSG, "连接, 接池"))

    with sweep(tmp_path / "store", home) as memory:
        assert found(memory._store, Term("连接池")) == set()


def test_names_are_taken_apart_in_what_agents_write_but_not_in_what_tools_print() -> None:
    said = columns_of(ASSISTANT_MSG, {"text": "use parseInvoiceHeader"})
    printed = columns_of(TOOL_RESULT, {"output": "use parseInvoiceHeader"})

    assert said is not None
    assert said.parts == b"parse Invoice Header"
    assert printed is not None
    assert printed.parts == b""


def test_an_event_that_says_nothing_is_not_indexed() -> None:
    assert columns_of(USER_MSG, {"text": "", "native": {"id": "x"}}) is None


def test_the_keys_of_an_input_that_are_paths_are_searched(tmp_path: Path, home: Home) -> None:
    record = event("s", 1, EDIT, "edited")
    record.payload = {"input": {"changes": {"/home/x/src/only_here.py": {"type": "update"}}}}
    home.write("log", record)

    with sweep(tmp_path / "store", home) as memory:
        assert memory.search("only_here.py")


def test_a_few_sessions_and_many_are_looked_through_alike(tmp_path: Path, home: Home) -> None:
    for name in ("one", "two", "three"):
        home.write(name, *(event(name, number, text=f"walrus {number % 3}") for number in range(1, 9)))
    with sweep(tmp_path / "store", home) as memory:
        index, streams = memory._store.words, memory._store.streams.names()
        few = (streams[AGENT, "one"], streams[AGENT, "three"])
        many = (*few, *range(1000, 1200))

        within_few, within_many, anywhere = (
            [hit for month in index.months() for hit in index.find(month, WALRUS, EVEN, EventFilter(numbers), 5)]
            for numbers in (few, many, None)
        )

    assert within_few == within_many == [hit for hit in anywhere if hit.stream in few]
    assert len(within_few) == 10


def test_a_replaced_event_is_found_by_its_new_words_only(tmp_path: Path) -> None:
    with open_store(tmp_path, create=True) as store:
        put(store, batch({"a": "oldword grows"}, provisional=True))
        store.fulltext.index_pending(store.payloads)
        put(store, batch({"a": "newword is final"}, offset=9))
        store.fulltext.index_pending(store.payloads)

        assert found(store, Term("oldword")) == set()
        assert len(found(store, Term("newword"))) == 1


def test_a_replaced_event_leaves_the_month_it_was_indexed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, create=True) as store:
        monkeypatch.setattr("recollect.store.tables.fulltext._month", lambda: "202609")
        put(store, batch({"a": "oldword grows"}, provisional=True))
        store.fulltext.index_pending(store.payloads)
        monkeypatch.setattr("recollect.store.tables.fulltext._month", lambda: "202610")
        put(store, batch({"a": "newword is final"}, offset=9))
        store.fulltext.index_pending(store.payloads)

        assert found(store, Term("oldword")) == set()
        assert store.words.months() == {"202610": 1}


def _delete(store: Store, session: str = SESSION) -> None:
    with store._cache.transaction() as connection:
        connection.execute("DELETE FROM events WHERE native_id = ?", (session,))


def test_a_deleted_event_is_not_found_even_if_its_number_is_used_again(tmp_path: Path) -> None:
    with open_store(tmp_path, create=True) as store:
        put(store, batch({"a": "firstword"}))
        store.fulltext.index_pending(store.payloads)
        _delete(store, "a")
        put(store, batch({"b": "secondword"}, session="other", offset=9))
        store.fulltext.index_pending(store.payloads)

        assert found(store, Term("firstword")) == set()
        assert len(found(store, Term("secondword"))) == 1


def test_no_byte_of_a_deleted_event_stays_when_asked_so(tmp_path: Path) -> None:
    with open_store(tmp_path, create=True) as store:
        put(store, batch({f"e{number}": f"zyxwvu{number:03d}quux" for number in range(200)}))
        store.fulltext.index_pending(store.payloads)
        with store._cache.transaction() as connection:
            connection.execute("DELETE FROM events")
            connection.execute("DELETE FROM frames")
        store.fulltext.leave_no_byte()
        store.checkpoint()

    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert re.findall(rb"\d\d\dquux", left) == []


def test_indexing_that_is_cut_off_goes_on_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.store.tables.events.PIECE_BYTES", 1)
    monkeypatch.setattr("recollect.store.tables.fulltext.PIECE_BYTES", 1)
    with open_store(tmp_path, create=True) as store:
        put(store, batch({f"e{number}": f"word{number}" for number in range(20)}))
        calls = 0

        def stop(done: int, total: int) -> None:
            nonlocal calls
            calls += 1
            if calls == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.fulltext.index_pending(store.payloads, stop)
        rest = store.fulltext.index_pending(store.payloads)

        assert 0 < rest < 20
        assert [len(found(store, Term(f"word{number}"))) for number in range(20)] == [1] * 20
        assert store.fulltext.index_pending(store.payloads) == 0


def test_a_second_sweep_indexes_nothing(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, text="hello"))

    with sweep(tmp_path / "store", home) as memory:
        assert memory._store.fulltext.index_pending(memory._store.payloads) == 0


def _forget_index(store: Store) -> None:
    with store._cache.transaction() as connection:
        connection.execute("DELETE FROM fulltext_marks")
        for month in store.words.months():
            connection.execute(f"DROP TABLE fts_{month}")
        connection.execute("DELETE FROM fulltext_months")


def _instances(store: Store) -> list[tuple[Any, ...]]:
    """Every word of the index with its event, column and place."""
    (month,) = store.words.months()
    with store._cache.transaction() as connection:
        connection.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, fts_{month}, instance)")
        rows = sorted(connection.execute("SELECT * FROM temp.words"))
        connection.execute("DROP TABLE temp.words")
    return rows


@pytest.mark.parametrize("text", ["plain words", "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2, "连接池"])
def test_words_handed_over_with_events_are_those_of_their_payloads(tmp_path: Path, home: Home, text: str) -> None:
    home.write("log", event("s", 1, text=text), event("s", 2, TOOL_RESULT, text=f"printed parseThing {text}"))

    with sweep(tmp_path / "store", home) as memory:
        handed_over = _instances(memory._store)
        _forget_index(memory._store)
        memory._store.fulltext.index_pending(memory._store.payloads)

        assert handed_over == _instances(memory._store)


def test_new_events_are_indexed_as_they_are_stored(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("log", event("s", 1, text="hello"))
    left: list[int] = []
    index_pending = Fulltext.index_pending

    def noted(index: Fulltext, *given: Any) -> int:
        left.append(index_pending(index, *given))
        return left[-1]

    with sweep(tmp_path / "store", home) as memory:
        home.write("log", event("s", 1, text="hello"), event("s", 2, text="again"))
        monkeypatch.setattr(Fulltext, "index_pending", noted)
        memory.sweep()

        assert memory.search("again")
        assert left == [0]
