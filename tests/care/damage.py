"""A store with something of everything, harm that is done to it at random, and what must hold after a repair."""

import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from recollect.agentkit.protocol import BadLine, SessionInfo
from recollect.api import Memory
from recollect.cli.entry import main
from recollect.model.schema import to_json
from recollect.store import PAGE_BYTES, Store, open_database, open_store
from tests.builders import AGENT, Home, event, usage
from tests.care.rig import copy_while_open, held
from tests.retention.rig import as_copied, evict_all, grow, opened, talk, topic, write
from tests.store.rows import noise

_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
DATABASES = ("cache.db", "memory.db")
PARTS = (*DATABASES, "packs", "ledger.jsonl", "redaction.key", "high-water.json")
LOGS = ("cache.db-wal", "memory.db-wal")
_COUNTED = ("signals", "activity", "tool_use", "command_use")

Chance = random.Random


@dataclass(frozen=True)
class Subject:
    """A store to be harmed, and what it tells."""

    folder: Path
    home: Home
    read: Path  # a copy that was opened: its log is in its databases
    told: dict[str, Any]
    has_sources: bool


def build(folder: Path, *, has_sources: bool, has_log: bool) -> Subject:
    """Sessions that are held, evicted, evicted twice, forked and forgotten; with `has_log` as a crash leaves it."""
    home, store = Home(folder / "home"), folder / "store"
    with opened(store, home) as memory:
        _distil_and_drop(memory, home)
        _hold(home)
        memory.sweep()
        memory.forget(memory.plan_forgetting(f"{AGENT}:forgotten"))
        memory.backup(folder / "one.tar.zst")
        with pytest.MonkeyPatch.context() as patch:
            if has_log:
                patch.setattr(Store, "checkpoint", lambda self: None)  # the process dies before
                grow(home, "held1", first=50)
                write(home, "late", turns=20)
            memory.sweep()
        copy_while_open(store, folder / "subject")
    if not has_sources:
        shutil.rmtree(home.folder)
        home.folder.mkdir()
    shutil.copytree(folder / "subject", folder / "read")
    return Subject(folder / "subject", home, folder / "read", told(folder / "read", home), has_sources)


def _distil_and_drop(memory: Memory, home: Home) -> None:
    for number in range(4):
        write(home, f"evicted{number}", turns=number * 3 + 1)
    write(home, "long", turns=90, words=5)
    memory.sweep()
    evict_all(memory)
    grow(home, "evicted0", first=40)
    memory.sweep()
    evict_all(memory)
    copied = [as_copied(record, "fork") for record in talk("evicted3", 5)]
    home.write("fork", SessionInfo("fork", base_native_id="evicted3"), *copied, *talk("fork", 2, 30))


def _hold(home: Home) -> None:
    write(home, "forgotten", turns=3)
    for number in range(5):
        write(home, f"held{number}", turns=number * 4 + 2, words=30)
    grow(home, "evicted1", first=60)  # goes on after it was dropped
    home.write("packed", SessionInfo("packed"), *(event("packed", n, text=noise(60_000, n)) for n in range(1, 5)))
    home.write("bad", SessionInfo("bad"), event("bad", 1), BadLine(2, 90, "not JSON", b"{no"), usage("bad", "b"))


