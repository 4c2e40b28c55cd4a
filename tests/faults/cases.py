"""The commands that are struck beside sweeps. One that is added here is put through every rig.

Each has a judge of its own: what it was about to do is done wholly or not at all, and doing it again does the rest.
"""

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

from recollect.api import open_memory, restore
from recollect.live import Backfill, Live
from recollect.model.errors import RecollectError
from tests.faults.crashes import Case, MakeCase
from tests.faults.outside import OUTSIDE
from tests.faults.rig import Held, command, examine, problems, run, sweep, swept_sessions
from tests.faults.work import Writers, texts_on_disk
from tests.forget.traces import Planted, left_in, rare_words
from tests.logs import session_id
from tests.store.repacking import repacking

_CHOSEN = session_id(3)  # of an agent that gives every session a folder of its own
_CROWDED = "[retention]\nraw_soft_cap = 1\nraw_hard_cap = 1\n"


def _words_of(writers: Writers, session: str) -> list[str]:
    """A word of every message of a session that stands nowhere else."""
    (path,) = (path for path in writers.home.rglob("*.jsonl") if session in str(path))
    return [text.split()[2][:60] for text in texts_on_disk(path.parent)]


# Forgetting


def forgetting(folder: Path, bug: str | None) -> Case:
    """Half of the sessions of every agent; their words stand in messages, in packs and in torn lines."""
    planted = Planted(folder / "home", rare_words(3, 45))
    sweep(folder / "template", *planted.roots)
    words = ["forget", *planted.forgotten, "--yes"]
    return Case("forget", words, planted, folder / "template", bug, _judge_forgetting)


