"""What makes two errors the same: the line that says what is wrong, without what differs from one time to the next.

Hooks call this for every failed command, so it needs nothing but regular expressions, and compiles only those that an
output asks for: all of them take ten milliseconds.
"""

import re
from functools import lru_cache


class _Compiled:
    """A regular expression that is compiled when it is first used."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> object:
        pattern = re.compile(*self._source)
        for method in ("match", "fullmatch", "search", "sub"):
            setattr(self, method, getattr(pattern, method))
        return getattr(pattern, name)


def _pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return _Compiled(pattern, flags)  # type: ignore[return-value]


MOST_CHARS = 160
_READ_CHARS = 40_000  # of an output, from each end
_MOST_LINES = 400
_SAME_LINES, _SAME_TEXTS = 1_024, 4  # asked about more than once while one session is read

_ANSI = _pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
# What stands before a line and says nothing of the error: times, task names of runners, marks of compilers and tests.
_PREFIX = _pattern(
    r"^(?:\[[\w:.-]{1,24}\]\s+(?=\S*(?:/|error|Error|FAIL))|\d{4}-\d\d-\d\d[T ][\d:.,]+\S*\s+(?:\[\w+\]\s+)?"
    r"|(?:time=\S+ )?level=\w+ msg=\"?|Messages:\s+"
    r"|[E>|│✗✘✖×○●•*-]\s+|failed: |exit -?\d+: |stderr: |(?:\S*sh|--|\(eval\)): ?(?:[^\W\d]+ )?\d+(?: 行)? ?: "
    r"|(?:/\S*/)?(?:ba|da|fi|k|z)?sh ?: )+"
)
_PLACE = _pattern(
    r"(?P<file>(?:[\w@~+-]|(?<=\w)\.|\.{1,2}/|/|[A-Za-z]:[\\/])[\w./\\@+~-]*\.[A-Za-z]\w{0,7}):(?P<line>\d+)(?P<column>:\d+)?:?\s+"
)
_EXCEPTION = _pattern(r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|NotFound|Timeout)\b(?P<why>:\s*\S|$)")
_CODE = _pattern(
    r"\b(?:TS\d{4,5}|E\d{3,4}|[A-Z]{1,4}\d{3,5}|ERR_[A-Z_]+|E[A-Z]{4,}|SQLSTATE|CONFLICT)\b|\((?:\w+[/-])*\w{3,}\)$"
)
_SAYS_ERROR = _pattern(
    r"\b(?:error|errors|exception|fatal|panic|failed|failure|cannot|can't|could not|couldn't|unable to|no such"
    r"|not found|not recognized|denied|refused|timed? ?out|undefined|unexpected|unknown|invalid|missing|conflict"
    r"|must not|must be|is not|not allowed|unresolved|deadlock|locked|unsupported|no module|no matches|expected"
    r"|mismatch|want|got|should|overflow|unbound|incorrect|not permitted|is required|already (?:exists|in use))\b"
    # As shells, the C library, coreutils, sudo and git say it in Chinese, Japanese, German, French and Spanish.
    r"|未找到|找不到|没有那个|沒有此|权限|不允许|拒绝|拒絕|无法|無法|错误|錯誤|未绑定"
    r"|需要密码|不是目录|是一个目录|已存在|目录非空|没有空间|不是内部或外部命令"
    r"|見つかりません|はありません|がありません|できません|エラー|許可されていない|拒否され|未割り当て|が必要です"
    r"|存在します|ではありません|認識されていません"
    r"|nicht (?:gefunden|möglich|gesetzt|erlaubt|leer)|keine berechtigung"
    r"|fehler\b|kein(?:e[nr]?)? (?:verzeichnis|speicherplatz)"
    r"|passwort ist notwendig|existiert bereits|abgelehnt"
    r"|introuvable|impossible d|aucun|non (?:accordée|permise)|erreur\b|sans liaison|refusée|n'est pas|mot de passe"
    r"|no (?:se )?enc(?:ontrad|ontró)|no existe|denegado|no se puede|error sint|sin asignar|no permitida"
    r"|no queda|rehusada|requiere una contraseña|no se reconoce"
)  # of a line in small letters, which takes a fifth of the time of ignoring case
_BEGINS_AS_ERROR = _pattern(r"(?:error|fatal|panic)\b", re.IGNORECASE)
_TEST_FAILED = _pattern(r"^(?:--- FAIL: |FAILED |FAIL: |not ok \d+ )")
_NAMES_TEST = _pattern(r"(?P<name>(?:[\w./-]+::)*(?:Test[A-Z_]|test_)[\w/\[\]-]*)")  # alone
_TEST_NAME = _pattern(r"^(?:--- FAIL: |FAILED |FAIL: |not ok \d+ (?:- )?)(?P<name>\S+)(?: - (?P<why>.+))?")
# Lines that name nothing: a runner's last words, counts, echoes of what was run.
_SAYS_NOTHING = _pattern(
    r"(?:error|\w*warning: .*|fail(?:ed)?|exit(?: code| status)? -?\d+|.*\btask failed|make(?:\[\d+\])?: \*\*\*.*"
    r"|npm (?:err!|warn|notice).*|[\w.]*(?:Error|Exception)"
    r"|.*command failed(?: with exit code \d+)?\.?|.*returned non-zero exit status.*|\* [\w-]+: \d+"
    r"|found \d+ errors?.*|\d+ (?:issues?|problems?|errors?|failed)\b.*|=+ .* =+|-+"
    r"|fail(?:ed)?\s+\S+(?:\s+(?:[\d.]+m?s|\[\w+ failed\]))?|error trace:.*|error:\s+(?:not equal|should be \w+):?"
    r"|(?:have|want|got|expected|actual)\s*[:(=].*|\"?not found\"?,?|.{0,12}\bnot found(?: \(http \d+\)|\"),?"
    r"|too many errors.*|[^\s：]+"
    r"|could not import .*\(-: #.*|[\w ./-]{0,40}: exit status \d+"
    r"|tests?: .*\d+.*|test result: .*|error: (?:process|script|recipe) .*(?:exit|fail).*|ok\s+\S+.*"
    r"|.*\bfor more (?:information|details|help)\b.*"
    r"|traceback \(most recent call last\):|\$ .*|.*\bfinished in [\d.]+m?s|error: test failed.*"
    r"|error: could not compile .*|error: aborting due to .*|.*[\d.]+s? .*(?:passed|total).*|\d+ passed.*)",
    re.IGNORECASE,
)
_FRAME = _pattern(
    r'^(?:at |File "|in <|\.\.\.|#\d+ |goroutine |\d+: 0x|from |Caused by:$|note: |help: |hint: '
    r"|(?:\w+ )?\w*warn(?:ing)?\b|⚠"
    r"|At (?:line|\S+\.ps1):\d|\+ (?:~|CategoryInfo|FullyQualified))",
    re.IGNORECASE,
)

_EXTENSION = (
    "(?:py|pyi|js|jsx|ts|tsx|mjs|go|rs|java|kt|rb|php|c|h|cc|cpp|cs|sh|sql|toml|ya?ml|json|md|txt|lock|mod|cfg|ini)"
)
_MASKS = (
    (_pattern(r"https?://[^\s'\"<>)\]]+"), "<url>"),
    (_pattern(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?\S*)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"), "<time>"),
    (_pattern(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b", re.IGNORECASE), "<id>"),
    (_pattern(r"0x[0-9a-f]+|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b", re.IGNORECASE), "<id>"),
    (_pattern(r"(?<![\w<])(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)(?:[\w.@+~-]+[\\/])*[\w.@+~-]+/?"), "<path>"),
    (_pattern(r"(?<![\w<])(?:[\w.@+-]+/){2,}[\w.@+-]*"), "<path>"),
    (_pattern(rf"(?<![\w<])(?:[\w.@+-]+/)*[\w.@+-]+\.{_EXTENSION}\b"), "<path>"),
    (_pattern(r"(?<=<path>):\d+(?::\d+)?"), ""),
    (_pattern(r"(['\"`])(?:(?!\1).){41,}\1"), "<text>"),
    (_pattern(r"(?<![A-Za-z\d])[-+]?\d+(?:[.,]\d+)*(?:\s?(?:ms|s|kB|KB|MB|GB|%))?(?![A-Za-z])"), "<n>"),
)
# Where nothing but the name of a file or folder tells one error from the next.
_NAMES_FILE = _pattern(
    r"no such file|not found|cannot find|does not exist|not exist|permission denied|conflict in"
    r"|没有那个|沒有此|权限|nicht gefunden|berechtigung|aucun fichier|non accordée|no existe|denegado"
    r"|そのような|許可が",
    re.IGNORECASE,
)
# How people lead over to an error.
_SHOWN = _pattern(
    r"\b(?:error|fails? with|failed with|getting|seeing|returns|says|throws|prints|message)\b", re.IGNORECASE
)
_PROSE = _pattern(r"(?:i|we|you|can|could|let'?s|please|uncomment|but|so|and)\b", re.IGNORECASE)
_QUOTED = _pattern(r"[\"“`](?P<text>[^\"“”`\n]{12,200})[\"”`]")
_PROSE_CHARS = 200
_LEAST_QUOTED_WORDS = 3
_SHOWS_ERROR = 4
_AT_PLACE = 5
_SPACES = _pattern(r"\s+")

# Lines that say something about their error only together with their numbers.
_COMPARES = _pattern(r"(?:AssertionError: )?(?=assert )")
_BARE_EXCEPTION = _pattern(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception)")
# Words that name nothing: two errors that share only these have nothing in common.
_SAYS_LITTLE = _pattern(
    r"<\w+>|\b(?:\w*(?:Error|Exception)|(?:the|an?|to|of|in|on|at|is|are|was|were|be|been|it|its|or|and|with|while|for|by"
    r"|from|not?|some|one|more|all|see|try|again|after|out|up|please|has|have|had|did|could|cannot|can|unable|errors?|err"
    r"|exceptions?|fail(?:s|ed|ure|ing)?|fatal|panic|invalid|incorrect|syntax|context|compil(?:e|ed|ation|ing)|build|tests?"
    r"|run(?:ning)?|checks?|emitted|unexpected|expected|unknown|missing|found|such|code|exit(?:ed)?|status|commands?"
    r"|process|tasks?|scripts?|files?|directory|lines?|end|eof|token|input|output|log|details|occurred|time[d-]?-?outs?|timed"
    r"|deadline|exceeded|permission|access|denied|refused|killed|terminated|aborted|stopped|internal|something|went"
    r"|wrong|parse|parsing|issues?|problems?|due|previous|above|below|want|got|null|nil|none|undefined|value)\b)",
    re.IGNORECASE,
)
_WORD = _pattern(r"[^\W\d_]{2,}")
# What a compiler or linter names: something of the code; its rule and that rule's number are of any code.
_OF_RULE = _pattern(r" ?\([\w/-]+\)$")
_NAME = _pattern(r"[`'\"][^`'\"<>]*\w[^`'\"<>]*[`'\"]|\w[_.]\w|[a-z\d][A-Z]|[A-Za-z]\d|undefined: \w|[a-z]-[a-z]+:")
_TEST = "test failed: "
_IS_LITERAL = _pattern(r"assert |\S+:\d+: ")
_TELLS = 3  # the least weight of a line by which its error is found, too
_MOST_TELLING = 8
_MOST_LISTED = 6


def signature_of(text: str) -> str:
    """The fingerprint of an error's output; empty if no line of it says what is wrong."""
    return fingerprint(headline_of(text))


