"""Stars, tags, notes, names and forgetting: on the page, as commands, in searches, backups and exports."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.api import Memory, open_memory, restore
from recollect.cli.entry import main
from recollect.model.errors import UsageError
from recollect.model.home import HOOK_LOG_NAME
from recollect.recall import Filters
from recollect.store.sqlite.database import connect
from tests.conftest import swept
from tests.logs import CLAUDE, claude_user, lines, session_id
from tests.web.conftest import Served, Watched, served

FIRST, SECOND = session_id(1), session_id(2)
SECRET = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Memory]:
    for session in (FIRST, SECOND):
        CLAUDE.write(tmp_path / "home", CLAUDE.content(3, session, "lighthouse"), session)
    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        yield memory


def test_what_is_starred_or_tagged_is_found_by_it(kept: Memory) -> None:
    kept.annotations.star(kept.session(FIRST))
    kept.annotations.tag(kept.session(SECOND), "Release")

    assert [hit.session_uid for hit in kept.search("is:starred lighthouse")] == [f"claude:{FIRST}"]
    assert [hit.session_uid for hit in kept.search("tag:release")] == [f"claude:{SECOND}"]
    assert [hit.session_uid for hit in kept.search("lighthouse -tag:release")] == [f"claude:{FIRST}"]
    assert [session.native_session_id for session in kept.sessions(Filters(is_starred=True))] == [FIRST]
    assert kept.search("tag:nothing") == []


def test_a_session_is_found_by_its_name_at_once_and_after_a_sweep(kept: Memory, tmp_path: Path) -> None:
    kept.annotations.rename(kept.session(FIRST), "Zanzibar 连接池")

    found = [kept.search(word) for word in ("zanzibar", "连接池")]
    path = CLAUDE.path(tmp_path / "home", FIRST)
    path.write_bytes(path.read_bytes() + lines([claude_user(FIRST, 4, "and more")]))
    kept.sweep()
    found += [kept.search(word) for word in ("zanzibar", "连接池")]

    assert [[hit.session_uid for hit in hits] for hits in found] == [[f"claude:{FIRST}"]] * 4


def test_a_name_stays_when_the_session_grows(kept: Memory, tmp_path: Path) -> None:
    kept.annotations.rename(kept.session(FIRST), "The lamp")
    path = CLAUDE.path(tmp_path / "home", FIRST)
    path.write_bytes(path.read_bytes() + lines([claude_user(FIRST, 4, "and more")]))
    kept.sweep()

    assert kept.session("The lamp").event_count == 4


def test_annotations_are_in_backups_and_exports_and_go_when_the_session_is_forgotten(
    kept: Memory, tmp_path: Path
) -> None:
    chosen = kept.session(FIRST)
    kept.annotations.star(chosen)
    kept.annotations.tag(chosen, "keep")
    said = kept.annotations.note(chosen, "zanzibarnote")
    kept.backup(tmp_path / "b.tar.zst")
    kept.export(tmp_path / "out")
    restore(tmp_path / "b.tar.zst", tmp_path / "restored")
    with open_memory(tmp_path / "restored") as restored, open_memory(tmp_path / "imported") as imported:
        imported.import_sessions(tmp_path / "out")

        assert restored.annotations.of(chosen) == imported.annotations.of(chosen) == said
    kept.forget(kept.plan_forgetting(FIRST))
    assert kept.annotations.of(chosen).notes == ()
    kept.close()
    assert not [
        path for path in (tmp_path / "store").rglob("*") if path.is_file() and b"zanzibarn" in path.read_bytes()
    ]


def test_no_secret_is_kept_in_a_note_and_an_empty_one_is_refused(kept: Memory) -> None:
    noted = kept.annotations.note(kept.session(FIRST), f"the key was {SECRET}")

    assert SECRET not in noted.notes[0].text
    with pytest.raises(UsageError):
        kept.annotations.tag(kept.session(FIRST), "  ")


def test_the_commands_say_what_is_so_now(kept: Memory) -> None:
    run = CliRunner().invoke
    for words in (
        ["mark", "star", FIRST],
        ["mark", "tag", FIRST, "x"],
        ["mark", "note", FIRST, "hello"],
        ["mark", "tag", FIRST, "x", "--remove"],
    ):
        assert run(main, words).exit_code == 0
    result = run(main, ["mark", "rename", FIRST, "Lamp", "--json"])

    told = json.loads(result.output)
    assert (told["is_starred"], told["tags"], told["name"]) == (True, [], "Lamp")
    assert [note["text"] for note in told["notes"]] == ["hello"]


@pytest.fixture
def page(browser: Any, kept: Memory, tmp_path: Path) -> Iterator[tuple[Any, Served]]:
    with served(tmp_path / "store", home=tmp_path / "home") as running:
        opened = browser.new_page()
        watched = Watched(opened, running.base)
        running.visit(opened, f"/session/{FIRST}")
        yield opened, running
        watched.check()
        opened.close()


def test_on_the_page_a_session_is_starred_tagged_and_forgotten_after_a_dry_run(page: tuple[Any, Served]) -> None:
    opened, running = page
    opened.get_by_role("button", name="Star").click()
    opened.wait_for_selector(".star.is-on")
    opened.get_by_label("New tag").fill("release")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("text=#release")
    assert running.json(f"/session/{FIRST}/annotations")["annotations"]["tags"] == ["release"]

    opened.get_by_role("link", name="Forget…").click()
    opened.wait_for_selector("text=What is deleted")
    assert len(running.json("/sessions?all=1")["sessions"]) == 2
    opened.get_by_role("button", name="Forget 1 session").click()
    opened.wait_for_selector("h1:text('Sessions')")

    left = running.json("/sessions?all=1")["sessions"]
    assert [session["native_session_id"] for session in left] == [SECOND]


def test_a_list_of_sessions_is_saved_shown_and_removed(page: tuple[Any, Served]) -> None:
    opened, running = page
    opened.goto(f"{running.base}/sessions?agent=claude&sort=cost")
    opened.get_by_text("Save view").click()
    opened.get_by_label("Name of this view").fill("Dear ones")
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".view")

    (view,) = running.json("/sessions")["views"]
    assert (view["name"], view["query"]) == ("Dear ones", "agent=claude&sort=cost")
    opened.goto(f"{running.base}/sessions")
    opened.get_by_role("link", name="Dear ones").click()
    opened.wait_for_selector(".view .is-on")
    assert opened.url.endswith("/sessions?agent=claude&sort=cost")
    opened.get_by_role("button", name="Remove view Dear ones").click()
    opened.get_by_text("Save view").wait_for()
    assert running.json("/sessions")["views"] == []


def test_a_view_is_in_backups_has_no_secret_and_needs_something_to_save(kept: Memory, tmp_path: Path) -> None:
    kept.annotations.save_view("Mine", f"title={SECRET}&offset=50&sort=cost")
    kept.backup(tmp_path / "b.tar.zst")
    restore(tmp_path / "b.tar.zst", tmp_path / "restored")

    with open_memory(tmp_path / "restored") as restored:
        (view,) = restored.annotations.views()
    assert view.query.startswith("sort=cost&title=") and SECRET not in view.query
    with pytest.raises(UsageError):
        kept.annotations.save_view("Nothing", "offset=50")


def test_a_store_of_an_earlier_version_is_brought_up_to_date_by_a_reader(kept: Memory, tmp_path: Path) -> None:
    kept.close()
    database = connect(tmp_path / "store/memory.db", read_only=False)
    database.execute("DROP TABLE views")
    database.pragma("user_version", 1)
    database.close()

    with open_memory(tmp_path / "store", read_only=True) as memory:
        assert memory.annotations.views() == []


def test_on_the_page_a_fact_is_promoted_and_rejected(page: tuple[Any, Served], kept: Memory) -> None:
    opened, running = page
    kept.knowledge.remember("We use tabs in Makefiles", topic="tabs")
    opened.goto(f"{running.base}/decisions")
    opened.get_by_role("button", name="Promote").click()
    opened.wait_for_selector(".fact .tag:text('promoted')")
    opened.get_by_text("Reject…").click()
    opened.get_by_role("button", name="Reject").click()
    opened.wait_for_selector(".fact .tag:text('rejected')")

    assert running.json("/decisions")["decisions"] == []


def test_with_read_only_nothing_can_be_changed(kept: Memory, tmp_path: Path) -> None:
    with served(tmp_path / "store", "--read-only") as running:
        headers = {"Authorization": f"Bearer {running.token}", "Accept": "application/json"}
        for action in ("star", "tag", "note", "rename", "forget"):
            status, _, _ = running.ask("POST", f"/session/{FIRST}/{action}", headers, "tag=a&note=a&name=a&sessions=1")
            assert status in (404, 405), action
        for path in ("/sessions/views/save", "/sessions/views/drop", "/fact/abcdef/promote", "/fact/abcdef/reject"):
            assert running.ask("POST", path, headers, "name=a&query=sort%3Dcost")[0] in (404, 405), path

    assert kept.annotations.of(kept.session(FIRST)).is_starred is False
    assert kept.count_sessions() == 2


def test_care_counts_replaced_secrets_by_rule_and_shows_none(browser: Any, tmp_path: Path) -> None:
    log = lines([claude_user(FIRST, 1, f"the token is {SECRET}")])
    CLAUDE.write(tmp_path / "home", log, FIRST)
    swept(tmp_path / "store", f"claude={tmp_path / 'home'}").close()
    with served(tmp_path / "store", "--read-only") as running:
        page = browser.new_page()
        running.visit(page, "/care")
        page.wait_for_selector("td:has-text('GitHub tokens')")
        shown = page.content()
        rules = running.json("/care/secrets")["rules"]
        page.close()

    assert [(rule["rule"], rule["sessions"]) for rule in rules] == [("github-token", 1)]
    assert SECRET not in shown


def test_home_says_what_the_memory_did_for_agents(kept: Memory, tmp_path: Path) -> None:
    entry = {"agent": "claude", "session": FIRST, "event": "x", "turn": "", "text": "…"}
    errors = {"": 2, "error met never again": 1}
    told = [
        entry | {"at_ms": time.time_ns() // 1_000_000, "error": error} for error, n in errors.items() for _ in range(n)
    ]
    old = entry | {"at_ms": 0, "error": ""}
    (tmp_path / "store" / HOOK_LOG_NAME).write_text("".join(json.dumps(item) + "\n" for item in (old, *told)))
    with served(tmp_path / "store", "--read-only") as running:
        lately = running.json("/told/lately")

    assert lately == {"days": 30, "briefs": 2, "fixes": 1, "solved": 1}
