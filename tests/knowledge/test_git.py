"""What git knows of files that sessions edited: whether a fix is still there, and who wrote a line."""

import json
import re
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.cli.entry import main
from recollect.cli.picker import Picker
from recollect.model.errors import NotFound
from tests.builders import BEGIN_MS, Home
from tests.knowledge.sessions import DAY_MS, Script, remembered, stored_facts
from tests.retention.rig import evict_all, opened, raw_names
from tests.test_api import SCHEMAS, breaches


class Checkout:
    """A repository whose commits have the dates that a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, at_ms: int = BEGIN_MS) -> str:
        date = f"{at_ms // 1000} +0000"
        variables = {
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_DATE": date,
            "HOME": str(self.folder),
            "PATH": "/usr/bin:/bin",
        }
        identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
        done = subprocess.run(
            ["git", *identity, "-C", str(self.folder), *arguments], env=variables, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit(self, message: str, at_ms: int, *options: str, **files: str) -> None:
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, *options, at_ms=at_ms)


def fixed(folder: Path) -> Script:
    """An error fixed by edits of two files, on the first day."""
    return (
        Script("fixed", cwd=str(folder))
        .user("make it build")
        .run("make app", "Error: pool and cache disagree", 1)
        .edit(f"{folder}/pool.py", "size = 5", "size = 20")
        .edit(f"{folder}/cache.py", "size = 5", "size = 20")
        .run("make app", "ok")
    )


FIX_MS = BEGIN_MS - 30 * DAY_MS


def test_a_fix_says_which_of_its_files_changed_since(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "shop")
    checkout.commit("begin", FIX_MS - DAY_MS, pool="size = 5\n", cache="size = 5\n")
    checkout.commit("the fix", FIX_MS + 60_000, pool="size = 20\n", cache="size = 20\n")
    memory = remembered(tmp_path, fixed(checkout.folder))
    error = "Error: pool and cache disagree"

    assert memory.knowledge.fixes(error)[0].changed_files == ()

    checkout.commit("smaller pool", FIX_MS + DAY_MS, pool="size = 7\n")

    assert memory.knowledge.fixes(error)[0].changed_files == ("pool.py",)


def test_nothing_is_said_of_files_whose_repository_is_not_here(tmp_path: Path) -> None:
    gone, bare = tmp_path / "gone", tmp_path / "bare"
    bare.mkdir()

    for folder in (gone, bare):
        memory = remembered(tmp_path / f"of {folder.name}", fixed(folder))
        assert memory.knowledge.fixes("Error: pool and cache disagree")[0].changed_files is None


def wrote(name: str, day: int, request: str, path: Path, old: str, new: str) -> Script:
    return Script(name, day, cwd=str(path.parent)).user(request).edit(str(path), old, new).agent("Done.")


def day_ms(day: float) -> int:
    return BEGIN_MS + round((day - 30) * DAY_MS)


def body(name: str, count: int = 4) -> str:
    return "".join(f"def {name}_{number}():\n    return '{name} {number}'\n\n" for number in range(count))


@pytest.mark.parametrize("is_evicted", [False, True])
def test_a_line_leads_to_the_request_it_was_written_for_through_renames_amends_and_squashes(
    tmp_path: Path, is_evicted: bool
) -> None:
    checkout = Checkout(tmp_path / "shop")
    pool, cache, human = (checkout.folder / f"{name}.py" for name in ("pool", "cache", "human"))
    checkout.commit("begin", day_ms(0), pool="\n", human=body("human"))
    scripts = [
        wrote("plain", 1, "write the pool", pool, "", body("plain")),
        wrote("amended", 3, "write more of the pool", pool, "", body("amended")),
        wrote("squashed", 5, "write the cache", cache, "", body("squashed")),
        wrote("open", 9, "one more", checkout.folder / "store.py", "", body("open")),
    ]
    text = body("plain")
    checkout.commit("pool", day_ms(1.5), pool=text)
    checkout.commit("more, at first", day_ms(2.5), pool=text + "# soon\n")
    text += body("amended")
    checkout.commit("more", day_ms(3.5), "--amend", pool=text)
    checkout.git("checkout", "-q", "-b", "cache")
    checkout.commit("half", day_ms(5.2), cache=body("squashed", 2))
    checkout.commit("whole", day_ms(5.4), cache=body("squashed"))
    checkout.git("checkout", "-q", "main")
    checkout.commit("meanwhile", day_ms(6), human=body("human") + "# end\n")
    checkout.git("merge", "-q", "--squash", "cache")
    checkout.git("commit", "-q", "-m", "cache", at_ms=day_ms(7))
    checkout.git("mv", "pool.py", "store.py")
    checkout.git("commit", "-q", "-m", "rename", at_ms=day_ms(8))
    store = checkout.folder / "store.py"
    store.write_text(text + body("open"))
    remembered(tmp_path, *scripts).close()
    memory = opened(tmp_path / "store", Home(tmp_path / "home"))
    if is_evicted:
        evict_all(memory)
        assert raw_names(memory) == set()

    right, sure_and_wrong, asked = 0, [], 0
    for path in (store, cache, human):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if not line:
                continue
            expected = re.search(r"(\w+)[_ ]\d", line)
            author = expected[1].removeprefix("def ") if expected else "human"
            origin = memory.knowledge.line(path, number)
            found = origin.edit.session_uid.partition(":")[2] if origin.edit else "human"
            asked += 1
            right += found == author
            sure_and_wrong += [(line, found)] if found != author and origin.confidence > 0.8 else []

    assert asked >= 40
    assert right / asked >= 0.95
    assert sure_and_wrong == []
    origin = memory.knowledge.line(store, 1)
    assert origin.edit is not None and origin.edit.request == "write the pool"
    assert (origin.commit_subject, origin.text) == ("pool", "def plain_0():")


def test_a_line_of_a_file_without_a_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("x = 1\n")
    memory = remembered(tmp_path / "m", Script("s").user("hello"))

    with pytest.raises(NotFound, match=r"x\.py:1"):
        memory.knowledge.line(tmp_path / "x.py", 1)


@pytest.mark.parametrize(("remote", "is_elsewhere"), [("shop", False), ("github.com/other/tools", True)])
def test_a_line_is_found_in_a_checkout_that_moved_and_last_in_another_repository(
    tmp_path: Path, remote: str, is_elsewhere: bool
) -> None:
    checkout = Checkout(tmp_path / "new" / "shop")
    checkout.commit("add", day_ms(2), calc="def multiply(a, b): return a * b\n")
    script = Script("s", 1, cwd="/elsewhere/shop", repo=remote).user("write the calculator").agent("Classes or none?")
    script.user("2").edit("/elsewhere/shop/calc.py", "", "def multiply(a, b): return a * b\n")
    if remote == "shop":
        script.records[0] = replace(script.records[0], git_remote=None)
    memory = remembered(tmp_path, script)

    origin = memory.knowledge.line(checkout.folder / "calc.py", 1)

    assert origin.edit is not None and origin.edit.request == "write the calculator"
    assert (origin.is_elsewhere, origin.confidence > 0.5) == (is_elsewhere, not is_elsewhere)


def test_a_line_says_what_its_edit_fixed(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "shop")
    script = (
        Script("s", 1, cwd=str(checkout.folder)).user("make it build").run("make app", "Error: pool is too small", 1)
    )
    script.edit(f"{checkout.folder}/pool.py", "pool = 5", "pool = 20").run("make app", "ok")
    memory = remembered(tmp_path, script)
    checkout.commit("larger", day_ms(2), pool="pool = 20\n")

    assert memory.knowledge.line(checkout.folder / "pool.py", 1).cause == "Error: pool is too small"


def test_why_answers_for_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Checkout(tmp_path / "shop")
    pool = checkout.folder / "pool.py"
    memory = remembered(tmp_path, wrote("s", 1, "make the pool larger", pool, "size = 5", "size_of_pool = 20"))
    checkout.commit("begin", day_ms(0), pool="size = 5\nfast = True\n")
    checkout.commit("pool", day_ms(2), pool="size_of_pool = 20\nfast = True\n")
    memory.close()
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))
    monkeypatch.chdir(checkout.folder)

    shown = CliRunner().invoke(main, ["why", "pool.py:1"])
    as_json = CliRunner().invoke(main, ["why", "pool.py:1", "--json"])
    nobody = CliRunner().invoke(main, ["why", "pool.py:2"])

    assert "make the pool larger" in shown.output and "confidence 0.95" in shown.output
    assert json.loads(as_json.output)["edit"]["request"] == "make the pool larger"
    assert breaches(SCHEMAS["line"], json.loads(as_json.output)) == []
    assert (nobody.exit_code, "No session wrote this line" in nobody.output) == (4, True)


def test_why_names_the_sessions_behind_an_uncommitted_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Checkout(tmp_path / "shop")
    pool, new = checkout.folder / "pool.py", checkout.folder / "queue.py"
    memory = remembered(
        tmp_path,
        wrote("old", 1, "begin the pool", pool, "size = 1", "size = 5"),
        wrote("mine", 3, "make the pool larger", pool, "size = 5", "size_of_pool = 20"),
        wrote("other", 4, "add a queue", new, "", "queue_of_jobs = []"),
    )
    checkout.commit("begin", day_ms(2), pool="size = 5\nfast = True\n")
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))
    monkeypatch.chdir(checkout.folder)
    nothing = CliRunner().invoke(main, ["why", "--diff"])
    pool.write_text("size_of_pool = 20\nfast = True\nby_hand = 1\n")
    new.write_text("queue_of_jobs = []\n")

    picker = Picker(memory, str(checkout.folder))
    picker.search()
    memory.close()
    shown = CliRunner().invoke(main, ["why", "--diff"])
    as_json = json.loads(CliRunner().invoke(main, ["why", "--diff", "--json"]).output)

    assert (nothing.exit_code, "Nothing is uncommitted here" in nothing.output) == (4, True)
    assert "make the pool larger" in shown.output and "add a queue" in shown.output
    assert "begin the pool" not in shown.output and "1 changed line of 3" in shown.output
    assert {origin["session_uid"].partition(":")[2] for origin in as_json["sessions"]} == {"mine", "other"}
    assert {hit.session_uid.partition(":")[2] for hit in picker.answer.hits[:2]} == {"mine", "other"}
    assert "uncommitted change" in picker.note
    for wrong in ([], ["x", "--diff"]):
        assert CliRunner().invoke(main, ["why", *wrong]).exit_code == 2


def test_looking_at_an_uncommitted_change_runs_nothing_that_the_repository_configures(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "shop")
    checkout.commit("begin", day_ms(0), pool="size = 5\n")
    for name, value in (("clean", f"touch {tmp_path}/ran; cat"), ("required", "true")):
        subprocess.run(["git", "-C", checkout.folder, "config", f"filter.own.{name}", value], check=True)
    (checkout.folder / ".gitattributes").write_text("*.py filter=own\n")
    (checkout.folder / "pool.py").write_text("size_of_pool = 20\n")
    memory = remembered(
        tmp_path / "m", wrote("s", 1, "larger", checkout.folder / "pool.py", "size = 5", "size_of_pool = 20")
    )

    change = memory.knowledge.uncommitted(checkout.folder)

    assert [origin.lines for origin in change.sessions] == [1]
    assert not (tmp_path / "ran").exists()


def test_a_pull_request_is_known_from_the_agents_own_record_of_it(tmp_path: Path) -> None:
    address = "https://github.com/acme/shop/pull/12"
    script = Script("linked").user("round prices to cents").run("make pr", "done").link(address).link(address)

    (fact,) = remembered(tmp_path, script).knowledge.facts(address)

    assert (fact.subject, fact.object_kind) == ("round prices to cents", "pull request")


def test_packages_that_a_request_installed_are_known_by_name(tmp_path: Path) -> None:
    script = (
        Script("installed")
        .user("parse the dates")
        .run("cd api && pip install -q 'python-dateutil>=2.9' requests[socks]==2.32.0 -r requirements.txt", "ok")
        .run("npm install --save-dev @types/node@20 ./local", "added 1 package")
        .run("pip install no-such-thing", "ERROR: No matching distribution found", 1)
        .run("npm install", "up to date")
    )
    memory = remembered(tmp_path, script)

    packages = {fact.object for fact in stored_facts(memory, "requires")}

    assert packages == {"python-dateutil", "requests", "@types/node"}
    (fact,) = memory.knowledge.facts("requests")
    assert (fact.subject, fact.predicate, fact.object_kind) == ("parse the dates", "requires", "package")


def test_commits_branches_and_pull_requests_lead_to_the_request_that_made_them(tmp_path: Path) -> None:
    address = "https://github.com/acme/shop/pull/12"
    script = (
        Script("made")
        .user("round prices to cents")
        .run("git commit -am 'Round prices to cents'", "[rounding 1a2b3c4] Round prices to cents\n 1 file changed")
        .run("gh pr create --title 'Round prices' --body ''", f"Creating pull request\n{address}")
        .user("say hello")
        .run("git log -1", "[rounding 9f8e7d6] not a commit of this session")
    )
    memory = remembered(tmp_path, script)

    for name, kind in (
        ("1a2b3c4", "commit"),
        ("1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "commit"),
        ("rounding", "branch"),
        (address, "pull request"),
    ):
        (fact,) = memory.knowledge.facts(name)
        assert (fact.subject, fact.predicate, fact.object_kind) == ("round prices to cents", "touches", kind)
    assert memory.knowledge.facts("9f8e7d6") == []
    assert {node.kind for node in memory.knowledge.graph(around="rounding").nodes} >= {"commit", "branch", "task"}


_CONFIGURED = {
    "a filter": ("*.py filter=evil", {"filter.evil.clean": "{evil}; cat", "filter.evil.required": "true"}),
    "a filter process": ("*.py filter=evil", {"filter.evil.process": "{evil}"}),
    "a filter whose name splits settings": ("*.py filter=a=b", {"filter.a=b.clean": "{evil}; cat"}),
    "a text converter": ("*.py diff=evil", {"diff.evil.textconv": "{evil}; cat"}),
    "an external diff": ("*.py diff=evil", {"diff.evil.command": "{evil}", "diff.external": "{evil}"}),
    "a file system monitor": ("", {"core.fsmonitor": "{evil}"}),
    "hooks": ("", {"core.hooksPath": "{hooks}"}),
    "pagers": ("", {"core.pager": "{evil}", "pager.log": "{evil}", "pager.blame": "{evil}"}),
    "a check of signatures": ("", {"log.showSignature": "true", "gpg.program": "{script}"}),
    "an alias": ("", {"alias.blame": "!{evil}", "alias.log": "!{evil}", "alias.rev-parse": "!{evil}"}),
    "a server for what is missing": (
        "missing",
        {
            "core.repositoryFormatVersion": "1",
            "extensions.partialClone": "far",
            "remote.far.promisor": "true",
            "remote.far.url": "ext::{script}",
            "protocol.ext.allow": "always",
        },
    ),
}


@pytest.mark.parametrize("configured", _CONFIGURED)
def test_nothing_that_a_repository_configures_is_started(tmp_path: Path, configured: str) -> None:
    attributes, settings = _CONFIGURED[configured]
    ran, hooks = tmp_path / "ran", tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction", "script"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / name).chmod(0o700)
    checkout = Checkout(tmp_path / "shop")
    checkout.commit("begin", FIX_MS - DAY_MS, pool="size = 5\n", cache="size = 5\n")
    checkout.commit("the fix", FIX_MS + 60_000, pool="size = 20\n", cache="size = 20\n")
    signed = checkout.git("cat-file", "commit", "HEAD").replace("\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n\n", 1)
    (tmp_path / "commit").write_text(f"{signed}\n")
    checkout.git("reset", "-q", checkout.git("hash-object", "-t", "commit", "-w", str(tmp_path / "commit")))
    memory = remembered(tmp_path, fixed(checkout.folder))
    (checkout.folder / "pool.py").write_text("size = 20\nfast = True\n")
    if attributes == "missing":
        blob = checkout.git("rev-parse", "HEAD:pool.py")
        (checkout.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    else:
        (checkout.folder / ".gitattributes").write_text(f"{attributes}\n")
    for key, value in settings.items():
        checkout.git("config", key, value.format(evil=f"touch {ran}", script=hooks / "script", hooks=hooks))

    with suppress(NotFound):
        memory.knowledge.line(checkout.folder / "pool.py", 1)
    memory.knowledge.fixes("Error: pool and cache disagree")

    assert not ran.exists()
