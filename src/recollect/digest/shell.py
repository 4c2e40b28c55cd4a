"""What a shell command is about: its family (`npm test`), what its exit code and its tests say, a commit's message."""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from recollect.digest.texts import word_set
from recollect.model.text import ELLIPSIS

RAN = "ran "
SCRIPT = "ran script:"
_FAMILY_CHARS = 40

_SEPARATOR = re.compile(r"\s*(?:&&|\|\||;|\n|\|&?)\s*")
_KEPT_SEPARATOR = re.compile(r"\s*(&&|\|\||;|\n|\|&?|(?<![&>])&(?![&>]))\s*")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=(?:[\"']?\$\(\s*|\S*\s+)")
# What the shell hands on unread. A summary has lost the line ends round a here-document, and may be cut within a quote.
_QUOTED = re.compile(
    r"(?:\"\$\(cat\s*)?(?<!<)<<(?!<)-?\s*['\"]?(?P<mark>\w+)['\"]?.*?(?:\s(?P=mark)(?!\S)(?:\s*\)\")?|\Z)"
    r"|'[^']*(?:'|…\Z)|\"(?:[^\"\\]|\\.)*(?:\"|…\Z)",
    re.DOTALL,
)
_COMMENT = re.compile(r"(?<!\S)#[^\n]*")
_LAUNCHER = re.compile(
    r"^(?:sudo|time|env|nice|command(?!\s+-[vV])|exec|xvfb-run|nohup|timeout\s+(?:-\S+\s+)*\S+"
    r"|(?:uv|poetry|pdm|hatch|pipenv|rye)\s+run|npx|bunx|pnpm dlx|yarn dlx|bundle exec|cmd(?:\.exe)?\s+/c)"
    r"\s+(?:-\S+\s+)*"
)
_LAUNCHERS = word_set(
    "sudo time env nice command exec xvfb-run nohup timeout uv poetry pdm hatch pipenv rye npx bunx pnpm yarn bundle"
    " cmd cmd.exe"
)
_SETTING_UP = word_set(
    "cd export source set echo printf true sleep pushd popd unset ulimit . set-location push-location pop-location"
    " write-host write-output start-sleep"
)
# Words of the shell's own: a command may follow the first sort, none follows the second.
_BEFORE_COMMANDS = word_set("do then else elif if while until ! { ( & \\")
_NO_COMMANDS = word_set(
    "for foreach case select done fi esac } ) break continue return exit local declare readonly wait trap function"
)
_UNCLEAR = re.compile(r"(?<!\S)(?:#|\\|do|then|[A-Za-z_]\w*=\S)(?!\S)|<<")
_LOOP = re.compile(r"^(?:for|select)\s.*?\sdo\s+")  # with the lines that a summary has lost
_TEST_WORDS = word_set("[ [[")
_PROGRAM_FILE = re.compile(r"\.(?:exe|cmd|bat|ps1)$", re.IGNORECASE)
# Parts of a chain that prepare another one, such as `git add . && git commit`.
_GETTING_READY = frozenset({"git add", "pwd", "mkdir", "test", "read"})
_OF_SHELL = frozenset({"test", "read"})
_LOOKING = re.compile(
    r"cat|ls|head|tail|less|more|e?grep|rg|ag|ack|find|fd|wc|pwd|which|type|tree|stat|file|du|df|ps|env|printenv|nl|awk|sed|jq"
    r"|sort|uniq|cut|tr|diff|cmp|date|whoami|hostname|uname|history|man"
    r"|git (?:log|status|diff|show|branch|blame|rev-parse|remote|ls-files|grep|reflog|describe)"
)
# Programs whose exit 1 is an answer: nothing matched, the two differ.
_ANSWERING = re.compile(
    r"(?:[efz]?grep|rg|ag|ack|pgrep|lsof|findstr|Select-String|diff|cmp|test|which|command|type"
    r"|git (?:grep|diff|merge-base|check-ignore))"
)
_CHANGING = re.compile(
    r"(?<![0-9&])>(?!&|\s*/dev/null)|\bsed\s+(?:-\S+\s+)*-\w*i|\s-(?:delete|exec)\b|\btee\b|\bxargs\b"
)
_WRITING = re.compile(r"(?<![0-9&>=-])>{1,2}(?![&>=])\s*(?!['\"]?(?:/dev/|/tmp/|/var/|\$))[\w./~-]*\.\w+(?![\w*])")
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
_WORD = re.compile(r"^(?=.*\w)[\w@:./\\+-]+$")
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
# How programs, and the shell for those that are missing, begin their errors: `mkdir: …`, `bash: line 1: cd: …`.
_NAMED_BY_ERROR = re.compile(
    r"^(?:exit -?\d+: |failed: )*(?:\S*(?:sh|eval\)):(?: line)? ?(?:\d+: ?)?)?"
    r"(?:command not found: (?P<missing>\S+)|(?:fatal|error): (?!ENOENT)|(?P<program>[\w.+-]+): ?(?:\d+: )?)"
)
_SAID_BY_SHELL = re.compile(
    r"(?:exit -?\d+: |failed: )*\S*(?:sh|eval\)):"
)  # such as `(eval):1: no matches found: *.txt`
_NOT_ADDED = re.compile(r"pathspec|adding files|paths are ignored|beyond a symbolic link")
_SWALLOWS_EXIT = re.compile(r"\||;|\n|(?<![&>])&(?![&>])")
_LISTS_TESTS = re.compile(r"\s(?:--collect-only|--co|--listTests|--?list(?:-tests)?|--no-run|--help|--version)(?!\S)")
_HEAD = re.compile(
    r"\|\s*(?:head\b(?:\s+-(?:n\s*)?(?P<lines>\d+))?|select-object\s+-first\s+(?P<first>\d+))", re.IGNORECASE
)
_PIPE = re.compile(r"(?<!\|)\|&?(?!\|)")
_SHOWING = frozenset({"tail", "head", "cat", "tee"})  # what a pipe may lead into without hiding how it ended
_TAKES_MESSAGE = re.compile(r"git (?:commit|tag|stash)|gh \w+|glab \w+")  # in words that change each time
# Options that select nothing, those with a value among them.
_OPTION = re.compile(
    r"\s(?:-(?:timeout|count|tags|parallel|p|n|j|maxfail|tb|o|coverprofile|workers|C|w)[\s=]\S+|--[\w-]+=\S+"
    r"|-[\w-]+(?=\s|$)|[12]>(?:&[12]|\S+))"
)


def command_of(summary: str) -> str | None:
    """The command a call ran, as far as its summary tells; None for any other call."""
    if not summary.startswith(RAN) or summary.startswith(SCRIPT):
        return None
    return summary[len(RAN) :]


def command_given(payload: Mapping[str, Any]) -> str | None:
    """The command as it was called, with its lines; None if the payload of the call tells none."""
    arguments = payload.get("input")
    command = arguments.get("command", arguments.get("cmd")) if isinstance(arguments, dict) else arguments
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


@lru_cache(maxsize=20_000)
def programs(command: str, failed: str | None = None) -> tuple[str, ...]:
    """The families of what a command runs, each once, without filters of a pipe and what follows only a failure.

    Behind one that `failed`, what is joined to it by `&&` did not run.
    """
    names, separators = _chain(command)
    ran: dict[str, None] = {}
    is_over = False
    for name, before in zip(names, ("", *separators), strict=True):
        is_over = is_over and before in ("&&", "|", "|&", "||")
        if name and not is_over and before not in ("|", "|&", "||") and name not in _OF_SHELL:
            ran[name] = None
            is_over = name == failed
    return tuple(ran)


def failed_program(command: str, error: str) -> str | None:
    """The family that failed in a command that did: the one that the error names, or that alone can have.

    None where several may have, or what failed only sets up the shell.
    """
    candidates = [name for name in programs(command) if name in exits(command)]
    named = _NAMED_BY_ERROR.search(error)
    if named is not None:
        program = named["missing"] or named["program"] or "git"
        if program in _SETTING_UP:
            return None
        those = [name for name in candidates if name.partition(" ")[0] == program]
        if len(those) > 1 and "git add" in those:
            rest = [name for name in those if name != "git add"]
            those = ["git add"] if _NOT_ADDED.search(error) else rest
        if those:
            return those[0] if len(those) == 1 else None
    for is_unlikely in (_GETTING_READY.__contains__, _LOOKING.fullmatch):  # these name themselves
        if len(candidates) > 1 and _SAID_BY_SHELL.match(error) is None:
            candidates = [name for name in candidates if not is_unlikely(name)]
    return candidates[0] if len(candidates) == 1 else None


def doings(command: str) -> frozenset[str]:
    """What a command does that is more than getting ready or looking, by families; of one that only looks, that."""
    names = frozenset(name for name in _names(command) if name not in _GETTING_READY)
    return frozenset(name for name in names if _LOOKING.fullmatch(name) is None) or names


def is_unclear(summary: str) -> bool:
    """Whether a command may be more than its summary shows, which has lost its line ends."""
    return summary.endswith(ELLIPSIS) or not _names(summary) or _UNCLEAR.search(summary) is not None


def only_looks(command: str) -> bool:
    """Whether a command shows something and changes nothing, as far as its programs tell."""
    plain = _QUOTED.sub("''", command[:2000])
    return all(map(_LOOKING.fullmatch, _names(command))) and _CHANGING.search(plain) is None


def writes_file(command: str) -> bool:
    """Whether a command only shows something, and that into a file which is more than a scratch file."""
    if ">" not in command or not all(map(_LOOKING.fullmatch, _names(command))):
        return False
    return _WRITING.search(_QUOTED.sub("''", command[:2000])) is not None


@lru_cache(maxsize=5_000)
def test_family(command: str) -> str:
    """The family of that part of a command that runs tests."""
    names = _names(command)
    return next((name for name in names if names_tests(name)), (names or ("shell",))[0])


def names_tests(family: str) -> bool:
    """Whether a family is one of tests by its name; `npm run lint` is none, nor is `jest`."""
    return family != "test" and _NAMES_TESTS.search(family) is not None


def only_lists_tests(command: str) -> bool:
    """Whether tests are named or built but none is run: `pytest --collect-only`, `go test -c`."""
    parts = _SEPARATOR.split(_QUOTED.sub("''", command[:2000]))
    tests = [(name, part) for part in parts if names_tests(name := _named(part) or "")]
    return bool(tests) and all(
        _LISTS_TESTS.search(part) or (name == "go test" and " -c " in f"{part} ") for name, part in tests
    )


@lru_cache(maxsize=5_000)
def exit_of_tests(command: str) -> tuple[bool, bool]:
    """Whether a command succeeds, and fails, with its tests: not so in `pytest | tail`, nor in `lint && pytest`."""
    names, separators = _chain(command)
    at = max((index for index, name in enumerate(names) if name and names_tests(name)), default=None)
    if at is None:
        at = next((index for index, name in enumerate(names) if name), 0)
    keeps_exit = ("&&", "|", "|&") if "pipefail" in command else ("&&",)
    after = separators[at:]
    is_own = all(separator in keeps_exit for separator in after)
    is_alone = "&&" not in after and all(
        name is None or name in _GETTING_READY or names_tests(name) for name in names[:at]
    )
    return is_own, is_own and is_alone


def is_cut_by_head(command: str, output: str) -> bool:
    """Whether an output was cut short before its end: `pytest | head -50`."""
    cut = _HEAD.search(_QUOTED.sub("''", command))
    return cut is not None and output.count("\n") + 1 >= int(cut["lines"] or cut["first"] or 10)


@lru_cache(maxsize=5_000)
def answers_by_exit(command: str) -> bool:
    """Whether exit 1 is what a command has to say rather than a failure: `grep` found nothing, `diff` a difference.

    The last program of a pipe decides; one before `&&` may have failed instead, unless it only looks.
    """
    names, separators = _chain(command)
    if _ANSWERING.fullmatch(names[-1] or "") is None:
        return False
    last = len(separators)
    while last and separators[last - 1] in ("|", "|&"):
        last -= 1
    first = last
    while first and separators[first - 1] == "&&":
        first -= 1
    before = names[first:last]
    return all(name is None or name in _GETTING_READY or _LOOKING.fullmatch(name) for name in before)


def covers_tests(command: str, other: str) -> bool:
    """Whether a command runs, as far as it names any, the tests that another one of its family names."""
    # `TestA|TestB` takes in `TestA_Empty`, and a folder what is in it.
    narrow = [name.split("|") for name in _selected(other)]
    return all(
        any(all(any(part in name for part in wide.split("|")) for name in names) for names in narrow)
        for wide in _selected(command)
    )


@lru_cache(maxsize=5_000)
def _selected(command: str) -> frozenset[str]:
    """The paths, names and patterns of tests in a command; none if it runs all there are."""
    part = next((part for part in _split_outside_quotes(command) if names_tests(_named(part) or "")), command)
    return _words(part, test_family(command))


def _words(part: str, family: str) -> frozenset[str]:
    """What a part of a chain is given, without its name and options."""
    words = (word.strip("\"'").rstrip("/.") for word in _OPTION.sub(" ", part).split())
    return frozenset(word for word in words if word and word[0] != "-") - set(family.split())


@lru_cache(maxsize=5_000)
def given(command: str, family: str) -> frozenset[str]:
    """What a command gives to the first program of a family: paths, names, sub-commands; numbers are left out."""
    part = next((part for part in _split_outside_quotes(command) if _named(part) == family), "")
    plain = _QUOTED.sub(" ", part) if _TAKES_MESSAGE.fullmatch(family) else part
    words = (word.removeprefix("./") for word in _words(plain, family) if not word.isdigit())
    return frozenset(word for word in words if _named(word) != family)


@lru_cache(maxsize=5_000)
def exits(command: str) -> frozenset[str]:
    """The families in a command that succeeded if it did: not `make` in `make | tail`, in `make; ls`, or before `||`.

    If it failed, one of these did.
    """
    names, within = _chain(command)
    separators = ["", *within, "&&"]
    keeps_exit = ("&&", "|", "|&") if "pipefail" in command else ("&&",)
    found = set()
    for place in reversed(range(len(names))):
        before, after = separators[place], separators[place + 1]
        if after not in ("&&", "|", "|&"):
            break
        is_filter = before in ("|", "|&") and _LOOKING.fullmatch(names[place] or "")
        if after in keeps_exit and not is_filter:
            found.add(names[place])
    return frozenset(filter(None, found))


def is_filtered(command: str) -> bool:
    """Whether a command shows only a part of what it prints."""
    return _PIPE.search(_QUOTED.sub("''", command[:2000])) is not None


def hides_output(command: str, output: str) -> bool:
    """Whether a pipe may have taken away what a command printed: all but `| tail`, and `| head` with room to spare."""
    piped = [_named(part) for part in _PIPE.split(_QUOTED.sub("''", command[:2000]))[1:]]
    return is_cut_by_head(command, output) or any(name not in _SHOWING for name in piped)


def _split_outside_quotes(command: str) -> list[str]:
    """The parts of a chain, with what is quoted in them."""
    ends = [0, *(end for match in _SEPARATOR.finditer(_blanked(command)) for end in match.span()), len(command)]
    return [command[start:end] for start, end in pairwise(ends)][::2]


def _names(command: str) -> tuple[str, ...]:
    """What each part of a chain does, without those that only set up the shell."""
    return tuple(name for name in _chain(command)[0] if name)


@lru_cache(maxsize=20_000)
def _chain(command: str) -> tuple[list[str | None], list[str]]:
    """What each part of a chain does, and what is between them."""
    plain = _QUOTED.sub("''", command[:2000].replace("\\\n", " "))
    pieces = _KEPT_SEPARATOR.split(plain.strip("; \n"))
    return [_named(part) for part in pieces[::2]], pieces[1::2]


def _named(part: str) -> str | None:
    words = _command_words(_LOOP.sub("", part.strip().lstrip("({! ")))
    if not words or words[0].lower() in _SETTING_UP or words[0] in _NO_COMMANDS:
        return None
    if words[0] in _TEST_WORDS:
        return "test"
    if not _WORD.match(words[0]):
        return None
    name = _PROGRAM_FILE.sub("", words[0].replace("\\", "/").rstrip("/").rpartition("/")[2]) or words[0]
    if name.startswith("python") and not name[6:].strip("0123456789."):
        modules = [module for option, module in pairwise(words[1:]) if option == "-m"]
        return modules[0][:_FAMILY_CHARS] if modules else "python"
    return _with_verb(name, words[1:])[:_FAMILY_CHARS]


def _command_words(part: str) -> list[str]:
    """The words of a command, without what only goes before it: `if`, assignments, launchers."""
    while True:
        part = part.strip()
        first, _, rest = part.partition(" ")
        if first in _BEFORE_COMMANDS:
            part = rest
        elif ("=" in first or first in _LAUNCHERS) and (
            shorter := _LAUNCHER.sub("", _ASSIGNMENT.sub("", part))
        ) != part:
            part = shorter
        else:
            return part.split()


def _with_verb(name: str, arguments: list[str]) -> str:
    if name not in _WITH_VERBS:
        return name
    # `git -C PATH` takes the word after it along.
    pairs = pairwise(["", *arguments])
    given = [word for before, word in pairs if word[0] != "-" and not (name == "git" and before in ("-C", "-c"))]
    verbs = [word for word in given if _WORD.match(word)][:2]
    if not verbs:
        return name
    return " ".join((name, *verbs)) if (name, verbs[0]) in _TWO_VERBS else f"{name} {verbs[0]}"


def test_task(command: str) -> str | None:
    """The runner's task for the tests in a command, if any: `mise run test`, `just test`, `npm run test:unit`."""
    names = _names(command) if "test" in command else ()
    return next((name for name in names if " " in name and _TEST_TASK.fullmatch(name.rpartition(" ")[2])), None)


def opens_pull_request(command: str) -> bool:
    return _PULL_REQUEST.search(_QUOTED.sub("''", command)) is not None


def pull_request(command: str, output: str) -> tuple[str, str] | None:
    """The address and the title of the pull request that a command opened, as its output tells; None if none.

    Its address comes last: the words before it may name others.
    """
    if not opens_pull_request(command) or not (addresses := _ADDRESS.findall(output)):
        return None
    title = _TITLE.search(command)
    return addresses[-1], (title["single"] or title["double"] or "") if title else ""


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
    message = _MESSAGE.search(command, made.end())
    if message is None:
        return ""
    return (message["here"] or message["single"] or message["double"] or "").strip().partition("\n")[0]


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


_TAIL_CHARS = 2500  # of an output, where the count is printed

_TESTS_FAILED = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:fail(?:ed|ing)?|failures?|errors?)\b|\bFAILED\b|^FAIL\b|\bfailures=[1-9]"
    r"|test result: FAILED|\bTests?:\s+[1-9]\d* failed|\bnot ok \d+|--- FAIL:|\[\S*test\S*\] ERROR task failed"
    r"|\bFail(?:ed|ures): +[1-9]|\bTests run: .*Errors: [1-9]|\bTotal \d+, Failed [1-9]|^FAILURES!|^# fail [1-9]"
    r"|\bSome tests failed|\[ FAIL [1-9]|: FAIL code [1-9]",
    re.MULTILINE,
)
# Where a pipe cuts the end off, these say it wherever they stand.
_FAILED_TESTS_ANYWHERE = ("\n--- FAIL:", "\nFAIL\t", "\nFAIL ", "[build failed]")
# What checkers of style and types say at the end: their errors are not the tests'.
_LINTED = re.compile(
    r"^.*(?:\bproblems? \(\d|\bFound \d+ errors?\b|\berrors?(?:,| and) \d+ warnings?).*$", re.MULTILINE
)
_TESTS_PASSED = re.compile(
    r"^ok\s+\S|^\s*--- PASS:|^PASS\b|\b[1-9]\d* (?:tests? )?pass(?:ed|ing)\b|\bRan [1-9]\d* tests?\b|^OK \(\d"
    r"|\b[1-9]\d* tests?, 0 fail|\b[1-9]\d* examples?, 0 failures|\b100% tests passed|\bBUILD SUCCESS|\bAll tests pass"
    r"|^# pass [1-9]|\bPassed!|\bExecuted [1-9]\d* tests?, with 0 failures|\bPassed: Total [1-9]|\bTests Passed: [1-9]"
    r"|\[ FAIL 0 .*PASS [1-9]|: OK \(\d|\"Action\":\"pass\"",
    re.MULTILINE,
)
# Packages of which nothing was run.
_NOTHING_RUN = re.compile(
    r"^(?:testing: warning: no tests to run\s+PASS\s+)?(?:ok|\?)\s+\S.*\[no test(?:s to run| files)\]$", re.MULTILINE
)
_NO_TESTS = re.compile(
    r"\bno tests? (?:ran|run|found|collected|were (?:run|found|executed)|to run)\b|\bno test files\b"
    r"|\bcollected 0 items\b|\bran 0 tests\b|\brunning 0 tests\b|\btests? run: 0\b|\b0 passing\b|\b0 examples\b"
)
# The run itself did not take place, or nobody saw it end.
_TESTS_NOT_RUN = re.compile(
    r"timed? ?out|command not found|not recognized as|no such file or directory|could not find `cargo\.toml`"
    r"|rejected\(|sandbox denied|no tests? (?:ran|found|collected)|collected 0 items$|exit 127\b|needs? approval"
    r"|\[setup failed\]"
)


def verdict(command: str, summary: str, output: str, *, has_failed: bool) -> bool | None:
    """Whether tests passed; None if the run says nothing of them. `summary` is the line that tells its result."""
    if "[setup failed]" in output and "--- FAIL" not in output:
        return None
    if tests_failed(output):
        return False
    if has_failed and _TESTS_NOT_RUN.search(summary.lower()):
        return None
    passed = _TESTS_PASSED.search(_NOTHING_RUN.sub("", output[-_TAIL_CHARS:])) is not None
    if not passed and _NO_TESTS.search(output[-_TAIL_CHARS:].lower()):
        return None
    tells_success, tells_failure = exit_of_tests(command)
    if has_failed:
        return False if tells_failure else passed or None
    if tells_success:
        return True
    return (passed and not is_cut_by_head(command, output)) or None


def tests_failed(output: str) -> bool:
    """Whether a test run's own words say that tests failed, whatever its exit code was."""
    if any(mark in output for mark in _FAILED_TESTS_ANYWHERE):
        return True
    tail = output[-_TAIL_CHARS:]
    lower = tail.lower()
    if "fail" not in lower and "error" not in lower and "not ok" not in lower:
        return False
    return _TESTS_FAILED.search(_LINTED.sub("", tail)) is not None
