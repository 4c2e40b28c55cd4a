"""The benchmarks read what they are given."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from bench import locomo, rates, replay

from tests.conftest import swept
from tests.logs import claude_answer, claude_user, lines, session_id, timestamp

SAMPLE = Path(__file__).parent / "data" / "locomo.json"


def test_a_question_is_answered_by_the_session_that_its_evidence_names(tmp_path: Path) -> None:
    answers = locomo.ask(json.loads(SAMPLE.read_text()), tmp_path)

    assert [(answer.category, answer.place) for answer in answers] == [(4, 1), (4, 1), (1, 1), (2, 1)]


def test_figures_count_a_session_that_was_not_found_as_nothing() -> None:
    assert locomo.figures([1, 2, 0, 8]) == (25.0, 50.0, 75.0, (1 + 0.5 + 0.125) / 4)


ERROR = "Exit code 1\nModuleNotFoundError: No module named 'quokkafish'"


def _write(home: Path, number: int, started: int, *records: tuple[str, Any]) -> None:
    session = f"5f0c2f6e-0000-4000-8000-{number:012}"
    path = home / "projects" / "-x-shop" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines, before = [], None
    for place, (role, content) in enumerate(records):
        uid = f"5f0c2f6e-0000-4000-8001-{number * 100 + place:012}"
        message = {"role": role, "content": content} | ({"id": f"msg_{uid[-6:]}"} if role == "assistant" else {})
        record = {"parentUuid": before, "isSidechain": False, "cwd": "/x/shop", "sessionId": session, "type": role}
        more = {"message": message, "uuid": uid, "timestamp": timestamp(started + place), "version": "2.1.300"}
        lines.append(json.dumps(record | more))
        before = uid
    path.write_text("\n".join(lines) + "\n")


def _run(call: str, output: str, *, failed: bool) -> tuple[tuple[str, Any], tuple[str, Any]]:
    run = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "python shop.py"}}
    result = {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": failed}
    return ("assistant", [run]), ("user", [result])


def _repaired(home: Path, number: int, started: int) -> None:
    install = {"type": "tool_use", "id": f"i{number}", "name": "Bash", "input": {"command": "pip install quokkafish"}}
    _write(
        home,
        number,
        started,
        ("user", "run the shop"),
        *_run(f"a{number}", ERROR, failed=True),
        ("assistant", [install]),
        ("user", [{"type": "tool_result", "tool_use_id": f"i{number}", "content": "Successfully installed"}]),
        *_run(f"b{number}", "sold 3", failed=False),
        ("assistant", [{"type": "text", "text": "It runs."}]),
    )


@pytest.mark.parametrize(("is_growing", "known"), [(False, [1, 1]), (True, [1, 2])])
def test_a_replay_knows_only_sessions_that_had_ended(tmp_path: Path, is_growing: bool, known: list[int]) -> None:
    home = tmp_path / "home"
    for number, started in enumerate((0, 3_600, 7_200), start=1):
        _repaired(home, number, started)

    said = replay.replay([f"claude={home}"], tmp_path / "work", replay.Split(share=0.1, is_growing=is_growing))

    fixes = [one for one in said if one.kind == "fix"]
    assert [one.session[-1] for one in fixes] == ["2", "3"]
    assert [2 if "seen in 2 sessions" in one.text else 1 for one in fixes] == known
    assert "ran pip install quokkafish" in " ".join(fixes[0].then)


def test_a_session_over_the_split_is_in_neither_half(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _repaired(home, 1, 0)
    _write(
        home,
        2,
        1,
        ("user", "hello"),
        ("assistant", [{"type": "text", "text": "Hello."}]),
        *_run("x", ERROR, failed=True),
    )

    said = replay.replay([f"claude={home}"], tmp_path / "work", replay.Split(share=0.1))

    assert said == []


def test_a_chain_of_commands_is_split_outside_quotes_and_documents() -> None:
    chain = "cd a && git commit -m 'x; y' 2>&1 | tail -3\ncat <<'END'\nls; rm\nEND\nls &> out"

    assert rates.parts(chain) == ["cd a", "git commit -m 'x; y' 2>&1", "tail -3", "cat", "ls &> out"]


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "quality").glob("*.json")), ids=lambda path: path.stem)
def test_judged_lines_are_short_and_have_a_half_and_a_verdict(path: Path) -> None:
    for item in json.loads(path.read_text("utf-8")) if path.stem != "cases" else ():
        assert item["half"] in ("tune", "report")
        assert 0 < len(item["quote"]) <= 200
        assert item.get("verdict", "right") in ("right", "neutral", "wrong")


def test_what_the_store_lacks_or_adds_to_the_raw_logs_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(rates.__file__).parent)  # a benchmark is run as a script, beside its reader
    truth = importlib.import_module("truth")
    log = tmp_path / "home" / "projects" / "-x-shop" / f"{session_id(1)}.jsonl"
    log.parent.mkdir(parents=True)
    records = [claude_user(session_id(1), 1, "fix it"), claude_answer(session_id(1), 2, "Fixed.")]
    log.write_bytes(lines(records))
    results = []

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        for answer in ("Fixed.", "It works."):
            records[1]["message"]["content"][0]["text"] = answer
            log.write_bytes(lines(records))
            results.append(truth.compare_blocks(truth.read_claude(tmp_path / "home"), memory, "home"))

    assert results[0] == 0 < results[1]
    assert "1 differ" in capsys.readouterr().out
