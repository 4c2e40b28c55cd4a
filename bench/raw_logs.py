"""What the logs of Claude Code, Codex and Grok say, read for `truth.py` with plain JSON and nothing of Recollect.

Written from the descriptions of the formats (docs/formats), not from Recollect's adapters.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

OUTPUTS = ("output", "aggregated_output", "stdout", "stderr", "formatted_output", "result", "error", "content_items")
TOOLS = {
    "CommandExecution": "exec_command",
    "FileChange": "apply_patch",
    "McpToolCall": "mcp__{0[server]}__{0[tool]}",
    "WebSearch": "web_search",
}
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
GIVEN = (("command", "cwd"), ("changes",))  # what an item has of its call
TEXTS = ("message", "agent_message", "UserMessage", "AgentMessage", "Plan", "user_message")
NOTICE = re.compile(
    r"\s*(<command-name>|<local-command-|<(?:task|agent)-notification>|<system-reminder>|<teammate-message|<bash-"
    r"|Caveat: The messages below|\[Request interrupted|Unknown (skill|slash command): "
    r"|Args from unknown skill: |Operation stopped by hook: "
    r"|This session is being continued from a previous|<environment_context>|<user_instructions>|<INSTRUCTIONS>"
    r"|# AGENTS.md instructions|<turn_aborted>|<skill>|<user_shell_command>|<subagent_notification>"
    r'|\{"task_id": ?"[^{}]*"task_type": ?"[^{}]*\}\s*$)'
)
IDE = re.compile(r"<(ide_\w+)>.*?</\1>", re.S)


class Block(NamedTuple):
    """What one record says: its content has to be one of `hashes`; what a log only repeats may be missing."""

    session: str
    sort: str
    hashes: tuple[str, ...]
    is_required: bool
    label: str | None = None  # of a result, its call


class Request(NamedTuple):
    """One response; `input` excludes what the cache read or wrote."""

    session: str
    model: str
    at: str
    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int = 0
    calls: int = 1
    usd: float | None = None


class Home:
    """What the logs of one home say."""

    def __init__(self) -> None:
        self.blocks: dict[Any, Block] = {}
        self.requests: dict[Any, Request] = {}
        self.turns: dict[Any, tuple[str, str]] = {}  # key → session, time
        self.parents: dict[str, str] = {}
        self.totals: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.calls: dict[Any, str | None] = {}  # id → tool, or None for the user's own
        self.copied: dict[str, set[Any]] = defaultdict(set)  # requests that another session made


def flat(value: Any) -> str:
    """The text of a content in any shape; pictures have none."""
    if isinstance(value, list):
        return "\n".join(map(flat, value))
    if isinstance(value, dict):
        if value.get("type") in ("image", "document", "input_image", "encrypted_content"):
            return ""
        return flat(value["text"]) if "text" in value else json.dumps(value, sort_keys=True)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def hashed(value: Any) -> str:
    """A hash of the content without white space, so that it does not matter how texts are joined."""
    text = json.dumps(value, sort_keys=True) if isinstance(value, dict) else flat(value)
    text = "".join(text.replace("\\u2028", "").split()).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return hashlib.md5(text.encode()).hexdigest() if text else ""


def strings(value: Any) -> Iterator[str]:
    """Every text in a record, also as the JSON it holds, and what follows `Output:` in it."""
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        yield bytes(item % 256 for item in value).decode("utf-8", "replace")
    elif isinstance(value, (list, dict)):
        yield flat(value)
        for item in value if isinstance(value, list) else value.values():
            yield from strings(item)
    elif isinstance(value, str):
        yield value
        yield value.partition("Output:\n")[2]
        if value.startswith(("{", "[")):
            try:
                yield from strings(json.loads(value))
            except ValueError:
                return


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a file, several on a line too; cut ones are skipped."""
    for line in path.read_bytes().split(b"\n"):
        text, at = line.decode("utf-8", "replace"), 0
        while at < len(text):
            try:
                value, at = json.JSONDecoder().raw_decode(text, at)
            except ValueError:
                break
            if isinstance(value, dict):
                yield value