def signatures_of(text: str) -> list[str]:
    """The fingerprints of the errors that a failed call shows.

    None of a long list: few of it are the call's own.
    """
    listed = [fingerprint(line) for line, _ in placed_lines(text)]
    found = dict.fromkeys([signature_of(text), *listed[::-1]]) if len(listed) <= _MOST_LISTED else {}
    return list(filter(None, found))


def is_same_failure(headline: str, text: str) -> bool:
    """Whether a test, if the headline is of one, fails with the same words in an output: it may fail in many ways."""
    found = _TEST_NAME.match(headline)
    return found is None or bool(found["why"] and found["why"] in text)


def signatures_in(text: str) -> list[str]:
    """What an error may be known by, its headline first: people paste any part of an output.

    Lines that are compared with their numbers count only where nothing else says what is wrong.
    """
    if test := _NAMES_TEST.fullmatch(text.strip()):
        return [_test_signature(test["name"])]
    headline, others = signature_of(text), telling_lines(text)
    if not headline:
        return others or ([] if "\n" in text.strip() else [mask(text.strip())])
    return [headline, *(line for line in others if line != headline and not is_literal(line))]


def telling_lines(text: str) -> list[str]:
    """The fingerprints of all lines that may be met alone: of tests, exceptions, messages with a place or a code."""
    telling = (line for line in _lines(text) if _tells(line))
    return list(dict.fromkeys(filter(None, map(fingerprint, telling))))[:_MOST_TELLING]


