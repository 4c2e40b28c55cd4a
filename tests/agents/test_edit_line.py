"""Before an edit the real Claude Code tells its model what earlier sessions settled about the file, or nothing."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.agents.conftest import mock_model, wait_for
from tests.agents.test_inside import FIX, Inside

SETTLED = "earlier sessions settled something about this file"
EDITED = re.compile(r"new_string\W+return a \+ b")
EARLIER = "5f0c2f6e-0000-4000-8000-000000000009"
PLAN = "# Repair the sum\n\nChange what `return` gives in `calc.py` to a sum, because the tests are right.\n"


def _approve_plan(inside: Inside) -> None:
    """A session of today in which the user approved a plan for `calc.py`, which it then edited."""
    edited = {"file_path": str(inside.project / "calc.py"), "old_string": "# old", "new_string": "# new"}
    messages: list[tuple[str, Any]] = [
        ("user", "repair the sum, and tell me how first"),
        ("assistant", [{"type": "tool_use", "id": "p", "name": "ExitPlanMode", "input": {"plan": PLAN}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "p", "content": "User has approved your plan."}]),
        ("assistant", [{"type": "tool_use", "id": "e", "name": "Edit", "input": edited}]),
        ("user", [{"type": "tool_result", "tool_use_id": "e", "content": "The file has been updated."}]),
        ("assistant", [{"type": "text", "text": "done"}]),
    ]
    path = inside.home / ".claude" / "projects" / "earlier" / f"{EARLIER}.jsonl"
    path.parent.mkdir(parents=True)
    records = [
        {
            "type": role,
            "uuid": f"{EARLIER[:-6]}{number:06d}",
            "parentUuid": f"{EARLIER[:-6]}{number - 1:06d}" if number else None,
            "sessionId": EARLIER,
            "cwd": str(inside.project),
            "timestamp": f"{time.strftime('%Y-%m-%d')}T00:00:{number:02d}.000Z",
            "message": {"role": role, "content": content} | ({"id": f"m{number}"} if role != "user" else {}),
        }
        for number, (role, content) in enumerate(messages)
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def test_the_line_before_an_edit_reaches_the_model_once_and_only_if_something_was_settled(
    agents_folder: Path, tmp_path: Path
) -> None:
    with mock_model(tmp_path) as port:
        inside = Inside(tmp_path, agents_folder, port)
        (inside.home / ".claude").mkdir()
        inside.recollect("install", "--yes")
        silent = inside.ask("claude", FIX)
        subprocess.run(["git", "-C", inside.project, "checkout", "-q", "calc.py"], check=True)
        wait_for(lambda: not list(inside.store.glob("spool/*.json")), "the sweep of the first session")
        _approve_plan(inside)
        inside.recollect("sweep")

        told = inside.ask("claude", FIX)

    assert silent and all(SETTLED not in request for request in silent)
    edited = next(number for number, request in enumerate(told) if EDITED.search(request))
    assert [request.count(SETTLED) for request in told] == [0] * edited + [1] * (len(told) - edited)
    assert "the user approved: Repair the sum (" in told[edited] and EARLIER in told[edited]
