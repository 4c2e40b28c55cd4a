"""How far each database has come, noted outside of it: a lost log or an old copy looks sound to SQLite.

Two independent checks; both fire only if the database is *behind*:

- the high-water mark, one file for the store, written when a sweep has ended and everything is on the disk. It names
  a random token that each database keeps: a database without the token is older, or another one;
- `<database>-last`, written with every commit and never synced. It counts only until the machine restarts: after a
  power cut the database may rightly be behind it.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.clock import now_ms, rfc3339
from recollect.store.sqlite.files import replace_file

MARK_NAME = "high-water.json"
LAST_SUFFIX = "-last"

# Whether all pages of a database have checksums. Words, so that no flipped byte turns one into the other.
CHECKSUMS_KEPT = "kept"
CHECKSUMS_NONE = "none"

_MARKS_KEPT = 100
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Commit(NamedTuple):
    """A commit of a database: its number, and a name that no other history has."""

    number: int
    token: str


def count_commit(connection: apsw.Connection) -> Commit:
    """Number the transaction that is about to be committed."""
    token = os.urandom(8).hex()
    sql = "UPDATE history SET commits = commits + 1, token = ? RETURNING commits"
    return Commit(int(connection.execute(sql, (token,)).get), token)


def note_commit(database: str, commit: Commit) -> None:
    """Note a commit beside the database. A hint only: a full disk must not undo what is stored."""
    text = orjson.dumps({"boot": _boot(), "commits": commit.number, "token": commit.token})
    with suppress(OSError):
        fd = os.open(f"{database}{LAST_SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, text.ljust(128), 0)
        finally:
            os.close(fd)


def last_commit(connection: apsw.Connection) -> Commit:
    number, token = connection.execute("SELECT commits, token FROM history").get
    return Commit(number, token)


@cache
def _boot() -> str | None:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None


def behind_last(database: Path, connection: apsw.Connection) -> str | None:
    """Describe commits since the machine's start that are not in the database; None if all are."""
    noted = _read(database.with_name(f"{database.name}{LAST_SUFFIX}"))
    if not noted or noted.get("boot") is None or noted["boot"] != _boot():
        return None
    now = last_commit(connection)
    if (now.number, now.token) == (noted["commits"], noted["token"]) or now.number > noted["commits"]:
        return None
    return (
        f"{database.name} is at commit {now.number} but was at {noted['commits']}:"
        " its write-ahead log was lost, truncated or replaced"
    )


class Mark(NamedTuple):
    """The high-water mark of one database."""

    token: str
    commits: int
    counts: dict[str, int]
    made_ms: int


def read_mark(folder: Path) -> dict[str, Mark]:
    """The high-water marks by name of database; empty if there are none, or none that can be read."""
    marks = _read(folder / MARK_NAME)
    try:
        return {name: Mark(**fields) for name, fields in (marks or {}).items()}
    except TypeError:
        return {}


def write_mark(folder: Path, marks: dict[str, Mark]) -> None:
    text = orjson.dumps({name: mark._asdict() for name, mark in marks.items()}, option=orjson.OPT_INDENT_2)
    replace_file(folder / MARK_NAME, text)


def add_mark(connection: apsw.Connection, counts: dict[str, int]) -> Mark:
    """Add a new token to a database, in the open transaction; the mark names it once it is on the disk."""
    commits = last_commit(connection).number + 1  # this transaction's own
    mark = Mark(os.urandom(8).hex(), commits, counts, now_ms())
    connection.execute("INSERT INTO marks (token, commits) VALUES (?, ?)", (mark.token, commits))
    connection.execute(f"DELETE FROM marks WHERE commits < ? - {_MARKS_KEPT}", (commits,))
    return mark


def has_marks(connection: apsw.Connection) -> bool:
    """Whether a database was ever marked, so that there should be a mark file."""
    return connection.execute("SELECT 1 FROM marks LIMIT 1").get is not None


def behind_mark(name: str, connection: apsw.Connection, mark: Mark | None, counts: dict[str, int]) -> str | None:
    """Describe a database that is older than the high-water mark, or not the one that was marked; None if it is."""
    if mark is None or connection.execute("SELECT 1 FROM marks WHERE token = ?", (mark.token,)).get:
        return None
    had = ", ".join(f"{count:,} {noun}" for noun, count in mark.counts.items())
    has = ", ".join(f"{count:,} {noun}" for noun, count in counts.items())
    return f"{name} has lost data since {rfc3339(mark.made_ms)}: it held {had}, now {has}"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return content if isinstance(content, dict) else None


def forget_history(folder: Path, names: Sequence[str]) -> None:
    """Remove the notes about databases that were replaced on purpose."""
    for name in names:
        (folder / f"{name}{LAST_SUFFIX}").unlink(missing_ok=True)
    kept = {name: mark for name, mark in read_mark(folder).items() if name not in names}
    if kept:
        write_mark(folder, kept)
    else:
        (folder / MARK_NAME).unlink(missing_ok=True)
