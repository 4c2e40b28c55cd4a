"""Writes an agent's home full of sessions that look, compress and tokenise like real ones.

    python bench/generate.py OUT --mb 500 --seed 1 --agent claude

The shape (sizes of files, mix of records, twins, split messages) follows what was measured in real logs:
see README.md beside this file. All text comes from the sources and manual of the Python that runs this, so
the same seed gives the same bytes under the same Python, and nobody's words are in it.
"""

import argparse
import base64
import math
import random
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import orjson

Json = dict[str, Any]

MEGABYTE = 1_000_000
CONTEXT_TOKENS = 130_000
FIRST_DAY = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
PROJECT_NAMES = ("shop-api", "ledger", "web_front.v2", "infra", "notes app", "parser", "заметки", "bench-lab")
MODELS = ("claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929", "claude-opus-4-6", "claude-haiku-4-5-20251001")
FOREIGN = (
    "テストが失敗する理由を調べて、設定ファイルの読み込み順を直してください。",
    "この関数は空のリストを受け取ると例外を投げるので、先に長さを確認します。",
    "请先运行全部测试,然后把登录接口的过期时间改成一小时。",
    "数据库连接在高并发时会超时,我们需要一个更小的连接池。",
    "Проверь, почему сборка падает на втором шаге, и поправь разбор даты.",
    "Здесь лучше завести отдельный класс, иначе условие придётся повторять трижды.",
    "Файл читается целиком, поэтому на больших журналах не хватает памяти.",
    "캐시 키에 버전을 넣지 않으면 오래된 값이 남습니다.",
)


@dataclass(frozen=True)
class SourceFile:
    """A file of the made-up project, with its lines as an editor and as a reading tool show them."""

    name: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def numbered(self) -> list[str]:
        return [f"{number:>6}→{line}" for number, line in enumerate(self.lines, 1)]


def read_library(limit: int = 2_000) -> list[SourceFile]:
    """The standard library's own sources, the middling sizes: what projects' files look like."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in sorted(root.rglob("*.py")) if "site-packages" not in path.parts]
    middling = [path for path in paths if 1_500 < path.stat().st_size < 60_000]
    chosen = middling[:: max(1, len(middling) // limit)]
    texts = ((path.relative_to(root), path.read_text("utf-8", "replace")) for path in chosen)
    return [SourceFile(f"src/{path.as_posix()}", text) for path, text in texts]


class Words:
    """Prose, code, logs and names, drawn by one random source."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.library = read_library()
        paragraphs = (part.replace("\n", " ").strip() for text in topics.values() for part in text.split("\n\n"))
        self._prose = [part for part in paragraphs if 40 < len(part) < 700]
        self.images = [base64.b64encode(chance.randbytes(size)).decode() for size in (9_000, 40_000, 120_000)]

    def size(self, median: float, sigma: float, most: int = 30_000) -> int:
        return min(most, max(1, int(self.chance.lognormvariate(math.log(median), sigma))))

    def prose(self, median: float, sigma: float = 1.1) -> str:
        """A text of about that many characters; one in twenty is not in English."""
        wanted, told = self.size(median, sigma), ""
        pool: Sequence[str] = FOREIGN if self.chance.random() < 0.05 else self._prose
        while len(told) < wanted:
            told += ("\n\n" if told else "") + self.chance.choice(pool)
        return told[:wanted]

    def code(self, file: SourceFile, lines: int) -> tuple[int, list[str]]:
        start = self.chance.randrange(max(1, len(file.lines) - lines))
        return start, file.lines[start : start + lines]

    def log(self, files: Sequence[SourceFile]) -> str:
        """What a command prints: tests, a listing, a search, or pieces of files."""
        count = self.size(6, 1.6, 400)
        make = self.chance.choice((self._test_line, self._listing_line, self.found_line, self._source_line))
        return "\n".join(make(self.chance.choice(files), number) for number in range(count))

    def _test_line(self, file: SourceFile, number: int) -> str:
        verdict = "FAILED" if self.chance.random() < 0.03 else "PASSED"
        return f"{file.name}::test_{self.name(file)}_{number} {verdict} [{number % 100:>3}%]"

    def _listing_line(self, file: SourceFile, number: int) -> str:
        when = f"Jan {number % 28 + 1:>2} 09:{number % 60:02}"
        return f"-rw-r--r--  1 dev staff {len(file.text):>8} {when} {file.name}"

    def found_line(self, file: SourceFile, number: int) -> str:
        line = self.chance.randrange(len(file.lines))
        return f"{file.name}:{line + 1}:{file.lines[line]}"

    def _source_line(self, file: SourceFile, number: int) -> str:
        return file.lines[number % len(file.lines)]

    def name(self, file: SourceFile) -> str:
        return Path(file.name).stem

    def uuid(self) -> str:
        digits = f"{self.chance.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def token(self, prefix: str) -> str:
        return prefix + base64.b32encode(self.chance.randbytes(15)).decode()

    def pick(self, weights: dict[str, float]) -> str:
        return self.chance.choices(list(weights), list(weights.values()))[0]


