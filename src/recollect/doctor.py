"""What stands in the way of a complete memory, with the exact thing to do about it."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import orjson

from recollect.adapters import adapters
from recollect.adapters.protocol import Adapter, SettingAdvice
from recollect.config import Settings
from recollect.errors import RecollectError
from recollect.store import Store, open_store
from recollect.store.sqlite import file_system_type

OK = "ok"
NOTE = "note"
PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `level` is ok, note or problem; `advice` says what to do."""

    level: str
    subject: str
    message: str
    advice: str | None = None


def examine(settings: Settings) -> list[Finding]:
    """Look at everything; nothing is changed, and a missing store is no error."""
    return [*_sqlite(), *_homes(settings), *_store(settings)]


def _sqlite() -> Iterator[Finding]:
    yield Finding(OK, "sqlite", f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})")


def _homes(settings: Settings) -> Iterator[Finding]:
    for agent, roots in settings.roots.items():
        for root in roots:
            yield from _home(adapters()[agent], root)


def _home(adapter: Adapter, root: Path) -> Iterator[Finding]:
    name = adapter.profile.display_name
    if not root.exists():
        yield Finding(
            NOTE, adapter.agent, f"{name} has left nothing here: {root}", f"set {adapter.home_variable} or --root"
        )
        return
    if not os.access(root, os.R_OK | os.X_OK):
        yield Finding(PROBLEM, adapter.agent, f"{name}'s folder cannot be read: {root}", f"chmod u+rx {root}")
        return
    resolved = root.resolve()
    count = sum(1 for _ in adapter.discover(resolved))
    link = f" (a link to {resolved})" if resolved != root.absolute() else ""
    yield Finding(OK, adapter.agent, f"{name}: {count} files in {root}{link}")
    for advice in adapter.profile.settings_advice:
        yield from _setting(adapter, resolved, advice)


def _setting(adapter: Adapter, root: Path, advice: SettingAdvice) -> Iterator[Finding]:
    value = _number_in(root / advice.path, advice.key)
    days = advice.default if value is None else value
    told = "by default" if value is None else "as set"
    if days >= advice.at_least:
        yield Finding(OK, adapter.agent, f"{adapter.profile.display_name} keeps its logs {days} days ({told})")
    else:
        message = (
            f"{adapter.profile.display_name} deletes its own logs after {days} days ({told} in {root / advice.path})"
        )
        yield Finding(NOTE, adapter.agent, message, advice.advice)


def _number_in(path: Path, key: str) -> int | None:
    """One number of an agent's settings; the file may hold secrets, so nothing else of it is kept."""
    try:
        settings = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    value = settings.get(key) if isinstance(settings, dict) else None
    return value if isinstance(value, int) else None


def _store(settings: Settings) -> Iterator[Finding]:
    try:
        store = open_store(settings.folder)
    except RecollectError as error:
        yield Finding(NOTE if error.code == "not_found" else PROBLEM, "store", error.message, error.hint)
        return
    with store:
        yield from _permissions(settings.folder)
        yield from _integrity(store)


def _permissions(folder: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        yield Finding(
            PROBLEM, "store", f"Others may look into the store (mode {mode:o}): {folder}", f"chmod 700 {folder}"
        )
    else:
        yield Finding(
            OK, "store", f"Only you may read it: {folder} ({file_system_type(folder) or 'unknown'} file system)"
        )


def _integrity(store: Store) -> Iterator[Finding]:
    damage = store.damage()
    for message in damage:
        advice = f"move {store.folder} away and run `recollect sweep`: it is read again from your agents' files"
        yield Finding(PROBLEM, "store", f"Damaged: {message}", advice)
    if not damage:
        yield Finding(OK, "store", f"Databases and packs are sound ({store.sessions.count()} sessions)")