def read_claude(home: Path) -> Home:
    """A message counts once by its id, with its largest figures; sessions are those that the records name."""
    truth = Home()
    records: list[tuple[str, str, dict[str, Any]]] = []
    queue: dict[str, list[tuple[str, str]]] = defaultdict(list)
    typed: list[dict[str, Any]] = []
    stand_ins: list[tuple[str, str, dict[str, Any]]] = []
    last_words: dict[str, list[str]] = defaultdict(list)
    start: dict[str, tuple[str, str]] = {}
    for path in sorted(home.rglob("*.jsonl")):
        if path.name == "history.jsonl" and path.parent == home:
            typed = [value for value in lines(path) if not value["display"].startswith("/")]
        if path.name in ("history.jsonl", "journal.jsonl") or "tool-results" in path.parts:
            continue
        values = list(lines(path))
        first = next((value["sessionId"] for value in values if value.get("sessionId")), "")
        chains: dict[str, str] = {}
        for value in values:
            session, at, data = value.get("sessionId") or first, value.get("timestamp") or "", value.get("data") or {}
            if value.get("isSidechain") and not value.get("agentId"):
                chains[value["uuid"]] = chains.get(value.get("parentUuid") or "", value["uuid"])
            begun, ended = start.get(session, ("9", ""))
            start[session] = (min(at or "9", begun), max(at, ended))
            name = value.get("agentId") or chains.get(value.get("uuid") or "")
            own = f"{session}/{name}" if value.get("isSidechain") and name else session
            if value.get("type") == "cost-state":
                truth.totals[session].append(value)
            elif value.get("type") == "queue-operation" and value.get("operation") == "enqueue":
                queue[session].append((at, flat(value.get("content"))))
            elif value.get("type") == "progress" and data.get("type") == "agent_progress":
                message = data["message"] | {"isSidechain": True}
                stand_ins.append((f"{session}/{data['agentId']}", message.get("timestamp") or at, message))
            else:
                records.append((own, at, value))
            result = value.get("toolUseResult")
            if isinstance(result, dict) and result.get("agentId"):
                last_words[f"{session}/{result['agentId']}"] += list(strings(result.get("content")))
    own_logs = {session for session, _, _ in records}
    for number, value in enumerate(typed):
        if (session := value.get("sessionId")) and session not in own_logs:  # no log is left but the prompt
            at = datetime.fromtimestamp(value["timestamp"] / 1000, UTC).isoformat()
            truth.turns["history", number] = (session, at)
    records += [record for record in stand_ins if record[0] not in own_logs]
    # Copies come after their originals: later, in a sub-agent's file, marked, or in a session begun or ended later.
    records.sort(key=lambda one: (one[1], "/" in one[0], "forkedFrom" in one[2], start.get(one[0], ("", ""))))
    model, said, begun, queued = "", defaultdict(list), set(), []
    for session, at, value in records:
        message, uuid = value.get("message"), value.get("uuid")
        attachment = value.get("attachment") or {}
        if "/" in session:
            truth.parents[session] = session.partition("/")[0]
        if attachment.get("type") == "queued_command":
            queued.append((session, at, uuid, flat(attachment.get("prompt"))))
        if not isinstance(message, dict) or value.get("type") not in ("user", "assistant"):
            continue
        content = message.get("content")
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        words = []
        for number, part in enumerate(content):
            sort, key = part.get("type"), (session, uuid, number)
            if sort == "tool_use" or sort == "server_tool_use":
                block = Block(session, "call", (hashed(part.get("input") or {}),), True)
                truth.calls.setdefault(part.get("id"), part.get("name"))
            elif sort == "tool_result":
                block = Block(session, "result", (hashed(part.get("content")),), True, part.get("tool_use_id"))
            elif sort == "thinking":
                block = Block(session, "thinking", (hashed(part.get("thinking")),), True)
            else:
                words.append(flat(part) if sort == "text" else f"[{sort}]")
                if value["type"] == "user":
                    continue
                block = Block(session, "text", (hashed(part.get("text")),), True)
            truth.blocks.setdefault(key, block)
        if value["type"] == "assistant":
            if message.get("model") != "<synthetic>" and (usage := message.get("usage")):
                model, key = message["model"], message.get("id") or uuid
                cache = usage.get("cache_creation") or {}
                names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
                figures = [usage.get(name) or 0 for name in names] + [cache.get("ephemeral_1h_input_tokens") or 0]
                old = truth.requests.get(key, Request(session, model, at, *figures))
                figures = [max(pair) for pair in zip(old[3:8], figures, strict=True)]
                truth.requests[key] = Request(*old[:3], *figures)
                truth.copied[session] |= {key} if old.session != session else set()
            continue
        result = value.get("toolUseResult")
        if isinstance(result, dict) and "durationSeconds" in result and model:
            usd = result.get("searchCount", 1) * 0.01
            truth.requests.setdefault(f"search {uuid}", Request(session, model, at, 0, 0, 0, 0, usd=usd))
        if words:
            text = "\n".join(words)
            bare = IDE.sub("", text).strip()
            command = re.search(r"<command-name>(.*?)</command-name>", text)
            arguments = re.search(r"<command-args>(.*?)</command-args>", text, re.S)
            shell = re.match(r"\s*<bash-input>(.*)</bash-input>", text, re.S)
            forms = [text, bare, "\n".join(word for word in words if word not in ("[image]", "[document]"))]
            forms += [command[1] + (arguments[1] if arguments else "")] if command else []
            forms += re.findall(r"<bash-stdout>(.*?)</bash-stdout>", text, re.S)
            forms += [flat(re.findall(r"<bash-std(?:out|err)>(.*?)</bash-std", text, re.S))]
            hashes = tuple(map(hashed, forms)) + ((hashed({"command": shell[1]}),) if shell else ())
            is_plain = all(hashes[:3]) and text != "<bash-stdout></bash-stdout><bash-stderr></bash-stderr>"
            truth.blocks.setdefault((session, uuid, "text"), Block(session, "user", hashes, is_plain))
            is_first = "/" in session and session not in begun
            is_meta = value.get("isMeta") or value.get("isCompactSummary") or value.get("promptSource") == "system"
            is_notice = NOTICE.match(bare) or (value.get("origin") or {}).get("kind") == "task-notification"
            said[session].append((at, "".join(bare.split())))
            if bare and (is_first or not (is_meta or is_notice)):
                truth.turns.setdefault(uuid, (session, at))
                said[session].append((at, hashed(command[1]) if command else ""))
        begun.add(session)
    for session, at, uuid, text in queued:
        truth.blocks[session, uuid, "queue"] = Block(session, "user", (hashed(text),), False)
        if not NOTICE.match(text) and not is_near(said[session + " queue"], at, text):
            truth.turns.setdefault(uuid, (session, at))
        said[session + " queue"].append((at, "".join(text.split())))
    for session, entries in queue.items():
        known = said[session] + said[session + " queue"]
        for number, (at, text) in enumerate(entries):
            truth.blocks[session, at, number] = Block(session, "user", (hashed(text),), False)
            is_said = is_near(known, at, text) or is_near(entries[:number], at, text)
            if text.strip() and not NOTICE.match(text) and not is_said and not text.startswith("/"):
                truth.turns[session, at, number] = (session, at)
    for session, texts in last_words.items():
        for number, text in enumerate(texts):
            truth.blocks[session, "last", number] = Block(session, "text", (hashed(text),), False)
    return truth


