"""A failed call that an earlier session fixed brings the fix, once; anything else brings nothing."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.api import open_memory
from recollect.cli import main
from recollect.hooks.fixes import find_fix
from recollect.knowledge.signature import signature_of
from recollect.recall.prepared import fixes_path
from tests.hooks.conftest import SESSION, Desk
from tests.mcp.test_red_team import POISON, require_harmless

EARLIER = "5f0c2f6e-0000-4000-8000-000000000009"
ERROR = "Traceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 'herring'\n"
SIGNATURE = "KeyError: 'herring'"


def _prepare(
    desk: Desk,
    text: str = "edited walrus.py",
    session: str = f"claude:{EARLIER}",
    signature: str = SIGNATURE,
    **more: Any,
) -> None:
    """As a sweep leaves it."""
    desk.store.mkdir(mode=0o700, exist_ok=True)
    path = Path(fixes_path(str(desk.store), signature))
    path.parent.mkdir(parents=True, exist_ok=True)
    fix = {"session": session, "sessions": 3, "returns": 0, "confidence": 0.9, "text": text, "at_ms": 1, "repo": "zoo"}
    path.write_text(json.dumps({signature: fix | more}))


def test_the_fix_comes_once_for_a_session_with_its_evidence(desk: Desk) -> None:
    _prepare(desk)

    told = desk.added("PostToolUseFailure", error=ERROR, tool_use_id="1")

    assert "edited walrus.py" in told and EARLIER in told and "seen in 3 sessions" in told
    assert desk.hook("PostToolUseFailure", error=ERROR, tool_use_id="2") == ""
    assert desk.added("PostToolUseFailure", error=ERROR, session="another")


@pytest.mark.parametrize(
    ("error", "signature"),
    [
        ("Exit code 1\n# zoo/walrus\n./walrus.go:12:3: undefined: herring\n", "undefined: herring"),
        ("Exit code 2\nsrc/zoo.rs:7:5: mismatched types\n", "zoo.rs: mismatched types"),
    ],
)
def test_compilers_that_call_nothing_an_error_are_understood(desk: Desk, error: str, signature: str) -> None:
    assert signature_of(error) == signature
    _prepare(desk, signature=signature)

    assert "edited walrus.py" in desk.added("PostToolUseFailure", error=error)


@pytest.mark.parametrize(
    ("agent", "fields"),
    [
        ("codex", {"tool_name": "Bash", "tool_response": ERROR}),
        ("grok", {"toolName": "run", "toolResult": {"type": "Bash", "output": list(ERROR.encode()), "exit_code": 1}}),
    ],
)
def test_agents_that_tell_no_failure_are_judged_by_what_was_printed(
    desk: Desk, agent: str, fields: dict[str, Any]
) -> None:
    _prepare(desk)

    assert "edited walrus.py" in desk.added("PostToolUse", agent=agent, **fields)


@pytest.mark.parametrize(
    "fields",
    [{"error": ERROR, "is_interrupt": True}, {"error": "all is well"}, {"error": 7}, {"tool_response": ERROR}],
)
def test_what_is_no_failure_is_answered_with_nothing(desk: Desk, fields: dict[str, Any]) -> None:
    _prepare(desk)

    assert desk.hook("PostToolUseFailure", **fields) == ""


def test_a_session_is_not_told_what_it_did_itself(desk: Desk) -> None:
    _prepare(desk, session=f"claude:{SESSION}")

    assert desk.hook("PostToolUseFailure", error=ERROR) == ""


def test_a_thousand_errors_never_seen_are_answered_with_nothing(desk: Desk) -> None:
    _prepare(desk)
    chance = random.Random(7)
    words = ["walrus", "seal", "herring", "net", "pool", "ice", "floe", "tusk", "keeper", "bucket"]
    shapes = (
        "{0}Error: no {1} in the {2}",
        "error[E0{3}]: cannot find `{1}` in `{2}`",
        "src/{1}.ts:{3}:5 - error TS2{3}: {2} is not assignable to {0}",
        "FAILED tests/test_{1}.py::test_{2} - assert {3} == 0",
        "fatal: could not read {1} from {2}: {0}",
        "/bin/sh: 1: {1}-{2}: not found",
        "panic: runtime error: {1} out of range [{3}] with {2}",
        "KeyError: '{1}-{2}'",
    )

    for number in range(1000):
        one, two, three = chance.sample(words, 3)
        text = shapes[number % len(shapes)].format(one.title(), two, f"{three}{number}x", chance.randrange(100, 999))
        assert find_fix(str(desk.store), f"Exit code 1\n{text}\n", SESSION) == ("", ""), text


def test_a_poisoned_fix_stays_in_its_fence(desk: Desk) -> None:
    for number, poison in enumerate(POISON):
        text = poison.format(*["CANARY"] * poison.count("{}"))
        _prepare(desk, text=text, session=f"claude:{number}-{text}", repo=text)

        require_harmless(find_fix(str(desk.store), ERROR, SESSION)[1])


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b"{\"KeyError: 'herring'\": 7}"])
def test_a_damaged_file_is_answered_with_nothing(desk: Desk, content: bytes) -> None:
    _prepare(desk)
    Path(fixes_path(str(desk.store), SIGNATURE)).write_bytes(content)

    assert desk.hook("PostToolUseFailure", error=ERROR) == ""


def test_a_sweep_prepares_no_fix_where_there_is_none(desk: Desk) -> None:
    desk.write(EARLIER, "feed the walrus")
    desk.sweep()

    assert not list((desk.store / "prepared").rglob("fixes/*"))
    with open_memory(desk.store) as memory:
        assert memory.knowledge.fixes(ERROR) == []


@pytest.mark.parametrize(
    ("later", "then"), [("KeyError: 'seal'", "not met again"), ("KeyError: 'herring'", "met again")]
)
def test_the_log_says_whether_the_agent_met_the_error_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, later: str, then: str
) -> None:
    _prepare(desk)
    desk.added("PostToolUseFailure", error=ERROR, tool_use_id="call-1")
    records = [*_failed(desk, "call-1", ERROR), *_failed(desk, "call-2", f"Traceback:\n{later}\n")]
    path = desk.write(SESSION, "feed the walrus")
    path.write_text(path.read_text() + "".join(json.dumps(record) + "\n" for record in records))
    desk.sweep()
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))

    shown = CliRunner().invoke(main, ["hooks", "log"]).stdout
    (told,) = json.loads(CliRunner().invoke(main, ["hooks", "log", "--json"]).stdout)

    assert (told["error"], told["then"]) == (SIGNATURE, then)
    assert f"then: {then}" in shown


def _failed(desk: Desk, call: str, output: str) -> list[dict[str, Any]]:
    """A call that fails after now, as the agent logs it."""
    use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "python a.py"}}
    result = {"type": "tool_result", "tool_use_id": call, "is_error": True, "content": f"Exit code 1\n{output}"}
    common = {"sessionId": SESSION, "cwd": str(desk.project), "timestamp": "2099-01-01T00:00:00.000Z"}
    return [
        {**common, "type": "assistant", "uuid": f"{call}-use", "message": {"role": "assistant", "content": [use]}},
        {**common, "type": "user", "uuid": f"{call}-result", "message": {"role": "user", "content": [result]}},
    ]
