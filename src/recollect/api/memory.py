"""An open store, and how to open it."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from recollect import api, forget
from recollect.api.upkeep import Upkeep
from recollect.config import load_settings, process_group, store_folder
from recollect.errors import NotFound
from recollect.store import open_for_reading, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from types import TracebackType

    from recollect.api import Annotations, Archives, Graphs, Groups, Handover, Knowledge, Projects
    from recollect.forget import ForgetPlan


class Memory(Upkeep):
    """An open store. Reading never changes it; `sweep`, `rescan`, `forget` and `import_sessions` write to it."""

    @cached_property
    def projects(self) -> Projects:
        """Which projects are remembered."""
        return api.Projects(self._store, self._load)

    @cached_property
    def knowledge(self) -> Knowledge:
        """What the sessions teach: fixes of errors, decisions, workflows, facts."""
        return api.Knowledge(self)

    @cached_property
    def annotations(self) -> Annotations:
        """What the user notes about sessions: stars, tags, notes, names."""
        return api.Annotations(self)

    @cached_property
    def archives(self) -> Archives:
        """Sessions as documents."""
        return api.Archives(self._store, self.settings)

    @cached_property
    def handover(self) -> Handover:
        """Restores sessions to their agents' own storage, or hands them to another agent."""
        return api.Handover(self._store, self.settings)

    @cached_property
    def groups(self) -> Groups:
        """Workspaces kept apart, each with its active session and its bookmarks."""
        return api.Groups(self._store, self)

    @cached_property
    def graphiti(self) -> Graphs:
        """A Graphiti graph that facts and exchanges are pushed to; raises RecollectError unless it is set up."""
        return api.Graphs(self)

    def forget(self, planned: ForgetPlan, *, keep_forks: bool = False, also_new: bool = False) -> ForgetPlan:
        """Delete the sessions of a plan for good: no byte of them is left, and no sweep brings them back.

        `keep_forks` leaves sessions that share their text untouched; without it such a plan raises NeedsAnswer.
        `also_new` includes matches stored since the plan was made; without it they raise Busy, as a running sweep does.
        """
        rules, domains = self.settings.rules, self.settings.domains
        done = forget.apply_plan(self._store, rules, domains, planned, keep_forks=keep_forks, also_new=also_new)
        self.groups.renew_snapshots()
        return done

    def close(self) -> None:
        """Close the store; leaving the `with` block does."""
        self._store.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_memory(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    create: bool = True,
    read_only: bool = False,
    group: str | None = None,
) -> Memory:
    """Open the store (`RECOLLECT_HOME`, or the user's data folder), creating it if there is none.

    `roots` are `AGENT=PATH`, as on the command line. Raises NotFound if there is no store and `create` is off.
    With `read_only` it opens fastest and never waits for a writer; nothing can be changed through it. Opened for a
    `group` (or with `RECOLLECT_GROUP`), it has that group's sessions only; `main` has all.
    """
    group = process_group(group)
    if read_only or group is not None:
        path = store_folder({"RECOLLECT_HOME": str(folder)} if folder else None)
        try:
            store = open_for_reading(path, group)
        except NotFound:
            open_store(load_settings(folder).folder).close()  # finishes an interrupted restore, or says what is wrong
            store = open_for_reading(path, group)
        return Memory(store, partial(load_settings, folder, roots))
    load = partial(load_settings, folder, roots)
    return Memory(open_store(load().folder, create=create), load)