def is_near(entries: list[tuple[str, str]], at: str, text: str) -> bool:
    """Whether the same words are among these, later or at most a minute before."""
    limit, words = moment(at) - timedelta(minutes=1), "".join(text.split())
    return any("".join(said.split()) == words and moment(time) >= limit for time, said in entries)


def moment(at: str) -> datetime:
    return datetime.fromisoformat(at) if at else datetime.min.replace(tzinfo=UTC)


def read_codex(home: Path) -> Home:
    """Of a call, any text of its output or its item is its result; tokens are what the running totals grow by."""
    truth = Home()
    paths = {path: re.findall(UUID, path.stem)[0] for path in sorted(home.rglob("rollout-*.json*"))}
    typed = list(lines(home / "history.jsonl")) if (home / "history.jsonl").exists() else []
    for number, value in enumerate(typed):
        if value["session_id"] not in paths.values():  # no log is left but the prompt
            truth.turns["history", number] = (value["session_id"], datetime.fromtimestamp(value["ts"], UTC).isoformat())
    for path, session in paths.items():
        values = list(lines(path) if path.suffix == ".jsonl" else chat(json.loads(path.read_text())))
        first = "" if "payload" in values[0] else values[0].get("timestamp") or ""  # of a bare log only the first event
        is_paged = any("ordinal" in value for value in values)
        names = {value["payload"]["id"] for value in values[:2] if value.get("type") == "session_meta"} - {session}
        base = (value for path, held in paths.items() if held in names for value in lines(path))
        copied = Counter(json.dumps(value.get("payload")) for value in base)  # what a fork takes over
        model, last, prompts, outputs, ids = "", [0] * 4, Counter(), defaultdict(list), set()
        for number, value in enumerate(values):
            at, kind = value.get("timestamp") or first, value.get("type")
            first = "" if value.get("type") else first
            item = value.get("payload") if isinstance(value.get("payload"), dict) else value
            sort, key = item.get("type"), (session, path.stem, number)
            if kind == "session_meta" and not truth.parents.get(session) and isinstance(item.get("source"), dict):
                spawn = item["source"].get("subagent") or {}
                spawn = spawn.get("thread_spawn") if isinstance(spawn, dict) else None
                truth.parents[session] = (spawn or {}).get("parent_thread_id") or item.get("session_id") or session
            model = item.get("model") or model if kind == "turn_context" else model
            if kind == "event_msg" and sort == "item_completed":
                item = item["item"]
                sort = item.get("type")
            call = item.get("call_id") or (item.get("id") if kind == "event_msg" else None)
            if kind == "token_usage_record":
                usage = item["usage"]
                record(truth, item["response_id"], session, model, at, usage)
            elif sort == "token_count" and (info := item.get("info")) and not is_paged:
                names = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")
                now = [info["total_token_usage"].get(name) or 0 for name in names]
                grown = [new - old for new, old in zip(now, last, strict=True)]
                is_fresh = min(grown) < 0 or not any(last)
                usage = info["last_token_usage"] if is_fresh else dict(zip(names, grown, strict=True))
                if now != last:
                    record(truth, key, session, model, at, usage)
                last = now
            elif sort in ("function_call", "custom_tool_call", "local_shell_call"):
                given = item.get("arguments") or item.get("input") or item.get("action") or ""
                hashes = [hashed(given)]
                hashes += [hashed(json.loads(given))] if str(given).startswith("{") else []
                ids.add(call)
                truth.blocks[key] = Block(session, "call", tuple(hashes), True)
                truth.calls[key] = item.get("name")
            elif call and (str(sort).endswith(("_output", "_end")) or sort in TOOLS):
                outputs[call] += [hashed(text) for name in OUTPUTS if name in item for text in strings(item[name])]
                if kind == "event_msg" and call not in ids:  # made by a script or by the user
                    given = [{name: item[name] for name in names if name in item} for names in GIVEN]
                    hashes = [hashed(one) for one in given if one] or [hashed(item.get("arguments") or {})]
                    truth.blocks[key] = Block(session, "call", tuple(hashes), True)
                    name = TOOLS.get(sort, "exec_command").format(item)
                    truth.calls[key] = None if item.get("source") == "user_shell" else name
            elif sort in TEXTS and item.get("role") not in ("developer", "system"):
                text = flat(item.get("content") or item.get("message") or item.get("text"))
                is_user = sort in ("UserMessage", "user_message") or item.get("role") == "user" or "recipient" in item
                request = re.split(r"(?im)^##? my request(?: for codex)?:\s*", text)[-1]
                is_twin = (sort == "message" and is_paged) or (sort == "agent_message" and kind == "event_msg")
                is_twin |= is_user and not is_paged and prompts[sort != "message", hashed(text)] > 0
                if is_user:
                    prompts[(sort == "message") != is_twin, hashed(text)] += -1 if is_twin else 1
                name = "user" if is_user else "text"
                is_required = not is_twin and bool(hashed(request)) and "<proposed_plan>" not in text
                truth.blocks[key] = Block(session, name, (hashed(text), hashed(request)), is_required)
                is_notice = NOTICE.match(text) or (sort == "agent_message" and session not in truth.parents)
                if is_user and is_required and not is_notice:
                    truth.turns[key] = (session, at)
            elif sort in ("reasoning", "Reasoning", "agent_reasoning"):
                parts = [flat(item.get(name)) for name in ("summary", "content", "text", "summary_text", "raw_content")]
                hashes = tuple(hashed(text) for text in [*parts, "\n".join(parts)] if text)
                is_twin = sort == "agent_reasoning" or (sort == "reasoning" and is_paged)
                truth.blocks[key] = Block(session, "thinking", hashes, not is_twin and any(hashes))
            copied[json.dumps(value.get("payload"))] -= 1
            if copied[json.dumps(value.get("payload"))] >= 0:
                for figures in (truth.requests, truth.turns, truth.calls):
                    figures.pop(key, None)
        for call, hashes in outputs.items():
            truth.blocks[session, call, "first"] = Block(session, "result", tuple(set(hashes)), any(hashes), call)
            truth.blocks[session, call, "second"] = Block(session, "result", tuple(set(hashes)), False, call)
    return truth


