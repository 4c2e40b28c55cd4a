"""The to-do list of a session as its calls left it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.store import Step

_FINISHED = frozenset({"completed", "done", "cancelled", "canceled", "deleted", "skipped"})
_LISTS = ("todos", "plan", "items", "tasks")
_NAMES = ("content", "step", "subject", "title", "task", "description")


@dataclass(frozen=True, slots=True)
class Todo:
    """One entry, and the call that said last how it stands."""

    text: str
    status: str
    call: Step

    @property
    def is_open(self) -> bool:
        return self.status not in _FINISHED


def todo_list(
    calls: Iterable[Step], payloads: Mapping[bytes, Mapping[str, Any]], entries: dict[str, Todo]
) -> dict[str, Todo]:
    """The list after all calls, from what it was before them: some replace it, some change entries by id, some add one
    entry each."""
    for call in calls:
        given = payloads.get(call.event_uid, {}).get("input")
        if isinstance(given, Mapping):
            entries = _changed(entries, given, call)
    return entries


def _changed(entries: dict[str, Todo], given: Mapping[str, Any], call: Step) -> dict[str, Todo]:
    listed = next((given[name] for name in _LISTS if isinstance(given.get(name), list)), None)
    if listed is not None:
        kept = entries if given.get("merge") is True else {}
        return kept | _entries(listed, kept, call)
    task = given.get("taskId") or given.get("task_id")
    if isinstance(task, str) and task in entries:
        status, text = given.get("status"), _name(given)
        old = entries[task]
        changed = Todo(text or old.text, status if isinstance(status, str) else old.status, call)
        return entries | {task: changed}
    if task is None and (text := _name(given)):
        return entries | {str(len(entries) + 1): Todo(text, "pending", call)}
    return entries


def _entries(listed: list[Any], known: Mapping[str, Todo], call: Step) -> dict[str, Todo]:
    found: dict[str, Todo] = {}
    for number, item in enumerate(listed, 1):
        if not isinstance(item, Mapping):
            continue
        key, status = str(item.get("id") or number), item.get("status")
        text = _name(item) or (known[key].text if key in known else "")
        if text:
            found[key] = Todo(text, status if isinstance(status, str) else "pending", call)
    return found


def _name(item: Mapping[str, Any]) -> str:
    return next((item[name] for name in _NAMES if isinstance(item.get(name), str) and item[name]), "")
