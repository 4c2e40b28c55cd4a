"""Every state of a session and every command that reads: each answers, and after `forget` nothing of it is left.

A new command is covered by itself: its arguments are filled by their names, see `ARGUMENTS`.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from recollect.api import Memory
from recollect.cli.entry import load, main
from recollect.live import Live
from recollect.mcp.door import GROUP_TOOLS, TOOLS, Door, Scope
from recollect.model.errors import NotFound
from tests import logs
from tests.conftest import with_key
from tests.faults.rig import IS_SOAK
from tests.forget.traces import left_in
from tests.groups.attacks import COMMANDS
from tests.groups.attacks import TOOLS as TRIES
from tests.groups.conftest import INSIDE, MAIN, OUTSIDE, WORDS, Planted, hidden_word, plant
from tests.retention.rig import evict_all
from tests.tally import count

NAMED, LIVE, BELOW = "xxxxnamednumbat", "livelemur", "belowbadger"

# What is filled in for an argument that a command requires, or of which it has something to say about the session.
ARGUMENTS = {
    "session": "{id}",
    "sessions": "{id}",
    **dict.fromkeys(("query", "topic", "goal"), "{word}"),
    "error": "AssertionError: {word} is broken",
    **dict.fromkeys(("entity", "path"), "test_{plain}.py"),
}
MORE = {
    "why": ["{word}"],
    "group mounts": ["inside"],
    "backup": ["{out}"],
    "export": ["{out}", "{id}"],
    "completion": ["bash"],
    "sessions --related": ["{id}"],
}
# Options with which a command lists something else.
VARIANTS = (
    *("blame --all", "sessions --active", "sessions --related", "sessions --timeline", "show --exchanges"),
    "status --problems",
)
# These change something, or serve until they are stopped; other tests try them.
NOT_READING = {
    *("demo", "mcp", "web", "install", "uninstall", "watch", "schedule", "hooks sweep"),
    *("forget", "redact", "restore", "import", "handoff", "decisions import", "remember", "retention rehydrate"),
    *(f"mark {what}" for what in ("star", "tag", "note", "rename")),
    *(f"group {what}" for what in ("add", "remove", "run", "clear", "serve")),
    *(f"knowledge {what}" for what in ("audit pin", "audit promote", "audit reject", "graphiti push")),
}
# Asked for the session, they show its id (as JSON) and its title or a word of it (as text).
SHOWING = (
    *("search", "history", "recent", "sessions", "sessions --timeline", "show", "show --exchanges", "digest"),
    *("archive", "resume", "why", "how", "blame --all"),
)
CHANGING_TOOLS = {"clear_session", "resume_session"}
SLOW = {"doctor"}  # measures the disk


EVICTED = frozenset({"show --exchanges", "why", "how"})  # read raw detail; `search` still finds the session


class Subject(NamedTuple):
    """A session in a state: in which store, by what words it is known, and what must be gone with it."""

    planted: Planted
    session: str
    word: str
    words: list[str]
    group: str = "main"  # from within which it is seen
    plain: str = WORDS[MAIN]
    hidden: frozenset[str] = frozenset()  # commands that have nothing to show of a session in this state


def _of(planted: Planted, number: int, group: str, **fields: frozenset[str]) -> Subject:
    # Its words stand in the folder's name too, which is the group's: what it said with them is looked for.
    words = [NAMED, f"{hidden_word(number)} is broken", f"xxxxplease fix {WORDS[number]}"]
    return Subject(planted, logs.session_id(number), hidden_word(number), words, group, WORDS[number], **fields)


def _inside(
    change: Callable[[Memory], object], group: str = "inside", **fields: frozenset[str]
) -> Callable[[Planted], Subject]:
    def make(planted: Planted) -> Subject:
        with planted.open() as memory:
            change(memory)
        return _of(planted, INSIDE, group, **fields)

    return make


def _ask(memory: Memory, **request: str) -> None:
    ipc = Path(memory.groups.get("inside").ipc)
    memory.groups.write_snapshots("inside")
    (ipc / "tasks" / f"{request['action']}.json").write_text(json.dumps(request))
    memory.groups.serve("inside")


def _noted(memory: Memory) -> None:
    session = memory.session(logs.session_id(INSIDE))
    memory.annotations.note(session, f"a note on {NAMED}")
    memory.annotations.rename(session, f"{hidden_word(INSIDE)} as {NAMED}")
    memory.annotations.tag(session, NAMED)


def _resumed(memory: Memory) -> None:
    memory.groups.clear(NAMED, "inside")
    memory.groups.resume(NAMED, "inside")
    memory.groups.sessions("inside").archive(NAMED)


def _plain(planted: Planted) -> Subject:
    return _of(planted, MAIN, "main")


def _live(planted: Planted) -> Subject:
    with planted.open() as memory:
        live = Live(memory)
        for role, text in ("user", f"please feed the {LIVE}"), ("assistant", f"the {LIVE} is fed, xxxx{NAMED}"):
            live.append_message("telegram:42", role, text)
        memory.sweep()
        session = live.session("telegram:42").session_uid
    words = [f"xxxx{LIVE}", f"xxxx{NAMED}"]
    return Subject(planted, session, LIVE, words, plain=LIVE, hidden=frozenset({"blame --all", "resume"}))


def _imported(planted: Planted) -> Subject:
    """The session in a store that has seen no log of it."""
    exported, store = planted.folder.with_name("exported.tar"), with_key(planted.folder.with_name("elsewhere"))
    with planted.open() as memory:
        memory.export(exported, [logs.session_id(MAIN), logs.session_id(OUTSIDE)])
    elsewhere = Planted(store, f"claude={planted.folder.with_name('nobody')}")
    with elsewhere.open() as memory:
        memory.import_sessions(exported)
        for group in ("inside", "outside"):
            (work := planted.folder.with_name(f"other-{group}")).mkdir()
            memory.groups.add(group, work)
    return _of(elsewhere, MAIN, "main", hidden=frozenset({"resume"}))


def _evicted(planted: Planted) -> Subject:
    with planted.open() as memory:
        evict_all(memory)
    return _of(planted, MAIN, "main", hidden=EVICTED)


def _rebuilt(planted: Planted) -> Subject:
    """Its agent deleted the file, which was written again and read again."""
    with planted.open() as memory:
        session = memory.session(logs.session_id(MAIN))
        for source in session.sources:
            Path(source.path).unlink()
        memory.sweep()
        memory.handover.write(memory.handover.plan_rebuild(session))
        assert memory.sweep().failures == []
    return _of(planted, MAIN, "main")


def _forgotten_in_part(planted: Planted) -> Subject:
    """Its sub-agent was forgotten by itself."""
    top, agent = logs.session_id(MAIN), "a1b2c3d"
    home = Path(planted.root.partition("=")[2])
    said = [logs.claude_user(top, 6, f"count {BELOW} xxxx{BELOW}"), logs.claude_answer(top, 7, f"three of {BELOW}")]
    path = logs.CLAUDE.path(home, top).with_suffix("") / "subagents" / f"agent-{agent}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(logs.lines(record | {"isSidechain": True, "agentId": agent} for record in said))
    with planted.open() as memory:
        memory.sweep()
        (below,) = memory.sub_agents(memory.session(top))
        memory.forget(memory.plan_forgetting(below.session_uid))
        memory.sweep()
    assert left_in(planted.folder, [f"xxxx{BELOW}"]) == set()
    return _of(planted, MAIN, "main")._replace(words=[*_of(planted, MAIN, "main").words, f"xxxx{BELOW}"])


STATES: dict[str, Callable[[Planted], Subject]] = {
    "plain": _plain,
    "live host": _live,
    "imported": _imported,
    "evicted": _evicted,
    "rebuilt": _rebuilt,
    "forgotten in part": _forgotten_in_part,
    "of a group: active": _inside(lambda memory: None),
    "of a group: put aside": _inside(lambda memory: memory.groups.clear(NAMED, "inside")),
    "of a group: resumed": _inside(_resumed),
    "of a group: put aside by a request": _inside(lambda memory: _ask(memory, action="clear", name=NAMED)),
    "of a group: found by a request": _inside(lambda memory: _ask(memory, action="search", query=WORDS[INSIDE])),
    "of a group: archived by a request": _inside(lambda memory: _ask(memory, action="archive")),
    "of a group: noted": _inside(_noted),
    "of a group: evicted": _inside(evict_all, hidden=EVICTED),
    "of a group that was removed": _inside(lambda memory: memory.groups.remove("inside"), "main"),
}


def _commands() -> Iterator[tuple[str, click.Command]]:
    def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if isinstance(command, click.Group):
            for part, inner in command.commands.items():
                yield from walk(f"{name} {part}", inner)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command

    for name in main.list_commands(click.Context(main)):
        yield from walk(name, load(name))
    for name in VARIANTS:
        yield name, load(name.split()[0])


READING = {name: command for name, command in _commands() if name not in NOT_READING}


def _words(name: str, command: click.Command) -> list[str]:
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    required = [param.name for param in arguments if param.required or param.name in ("session", "sessions", "query")]
    return MORE.get(name) or [ARGUMENTS[name or ""] for name in required]


class Answer(NamedTuple):
    line: list[str]
    exit_code: int
    output: str


def _answers(subject: Subject, out: Path, group: str, *, is_json: bool) -> dict[str, Answer]:
    """What every command answers; it ends in order, by a documented code, and what is called JSON is JSON."""
    answers = {}
    for number, (name, command) in enumerate(READING.items()):
        has_json = any("--json" in param.opts for param in command.params)
        if (is_json and not has_json) or (name in SLOW and group):
            continue
        words = [
            word.format(
                id=subject.session, word=subject.word, plain=subject.plain, out=out / f"{number}{group}{is_json}"
            )
            for word in _words(name, command)
        ]
        line = [*name.split(), *words, *(["--json"] if is_json else [])]
        environment = {"RECOLLECT_HOME": str(subject.planted.folder), "RECOLLECT_GROUP": group, "COLUMNS": "300"}
        done = CliRunner().invoke(main, line, env=environment, input="")
        assert isinstance(done.exception, SystemExit | None), (line, done.exception)
        assert "Traceback" not in done.output and done.exit_code in range(8), (line, done.output)
        if is_json:
            json.loads(done.stdout)
        answers[name] = Answer(line, done.exit_code, done.output)
    return answers | (_more_answers(subject, out, group) if IS_SOAK and not is_json else {})


def _more_answers(subject: Subject, out: Path, group: str) -> dict[str, Answer]:
    """The same of everything that is tried from inside a group."""
    known = {"word": subject.word, "typo": subject.plain, "id": subject.session, "own": subject.session}
    environment = {"RECOLLECT_HOME": str(subject.planted.folder), "RECOLLECT_GROUP": group, "COLUMNS": "300"}
    answers = {}
    for name in READING.keys() & COMMANDS.keys() - {"doctor", "config", "exclude", "track", "watch"}:
        for number, tried in enumerate(COMMANDS[name]):
            filled = tried.format(**known, path=out, out=out / f"more{len(list(out.iterdir()))}")
            line = [*name.split(), *shlex.split(filled)]
            done = CliRunner().invoke(main, line, env=environment, input="")
            assert isinstance(done.exception, SystemExit | None), (line, done.exception)
            answers[f"{name}, try {number}"] = Answer(line, done.exit_code, done.output)
    return answers


def _seen(answers: dict[str, Answer], words: list[str]) -> set[str]:
    """The words in any answer, but for those that were asked for and are repeated."""
    return {
        word
        for word in words
        for line, _, output in answers.values()
        if word[4:] in output and word[4:] not in " ".join(line)
    }


def _told(subject: Subject, group: str) -> dict[str, Answer]:
    """What every tool of an MCP server answers that only reads."""
    door = Door(Scope(subject.planted.folder.parent, group or None, has_wall=bool(group)), can_write=False)
    names = {"word": subject.word, "typo": subject.plain, "id": subject.session, "file": f"test_{subject.plain}.py"}
    answers = {}
    for tool in sorted({tool.name for tool in (*TOOLS, *GROUP_TOOLS)} - CHANGING_TOOLS):
        for number, tried in enumerate(TRIES[tool]):
            filled = {key: value.format(**names) if isinstance(value, str) else value for key, value in tried.items()}
            answers[f"{tool} {number}"] = Answer([json.dumps(filled)], 0, door.call(tool, filled, {})[0])
    return answers


def test_every_argument_of_a_command_that_reads_can_be_filled() -> None:
    assert {name for name, _ in _commands()} >= NOT_READING | set(SHOWING)
    for name, command in READING.items():
        assert _words(name, command) is not None, "say in ARGUMENTS or MORE what it is given"


@pytest.mark.parametrize("state", STATES)
def test_in_every_state_every_command_answers_and_forgetting_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    subject = STATES[state](plant(tmp_path))
    folder = subject.planted.folder
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOLLECT_HOME", str(folder))
    (out := tmp_path / "out").mkdir()

    texts, documents = (_answers(subject, out, "", is_json=is_json) for is_json in (False, True))
    for name in sorted({*SHOWING} - subject.hidden):
        assert texts[name].exit_code == documents[name].exit_code == 0, (name, texts[name].output)
        assert subject.word in texts[name].output, name
        assert subject.session in documents[name].output, name
    for group in ("inside", "outside"):
        has_group = group in ("inside",) and subject.group == "inside"
        said = "".join(answer.output for answer in _answers(subject, out, group, is_json=False).values())
        assert (f"{subject.word} is" in said or NAMED in said) == has_group, group

    with subject.planted.open() as memory:
        memory.forget(memory.plan_forgetting(subject.session))
        memory.sweep()

    left = {"the store": left_in(folder, subject.words)}
    for group in ("", subject.group):
        for is_json in (False, True):
            answers = _answers(subject, out, group, is_json=is_json)
            assert answers["show"].exit_code == NotFound.exit_code
            left[f"commands {group} {is_json}"] = _seen(answers, subject.words)
        left[f"tools {group}"] = _seen(_told(subject, group), subject.words)
    count("word", len(subject.words) * len(left), sum(len(subject.words) - len(words) for words in left.values()))
    assert not any(left.values()), left
    others = {OUTSIDE, MAIN} - {number for number in (MAIN,) if subject.session.endswith(logs.session_id(number))}
    with subject.planted.open() as memory:
        assert [memory.session(logs.session_id(number)).native_session_id for number in others]
