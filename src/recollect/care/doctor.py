"""What stands in the way of a complete memory, with the exact thing to do about it."""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import orjson

from recollect.agentkit.files import resolve_root
from recollect.agentkit.protocol import Adapter, SettingAdvice
from recollect.agents import adapters, find_plugin_host
from recollect.care.install import broken_pieces, installed_agents
from recollect.care.schedule import LOG_NAME
from recollect.config import Settings
from recollect.ingest import held_although_excluded, unusable_rules
from recollect.lifecycle import FINISHES_FORGETTING
from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import NotFound, RecollectError, StoreDamaged
from recollect.model.files import abandoned
from recollect.store import CACHE_NAME, MEMORY_NAME, Store, file_system_type, is_full, open_store

OK = "ok"
NOTE = "note"
PROBLEM = "problem"
ABANDONED_MESSAGE = "Left by an interrupted command, may hold whole sessions"
ABANDONED_ADVICE = "`recollect sweep` or `recollect doctor --repair` removes it"
_OVERDUE_MS = 2 * 86_400_000  # what is dropped is gone to the last byte within a day


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `level` is ok, note or problem; `advice` says what to do."""

    level: str
    subject: str
    message: str
    advice: str | None = None


def examine(settings: Settings, *, with_content: bool = True) -> list[Finding]:
    """Look at everything; nothing is changed, and a missing store is no error.

    `with_content` checks both databases and reads all events; without, that is left to an inspection.
    """
    sqlite = Finding(OK, "sqlite", f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})")
    return [sqlite, *_homes(settings), *_store(settings, with_content), *_scheduled(settings), *_installed(settings)]


def _scheduled(settings: Settings) -> Iterator[Finding]:
    """What the last scheduled sweep printed, if there was one."""
    log_path = settings.folder / LOG_NAME
    try:
        ended_ms, lines = log_path.stat().st_mtime * 1000, log_path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    failed = [line for line in lines if line.startswith("Error:")]
    said = (failed or lines or ["nothing was printed"])[-1]
    message = f"Last scheduled sweep, {rfc3339(round(ended_ms))}: {said}"
    yield Finding(PROBLEM if failed else OK, "schedule", message, f"full output: {log_path}" if failed else None)


def _installed(settings: Settings) -> Iterator[Finding]:
    """Whether agents that Recollect was installed into can reach it."""
    agents = installed_agents(settings)
    broken = list(broken_pieces(settings))
    for agent, piece in broken:
        advice = "run `recollect install` again"
        yield Finding(PROBLEM, agent or "install", f"Installed, but not responding: {piece}", advice)
    if agents and not broken:
        yield Finding(OK, "install", f"Server and hook respond; installed for {', '.join(agents)}")
    for agent in agents:
        host = find_plugin_host(agent)
        if host and host.advice and not (settings.folder / "answering" / agent).exists():
            name = adapters()[agent].profile.display_name
            yield Finding(NOTE, agent, f"{name} has not run its hook yet", host.advice)


def _homes(settings: Settings) -> Iterator[Finding]:
    if not settings.is_capturing:
        advice = "recollect config capture.enabled true"
        yield Finding(NOTE, "capture", "Reading is switched off: capture.enabled", advice)
    missing: list[Adapter] = []
    for agent, roots in settings.roots.items():
        adapter = adapters()[agent]
        if all(map(_is_missing, roots)):
            missing.append(adapter)
            continue
        for root in roots:
            try:
                yield from _home(adapter, root)
            except OSError as error:
                message = f"{adapter.profile.display_name}'s folder cannot be read ({error.strerror}): {root}"
                yield Finding(PROBLEM, agent, message, f"check it with `ls -ld {root}`")
    if missing and len(missing) == len(settings.roots):
        paths = ", ".join(str(root) for roots in settings.roots.values() for root in roots)
        variables = ", ".join(_variable(adapter) for adapter in missing)
        yield Finding(NOTE, "agents", f"No agent's folder is here: {paths}", f"set {variables} or --root")
    elif missing:
        yield Finding(OK, "agents", f"No {', '.join(adapter.profile.display_name for adapter in missing)} here")


def _variable(adapter: Adapter) -> str:
    return adapter.home_variable.partition("/")[0]  # of `XDG_DATA_HOME/name`


def _is_missing(root: Path) -> bool:
    try:
        root.lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)  # any other may hide a home
    return False


def _home(adapter: Adapter, root: Path) -> Iterator[Finding]:
    name = adapter.profile.display_name
    resolved = resolve_root(root)
    if not root.exists():
        hint = f"if it is elsewhere, set {_variable(adapter)} or --root"
        yield Finding(NOTE, adapter.agent, f"No {name} folder: {root}", hint)
        return
    if not os.access(root, os.R_OK | os.X_OK):
        yield Finding(PROBLEM, adapter.agent, f"{name}'s folder cannot be read: {root}", f"chmod u+rx {root}")
        return
    sources = list(adapter.discover(resolved))
    unreadable = [source for source in sources if source.failure]
    count = len(sources) - len(unreadable)
    link = f" (a link to {resolved})" if resolved != root.absolute() else ""
    yield Finding(OK, adapter.agent, f"{name}: {count} {'file' if count == 1 else 'files'} in {root}{link}")
    for source in unreadable:
        message = f"A folder of {name} {source.failure}: {source.path}"
        yield Finding(PROBLEM, adapter.agent, message, f"chmod u+rx {source.path}")
    for advice in adapter.profile.settings_advice:
        yield from _setting(adapter, resolved, advice)


def _setting(adapter: Adapter, root: Path, advice: SettingAdvice) -> Iterator[Finding]:
    value = _number_in(root / advice.path, advice.key)
    days = advice.default if value is None else value
    origin = "the default; not set" if value is None else "set"
    name, where = adapter.profile.display_name, f"({origin} in {root / advice.path})"
    if days >= advice.at_least:
        yield Finding(OK, adapter.agent, f"{name} keeps its logs for {days} days {where}")
    else:
        yield Finding(NOTE, adapter.agent, f"{name} deletes its own logs after {days} days {where}", advice.advice)


def _number_in(path: Path, key: str) -> int | None:
    """One number of an agent's settings; the file may hold secrets, so nothing else of it is kept."""
    try:
        settings = orjson.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, orjson.JSONDecodeError):
        return None
    value = settings.get(key) if isinstance(settings, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _store(settings: Settings, with_content: bool) -> Iterator[Finding]:
    for path in abandoned(settings.folder):
        yield Finding(NOTE, "store", f"{ABANDONED_MESSAGE}: {path}", ABANDONED_ADVICE)
    if (settings.folder / MEMORY_NAME).exists() and not (settings.folder / CACHE_NAME).exists():
        message = f"{CACHE_NAME} is missing: {settings.folder}"  # opening the store would make an empty one
        yield Finding(PROBLEM, "store", message, _advice_on_damage(settings.folder))
        return
    try:
        store = open_store(settings.folder)
    except NotFound as error:
        yield Finding(NOTE, "store", error.message, error.hint)
    except (RecollectError, OSError, apsw.Error) as error:
        yield _unsound(settings.folder, error)
    else:
        with store:
            yield from _permissions(settings.folder)
            if is_full(settings.folder):
                message = f"Disk full, nothing new can be stored: {settings.folder}"
                yield Finding(PROBLEM, "store", message, "free some space; nothing has been lost")
            findings = list(_integrity(store)) if with_content else []
            yield from findings
            if all(finding.level == OK for finding in findings):
                try:
                    yield from _kept_out(store, settings)
                    yield from _retention(store, settings)
                except (RecollectError, OSError, apsw.Error) as error:
                    yield _unsound(store.folder, error)


def _kept_out(store: Store, settings: Settings) -> Iterator[Finding]:
    """Sessions stored before the user excluded them, models without a price, and what could not be forgotten."""
    held = Counter(place.repo for place in held_although_excluded(store, settings.exclude))
    for repo, count in held.items():
        message = f"Sessions stored before they were excluded: {count} in {repo}"
        yield Finding(NOTE, "capture", message, "`recollect forget --excluded` deletes everything your rules exclude")
    for path, line in unusable_rules(store):
        advice = f"nothing can be re-included; list only what to exclude, without `!`: {path}"
        yield Finding(NOTE, "capture", f"Line without effect in {path}: {line}", advice)
    for model in store.activity.unpriced_models():
        advice = "costs with a `+` leave it out; a newer version of Recollect may know its price"
        yield Finding(NOTE, "prices", f"Model without a known price: {model}", advice)
    if left := len(store.tombstones.unfinished()):
        message = f"Forgetting is unfinished: bytes of {left} sessions may remain in the store's files"
        yield Finding(PROBLEM, "store", message, FINISHES_FORGETTING)


def _retention(store: Store, settings: Settings) -> Iterator[Finding]:
    """Report what nobody can restore, digests over their cap, and evictions that could not end."""
    advice = "raise retention.raw_hard_cap, or see what fills it: `recollect retention --dry-run`"
    for event, count in store.evictions.loss_counts().items():
        yield Finding(NOTE, "retention", f"{event}: {count} evicted sessions exist nowhere else", advice)
    distilled_bytes = store.sizes.distilled_bytes()
    if distilled_bytes > settings.limits.distilled_cap:
        message = f"Digests take {distilled_bytes:,} bytes, over retention.distilled_cap"
        yield Finding(NOTE, "retention", message, "raise it, or delete sessions you no longer need: `recollect forget`")
    begun_ms = store.evictions.unfinished_since_ms()
    if begun_ms is not None and begun_ms < now_ms() - _OVERDUE_MS:
        left = len(store.evictions.unfinished())
        message = f"Eviction is unfinished: bytes of {left} sessions may remain in the store's files"
        advice = "`recollect sweep` finishes it; it needs free space, and no other program reading the store"
        yield Finding(NOTE, "store", message, advice)


def _permissions(folder: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        message = f"Other users can read the store (mode {mode:o}): {folder}"
        yield Finding(PROBLEM, "store", message, f"chmod 700 {folder}")
    else:
        kind = file_system_type(folder) or "unknown"
        yield Finding(OK, "store", f"Only you can read the store: {folder} ({kind} file system)")


def _integrity(store: Store) -> Iterator[Finding]:
    """Check both databases, and read every event's content back."""
    advice = _advice_on_damage(store.folder)
    try:
        faults = [*store.check.alarms(), *(f"Damaged: {message}" for message in store.check.damage())]
        yield from (Finding(PROBLEM, "store", message, advice) for message in faults)
        if not faults:  # else anything may be in its rows
            first = (message for stream in store.raw.streams() for message in store.raw.faults(stream)[:1])
            faults = list(dict.fromkeys(first))
            yield from (Finding(PROBLEM, "store", message, advice) for message in faults)
        sessions, events = store.sessions.count(), sum(store.raw.event_counts().values())
    except (RecollectError, OSError, apsw.Error) as error:
        yield _unsound(store.folder, error)
    else:
        if not faults:
            yield Finding(OK, "store", f"Store intact: {sessions:,} sessions, all {events:,} events readable")


def _unsound(folder: Path, error: Exception) -> Finding:
    if isinstance(error, StoreDamaged):
        return Finding(PROBLEM, "store", error.message, _advice_on_damage(folder))
    if isinstance(error, RecollectError):
        return Finding(PROBLEM, "store", error.message, error.hint)
    return Finding(PROBLEM, "store", f"Cannot read the store ({error}): {folder}", _advice_on_damage(folder))


def _advice_on_damage(folder: Path) -> str:
    return (
        "`recollect doctor --repair` rebuilds what it can from your agents' files and keeps the damaged files;"
        f" or restore a backup with `recollect restore FILE`: {folder}"
    )
