"""What a shell command is about: its family (`npm test`), whether its exit code tells, the message of a commit."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from recollect.distill.texts import word_set

RAN = "ran "
SCRIPT = "ran script:"
_FAMILY_CHARS = 40

_SEPARATOR = re.compile(r"\s*(?:&&|\|\||;|\n|\|&?)\s*")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=\S*\s+")
# What the shell hands on unread. A summary has lost the line ends round a here-document, and may be cut within a quote.
_QUOTED = re.compile(
    r"(?:\"\$\(cat\s*)?(?<!<)<<(?!<)-?\s*['\"]?(?P<mark>\w+)['\"]?.*?(?:\s(?P=mark)(?!\S)(?:\s*\)\")?|\Z)"
    r"|'[^']*(?:'|…\Z)|\"(?:[^\"\\]|\\.)*(?:\"|…\Z)",
    re.DOTALL,
)
_COMMENT = re.compile(r"(?<!\S)#[^\n]*")
_LAUNCHER = re.compile(
    r"^(?:sudo|time|env|nice|command|exec|xvfb-run|nohup|timeout\s+(?:-\S+\s+)*\S+"
    r"|(?:uv|poetry|pdm|hatch|pipenv|rye)\s+run|npx|bunx|pnpm dlx|yarn dlx|bundle exec)\s+(?:-\S+\s+)*"
)
_LAUNCHERS = word_set(
    "sudo time env nice command exec xvfb-run nohup timeout uv poetry pdm hatch pipenv rye npx bunx pnpm yarn bundle"
)
_SETTING_UP = frozenset(
    {"cd", "export", "source", "set", "echo", "true", "sleep", "pushd", "popd", "unset", "ulimit", "."}
)
# Parts of a chain that prepare another one, such as `git add . && git commit`.
_GETTING_READY = frozenset({"git add", "pwd", "mkdir"})
_LOOKING = re.compile(
    r"cat|ls|head|tail|less|more|e?grep|rg|ag|ack|find|fd|wc|pwd|which|type|tree|stat|file|du|df|ps|env|printenv|nl|awk|sed|jq"
    r"|sort|uniq|cut|tr|diff|cmp|date|whoami|hostname|uname|history|man"
    r"|git (?:log|status|diff|show|branch|blame|rev-parse|remote|ls-files|grep|reflog|describe)"
)
_CHANGING = re.compile(
    r"(?<![0-9&])>(?!&|\s*/dev/null)|\bsed\s+(?:-\S+\s+)*-\w*i|\s-(?:delete|exec)\b|\btee\b|\bxargs\b"
)
# Programs whose first word after the name says what they do.
_WITH_VERBS = word_set(
    "git gh npm pnpm yarn bun deno cargo go docker podman kubectl helm pip pip3 uv poetry pdm make just "
    "mise task rails rake bundle mix dotnet swift flutter dart terraform aws gcloud az brew apt apt-get "
    "systemctl composer php artisan gradle gradlew mvn mvnw bazel nx turbo pre-commit tox nox supabase "
    "vercel fly heroku rustup conda stack cabal"
)
_TWO_VERBS = frozenset(
    {("npm", "run"), ("pnpm", "run"), ("yarn", "run"), ("bun", "run"), ("docker", "compose"), ("mise", "run")}
)
_TEST_TASK = re.compile(
    r"tests?(?:[:_-](?:all|api|backend|browser|ci|client|cov(?:er(?:age)?)?|e2e|fast|frontend|full|go|integration|js|local"
    r"|once|py|quick|race|run|server|slow|smoke|ts|ui|units?|verbose|watch))*"
)
_NAMES_TESTS = re.compile(r"test|check|spec")
_WORD = re.compile(r"^[\w@:./+-]+$")
# That `git commit` was asked for only to see what it would do.
_ONLY_ASKS = r"[^;&|\n]*\s(?:--dry-run|--help|-h)(?!\S)"
_COMMIT = re.compile(rf"\bgit\s+(?:-\S+\s+(?:[^-\s]\S*\s+)?)*commit(?![\w.=-])(?!{_ONLY_ASKS})")
_COMMITTED = re.compile(r"\[[^\[\]\n]+ [0-9a-f]{4,40}\]")  # `[main 1a2b3c4]`
_MESSAGE = re.compile(
    r"(?:-[a-z]*m|--message)[\s=]*(?:\"\$\(cat\s*<<-?\s*['\"]?(?P<mark>\w+)['\"]?\s*(?P<here>.*?)(?:\s+(?P=mark)\b|$)"
    r"|'(?P<single>[^']*)'?|\"(?P<double>(?:[^\"\\]|\\.)*)\"?)",
    re.DOTALL,
)
_TRIAL = re.compile(r"\bgit\s+init\b|\bmktemp\b|\bcd\s+/tmp\b")
_PULL_REQUEST = re.compile(r"\b(?:gh\s+pr|glab\s+mr)\s+create\b")
_TITLE = re.compile(r"(?:-t|--title)[\s=]+(?:'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\")")
_ADDRESS = re.compile(r"https?://\S+/(?:pull|merge_requests)/\d+")
_SWALLOWS_EXIT = re.compile(r"\||;|\n|(?<![&>])&(?![&>])")
_LISTS_TESTS = re.compile(r"\s(?:--collect-only|--co|--listTests|--list(?:-tests)?|--no-run|--help|--version)(?!\S)")


def command_of(summary: str) -> str | None:
    """The command a call ran, as far as its summary tells; None for any other call."""
    if not summary.startswith(RAN) or summary.startswith(SCRIPT):
        return None
    return summary[len(RAN) :]


def command_given(payload: Mapping[str, Any]) -> str | None:
    """The command as it was called, with its lines; None if the payload of the call tells none."""
    told = payload.get("input")
    command = told.get("command", told.get("cmd")) if isinstance(told, dict) else told
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        is_wrapped = len(words) > 2 and words[1].startswith("-")  # `bash -lc COMMAND`
        command = words[-1] if is_wrapped else " ".join(words)
    return command if isinstance(command, str) else None


@lru_cache(maxsize=20_000)
def family(command: str) -> str:
    """The kind of thing a command does, by which runs of it are counted together.

    Of a chain the first part counts that is more than getting ready; of one that runs tests, see `test_family`.
    """
    names = _names(command)
    return next((name for name in names if name not in _GETTING_READY), names[0] if names else "shell")


def is_one_thing(command: str) -> bool:
    """Whether a command that failed did so in its family: nothing else in it does more than look."""
    names = {name for name in _names(command) if name not in _GETTING_READY}
    doing = {name for name in names if _LOOKING.fullmatch(name) is None} or names
    return doing <= {family(command)}


def only_looks(command: str) -> bool:
    """Whether a command shows something and changes nothing, as far as its programs tell."""
    plain = _QUOTED.sub("''", command[:2000])
    return all(map(_LOOKING.fullmatch, _names(command))) and _CHANGING.search(plain) is None


@lru_cache(maxsize=5_000)
def test_family(command: str) -> str:
    """The family of that part of a command that runs tests."""
    names = _names(command)
    return next((name for name in names if names_tests(name)), (names or ("shell",))[0])


def names_tests(family: str) -> bool:
    """Whether a family is one of tests by its name; `npm run lint` is none, nor is `jest`."""
    return _NAMES_TESTS.search(family) is not None


def only_lists_tests(command: str) -> bool:
    """Whether tests are named or built but none is run: `pytest --collect-only`."""
    parts = _SEPARATOR.split(_QUOTED.sub("''", command[:2000]))
    tests = [part for part in parts if names_tests(_named(part) or "")]
    return bool(tests) and all(map(_LISTS_TESTS.search, tests))


def may_fail_before_tests(command: str) -> bool:
    """Whether other programs run before the tests, so that a failure may be theirs: `npm run lint && npm test`."""
    names = [name for name in _names(command) if name not in _GETTING_READY]
    return names[:1] != [test_family(command)]


@lru_cache(maxsize=5_000)
def _names(command: str) -> tuple[str, ...]:
    """What each part of a chain does, without those that only set up the shell."""
    parts = _SEPARATOR.split(_QUOTED.sub("''", command[:2000]))
    return tuple(name for part in parts if (name := _named(part)))


def _named(part: str) -> str | None:
    part = part.strip().lstrip("({! ")
    words = part.split()
    while words and ("=" in words[0] or words[0] in _LAUNCHERS):
        shorter = _LAUNCHER.sub("", _ASSIGNMENT.sub("", part))
        if shorter == part:
            break
        part, words = shorter, shorter.split()
    if not words or words[0] in _SETTING_UP or not _WORD.match(words[0]):
        return None
    name = words[0].rstrip("/").rpartition("/")[2] or words[0]
    if name.startswith("python") and not name[6:].strip("0123456789."):
        return _python(words[1:])
    return _with_verb(name, words[1:])[:_FAMILY_CHARS]


def _python(arguments: list[str]) -> str:
    for index, word in enumerate(arguments[:-1]):
        if word == "-m":
            return arguments[index + 1][:_FAMILY_CHARS]
    return "python"


def _with_verb(name: str, arguments: list[str]) -> str:
    if name not in _WITH_VERBS:
        return name
    verbs = [word for word in _without_options(name, arguments) if _WORD.match(word)][:2]
    if not verbs:
        return name
    return " ".join((name, *verbs)) if (name, verbs[0]) in _TWO_VERBS else f"{name} {verbs[0]}"


def _without_options(name: str, arguments: list[str]) -> list[str]:
    """The words that are no options; `git -C PATH` takes the word after it along."""
    found, is_value = [], False
    for word in arguments:
        if is_value:
            is_value = False
        elif word.startswith("-"):
            is_value = name == "git" and word in ("-C", "-c")
        else:
            found.append(word)
    return found


def test_task(command: str) -> str | None:
    """The runner's task for the tests in a command, if any: `mise run test`, `just test`, `npm run test:unit`."""
    return next((name for name in _names(command) if _is_test_task(name)), None) if "test" in command else None


