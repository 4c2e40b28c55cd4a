"""No secret that an agent wrote down, wherever it stood, is in any byte of the store or of what is made from it."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import Memory, doctor, open_memory
from recollect.redact.rules import find_beginning
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep
from tests.forget.traces import left_in
from tests.logs import (
    AGENT_LOGS,
    CLAUDE,
    CODEX,
    AgentLog,
    claude_answer,
    claude_call,
    claude_user,
    codex_tokens,
    codex_user,
    line,
    lines,
    session_id,
)
from tests.planted import ALNUM, KINDS, escaped, in_base64, in_colours, in_url, plant
from tests.shapes import places_in, replaced, shapes_of, value_at

DATA = Path(__file__).parents[1] / "data"
HOMES = [f"{folder.parent.name}={folder}" for folder in sorted(DATA.glob("*/*.*")) if folder.is_dir()]
# What the agents themselves would not understand with something added to it.
_FORMAL = re.compile(
    r"(?i).*id|uuid|.*uuid|type|.*kind|.*role|name|method|sessionupdate|timestamp|.*_at|.*version|status|state|subtype"
    r"|source|signature|data|encrypted_content|cwd|slug|.*branch|history_mode|operation|path|event|.*url"
)


class _Planter:
    """Adds a secret to every text of a log that is not a formal one, in turn plain and hidden."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.secrets: list[str] = []

    def token(self) -> str:
        """One that is known by its own look, and can stand in a path."""
        self.secrets.append("ghp_" + "".join(self._draw.choices(ALNUM, k=36)))
        return self.secrets[-1]

    def planted(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self.planted(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.planted(inner, name) for inner in value]
        if not isinstance(value, str) or _FORMAL.fullmatch(name):
            return value
        return f"{value}\n{self._hidden()}\n"

    def _hidden(self) -> str:
        one = plant(self._draw, self._draw.choice(sorted(KINDS)))
        forms: list[Callable[[], tuple[str, str]]] = [
            lambda: (one.line, one.secret),
            lambda: (in_colours(one.line, one.secret), one.secret[5:]),
            lambda: (in_url(one.line), in_url(one.secret)),
            lambda: (escaped(one.line, 2), escaped(one.secret, 2)),
            lambda: (in_base64(one.secret), in_base64(one.secret)),
        ]
        text, secret = self._draw.choice(forms[: 4 if one.line != one.secret else 5])()
        self.secrets.append(secret)
        return text


def _plant_in(home: Path, planter: _Planter) -> None:
    for path in sorted(home.rglob("*.json*")):
        raw = path.read_bytes().split(b"\n") if path.suffix == ".jsonl" else [path.read_bytes()]
        path.write_bytes(b"\n".join(_planted_line(text, planter) for text in raw))


def _planted_line(raw: bytes, planter: _Planter) -> bytes:
    try:
        return json.dumps(planter.planted(json.loads(raw)), ensure_ascii=False).encode()
    except ValueError:
        return raw + planter.token().encode() if raw else raw


def _assert_nothing_is_left(folder: Path, secrets: list[str]) -> None:
    texts = {text for secret in secrets for text in (_line_of(secret), _line_of(escaped(secret, 1)))}
    assert left_in(folder, {f"0000{text}" for text in texts}) == set()  # it looks for a word less four letters


def _line_of(secret: str) -> str:
    """The longest line: private keys have many."""
    return max(secret.replace("\\n", "\n").splitlines(), key=len)


def _keep_copies(memory: Memory, folder: Path) -> None:
    memory.backup(folder / "backup.tar.zst")
    memory.export(folder / "export")


@pytest.mark.parametrize("root", HOMES, ids=lambda root: "/".join(Path(root).parts[-2:]))
def test_no_secret_of_real_sessions_reaches_the_disk(tmp_path: Path, root: str) -> None:
    agent, _, source = root.partition("=")
    shutil.copytree(source, tmp_path / "home")
    planter = _Planter(seed=len(source))
    _plant_in(tmp_path / "home", planter)

    with open_memory(tmp_path / "kept" / "store", [f"{agent}={tmp_path / 'home'}"]) as memory:
        memory.sweep()
        _keep_copies(memory, tmp_path / "kept")
        held = sum(session.event_count for session in memory.sessions())

    assert held and len(planter.secrets) > 20
    _assert_nothing_is_left(tmp_path / "kept", planter.secrets)


_OF_SESSIONS = {"sessionId", "session_id", "agentId"}  # stored as the agent wrote them


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
def test_no_secret_in_any_field_of_a_record_reaches_the_disk(tmp_path: Path, log: AgentLog) -> None:
    planter, number = _Planter(6), 0
    for record in shapes_of(log):
        for place in places_in(record):
            if isinstance(value_at(record, place), str) and place[-1] not in _OF_SESSIONS:
                number += 1
                session = session_id(number)
                changed = replaced(record, place, planter.token())
                log.write(tmp_path / "home", lines([*log.opening(session), changed]), session)

    with open_memory(tmp_path / "store", [log.root_flag(tmp_path / "home")]) as memory:
        assert memory.sweep().sources >= number

    _assert_nothing_is_left(tmp_path / "store", planter.secrets)


@pytest.fixture
def named(tmp_path: Path) -> tuple[list[str], _Planter]:
    """Roots with sessions in which all that is a name has a secret in it: folders, files, models, tools, ids."""
    planter = _Planter(seed=5)
    token, first, second = planter.token, session_id(1), session_id(2)
    home = tmp_path / token() / "home"
    project = home / "claude" / "projects" / f"-proj-{token()}"
    answer = claude_answer(first, 2, "done") | {"requestId": token()}
    answer["message"] |= {"model": token(), "id": token()}
    call = claude_call(first, 3, f"cat {token()}") | {"uuid": token()}
    call["message"]["content"][0] |= {"id": token(), "name": token()}
    place = {"cwd": f"/proj/{token()}", "gitBranch": f"fix/{token()}"}
    title = {"type": "summary", "summary": token(), "leafUuid": "x"}
    outputs = project / first / "tool-results"
    outputs.mkdir(parents=True)
    (project / f"{first}.jsonl").write_bytes(lines([claude_user(first, 1, "look") | place, answer, call, title]))
    (outputs / f"{token()}.txt").write_text(token())
    history = {"display": token(), "project": f"/{token()}", "sessionId": session_id(3), "timestamp": 1763229600000}
    (home / "claude" / "history.jsonl").write_bytes(line(history | {"pastedContents": {token(): {"content": token()}}}))
    opening = CODEX.opening(second)
    git = {"repository_url": f"https://x:{token()}@git.test/a/b.git", "branch": token()}
    opening[0]["payload"] |= {"git": git, "model_provider": token(), "originator": token()}
    content = lines([*opening, codex_user(second, 1, "look"), codex_tokens(second, 2, 7)])
    log = CODEX.write(home / "codex", content, second)
    log.rename(log.with_name(f"rollout-{token()}-{second}.jsonl"))
    return [CLAUDE.root_flag(home / "claude"), CODEX.root_flag(home / "codex")], planter


def test_no_secret_in_a_name_reaches_the_disk(tmp_path: Path, named: tuple[list[str], _Planter]) -> None:
    roots, planter = named

    with open_memory(tmp_path / "kept" / "store", roots) as memory:
        memory.sweep()
        _keep_copies(memory, tmp_path / "kept")
        assert len(memory.sessions()) == 3

    _assert_nothing_is_left(tmp_path / "kept", planter.secrets)


def test_a_file_with_a_secret_in_its_path_is_known_again(tmp_path: Path, named: tuple[list[str], _Planter]) -> None:
    roots, _ = named
    with open_memory(tmp_path / "store", roots) as memory:
        memory.sweep()

        again = memory.sweep()
        gone = memory.status().sources.sources_gone

    assert (again.sources, again.sources_changed, again.sources_gone, gone) == (again.sources, 0, 0, 0)
    assert [finding for finding in doctor(tmp_path / "store", roots, deep=True) if finding.level == "problem"] == []


def test_a_file_with_a_secret_in_its_path_goes_on_being_read_and_is_missed_when_gone(
    tmp_path: Path, named: tuple[list[str], _Planter]
) -> None:
    roots, _ = named
    log = next(Path(roots[0].partition("=")[2]).rglob("0*.jsonl"))
    with open_memory(tmp_path / "store", roots) as memory:
        memory.sweep()
        log.write_bytes(log.read_bytes() + line(claude_user(session_id(1), 9, "more")))

        grown = memory.sweep()
        log.unlink()
        gone = memory.sweep()

    assert (grown.lines_read, grown.events_new, gone.sources_gone) == (1, 1, 1)


@pytest.mark.parametrize("seen", [14, 20, 32, 39])
def test_a_token_that_is_written_piece_by_piece_is_never_stored_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: int
) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home, token = Home(tmp_path / "home"), "ghp_" + "".join(random.Random().choices(ALNUM, k=35)) + "7"
    growing = event("s1", 1, text=f"the key is {token[:seen]}", is_provisional=True)
    home.write("s1", SessionInfo("s1", cwd="/home/x/shop"), growing, None)
    with sweep(tmp_path / "store", home) as memory:
        (first,) = memory.payloads(memory.session("s1"), memory.events(memory.session("s1")))
        home.append("s1", event("s1", 1, text=f"the key is {token}, use it"))
        memory.sweep()
        (whole,) = memory.payloads(memory.session("s1"), memory.events(memory.session("s1")))

    assert re.fullmatch(r"the key is \[REDACTED:(unfinished|github-token):[0-9a-f]{8}\]", first["text"])
    assert re.fullmatch(r"the key is \[REDACTED:github-token:[0-9a-f]{8}\], use it", whole["text"])
    assert left_in(tmp_path / "store", [token[:12], token[:12].lower()]) == set()


