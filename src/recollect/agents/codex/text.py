"""What Codex puts into texts: wrapped context, exit codes in prose, inline images."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from recollect.agentkit.calls import error_line
from recollect.agentkit.values import as_list, as_mapping, media_reference, summarise

HEAD_CHARS = 400
Instructions = dict[str, str]  # name and sha256 of an instruction file

# How texts begin that the harness writes in the user's name. An unknown wrapper is shown as a prompt: a prompt taken
# for context would vanish from the turns.
INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<skill>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<user_action>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<skills_instructions>",
    "<apps_instructions>",
    "<plugins_instructions>",
    "<app-context>",
    "<model_switch>",
    "<personality_spec>",
    "<hook_prompt",
    "<goal_context>",
    "<recommended_plugins>",
    "<multi_agent",
    "<realtime_conversation>",
    "<network_rule_saved>",
    "Another language model started to solve this problem",
    "Warning: apply_patch was requested via",
    "Warning: The maximum number of unified exec",
)
USER_SHELL = "<user_shell_command>"

# An IDE or a desktop app puts what it knows (open files, selections, comments, earlier chats) before the request,
# which follows the last of these headings. The shorter one a person may type too, so it counts after such a beginning.
_REQUEST_HEADING = re.compile(
    r"^##? My request(?P<is_sure> for (?:Codex|ChatGPT))?(?::[ \t]*|[ \t]*$)\n?", re.MULTILINE | re.IGNORECASE
)
_IDE_CONTEXT = re.compile(
    r"# (?:Context from my IDE setup|(?:Files|Applications) mentioned by the user|Selected text|In app browser"
    r"|(?:Diff|Browser) comments|Response annotations|MCP app context|Failing PR checks|Review findings"
    r"|Pull request merge conflict|Chrome tabs)|## (?:Prior conversation with Codex|Referenced chats with Codex"
    r"|Referenced ChatGPT conversation|Code review guidelines|Pull request (?:fix|merge task)|Auto resolve merge)"
    r"|<in-app-browser-context|The attached pasted text file|(?:#+ )?Input contract",
    re.IGNORECASE,
)


def split_request(words: str) -> tuple[str, str]:
    """What the person typed, and what the program put before it."""
    headings = list(_REQUEST_HEADING.finditer(words))
    if not headings or not (headings[-1]["is_sure"] or _IDE_CONTEXT.match(words.lstrip())):
        return words, ""
    request = words[headings[-1].end() :].strip()
    return (request, words[: headings[-1].start()].strip()) if request else (words, "")


# How the desktop app and the editors ask for a title, in a thread of their own.
_TITLE_TASK = re.compile(r".{0,120}provide a short title for a task\b|Generate a concise UI title\b", re.DOTALL)


def asks_title(words: str) -> bool:
    return _TITLE_TASK.match(words.lstrip()) is not None


# The output of a call has no error flag; a failed one begins with one of these.
_FAILED = (
    "exec_command failed",
    "write_stdin failed",
    "apply_patch verification failed",
    "failed to parse function arguments",
    "failed to parse",
    "unsupported call",
    "unsupported custom tool call",
    "unable to locate image",
    "unable to process image",
    "execution error",
    "tool call error",
    "failed in sandbox",
    "sandbox error",
    "resources/",
    "Script failed",
    "err: ",
    "error: ",
    "Error: ",
)
_REFUSED = (
    "aborted by user",
    "rejected by user",
    "exec command rejected by user",
    "patch rejected by user",
    "user rejected",
    "user cancelled",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, read off the text of its output."""

    body: str
    exit_code: int | None = None
    is_failed: bool = False
    is_refused: bool = False
    is_running: bool = False


def parse_outcome(text: str) -> Outcome:
    """How a call ended, from any of the four dialects in which Codex writes an output."""
    if text.startswith(('{"output":', '{"chunk_id":', '{"exit_code":', '{"wall_time')):
        outcome = _parse_json_outcome(text)
        if outcome is not None:
            return outcome
    head, separator, _ = text[:HEAD_CHARS].partition("Output:\n")
    body = text[len(head) + len(separator) :] if separator else text
    exit_code = _exit_code(head)
    is_refused = exit_code is None and _is_refusal(head)
    return Outcome(
        body,
        exit_code,
        is_failed=bool(exit_code) or (exit_code is None and text.startswith(_FAILED)),
        is_refused=is_refused,
        is_running="Process running with session ID" in head and bool(separator),
    )


