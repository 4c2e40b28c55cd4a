"""Nothing is lost, nothing is made up, and the way a store came about does not show in it."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import recollect
from recollect import Memory, SweepReport, open_memory
from recollect.model.schema import (
    ASSISTANT_MSG,
    COMPLETION,
    ERROR,
    FILES_LANE,
    HISTORY_LANE,
    THINKING,
    USER_MSG,
    Cost,
    Event,
    Session,
    to_json,
)
from tests import logs, native_count
from tests.conftest import SHARED, needs_shared, swept, with_key
from tests.faults.rig import IS_SOAK
from tests.logs import session_id
from tests.native_count import ASSISTANT, CALL, COUNTERS, NOTICE, RESULT, USER, Count, Told, normal

SAMPLES = Path(recollect.__file__).parent / "samples"
GENUINE = SHARED / "genuine"
SAMPLE_HOMES = [f"{agent}={SAMPLES / agent}" for agent in COUNTERS]
GENUINE_HOMES = [f"{agent}={home}" for agent in COUNTERS for home in sorted(GENUINE.glob(f"{agent}-*/.{agent}"))]
CORPUS_HOMES = [f"{agent}={home}" for agent in COUNTERS for home in sorted(SHARED.glob(f"corpus/{agent}/*"))]


def _name(root: str) -> str:
    """`claude-2.1.325` for `claude=…/claude-2.1.325/.claude`."""
    path = Path(root.partition("=")[2])
    return path.parent.name if path.name.startswith(".") else path.name


every_home = pytest.mark.parametrize("root", [*SAMPLE_HOMES, *GENUINE_HOMES, *CORPUS_HOMES], ids=_name)
every_genuine_home = pytest.mark.parametrize("root", [*SAMPLE_HOMES, *GENUINE_HOMES], ids=_name)


# What a store tells, in the words of the second reader


def _iter_events(memory: Memory) -> Iterator[tuple[str, Event, dict[str, Any]]]:
    for session in memory.sessions():
        events = memory.events(session, with_copies=True)
        for event, payload in zip(events, memory.payloads(session, events), strict=True):
            yield session.native_session_id, event, payload


def _told(count: Count, session: str, event: Event, payload: dict[str, Any]) -> Told:
    is_named = (session, event.native_id) in count.types
    what = _what(event, payload, is_named)
    if what in (CALL, RESULT):
        # The output of the user's own command has a record of its own, which names no call.
        is_users_output = event.tool == "shell" and what == RESULT
        named = event.native_id if is_users_output else f"{event.native_id}/{event.call_id}"
        return Told(session, what, named if is_named else str(event.call_id))
    key = event.native_id if is_named else normal(payload.get("text", ""))
    if what == NOTICE:  # said in the name of the user or the model, though by neither
        what = next((one for one in (USER, ASSISTANT) if Told(session, one, key) in count.told), NOTICE)
    return Told(session, what, event.native_id if what == NOTICE else key)


def _what(event: Event, payload: dict[str, Any], is_named: bool) -> str:
    if "input" in payload:
        return CALL
    if "output" in payload:
        return RESULT
    if event.kind == ERROR and event.role == "assistant" and is_named:
        return ASSISTANT
    plain = {USER_MSG: USER, ASSISTANT_MSG: ASSISTANT, COMPLETION: ASSISTANT, THINKING: native_count.THINKING}
    return plain.get(event.kind, NOTICE)


def _words(payload: dict[str, Any]) -> str:
    content = payload.get("input", payload.get("output", payload.get("text")))
    if isinstance(content, list):
        return normal("".join(part["text"] for part in content if isinstance(part, dict) and "text" in part))
    return normal(content)


class _Comparison:
    """A store beside the count of the same logs."""

    def __init__(self, count: Count, memory: Memory) -> None:
        self.count = count
        self.events = list(_iter_events(memory))
        self.lane = [found for found in self.events if found[1].lane not in (HISTORY_LANE, FILES_LANE)]
        self.told = [(_told(count, *found), found) for found in self.lane]

    def lost(self) -> Counter[Told]:
        return self.count.told - Counter(told for told, _ in self.told)

    def made_up(self) -> list[tuple[str, str]]:
        """Messages and calls more often than the log tells them, and events at places where no record is."""
        more = Counter(told for told, _ in self.told if told.what != NOTICE) - self.count.told
        places = [(session, self._place(event)) for session, event, _ in self.events if event.lane != HISTORY_LANE]
        return [(told.session, told.key) for told in more] + [one for one in places if one not in self.count.places]

    @staticmethod
    def _place(event: Event) -> str:
        if not event.session_uid.startswith("codex:"):
            return event.native_id
        # A rewind's segment has the time it began above its ordinals, so that it comes after its base.
        position = event.position % (1 << 19) if event.position >= 1 << 58 else event.position
        return str(position >> 8)

    def changed(self) -> list[tuple[Told, str]]:
        """Events whose content is none of those the log gives for them."""
        contents = ((told, _words(payload)) for told, (_, _, payload) in self.told)
        return [(told, words) for told, words in contents if words not in (self.count.contents.get(told) or {words})]

    def silent(self) -> list[tuple[str, str]]:
        """Words that stand beside the lane and that no event of their session holds."""
        said: dict[str, str] = {}
        for session, _, payload in self.lane:
            said[session] = f"{said.get(session, '')}\n{_words(payload)}"
        return [(session, words) for session, words in self.count.elsewhere if words not in said.get(session, "")]

    def prompts(self) -> Counter[tuple[str, str]]:
        history = [found for found in self.events if found[1].lane == HISTORY_LANE]
        return Counter((session, _typed(payload)) for session, _, payload in history)

    def wanted_prompts(self) -> Counter[tuple[str, str]]:
        """A prompt history tells only of sessions that have nothing else to tell."""
        held = {session for session, _, _ in self.lane}
        return Counter({key: number for key, number in self.count.prompts.items() if key[0] not in held})


def _typed(payload: dict[str, Any]) -> str:
    if "input" in payload:
        return normal("!" + payload["input"]["command"])
    return normal(payload.get("native", {}).get("display") or payload["text"])


EMPTY = ("empty", "thinking without text", "redacted_thinking", "reasoning without text")
BESIDE = ("response_item/message user (context)", "retry_state (failed)")


def _left_out(report: SweepReport, names: Iterable[str]) -> int:
    return sum(report.skipped[name] for name in names)


@every_home
def test_every_message_call_and_result_is_an_event(root: str, tmp_path: Path) -> None:
    agent, _, path = root.partition("=")
    count = COUNTERS[agent](Path(path))

    with open_memory(tmp_path / "store", [root]) as memory:
        report = memory.sweep()
        found = _Comparison(count, memory)

    lost = found.lost()
    beside = lost & count.beside
    tally = f"{sum(count.told.values())} records, {len(found.lane)} events, {sum(lost.values())} lost"
    assert count.told, "the second reader found nothing to count"
    assert not lost - count.beside, tally
    assert sum(beside.values()) == _left_out(report, BESIDE), tally
    assert found.made_up() == [], tally
    assert found.changed() == [], tally
    assert found.silent() == [], tally
    assert found.prompts() == found.wanted_prompts()
    assert (report.bad_lines, report.failures) == (count.bad_lines, [])
    assert _left_out(report, EMPTY) == count.empty, f"{count.empty} empty records, left out: {report.skipped}"


@pytest.mark.parametrize("root", SAMPLE_HOMES, ids=_name)
def test_a_damaged_line_costs_only_its_own_records(root: str, tmp_path: Path) -> None:
    agent, _, path = root.partition("=")
    home = _copied(Path(path), tmp_path / "home")
    log = max(home.rglob("*.jsonl"), key=lambda file: file.stat().st_size)
    lines = log.read_bytes().split(b"\n")
    lines[len(lines) // 2] = lines[len(lines) // 2][:-20]
    log.write_bytes(b"\n".join(lines))
    count = COUNTERS[agent](home)

    with open_memory(with_key(tmp_path / "store"), [f"{agent}={home}"]) as memory:
        report = memory.sweep()
        found = _Comparison(count, memory)
        problems = memory.problems()

    assert (report.bad_lines, count.bad_lines, len(problems)) == (1, 1, 1)
    assert problems[0].line == len(lines) // 2 + 1
    assert not found.lost() - count.beside
    assert found.made_up() == []


def test_prompts_of_a_deleted_session_stay_beside_its_todo_list(tmp_path: Path) -> None:
    session = "5f7c0c7e-5f0b-4a53-9a53-0d2f4f1f9b10"
    home = tmp_path / "home"
    (home / "todos").mkdir(parents=True)
    prompt = {"display": "add a test", "pastedContents": {}, "timestamp": 1794767993000, "sessionId": session}
    (home / "history.jsonl").write_text(json.dumps(prompt) + "\n")
    (home / "todos" / f"{session}-agent-{session}.json").write_text('[{"content": "test", "status": "pending"}]')

    with swept(tmp_path / "store", f"claude={home}") as memory:
        (found,) = memory.sessions()
        summaries = [event.summary for event in memory.events(found, USER_MSG)]

    assert (summaries, found.title) == (["add a test"], "add a test")


# The same logs give the same store


# A store's own: when and in which order it learned of things, and where.
# A session that is not in the usual home has the home in the command that resumes it.
_OF_THE_STORE = ("seq", "payload_ref", "discovered_at", "ingested_at", "analyzed_at", "sources", "resume_command")


def _portrait(memory: Memory, home: Path) -> dict[str, Any]:
    """All that a store tells, less what is its own."""
    told: dict[str, Any] = {}
    for session in memory.sessions():
        events = memory.events(session, with_copies=True)
        payloads = memory.payloads(session, events)
        sources = sorted(os.path.relpath(source.path, home.resolve()) for source in session.sources)
        told[session.native_session_id] = {
            "session": _without_own(to_json(session)),
            "sources": sources,
            "events": [(_without_own(to_json(event)), body) for event, body in zip(events, payloads, strict=True)],
        }
    return told


def _without_own(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _OF_THE_STORE}


def _differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Where two portraits differ, a line for each of the first twenty places."""
    found = [f"session {uid} is in one only" for uid in one.keys() ^ other.keys()]
    for uid in one.keys() & other.keys():
        left, right = one[uid], other[uid]
        for name, value in left["session"].items():
            if value != right["session"][name]:
                found.append(f"{uid} {name}: {value!r} / {right['session'][name]!r}")
        if left["sources"] != right["sources"]:
            found.append(f"{uid} sources: {left['sources']} / {right['sources']}")
        found += [f"{uid} event {words}" for words in _event_differences(left["events"], right["events"])]
    return "\n".join(line[:600] for line in sorted(found)[:20])


