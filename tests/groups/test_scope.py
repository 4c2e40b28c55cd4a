"""What a group's store refuses, and that nothing in its answers tells of the other groups."""

import re
from pathlib import Path

import pytest

from recollect.api import Memory
from recollect.model.errors import NotInGroup
from recollect.model.schema import to_json
from recollect.store import open_for_reading
from tests import logs
from tests.groups.conftest import COMMON, INSIDE, WORDS, Planted, hidden_word, plant


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT title FROM main.sessions",
        "SELECT count(*) FROM main.sessions",
        "SELECT count(*) FROM tombstones",
        "SELECT path FROM copies",
        "WITH x AS (SELECT * FROM main.sessions) SELECT * FROM x",
        "WITH sessions AS (SELECT * FROM main.sessions) SELECT * FROM sessions",
        "SELECT rowid FROM main.digest_text WHERE digest_text MATCH 'fix'",
        "SELECT term FROM temp.all_terms_digest_text",
        "INSERT INTO main.rules VALUES ('x')",
        "DELETE FROM main.sessions",
        "ATTACH ':memory:' AS other",
        "CREATE TEMP VIEW mine AS SELECT * FROM main.sessions",
        "DROP VIEW temp.sessions",
        "PRAGMA query_only = 0",
    ],
)
def test_a_query_beside_the_views_is_refused(planted: Planted, sql: str) -> None:
    with (
        open_for_reading(planted.folder, "inside") as scoped,
        pytest.raises(NotInGroup),
    ):
        scoped._memory.rows(sql)


def test_a_part_of_the_store_that_is_about_all_of_it_is_refused(planted: Planted) -> None:
    with open_for_reading(planted.folder, "inside") as scoped:
        for part in ("intake", "ledger", "folder", "databases", "erasure", "sources", "tombstones", "sizes", "raw"):
            with pytest.raises(NotInGroup):
                getattr(scoped, part)


def test_no_query_names_a_table_in_full() -> None:
    """A name in full would pass by the views: it is refused, but only when it runs."""
    folder = Path(__file__).parents[2] / "src" / "recollect" / "store"
    naming = [path.name for path in folder.rglob("*.py") if re.search(r"(FROM|JOIN) main\.", path.read_text())]

    assert naming == ["scope.py"]


def test_answers_are_those_of_a_store_without_the_others(planted: Planted, tmp_path: Path) -> None:
    alone = plant(tmp_path, numbers=(INSIDE,))

    with planted.open("inside") as among_others, alone.open("inside") as by_itself:
        assert _answers(among_others) == _answers(by_itself)


def _answers(memory: Memory) -> list[str]:
    queries = (COMMON, WORDS[INSIDE], "quokkaoutsid", "numbatmainconceale", "fix undo", "")
    found = [memory.answer(query) for query in queries] + [memory.answer("outsid", mode="substring")]
    answers = [(answer.notes, answer.total, answer.suggestion, answer.hits) for answer in found]
    answers += [memory.count_sessions(), memory.names("repo"), memory.names("branch"), memory.count_signals()]
    answers += [to_json(memory.stats(by)) for by in ("repo", "command", "session", "month")]
    answers += [to_json(memory.timeline()), to_json(memory.unfinished()), memory.groups.sessions().history()]
    # Times, folders and the numbers of rows differ.
    strip = re.compile(r"/(tmp|dev/shm)/\S+?(?=work-|home-)|\d{4}-\d\d-\d\dT[\d:.]+Z|id=\d+")
    return [strip.sub("", repr(answer)) for answer in answers]


def test_a_session_of_the_group_is_seen_as_soon_as_it_is_stored(tmp_path: Path) -> None:
    planted = plant(tmp_path)
    home, work = tmp_path / f"home-{WORDS[INSIDE]}", tmp_path / f"work-{hidden_word(INSIDE)}"

    with planted.open("inside") as reader, planted.open() as writer:
        before = len(reader.search(COMMON))
        message = logs.claude_user(logs.session_id(9), 1, f"{COMMON} again") | {"cwd": str(work)}
        logs.CLAUDE.write(home, logs.line(message), logs.session_id(9))
        writer.sweep()

        assert (before, len(reader.search(COMMON))) == (1, 2)