def told(store: Path, home: Home) -> dict[str, Any]:
    """All that a store tells to whoever asks."""
    with opened(store, home) as memory, open_store(store) as inner:
        sessions, (cache, rows) = memory.sessions(), inner.databases
        names = {session.session_uid: (session.agent, session.native_session_id) for session in sessions}
        distilled = "SELECT d.native_session_id, t.* FROM {0} t JOIN digests d ON d.id = t.digest ORDER BY 1, 3, 4, 5"
        return {
            "sessions": held(store),
            "digests": {uid: to_json(memory.digest(session)) for uid, session in zip(names, sessions, strict=True)},
            "hits": {uid: _hits(memory, topic(name)) for uid, (_, name) in names.items()},
            **{table: [_without_numbers(row) for row in rows.rows(distilled.format(table))] for table in _COUNTED},
            "evictions": rows.rows("SELECT agent, native_session_id, event_keys, base FROM evictions ORDER BY 1, 2"),
            "tombstones": rows.rows("SELECT agent, native_id, event_keys FROM tombstones ORDER BY 1, 2"),
            "copies": [row for row in rows.rows("SELECT path, kind FROM copies ORDER BY 1") if row[1] != "set aside"],
            "losses": [loss[1:] for loss in inner.evictions.losses()],
            "usage": cache.rows(
                "SELECT s.native_id, usage_id, input_tokens, is_copy, v.stream IS NOT NULL FROM usage u JOIN streams s"
                " ON s.id = u.stream LEFT JOIN evicted_streams v ON v.stream = s.id ORDER BY 1, 2"
            ),
        }


