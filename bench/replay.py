"""What the hooks would have said: the second half of a home, replayed against a memory of the first half.

    python bench/replay.py claude=~/.claude [--at 2026-02-01 | --share 0.5] [--growing] [--json FILE] [--all]

A home is split at a moment. Sessions that ended before it are copied into a home of their own and swept; those that
began after it are replayed: their start, first prompt, failed calls, edits and compactions go through the function that
the hook command calls, at the time they really happened. A session over the split is in neither half. Every line that
was said is listed with what set it off and what the session did next, for a reader to judge. Prompt reminders are
switched on; `--defaults` leaves the switches alone. With `--growing`, later sessions join the memory as they end, as
they do on a user's machine, and a session itself before it is compacted; `--growing --share 0` replays a whole home.
`--all` also lists events without an answer.
"""

import argparse
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recollect import Memory, Session, TranscriptItem, open_memory
from recollect.hooks.answers import HookEvent, answer, hooks_of_agent
from recollect.model.clock import as_ms, moment_ms, rfc3339
from recollect.model.text import payload_text

SWITCHES = {"brief": True, "fixes": True, "prompts": True}
NEXT, LINE_CHARS, TEXT_CHARS = 8, 160, 1_500
CALLS, SAYS = ("tool_call", "test_run", "edit", "retry"), ("assistant_msg", "completion", "user_msg")
# The records of a brief by how their headings begin.
HEADINGS = {
    "The last session": "last",
    "Decided here": "decided",
    "Left open": "open",
}
CLOCK = time.time_ns
ORIGIN = re.compile(r"^origin: ", re.MULTILINE)
STAMP = re.compile(rb'"timestamp":"(\d{4}-[^"]+)"')
ENDS = re.compile(r"^\[recollect-[0-9a-f]{16}", re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """A line that a hook added to a session: `trigger` is what it answers, `then` what the session did next."""

    kind: str
    session: str
    repo: str
    at: str
    event: str
    trigger: str
    text: str
    then: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """Where to split a home, and how to replay its second half."""

    at_ms: int | None = None
    share: float = 0.5
    is_growing: bool = False
    is_default: bool = False  # the switches of hooks


def replay(roots: Sequence[str], work: Path, how: Split) -> list[Said]:
    """Every line that the hooks say in the second half of these homes, and an empty one where they say nothing."""
    for name in ("whole", "first", "store"):  # of the last run: it would know what comes
        shutil.rmtree(work / name, ignore_errors=True)
    with open_memory(work / "whole", roots) as whole:
        whole.sweep()
        sessions = [session for session in whole.sessions() if session.started_at and session.ended_at]
        ends = _ends(sessions)
        known = [s for s in sessions if s.session_uid in ends and s.session_class != "prompts-only"]
        split_ms = how.at_ms or _split(list(ends.values()), how.share)
        second = sorted((s for s in known if _started_ms(s) >= split_ms), key=_started_ms)
        earlier = sum(ends[s.session_uid] < split_ms for s in known)
        over = len(known) - earlier - len(second)
        print(f"split at {rfc3339(split_ms)}: {earlier} sessions before, {len(second)} after, {over} over it")
        first = _Half(sessions, ends, roots, work, {} if how.is_default else SWITCHES)
        first.sweep(split_ms)
        said: list[Said] = []
        for session in second:
            if how.is_growing:
                first.sweep(_started_ms(session))
            said += _session(whole, session, first, is_growing=how.is_growing)
        time.time_ns = CLOCK
        return said


def _started_ms(session: Session) -> int:
    return as_ms(session.started_at or "")


def _ends(sessions: Sequence[Session]) -> dict[str, int]:
    """When each session ended with its sub-agents."""
    ends: dict[str, int] = {}
    for session in sessions:
        root, ended_ms = session.root_session_uid, as_ms(session.ended_at or "")
        ends[root] = max(ended_ms, ends.get(root, ended_ms))
    return ends


def _split(ends: Sequence[int], share: float) -> int:
    return sorted(ends)[round(share * (len(ends) - 1))] + 1 if share else 1


class _Half:
    """A memory of the sessions that ended before a moment."""

    def __init__(
        self,
        sessions: Sequence[Session],
        ends: dict[str, int],
        roots: Sequence[str],
        work: Path,
        switches: dict[str, bool],
    ) -> None:
        self.store = work / "store"
        self._switches = switches
        self._roots = roots
        self._folder = work / "first"
        # A file with several sessions can be read once all of them have ended.
        self._files: dict[str, int] = {}
        for session in sessions:
            for source in session.sources:
                ended_ms = ends.get(session.root_session_uid, 1 << 60)
                self._files[source.path] = max(ended_ms, self._files.get(source.path, 0))

    def sweep(self, moment_ms: int) -> None:
        """Read what ended before this moment, at this moment."""
        ready = [path for path, ended_ms in self._files.items() if ended_ms < moment_ms]
        for path in map(Path, ready):
            del self._files[str(path)]
            target = self._folder / path.as_posix().strip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)
        if ready or not self.store.exists():
            self._sweep(moment_ms)

    def _sweep(self, moment_ms: int) -> None:
        _now(moment_ms)
        with open_memory(self.store, [self._root(root) for root in self._roots]) as memory:
            memory.sweep()
        if self._switches:  # a sweep passes on those of the settings
            (self.store / "hooks.json").write_text(json.dumps(self._switches))

    def sweep_part(self, session: Session, moment_ms: int) -> None:
        """Read what a running session has logged by this moment, as is done before its compaction."""
        for path in (Path(source.path) for source in session.sources if source.path in self._files):
            if path.suffix == ".jsonl":
                target = self._folder / path.as_posix().strip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                with path.open("rb") as log, target.open("wb") as copy:
                    for line in log:
                        if (stamp := STAMP.search(line)) and as_ms(stamp[1].decode()) >= moment_ms:
                            break
                        copy.write(line)
        self._sweep(moment_ms)

    def _root(self, root: str) -> str:
        agent, _, path = root.partition("=")
        folder = self._folder / Path(path).expanduser().resolve().as_posix().strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return f"{agent}={folder}"