def _tells(line: str) -> bool:
    place = _PLACE.match(line)
    message = line[place.end() :] if place else line
    exception = _EXCEPTION.match(line)
    return bool(
        _weight(line) >= _TELLS
        or _COMPARES.match(message)
        or (exception and exception["why"] != "")
        or (place and (_BARE_EXCEPTION.fullmatch(message) or "test" in place["file"]))
    )


def placed_lines(text: str) -> list[tuple[str, str]]:
    """Every line that says what is wrong at a place, with its file: linters and compilers list many at a time."""
    lines = dict.fromkeys(line for line in _lines(text) if _PLACE.match(line) and _weight(line) == _AT_PLACE)
    return [(line, place["file"]) for line in lines if (place := _PLACE.match(line))]


def place_of(line: str) -> tuple[str, int, str] | None:
    """The file and the line of it that an error names, and what it says of them."""
    place = _PLACE.match(line)
    return (place["file"].replace("\\", "/"), int(place["line"]), line[place.end() :]) if place else None


@lru_cache(_SAME_LINES)
def fingerprint(line: str) -> str:
    """A line without what differs from one time to the next, unless nothing else is in it."""
    place = _PLACE.match(line)
    message = line[place.end() :] if place else line
    if compared := _COMPARES.match(message):
        return _SPACES.sub(" ", message[compared.end() :]).strip()[:MOST_CHARS]
    masked = mask(line)
    says_something = _WORD.search(_SAYS_LITTLE.sub("", masked)) is not None
    if place is None or _TEST_FAILED.match(line):
        return masked if says_something or masked.startswith(_TEST) else ""
    file = place["file"].replace("\\", "/").rpartition("/")[2]
    if not says_something:
        return f"{file}:{place['line']}: {message}"[:MOST_CHARS].strip() if masked else ""
    named = _OF_RULE.sub("", masked)
    is_of_code = place["column"] or named != masked
    return f"{file}: {masked}"[:MOST_CHARS] if is_of_code and not _NAME.search(named) else masked