@dataclass(frozen=True)
class Project:
    """A checkout that sessions work in."""

    cwd: str
    files: Sequence[SourceFile]

    @property
    def folder(self) -> str:
        return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in self.cwd)


def make_projects(words: Words) -> list[Project]:
    names = (*PROJECT_NAMES, *(f"service-{number}" for number in range(12)))
    return [Project(f"/home/dev/code/{name}", words.chance.sample(words.library, 120)) for name in names]


class Log:
    """Lines of one file, with a clock that only goes forward."""

    def __init__(self, words: Words, project: Project) -> None:
        self.words, self.chance, self.project = words, words.chance, project
        self.now = FIRST_DAY + timedelta(seconds=words.chance.randrange(300 * 86_400))
        self.lines: list[bytes] = []
        self.bytes = 0

    def add(self, record: Json) -> None:
        line = orjson.dumps(record)
        self.lines.append(line)
        self.bytes += len(line) + 1

    def tick(self, seconds: float = 4.0) -> str:
        self.now += timedelta(milliseconds=self.chance.expovariate(1 / (seconds * 1000)))
        return f"{self.now:%Y-%m-%dT%H:%M:%S}.{self.now.microsecond // 1000:03}Z"

    def file(self) -> SourceFile:
        return self.chance.choice(self.project.files)

    def write(self, path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in self.lines))
        return self.bytes


CLAUDE_TOOLS = {
    "Bash": 30.6,
    "Read": 26.8,
    "Edit": 13.0,
    "Grep": 6.6,
    "TodoWrite": 5.1,
    "Glob": 4.0,
    "Write": 4.0,
    "mcp__docs__query": 3.8,
    "Task": 1.0,
    "AskUserQuestion": 0.6,
    "WebFetch": 0.4,
}
Call = tuple[Json, Any, Any]  # input, content of the result, its structured twin