def _now(ms: int) -> None:
    """Let it be this moment for everything in this process."""
    time.time_ns = lambda: ms * 1_000_000


def _session(memory: Memory, session: Session, first: _Half, *, is_growing: bool) -> Iterator[Said]:
    """What is said in a session: the hooks of an agent that starts anew."""
    store = first.store
    shutil.rmtree(store / "claims", ignore_errors=True)  # the brief is given once for a process
    items = [item for item in memory.transcript(session) if item.session.session_class != "warm-up"]
    calls = {item.event.call_id: item for item in items if item.event.kind in CALLS}
    start = {"hook_event_name": "SessionStart", "source": "startup"}
    yield from _lines(session, store, session.started_at, start, _about(memory, session), items[:NEXT])
    has_asked = False
    for place, item in enumerate(items):
        event, text = item.event, payload_text(item.event.kind, item.payload)
        given: dict[str, Any] = {}
        if event.kind == "user_msg" and not item.depth and not has_asked:
            has_asked = True
            given, trigger = {"hook_event_name": "UserPromptSubmit", "prompt": text}, text
        elif event.kind == "lifecycle" and event.summary.startswith("Conversation compacted"):
            given, trigger = {"hook_event_name": "SessionStart", "source": "compact"}, event.summary
            if is_growing and event.ts:
                first.sweep_part(session, as_ms(event.ts))
        elif event.kind == "edit" and event.call_id:
            trigger = event.summary
            given = {"hook_event_name": "PreToolUse", "tool_name": event.tool, "tool_input": item.payload.get("input")}
        elif event.call_id and "output" in item.payload and event.status not in ("denied", "interrupted"):
            called = calls.get(event.call_id)
            trigger = f"{called.event.summary if called else event.tool}\n{_tail(text)}"
            is_shell = called is not None and "command" in (called.payload.get("input") or ())
            given = {"hook_event_name": "PostToolUse", "tool_response": text, "tool_name": "Bash" if is_shell else ""}
            if event.is_error:
                given |= {"hook_event_name": "PostToolUseFailure", "error": text}
        if given:
            given["tool_use_id"] = event.call_id or ""
            yield from _lines(session, store, event.ts, given, trigger, items[place + 1 : place + 1 + 6 * NEXT])