def _parse_json_outcome(text: str) -> Outcome | None:
    try:
        document = as_mapping(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None
    # The latter is what a script sees of a command.
    output = document.get("output")
    exit_code = as_mapping(document.get("metadata")).get("exit_code", document.get("exit_code"))
    if not isinstance(output, str):
        return None
    code = exit_code if type(exit_code) is int else None
    is_refused = code != 0 and _is_refusal(output[:HEAD_CHARS])
    return Outcome(output, code, is_failed=bool(code), is_refused=is_refused)


def _is_refusal(head: str) -> bool:
    """Whether the harness reports a refusal: at the start of a line above any output, or as its own error."""
    if head.startswith("exec_command failed"):
        return "rejected by user" in head
    return any(line.startswith(_REFUSED) for line in head.split("\n", 3)[:3])


def _exit_code(head: str) -> int | None:
    if head.startswith("Exit code: "):
        digits = head[11:20]
    elif "Process exited with code " in head:
        digits = head.partition("Process exited with code ")[2][:9]
    else:
        return None
    digits = digits.partition("\n")[0].strip()
    figure = digits.removeprefix("-")
    return int(digits) if figure.isascii() and figure.isdigit() else None


_CUT_MARK = re.compile(r"…\d+ (?:chars|tokens) truncated…")


def is_cut(output: str) -> bool:
    """Whether Codex has left out the middle of an output, as it does in items of more than 10 KB."""
    return "truncated…" in output and _CUT_MARK.search(output) is not None


def summarise_outcome(body: str, exit_code: int | None, is_failed: bool) -> str:
    """Why a call failed, else how its output begins."""
    if not is_failed:
        return summarise(body[:HEAD_CHARS]) or "no output"
    if exit_code is None:
        return summarise(body) or "failed"
    return summarise(f"exit {exit_code}: {error_line(body)}")


def summarise_command(command: str) -> str:
    return summarise(f"ran {command[:HEAD_CHARS]}")


def shell_command(argv: Any) -> str:
    """The command line as the model meant it, without the `bash -lc` around it."""
    if isinstance(argv, str):
        return argv
    words = [word for word in argv if isinstance(word, str)] if isinstance(argv, list) else []
    if len(words) >= 3 and words[1] in ("-lc", "-c", "-Command", "-NoProfile"):
        return words[-1]
    return " ".join(words)


_PATCH_COMMAND = re.compile(r"(?:cd [^;&|\n]+ && )?apply_patch\s*<<")


def is_patch_command(command: str) -> bool:
    """Whether a shell was only used to hand over a patch: `cd src && apply_patch <<'EOF'`."""
    return _PATCH_COMMAND.match(command) is not None


def summarise_edit(paths: list[str]) -> str:
    return summarise(f"edited {', '.join(paths)}") if paths else "edited files"


def is_injected(text: str) -> bool:
    return text.lstrip()[:80].startswith(INJECTED)


def without_image_marks(parts: Iterable[str]) -> list[str]:
    """Drop the tags Codex puts round an image of a prompt."""
    return [
        part
        for part in parts
        if not (part.startswith(("<image", "</image")) and len(part) < 200 and part.endswith(">"))
    ]


def find_media(content: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """References to the inline images of a content list, and the paths or addresses of the others."""
    inline: list[dict[str, Any]] = []
    addresses: list[str] = []
    for part in as_list(content):
        url = _image_address(as_mapping(part))
        if url is None:
            continue
        if url.startswith("data:"):
            inline.append(media_reference("image", url[5:60].partition(";")[0] or None, url))
        else:
            addresses.append(url[:2000])
    return inline, addresses


def _image_address(part: Mapping[str, Any]) -> str | None:
    for key in ("image_url", "path", "file_path"):
        value = part.get(key)
        url = value.get("url") if isinstance(value, dict) else value
        if isinstance(url, str):
            return url
    return None


def between(text: str, start: str, end: str) -> str | None:
    """The text between two marks; None if either is missing."""
    _, has_start, rest = text.partition(start)
    inner, has_end, _ = rest.partition(end)
    return inner if has_start and has_end else None


def find_cwd(text: str) -> str | None:
    """The working directory in an `<environment_context>`, in both of its spellings."""
    inner = between(text[:4000], "<cwd>", "</cwd>")
    if inner is None and "Current working directory: " in text[:4000]:
        inner = text[:4000].partition("Current working directory: ")[2].partition("\n")[0]
    return inner.strip()[:4096] or None if inner else None


def find_instructions(text: str) -> Instructions | None:
    """Name and hash of the instruction file that a message quotes."""
    if text.startswith("# AGENTS.md instructions for "):
        folder = text[29:5000].partition("\n")[0].strip()
        inner = between(text, "<INSTRUCTIONS>\n", "\n</INSTRUCTIONS>")
        return name_instructions(folder, inner or "")
    inner = between(text, "<user_instructions>\n\n", "\n\n</user_instructions>") if text.startswith("<user_") else None
    return name_instructions(None, inner) if inner is not None else None


def name_instructions(folder: str | None, content: str) -> Instructions:
    name = f"{folder.rstrip('/')}/AGENTS.md" if folder else "AGENTS.md"
    return {"name": name, "sha256": hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()}