def _judge_forgetting(store: Path, planted: Planted, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the sessions are whole, or gone to the last byte, all of them."""
    try:
        held = sweep(store, *planted.roots)
    except RecollectError as error:
        return [f"unusable: {error.message}"]
    assert clean is not None
    is_gone = not {session.native_session_id for session in held.sessions} & set(planted.forgotten)
    gone = [session.session_uid for session in clean.sessions if session.native_session_id in planted.forgotten]
    expected = {uid: told for uid, told in clean.hashes.items() if not (is_gone and uid in gone)}
    findings = [] if held.hashes == expected else ["other content hashes than a clean store"]
    left, whole = left_in(store, planted.words), set() if is_gone else set(planted.words)
    findings += [f"not forgotten: {word}" for word in left - whole] + [f"lost: {word}" for word in whole - left]
    return [*findings, *problems(store)]


# Newer rules


def rescanning(folder: Path, bug: str | None) -> Case:
    writers = swept_sessions(folder, 32)
    word = min(_words_of(writers, _CHOSEN), key=len)  # one that is short enough to be indexed
    (folder / "template" / "config.toml").write_text(f"[redact.rules]\nown = '{word}'\n")
    return Case("rescan", ["redact", "--rescan"], writers, folder / "template", bug, _judge_rescan)


def _judge_rescan(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the next one leaves nothing of what the new rule is about, and everything else as it was."""
    done = run(command("redact", "--rescan"), store)
    held = sweep(store, *writers.roots)
    rule = (store / "config.toml").read_text()
    (store / "config.toml").unlink()
    word = rule.split("'")[1]
    left = left_in(store, [word])
    findings = [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    findings += [f"left: {len(left)} secrets"] if left else []
    if len(held.texts) != texts_on_disk(writers.home).total():
        findings.append("messages are lost")
    return [*findings, *problems(store)]


# Evicting


def evicting(folder: Path, bug: str | None) -> Case:
    words = ["retention"]
    return Case("retention", words, swept_sessions(folder, 33, _CROWDED), folder / "template", bug, _judge_eviction)


def _judge_eviction(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the next sweep leaves every session its row and its digest, and nothing of its raw detail."""
    assert clean is not None
    with open_memory(store, writers.roots) as memory:
        memory.sweep()
        sessions = memory.sessions()
        digests = {session.session_uid: memory.digest(session) for session in sessions}
        raw = [session.session_uid for session in sessions if memory.events(session, with_copies=True)]
        losses = memory.status().retention.losses
    findings = [f"not evicted: {uid}" for uid in raw] + [f"lost: {name}" for name in losses]
    if {uid: digest.covers for uid, digest in digests.items()} != {
        uid: digest.covers for uid, digest in clean.digests.items()
    }:
        findings.append("other digests than a clean store")
    return [*findings, *problems(store)]


def rehydrating(folder: Path, bug: str | None) -> Case:
    writers, template = swept_sessions(folder, 46, _CROWDED), folder / "template"
    assert run(command("retention"), template).returncode == 0
    (template / "config.toml").unlink()
    words = ["retention", "rehydrate", _CHOSEN, *writers.root_flags]
    return Case("rehydrate", words, writers, template, bug, _judge_rehydration)


def _judge_rehydration(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """The session is evicted or whole; another run makes it whole, and the others stay evicted."""
    assert clean is not None
    expected = [event.event_uid for event in clean.events if _CHOSEN in event.session_uid]
    findings = [] if (early := _raw(store)) in ({}, {_CHOSEN: expected}) else [f"half done: {early}"]
    done = run(command("retention", "rehydrate", _CHOSEN, *writers.root_flags), store)
    if done.returncode not in ((0, 4) if early else (0,)):  # what is back is not evicted any more
        findings.append(f"exit code {done.returncode}: {done.stderr}")
    findings += [] if (late := _raw(store)) == {_CHOSEN: expected} else [f"after another run: {late}"]
    with open_memory(store) as memory:
        digests = {session.session_uid: memory.digest(session).covers for session in memory.sessions()}
    if digests != {uid: digest.covers for uid, digest in clean.digests.items()}:
        findings.append("other digests than a clean store")
    return [*findings, *problems(store)]


def _raw(store: Path) -> dict[str, list[str]]:
    """The events of the sessions that have some."""
    with open_memory(store) as memory:
        held = [(session, memory.events(session, with_copies=True)) for session in memory.sessions()]
    return {session.native_session_id: [event.event_uid for event in events] for session, events in held if events}


# Copies of the store


def backing_up(folder: Path, bug: str | None) -> Case:
    words = ["backup", "{store}.backup"]
    return Case("backup", words, swept_sessions(folder, 34), folder / "template", bug, _judge_backup)


def _judge_backup(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the store is as it was; the backup, if it has its name, gives it back; and another one can be made."""
    findings = examine(store, writers, clean, bug)
    backup, second = Path(f"{store}.backup"), Path(f"{store}.second")
    done = run(command("backup", str(second)), store)
    if done.returncode:
        findings.append(f"no second backup: {done.stderr}")
    for path in (backup, second):
        with suppress(FileNotFoundError):
            findings += _differing(path, store.with_name(f"restored-{path.suffix}"), clean)
    return findings


def _differing(backup: Path, target: Path, clean: Held | None) -> Sequence[str]:
    if not backup.exists():
        return []
    restore(backup, target)
    with open_memory(target) as memory:
        hashes = {session.session_uid: session.content_hash for session in memory.sessions()}
    return [] if clean is None or hashes == clean.hashes else [f"{backup.name} holds something else"]


def restoring(folder: Path, bug: str | None) -> Case:
    writers = swept_sessions(folder, 35)
    with open_memory(folder / "template") as memory:
        memory.backup(folder / "backup.tar.zst")
    writers.write([3] * 6)
    writers.finish()
    sweep(folder / "template", *writers.roots)
    words = ["restore", str(folder / "backup.tar.zst"), "--yes"]
    return Case("restore", words, writers, folder / "template", bug, _judge_restore)


def _judge_restore(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether it is the old store or the one of the backup, and no mixture; a sweep makes either complete."""
    try:
        with open_memory(store) as memory:
            counts = {session.event_count for session in memory.sessions()}
    except RecollectError as error:
        return [f"unusable: {error.message}"]
    mixed = [f"a mixture: sessions with {sorted(counts)} events"] if len(counts) > 1 else []
    return mixed + examine(store, writers, clean, bug)


# Documents


def archiving(folder: Path, bug: str | None) -> Case:
    words = ["archive", _CHOSEN, "--to", "{store}.documents"]
    return Case("archive", words, swept_sessions(folder, 36), folder / "template", bug, _judge_archive)


def _judge_archive(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the document is whole or absent, and the next run leaves exactly one, which the store knows."""
    folder = Path(f"{store}.documents")
    early = {path.name: path.read_bytes() for path in folder.glob("[!.]*")} if folder.exists() else {}
    done = run(command("archive", _CHOSEN, "--to", str(folder)), store)
    findings = [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    held = {path.name: path.read_bytes() for path in folder.iterdir()}
    with open_memory(store) as memory:
        known = [Path(document.path).name for document in memory.archives.of(memory.session(_CHOSEN))]
    if len(held) != 1 or known != list(held) or (early and early != held):
        findings.append(f"documents: {sorted(early)}, then {sorted(held)}; known: {known}")
    return [*findings, *examine(store, writers, clean, bug)]


# What users want remembered


_REMEMBER = ["remember", "--topic", "cache", "We keep no cache"]


def remembering(folder: Path, bug: str | None) -> Case:
    return Case("remember", _REMEMBER, swept_sessions(folder, 38), folder / "template", bug, _judge_note)


def _judge_note(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether it is remembered once after the command was given again, by the databases and by the ledger."""
    done = run(command(*_REMEMBER), store)
    findings = [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    with open_memory(store) as memory:
        held = [fact.fact_uid for fact in memory.knowledge.decisions() if fact.method == "remember"]
    ledger = [json.loads(line) for line in (store / "ledger.jsonl").read_bytes().splitlines() if line.endswith(b"}")]
    written = {record["data"]["note_uid"] for record in ledger if record["kind"] == "note"}
    if len(held) != 1 or written != set(held):
        findings.append(f"notes: {held}, in the ledger: {sorted(written)}")
    return [*findings, *examine(store, writers, clean, bug)]


# Messages of an agent host

_HOST_SAID = {f"chat{number}": [f"message {number} {part}" for part in range(3)] for number in range(3)}


def importing_jsonl(folder: Path, bug: str | None) -> Case:
    writers, files = swept_sessions(folder, 36), folder / "files"
    files.mkdir()
    for key, texts in _HOST_SAID.items():
        lines = (json.dumps({"role": "user", "content": text}) for text in texts)
        (files / f"{key}.jsonl").write_text("\n".join(lines) + "\n")
    return Case("import jsonl", ["import", "jsonl", str(files)], writers, folder / "template", bug, _judge_jsonl)


def _judge_jsonl(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether each session is whole or absent, the next import does the rest, and each message is there once."""
    with open_memory(store) as memory:
        live = Live(memory)
        held = {key: [message.content for message in live.get_history(key)] for key in _HOST_SAID}
        findings = [f"torn: {key}" for key, texts in held.items() if texts not in ([], _HOST_SAID[key])]
        Backfill(live).run(writers.home.parent / "files")
        held = {key: [message.content for message in live.get_history(key)] for key in _HOST_SAID}
        findings += [] if held == _HOST_SAID else [f"another import left: {held}"]
        found = memory.search("message 2 1")
    return [*findings, *([] if found else ["not found by a search"]), *problems(store)]


# Conversations of a group


def clearing(folder: Path, bug: str | None) -> Case:
    writers = swept_sessions(folder, 38)
    with open_memory(folder / "template") as memory:
        memory.groups.sessions().set(memory.session(_CHOSEN).session_uid)
    return Case("clear", ["group", "clear", "later"], writers, folder / "template", bug, _judge_clear)


def _judge_clear(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the session is active or bookmarked, not both, and the next run leaves it bookmarked and archived."""
    findings = []
    with open_memory(store) as memory:
        is_active, marks = memory.groups.sessions().get() is not None, memory.groups.sessions().history()
    if is_active == bool(marks):
        findings.append(f"active: {is_active}, bookmarks: {marks}")
    if is_active:
        done = run(command("group", "clear", "later"), store)
        findings += [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    with open_memory(store) as memory:
        names = [mark.name for mark in memory.groups.sessions().history()]
        kept = [Path(document.path).exists() for document in memory.archives.of(memory.session(_CHOSEN))]
    if names != ["later"] or kept != [True]:
        findings.append(f"bookmarks: {names}, documents: {kept}")
    return [*findings, *examine(store, writers, clean, bug)]


def going_back(folder: Path, bug: str | None) -> Case:
    """From one conversation, which is kept under a name, to another."""
    writers = swept_sessions(folder, 42)
    with open_memory(folder / "template") as memory:
        sessions = memory.groups.sessions()
        sessions.set(memory.session(_CHOSEN).session_uid)
        sessions.put_aside("earlier")
        sessions.set("claude:the-next")
    words = ["resume", "earlier", "--save-as", "later"]
    return Case("resume a bookmark", words, writers, folder / "template", bug, _judge_going_back)


def _judge_going_back(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether both conversations are known, one as the active one, and the next run leaves them changed over."""
    findings = []
    with open_memory(store) as memory:
        own = memory.session(_CHOSEN).session_uid
    old, new = ("claude:the-next", [("earlier", own)]), (own, [("later", "claude:the-next")])
    if (early := _bookmarked(store)) not in (old, new):
        findings.append(f"half done: {early}")
    if early == old:
        done = run(command("resume", "earlier", "--save-as", "later"), store)
        findings += [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    if (late := _bookmarked(store)) != new:
        findings.append(f"after another run: {late}")
    return [*findings, *examine(store, writers, clean, bug)]


def _bookmarked(store: Path) -> tuple[str | None, list[tuple[str, str]]]:
    with open_memory(store) as memory:
        sessions = memory.groups.sessions()
        return sessions.get(), [(mark.name, mark.session_uid) for mark in sessions.history()]


# Requests of a sandboxed agent


def serving(folder: Path, bug: str | None) -> Case:
    """One request that changes something and one that only asks, in the order of their names."""
    writers, work = swept_sessions(folder, 40), folder / "work"
    work.mkdir()
    with open_memory(folder / "template") as memory:
        memory.groups.add("work", work)
        memory.groups.sessions("work").set("claude:the-conversation")
    tasks = folder / "template" / "groups" / "work" / "ipc" / "tasks"
    for name, request in ("a", {"action": "clear", "name": "later"}), ("b", {"action": "list"}):
        (tasks / f"{name}.json").write_text(json.dumps(request))
    return Case("ipc serve", ["ipc", "serve", "--once"], writers, folder / "template", bug, _judge_served)


def _judge_served(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the next one has each request answered, and what was asked for is done once, or refused with the disk's
    error and not done."""
    with open_memory(store) as memory:
        sessions = memory.groups.sessions("work")
        early = (sessions.get(), [mark.name for mark in sessions.history()])
    old, new = ("claude:the-conversation", []), (None, ["later"])
    findings = [] if early in (old, new) else [f"half done: {early}"]
    done = run(command("group", "serve", "--once"), store)
    findings += [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    ipc = store / "groups" / "work" / "ipc"
    answers = [json.loads(path.read_text()) for path in sorted((ipc / "answers").glob("[!.]*"))]
    with open_memory(store) as memory:
        sessions = memory.groups.sessions("work")
        late = (sessions.get(), [mark.name for mark in sessions.history()])
    told = [(answer["id"], answer["ok"], [mark["name"] for mark in answer.get("bookmarks", ())]) for answer in answers]
    is_done = late == new and told == [("a", True, []), ("b", True, ["later"])]
    is_refused = late == old and told == [("a", False, []), ("b", True, [])]
    is_refused = is_refused and answers[0]["error"]["code"] == "store_unwritable"
    if not (is_done or is_refused) or list((ipc / "tasks").glob("[!.]*")):
        findings.append(f"answers: {told}; state: {late}")
    return [*findings, *examine(store, writers, clean, bug)]


# A file that its agent deleted

_DELETED = session_id(2)  # of an agent whose rebuilt file is not what it wrote itself


def rebuilding(folder: Path, bug: str | None) -> Case:
    writers = swept_sessions(folder, 39)
    (path,) = (path for path in writers.home.rglob("*.jsonl") if _DELETED in path.name)
    roots = (root.split("=", 1) for root in writers.roots)
    config = "".join(f"[agents.{agent}]\nroots = ['{folder}']\n" for agent, folder in roots)
    (folder / "template" / "config.toml").write_text(config)
    path.unlink()
    words = ["resume", _DELETED, "--yes"]
    return Case("resume", words, writers, folder / "template", bug, _judge_rebuild, writers.home)


def _judge_rebuild(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether the file is whole or absent, is there after the next run, and no sweep takes anything of it for new."""
    with open_memory(store.parent.parent / "template") as memory:
        expected = [event.event_uid for event in memory.events(memory.session(_DELETED), with_copies=True)]
    held = sweep(store, *writers.roots)
    done = run(command("resume", _DELETED, "--yes"), store)
    findings = [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    later = sweep(store, *writers.roots)
    for name, found in ("after the fault", held), ("after another run", later):
        (session,) = (session for session in found.sessions if session.native_session_id == _DELETED)
        uids = [event.event_uid for event in found.events if event.session_uid == session.session_uid]
        findings += [] if uids == expected else [f"{len(uids)} events of {len(expected)} {name}"]
    written = [path for path in writers.home.rglob("*") if _DELETED in path.name]
    findings += [] if len(written) == 1 else [f"files: {[path.name for path in written]}"]
    return [*findings, *problems(store)]


# Commands that write one small thing: what another command answers is as before or as after, and after another run
# as after it.


class Small(NamedTuple):
    """A command, what asks for its effect, and what is run before.

    In the first and the last, `{folder}` is filled in, and `{store}` and the first `{fact}` in the first.
    """

    words: list[str]
    question: list[str]
    before: tuple[list[str], ...] = ()
    again: tuple[int, ...] = (0,)  # how it may end when it is given again
    is_whole: bool = True  # half of it may not be seen
    is_anew: bool = False  # on another store, which holds the sessions of one agent only


_PLAN = "# We use pnpm\n\n- because it is fast\n"
_MARKS: list[str] = []  # no command prints all that a user said about a session
SMALL = {
    "star": Small(["mark", "star", _CHOSEN], _MARKS),
    "tag": Small(["mark", "tag", _CHOSEN, "keep"], _MARKS),
    "note": Small(["mark", "note", _CHOSEN, "look again"], _MARKS),
    "rename": Small(["mark", "rename", _CHOSEN, "a name"], _MARKS),
    "track": Small(["track", "deny", "diary"], ["track", "list", "--json"]),
    "exclude": Small(["exclude", "/old/place/**"], ["exclude", "--json"]),
    "config": Small(["config", "domains.shop", "shops"], ["config", "--json"]),
    "decisions import": Small(["decisions", "import", "{folder}/plan.md"], ["decisions", "--json"]),
    "audit reject": Small(
        ["knowledge", "audit", "reject", "{fact}"], ["decisions", "--json"], (_REMEMBER,), again=(0, 4)
    ),
    "group add": Small(["group", "add", "fam", "--path", "{folder}/work"], ["group", "list", "--json"], is_whole=False),
    "group remove": Small(
        ["group", "remove", "fam", "--yes"],
        ["group", "list", "--json"],
        (["group", "add", "fam", "--path", "{folder}/work"],),
        again=(0, 4),
        is_whole=False,
    ),
    "export": Small(["export", "{store}.tar"], ["sessions", "--all", "--json"], again=(0, 2)),
    "import": Small(
        ["import", "{folder}/export.tar"],
        ["sessions", "--all", "--json"],
        (["export", "{folder}/export.tar"],),
        is_whole=False,
        is_anew=True,
    ),
}


def small(name: str) -> MakeCase:
    def make(folder: Path, bug: str | None) -> Case:
        writers, template = swept_sessions(folder, 43), folder / "template"
        (folder / "work").mkdir()
        (folder / "plan.md").write_text(_PLAN)
        for words in SMALL[name].before:
            _say([word.format(folder=folder) for word in words], template)
        if SMALL[name].is_anew:
            shutil.rmtree(template)
            sweep(template, writers.roots[0])
        with open_memory(template) as memory:
            fact = next((fact.fact_uid for fact in memory.knowledge.decisions()), "")
        words = [word.format(folder=folder, fact=fact, store="{store}") for word in SMALL[name].words]
        filled = SMALL[name]._replace(words=words)
        done = shutil.copytree(template, folder / "done")
        _say(words, done)
        answers = [_answer(filled, store) for store in (template, done)]
        assert answers[0] != answers[1] or name == "export"
        judge = partial(_judge_small, filled, answers)
        return Case(name, words, writers, template, bug, judge)

    make.__name__ = name
    return make


def _say(words: list[str], store: Path) -> CompletedProcess[str]:
    return run(command(*(word.format(store=store) for word in words)), store)


def _answer(small: Small, store: Path) -> str:
    """What the question is answered, without moments and the store's own path."""
    if small.question:
        said = _say(small.question, store)
        answer = said.stdout + said.stderr
    else:
        with open_memory(store) as memory:
            answer = str(memory.annotations.of(memory.session(_CHOSEN)))
    return re.sub(r"20\d\d-\d\d-\d\d[T ][\d:.]+Z?", "then", answer.replace(str(store), "STORE"))


def _judge_small(
    small: Small, answers: list[str], store: Path, writers: Writers, clean: Held | None, bug: str | None
) -> list[str]:
    early = _answer(small, store)
    done = _say(small.words, store)
    late = _answer(small, store)
    findings = [f"half done: {early}"] if small.is_whole and early not in answers else []
    findings += [f"exit code {done.returncode}: {done.stderr}"] if done.returncode not in small.again else []
    findings += [f"after another run: {late}"] if late != answers[1] else []
    return [*findings, *problems(store)]


CASES: tuple[MakeCase, ...] = (
    *map(small, SMALL),
    *(forgetting, rescanning, evicting, rehydrating, backing_up, restoring, archiving, clearing),
    *(importing_jsonl, remembering, rebuilding, serving, repacking, going_back),
    *OUTSIDE,
)
