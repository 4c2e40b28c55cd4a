"""Sixty commits of work by three agents, with amended and squashed ones and renames: each line finds its request."""

import re
from pathlib import Path

from recollect.api import Memory
from tests import logs
from tests.conftest import swept
from tests.knowledge.test_git import Checkout

COMMITS = 60
_SECONDS = 600  # from one session to the next


def _code(number: int) -> str:
    return (
        f"\n\ndef step_{number}(order):\n    if order.number == {number}:\n        return None\n    return order.total"
    )


def _claude(session: str, place: int, file: str, text: str) -> list[logs.Record]:
    record = logs.claude_answer(session, place, "")
    given = {"file_path": f"{logs.CWD}/{file}", "old_string": "# end", "new_string": f"{text}\n# end"}
    call = {"type": "tool_use", "id": f"toolu_{place}", "name": "Edit", "input": given}
    done = logs.claude_result(session, place + 1, "The file has been updated.")
    return [record | {"message": record["message"] | {"content": [call]}}, done]


def _codex(session: str, place: int, file: str, text: str) -> list[logs.Record]:
    added = "\n".join(f"+{line}" for line in text.split("\n"))
    patch = f"*** Begin Patch\n*** Update File: {file}\n@@\n{added}\n # end\n*** End Patch"
    call = {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "call_1", "id": "ctc_1"}
    return [{"timestamp": logs.timestamp(place), "ordinal": place, "type": "response_item", "payload": call}]


def _grok(session: str, place: int, file: str, text: str) -> list[logs.Record]:
    given = {"file_path": file, "old_string": "# end", "new_string": f"{text}\n# end"}
    tool = {"name": "search_replace", "kind": "edit"}
    update = {"sessionUpdate": "tool_call", "toolCallId": "call_1", "title": "search_replace", "rawInput": given}
    done = {"sessionUpdate": "tool_call_update", "toolCallId": "call_1", "status": "completed"}
    return [
        logs.grok_update(session, place, update | {"_meta": {"x.ai/tool": tool}}),
        logs.grok_update(session, place + 1, done),
    ]


_EDITS = {"claude": _claude, "codex": _codex, "grok": _grok}


def _worked(home: Path, checkout: Checkout, number: int, file: str) -> None:
    """A session of one of the agents that adds a function to a file, asked to in words of its own."""
    log, session, place = logs.AGENT_LOGS[number % 3], logs.session_id(number + 1), number * _SECONDS
    records = [*log.opening(session), log.message(session, place + 1, f"please write step {number}")]
    records += _EDITS[log.agent](session, place + 2, file, _code(number))
    content = logs.lines(records).replace(logs.CWD.encode(), str(checkout.folder).encode())
    log.write(home / log.agent, content, session)


def _history(home: Path, checkout: Checkout) -> None:
    files = ["pool", "cache", "jobs"]
    texts = dict.fromkeys(files, "")
    at_ms = int(logs.moment(0).timestamp() * 1000)
    checkout.commit("begin", at_ms - 1, **dict.fromkeys(files, "# end\n"))
    for number in range(COMMITS):
        chosen = number % len(files)
        name = files[chosen]
        _worked(home, checkout, number, f"{name}.py")
        texts[name] += _code(number)
        now_ms = at_ms + (number * _SECONDS + 300) * 1000
        options = ("--amend",) if number % 10 == 3 else ()
        checkout.commit(f"commit {number}", now_ms, *options, **{name: f"{texts[name]}\n# end\n"})
        if number % 20 == 11:
            checkout.git("reset", "-q", "--soft", "HEAD~3")
            checkout.git("commit", "-q", "-m", "squashed", at_ms=now_ms + 1000)
        if number % 15 == 14:
            files[chosen] = f"{name}_{number}"
            texts[files[chosen]] = texts.pop(name)
            checkout.git("mv", f"{name}.py", f"{files[chosen]}.py")
            checkout.git("commit", "-q", "-m", "rename", at_ms=now_ms + 2000)


def _author(lines: list[str], place: int) -> str:
    """Which session a line belongs to, by the function it is in."""
    names = (re.match(r"def (step_\d+)", line) for line in reversed(lines[: place + 1]))
    return next(name[1] for name in names if name)


def _asked(memory: Memory, path: Path, number: int) -> tuple[str, float]:
    origin = memory.knowledge.line(path, number)
    request = origin.edit.request if origin.edit else ""
    return (request or "").replace("please write step ", "step_"), origin.confidence


def test_lines_of_sixty_commits_lead_to_their_requests(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "shop")
    _history(tmp_path / "home", checkout)
    for path in (tmp_path / "home").rglob("updates.jsonl"):
        (path.parent / "summary.json").write_bytes(
            logs.line({"info": {"id": path.parent.name, "cwd": str(checkout.folder)}})
        )
    memory = swept(tmp_path / "store", *(f"{agent}={tmp_path / 'home' / agent}" for agent in _EDITS))
    told: list[tuple[str, str, float]] = []

    for path in sorted(checkout.folder.glob("*.py")):
        lines = path.read_text().splitlines()
        chosen = [place for place, line in enumerate(lines) if line.startswith("def ")]
        told += [(_author(lines, place), *_asked(memory, path, place + 1)) for place in chosen]
        common = [place for place, line in enumerate(lines) if line.startswith("        return")][::3]
        told += [(_author(lines, place), *_asked(memory, path, place + 1)) for place in common]

    wrong = [(author, found, confidence) for author, found, confidence in told if author != found]
    assert len(told) >= 1.3 * COMMITS
    assert len(wrong) <= len(told) * 0.05
    assert [one for one in wrong if one[2] > 0.8] == []