@pytest.mark.parametrize("end", ["task-force", "see ghp_", "sk-learn", "src/AKIA.py", "key-value-stores", "glpat-"])
def test_words_at_the_end_of_what_is_still_written_stay(end: str) -> None:
    assert find_beginning(f"it is {end}") is None


PASSWORD = "Zq3vKp9Lm2Wx8ttY"


def test_a_password_that_one_event_names_is_in_no_other_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    events = [event("s1", 1, text=f"it is {PASSWORD}"), event("s1", 2, text=f"DB_PASSWORD={PASSWORD}")]
    home.write("s1", SessionInfo("s1", cwd="/home/x/shop"), *events, event("s1", 3, text=f"> {PASSWORD}"), None)

    with sweep(tmp_path / "store", home) as memory:
        texts = [found["text"] for found in memory.payloads(memory.session("s1"), memory.events(memory.session("s1")))]

    assert [re.sub(r":[0-9a-f]{8}", "", text) for text in texts] == [
        "it is [REDACTED:assignment]",
        "DB_PASSWORD=[REDACTED:assignment]",
        "> [REDACTED:assignment]",
    ]
    assert left_in(tmp_path / "store", [PASSWORD, PASSWORD.lower()]) == set()


def test_events_that_are_read_again_with_others_are_not_stored_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home, info = Home(tmp_path / "home"), SessionInfo("s1", cwd="/home/x/shop")
    first, second = event("s1", 1, text=f"it is {PASSWORD}"), event("s1", 2, text=f"DB_PASSWORD={PASSWORD}")
    home.write("s1", info, first, None)
    with sweep(tmp_path / "store", home) as memory:
        home.append("s1", second, None)
        memory.sweep()

        for records in ((info, first, second, None), (info, first, None, second, None)):
            home.write("s1", *records)
            home.append("s1", event("s2", 1, text=str(len(records))), None)
            memory.sweep()
            payloads = list(memory.payloads(memory.session("s1"), memory.events(memory.session("s1"))))

            assert len(payloads) == 2
            assert not any(PASSWORD in payload["text"] for payload in payloads)