class ClaudeSession(Log):
    """One transcript or sub-agent file of Claude Code 2.1.x."""

    def __init__(self, words: Words, project: Project, session: str, agent_id: str | None = None) -> None:
        super().__init__(words, project)
        self.session, self.agent_id = session, agent_id
        self.model = self.chance.choice(MODELS)
        self.branch = self.chance.choice(("main", "main", f"feature/{words.name(self.file())}"))
        self.slug = f"{words.name(self.file())}-{words.name(self.file())}-otter"
        self.parent: str | None = None
        self.prompts: list[str] = []
        self.spawned: list[tuple[str, str]] = []
        self.context = 12_000

    def fill(self, target_bytes: int) -> "ClaudeSession":
        while self.bytes < target_bytes:
            self.turn(target_bytes)
        return self

    def turn(self, target_bytes: int) -> None:
        """A prompt, what the agent did about it until the file is full, and its answer."""
        if self.context > CONTEXT_TOKENS:
            self.compact()
        self.prompt(self.words.prose(160, 1.5))
        for _ in range(1 + int(self.chance.expovariate(1 / 5))):
            if self.bytes < target_bytes:
                self.step()
        self.message([{"type": "text", "text": self.words.prose(500)}], "end_turn")
        self.after_turn()

    def compact(self) -> None:
        """The context is full: a boundary, and a summary to go on from."""
        before, self.parent = self.parent, None
        boundary = {"subtype": "compact_boundary", "content": "Conversation compacted", "isMeta": False}
        figures = {"trigger": "auto", "preTokens": self.context}
        self.system(boundary | {"logicalParentUuid": before, "level": "info", "compactMetadata": figures})
        text = f"This session is being continued from a previous conversation. {self.words.prose(6_000, 0.4)}"
        told = self.envelope("user") | {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        self.add(told | {"message": {"role": "user", "content": text}} | self.stamp())
        self.context = 25_000

    def envelope(self, kind: str, is_type_last: bool = False) -> Json:
        told: Json = {"parentUuid": self.parent, "isSidechain": self.agent_id is not None, "userType": "external"}
        told |= {"cwd": self.project.cwd, "sessionId": self.session, "version": "2.1.19", "gitBranch": self.branch}
        if self.agent_id:
            told["agentId"] = self.agent_id
        told["slug"] = self.slug
        return told if is_type_last else told | {"type": kind}

    def stamp(self, seconds: float = 4.0) -> Json:
        self.parent = self.words.uuid()
        return {"uuid": self.parent, "timestamp": self.tick(seconds)}

    def prompt(self, text: str) -> None:
        if self.chance.random() < 0.35:
            self.queue(text)
        self.prompts.append(text)
        content: Any = text
        if self.chance.random() < 0.01:
            image = {"type": "base64", "media_type": "image/png", "data": self.chance.choice(self.words.images)}
            content = [{"type": "text", "text": text}, {"type": "image", "source": image}]
        told = self.envelope("user") | {"message": {"role": "user", "content": content}} | self.stamp(60)
        self.add(told | {"thinkingMetadata": {"maxThinkingTokens": 31999}, "todos": [], "permissionMode": "default"})
        self.snapshot(is_update=False)

    def queue(self, text: str) -> None:
        for operation, content in (("enqueue", {"content": text}), ("dequeue", {})):
            told = {"type": "queue-operation", "operation": operation, "timestamp": self.tick(1)}
            self.add(told | {"sessionId": self.session} | content)

    def snapshot(self, is_update: bool) -> None:
        backups = {
            self.file().name: {
                "backupFileName": f"{self.chance.getrandbits(64):016x}@v{version}",
                "version": version,
                "backupTime": self.tick(0.1),
            }
            for version in range(1, 1 + self.words.size(3, 0.8, 15))
        }
        message = self.parent or self.words.uuid()
        told = {"messageId": message, "trackedFileBackups": backups, "timestamp": self.tick(0.1)}
        record = {"type": "file-history-snapshot", "messageId": message, "snapshot": told}
        self.add(record | {"isSnapshotUpdate": is_update})

    def step(self) -> None:
        """One answer of the model with its calls, and their results."""
        blocks: list[Json] = []
        if self.chance.random() < 0.48:
            signature = base64.b64encode(self.chance.randbytes(self.words.size(330, 0.8, 9_000))).decode()
            blocks.append({"type": "thinking", "thinking": self.words.prose(180), "signature": signature})
        if self.chance.random() < 0.36:
            blocks.append({"type": "text", "text": self.words.prose(110, 0.8)})
        calls = [self.call() for _ in range(self.chance.choices((1, 2, 3), (75, 18, 7))[0])]
        ids = self.message([*blocks, *(block for block, _, _ in calls)], None)[len(blocks) :]
        for (block, content, twin), assistant in zip(calls, ids, strict=True):
            self.progress(block, twin)
            self.result(block, content, twin, assistant)

    def message(self, blocks: list[Json], stop_reason: str | None) -> list[str]:
        """Write one API message as the agent does: a record per block, all with its id and usage."""
        self.context += self.words.size(500, 1.0)
        known = {"model": self.model, "id": self.words.token("msg_01"), "type": "message", "role": "assistant"}
        request, ids = self.words.token("req_011C"), []
        for block in blocks:
            message = known | {"content": [block], "stop_reason": stop_reason, "stop_sequence": None}
            told = self.envelope("assistant", is_type_last=True) | {"message": message | {"usage": self.usage()}}
            self.add(told | {"requestId": request, "type": "assistant"} | self.stamp())
            ids.append(self.parent or "")
        return ids

    def usage(self) -> Json:
        written = self.context // 20
        return {
            "input_tokens": 8,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": self.context,
            "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
            "output_tokens": self.chance.randrange(1, 400),
            "service_tier": "standard",
        }

    def call(self) -> Call:
        tool = self.words.pick(CLAUDE_TOOLS)
        make: dict[str, Callable[[], Call]] = {
            "Bash": self.bash,
            "Read": self.read,
            "Edit": self.edit,
            "Write": self.create,
            "Grep": self.grep,
            "Glob": self.glob,
            "TodoWrite": self.todos,
            "Task": self.task,
            "AskUserQuestion": self.question,
        }
        arguments, content, twin = make.get(tool, self.lookup)()
        block = {"type": "tool_use", "id": self.words.token("toolu_01"), "name": tool, "input": arguments}
        return block, content, twin

    def path(self, file: SourceFile) -> str:
        return f"{self.project.cwd}/{file.name}"

    def bash(self) -> Call:
        command = self.chance.choice(("pytest -q", "git diff", "ls -la", "rg -n TODO", "python -m"))
        arguments = {"command": f"{command} {self.file().name}", "description": self.words.prose(40, 0.3)}
        output = self.words.log(self.project.files)[:30_000]
        if self.chance.random() < 0.09:
            failure = f"Exit code 1\n{output}"
            return arguments, failure, f"Error: {failure}"
        return arguments, output, {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}

    def read(self) -> Call:
        file = self.file()
        if self.chance.random() < 0.012:
            return self.picture(file)
        count = 900 if self.chance.random() < 0.5 else self.words.size(45, 0.8, 900)
        start, lines = self.words.code(file, count)
        arguments = {"file_path": self.path(file), "offset": start + 1, "limit": count}
        shown = {"filePath": self.path(file), "content": "\n".join(lines), "numLines": len(lines)}
        shown |= {"startLine": start + 1, "totalLines": len(file.lines)}
        content = "\n".join(file.numbered[start : start + count])
        return arguments, content, {"type": "text", "file": shown}

    def picture(self, file: SourceFile) -> Call:
        data = self.chance.choice(self.words.images)
        source = {"type": "base64", "data": data, "media_type": "image/png"}
        twin = {"type": "image", "file": {"base64": data, "type": "image/png", "originalSize": len(data) * 3 // 4}}
        return {"file_path": self.path(file) + ".png"}, [{"type": "image", "source": source}], twin

    def edit(self) -> Call:
        file = max((self.file() for _ in "12345"), key=lambda file: len(file.text))  # work happens in the big files
        start, lines = self.words.code(file, self.words.size(9, 0.9, 120))
        old, new = "\n".join(lines), "\n".join((*lines[1:], *self.words.code(self.file(), len(lines))[1]))
        arguments = {"file_path": self.path(file), "old_string": old, "new_string": new, "replace_all": False}
        shown = "\n".join(file.numbered[max(0, start - 4) : start + len(lines) + 4])
        content = f"The file {self.path(file)} has been updated. Here is a part of it:\n{shown}"
        patch = [*(f"-{line}" for line in lines), *(f"+{line}" for line in new.splitlines())]
        hunk: Json = {
            "oldStart": start,
            "oldLines": len(lines),
            "newStart": start,
            "newLines": len(patch),
            "lines": patch,
        }
        twin = {"filePath": self.path(file), "oldString": old, "newString": new, "originalFile": file.text}
        return (arguments, content, twin | {"structuredPatch": [hunk], "userModified": False, "replaceAll": False})

    def create(self) -> Call:
        file = self.file()
        text = "\n".join(self.words.code(file, self.words.size(110, 0.9, 900))[1])
        twin: Json = {"type": "create", "filePath": self.path(file), "content": text}
        twin |= {"structuredPatch": [], "originalFile": None}
        done = f"File created successfully at: {self.path(file)}"
        return {"file_path": self.path(file), "content": text}, done, twin

    def grep(self) -> Call:
        found = "\n".join(self.words.found_line(self.file(), 0) for _ in range(self.words.size(12, 1.0, 200)))
        arguments = {"pattern": self.words.name(self.file()), "path": self.project.cwd, "output_mode": "content"}
        twin = {"mode": "content", "numFiles": 0, "filenames": [], "content": found, "numLines": found.count("\n") + 1}
        return arguments, found, twin

    def glob(self) -> Call:
        names = [self.path(self.file()) for _ in range(self.words.size(9, 1.0, 100))]
        twin = {"filenames": names, "durationMs": 12, "numFiles": len(names), "truncated": False}
        return {"pattern": "**/*.py"}, "\n".join(names), twin

    def todos(self) -> Call:
        new = [
            {"content": self.words.prose(50, 0.3), "status": "pending", "activeForm": self.words.prose(40, 0.3)}
            for _ in range(self.words.size(5, 0.4, 12))
        ]
        done = "Todos have been modified successfully."
        return {"todos": new}, done, {"oldTodos": new[:-1], "newTodos": new}

    def task(self) -> Call:
        prompt, answer = self.words.prose(900), self.words.prose(2_500, 0.7)
        arguments = {"description": "Look into it", "prompt": prompt, "subagent_type": "general-purpose"}
        content = [{"type": "text", "text": answer}]
        twin = {"status": "completed", "prompt": prompt, "agentId": f"a{self.chance.getrandbits(24):06x}"}
        self.spawned.append((twin["agentId"], prompt))
        figures = {"totalDurationMs": 61_000, "totalTokens": 41_000, "totalToolUseCount": 9, "usage": self.usage()}
        return arguments, content, twin | {"content": content} | figures

    def question(self) -> Call:
        asked = self.words.prose(80, 0.3)
        options = [{"label": self.words.prose(20, 0.2), "description": self.words.prose(70, 0.3)} for _ in "123"]
        questions = [{"question": asked, "header": "Choice", "options": options, "multiSelect": False}]
        answer = f'User has answered your questions: "{asked}"="{options[0]["label"]}".'
        return ({"questions": questions}, answer, {"questions": questions, "answers": {asked: options[0]["label"]}})

    def lookup(self) -> Call:
        text = self.words.prose(2_200)
        return (
            {"query": self.words.prose(50, 0.3)},
            [{"type": "text", "text": text}],
            [{"type": "text", "text": text}],
        )

    def progress(self, block: Json, twin: Any) -> None:
        """Lines written while a call runs: its ticking clock, for a sub-agent a copy of its messages."""
        tool = block["name"]
        if self.chance.random() < 0.21:
            hook = {"hookEvent": "PostToolUse", "hookName": tool, "command": "lint-on-save"}
            self.tell(block, {"type": "hook_progress"} | hook)
        if tool == "Bash" and self.chance.random() < 0.22:
            self.watch(block)
        if tool.startswith("mcp__"):
            for status in ("started", "completed"):
                self.tell(block, {"type": "mcp_progress", "status": status, "serverName": "docs", "toolName": "query"})
        if tool == "Task":
            self.overhear(block, twin)

    def tell(self, block: Json, data: Json) -> None:
        told = self.envelope("progress") | {"data": data, "toolUseID": f"progress-{self.chance.getrandbits(20)}"}
        self.add(told | {"parentToolUseID": block["id"]} | self.stamp(1))

    def watch(self, block: Json) -> None:
        output = self.words.log(self.project.files)[:1_500]
        for second in range(1, 2 + self.words.size(4, 0.7, 40)):
            data = {"type": "bash_progress", "output": output[-200:], "fullOutput": output}
            self.tell(block, data | {"elapsedTimeSeconds": second, "totalLines": 1 + output.count("\n")})

    def overhear(self, block: Json, twin: Any) -> None:
        for _ in range(self.words.size(13, 0.6, 60)):
            is_call = self.chance.random() < 0.4
            shown = self.call()[0] if is_call else {"type": "text", "text": self.words.prose(300)}
            inner = {"role": "assistant", "content": [shown]}
            message = {"type": "assistant", "timestamp": self.tick(1), "message": inner, "uuid": self.words.uuid()}
            data = {"type": "agent_progress", "message": message, "normalizedMessages": [message]}
            self.tell(block, data | {"prompt": twin["prompt"], "agentId": twin["agentId"]})

    def result(self, block: Json, content: Any, twin: Any, assistant: str) -> None:
        told: Json = {"tool_use_id": block["id"], "type": "tool_result", "content": content}
        if block["name"] == "Bash":
            told["is_error"] = isinstance(twin, str)
        record = self.envelope("user") | {"message": {"role": "user", "content": [told]}} | self.stamp()
        self.add(record | {"toolUseResult": twin, "sourceToolAssistantUUID": assistant})
        if block["name"] in ("Edit", "Write"):
            self.snapshot(is_update=True)

    def after_turn(self) -> None:
        if self.chance.random() < 0.25:
            hooks = {"hookCount": 1, "hookInfos": [{"command": "notify-done"}], "hookErrors": []}
            told = {"subtype": "stop_hook_summary"} | hooks | {"preventedContinuation": False, "stopReason": ""}
            self.system(told | {"hasOutput": False, "level": "suggestion", "toolUseID": self.words.uuid()})
        if self.chance.random() < 0.25:
            self.system({"subtype": "turn_duration", "durationMs": self.chance.randrange(900_000), "isMeta": False})
        if self.chance.random() < 0.05:
            error = {"status": 529, "requestID": None, "error": {"type": "overloaded_error"}}
            retry = {"retryInMs": 500.0, "retryAttempt": 1, "maxRetries": 10}
            self.system({"subtype": "api_error", "error": error} | retry)
        if self.chance.random() < 0.04:
            told = self.envelope("user") | {"message": {"role": "user", "content": [INTERRUPTED]}}
            self.add(told | self.stamp())

    def system(self, told: Json) -> None:
        self.add(self.envelope("system") | told | self.stamp(1))


INTERRUPTED = {"type": "text", "text": "[Request interrupted by user]"}


def write_claude(words: Words, out: Path, target_bytes: int) -> None:
    """A `~/.claude` of about that size: transcripts, some of them forks, sub-agents, summaries, history."""
    projects, history = make_projects(words), Log(words, Project("", ()))
    written, last = 0, None
    for size in _sizes(words, target_bytes):
        folder = out / "projects" / words.chance.choice(projects).folder
        project = next(project for project in projects if project.folder == folder.name)
        session = ClaudeSession(words, project, words.uuid())
        if last is not None and last.bytes < 2 * MEGABYTE and words.chance.random() < 0.03:
            _fork(last, session)
        last = session.fill(size)
        written += session.write(folder / f"{session.session}.jsonl") + _agents(words, folder, session)
        _summary(words, folder, session)
        for prompt in session.prompts[:200]:
            told = {"display": prompt[:2_000], "pastedContents": {}, "timestamp": int(session.now.timestamp() * 1000)}
            history.add(told | {"project": project.cwd, "sessionId": session.session})
        if written >= target_bytes:
            break
    history.write(out / "history.jsonl")


def _sizes(words: Words, target_bytes: int) -> Iterator[int]:
    """Sizes of main files: median 224 KB and p90 2.4 MB with the files of summaries, and a few giants."""
    if target_bytes >= 300 * MEGABYTE:
        yield from (60 * MEGABYTE, 15 * MEGABYTE, 8 * MEGABYTE)
    while True:
        size = words.size(285_000, 1.7, 100 * MEGABYTE)
        yield size if size < 4 * MEGABYTE else words.chance.randrange(2 * MEGABYTE, 4 * MEGABYTE)


def _fork(original: ClaudeSession, fork: ClaudeSession) -> None:
    """Begin a session with copies of another's records: the same uuids under the new session's id."""
    old, new = original.session.encode(), fork.session.encode()
    fork.lines = [line.replace(old, new) for line in original.lines[: len(original.lines) // 3]]
    fork.bytes = sum(len(line) + 1 for line in fork.lines)
    fork.now = original.now


def _agents(words: Words, folder: Path, parent: ClaudeSession) -> int:
    """About 1.3 sub-agents to a session, two of three of them a cache's warm-up."""
    written = 0
    for _ in range(words.chance.choices((0, 1, 2, 3, 6), (30, 35, 20, 12, 3))[0]):
        name, prompt = f"a{words.chance.getrandbits(24):06x}", "Warmup"
        if words.chance.random() > 0.655:
            name, prompt = parent.spawned.pop() if parent.spawned else (name, words.prose(900))
        agent = ClaudeSession(words, parent.project, parent.session, name)
        agent.now = parent.now
        written += _agent(agent, prompt, folder)
    return written


def _agent(agent: ClaudeSession, prompt: str, folder: Path) -> int:
    """A sub-agent's file: warm-ups lay flat beside the transcripts, later versions gave sessions a folder."""
    told = agent.envelope("user") | {"message": {"role": "user", "content": prompt}}
    agent.add(told | agent.stamp())
    agent.message([{"type": "text", "text": agent.words.prose(350, 0.5)}], "end_turn")
    if prompt == "Warmup":
        return agent.write(folder / f"agent-{agent.agent_id}.jsonl")
    agent.fill(agent.words.size(225_000, 0.467, 2 * MEGABYTE))
    return agent.write(folder / agent.session / "subagents" / f"agent-{agent.agent_id}.jsonl")


def _summary(words: Words, folder: Path, session: ClaudeSession) -> None:
    """One file in seven holds nothing but summaries of other sessions."""
    if words.chance.random() < 0.17:
        log = Log(words, session.project)
        for _ in range(words.size(2, 0.8, 60)):
            log.add({"type": "summary", "summary": words.prose(45, 0.2), "leafUuid": session.parent})
        log.write(folder / f"{words.uuid()}.jsonl")


class CodexSession(Log):
    """One rollout of Codex 0.166: everything stands twice, as it was sent and as it was completed."""

    def __init__(self, words: Words, project: Project) -> None:
        super().__init__(words, project)
        self.thread, self.turn_id, self.ordinal = words.uuid(), words.uuid(), 0
        self.total = 0
        told: Json = {"session_id": self.thread, "id": self.thread, "timestamp": self.tick(), "cwd": project.cwd}
        told |= {"originator": "codex_cli_rs", "cli_version": "0.166.0", "source": "cli", "model_provider": "openai"}
        told |= {"base_instructions": {"text": words.prose(20_000, 0.05)}, "history_mode": "paginated"}
        self.record("session_meta", told)

    def record(self, kind: str, payload: Json) -> None:
        self.add({"timestamp": self.tick(), "ordinal": self.ordinal, "type": kind, "payload": payload})
        self.ordinal += 1

    def item(self, item: Json) -> None:
        told = {"type": "item_completed", "thread_id": self.thread, "turn_id": self.turn_id, "item": item}
        at_ms = int(self.now.timestamp() * 1000)
        self.record("event_msg", told | {"started_at_ms": at_ms, "completed_at_ms": at_ms})

    def fill(self, target_bytes: int) -> None:
        while self.bytes < target_bytes:
            self.turn()

    def turn(self) -> None:
        self.turn_id, prompt = self.words.uuid(), self.words.prose(160, 1.5)
        self.record("event_msg", {"type": "task_started", "turn_id": self.turn_id, "model_context_window": 258_400})
        context = {"turn_id": self.turn_id, "cwd": self.project.cwd, "approval_policy": "never", "model": "gpt-5.5"}
        self.record("turn_context", context)
        self.say("user", "input_text", prompt)
        self.item({"type": "UserMessage", "id": self.words.uuid(), "content": [{"type": "text", "text": prompt}]})
        for _ in range(1 + int(self.chance.expovariate(1 / 7))):
            self.step()
        answer, name = self.words.prose(500), self.words.token("msg_")
        self.item({"type": "AgentMessage", "id": name, "content": [{"type": "Text", "text": answer}]})
        self.say("assistant", "output_text", answer, name)
        self.record("event_msg", {"type": "task_complete", "turn_id": self.turn_id, "last_agent_message": answer})

    def say(self, role: str, kind: str, text: str, name: str | None = None) -> None:
        told = {"type": "message", "id": name or self.words.token("msg_"), "role": role}
        self.record("response_item", told | {"content": [{"type": kind, "text": text}]})

    def step(self) -> None:
        if self.chance.random() < 0.5:
            self.think()
        call, command = self.words.token("call_"), f"sed -n '1,200p' {self.file().name}"
        told = {"type": "function_call", "status": "completed", "id": self.words.token("fc_"), "name": "exec_command"}
        self.record("response_item", told | {"arguments": orjson.dumps({"cmd": command}).decode(), "call_id": call})
        output = self.words.log(self.project.files)[:40_000]
        done: Json = {"type": "CommandExecution", "id": call, "command": ["/bin/bash", "-lc", command]}
        done |= {
            "status": "completed",
            "cwd": f"file://{self.project.cwd}",
            "parsed_cmd": [{"type": "unknown", "cmd": command}],
        }
        self.item(done | {"aggregated_output": output, "exit_code": 0, "duration": {"secs": 0, "nanos": 60_720}})
        self.count_tokens()
        answer = f"Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{output}"
        self.record("response_item", {"type": "function_call_output", "call_id": call, "output": answer})

    def think(self) -> None:
        name, text = self.words.token("rs_"), self.words.prose(150)
        self.item({"type": "Reasoning", "id": name, "summary_text": [text], "raw_content": []})
        secret = base64.b64encode(self.chance.randbytes(self.words.size(900, 0.6))).decode()
        told = {"type": "reasoning", "id": name, "summary": [{"type": "summary_text", "text": text}], "content": None}
        self.record("response_item", told | {"encrypted_content": secret})

    def count_tokens(self) -> None:
        self.total += self.words.size(4_000, 0.8)
        usage = {"input_tokens": self.total, "cached_input_tokens": self.total // 2, "cache_write_input_tokens": 0}
        usage |= {"output_tokens": self.total // 50, "reasoning_output_tokens": 0, "total_tokens": self.total}
        told = {"thread_id": self.thread, "turn_id": self.turn_id, "session_id": self.thread, "usage": usage}
        told |= {"response_id": self.words.token("resp_"), "turn_token_usage": usage, "thread_token_usage": usage}
        self.record("token_usage_record", told)
        info = {"total_token_usage": usage, "last_token_usage": usage, "model_context_window": 258_400}
        self.record("event_msg", {"type": "token_count", "info": info, "rate_limits": {"limit_id": "codex"}})


def write_codex(words: Words, out: Path, target_bytes: int) -> None:
    """A `~/.codex` of about that size: rollouts by day."""
    projects, written = make_projects(words), 0
    for size in _sizes(words, target_bytes):
        session = CodexSession(words, words.chance.choice(projects))
        begun = session.now
        session.fill(size)
        path = out / "sessions" / f"{begun:%Y/%m/%d}" / f"rollout-{begun:%Y-%m-%dT%H-%M-%S}-{session.thread}.jsonl"
        written += session.write(path)
        if written >= target_bytes:
            return


class GrokSession(Log):
    """The `updates.jsonl` of one Grok session: messages in chunks, outputs as text and as numbers."""

    def __init__(self, words: Words, project: Project) -> None:
        super().__init__(words, project)
        self.session, self.prompt_id, self.event, self.prompts = words.uuid(), words.uuid(), 0, 0

    def update(self, update: Json, method: str = "session/update") -> None:
        self.tick(2)
        self.event += 1
        at_ms = int(self.now.timestamp() * 1000)
        meta: Json = {"totalTokens": 9_000 + self.event, "eventId": f"{self.session}-{self.event}"}
        meta |= {"agentTimestampMs": at_ms, "promptId": self.prompt_id, "chunkId": self.event}
        told = {"sessionId": self.session, "update": update, "_meta": meta}
        self.add({"timestamp": int(self.now.timestamp()), "method": method, "params": told})

    def chunks(self, kind: str, text: str) -> None:
        for start in range(0, len(text), 90):
            self.update({"sessionUpdate": kind, "content": {"type": "text", "text": text[start : start + 90]}})

    def fill(self, target_bytes: int) -> None:
        while self.bytes < target_bytes:
            self.turn()

    def turn(self) -> None:
        self.prompt_id, prompt = self.words.uuid(), {"type": "text", "text": self.words.prose(160, 1.5)}
        meta = {"modelId": "grok-4.6", "promptIndex": self.prompts}
        self.update({"sessionUpdate": "user_message_chunk", "content": prompt, "_meta": meta})
        self.prompts += 1
        for _ in range(1 + int(self.chance.expovariate(1 / 7))):
            self.chunks("agent_thought_chunk", self.words.prose(180))
            self.step()
        self.chunks("agent_message_chunk", self.words.prose(500))
        usage = {"inputTokens": 8_455, "outputTokens": 58, "totalTokens": 8_513, "cachedReadTokens": 7_046}
        done = {"sessionUpdate": "turn_completed", "prompt_id": self.prompt_id, "stop_reason": "end_turn"}
        self.update(done | {"usage": usage | {"modelUsage": {"grok-4.6": usage}}}, "_x.ai/session/update")

    def step(self) -> None:
        command, call = f"cat {self.file().name}", self.words.token("call_")
        tool = {"x.ai/tool": {"version": 1, "name": "run_terminal_command", "kind": "execute", "read_only": False}}
        told: Json = {"sessionUpdate": "tool_call", "toolCallId": call, "title": "run_terminal_command"}
        self.update(told | {"rawInput": {"command": command, "description": command}, "_meta": tool})
        output = self.words.log(self.project.files)[:20_000]
        raw: Json = {"type": "Bash", "output": list(output.encode()), "output_for_prompt": f"exit: 0\n{output}"}
        raw |= {"exit_code": 0, "command": command, "truncated": False, "current_dir": self.project.cwd}
        told = {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed", "rawOutput": raw}
        self.update(told | {"content": [{"type": "content", "content": {"type": "text", "text": output}}]})


def write_grok(words: Words, out: Path, target_bytes: int) -> None:
    """A `~/.grok` of about that size: a folder for each session."""
    projects, written = make_projects(words), 0
    for size in _sizes(words, target_bytes):
        session = GrokSession(words, words.chance.choice(projects))
        begun = session.tick()
        session.fill(size)
        cwd = session.project.cwd.replace("/", "%2F").replace(" ", "%20")
        folder = out / "sessions" / cwd / session.session
        written += session.write(folder / "updates.jsonl")
        summary = {"info": {"id": session.session, "cwd": session.project.cwd}, "created_at": begun}
        summary |= {"updated_at": session.tick(), "generated_title": words.prose(40, 0.2)}
        (folder / "summary.json").write_bytes(orjson.dumps(summary))
        if written >= target_bytes:
            return


WRITERS = {"claude": write_claude, "codex": write_codex, "grok": write_grok}


def generate(out: Path, mb: int, seed: int, agent: str) -> None:
    """Write a home of about `mb` megabytes."""
    WRITERS[agent](Words(random.Random(seed)), out, mb * MEGABYTE)


def write_one_file(out: Path, mb: int, seed: int) -> None:
    """A home with a single transcript of that size."""
    words = Words(random.Random(seed))
    session = ClaudeSession(words, make_projects(words)[0], words.uuid()).fill(mb * MEGABYTE)
    session.write(out / "projects" / session.project.folder / f"{session.session}.jsonl")


def write_long_line(out: Path, mb: int, seed: int) -> None:
    """A home with a small transcript that has one line of that size: a tool's output without its twin."""
    words = Words(random.Random(seed))
    session = ClaudeSession(words, make_projects(words)[0], words.uuid()).fill(MEGABYTE)
    whole = "".join(file.text for file in words.library)
    text = (whole * (1 + mb * MEGABYTE // len(whole)))[: mb * MEGABYTE * 24 // 25]  # escapes make up the rest
    session.result({"id": words.token("toolu_01"), "name": "Bash"}, text, None, session.parent or "")
    session.fill(session.bytes + MEGABYTE)
    session.write(out / "projects" / session.project.folder / f"{session.session}.jsonl")


def write_small_files(out: Path, count: int, seed: int) -> None:
    """A home with that many short sessions, a few kilobytes each."""
    words = Words(random.Random(seed))
    projects = make_projects(words)
    for _ in range(count):
        session = ClaudeSession(words, words.chance.choice(projects), words.uuid())
        session.prompt(words.prose(100))
        session.message([{"type": "text", "text": words.prose(300)}], "end_turn")
        session.write(out / "projects" / session.project.folder / f"{session.session}.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", choices=sorted(WRITERS), default="claude")
    asked = parser.parse_args()
    generate(asked.out, asked.mb, asked.seed, asked.agent)


if __name__ == "__main__":
    main()