def _without_numbers(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A distilled row without the numbers of its digest and of itself."""
    return (row[0], *row[3:]) if isinstance(row[3], int) else (row[0], *row[2:])


def _hits(memory: Memory, word: str) -> list[str]:
    return sorted(hit.session_uid for hit in memory.search(word))


# Harm


class Harm(NamedTuple):
    """What is done to a store, in words and as an act."""

    name: str
    act: Callable[[Path], None]


def random_harm(chance: Chance, subject: Subject, other: Subject) -> Harm:
    """One thing that may happen to a store's files."""
    kinds = (_harm_to_pages, _harm_to_pages, _harm_to_pages, _harm_to_bytes, _harm_to_bytes, _loss)
    return chance.choice(kinds)(chance, subject.folder, other.folder)


def _harm_to_pages(chance: Chance, store: Path, other: Path) -> Harm:
    name = chance.choice(DATABASES)
    count = (store / name).stat().st_size // PAGE_BYTES
    first, second = chance.randrange(count), chance.randrange(count)
    foreign = chance.randrange((other / name).stat().st_size // PAGE_BYTES)
    stranger = chance.choice(DATABASES)
    acts: dict[str, Callable[[list[bytes]], Any]] = {
        "zero": lambda pages: _put(pages, first, bytes(PAGE_BYTES)),
        "noise": lambda pages: _put(pages, first, chance.randbytes(PAGE_BYTES)),
        "swap": lambda pages: _put(pages, second, _put(pages, first, pages[second])),
        "duplicate": lambda pages: _put(pages, first, pages[second]),
        "insert": lambda pages: pages.insert(first, chance.choice((pages[second], bytes(PAGE_BYTES)))),
        "take out": lambda pages: pages.pop(first),
        "foreign": lambda pages: _put(pages, first, _pages(other / name)[foreign]),
        "of the other": lambda pages: _put(pages, first, chance.choice(_pages(store / stranger))),
        "zero to the end": lambda pages: [_put(pages, place, bytes(PAGE_BYTES)) for place in range(first, len(pages))],
    }
    kind = chance.choice(list(acts))
    seed = chance.random()

    def act(folder: Path) -> None:
        chance.seed(seed)
        pages = _pages(folder / name)
        acts[kind](pages)
        (folder / name).write_bytes(b"".join(pages))

    return Harm(f"{kind} {name} {first + 1} {second + 1} {foreign + 1} {stranger}", act)


def _pages(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[at : at + PAGE_BYTES] for at in range(0, len(content), PAGE_BYTES)]


def _put(pages: list[bytes], place: int, page: bytes) -> bytes:
    """Put a page in the place of another, which is returned."""
    before, pages[place] = pages[place], page
    return before


def _harm_to_bytes(chance: Chance, store: Path, other: Path) -> Harm:
    path = chance.choice(_files(store))
    name, size = str(path.relative_to(store)), path.stat().st_size
    kind = chance.choice(("truncate", "flip", "flip more", "cut at a page", "overwrite", "append", "size of pages"))
    at = chance.randrange(size)
    seed = chance.random()

    def act(folder: Path) -> None:
        chance.seed(seed)
        content = bytearray((folder / name).read_bytes())
        if kind == "truncate":
            del content[at:]
        elif kind == "cut at a page":
            del content[at // PAGE_BYTES * PAGE_BYTES :]
        elif kind == "append":
            content += chance.randbytes(chance.choice((1, 100, PAGE_BYTES)))
        elif kind == "overwrite":
            content[at : at + 300] = chance.randbytes(300)[: size - at]
        elif kind == "size of pages":
            content[16:18] = chance.choice((512, 1024, 2048, 8192, 16384, 1)).to_bytes(2)
        for _ in range({"flip": 1, "flip more": 20}.get(kind, 0)):
            content[chance.randrange(size)] ^= chance.randrange(1, 256)
        (folder / name).write_bytes(content)

    return Harm(f"{kind} {name} {at}", act)


def _files(store: Path) -> list[Path]:
    """The files of a store; those that are harmed as often as all packs together come several times."""
    packs = sorted((store / "packs").rglob("*.pack"))
    single = [store / name for name in (*PARTS, *LOGS) if (store / name).is_file() and (store / name).stat().st_size]
    return [*packs, *(path for path in single for _ in packs)]


def _loss(chance: Chance, store: Path, other: Path) -> Harm:
    return lose(*chance.sample(parts(store), chance.choice((1, 2))))


def parts(store: Path) -> list[str]:
    """The files and folders of a store that may be lost."""
    return [path.name for path in sorted(store.iterdir())]


def lose(*names: str) -> Harm:
    def act(folder: Path) -> None:
        for path in (folder / name for name in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return Harm(f"lose {' and '.join(names)}", act)


def end_log(name: str, commits: int) -> Harm:
    """Have a log end in the middle of the commit after so many."""

    def act(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: commit_ends(content)[commits] - PAGE_BYTES // 2])

    return Harm(f"{name} ends after {commits} commits", act)


def commit_ends(log: bytes) -> list[int]:
    """Where each commit of a write-ahead log ends: its last frame tells the size of the database."""
    frames = range(_LOG_HEADER_BYTES, len(log), _FRAME_HEADER_BYTES + PAGE_BYTES)
    return [at + _FRAME_HEADER_BYTES + PAGE_BYTES for at in frames if any(log[at + 4 : at + 8])]


def put_page(name: str, number: int, page: bytes) -> Harm:
    """Have one page, counted from 1, be another."""

    def act(folder: Path) -> None:
        pages = _pages(folder / name)
        _put(pages, number - 1, page)
        (folder / name).write_bytes(b"".join(pages))

    return Harm(f"page {number} of {name}", act)


def swap(name: str, first: int, second: int) -> Harm:
    """Have two pages, counted from 1, change places."""

    def act(folder: Path) -> None:
        pages = _pages(folder / name)
        _put(pages, second - 1, _put(pages, first - 1, pages[second - 1]))
        (folder / name).write_bytes(b"".join(pages))

    return Harm(f"pages {first} and {second} of {name} change places", act)


# What must hold


def examine(subject: Subject, harm: Harm, folder: Path) -> Iterator[str]:
    """Harm a copy of the store in `folder`, have it repaired, and tell what is not as it should be."""
    shutil.copytree(subject.folder, folder)
    harm.act(folder)
    changed = _changed(subject.folder, folder)
    is_other = _tells_other(subject, folder)
    looked = _run(folder, "doctor", "--deep", "--root", subject.home.flag)
    yield from _wrong_end("first look", looked, (0, 1))
    repaired = _run(folder, "doctor", "--repair", "--yes", "--root", subject.home.flag)
    yield from _wrong_end("repair", repaired, (0, 1))
    if is_other and looked.exit_code == 0:
        yield "not noticed"
    for words in (("doctor", "--deep"), ("sweep",)):
        yield from _wrong_end(" ".join(words), _run(folder, *words, "--root", subject.home.flag), (0,))
    missing = (4,) if _is_beyond_repair(subject, changed) else ()
    for words in (("sessions",), ("search", topic("held3")), ("show", f"{AGENT}:held3")):
        yield from _wrong_end(words[0], _run(folder, *words), (0, *missing))
    yield from _compared(subject, told(folder, subject.home), repaired, changed)


def _tells_other(subject: Subject, folder: Path) -> bool:
    """Whether a harmed store tells something else than it did, or nothing."""
    copy = folder.with_name(f"{folder.name}-asked")
    shutil.copytree(folder, copy)
    try:
        return told(copy, subject.home) != subject.told
    except Exception:  # whatever it is, somebody has to be told
        return True
    finally:
        shutil.rmtree(copy)


def _run(folder: Path, *words: str) -> Result:
    return CliRunner(env={"RECOLLECT_HOME": str(folder)}).invoke(main, words)


def _wrong_end(name: str, result: Result, codes: tuple[int, ...]) -> Iterator[str]:
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        trace = traceback.extract_tb(result.exc_info[2]) if result.exc_info else []
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(trace[-6:]))
        yield f"{name}: {result.exception!r} {places}"
    elif result.exit_code not in codes:
        yield f"{name}: ends with {result.exit_code}: {result.output[-600:]}"


def _changed(before: Path, after: Path) -> set[str]:
    """The files that are not what they were; without what a look makes."""
    files = {str(path.relative_to(before)) for path in before.rglob("*") if path.is_file()}
    return {name for name in files if not name.endswith("-shm") and _bytes(after / name) != _bytes(before / name)}


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def places(path: Path) -> dict[int, tuple[str, str, int]]:
    """What SQLite says of the pages that are in use: table or index, kind of page, number of cells."""
    with closing(open_database(path)) as database:
        rows = database.rows("SELECT pageno, name, pagetype, ncell FROM dbstat")
    return {page: (name, kind, cells) for page, name, kind, cells in rows}


def _is_beyond_repair(subject: Subject, changed: set[str]) -> bool:
    """Whether nobody can know any more what was dropped and forgotten, or what there was at all."""
    is_unknown = {"memory.db", "ledger.jsonl"} <= changed
    return is_unknown or (not subject.has_sources and {"memory.db", "cache.db"} <= changed)


def _compared(subject: Subject, after: dict[str, Any], repaired: Result, changed: set[str]) -> Iterator[str]:
    """What is not there that should be: with its sources a store is whole, without them it tells what is lost."""
    before = subject.told
    if _is_beyond_repair(subject, changed):
        return
    if subject.has_sources or not any(name.startswith(("cache.db-w", "packs/")) for name in changed):
        yield from (
            f"{name} differ: {_difference(before[name], after[name])}" for name in before if before[name] != after[name]
        )
        return
    for uid, (row, events, payloads) in before["sessions"].items():
        now = after["sessions"].get(uid)
        if now is None:
            yield f"a session is gone: {uid}"
        elif now[1] == events and (now[2] != payloads or now[0]["content_hash"] != row["content_hash"]):
            yield f"a session is another: {uid}"
        elif now[1] != events and uid not in repaired.output:
            yield f"nobody is told of {len(events) - len(now[1])} lost events: {uid}"
    for name in ("evictions", "tombstones", "copies", "losses"):
        if before[name] != after[name]:
            yield f"{name} differ: {_difference(before[name], after[name])}"
    for uid, (_, events, _) in before["sessions"].items():
        is_found = uid in after["hits"][uid] or uid not in before["hits"][uid]
        if not events and (before["digests"][uid] != after["digests"][uid] or not is_found):
            yield f"the digest of an evicted session is another: {uid}"


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict):
        lost, new = before.keys() - after.keys(), after.keys() - before.keys()
        other = [name for name in before if name in after and before[name] != after[name]]
        return f"lost {sorted(lost)}, new {sorted(new)}, other {other}"
    lost, new = [row for row in before if row not in after], [row for row in after if row not in before]
    return f"lost {lost!s:.300}, new {new!s:.300}"
