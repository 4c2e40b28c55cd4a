"""What sessions changed, as diffs: from genuine logs of all agents, and from every form an edit may have."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.agentkit.calls import FileChange
from recollect.api import Memory
from recollect.cli import main
from recollect.model.schema import EDIT, ERROR, TOOL_RESULT
from recollect.recall.diffs import changes, unified
from tests.builders import Home, SessionInfo, event, sweep
from tests.conftest import swept

DATA = Path(__file__).parent.parent / "data"
CWD = "/x/shop"
BEFORE = '"""Tiny calculator."""\n\n\ndef add(a, b):\n    return a - b  # BUG\n\n\ndef sub(a, b):\n    return a - b\n'
AFTER = BEFORE.replace("a - b  # BUG", "a + b").replace("def sub", "def mul(a, b):\n    return a * b\n\n\ndef sub")


@pytest.fixture(params=["claude", "codex", "grok"])
def real_edits(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    """A store with one session of a real agent, which fixed `add`, then added `mul` and a test of it."""
    folders = {"claude": "2.1.325-edits", "codex": "0.166.0-edits", "grok": "1.0.41-edits"}
    home, agent = tmp_path / "home", request.param
    below = home / "projects" / "calc" if agent == "claude" else home
    shutil.copytree(DATA / agent / folders[agent], below)
    return swept(tmp_path / "store", f"{agent}={home}")


def _diff(*words: str) -> str:
    result = CliRunner().invoke(main, ["diff", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_git_applies_what_a_real_agent_changed(real_edits: Memory, tmp_path: Path) -> None:
    real_edits.close()
    (tmp_path / "calc.py").write_text(BEFORE)

    subprocess.run(["git", "apply", "-"], input=_diff("last"), cwd=tmp_path, text=True, check=True)

    assert (tmp_path / "calc.py").read_text() == AFTER
    assert "assert mul(2, 3) == 6" in (tmp_path / "test_mul.py").read_text()


def test_tabs_that_claude_writes_as_spaces_in_its_hunks_are_tabs_again(tmp_path: Path) -> None:
    (log,) = (DATA / "claude" / "2.1.325-edits").glob("*.jsonl")
    path = tmp_path / "home" / "projects" / "calc" / log.name
    path.parent.mkdir(parents=True)
    path.write_text("".join(_tabbed(line) for line in log.read_text().splitlines()))
    swept(tmp_path / "store", f"claude={tmp_path / 'home'}").close()
    (tmp_path / "calc.py").write_text(BEFORE.replace("    ", "\t\t"))

    subprocess.run(["git", "apply", "-"], input=_diff("last"), cwd=tmp_path, text=True, check=True)

    assert (tmp_path / "calc.py").read_text() == AFTER.replace("    ", "\t\t")


def _tabbed(line: str) -> str:
    """A line of a log as if the files had tabs: four spaces are how two of them look in a hunk."""
    record = json.loads(line)
    result = record.get("toolUseResult", {})
    hunks = result.pop("structuredPatch", None)
    record = json.loads(json.dumps(record).replace("    ", "\\t\\t"))
    if hunks is not None:
        record["toolUseResult"]["structuredPatch"] = hunks
    return f"{json.dumps(record)}\n"


def test_the_edits_of_one_file_are_shown_alone(real_edits: Memory) -> None:
    real_edits.close()

    assert "calc.py" not in _diff("last", "test_mul.py")
    assert _diff("last", "calc.py").count("diff --git") == 2
    assert _diff("last", "test_mu") == _diff("last", "test_mul.py")


def test_blame_and_files_count_lines(real_edits: Memory) -> None:
    with real_edits:
        edits, visits = real_edits.blame("calc.py"), real_edits.files("calc.py")

    assert [(edit.added, edit.removed) for edit in edits] == [(4, 0), (1, 1)]
    assert [(visit.edits, visit.added, visit.removed) for visit in visits] == [(2, 5, 1)]


PATCH = (
    "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@ def f():\n x\n-y\n+z\n w\n"
    "*** Add File: new.py\n+one\n+two\n*** Delete File: old.py\n*** End Patch\n"
)


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (PATCH, ""),
        ({"input": PATCH}, ""),
        ({"command": ["apply_patch", PATCH]}, ""),
        ({"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}EOF\n"]}, ""),
        ({"command": ["bash", "-lc", f"cd src && apply_patch <<'EOF'\n{PATCH}EOF\n"]}, "src/"),
        ({"cmd": f"apply_patch <<'EOF'\n{PATCH}EOF\n", "workdir": "/x/shop/lib"}, "/x/shop/lib/"),
    ],
    ids=["text", "field", "argv", "heredoc", "cd", "workdir"],
)
def test_codex_patches_are_read_in_every_form(arguments: Any, folder: str) -> None:
    moved, new, old = changes("codex", {"input": arguments})

    assert (moved.renamed_from, moved.path) == (f"{folder}a.py", f"{folder}b.py")
    assert moved.hunks[0].lines == (" x", "-y", "+z", " w")
    assert moved.hunks[0].heading == "def f():"
    assert (new.path, new.is_new, new.hunks[0].lines) == (f"{folder}new.py", True, ("+one", "+two"))
    assert (old.path, old.is_deleted) == (f"{folder}old.py", True)


def test_git_finds_the_place_of_a_patch_without_line_numbers(tmp_path: Path) -> None:
    hunk = " def add(a, b):\n-    return a - b  # BUG\n+    return a + b\n \n"
    patch = f"*** Begin Patch\n*** Update File: calc.py\n@@\n{hunk}"
    (change,) = changes("codex", {"input": patch})
    (tmp_path / "calc.py").write_text(BEFORE)

    subprocess.run(["git", "apply", "-"], input=unified(change, str(tmp_path)), cwd=tmp_path, text=True, check=True)

    assert "return a + b\n" in (tmp_path / "calc.py").read_text()


def test_what_a_deleted_file_held_is_in_the_diff() -> None:
    listed = {"/x/shop/old.py": {"type": "delete", "content": "one\ntwo\n"}}

    (change,) = changes("codex", {"input": PATCH}, {"native": {"changes": listed}})

    assert unified(change, CWD).splitlines()[2:] == ["--- a/old.py", "+++ /dev/null", "@@ -1,2 +0,0 @@", "-one", "-two"]


def _claude(arguments: Any, facts: Any = None) -> FileChange:
    result = None if facts is None else {"native": {"toolUseResult": facts}}
    (change,) = changes("claude", {"input": arguments}, result)
    return change


def test_every_edit_of_a_multi_edit_is_a_hunk() -> None:
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c\nd", "new_string": "c\ne"}]

    change = _claude({"file_path": "/x/shop/a.py", "edits": edits})

    assert [hunk.lines for hunk in change.hunks] == [("-a", "+b"), (" c", "-d", "+e")]


def test_a_written_file_is_new_unless_the_log_says_what_it_replaced() -> None:
    write = {"file_path": "/x/shop/a.py", "content": "one\n"}
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-zero", "+one"]}

    assert _claude(write).is_new
    assert not _claude(write, {"type": "update", "structuredPatch": [hunk]}).is_new
    assert _claude(write, {"type": "update", "structuredPatch": []}).hunks == ()


def test_a_notebook_edit_shows_the_source_of_its_cell() -> None:
    change = _claude({"notebook_path": "/x/a.ipynb", "cell_id": "c1", "new_source": "x = 1\ny = 2"})

    assert change.hunks[0].lines == ("+x = 1", "+y = 2")
    assert change.hunks[0].heading == "replace cell c1"


def _edit(session: str, number: int, path: str, old: str, new: str, call_id: str) -> Any:
    arguments = {"file_path": path, "old_string": old, "new_string": new}
    record = event(session, number, EDIT, f"edited {path}", call_id=call_id, role="assistant", tool="Edit")
    record.payload = {"input": arguments}
    return record


def test_sub_agents_count_and_failed_edits_do_not(tmp_path: Path, home: Home) -> None:
    home.write(
        "root",
        SessionInfo("root-000001", cwd=CWD),
        event("root-000001", 1, text="go"),
        _edit("root-000001", 2, "a.py", "a", "b", "c1"),
        _edit("root-000001", 3, "b.py", "a", "b", "c2"),
        event("root-000001", 4, ERROR, "no such text", call_id="c2", role="tool", is_error=True, status="failed"),
    )
    home.write(
        "sub",
        SessionInfo("sub-000001", cwd=f"{CWD}/lib", parent_native_id="root-000001"),
        _edit("sub-000001", 5, "c.py", "a", "b", "c3"),
        event("sub-000001", 6, TOOL_RESULT, "ok", call_id="c3", role="tool"),
    )

    with sweep(tmp_path / "store", home) as memory:
        changed = memory.diff(memory.session("root-000001"))

    assert [edit.path for edit in changed.edits] == ["a.py", "lib/c.py"]
    assert changed.failed == 1


def test_no_control_character_of_a_log_reaches_the_terminal(tmp_path: Path, home: Home) -> None:
    text = "\x1b]0;title\x07red \x1b[31m\u202e text\r\n"
    home.write("s", SessionInfo("s-000001", cwd=CWD), _edit("s-000001", 1, "a\x1b[2J.py", "a", text, "c1"))
    sweep(tmp_path / "store", home).close()

    for shown in (_diff("s-000001"), CliRunner().invoke(main, ["show", "s-000001", "--diff", "--full"]).stdout):
        assert "+red  text" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
