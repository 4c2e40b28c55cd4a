"""Groups as every interface uses them: `memory.groups`."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from recollect import api, groups, recall
from recollect.agentkit.runner import HomeSettings, Task
from recollect.agents import find_writeback, fork_words, get_adapter, live_sessions, resume_words
from recollect.clock import rfc3339
from recollect.config import agent_environment
from recollect.errors import Busy, NotFound, Unsupported, UsageError
from recollect.groups import (
    Bookmark,
    Group,
    GroupSessions,
    add_group,
    all_groups,
    get_group,
    global_file,
    home_of,
    key_of,
    new_group,
    remove_group,
)
from recollect.ingest import Protection
from recollect.kinds import ASSISTANT_MSG, COMPLETION, USER_MSG
from recollect.store import MAIN_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from recollect.api import Memory
    from recollect.groups import ActiveSession, Answered, Cleared, Mount, Request, Resumed, RunReport
    from recollect.schema import Session
    from recollect.store import Store

_SEARCH_TOKENS = 4_000


@dataclass(frozen=True, slots=True)
class Prompting:
    """How a group's agent is run: which one, with which arguments, and how long it waits for follow-ups.

    `after_uuid` cuts the session after that message of the agent; `drops` names the prompt whose turn goes with it, and
    has the agent refuse if more would go.
    """

    agent: str | None = None
    arguments: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    after_uuid: str | None = None
    drops: str | None = None
    settings: HomeSettings | None = None


@dataclass(frozen=True, slots=True)
class Forked:
    """How to continue a copy of a session; `new_id` if the copy is already written."""

    session_uid: str
    new_id: str | None
    command: str


class Groups:
    """The groups of a store. Opened for a group, a memory has that one only, and cannot add or remove any."""

    def __init__(self, store: Store, memory: Memory) -> None:
        self._store = store
        self._memory = memory

    @property
    def _folder(self) -> Path:
        return self._memory.settings.folder

    def all(self) -> list[Group]:
        """All groups, `main` first."""
        return all_groups(self._store, self._folder)

    def get(self, name: str) -> Group:
        """A group by its name. Raises NotFound, with names like it."""
        return get_group(self._store, self._folder, name)

    def add(
        self,
        name: str,
        path: str | PathLike[str],
        *,
        agent: str | None = None,
        home: str | PathLike[str] | None = None,
    ) -> Group:
        """Create a group for a folder. Sessions of that folder, or found in the group's agent home, belong to it."""
        row = new_group(name, Path(path).absolute(), agent, Path(home).absolute() if home else None)
        group = add_group(self._store, self._folder, row)
        for folder in (group.conversations, group.home):  # so that a sandbox can mount them
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write_snapshots(name)
        return group

    def remove(self, name: str) -> Group:
        """Drop a group with its pointer and bookmarks. Its sessions move to `main`; no file is deleted."""
        return remove_group(self._store, self._folder, name)

    def current(self, folder: str | PathLike[str] | None = None) -> str:
        """The group this process works for, else the one whose folder holds `folder`, else `main`."""
        if self._store.group is not None:
            return self._store.group
        inside = [
            group
            for group in self.all()
            if folder is not None and Path(folder).is_relative_to(group.path) and group.name != MAIN_GROUP
        ]
        return max(inside, key=lambda group: len(group.path)).name if inside else MAIN_GROUP

    def sessions(self, group: str | None = None) -> GroupSessions:
        """The active session and the bookmarks of a group; of the one this memory was opened for, or `main`."""
        return GroupSessions(self._store, self.get(group or self.current()).name, self._redacted)

    def bookmarks(self, group: str | None = None) -> list[Bookmark]:
        """The bookmarks of a group, or of all that this memory sees, newest first."""
        names = [group] if group else [known.name for known in self.all()]
        return sorted((mark for name in names for mark in self.sessions(name).history()), key=lambda mark: -mark.id)

    def mounts(self, name: str) -> list[Mount]:
        """The host's folders and files that a sandbox of this group mounts, where, and whether it may write there."""
        return groups.mounts_of(self._folder, self.get(name))

    def paragraph(self, name: str) -> tuple[Path, str]:
        """The instructions file of the group's agent, and its text with the paragraph on past conversations."""
        group = self.get(name)
        path = groups.instructions_file(group)
        return path, groups.with_paragraph(path.read_text(encoding="utf-8") if path.exists() else "", group)

    def clear(self, name: str, group: str | None = None) -> Cleared:
        """Archive a group's active session, bookmark it and leave the group without one; closes a running agent.

        Raises NotFound if there is no active session.
        """
        return self._clear(name, group)

    def _clear(self, name: str, group: str | None, request: Request | None = None) -> Cleared:
        self._catch_up()
        sessions = self.sessions(group)
        find, write = self._memory.session, self._memory.archives.write
        done = groups.clear_session(self.get(sessions.group), sessions, name, find, write, _answer_of(request))
        self.write_snapshots(sessions.group)
        return done

    def resume(self, target: str, group: str | None = None, *, save_as: str | None = None) -> Resumed:
        """Make a bookmarked session, named by its number or name, the active one and drop its bookmark.

        `save_as` bookmarks the session active now. Raises NotFound or Ambiguous; then nothing changes.
        """
        return self._resume(target, group, save_as)

    def _resume(self, target: str, group: str | None, save_as: str | None, request: Request | None = None) -> Resumed:
        sessions = self.sessions(group)
        done = groups.resume_session(self.get(sessions.group), sessions, target, save_as, _answer_of(request))
        self.write_snapshots(sessions.group)
        return done

    def write_snapshots(self, name: str, tasks: Sequence[Any] = ()) -> None:
        """Write what the group's agent may know into its IPC folder; `tasks` is what the host adds."""
        group = self.get(name)
        shown = self.all() if name == MAIN_GROUP else [group]
        groups.write_snapshots(groups.Snapshot(group, shown, self.sessions(name).history(), self._todos(group), tasks))

    def _todos(self, group: Group) -> list[str]:
        try:
            digest = self._memory.digest(self._memory.session(group.session_uid or ""))
        except NotFound:
            return []
        return [todo.text for todo in digest.open.todos]

    def serve(self, name: str) -> list[Answered]:
        """Answer the requests that wait in a group's IPC folder, each with the group's own rights."""

        group = self.get(name)
        if not groups.has_requests(group):
            return []
        self._catch_up()
        with api.open_memory(self._folder, group=name) as memory:
            known = memory._store.groups.answer
            return groups.answer_requests(group, lambda request: known(name, request), memory.groups._execute)

    def _execute(self, request: Request) -> Mapping[str, Any]:
        fields, name = request.fields, self.current()
        if request.action == "clear":
            cleared = self._clear(fields["name"], name, request)
            return {
                "session_uid": cleared.bookmark.session_uid,
                "name": cleared.bookmark.name,
                "archive": cleared.archive,
            }
        if request.action == "resume":
            resumed = self._resume(fields["target"], name, fields.get("save_as"), request)
            return {"session_uid": resumed.session_uid, "name": resumed.name, "saved_as": resumed.saved_as}
        if request.action == "list":
            return groups.bookmark_history(self.get(name), self.sessions(name).history())
        limit = fields.get("limit") or 5
        answer = self._memory.answer(fields["query"], limit=limit, exclude=(), budget_tokens=_SEARCH_TOKENS)
        return {"answer": answer.to_json()}

    def run(
        self,
        prompt: str,
        group: str | None = None,
        how: Prompting | None = None,
        *,
        say: Callable[[str], None] = lambda text: None,
    ) -> RunReport:
        """Run a group's agent: it continues the active session, or begins one that becomes active.

        Raises Busy if it is running, and RecollectError if it fails.
        """
        how = how or Prompting()
        sessions = self.sessions(group)
        chosen = self.get(sessions.group)
        active = key_of(chosen.session_uid) if chosen.session_uid else None
        adapter = get_adapter(how.agent or (active.agent if active else chosen.agent))
        home = home_of(self._store, self._folder, chosen.name, adapter.agent)
        shared = global_file(self._folder)
        task = Task(
            cwd=Path(chosen.path),
            session=active.native_id if active and active.agent == adapter.agent else None,
            instructions=shared if chosen.name != MAIN_GROUP and shared.exists() else None,
            after_uuid=how.after_uuid,
            drops=how.drops,
            arguments=how.arguments,
        )
        Path(chosen.path).mkdir(parents=True, exist_ok=True)
        self.write_snapshots(chosen.name)
        environment = agent_environment(adapter.home_variable, home, chosen.name, chosen.ipc)
        settings = how.settings or HomeSettings()
        run = groups.Run(chosen, adapter.agent, home, prompt, environment, task, how.wait_seconds, settings)
        return groups.run_agent(run, sessions, partial(self._was_received, chosen.name), say)

    def _was_received(self, group: str, prompt: str, since_ms: int) -> bool:
        """Whether an agent of the group has logged a prompt since then."""
        self._memory.sweep()
        since, text = rfc3339(since_ms) or "", self._redacted(prompt).strip()
        for session in self._memory.sessions(roots_only=True):
            if session.group != group or (session.ended_at or "") < since:
                continue
            later = [event for event in self._memory.events(session, USER_MSG) if (event.ts or "") >= since]
            if any(str(payload.get("text")).strip() == text for payload in self._memory.payloads(session, later)):
                return True
        return False

    def active(self) -> list[ActiveSession]:
        """The running sessions of all agents: written in the last two minutes, or with a live process."""
        sessions = self._memory.sessions(recall.Filters(since="1 day ago"), roots_only=True)
        homes = {(session.agent, _home_of(self._memory, session)) for session in sessions}
        live = {name: facts for agent, home in homes if home for name, facts in live_sessions(agent, home).items()}

        def is_answered(session: Session) -> bool:
            last = self._memory.transcript(session, last=1)
            return any(item.event.kind in (ASSISTANT_MSG, COMPLETION) for item in last)

        return groups.active_of(sessions, live, is_answered)

    def fork(self, session: Session, at: str | None = None) -> Forked:
        """The command that continues a copy of a session; the session itself does not change.

        With `at` (an event's number, or part of its uid) the copy ends there: it is written beside the session, where
        the agent keeps such files. Raises UsageError for an agent that forks whole sessions only.
        """
        if at is None:
            words = fork_words(session.agent, session.native_session_id)
            if not words:
                brief = f"begin a new session with `recollect digest {session.argument} --for-agent`"
                raise NotFound(f"Cannot fork a session of this agent, or with this id: {session.session_uid}", brief)
            return Forked(session.session_uid, None, shlex.join(words))
        self._store.refuse_in_group()
        event = next(item.event for item in self._memory.window(session, at, 0) if item.is_asked_for)
        source = next((Path(item.path) for item in session.sources if not item.source_gone_at), None)
        if source is None:
            raise NotFound(f"The agent has deleted the log of {session.session_uid}", "leave out `--at`")
        try:
            if (writeback := find_writeback(session.agent)) is None:
                raise Unsupported(f"Recollect cannot write sessions of this agent: {session.agent}")
            new_id = writeback.fork(source, event.native_id)
        except Unsupported as error:
            brief = f"`recollect digest {session.argument} --for-agent`"
            raise UsageError(error.message, f"leave out `--at`, or begin a new session with {brief}") from None
        return Forked(session.session_uid, new_id, shlex.join(resume_words(session.agent, new_id)))

    def _catch_up(self) -> None:
        """Read the agent's latest output, if this process may: the archive should be complete."""
        if self._store.group is None:
            with suppress(Busy):
                self._memory.sweep()

    def _redacted(self, text: str) -> str:
        return Protection(self._folder, self._memory.settings.redaction).redactor().text(text)


def _answer_of(request: Request | None) -> Callable[[dict[str, object]], tuple[str, str]] | None:
    """How the answer to a request is stored with what it changed."""
    return None if request is None else lambda content: (request.id, orjson.dumps(content).decode())


def _home_of(memory: Memory, session: Session) -> Path | None:
    """The agent's home that a session's files are in."""
    homes = memory.settings.roots.get(session.agent, ())
    paths = [Path(source.path) for source in session.sources]
    return next((home for home in homes if any(path.is_relative_to(home) for path in paths)), None)
