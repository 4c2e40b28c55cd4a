"""Files that are not what they seem, that change, move or vanish: nothing private is read, nothing held is lost."""

import json
import os
import re
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.agentkit.files import open_beneath
from recollect.agents import adapters
from recollect.api import open_memory
from recollect.live import Live
from tests.faults.rig import (
    IS_SOAK,
    NOBODY,
    Held,
    as_nobody,
    command,
    error_lines,
    listing,
    needs_nobody,
    needs_root,
    needs_strace,
    own,
    run,
    run_json,
    sweep,
)
from tests.logs import CLAUDE, CODEX, GROK, AgentLog, claude_user, line, lines, session_id, tell_places

SECRET = session_id(66)
CLAUDE_FOLDER = Path("projects", "-home-devbox-proj-calc-demo")


def _secret(log: AgentLog) -> bytes:
    """What a naive reader would take for a session, in a place it has no business with."""
    return log.content(1, SECRET, words="PRIVATE KEY")


def _assert_only_the_ordinary_session(held: Held) -> None:
    assert held.texts == ["hello 1", "hello 2"]


# What is no regular file of the user's own


def test_a_link_to_a_file_elsewhere_is_not_read(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    log.write(home, log.content(2))
    (tmp_path / "id_rsa").write_bytes(_secret(log))
    planted = log.path(home, SECRET)
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.symlink_to(tmp_path / "id_rsa")

    held = sweep(tmp_path / "store", log.root_flag(home))

    _assert_only_the_ordinary_session(held)


def test_a_linked_folder_is_not_entered(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    path = log.write(home, log.content(2))
    elsewhere = log.write(tmp_path / "elsewhere", _secret(log), SECRET).parent
    (path.parent / "linked").symlink_to(elsewhere)
    (path.parent.parent / "linked").symlink_to(elsewhere.parent)

    held = sweep(tmp_path / "store", log.root_flag(home))

    _assert_only_the_ordinary_session(held)


def test_a_link_in_the_place_of_the_folder_of_sessions_is_not_followed(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    home.mkdir()
    elsewhere = tmp_path / "elsewhere"
    name = log.write(elsewhere, _secret(log), SECRET).relative_to(elsewhere).parts[0]
    (home / name).symlink_to(elsewhere / name)

    held = sweep(tmp_path / "store", log.root_flag(home))

    assert held.texts == []


def test_a_circle_of_links_is_walked_once(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    path = log.write(home, log.content(2))
    (path.parent / "again").symlink_to(path.parent)
    (path.parent / "self.jsonl").symlink_to("self.jsonl")

    held = sweep(tmp_path / "store", log.root_flag(home))

    _assert_only_the_ordinary_session(held)
    assert held.report.sources == 1


def test_a_fifo_is_reported_and_never_waited_for(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    log.write(home, log.content(2))
    planted = log.path(home, SECRET)
    planted.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(planted)

    done = run(command("sweep", "--root", log.root_flag(home)), tmp_path / "store", timeout=20)

    assert done.returncode == 3
    assert error_lines(done) == [f"Skipped {planted}: is not a regular file"]


@needs_root
def test_a_device_is_reported_and_not_read(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    log.write(home, log.content(2))
    planted = log.path(home, SECRET)
    planted.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(planted, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("this system lets nobody make devices")

    held = sweep(tmp_path / "store", log.root_flag(home))

    _assert_only_the_ordinary_session(held)
    assert held.report.failures == [(str(planted), "is not a regular file")]


def test_a_folder_named_like_a_log_is_just_a_folder(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    log.write(home, log.content(2))
    log.path(home, SECRET).mkdir(parents=True)

    held = sweep(tmp_path / "store", log.root_flag(home))

    _assert_only_the_ordinary_session(held)
    assert held.report.failures == []


def test_a_home_of_hard_links_is_read(tmp_path: Path, log: AgentLog) -> None:
    """As `cp -al` makes it."""
    original = log.write(tmp_path / "home", log.content(2))
    linked = log.path(tmp_path / "copy", session_id())
    linked.parent.mkdir(parents=True)
    linked.hardlink_to(original)

    held = sweep(tmp_path / "store", log.root_flag(tmp_path / "copy"))

    _assert_only_the_ordinary_session(held)
    assert held.report.failures == []


def test_a_file_that_is_replaced_all_the_time_is_read(tmp_path: Path) -> None:
    path, new = tmp_path / "summary.json", tmp_path / "summary.json.new"
    path.write_bytes(b"{}")
    is_over = threading.Event()

    def replace() -> None:
        while not is_over.is_set():
            new.write_bytes(b"{}")
            new.replace(path)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(2000):
            with os.fdopen(open_beneath(tmp_path, path), "rb") as file:
                assert file.read() == b"{}"
    finally:
        is_over.set()
        writer.join()


@needs_root
def test_a_file_of_another_user_is_reported_and_not_read(tmp_path: Path, log: AgentLog) -> None:
    home = tmp_path / "home"
    log.write(home, log.content(2))
    planted = log.write(home, _secret(log), SECRET)
    os.chown(planted, NOBODY, NOBODY)

    held = sweep(tmp_path / "store", log.root_flag(home))

    _assert_only_the_ordinary_session(held)
    assert held.report.failures == [(str(planted), "belongs to another user")]


@needs_nobody
def test_an_unreadable_file_is_told_once_and_read_when_it_can_be(open_folder: Path) -> None:
    home, store = open_folder / "home", open_folder / "store"
    CLAUDE.write(home, CLAUDE.content(2))
    closed = CLAUDE.write(home, CLAUDE.content(1, SECRET), SECRET)
    closed.chmod(0)
    own(open_folder)
    sweeping = as_nobody(command("sweep", "--root", CLAUDE.root_flag(home)))

    first, second = run(sweeping, store), run(sweeping, store)
    problems = run_json(as_nobody(command("status", "--problems", "--json")), store)
    closed.chmod(0o600)
    third = run(sweeping, store)

    assert first.returncode == 3
    assert error_lines(first) == [f"Skipped {closed}: cannot be opened: Permission denied"]
    assert "2 new events" in first.stdout
    assert second.stderr == ""
    assert [problem["path"] for problem in problems] == [str(closed)]
    assert third.returncode == 0
    assert "1 new event" in third.stdout
    assert run_json(as_nobody(command("status", "--problems", "--json")), store) == []


_FIND = """
from recollect.api import open_memory
from recollect.live import Live

with open_memory() as memory:
    print(Live(memory, media_roots=["{}"]).media("cli:1")[0].found_path)
"""


@needs_nobody
def test_a_moved_attachment_is_found_beside_files_that_cannot_be_read(open_folder: Path) -> None:
    files, store = open_folder / "files", open_folder / "store"
    files.mkdir()
    (files / "cat.png").write_bytes(b"cat")
    with open_memory(store) as memory:
        Live(memory).attach_media("cli:1", "photo", files / "cat.png")
    (files / "cat.png").rename(files / "moved.png")
    (files / "dog.png").write_bytes(b"dog")
    (files / "dog.png").chmod(0)
    own(open_folder)

    done = run(as_nobody([sys.executable, "-P", "-c", _FIND.format(files)]), store)

    assert (done.stdout.strip(), done.stderr) == (str(files / "moved.png"), "")


@needs_nobody
def test_a_folder_that_cannot_be_entered_marks_nothing_gone(open_folder: Path) -> None:
    home, store = open_folder / "home", open_folder / "store"
    CLAUDE.write(home, CLAUDE.content(2))
    closed = home / "projects" / "closed"
    closed.mkdir()
    (closed / f"{SECRET}.jsonl").write_bytes(CLAUDE.content(1, SECRET))
    own(open_folder)
    sweeping = as_nobody(command("sweep", "--root", CLAUDE.root_flag(home), "--json"))
    before = run_json(sweeping, store)
    closed.chmod(0)

    after = run_json(sweeping, store)

    closed.chmod(0o700)
    assert before["sessions"] == 2
    assert after["sources_gone"] == 0


@needs_nobody
@pytest.mark.parametrize("mode", [0, 0o600] if IS_SOAK else [0], ids=oct)
def test_a_folder_that_cannot_be_read_is_told_once_and_read_when_it_can_be(
    open_folder: Path, log: AgentLog, mode: int
) -> None:
    home, store = open_folder / "home", open_folder / "store"
    log.write(home, log.content(2))
    closed = log.write(home, log.content(1, SECRET), SECRET).parent
    while closed.parent.parent != home:
        closed = closed.parent
    own(open_folder)
    closed.chmod(mode)
    sweeping = as_nobody(command("sweep", "--json", "--root", log.root_flag(home)))

    first, second = run(sweeping, store), run(sweeping, store)
    problems = run_json(as_nobody(command("status", "--problems", "--json")), store)
    doctor = run(as_nobody(command("doctor", "--root", log.root_flag(home))), store)
    closed.chmod(0o700)
    third = run(sweeping, store)

    told = json.loads(first.stdout)
    assert first.returncode == 3
    assert [path for path, _ in told["failures"]] == [str(closed)]
    assert (second.returncode, json.loads(second.stdout)["failures"]) == (0, [])
    assert [problem["path"] for problem in problems] == [str(closed)]
    assert str(closed) in doctor.stdout
    assert doctor.returncode == 1
    assert third.returncode == 0
    assert told["events_new"] + json.loads(third.stdout)["events_new"] == 3
    assert run_json(as_nobody(command("status", "--problems", "--json")), store) == []


@needs_nobody
def test_a_home_that_cannot_be_read_does_not_keep_others_from_being_read(
    open_folder: Path, log: AgentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for adapter in adapters().values():
        monkeypatch.delenv(adapter.home_variable, raising=False)
    store = open_folder / "store"
    closed, looped = open_folder / "closed", open_folder / "looped"
    log.write(closed, log.content(2))
    looped.symlink_to(looped)
    for other in (CLAUDE, CODEX, GROK):
        other.write(open_folder / other.agent, other.content(1))
    own(open_folder)
    closed.chmod(0)
    homes = {other.agent: [str(open_folder / other.agent)] for other in (CLAUDE, CODEX, GROK)}
    homes[log.agent] = [str(closed), str(looped), *homes[log.agent]]
    (open_folder / "empty").mkdir()
    homes |= {agent: [str(open_folder / "empty")] for agent in adapters().keys() - homes.keys()}
    store.mkdir()
    (store / "config.toml").write_text("".join(f"[agents.{name}]\nroots = {told}\n" for name, told in homes.items()))
    own(store)

    done = run(as_nobody(command("sweep", "--json")), store)

    closed.chmod(0o700)
    told = json.loads(done.stdout)
    assert done.returncode == 3
    assert [path for path, _ in told["failures"]] == [str(closed), str(looped)]
    assert told["sessions"] == 3


# Names


def _write_named(home: Path, name: bytes, content: bytes) -> None:
    folder = home / CLAUDE_FOLDER
    folder.mkdir(parents=True)
    (folder / os.fsdecode(name + b".jsonl")).write_bytes(content)


@pytest.mark.parametrize("name", [b"caf\xff\xfe", b"two\nlines", b"tab\tand\x1b[31mred", b"x" * 240], ids=repr)
def test_a_file_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    home = tmp_path / "home"
    _write_named(home, name, CLAUDE.content(2))

    first = sweep(tmp_path / "store", CLAUDE.root_flag(home))
    second = sweep(tmp_path / "store", CLAUDE.root_flag(home))
    shown = [run(command(*words), tmp_path / "store") for words in (["sessions", "--json"], ["show", session_id()])]

    _assert_only_the_ordinary_session(first)
    assert second.report.lines_read == 0
    assert [done.returncode for done in shown] == [0, 0]


def test_a_damaged_file_with_an_odd_name_is_listed_without_harm(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _write_named(home, b"a\nb\x1b[31m\xff", b"no JSON\n")
    sweep(tmp_path / "store", CLAUDE.root_flag(home))

    done = run(command("status", "--problems"), tmp_path / "store")

    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "not JSON" in done.stdout


# Files that change


def _changed(tmp_path: Path, log: AgentLog, change: Callable[[Path], None]) -> tuple[Held, Held]:
    """What is held before and after a session's file of five messages was changed."""
    home, store = tmp_path / "home", tmp_path / "store"
    path = log.write(home, log.content(5))
    before = sweep(store, log.root_flag(home))
    assert before.texts == [f"hello {number}" for number in range(1, 6)]

    change(path)
    after = sweep(store, log.root_flag(home))

    assert after.report.failures == []
    return before, after


def test_a_file_cut_short_loses_nothing_that_was_read(tmp_path: Path, log: AgentLog) -> None:
    before, after = _changed(tmp_path, log, lambda path: os.truncate(path, path.stat().st_size // 2))

    assert after.texts == before.texts
    assert after.hashes == before.hashes


def test_a_file_emptied_and_written_anew_adds_to_what_was_read(tmp_path: Path, log: AgentLog) -> None:
    def change(path: Path) -> None:
        path.write_bytes(lines([*log.opening(session_id()), log.message(session_id(), 40, "new")]))

    before, after = _changed(tmp_path, log, change)

    assert sorted(after.texts) == sorted([*before.texts, "new"])


def test_a_file_replaced_by_another_session_leaves_both(tmp_path: Path, log: AgentLog) -> None:
    other = session_id(2)

    def change(path: Path) -> None:
        fresh = path.with_name("fresh")
        fresh.write_bytes(log.content(7, other, words="other"))
        fresh.rename(path)

    before, after = _changed(tmp_path, log, change)

    assert len([text for text in after.texts if text.startswith("hello")]) == len(before.texts)
    assert len([text for text in after.texts if text.startswith("other")]) == 7


def test_a_file_compacted_in_place_keeps_what_it_no_longer_says(tmp_path: Path, log: AgentLog) -> None:
    """The new content is longer than the cursor's offset, and begins as before: only the tail tells."""

    def change(path: Path) -> None:
        kept = path.read_bytes().splitlines(keepends=True)[: len(log.opening(session_id())) + 1]
        path.write_bytes(b"".join(kept) + line(log.message(session_id(), 50, "summary " * 500)))

    before, after = _changed(tmp_path, log, change)

    assert set(before.texts) < set(after.texts)
    assert "summary " * 500 in after.texts


@pytest.mark.parametrize(("old", "new"), [(b"hello 1", b"HELLO 1"), (b'"main"}\n', b'"next"}\n')], ids=["head", "tail"])
def test_a_change_in_the_first_or_last_bytes_makes_the_file_be_read_again(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    def change(path: Path) -> None:
        before, _, after = path.read_bytes().rpartition(old)
        path.write_bytes(before + new + after)

    before, after = _changed(tmp_path, CLAUDE, change)

    assert set(before.texts) <= set(after.texts)
    assert after.report.lines_read == 5


def test_an_event_stays_as_first_read_when_its_line_is_changed_in_the_middle(tmp_path: Path, log: AgentLog) -> None:
    """Only the head and the bytes before the cursor are compared: same size and same ends read nothing again."""

    def change(path: Path) -> None:
        path.write_bytes(path.read_bytes().replace(b"hello 3", b"HELLO 3"))

    before, after = _changed(tmp_path, log, change)
    verified = sweep(tmp_path / "store", log.root_flag(tmp_path / "home"), verify=True)

    assert set(before.texts) <= set(after.texts)
    assert set(before.texts) <= set(verified.texts)


def test_touching_a_file_reads_no_line_again(tmp_path: Path) -> None:
    _, after = _changed(tmp_path, CLAUDE, lambda path: os.utime(path, (1, 1)))

    assert after.report.lines_read == 0
    assert after.report.events_new == 0


def test_an_archived_file_takes_its_cursor_along(tmp_path: Path) -> None:
    home = tmp_path / "home"
    archive = home / "archived_sessions"

    def change(path: Path) -> None:
        archive.mkdir()
        path.rename(archive / path.name)

    before, after = _changed(tmp_path, CODEX, change)

    assert after.report.lines_read == 0
    assert after.report.sources_gone == 0
    assert after.hashes == before.hashes
    (source,) = after.sessions[0].sources
    assert Path(source.path).parent == archive
    assert source.source_gone_at is None


def test_an_archived_file_that_grew_is_doubled_nowhere(tmp_path: Path) -> None:
    archive = tmp_path / "home" / "archived_sessions"

    def change(path: Path) -> None:
        archive.mkdir()
        moved = path.rename(archive / path.name)
        with moved.open("ab") as file:
            file.write(line(CODEX.message(session_id(), 6, "hello 6")))

    _, after = _changed(tmp_path, CODEX, change)

    assert after.texts == [f"hello {number}" for number in range(1, 7)]
    assert after.report.events_new == 1


# Files that change while they are read


def _sweep_and(store: Path, log: AgentLog, home: Path, act: Callable[[], None]) -> None:
    """Sweep, and do something once, when some of the lines have been read."""
    tell_places(home)  # else a session waits for all others to tell where it ran
    acts = [act]

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("reading") and done > total // 10 and acts:
            acts.pop()()

    with pytest.MonkeyPatch.context() as patch, open_memory(store, [log.root_flag(home)]) as memory:
        patch.setattr("recollect.ingest.pool.BATCH_EVENTS", 1000)  # so that a small file takes several transactions
        memory.sweep(progress)
    assert not acts


MANY = 2600  # more than two batches of `_sweep_and`


def test_a_file_deleted_in_mid_read_is_read_to_its_end(tmp_path: Path, log: AgentLog) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    path = log.write(home, log.content(MANY))

    _sweep_and(store, log, home, path.unlink)

    held = sweep(store, log.root_flag(home))
    assert len(held.texts) == len(set(held.texts)) == MANY


def test_a_file_that_grows_in_mid_read_is_read_once(tmp_path: Path, log: AgentLog) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    path = log.write(home, log.content(MANY))

    def grow() -> None:
        with path.open("ab") as file:
            file.write(lines(log.message(session_id(), MANY + more, f"more {more}") for more in range(1, 6)))

    _sweep_and(store, log, home, grow)

    held = sweep(store, log.root_flag(home))
    assert len(held.texts) == len(set(held.texts)) == MANY + 5


def test_a_file_cut_in_mid_read_ends_nothing(tmp_path: Path, log: AgentLog) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    path = log.write(home, log.content(MANY))

    _sweep_and(store, log, home, lambda: os.truncate(path, 0))

    held = sweep(store, log.root_flag(home))
    path.write_bytes(log.content(MANY))
    restored = sweep(store, log.root_flag(home))
    assert held.report.failures == []
    assert len(restored.texts) == len(set(restored.texts)) == MANY


def test_a_file_deleted_before_its_turn_does_not_stop_the_others(tmp_path: Path, log: AgentLog) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    newest = log.write(home, log.content(MANY))
    doomed = log.write(home, log.content(3, session_id(2)), session_id(2))
    log.write(home, log.content(4, session_id(3), words="last"), session_id(3))
    os.utime(newest)

    _sweep_and(store, log, home, doomed.unlink)

    held = sweep(store, log.root_flag(home))
    assert len(held.texts) == MANY + 4
    assert held.report.failures == []
    assert held.problems == []


# Files that vanish


def _two_sessions(tmp_path: Path, log: AgentLog) -> tuple[Path, Path]:
    home = tmp_path / "home"
    log.write(home, log.content(2))
    return home, log.write(home, log.content(3, session_id(2), words="other"), session_id(2))


def _gone(held: Held) -> list[str]:
    """The sessions with a file that is marked as gone."""
    return [
        session.native_session_id
        for session in held.sessions
        if any(source.source_gone_at is not None for source in session.sources)
    ]


def test_a_vanished_file_is_marked_and_nothing_of_it_deleted(tmp_path: Path, log: AgentLog) -> None:
    home, path = _two_sessions(tmp_path, log)
    before = sweep(tmp_path / "store", log.root_flag(home))
    path.unlink()

    after = sweep(tmp_path / "store", log.root_flag(home))

    assert after.report.sources_gone == 1
    assert _gone(after) == [session_id(2)]
    assert after.texts == before.texts
    assert after.hashes == before.hashes


def test_a_file_that_comes_back_loses_its_mark(tmp_path: Path, log: AgentLog) -> None:
    home, path = _two_sessions(tmp_path, log)
    content = path.read_bytes()
    before = sweep(tmp_path / "store", log.root_flag(home))
    path.unlink()
    sweep(tmp_path / "store", log.root_flag(home))
    path.write_bytes(content)

    after = sweep(tmp_path / "store", log.root_flag(home))

    assert _gone(after) == []
    assert after.report.events_new == 0
    assert after.hashes == before.hashes


@pytest.mark.parametrize("what", ["empty", "missing"])
def test_a_home_that_is_suddenly_empty_marks_nothing_gone(tmp_path: Path, log: AgentLog, what: str) -> None:
    home, _ = _two_sessions(tmp_path, log)
    before = sweep(tmp_path / "store", log.root_flag(home))
    home.rename(tmp_path / "unmounted")
    if what == "empty":
        home.mkdir()

    after = sweep(tmp_path / "store", log.root_flag(home))

    assert after.report.sources_gone == 0
    assert _gone(after) == []
    assert after.hashes == before.hashes


# The root


def test_a_root_may_be_a_link_and_is_known_by_its_real_path(tmp_path: Path, log: AgentLog) -> None:
    home, _ = _two_sessions(tmp_path, log)
    linked = tmp_path / "linked"
    linked.symlink_to(home)

    by_link = sweep(tmp_path / "store", log.root_flag(linked))
    by_path = sweep(tmp_path / "store", log.root_flag(home), log.root_flag(linked))

    assert len(by_link.texts) == 5
    assert by_path.report.lines_read == 0
    assert by_path.report.sources == by_link.report.sources
    assert {Path(source.path).is_relative_to(home) for found in by_path.sessions for source in found.sources} == {True}


def test_a_root_that_is_a_file_is_no_harm(tmp_path: Path, log: AgentLog) -> None:
    (tmp_path / "home").write_bytes(log.content(2))

    held = sweep(tmp_path / "store", log.root_flag(tmp_path / "home"))

    assert held.texts == []


# Only read


def _all_homes(tmp_path: Path) -> tuple[Path, list[str]]:
    homes = tmp_path / "homes"
    for log in (CLAUDE, CODEX, GROK):
        log.write(homes / log.agent, log.content(4))
        log.write(homes / log.agent, log.content(1, SECRET) + b"torn", SECRET)
    (homes / "claude" / "projects" / "x.jsonl").write_bytes(line(claude_user(session_id(3), 1, "loose")))
    flags = [part for log in (CLAUDE, CODEX, GROK) for part in ("--root", log.root_flag(homes / log.agent))]
    return homes, flags


def test_a_sweep_leaves_the_agents_files_as_they_were(tmp_path: Path) -> None:
    homes, flags = _all_homes(tmp_path)
    before = listing(homes)

    done = run(command("sweep", *flags), tmp_path / "store")
    again = run(command("sweep", "--verify", *flags), tmp_path / "store")

    assert (done.returncode, again.returncode) == (0, 0)
    assert listing(homes) == before


_CHANGING = "unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,chmod,fchmodat,chown,lchown,fchownat"
_CHANGING += ",truncate,link,linkat,symlink,symlinkat,utimensat,utimes,utime,futimesat,mknod,mknodat,setxattr"
_WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE")


@needs_strace
def test_no_system_call_writes_below_an_agents_home_or_reaches_for_a_network(tmp_path: Path) -> None:
    homes, flags = _all_homes(tmp_path)
    log = tmp_path / "calls"
    calls = f"trace=open,openat,openat2,creat,connect,sendto,bind,{_CHANGING}"
    # -y shows the folder behind each descriptor: files are opened relative to one.
    traced = ["strace", "-f", "-y", "-qq", "-o", str(log), "-e", calls, *command("sweep", *flags)]

    done = run(traced, tmp_path / "store")

    assert done.returncode == 0, done.stderr
    seen = log.read_text().splitlines()
    below = [call for call in seen if str(homes) in call]
    assert any("openat(" in call for call in below)
    assert [call for call in below if _WRITING.search(call) or "openat" not in call] == []
    assert [call for call in seen if re.search(r"\b(connect|sendto|bind)\(", call)] == []