def _event_differences(left: list[Any], right: list[Any]) -> Iterator[str]:
    ours, theirs = ({event["event_uid"]: (event, body) for event, body in events} for events in (left, right))
    yield from (f"in one only: {(ours.get(uid) or theirs[uid])[0]}" for uid in ours.keys() ^ theirs.keys())
    for uid in ours.keys() & theirs.keys():
        (event, body), (other, other_body) = ours[uid], theirs[uid]
        names = [name for name in event if event[name] != other[name]]
        if names:
            yield f"{event['native_id']}: " + ", ".join(f"{n} {event[n]!r} / {other[n]!r}" for n in names)
        if body != other_body:
            yield f"{event['native_id']} payload: {str(body)[:200]} / {str(other_body)[:200]}"
    if not ours.keys() ^ theirs.keys() and [event for event, _ in left] != [event for event, _ in right]:
        yield "order differs"


def _copied(home: Path, to: Path) -> Path:
    """A copy that can be written, without the links and sockets an agent's home may hold."""
    for path in native_count.iter_paths(home):
        if path.is_file() and not path.is_symlink():
            _copy(path, to / path.relative_to(home))
    return to


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _logs(home: Path) -> list[Path]:
    """The files that any adapter might read, by path below the home; not those that stand in for a missing log."""
    files = (path for path in native_count.iter_paths(home) if path.is_file() and not path.is_symlink())
    suffixes = {".jsonl", ".json", ".txt", ".log"}
    logs = (path.relative_to(home) for path in files if path.suffix in suffixes)
    return [log for log in logs if "logs" not in log.parts and log.name not in _NEVER_READ]


