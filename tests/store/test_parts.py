"""A long session is gone on with where it was left, and all that is made of it is as if it had been read at once."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import CostTotal, Record, SessionInfo
from recollect.agents import adapters
from recollect.api import Memory
from recollect.model.kinds import (
    ASSISTANT_MSG,
    EDIT,
    ERROR,
    FILES_LANE,
    HUMAN_INTERVENTION,
    LIFECYCLE,
    QUEUE_ONLY,
    TEST_RUN,
    THINKING,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
)
from recollect.sessions import account, parts
from recollect.store import KeptStates, Steps
from tests.builders import AGENT, BEGIN_MS, KNOWN_MODEL, Home, ScriptedAdapter, event, sweep, usage
from tests.faults.rig import IS_SOAK

SEEDS = range(400 if IS_SOAK else 2)
_WHEN = ("discovered_at", "ingested_at", "analyzed_at")


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    monkeypatch.setattr(parts, "PART_EVENTS", 8)


class Talk:
    """A session that goes on for as long as it is asked to, with a bit of all that sessions are made of."""

    def __init__(self, chance: random.Random, session: str, is_wild: bool) -> None:
        self.session, self._chance, self._is_wild = session, chance, is_wild
        self._number, self._now_ms, self._calls = 0, BEGIN_MS, 0
        self._parent: str | None = None

    def _event(self, kind: str, text: str, payload: dict[str, Any] | None = None, **fields: Any) -> Record:
        self._number += 1
        self._now_ms += self._chance.choice((500, 2_000, 2_000, 90_000, 2_400_000))
        given: dict[str, Any] = {"ts_ms": self._now_ms, "parent_native_id": self._parent, "role": "assistant"}
        made = event(self.session, self._number, kind, text, **(given | fields))
        made.payload = payload or made.payload
        self._parent = made.native_id
        return made

    def records(self, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            found += self._exchange()
        return found

    def _exchange(self) -> Iterator[Record]:
        chance = self._chance
        if self._is_wild and chance.random() < 0.1:
            self._parent = f"{self.session}-{chance.randint(1, self._number or 1)}"  # a branch is left behind
        asked = chance.choice(("fix the parser", "no, that is wrong", "thanks", "still broken: it fails again"))
        yield self._event(USER_MSG, f"{asked} {self._number}", role="user")
        for _ in range(chance.randrange(5)):
            yield from self._work()
        if chance.random() < 0.8:
            yield self._event(ASSISTANT_MSG, chance.choice(("Done, all tests pass.", "You're right.", "Shall I?")))
        if chance.random() < 0.7:
            told = {"input_tokens": chance.randrange(90_000), "output_tokens": chance.randrange(900)}
            model = chance.choice((KNOWN_MODEL, "unknown-model"))
            yield usage(self.session, f"r{self._number}", ts_ms=self._now_ms, model=model, **told)
        if self._is_wild:
            yield from self._oddities()

    def _work(self) -> Iterator[Record]:
        chance = self._chance
        self._calls += 1
        call_id, command = f"c{self._calls}", chance.choice(("pytest -q", "git commit -m 'ABC-7 x'", "make", "rm -f a"))
        kinds = {"pytest -q": TEST_RUN}
        if chance.random() < 0.3:
            path = f"src/{chance.choice('abc')}.py"
            given = {"input": {"file_path": path}}
            yield self._event(EDIT, f"edited {path}", tool="Edit", call_id=call_id, payload=given)
        elif chance.random() < 0.15:
            todo = {"subject": f"step {self._calls}"} if chance.random() < 0.5 else {"taskId": "1", "status": "done"}
            yield self._event(TOOL_CALL, "to-do list", tool="TaskUpdate", call_id=call_id, payload={"input": todo})
        else:
            given = {"input": {"command": command}}
            kind = kinds.get(command, TOOL_CALL)
            yield self._event(
                kind,
                f"ran {command}",
                tool="Bash",
                call_id=call_id,
                retry_key=command.encode().hex()[:16],
                payload=given,
            )
        if chance.random() < 0.9:
            has_failed = chance.random() < 0.35
            text = "exit 1: no such file /a/b.py" if has_failed else "4 passed"
            kind = ERROR if has_failed else TOOL_RESULT
            yield self._event(kind, text, role="tool", tool="Bash", call_id=call_id, is_error=has_failed)
        if chance.random() < 0.2:
            yield self._event(THINKING, "hm")
        if chance.random() < 0.1:
            yield self._event(HUMAN_INTERVENTION, "interrupted the agent", role="user", status="interrupted")

    def _oddities(self) -> Iterator[Record]:
        chance, number = self._chance, self._number
        if chance.random() < 0.1:
            yield self._event(LIFECYCLE, "rewound", metadata={"rewind_to": max(1, number - chance.randrange(40))})
        if chance.random() < 0.1:
            yield event(self.session, 10_000 + number, TOOL_RESULT, "a side file", lane=FILES_LANE, role="tool")
        if chance.random() < 0.1:
            yield usage(self.session, f"r{chance.randint(1, number)}", ts_ms=None, input_tokens=chance.randrange(9_000))
        if chance.random() < 0.05:
            yield CostTotal(self.session, "ledger", self._now_ms, number / 100)
        if chance.random() < 0.1:
            yield event(self.session, number, USER_MSG, "late words", ts_ms=self._now_ms, is_provisional=True)
        if chance.random() < 0.05:
            yield SessionInfo(self.session, cwd=chance.choice(("/code/shop", "/code/other")), title=f"title {number}")
        if chance.random() < 0.05:
            fields = {"status": QUEUE_ONLY, "retry_key": b"queued".hex(), "position": number, "role": "user"}
            yield event(self.session, 20_000 + number, USER_MSG, "queued", **fields)


def _all(memory: Memory) -> dict[str, Any]:
    """Everything that is made of the sessions of a store, but for when it was."""
    cache, lasting = memory._store.databases
    rows = {session.session_uid: session.to_json() for session in memory.sessions(limit=None)}
    for row in rows.values():
        row["sources"] = [source["bytes"] for source in row["sources"]]
    tallies = {
        table: sorted(lasting.rows(f"SELECT d.native_session_id, t.* FROM {table} t JOIN digests d ON d.id = t.digest"))
        for table in ("activity", "tool_use", "command_use", "signals")
    }
    without = {table: sorted(_without_numbers(table, rows) for rows in tallies[table]) for table in tallies}
    return {
        "rows": {uid: {name: row[name] for name in row if name not in _WHEN} for uid, row in rows.items()},
        "digests": sorted(lasting.rows("SELECT native_session_id, digest, line, raw_tokens, kept_tokens FROM digests")),
        "tallies": without,
        "facts": sorted(lasting.rows("SELECT fact_uid, subject, object, text, details, evidence FROM facts")),
        "marks": sorted(cache.rows("SELECT event_uid, kind, base_kind, flags, copy_of FROM events")),
        "used": sorted(cache.rows("SELECT usage_id, is_copy, input_tokens FROM usage")),
    }


def _without_numbers(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (row[0], *row[(3 if table == "signals" else 2) :])


class _Continued:
    """How many sessions were gone on with, and how many events were read of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions = self.events = 0
        read = Steps.read

        def counted(steps: Steps, *arguments: Any) -> Any:
            found = read(steps, *arguments)
            self.sessions += sum(session.kept is not None for session in found)
            self.events += sum(len(session.steps) for session in found)
            return found

        monkeypatch.setattr(Steps, "read", counted)


