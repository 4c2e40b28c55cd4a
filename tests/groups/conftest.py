"""A store with two groups and `main`, each with sessions whose words nobody else uses."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from recollect.api import Memory, open_memory
from tests import logs
from tests.conftest import with_key

INSIDE, OUTSIDE, MAIN = 1, 2, 3  # whose session it is, by its number
WORDS = {INSIDE: "wombatinside", OUTSIDE: "quokkaoutside", MAIN: "numbatmain"}
GROUPS = (("inside", INSIDE), ("outside", OUTSIDE), ("main", MAIN))
COMMON = "everybodysays"
HIDDEN = "concealed"  # ends a word that stands beside each group's own, and that no attack may name


def hidden_word(number: int) -> str:
    return f"{WORDS[number]}{HIDDEN}"


class Planted(NamedTuple):
    """A swept store: group `inside` and group `outside` have homes of their own, `main` the rest."""

    folder: Path
    root: str

    def open(self, group: str | None = None) -> Memory:
        return open_memory(self.folder, [self.root], group=group)


def records(number: int, cwd: str) -> bytes:
    """A session about its group's own word: a request, a call that fails, an edit, an answer."""
    session, word, hidden = logs.session_id(number), WORDS[number], hidden_word(number)
    made = [
        logs.claude_user(session, 1, f"{COMMON} please fix {word} {hidden}"),
        logs.claude_call(session, 2, f"pytest tests/test_{word}.py {hidden}"),
        logs.claude_result(session, 3, f"FAILED {word} AssertionError: {hidden} is broken"),
        logs.claude_answer(session, 4, f"We decided to use {word}. TODO: finish {hidden}"),
        logs.claude_user(session, 5, f"no, that is wrong, undo {word} {hidden}"),
    ]
    return logs.lines(record | {"cwd": cwd, "gitBranch": f"branch-{hidden}"} for record in made)


def plant(folder: Path, numbers: Iterable[int] = tuple(WORDS)) -> Planted:
    """Make the store with the sessions of these groups in it."""
    homes = {number: folder / f"home-{word}" for number, word in WORDS.items()}
    for number, home in homes.items():
        if number not in numbers:
            continue
        (work := folder / f"work-{hidden_word(number)}").mkdir()
        logs.CLAUDE.write(home, records(number, str(work)), logs.session_id(number))
    store = with_key(folder / "store")
    planted = Planted(store, f"claude={homes[MAIN]}")
    with planted.open() as memory:
        groups = [(name, number) for name, number in GROUPS if number in numbers]
        for name, number in groups:
            if name != "main":
                memory.groups.add(name, folder / f"work-{hidden_word(number)}", home=homes[number])
        assert memory.sweep().failures == []
        for name, number in groups:
            sessions = memory.groups.sessions(name)
            sessions.set(f"claude:{logs.session_id(number)}")
            sessions.archive(f"bookmark {hidden_word(number)}")
    return planted


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return plant(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def inside(planted: Planted) -> Iterator[Memory]:
    with planted.open("inside") as memory:
        yield memory
