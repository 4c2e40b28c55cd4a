"""To-dos and system messages that the native library wrote, in the hands of the real Claude Code."""

import shutil
from pathlib import Path

from recollect.agents.claude.native import NativeHome
from tests.agents.conftest import SCRIPTS
from tests.agents.desk import opened_desk

ASK = "Please list what is to be done"
SCENARIO = """
S["list_tasks"] = ("list what is to be done", [do(("raw", {"name": "TaskList", "args": {}})), say("Listed.")])
_compiled = [(n, re.compile(rx, re.I)) for n, (rx, _) in S.items()]
"""


def test_claude_code_lists_the_todos_and_goes_on_after_a_system_message(agents_folder: Path, tmp_path: Path) -> None:
    scripts = tmp_path / "mock"
    shutil.copytree(SCRIPTS / "mock", scripts)
    with (scripts / "scenarios.py").open("a") as file:
        file.write(SCENARIO)
    with opened_desk(tmp_path, agents_folder, scripts) as desk:
        desk.environment["XENV"] = "CLAUDE_CODE_ENABLE_TODO_TOOLS=1"  # outside the terminal they are off
        home = NativeHome(desk.home / ".claude")
        session = home.create(desk.project)
        for role, text in (("user", "Remember the heron"), ("system", "The pond is closed"), ("assistant", "I will.")):
            session.append_message({"role": role, "content": text}, cwd=str(desk.project), version="2.1.325")
        home.write_todos(session.session_id, [{"content": f"number {number}"} for number in range(3)])
        home.write_todos(session.session_id, [{"content": "feed the heron", "status": "in_progress"}])

        desk.run("claude", desk.real("claude").resume, ASK, session.session_id)

        request = desk.last_request(ASK)
        assert "#1 [in_progress] feed the heron" in request
        assert "number 2" not in request
        assert "Remember the heron" in request
        roles = [message["role"] for message in session.messages()]
        assert roles[:3] == ["user", "system", "assistant"]
        assert len(roles) > 4  # Claude Code went on in the same file
