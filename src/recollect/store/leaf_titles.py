"""Titles that one session's log tells of another: kept with the former until a session holds the record they name.

Every holder of the record is called so, copies included: a fork is called what it is about, and nothing depends on
the order in which files are read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.schema import LEAF_TITLE, MAIN_LANE, copy_key_of
from recollect.store.sqlite import Database

_HOLDERS = (
    f"SELECT agent, source, info FROM infos WHERE instr(info, '\"{LEAF_TITLE}') > 0"  # there is an index of these
)
_RANK = "title_1"


class _LeafTitle(NamedTuple):
    agent: str
    source: int
    leaf: str
    title: str


def settle_leaf_titles(database: Database) -> None:
    """Call sessions by the titles that other sessions' logs tell of them; those that get a new one become dirty."""
    told = list(_told(database.rows(_HOLDERS)))
    if not told or not (found := _best(told, database)):
        return
    with database.transaction() as connection:
        for name, title in found.items():
            _name(connection, name, title)


def drop_leaf_titles(connection: apsw.Connection, streams: Sequence[int]) -> None:
    """Take out what logs of others call these sessions, which are about to be deleted."""
    told = {copy_key_of(one.agent, one.leaf): one for one in _told(connection.execute(_HOLDERS))}
    held = connection.execute(
        "SELECT DISTINCT copy_key FROM events WHERE copy_key IN (SELECT value FROM json_each(?))"
        " AND stream IN (SELECT value FROM json_each(?))",
        (orjson.dumps(sorted(told)).decode(), orjson.dumps(streams).decode()),
    )
    gone = {(told[key].agent, f"{LEAF_TITLE}{told[key].leaf}") for (key,) in held}
    for agent, source, text in list(connection.execute(_HOLDERS)) if gone else ():
        info = orjson.loads(text)
        info["last"] = {name: value for name, value in info["last"].items() if (agent, name) not in gone}
        sql = "UPDATE infos SET info = ? WHERE agent = ? AND source = ? AND info = ?"
        connection.execute(sql, (orjson.dumps(info).decode(), agent, source, text))


def _told(rows: Iterable[tuple[Any, ...]]) -> Iterator[_LeafTitle]:
    for agent, source, info in rows:
        for name, title in orjson.loads(info)["last"].items():
            if name.startswith(LEAF_TITLE):
                yield _LeafTitle(agent, source, name.removeprefix(LEAF_TITLE), title)


def _best(told: list[_LeafTitle], database: Database) -> dict[tuple[str, str, int], str]:
    """For each session and file the title of the latest record that the session holds."""
    keys = {copy_key_of(one.agent, one.leaf) for one in told}
    rows = database.rows(
        "SELECT s.agent, e.native_id, s.native_id, e.lane = ?, e.position"
        " FROM events e JOIN streams s ON s.id = e.stream WHERE e.copy_key IN (SELECT value FROM json_each(?))",
        (MAIN_LANE, orjson.dumps(sorted(keys)).decode()),
    )
    holders: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for agent, leaf, *place in rows:
        holders.setdefault((agent, leaf), []).append(tuple(place))
    best: dict[tuple[str, str, int], tuple[Any, ...]] = {}
    for one in told:
        for native_id, *place in holders.get((one.agent, one.leaf), ()):
            name = (one.agent, native_id, one.source)
            best[name] = max((*place, one.title), best.get(name, ()))
    return {name: place[-1] for name, place in best.items()}


def _name(connection: apsw.Connection, name: tuple[str, str, int], title: str) -> None:
    where = "WHERE agent = ? AND native_id = ? AND source = ?"
    known = connection.execute(f"SELECT info FROM infos {where}", name).get
    info = orjson.loads(known) if known else {"first": {}, "last": {}}
    if info["last"].get(_RANK) == title:
        return
    info["last"][_RANK] = title
    text = orjson.dumps(info).decode()
    if known:
        connection.execute(f"UPDATE infos SET info = ? {where}", (text, *name))
    else:
        connection.execute("INSERT INTO infos (agent, native_id, source, info) VALUES (?, ?, ?, ?)", (*name, text))
    connection.execute("UPDATE streams SET is_dirty = 1 WHERE agent = ? AND native_id = ?", name[:2])