_NEVER_READ = {"chat_history.jsonl", "usage.json", "signals.json", "rewind_points.jsonl", "prompt_context.json"}


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The portrait of a home that was read in one sweep."""
    known: dict[str, dict[str, Any]] = {}

    def portrait(root: str) -> dict[str, Any]:
        if root not in known:
            with swept(tmp_path_factory.mktemp("whole"), root) as memory:
                known[root] = _portrait(memory, Path(root.partition("=")[2]))
        return known[root]

    return portrait


AtOnce = Callable[[str], dict[str, Any]]


@every_genuine_home
def test_the_order_in_which_files_arrive_does_not_matter(root: str, tmp_path: Path, at_once: AtOnce) -> None:
    agent, _, path = root.partition("=")
    logs = _logs(Path(path))
    random.Random(_name(root)).shuffle(logs)

    with open_memory(with_key(tmp_path / "store"), [f"{agent}={tmp_path / 'home'}"]) as memory:
        for log in sorted(logs, key=_is_no_output):
            _copy(Path(path) / log, tmp_path / "home" / log)
            assert memory.sweep().failures == []
        portrait = _portrait(memory, tmp_path / "home")

    assert _differences(at_once(root), portrait) == ""


def _is_no_output(log: Path) -> bool:
    """Files of captured output are there before the log tells of them: one that comes later is not read."""
    return log.suffix != ".log"


@needs_shared
def test_a_log_that_arrives_after_the_file_that_stood_in_for_it_is_told_once(tmp_path: Path, at_once: AtOnce) -> None:
    session = "01a1e08c-ed39-75b2-92be-f59b7ff66343"
    folder, home = GENUINE / GROK_CALC / session, tmp_path / "home"
    below = Path("sessions", Path(GROK_CALC).name, session)

    with open_memory(with_key(tmp_path / "store"), [f"grok={home}"]) as memory:
        for name in ("summary.json", "chat_history.jsonl", "updates.jsonl"):
            _copy(folder / name, home / below / name)
            memory.sweep()
        found = _portrait(memory, home)

    whole = at_once(f"grok={GENUINE / 'grok-1.0.41' / '.grok'}")
    assert len(found[session]["events"]) == len(whole[session]["events"])
    assert found[session]["session"]["content_hash"] == whole[session]["session"]["content_hash"]


@pytest.mark.parametrize("seed", range(10 if IS_SOAK else 1))
@pytest.mark.parametrize("root", [*SAMPLE_HOMES, *GENUINE_HOMES, *CORPUS_HOMES], ids=_name)
def test_files_may_grow_in_pieces_of_any_size(root: str, seed: int, tmp_path: Path, at_once: AtOnce) -> None:
    agent, _, path = root.partition("=")
    home = _copied(Path(path), tmp_path / "home")
    chance = random.Random(f"{_name(root)}{seed}")
    contents = {log: log.read_bytes() for log in sorted(home.rglob("*.jsonl"))}
    cuts = {log: _cuts(content, chance) for log, content in contents.items()}

    with open_memory(with_key(tmp_path / "store"), [f"{agent}={home}"]) as memory:
        for step in range(PIECES):
            for log, content in contents.items():
                _grow(log, content[: cuts[log][step]], is_first=step == 0)
            assert memory.sweep().failures == []
        portrait = _portrait(memory, home)

    assert _differences(at_once(root), portrait) == ""


PIECES = 6


def _cuts(content: bytes, chance: random.Random) -> list[int]:
    """Where a file ends at each step; some cuts are just before or after a line's end."""
    ends = [offset for offset, byte in enumerate(content) if byte == 10]
    anywhere = [chance.randint(0, len(content)) for _ in range(PIECES - 1)]
    at_lines = [chance.choice(ends) + chance.randint(0, 1) for _ in range(PIECES - 1)] if ends else anywhere
    return [*sorted(chance.choice(pair) for pair in zip(anywhere, at_lines, strict=True)), len(content)]