def chat(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The first generation's single document: its chat messages as the items of later ones."""
    yield document["session"]
    for item in document["items"]:
        if item.get("reasoning"):
            yield {"type": "reasoning", "text": item["reasoning"]}
        if item.get("role") == "tool":
            yield {"type": "function_call_output", "call_id": item["tool_call_id"], "output": item["content"]}
        else:
            yield {"type": "message"} | item
        for call in item.get("tool_calls") or ():
            yield {"type": "function_call", "call_id": call["id"]} | call["function"]


def record(truth: Home, key: Any, session: str, model: str, at: str, usage: dict[str, int]) -> None:
    read, written = usage.get("cached_input_tokens") or 0, usage.get("cache_write_input_tokens") or 0
    fresh = (usage.get("input_tokens") or 0) - read - written
    truth.requests.setdefault(key, Request(session, model, at, fresh, usage.get("output_tokens") or 0, read, written))


def read_grok(home: Path) -> Home:
    """What turns used includes sub-agents, so these have no figures of their own."""
    truth = Home()
    for path in home.rglob("subagents/*/meta.json"):
        truth.parents[path.parent.name] = path.parents[2].name
    for path in sorted(home.rglob("updates.jsonl"), key=lambda path: next(lines(path))["timestamp"]):
        session, pieces = path.parent.name, {}
        for number, value in enumerate(lines(path)):
            params = value["params"]
            update, about = params["update"], params.get("_meta") or {}
            at = datetime.fromtimestamp(
                about.get("agentTimestampMs", value["timestamp"] * 1000) / 1000, UTC
            ).isoformat()
            sort, key, text = update["sessionUpdate"], (session, number), flat(update.get("content"))
            once = (about.get("eventId", "")[36:], about.get("agentTimestampMs"))
            if sort in ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk"):
                piece = (sort, about.get("promptId"), about.get("streamStartMs"))
                if pieces.get("last") == piece and sort != "user_message_chunk":
                    key = pieces["key"]
                    text = pieces["text"] + text
                pieces = {"last": piece, "key": key, "text": text}
                name = {"user_message": "user", "agent_message": "text"}.get(sort.removesuffix("_chunk"), "thinking")
                is_shell = "bash_command" in (update["content"].get("_meta") or {})
                truth.blocks[key] = Block(session, name, (hashed(text),), bool(hashed(text)) and not is_shell)
                hidden = (update.get("_meta") or {}).get("hideFromScrollback") or text.startswith("<system-reminder>")
                if name == "user" and not hidden and not is_shell:
                    truth.turns.setdefault(once, (session, at))
            elif sort == "tool_call":
                truth.blocks[key] = Block(session, "call", (hashed(update.get("rawInput") or {}),), True)
                tool = ((update.get("_meta") or {}).get("x.ai/tool") or {}).get("name")
                truth.calls.setdefault(once, tool if "bash-mode" not in update["toolCallId"] else None)
                pieces = {}
            elif sort == "tool_call_update" and update.get("status") in ("completed", "failed"):
                log = path.parent / "terminal" / f"{update['toolCallId']}.log"
                texts = [*strings(update), *([log.read_text("utf-8", "replace")] if log.exists() else [])]
                hashes = tuple({hashed(text) for text in texts})
                truth.blocks[key] = Block(session, "result", hashes, True, update["toolCallId"])
                pieces = {}
            elif sort == "turn_completed" and (usage := update.get("usage")) and session not in truth.parents:
                read, written = usage.get("cachedReadTokens", 0), usage.get("cacheCreationTokens", 0)
                figures = (usage["inputTokens"] - read - written, usage["outputTokens"], read, written, 0)
                ticks = usage.get("costUsdTicks")
                model, calls = next(iter(usage.get("modelUsage") or {}), ""), usage.get("modelCalls", 1)
                usd = ticks / 1e10 if ticks else None
                truth.requests.setdefault(update["prompt_id"], Request(session, model, at, *figures, calls, usd))
    return truth