def place_below(headline: str, output: str) -> str:
    """The line with which a failed test says where it failed, if the headline is its name; else the headline."""
    lines = _lines(output) if _TEST_FAILED.match(headline) else []
    below = lines[lines.index(headline) + 1 :] if headline in lines else []
    said = next((line for line in below if _PLACE.match(line) or _TEST_FAILED.match(line)), headline)
    return headline if _TEST_FAILED.match(said) else said


def is_literal(signature: str) -> bool:
    """Whether a fingerprint has its numbers, so that it may well be met by chance."""
    return _IS_LITERAL.match(signature) is not None


def differs_by_name(signature: str) -> bool:
    """Whether nothing but the name of a file, a folder or a test tells an error from the next."""
    return signature.startswith(_TEST) or _NAMES_FILE.search(signature) is not None


def headline_of(text: str) -> str:
    """The line that says what went wrong, as it is but for colours and what goes before it; empty if there is none."""
    lines = _lines(text)
    return _of_traceback(lines) or _best(lines)


def error_in(message: str) -> str | None:
    """The line of an error in a message that people wrote around it; None if it shows none."""
    lines = _lines(message)
    if headline := _of_traceback(lines):
        return headline
    best = max((line for line in lines if not _PROSE.match(line)), key=_weight, default="")
    if _weight(best) >= _SHOWS_ERROR:
        return best
    if not (shown := _SHOWN.search(message)):
        return None
    quoted = _QUOTED.search(message, shown.start())
    if quoted and len(quoted["text"].split()) >= _LEAST_QUOTED_WORDS and _is_error(quoted["text"]):
        return quoted["text"]
    after = [line for line in _lines(message[shown.end() :])[1:] if _is_error(line) and len(line) < _PROSE_CHARS]
    return after[0] if after else None


