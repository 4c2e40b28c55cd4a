"""Payloads come back byte by byte, wherever they lie; damage has one sentence."""

import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.model.errors import StoreDamaged
from recollect.model.kinds import SessionKey
from recollect.store import Store, open_store
from recollect.store.payloads.packs import SHARED_BYTES
from recollect.store.payloads.writer import FRAME_BYTES
from tests.builders import AGENT
from tests.store.rows import SESSION, batch, held, new_store, noise, put


def _pack(store: Store) -> Path:
    """The one session's own pack."""
    (found,) = (store.folder / "packs").glob("??/*.pack")
    return found


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES + 7])
def test_a_payload_of_any_size_round_a_frame_border_comes_back(tmp_path: Path, size: int) -> None:
    payloads = {"before": "x" * 10, "it": noise(size), "after": "y" * 10}
    with new_store(tmp_path) as store:
        put(store, batch(payloads))

        assert dict(held(store)) == payloads


def test_small_frames_share_a_pack_and_a_large_one_is_in_its_sessions_own(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        put(store, batch({"small": noise(SHARED_BYTES // 2)}, session="s1"))
        put(store, batch({"small": "x"}, session="s2"))
        assert [path.name for path in (store.folder / "packs").rglob("*.pack")] == ["1.pack"]

        put(store, batch({"large": noise(4 * SHARED_BYTES)}))

        assert _pack(store).stat().st_size >= 2 * SHARED_BYTES


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(
        st.lists(
            st.one_of(
                st.integers(0, 300),
                st.integers(2 * SHARED_BYTES - 40, 2 * SHARED_BYTES + 40),
                st.integers(FRAME_BYTES - 2, FRAME_BYTES + 2),
            ),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 1000),
)
def test_payloads_of_several_batches_are_byte_equal_after_reopening(sizes: list[list[int]], seed: int) -> None:
    wanted: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        with new_store(Path(folder)) as store:
            for number, batch_sizes in enumerate(sizes):
                payloads = {f"{number}.{n}": noise(size, seed + n) for n, size in enumerate(batch_sizes)}
                put(store, batch(payloads))
                wanted |= payloads

        with open_store(Path(folder) / "store") as reopened:
            assert dict(held(reopened)) == wanted


def test_payloads_may_be_asked_for_in_any_order(tmp_path: Path) -> None:
    texts = [noise(200_000, seed) for seed in range(4)]
    with new_store(tmp_path) as store:
        put(store, batch({str(number): text for number, text in enumerate(texts)}))
        places = store.events.rows(SessionKey(AGENT, SESSION), ("payload_start", "payload_bytes"))

        found = store.payloads.iter(SessionKey(AGENT, SESSION), [places[number] for number in (3, 0, 2, 2, 1)])

        assert [orjson.loads(payload)["text"] for payload in found] == [texts[number] for number in (3, 0, 2, 2, 1)]


def test_bytes_behind_a_packs_known_end_are_cut_off_by_the_next_append(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        put(store, batch({"a": noise(100_000, 1)}))
        known = _pack(store).stat().st_size
        with _pack(store).open("ab") as pack:
            pack.write(b"torn tail" * 1000)

        put(store, batch({"b": noise(100_000, 2)}))

        assert dict(held(store)) == {"a": noise(100_000, 1), "b": noise(100_000, 2)}
        assert _pack(store).stat().st_size == pytest.approx(2 * known, rel=0.01)
        assert b"torn tail" not in _pack(store).read_bytes()


def test_a_pack_left_by_a_process_that_died_before_its_first_commit_is_begun_anew(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        put(store, batch({"a": noise(100_000, 1)}))
        left_behind = _pack(store).relative_to(store.folder)
    with new_store(tmp_path / "other") as store:
        path = store.folder / left_behind
        path.parent.mkdir(parents=True)
        path.write_bytes(b"z" * 300_000)

        put(store, batch({"a": noise(100_000, 1)}))

        assert held(store) == [("a", noise(100_000, 1))]


def _damaged(error: pytest.ExceptionInfo[StoreDamaged], store: Store) -> str:
    """The message without the path it ends with: one sentence, no full stop, one line."""
    message = error.value.message.removesuffix(str(_pack(store)))
    assert message != error.value.message
    assert error.value.hint
    return message.removesuffix(": ")


def test_reading_from_a_pack_shorter_than_the_database_says_is_damage_in_one_sentence(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        put(store, batch({"a": noise(100_000)}))
        with _pack(store).open("r+b") as pack:
            pack.truncate(20_000)

        with pytest.raises(StoreDamaged) as error:
            held(store)

        assert _damaged(error, store) == "Pack is truncated"


def test_appending_to_a_pack_shorter_than_the_database_says_is_damage_and_stores_nothing(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        put(store, batch({"a": noise(100_000)}, offset=1))
        with _pack(store).open("r+b") as pack:
            pack.truncate(20_000)

        with pytest.raises(StoreDamaged) as error:
            put(store, batch({"b": noise(100_000, 2)}, offset=2))

        assert _damaged(error, store) == "Pack is truncated"
        assert store.events.rows(SessionKey(AGENT, SESSION), ("native_id",)) == [("a",)]


def test_a_missing_pack_is_damage(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        put(store, batch({"a": noise(100_000)}))
        _pack(store).unlink()

        with pytest.raises(StoreDamaged, match="missing"):
            held(store)


def test_a_flipped_byte_in_a_pack_is_damage_and_never_wrong_content(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        put(store, batch({"a": noise(100_000)}))
        content = bytearray(_pack(store).read_bytes())
        content[len(content) // 2] ^= 0x40
        _pack(store).write_bytes(content)

        with pytest.raises(StoreDamaged):
            held(store)