def _is_test_task(family: str) -> bool:
    runner, _, task = family.rpartition(" ")
    return bool(runner) and _TEST_TASK.fullmatch(task) is not None


def hides_exit(command: str) -> bool:
    """Whether the exit code may be another program's than the one asked about: `pytest | tail`, `pytest; true`."""
    return _SWALLOWS_EXIT.search(_QUOTED.sub("''", command).strip()) is not None


def opens_pull_request(command: str) -> bool:
    return _PULL_REQUEST.search(_QUOTED.sub("''", command)) is not None


def pull_request(command: str, output: str) -> tuple[str, str] | None:
    """The address and the title of the pull request that a command opened, as its output tells; None if none.

    Its address comes last: the words before it may name others.
    """
    if not opens_pull_request(command) or not (addresses := _ADDRESS.findall(output)):
        return None
    told = _TITLE.search(command)
    return addresses[-1], (told["single"] or told["double"] or "") if told else ""


def removed_files(command: str) -> list[str]:
    """The files that a command, having succeeded, must have deleted, as far as it names them plainly.

    The command must have its line ends: without them the words of the next line look like files.
    """
    plain = _COMMENT.sub("", _QUOTED.sub("''", command)).strip()
    if _SWALLOWS_EXIT.search(plain) is not None:
        return []
    parts = [part.split() for part in _SEPARATOR.split(plain)]
    is_elsewhere = any(words[:1] in (["cd"], ["pushd"]) for words in parts)
    names = [name for words in parts for name in _removed(words)]
    return [name for name in names if name.startswith("/") or not is_elsewhere]


