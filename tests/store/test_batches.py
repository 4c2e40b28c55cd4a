"""A batch and its cursor are one transaction; reading the same thing again changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import EventRecord
from recollect.model.kinds import SessionKey
from recollect.model.schema import USER_MSG
from recollect.store import Store
from recollect.store.batch import Batch
from tests.builders import usage
from tests.store.rows import SESSION, batch, batch_of, column, held, new_store, offsets, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as opened:
        yield opened


class _Killed(Exception):
    pass


def _session(store: Store) -> SessionKey:
    """The one session just written to."""
    (key,) = store.streams.dirty()
    return key


def test_a_batch_moves_its_cursor_with_its_rows(store: Store) -> None:
    written = put(store, batch({"a": "1", "b": "2"}, offset=70))

    assert written.events_new == 2
    assert held(store) == [("a", "1"), ("b", "2")]
    assert offsets(store) == [70]


def test_an_exception_inside_a_batch_leaves_neither_rows_nor_cursor(store: Store) -> None:
    def save_then_die(connection: Any, given: Batch) -> int:
        found = store.sources.save(connection, given)
        if given.source.offset == 200:
            raise _Killed
        return found

    with pytest.raises(_Killed):
        store.intake.put([batch({"a": "1"}, offset=100), batch({"b": "2"}, offset=200)], save_then_die)

    assert held(store) == []
    assert offsets(store) == []


def test_after_a_batch_that_died_the_next_is_stored_whole(store: Store) -> None:
    def die(connection: Any, given: Batch) -> int:
        raise _Killed

    with pytest.raises(_Killed):
        store.intake.put([batch({"a": "1"})], die)
    put(store, batch({"a": "1"}, offset=5))

    assert held(store) == [("a", "1")]


def test_the_same_event_again_makes_no_row(store: Store) -> None:
    put(store, batch({"a": "1", "b": "2"}))

    again = put(store, batch({"a": "1", "b": "2"}))

    assert again == (0, 0)
    assert column(store, "seq") == [1, 2]


def test_events_already_held_are_left_out_of_a_batch_that_also_brings_new_ones(store: Store) -> None:
    put(store, batch({"a": "one"}))

    written = put(store, batch({"a": "one", "b": "two", "c": "three"}))

    assert written == (2, 0)
    assert sorted(held(store)) == [("a", "one"), ("b", "two"), ("c", "three")]


def test_a_provisional_event_is_replaced_by_what_is_read_later(store: Store) -> None:
    put(store, batch({"a": "half"}, provisional=True))

    written = put(store, batch({"a": "half and the rest"}))

    assert written == (0, 1)
    assert held(store) == [("a", "half and the rest")]
    assert column(store, "flags") == [0]


def test_a_provisional_event_read_again_as_it_was_changes_nothing(store: Store) -> None:
    put(store, batch({"a": "half"}, provisional=True))

    assert put(store, batch({"a": "half"}, provisional=True)) == (0, 0)


def test_a_provisional_event_settles_even_if_its_content_stays(store: Store) -> None:
    put(store, batch({"a": "whole"}, provisional=True))

    put(store, batch({"a": "whole"}))

    assert column(store, "flags") == [0]


def test_a_settled_event_is_never_replaced_by_a_provisional_one(store: Store) -> None:
    put(store, batch({"a": "settled"}))

    written = put(store, batch({"a": "half"}, provisional=True))

    assert written == (0, 0)
    assert held(store) == [("a", "settled")]


def test_a_higher_reader_version_replaces_what_a_lower_one_made(store: Store) -> None:
    put(store, batch({"a": "old words"}, reader=1))

    written = put(store, batch({"a": "new words"}, reader=2))

    assert written == (0, 1)
    assert held(store) == [("a", "new words")]
    assert column(store, "reader") == [2]


def test_a_lower_reader_version_replaces_nothing(store: Store) -> None:
    put(store, batch({"a": "words"}, reader=2))

    put(store, batch({"a": "words"}, reader=1))

    assert column(store, "reader") == [2]


def test_the_same_id_with_other_content_is_kept_under_a_second_uid(store: Store) -> None:
    put(store, batch({"a": "first"}))

    written = put(store, batch({"a": "second"}))

    assert written == (1, 0)
    assert sorted(held(store)) == [("a", "first"), ("a", "second")]
    assert len(set(column(store, "event_uid"))) == 2


def test_reading_a_second_content_again_adds_nothing(store: Store) -> None:
    put(store, batch({"a": "first"}))
    put(store, batch({"a": "second"}))

    assert put(store, batch({"a": "second"})) == (0, 0)
    assert put(store, batch({"a": "first"})) == (0, 0)


def test_sessions_of_one_batch_do_not_share_their_order(store: Store) -> None:
    put(store, batch({"a": "1", "b": "2"}, session="s1"), batch({"c": "3"}, session="s2"))

    assert column(store, "seq", "s1") == [1, 2]
    assert column(store, "seq", "s2") == [1]


def test_what_a_batch_touched_is_dirty_until_it_is_accounted_for(store: Store) -> None:
    put(store, batch({"a": "1"}))
    store.streams.set_dirty([_session(store)], False)
    assert store.streams.dirty() == []

    put(store, batch({"b": "2"}))

    assert [stream.native_id for stream in store.streams.dirty()] == [SESSION]


def test_the_same_id_twice_in_one_batch_keeps_both_and_numbers_them_apart(store: Store) -> None:
    told = [
        EventRecord(SESSION, "a", n, None, USER_MSG, {"text": text}, text) for n, text in enumerate(("x", "y", "z"))
    ]

    put(store, batch_of([*told]))

    assert [text for _, text in held(store)] == ["x", "y", "z"]
    assert column(store, "seq") == [1, 2, 3]


def test_whether_records_came_in_one_batch_or_in_two_does_not_matter(tmp_path: Path) -> None:
    settled = EventRecord(SESSION, "a", 1, None, USER_MSG, {"text": "settled"}, "a")
    half = EventRecord(SESSION, "a", 1, None, USER_MSG, {"text": "half"}, "a", is_provisional=True)
    with new_store(tmp_path / "one") as one, new_store(tmp_path / "two") as two:
        put(one, batch_of([settled, half]))
        put(two, batch_of([settled]), batch_of([half]))

        assert held(one) == held(two) == [("a", "settled")]


def _kept_usage(store: Store) -> Any:
    (kept,) = store.steps.responses([_session(store)])[_session(store)]
    return kept


def test_usage_told_twice_keeps_the_largest_of_each_figure(store: Store) -> None:
    put(store, batch_of([usage(SESSION, "u", output_tokens=3, input_tokens=50)]))
    put(store, batch_of([usage(SESSION, "u", output_tokens=90, input_tokens=2)]))

    assert (_kept_usage(store).input_tokens, _kept_usage(store).output_tokens) == (50, 90)


def test_usage_told_again_without_money_and_model_keeps_both(store: Store) -> None:
    put(store, batch_of([usage(SESSION, "u", usd=0.5, model="m")]))
    put(store, batch_of([usage(SESSION, "u", model=None)]))

    assert (_kept_usage(store).usd, _kept_usage(store).model) == (0.5, "m")