def _grow(log: Path, content: bytes, *, is_first: bool) -> None:
    """Append what is new, as an agent does: the file stays the same file."""
    size = 0 if is_first else log.stat().st_size
    with open(log, "wb" if is_first else "ab") as file:
        file.write(content[size:])


@every_genuine_home
def test_reader_processes_tell_what_one_process_tells(
    root: str, tmp_path: Path, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = at_once(root)
    monkeypatch.setattr("recollect.ingest.pool.WORKER_BYTES", 0)

    with swept(tmp_path / "store", root) as memory:
        portrait = _portrait(memory, Path(root.partition("=")[2]))

    assert _differences(whole, portrait) == ""


@pytest.mark.parametrize("root", [*SAMPLE_HOMES, *GENUINE_HOMES, *CORPUS_HOMES], ids=_name)
def test_a_second_sweep_reads_and_writes_nothing(root: str, tmp_path: Path) -> None:
    swept(tmp_path / "store", root).close()
    before = _bytes_of(tmp_path / "store")

    with open_memory(tmp_path / "store", [root]) as memory:
        report = memory.sweep()

    work = (
        "sources_changed",
        "sources_gone",
        "sessions_new",
        "events_new",
        "events_replaced",
        "lines_read",
        "bytes_read",
    )
    assert {name: getattr(report, name) for name in work} == dict.fromkeys(work, 0)
    assert report.sessions > 0
    assert _bytes_of(tmp_path / "store") == before


@pytest.mark.parametrize("root", SAMPLE_HOMES, ids=_name)
def test_opening_every_file_again_writes_no_event(root: str, tmp_path: Path, at_once: AtOnce) -> None:
    with swept(tmp_path / "store", root) as memory:
        report = memory.sweep(verify=True)
        portrait = _portrait(memory, Path(root.partition("=")[2]))

    assert (report.events_new, report.events_replaced, report.lines_read) == (0, 0, 0)
    assert _differences(at_once(root), portrait) == ""


def _bytes_of(store: Path) -> dict[str, str]:
    files = [*store.glob("*.db"), *store.rglob("*.pack")]
    return {str(file.relative_to(store)): sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_session_tells_the_size_its_file_has_now(tmp_path: Path) -> None:
    home = _copied(SAMPLES / "claude", tmp_path / "home")
    log = max(home.rglob("*.jsonl"), key=lambda file: file.stat().st_size)

    with swept(tmp_path / "store", f"claude={home}") as memory:
        with open(log, "a") as file:
            file.write('{"type": "last-prompt", "lastPrompt": "makes no event"}\n')
        memory.sweep()
        sizes = [one.bytes for session in memory.sessions() for one in session.sources if one.path.endswith(log.name)]

    assert sizes == [log.stat().st_size]


# Forks


CALC = "claude-2.1.325/.claude/projects/-home-devbox-proj-calc-demo"
INTERACTIVE = "claude-2.1.325/.claude/projects/-home-devbox-proj-interactive"
GROK_CALC = "grok-1.0.41/.grok/sessions/%2Fhome%2Fdevbox%2Fproj%2Fcalc-demo"
GROK_INTERACTIVE = "grok-1.0.41/.grok/sessions/%2Fhome%2Fdevbox%2Fproj%2Finteractive-gk"
CODEX_DAY = "codex-0.166.0/.codex/sessions/2026/11/15"
# Folder, parent's id, fork's id, and the part of both in the names of their files.
FORKS = {
    "claude --fork-session": (CALC, "11111111-2222-4333-8444-555555555555", "37c0731a-fb2c-4daa-9a99-e7df07ae4aa8"),
    "claude /branch": (INTERACTIVE, "ecc1f5e7-7965-41a7-a50b-e620f05475f3", "715c8542-2a9c-42c0-917e-3b5ed4cbb48f"),
    "grok --fork-session": (GROK_CALC, "44444444-5555-4666-8777-888888888888", "01a1e08d-b929-71b3-ab6d-a14f3f6bab49"),
    "grok /fork": (
        GROK_INTERACTIVE,
        "01a1e090-6dd1-7223-a619-6eddad3857bb",
        "01a1e092-732e-7a43-b85e-8b2a3850e098",
    ),
    "codex fork": (CODEX_DAY, "01a1e083-62b2-7d31-b40d-a10686844261", "01a1e083-6c55-7d32-afd2-a795689b5cd4"),
}
every_fork = pytest.mark.parametrize(("folder", "parent", "fork"), FORKS.values(), ids=FORKS)


def _home_of(folder: str) -> tuple[str, Path]:
    """The agent and its home for a folder of sessions."""
    agent = folder.partition("-")[0]
    return agent, GENUINE / Path(*Path(folder).parts[:2])


def _add_session(folder: str, native_id: str, to: Path) -> None:
    """Copy the files of one session into a home."""
    _, home = _home_of(folder)
    for path in native_count.iter_paths(GENUINE / folder):
        if native_id in str(path.relative_to(GENUINE / folder)):
            _copy(path, to / path.relative_to(home))


def _files_of(folder: str, *native_ids: str) -> list[Path]:
    """The files of some sessions that are read, by path below their home."""
    _, home = _home_of(folder)
    logs = [log for log in _logs(home) if any(native_id in str(log) for native_id in native_ids)]
    return [log for log in logs if _is_no_output(log)]


def _read_sessions(tmp_path: Path, folder: str, *steps: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Session]]:
    """Portrait and sessions of a store that learned of some sessions, step by step."""
    home, agent = tmp_path / "home", _home_of(folder)[0]
    with open_memory(with_key(tmp_path / "store"), [f"{agent}={home}"]) as memory:
        for step in steps:
            for native_id in step:
                _add_session(folder, native_id, home)
            memory.sweep()
        return _portrait(memory, home), {one.native_session_id: one for one in memory.sessions()}


TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def _tokens(costs: Iterable[Cost]) -> Counter[str]:
    total: Counter[str] = Counter()
    for cost in costs:
        total.update({name: getattr(cost, name) for name in TOKENS})
    return total


def _usage(folder: str, *native_ids: str) -> Counter[str]:
    """Tokens of all responses that the logs of these sessions tell, each once."""
    responses: dict[str, Counter[str]] = {}
    for native_id in native_ids:
        for path in native_count.iter_paths(GENUINE / folder):
            if path.suffix == ".jsonl" and native_id in str(path.relative_to(GENUINE / folder)):
                for record in native_count.read_records(path, Count()):
                    responses.update(_responses(record.value))
    return sum(responses.values(), Counter())


def _responses(value: dict[str, Any]) -> Iterator[tuple[str, Counter[str]]]:
    """The tokens of a record, under the id that its copies share, in the words of the schema."""
    kind, update = value.get("type"), value.get("params", {}).get("update", {})
    if kind == "assistant" and "message" in value and value["message"]["model"] != "<synthetic>":
        yield value["message"]["id"], _claude_tokens(value["message"]["usage"])
    elif kind == "token_usage_record":
        yield value["payload"]["response_id"], _codex_tokens(value["payload"]["usage"])
    elif update.get("sessionUpdate") == "turn_completed" and update.get("usage"):
        yield update["prompt_id"], _grok_tokens(update["usage"])


def _claude_tokens(usage: dict[str, Any]) -> Counter[str]:
    thinking = (usage.get("output_tokens_details") or {}).get("thinking_tokens", 0)
    return Counter(
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cache_read_tokens=usage["cache_read_input_tokens"],
        cache_write_tokens=usage["cache_creation_input_tokens"],
        reasoning_tokens=thinking,
    )


def _codex_tokens(usage: dict[str, Any]) -> Counter[str]:
    cached, written = usage["cached_input_tokens"], usage.get("cache_write_input_tokens", 0)
    return Counter(
        input_tokens=usage["input_tokens"] - cached - written,
        output_tokens=usage["output_tokens"],
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=usage["reasoning_output_tokens"],
    )


def _grok_tokens(usage: dict[str, Any]) -> Counter[str]:
    cached, written = usage.get("cachedReadTokens", 0), usage.get("cacheCreationTokens", 0)
    return Counter(
        input_tokens=usage["inputTokens"] - cached - written,
        output_tokens=usage["outputTokens"],
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=usage.get("reasoningTokens", 0),
    )


@needs_shared
@every_fork
def test_parent_and_fork_are_told_the_same_in_any_order(folder: str, parent: str, fork: str, tmp_path: Path) -> None:
    together, _ = _read_sessions(tmp_path / "together", folder, (parent, fork))
    parent_first, _ = _read_sessions(tmp_path / "parent", folder, (parent,), (fork,))
    fork_first, _ = _read_sessions(tmp_path / "fork", folder, (fork,), (parent,))

    assert {parent, fork} <= together.keys()
    assert _differences(together, parent_first) == ""
    assert _differences(together, fork_first) == ""


@needs_shared
@pytest.mark.parametrize("seed", range(4))
@every_fork
def test_files_of_parent_and_fork_may_arrive_one_by_one(
    folder: str, parent: str, fork: str, seed: int, tmp_path: Path
) -> None:
    agent, home = _home_of(folder)
    files = _files_of(folder, parent, fork)
    random.Random(seed).shuffle(files)

    portraits: list[dict[str, Any]] = []
    for steps in ([files], [[file] for file in files]):
        to = tmp_path / f"home{len(portraits)}"
        with open_memory(with_key(tmp_path / f"store{len(portraits)}"), [f"{agent}={to}"]) as memory:
            for step in steps:
                for file in step:
                    _copy(home / file, to / file)
                memory.sweep()
            portraits.append(_portrait(memory, to))

    assert _differences(*portraits) == ""


@needs_shared
@every_fork
def test_parent_and_fork_together_cost_what_was_spent_once(folder: str, parent: str, fork: str, tmp_path: Path) -> None:
    _, sessions = _read_sessions(tmp_path, folder, (fork,), (parent,))

    assert _tokens(one.cost for one in sessions.values()) == _usage(folder, parent, fork)


@needs_shared
@every_fork
def test_a_fork_alone_has_all_its_events_and_costs(folder: str, parent: str, fork: str, tmp_path: Path) -> None:
    portrait, sessions = _read_sessions(tmp_path / "alone", folder, (fork,))
    together, _ = _read_sessions(tmp_path / "together", folder, (fork,), (parent,))

    alone = [event for event, _ in portrait[fork]["events"]]
    assert _tokens(one.cost for one in sessions.values()) == _usage(folder, fork)
    assert [event["copy_of"] for event in alone] == [None] * len(alone)
    assert [event["event_uid"] for event in alone] == [event["event_uid"] for event, _ in together[fork]["events"]]


# By hand, from the `cost-state` records: the first fork goes on with its parent's running total (0.12109…),
# the second begins one of its own; alone it has what it copied, too, at list prices.
@needs_shared
@pytest.mark.parametrize(
    ("fork_name", "parent_usd", "fork_usd", "alone_usd"),
    [
        ("claude --fork-session", 0.148786, 0.129821 - 0.121091, 0.129821),
        ("claude /branch", 0.181309, 0.09085, 0.09085 + 0.149727),
    ],
)
def test_money_a_fork_took_over_is_counted_with_its_parent(
    fork_name: str, parent_usd: float, fork_usd: float, alone_usd: float, tmp_path: Path
) -> None:
    folder, parent, fork = FORKS[fork_name]

    _, together = _read_sessions(tmp_path / "together", folder, (fork,), (parent,))
    _, alone = _read_sessions(tmp_path / "alone", folder, (fork,))

    assert _usd(together, parent) == pytest.approx(parent_usd, abs=2e-6)
    assert _usd(together, fork) == pytest.approx(fork_usd, abs=2e-6)
    assert _usd(alone, fork) == pytest.approx(alone_usd, abs=2e-6)


def _usd(sessions: dict[str, Session], native_id: str) -> float:
    """What a session cost with its sub-agents, which the agent's own total includes."""
    return sum(one.cost.usd or 0.0 for name, one in sessions.items() if name.partition("/")[0] == native_id)


# The same session on two machines


@pytest.mark.parametrize("root", SAMPLE_HOMES, ids=_name)
def test_a_session_synced_to_two_homes_is_one_session(root: str, tmp_path: Path, at_once: AtOnce) -> None:
    agent, _, path = root.partition("=")
    homes = [_copied(Path(path), tmp_path / name) for name in ("laptop", "desktop")]

    with swept(tmp_path / "store", *(f"{agent}={home}" for home in homes)) as memory:
        found = _comparable(_portrait(memory, tmp_path))
        places = [
            {Path(source.path).relative_to(tmp_path).parts[0] for source in one.sources} for one in memory.sessions()
        ]

    assert _differences(_comparable(at_once(root)), found) == ""
    assert places == [{"laptop", "desktop"}] * len(places)


# From the fourth on all have one time, as records have that a resumed session wrote at once.
_CONTINUED = [
    logs.claude_user(session_id(), number, f"request {number}") | {"timestamp": logs.timestamp(min(number, 4))}
    for number in range(1, 10)
]


@pytest.mark.parametrize("parts", [(slice(0, 2), slice(2, 9)), (slice(0, 9), slice(5, 9)), (slice(0, 7), slice(1, 9))])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "the later part first"])
def test_a_session_in_several_files_is_shown_in_the_order_of_its_records(
    tmp_path: Path, parts: tuple[slice, slice], order: tuple[int, int]
) -> None:
    """The second file holds a later part, beginning anywhere."""
    for number in order:
        home = tmp_path / f"home {number}"
        logs.CLAUDE.write(home, logs.lines(_CONTINUED[parts[number]]))
        swept(tmp_path / "store", logs.CLAUDE.root_flag(home)).close()

    with open_memory(tmp_path / "store") as memory:
        (session,) = memory.sessions()
        assert [event.summary for event in memory.events(session, with_copies=True)] == [
            f"request {number}" for number in range(1, 10)
        ]


