"""Groups as every interface uses them: `memory.groups`."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from recollect import api, groups, recall
from recollect.agentkit.optional import HomeSettings, Task
from recollect.agents import find_writeback, fork_words, get_adapter, live_sessions, resume_words, shell_line
from recollect.config import agent_environment, group_variables
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
from recollect.model.clock import rfc3339
from recollect.model.errors import Busy, NotFound, Unsupported, UsageError
from recollect.model.kinds import ASSISTANT_MSG, COMPLETION, USER_MSG
from recollect.model.shared_folder import HISTORY_NAME
from recollect.store import LAST_CHANGE, MAIN_GROUP, drop_abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from recollect.api import Memory
    from recollect.groups import ActiveSession, Answered, Cleared, Mount, Request, Resumed, RunReport
    from recollect.model.schema import Session
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

    def mounts(self, name: str, settings: HomeSettings | None = None) -> list[Mount]:
        """The host's folders and files that a sandbox of this group mounts, where, and whether it may write there.

        All of them are there on return, and the agent's home has what `group run` gives it: `settings` if it is new,
        and the group's skills.
        """
        group = self.get(name)
        if self._store.group is None:
            groups.prepare_home(group, group.agent, Path(group.home), settings or HomeSettings())
            Path(group.conversations).mkdir(parents=True, exist_ok=True)
            self.write_snapshots(name)
        return groups.mounts_of(self._folder, group)

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
        asked = {"action": "clear", "name": sessions.clean(name)}
        if sessions.get() is None and (last := self._last(sessions.group, asked)):
            marks = [mark for mark in sessions.history() if mark.session_uid == last["session_uid"]]
            if marks:
                return groups.Cleared(marks[0], last["archive"], was_done=True)
        group_, find, archives = self.get(sessions.group), self._memory.session, self._memory.archives

        def write(session: Session, folder: Path, name: str) -> Path:
            return archives.write(session, folder, name=name)

        done = groups.clear_session(group_, sessions, name, find, write, _answer_of(request, asked))
        self.write_snapshots(sessions.group)
        return done

    def is_bookmark(self, target: str, group: str | None = None) -> bool:
        """Whether `resume` would take this name; also if it just did. Raises Ambiguous if several have it."""
        sessions = self.sessions(group)
        asked = {"action": "resume", "target": target, "save_as": None}
        return sessions.find(target) is not None or self._last(sessions.group, asked) is not None

    def resume(self, target: str | int, group: str | None = None, *, save_as: str | None = None) -> Resumed:
        """Make a bookmarked session, named by its number, name or archive, the active one and drop its bookmark.

        `save_as` bookmarks the session active now. Raises NotFound or Ambiguous; then nothing changes.
        """
        return self._resume(str(target), group, save_as)

    def _resume(self, target: str, group: str | None, save_as: str | None, request: Request | None = None) -> Resumed:
        sessions = self.sessions(group)
        asked = {"action": "resume", "target": target, "save_as": save_as}
        last, is_there = self._last(sessions.group, asked), sessions.find(target) is not None
        if last and not is_there and sessions.get() == last["session_uid"]:
            done = groups.Resumed(sessions.group, last["session_uid"], last["name"], last["saved_as"], was_done=True)
        else:
            done = groups.resume_session(
                self.get(sessions.group), sessions, target, save_as, _answer_of(request, asked)
            )
            self.write_snapshots(sessions.group)
        return self._continued(done)

    def _last(self, group: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the last change of a group did, if it was asked for in the same words."""
        last = orjson.loads(self._store.groups.answer(group, LAST_CHANGE) or "{}")
        return last if last.get("asked") == asked else None

    def _continued(self, resumed: Resumed) -> Resumed:
        """The same with the command that continues the session where it worked: in its group, with its group's home."""
        key, group = key_of(resumed.session_uid), self.get(resumed.group)
        session = self._store.sessions.find_named(key)
        path = session.path if session else None
        if path is None and resume_words(*key):  # not stored yet: where the group's agent would have it
            path = str(home_of(self._store, self._folder, group.name, key.agent) / "session")
        words = resume_words(*key, path)
        if words and group.name != MAIN_GROUP:
            words = [f"{name}={value}" for name, value in group_variables(group.name, group.ipc).items()] + words
        cwd = session.cwd if session and session.cwd and Path(session.cwd).is_dir() else group.path
        return replace(resumed, cwd=cwd, resume_command=shell_line(words) if words else None)

    def archive(self, session: Session) -> str | None:
        """Write a session into its group's conversations, as `group clear` does; None for one of `main`."""
        if session.group == MAIN_GROUP:
            return None
        folder = self.get(session.group).conversations
        return str(self._memory.archives.write(session, folder, name=session.title or session.native_session_id))

    def write_snapshots(self, name: str, tasks: Sequence[Any] = ()) -> None:
        """Write what the group's agent may know into its IPC folder; `tasks` is what the host adds."""
        group = self.get(name)
        shown = self.all() if name == MAIN_GROUP else [group]
        groups.write_snapshots(group, shown, self.sessions(name).history(), self._todos(group), tasks)

    def renew_snapshots(self) -> None:
        """Write the snapshots of all groups that have had any."""
        for group in self.all():
            with suppress(UsageError):  # a sandbox may have put something else in the folder's place
                if Path(group.ipc).is_dir():
                    self.write_snapshots(group.name)

    def _todos(self, group: Group) -> list[str]:
        try:
            digest = self._memory.digest(self._memory.session(group.session_uid or ""))
        except NotFound:
            return []
        return [todo.text for todo in digest.open.todos]

    def serve(self, name: str) -> list[Answered]:
        """Answer the first requests that wait in a group's IPC folder, with the group's own rights.

        The others wait for the next call, so that every group has its turn. Raises UsageError for a folder that is
        none.
        """
        group = self.get(name)
        if not groups.has_requests(group):
            return []
        if not (Path(group.ipc) / HISTORY_NAME).exists():  # a sweep that finished forgetting deleted them
            self.write_snapshots(name)
        self._catch_up()
        rules, named = self._memory.settings.redaction, self._store.named_values.all()
        redactor = Protection(self._folder, rules, named).redactor()
        with api.open_memory(self._folder, group=name) as memory:
            known, execute = memory._store.groups.answer, memory.groups._execute
            mounts = groups.mounts_of(self._folder, group)
            host = groups.Host(partial(known, name), execute, redactor.payloads, mounts)
            return groups.answer_requests(group, host)

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
            resumed = self._resume(str(fields["target"]), name, fields.get("save_as"), request)
            return {"session_uid": resumed.session_uid, "name": resumed.name, "saved_as": resumed.saved_as}
        if request.action == "archive":
            session = self._memory.session(fields.get("session") or self.sessions(name).require())
            return {"session_uid": session.session_uid, "archive": self.archive(session)}
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
        files = [(session.agent, source.path) for session in sessions for source in session.sources]
        roots = self._memory.settings.roots
        homes = {
            (agent, home) for agent, path in files for home in roots.get(agent, ()) if Path(path).is_relative_to(home)
        }
        live = {name: facts for agent, home in homes for name, facts in live_sessions(agent, home).items()}

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
            words = fork_words(session.agent, session.native_session_id, session.path)
            if not words:
                brief = f"begin a new session with `recollect digest {session.argument} --for-agent`"
                raise NotFound(f"Cannot fork a session of this agent, or with this id: {session.session_uid}", brief)
            return Forked(session.session_uid, None, shell_line(words))
        self._store.refuse_in_group()
        event = next(item.event for item in self._memory.window(session, at, 0) if item.is_asked_for)
        source = next((Path(item.path) for item in session.sources if os.path.lexists(item.path)), None)
        if source is None:
            raise NotFound(f"The agent has deleted the log of {session.session_uid}", "leave out `--at`")
        try:
            if (writeback := find_writeback(session.agent)) is None:
                raise Unsupported(f"Recollect cannot write sessions of this agent: {session.agent}")
            drop_abandoned(source.parent, source.suffix)  # of forks that were killed
            new_id = writeback.fork(source, event.native_id)
        except Unsupported as error:
            brief = f"`recollect digest {session.argument} --for-agent`"
            raise UsageError(error.message, f"leave out `--at`, or begin a new session with {brief}") from None
        return Forked(session.session_uid, new_id, shell_line(resume_words(session.agent, new_id, str(source))))

    def _catch_up(self) -> None:
        """Read the agent's latest output, if this process may: the archive should be complete."""
        if self._store.group is None:
            with suppress(Busy):
                self._memory.sweep()

    def _redacted(self, text: str) -> str:
        return Protection(self._folder, self._memory.settings.redaction).redactor().text(text)


def _answer_of(request: Request | None, asked: Mapping[str, Any]) -> Callable[[dict[str, object]], tuple[str, str]]:
    """How the answer to a request is stored with what it changed; without a request, what was asked for instead."""
    if request is not None:
        return lambda content: (request.id, orjson.dumps(content).decode())
    return lambda content: (LAST_CHANGE, orjson.dumps(content | {"asked": asked}).decode())