def _about(memory: Memory, session: Session) -> str:
    requests = memory.digest(session).requests
    return f"{session.title}: {requests[0].text if requests else ''}"


def _lines(
    session: Session, store: Path, at: str | None, given: dict[str, Any], trigger: str, items: Sequence[TranscriptItem]
) -> Iterator[Said]:
    hooks = hooks_of_agent(session.agent)
    if hooks is None:
        return
    if at:
        _now(as_ms(at))
    given = {"session_id": session.native_session_id, "cwd": session.cwd or "/", **given}
    event = HookEvent(hooks, given)
    said = answer(event, str(store))
    if said is None and given["hook_event_name"] == "PostToolUse" and not event.failure:
        return  # nothing the agent would ask about
    text = said["hookSpecificOutput"]["additionalContext"] if said else ""
    for kind, line in _told(given, text) if text else [("silent", "")]:
        then = tuple(_next(items)) if kind != "silent" else ()
        about = trigger.strip()[-TEXT_CHARS:] if event.failure else trigger.strip()[:TEXT_CHARS]
        yield Said(kind, session.session_uid, session.repo or "", at or "", event.name, about, line, then)


def _told(given: dict[str, Any], text: str) -> Iterator[tuple[str, str]]:
    """The lines of an answer with their kinds; of a brief each decision is one."""
    if given["hook_event_name"] != "SessionStart":
        kinds = {"UserPromptSubmit": "reminder", "PreToolUse": "before edit"}
        yield kinds.get(given["hook_event_name"], "fix"), text
        return
    if given["source"] == "compact":
        yield "packet", text
        return
    for record in ORIGIN.split(ENDS.split(text + "\n")[1])[1:]:
        _, _, body = record.strip().partition("\n")
        kind = next((kind for heading, kind in HEADINGS.items() if body.startswith(heading)), "other")
        lines = re.findall(r"^> - (.*)", body, re.MULTILINE) if kind == "decided" else [body]
        yield from ((kind, line) for line in lines)


def _next(items: Sequence[TranscriptItem]) -> Iterator[str]:
    """What was said and called next, and whether the calls failed."""
    results = {i.event.call_id: i.event for i in items if i.event.call_id and i.event.kind not in CALLS}
    shown = [item for item in items if item.event.kind in (*CALLS, *SAYS)]
    for item in shown[:NEXT]:
        event = item.event
        result = results.get(event.call_id) if event.call_id else None
        verdict = "" if result is None else " ✗" if result.is_error else " ✓"
        yield f"{event.role or 'agent'}{verdict}: {' '.join(event.summary.split())[:LINE_CHARS]}"


def _tail(text: str) -> str:
    return text if len(text) <= TEXT_CHARS else f"…{text[-TEXT_CHARS:]}"


def show(said: Sequence[Said]) -> None:
    for one in said:
        print(f"\n── {one.kind} · {one.session} · {one.repo} · {one.at} · {one.event}")
        print("\n".join(f"   | {line}" for line in one.trigger.splitlines()[-12:]))
        print("\n".join(f"   > {line}" for line in one.text.splitlines()))
        print("\n".join(f"     then {line}" for line in one.then))
    events, told = Counter(one.event for one in said), [one for one in said if one.kind != "silent"]
    print("\nevents  " + ", ".join(f"{name} {count}" for name, count in sorted(events.items())))
    for kind, count in Counter(one.kind for one in told).most_common():
        of_kind = [one for one in told if one.kind == kind]
        sessions, texts = len({one.session for one in of_kind}), len({one.text for one in of_kind})
        print(f"{kind:<12} {count:>5} lines in {sessions} sessions, {texts} different")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", metavar="AGENT=PATH")
    parser.add_argument("--at", help="the moment of the split; by default the one before which half of them ended")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--growing", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--work", type=Path, help="where to keep both stores")
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = asked.work or Path(folder)
        how = Split(moment_ms("--at", asked.at), asked.share, asked.growing, asked.defaults)
        said = replay(asked.roots, work, how)
    shown = [one for one in said if asked.all or one.kind != "silent"]
    show(shown)
    print(f"silent       {sum(one.kind == 'silent' for one in said):>5} events")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(one) for one in shown], indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