@pytest.mark.parametrize("is_longer_first", [True, False], ids=["longer first", "shorter first"])
@pytest.mark.parametrize("root", SAMPLE_HOMES, ids=_name)
def test_an_older_copy_in_another_home_adds_nothing(
    root: str, is_longer_first: bool, tmp_path: Path, at_once: AtOnce
) -> None:
    agent, _, path = root.partition("=")
    homes = [_copied(Path(path), tmp_path / name) for name in ("longer", "shorter")]
    for log in homes[1].rglob("*.jsonl"):
        log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])
    if not is_longer_first:
        homes.reverse()

    for home in homes:
        swept(tmp_path / "store", f"{agent}={home}").close()
    with open_memory(tmp_path / "store") as memory:
        found = _comparable(_portrait(memory, tmp_path))

    assert _differences(_comparable(at_once(root)), found) == ""


def _comparable(portrait: dict[str, Any]) -> dict[str, Any]:
    """Without the files: how many there are is what differs between one machine and two."""
    return {uid: {**told, "sources": []} for uid, told in portrait.items()}


# What scripts rely on


SWEEP_KEYS = set(
    "sources sources_changed sessions sessions_new events_new lines_read bytes_read bad_lines seconds skipped".split()  # noqa: SIM905
)
SESSION_KEYS = set(
    "session_uid agent native_session_id root_session_uid parent_session_uid base_session_uid base_end class group host"  # noqa: SIM905
    " repo domain cwd git_branch model provider agent_version title instructions started_at ended_at updated_at outcome"
    " cost message_count task_ref sources schema_version discovered_at ingested_at analyzed_at evicted_at"
    " key channel chat_id user_id character_id metadata".split()
)
SOURCE_KEYS = {"path", "bytes", "host", "source_gone_at"}
COST_KEYS = {*TOKENS, "usd", "usd_is_estimate", "usd_is_incomplete", "wall_clock_s", "turns", "retries"}


