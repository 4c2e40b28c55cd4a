"""A power cut at any instant: what was acknowledged is there, the rest is read again, nothing is damaged."""

import random
from pathlib import Path

import pytest

from recollect.api import doctor, open_memory
from recollect.ingest.builder import Protection
from recollect.live import Live
from recollect.redact import RedactionRules
from recollect.store.sqlite import database as sqlite
from tests.conftest import with_key
from tests.faults.rig import IS_LONG, IS_SOAK
from tests.store.power_loss import cut_power, cut_power_once_acknowledged, record
from tests.store.tape import Tape, taped

SEEDS, DISKS = (20, 500) if IS_LONG else (4, 250) if IS_SOAK else (1, 40)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_cut_loses_nothing_that_was_acknowledged_or_can_be_read_again(tmp_path: Path, seed: int) -> None:
    recording = record(tmp_path, seed)

    struck = cut_power(recording, random.Random(seed), DISKS)
    once_acknowledged = cut_power_once_acknowledged(recording, random.Random(seed))

    print(f"{struck.faults} disks of {len(recording.tape.acts)} acts")
    assert struck.findings == once_acknowledged.findings == []
    assert struck.faults == DISKS
    assert once_acknowledged.faults > 0


_CHATS, _MESSAGES = ("chat:1", "chat:2"), 40


def _host_on_tape(store: Path) -> Tape:
    """A host that appends to two sessions, begins one of them anew, and has the log moved now and then."""
    Protection(store, RedactionRules()).redactor()
    with pytest.MonkeyPatch.context() as patch, taped(store) as tape:
        patch.setattr(sqlite, "_LOG_PAGES", 400)
        with open_memory(store) as memory:
            live = Live(memory)
            for number in range(_MESSAGES):
                key = _CHATS[number % 2]
                if number == _MESSAGES // 2:
                    live.new_session(key)
                live.append_message(key, "user" if number % 4 < 2 else "assistant", f"said{number}x")
                tape.acknowledge(number)
    return tape


def test_a_power_cut_loses_no_message_that_a_host_was_told_is_stored(tmp_path: Path) -> None:
    chance = random.Random(19)
    tape = _host_on_tape(with_key(tmp_path / "store"))

    for disk in range(DISKS):
        cut, store = chance.randrange(1, len(tape.acts) + 1), with_key(tmp_path / str(disk))
        tape.make_disk(cut, chance, store)
        acknowledged = {f"said{number}x" for number in tape.acknowledged(cut)}
        for _ in range(2):  # what was taken in again is not taken in twice
            with open_memory(store) as memory:
                live = Live(memory)
                sessions = live.list_sessions(with_archived=True)
                said = [message.content for session in sessions for message in live.all_messages(session.key)]
                missed = [text for text in acknowledged if not live.search(text).hits]

            assert acknowledged <= set(said), f"power cut after act {cut}"
            assert len(said) == len(set(said)) == sum(session.message_count for session in sessions)
            assert missed == []
        assert [finding for finding in doctor(store, []) if finding.level == "problem"] == []
