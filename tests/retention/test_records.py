"""What the ledger gets back from memory.db of an evicted session."""

from pathlib import Path

from recollect.store import open_store
from tests.builders import Home
from tests.retention.rig import evict_all, grow, opened, row, write


def test_a_ledger_that_is_written_anew_counts_no_held_event_twice(tmp_path: Path, home: Home) -> None:
    store = tmp_path / "store"
    write(home, "aa", turns=2)
    with opened(store, home) as memory:
        memory.sweep()
        evict_all(memory)
        grow(home, "aa", 2, 3)
        memory.sweep()
        before, digest, stats = memory.session("aa"), memory.digest(memory.session("aa")), memory.stats("agent").lines
    (store / "ledger.jsonl").unlink()
    with open_store(store) as held:
        held.ledger.extend(held.missing_records())
    for file in [*store.glob("memory.db*"), *store.glob("high*")]:
        file.unlink()

    with opened(store, home) as memory:
        memory.sweep()

        after = memory.session("aa")
        assert row(after) == row(before)
        told = memory.digest(after)
        assert told.covers.event_count == digest.covers.event_count
        assert (told.request_count, told.tokens, told.usd) == (digest.request_count, digest.tokens, digest.usd)
        assert memory.stats("agent").lines == stats