def _is_error(text: str) -> bool:
    """Whether a text that is shown as an error reads like one: not a part of a sentence, nor a success."""
    return text[:1].isalnum() and not _PROSE.match(text) and _weight(text) > 0


def mask(line: str) -> str:
    """A line without numbers, paths, hashes, addresses and times."""
    if test := _failed_test(line):
        return test
    line = _PLACE.sub("", line, count=1)
    keeps_names = differs_by_name(line)

    def last_name(path: re.Match[str]) -> str:
        return re.split(r"[\\/]", path[0].rstrip("\\/"))[-1]

    for pattern, replacement in _MASKS:
        line = pattern.sub(last_name if keeps_names and replacement == "<path>" else replacement, line)
    return _SPACES.sub(" ", line).strip(" .:;,")[:MOST_CHARS].strip()


def _failed_test(line: str) -> str | None:
    """A failed test by its name, unless it says after it what went wrong: that is the better part of it."""
    found = _TEST_NAME.match(line) if _TEST_FAILED.match(line) else None
    if found is None:
        return None
    if found["why"] and not found["why"].startswith("assert "):
        return mask(found["why"])
    return _test_signature(found["name"])


def _test_signature(name: str) -> str:
    name = name.rpartition("/")[2].rpartition("::")[2]
    return f"{_TEST}{name}"[:MOST_CHARS].strip(" .:;,")


@lru_cache(_SAME_TEXTS)
def _lines(text: str) -> list[str]:
    if len(text) > 2 * _READ_CHARS:
        text = f"{text[:_READ_CHARS]}\n{text[-_READ_CHARS:]}"
    stripped = (_PREFIX.sub("", line.strip()) for line in _ANSI.sub("", text.replace("\r", "\n")).split("\n"))
    return [line for line in stripped if line and not _FRAME.match(line)][:_MOST_LINES]


def _of_traceback(lines: list[str]) -> str:
    """The last exception that begins a line and says why."""
    named = (found for line in reversed(lines) if (found := _EXCEPTION.match(line)) and found["why"])
    return next((found.string for found in named), "")


def _best(lines: list[str]) -> str:
    """The first of the lines that tell most: a place and a message, then a code, then words of failure.

    A place alone may be of a log; a compiler or linter gives the column, too.
    """
    best, best_weight = "", 0
    for line in lines:
        weight = _weight(line)
        if weight >= max(1, best_weight):
            best, best_weight = line, weight
    return best


@lru_cache(_SAME_LINES)
def _weight(line: str) -> int:
    if len(line) < 6:
        return 0
    place, is_test, says_error = _PLACE.match(line), _TEST_FAILED.match(line), _SAYS_ERROR.search(line[:200].lower())
    if not (place or is_test or says_error):
        return 0
    message = line[place.end() :] if place else line
    if _SAYS_NOTHING.fullmatch(message):
        return 0
    if place and (_SAYS_ERROR.search(message.lower()) or _CODE.search(message)):
        # A test may fail in many ways, and print the same when it passes.
        return 2 if not place["column"] and "test" in place["file"] else _AT_PLACE
    if is_test:
        return _AT_PLACE  # what else is printed may be of tests that pass
    if says_error:
        return 4 if _BEGINS_AS_ERROR.match(line) or _CODE.search(line) else 2
    return 1 if place and place["column"] and len(message) > 10 else 0
