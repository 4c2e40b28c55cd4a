"""The commands that write outside the store: into the homes of agents. They are struck there too.

A file there is the old one or the new one, never half of it; doing the command again completes it, and neither leaves
anything of its own beside the agents' files.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from tests.faults.crashes import Case, MakeCase
from tests.faults.rig import Held, command, examine, run, swept_sessions
from tests.faults.work import Writers
from tests.logs import record_id, session_id

# Sessions in an agent's home

_FORKED = session_id(1)  # of an agent whose sessions can be cut
_HANDED_OVER = session_id(2)  # of another agent, for that one to go on with


def forking(folder: Path, bug: str | None) -> Case:
    writers = _swept(folder, 44)
    words = ["resume", _FORKED, "--fork", "--at", "3", "--yes"]
    return Case("fork", words, writers, folder / "template", bug, _judge_fork, writers.home)


def _judge_fork(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Each fork has all messages up to the one it was cut at, another run adds one, and the session stays as it is."""
    early = _new_files(writers)
    done = run(command("resume", _FORKED, "--fork", "--at", "3", "--yes"), store)
    findings = [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    originals = [record_id(_FORKED, number) for number in _numbers(writers)[:3]]
    late = _new_files(writers)
    for path in late:
        entries = [json.loads(line) for line in path.read_bytes().splitlines()]
        copied = [entry["forkedFrom"]["messageUuid"] for entry in entries if "forkedFrom" in entry]
        findings += [] if copied == originals else [f"a fork of {copied}"]
    if len(late) != len(early) + 1 or len(early) > 1:
        findings.append(f"{len(early)} forks after the fault, {len(late)} after another run")
    return [*findings, *_left_in(writers.home), *examine(store, writers, None, bug)]


def _numbers(writers: Writers) -> list[int]:
    """Which of all messages are in the session, in order."""
    (path,) = writers.home.rglob(f"{_FORKED}.jsonl")
    texts = [json.loads(line)["message"]["content"] for line in path.read_bytes().splitlines()]
    return [int(text.split()[1]) for text in texts]


def handing_over(folder: Path, bug: str | None) -> Case:
    writers = _swept(folder, 45)
    words = ["handoff", _HANDED_OVER, "--to", "claude", "--yes"]
    return Case("handoff", words, writers, folder / "template", bug, _judge_handoff, writers.home)


def _judge_handoff(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Each new session holds all messages of the one handed over, another run adds one, and nothing else changes."""
    early = _new_files(writers)
    done = run(command("handoff", _HANDED_OVER, "--to", "claude", "--yes"), store)
    findings = [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    late = _new_files(writers)
    (source,) = writers.home.rglob(f"*{_HANDED_OVER}.jsonl")
    items = [json.loads(line)["payload"].get("item") for line in source.read_bytes().splitlines()]
    expected = [item["content"][0]["text"] for item in items if item]
    for path in late:
        messages = [json.loads(line).get("message") for line in path.read_bytes().splitlines()]
        _, *texts = [message["content"] for message in messages if message]  # the first introduces the others
        findings += [] if texts == expected else [f"handed over: {len(texts)} of {len(expected)} messages"]
    if len(late) != len(early) + 1 or len(early) > 1:
        findings.append(f"{len(early)} sessions after the fault, {len(late)} after another run")
    return [*findings, *_left_in(writers.home), *examine(store, writers, None, bug)]


def _swept(folder: Path, seed: int) -> Writers:
    """The store of some sessions, for which it is the home that commands write to."""
    writers = swept_sessions(folder, seed)
    roots = (root.split("=", 1) for root in writers.roots)
    config = "".join(f"[agents.{agent}]\nroots = ['{home}']\n" for agent, home in roots)
    (folder / "template" / "config.toml").write_text(config)
    return writers


def _new_files(writers: Writers) -> list[Path]:
    """The session files that the agents did not write themselves."""
    known = {writers.path(number).name for number in range(1, writers.count + 1)}
    return sorted(path for path in writers.home.rglob("[!.]*.jsonl") if path.name not in known)


def _left_in(home: Path) -> Iterator[str]:
    yield from (f"left: {path.name}" for path in home.rglob(".*") if path.is_file())


# Installing into agents

# As the real ones change their settings: the whole file at once.
_PROGRAM = """#!/bin/sh
case "$*" in
"plugin install"*|"mcp add"*) text='{{"mine": "kept", "theirs": "recollect"}}' ;;
"plugin uninstall"*|"mcp remove"*) text='{{"mine": "kept"}}' ;;
*) exit 0 ;;
esac
printf '%s' "$text" > {work}.$$ && exec mv {work}.$$ {settings}
"""
_MINE = '{"mine":"kept"}\n'
_SETTINGS = {"claude": "settings.json", "grok": "config.toml"}


def _agents(folder: Path) -> tuple[Path, Path, str]:
    """The template of a store, the homes of two agents, and where their programs are."""
    homes, programs, template = folder / "homes", folder / "bin", folder / "template"
    programs.mkdir()
    template.mkdir(mode=0o700)
    (folder / "work").mkdir()
    config = ""
    for agent, name in _SETTINGS.items():
        settings = homes / agent / name
        settings.parent.mkdir(parents=True)
        settings.write_text(_MINE)
        (programs / agent).write_text(_PROGRAM.format(work=folder / "work" / agent, settings=settings))
        (programs / agent).chmod(0o755)
        config += f"[agents.{agent}]\nroots = ['{settings.parent}']\n"
    (template / "config.toml").write_text(config)
    return template, homes, f"PATH={programs}:{os.environ['PATH']}"


def installing(*options: str) -> MakeCase:
    words = ["install", "claude", "grok", "--yes", *options]

    def make(folder: Path, bug: str | None) -> Case:
        template, homes, variable = _agents(folder)

        def judge(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
            """Settings are whole; another run installs everything, and after `uninstall` nothing of it is left."""
            findings = [*_torn(homes)]
            again = run(["env", variable, *command(*words)], store)
            findings += [f"exit code {again.returncode}: {again.stderr}"] if again.returncode else []
            installed = _without_place(homes, store)
            if installed != expected:
                findings.append(f"installed: {installed}")
            return [*findings, *_torn(homes), *_removed(store, homes, variable)]

        done = folder / "done"
        case = Case(" ".join(words[:-1]), words, Writers(folder / "none", 1), template, bug, judge, homes, variable)
        assert run(["env", variable, *command(*words)], case.prepare(done)).returncode == 0
        expected = _without_place(homes, done)
        case.prepare(done.with_name("unused"))
        return case

    make.__name__ = "-".join(["installing", *(option.strip("-") for option in options)])
    return make


def uninstalling(folder: Path, bug: str | None) -> Case:
    template, homes, variable = _agents(folder)
    for words in (["claude", "--no-plugin"], ["grok"]):
        assert run(["env", variable, *command("install", *words, "--yes")], template).returncode == 0

    def judge(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
        return [*_torn(homes), *_removed(store, homes, variable)]

    words = ["uninstall", "--yes"]
    return Case("uninstall", words, Writers(folder / "none", 1), template, bug, judge, homes, variable)


def _removed(store: Path, homes: Path, variable: str) -> Iterator[str]:
    """What `uninstall` leaves, or complains about; it may say that nothing is installed any more."""
    done = run(["env", variable, *command("uninstall", "--yes")], store)
    if done.returncode not in (0, 4):
        yield f"uninstall: exit code {done.returncode}: {done.stderr}"
    mine = {str(homes / agent / name): _MINE for agent, name in _SETTINGS.items()}
    left = {str(path): path.read_text() for path in homes.rglob("*") if path.is_file()}
    if left != mine:
        yield f"left in the homes: {left}"
    yield from (f"left in the store: {name}" for name in ("plugin", "installed.json") if (store / name).exists())


def _torn(homes: Path) -> Iterator[str]:
    for path in homes.rglob("*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            yield f"torn: {path}"


def _without_place(homes: Path, store: Path) -> dict[str, str]:
    """What is in the homes and in the plugin, for a store at any path."""
    files = [path for folder in (homes, store / "plugin") for path in folder.rglob("*") if path.is_file()]
    return {str(path).replace(str(store), "STORE"): path.read_text().replace(str(store), "STORE") for path in files}


OUTSIDE: tuple[MakeCase, ...] = (forking, handing_over, installing(), installing("--no-plugin"), uninstalling)