def _grow(home: Home, talks: dict[str, list[Record]], chance: random.Random, memory: Memory) -> None:
    """Write sessions in pieces of any size, in turns, with a sweep after each."""
    while any(talks.values()):
        name = chance.choice([name for name, left in talks.items() if left])
        size = chance.choice((1, 2, 5, 12, 30))
        home.append(name, *talks[name][:size])
        del talks[name][:size]
        assert memory.sweep().failures == []


def _written(folder: Path, talks: dict[str, list[Record]]) -> Home:
    home = Home(folder)
    for name in talks:
        home.write(name)
    return home


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_wild", [False, True], ids=["plain", "wild"])
def test_a_session_in_pieces_is_what_it_is_as_a_whole(
    tmp_path: Path, seed: int, is_wild: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    talks = {"long": [SessionInfo("long", cwd="/code/shop"), *Talk(chance, "long", is_wild).records(150)]}
    if is_wild:
        talks |= _relatives(chance, talks["long"])
    whole, pieces = _written(tmp_path / "whole", talks), _written(tmp_path / "pieces", talks)
    for name, records in talks.items():
        whole.append(name, *records)
    continued = _Continued(monkeypatch)

    with sweep(tmp_path / "a", pieces) as memory:
        _grow(pieces, talks, chance, memory)
        found = _all(memory)

    with sweep(tmp_path / "b", whole) as memory:
        expected = _all(memory)
    assert continued.sessions > 3
    for part, rows in expected.items():
        assert found[part] == rows, part
    monkeypatch.setattr(parts, "PIECE_EVENTS", 40)
    monkeypatch.setattr(account, "_EVENTS_AT_ONCE", 40)
    with sweep(tmp_path / "c", whole) as memory:
        settled_in_pieces = _all(memory)
    for part, rows in expected.items():
        assert settled_in_pieces[part] == rows, part


def _relatives(chance: random.Random, base: list[Record]) -> dict[str, list[Record]]:
    """A fork that begins with copies, and a sub-agent, which may be found before or after what they come from."""
    told = [record for record in base if type(record).__name__ == "EventRecord" and not record.lane]
    copied = [
        event(
            "fork", number, record.kind, record.summary, ts_ms=record.ts_ms, copy_key=record.native_id, role=record.role
        )
        for number, record in enumerate(told[: chance.randrange(60)], 1)
    ]
    fork = Talk(chance, "fork", is_wild=False)
    fork._number = len(copied)
    base_of_fork = "long" if chance.random() < 0.5 else None
    helper = Talk(chance, "helper", is_wild=False)
    return {
        "fork": [SessionInfo("fork", base_native_id=base_of_fork, cwd="/code/shop"), *copied, *fork.records(40)],
        "helper": [SessionInfo("helper", parent_native_id="long", cwd="/code/shop"), *helper.records(30)],
    }


def test_one_more_line_reads_no_more_of_a_session_twice_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    for size in (300, 600):
        talk = Talk(random.Random(1), "long", is_wild=False)
        home = Home(tmp_path / f"home-{size}")
        home.write("long", SessionInfo("long", cwd="/code/shop"), *talk.records(size))
        with sweep(tmp_path / f"store-{size}", home) as memory, monkeypatch.context() as patch:
            continued = _Continued(patch)
            home.append("long", *talk.records(1))

            memory.sweep()

            read.append(continued.events)
    assert max(read) < 60


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET summary = 'another' WHERE seq = 3",
        "UPDATE events SET copy_of = x'00' WHERE seq = 3",
        "DELETE FROM events WHERE seq = 3",
        "UPDATE usage SET is_copy = 1 WHERE ts_ms = (SELECT min(ts_ms) FROM usage)",
        "INSERT OR REPLACE INTO infos SELECT agent, native_id, source, 'other', NULL, NULL, born_ms,"
        " json_set(info, '$.first.parent_native_id', 'other') FROM infos",
    ],
)
def test_what_was_kept_goes_when_anything_it_stands_for_changes(tmp_path: Path, change: str) -> None:
    home = Home(tmp_path / "home")
    home.write("long", SessionInfo("long"), *Talk(random.Random(1), "long", is_wild=False).records(90))
    with sweep(tmp_path / "store", home) as memory:
        cache, _ = memory._store.databases
        assert KeptStates(cache).find([("scripted", "long")])  # type: ignore[list-item]

        with cache.transaction() as connection:
            connection.execute(change)

        assert cache.rows("SELECT * FROM kept") == []