def _run(store: Path, *arguments: str) -> Any:
    environment = {**os.environ, "RECOLLECT_HOME": str(store)}
    command = [sys.executable, "-m", "recollect", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_sweep_prints_its_figures_as_json(tmp_path: Path) -> None:
    roots = [part for root in SAMPLE_HOMES for part in ("--root", root)]

    first = _run(tmp_path / "store", "sweep", "--json", *roots)
    second = _run(tmp_path / "store", "sweep", "--json", *roots)

    assert first.keys() >= SWEEP_KEYS
    assert first["sessions"] == first["sessions_new"] > 0
    assert first["sources"] == first["sources_changed"] > 0
    assert first["lines_read"] > 0 < first["bytes_read"]
    assert isinstance(first["skipped"], dict)
    idle = {name: second[name] for name in SWEEP_KEYS - {"sources", "sessions", "seconds"}}
    assert idle == {name: {} if name == "skipped" else 0 for name in idle}
    assert (second["sources"], second["sessions"]) == (first["sources"], first["sessions"])


def test_sessions_prints_every_documented_field_as_json(tmp_path: Path) -> None:
    with swept(tmp_path / "store", *SAMPLE_HOMES) as memory:
        stored = [json.loads(json.dumps(to_json(session))) for session in memory.sessions()]

    printed = _run(tmp_path / "store", "sessions", "--json")

    assert {session["agent"] for session in printed} == set(COUNTERS)
    assert [SESSION_KEYS - session.keys() for session in printed] == [set()] * len(printed)
    assert [session["cost"].keys() for session in printed] == [COST_KEYS] * len(printed)
    assert [one.keys() for session in printed for one in session["sources"] if one.keys() != SOURCE_KEYS] == []
    assert printed == stored