def _removed(words: list[str]) -> list[str]:
    given = words[2:] if words[:2] == ["git", "rm"] else words[1:] if words[:1] in (["rm"], ["unlink"]) else []
    if any("<" in word or ">" in word for word in given):
        return []  # the words after it are where the output goes
    if any(word.startswith("-") and word not in ("-v", "-i", "-q") for word in given):
        return []  # `-f` takes what is not there for deleted, `-r` takes folders, `--cached` leaves the file
    return [word for word in given if _WORD.match(word) and not word.startswith(("-", "/tmp/"))]


def commit_message(command: str) -> str | None:
    """The first line of the message of a `git commit` in a command; None if there is no commit.

    One in a repository that the same command makes, or in a temporary folder, is a trial and none of the session's.
    """
    made = _COMMIT.search(_blanked(command))
    if made is None or _TRIAL.search(command) is not None:
        return None
    told = _MESSAGE.search(command, made.end())
    if told is None:
        return ""
    return (told["here"] or told["single"] or told["double"] or "").strip().partition("\n")[0]


def hides_commit(command: str) -> bool:
    """Whether a command may succeed though its `git commit` did not: `git commit -m x || true`."""
    plain = _blanked(command).strip()
    made = _COMMIT.search(plain)
    return made is not None and _SWALLOWS_EXIT.search(plain, made.end()) is not None


def says_committed(output: str) -> bool:
    """Whether git itself says that it made a commit."""
    return _COMMITTED.search(output) is not None


def _blanked(command: str) -> str:
    """A command without what is quoted in it, each word of it still in its place."""
    return _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), command)
