"""What a session is named by: the request that can be its title, and the task it worked on."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from recollect.agents import BUILT_IN

# A request of nothing but these says nothing: greetings, assents, calls to go on.
_EMPTY_WORDS = frozenset(
    word
    for line in (
        "hi hello hey hallo hola bonjour salut ciao moin good morning afternoon evening day there",
        "yes yep yeah yup y no nope n ok okay k sure fine thanks thank you please and go on ahead continue proceed",
        "resume do it this that lets let s discuss start test testing ping an image great good carry keep going",
        "first second third last one both all option options approach number again next now then with the so a b c d",
        "ja nein oui non si sí da bitte danke weiter mach merci continuez sigue",
        "привет да нет ок дальше продолжай продолжи продолжим спасибо",
        "你好 您好 好 好的 可以 对 行 是 是的 开始 開始 继续 繼續",
        "お願いします はい こんにちは 続けて 네 안녕 안녕하세요 계속",
    )
    for word in line.split()
)
_MOST_CHARS = 60  # of a request that may say nothing
_BARE_COMMAND = re.compile(r"/[\w:.-]+\s*")
_PROBE = re.compile(r"(?:do|can|are) you (?:have access to|able to see|access|see|hear|there)\b[^.!\n]*\?\s*")
_FENCED = re.compile(r"\s*(```|~~~).*?\1\s*(?=\S)", re.DOTALL)
# What a program put into a request, a file to be read first, and work that only other words name.
_ASIDE = re.compile(
    r"<((?:ide|system|local|command)[\w-]*)>.*?(?:</\1>|$)|\b(?:load|read) @?[\w./-]+\.md\b"
    r"|\b(?:fix|try|run|implement|retry) (?:it|this|that)\b",
    re.DOTALL | re.IGNORECASE,
)
_DRAWN = re.compile(r"\s*[\u2500-\u259f]")  # a pasted screen
_WORD = re.compile(r"[^\W\d_]+")


def heading(request: str) -> str:
    """The request without a block of code that it begins with."""
    return _FENCED.sub("", request, count=1) if _FENCED.match(request) else request


def has_subject(request: str) -> bool:
    """Whether a request says what a session is about."""
    if _DRAWN.match(request):
        return False
    lower = _ASIDE.sub(" ", request).strip().lower()
    if len(lower) > _MOST_CHARS:
        return True
    if _BARE_COMMAND.fullmatch(lower) or _PROBE.fullmatch(lower):
        return False
    return not _EMPTY_WORDS.issuperset(_WORD.findall(lower))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What looks like a task and is none: encodings, standards, hardware, models, versions, keys out of templates, and words
# that are counted or dated: `STEP-0`, `SESSION-2026`.
_NO_PROJECTS = _words(
    """
    utf ucs iso iec ieee ansi ascii koi windows cp ecma rfc pep jsr cve cwe ghsa sha md crc aes rsa ecdsa hmac tls ssl
    http ipv base utc gmt est pst cet avx sse mmx fma neon sve arm cortex amd intel ryzen epyc xeon core rtx gtx rx usb
    pcie ddr nvme hdmi mp dvd rs int uint float fp bf es ecmascript python py node go java jdk jre php ruby rust swift
    net clang gcc llvm cuda react vue angular next nuxt svelte django rails laravel spring tailwind vite electron
    flutter android ios macos win ubuntu debian fedora alpine centos pg postgres mysql mariadb redis mongo kafka
    gpt opus sonnet haiku gemini llama qwen mistral glm deepseek covid iphone
    abc xyz xxx foo bar baz key proj project jira ticket task todo example test demo
    phase step part stage round try attempt take version ver release milestone sprint week day month year q option plan
    tier level chapter lesson iteration draft page item session report notes summary audit
    """
) | frozenset(BUILT_IN)
# In a branch also these: `fix-2`, `add-3-tests`.
_NO_PROJECTS_IN_BRANCH = _NO_PROJECTS | _words(
    """
    rel rc alpha beta fix feat feature hotfix patch chore docs refactor wip tmp temp dev main master branch backup copy
    worktree wt agent run iter rev pr batch chunk group set top add use all max min new old remove support update
    upgrade bump
    """
)

_KEY = r"(?P<project>[A-Z][A-Z0-9]+)(?:-[A-Z][A-Z0-9]*)*-\d+(?:-T\d+)?"
# A key with more behind it (`SESSION-2026-05-11`, `SHOP-1.2`) is a date, a version or a name of something else. In a
# text that is also so for what is a part of a path or of a file's name; branches are named after their tasks, and join
# words with `_`, which `\b` takes for a part of the word.
_IN_BRANCH = re.compile(rf"(?<![^\W_]){_KEY}(?![^\W_])(?!\.\d|-\d|-[A-Z]{{2}})")
_KEY_OF_TEXT = rf"(?<![\w/\\.@-]){_KEY}(?![\w/\\-]|\.\w)"
_IN_TEXT = re.compile(_KEY_OF_TEXT)
_LOWER = re.compile(r"(?:^|[/_])(?P<project>[a-z]{2}[a-z0-9]{0,8})-(?P<number>[1-9]\d{0,4})(?=$|[-_/])(?!-\d)")
_ISSUE = re.compile(r"(?:^|/)(?:issues?|gh|bug)[/_-]#?(?P<number>[1-9]\d{0,4})(?=$|[-_/])")
_NUMBER = re.compile(r"(?<![\w/&])#\d+\b")
_ADDRESS = re.compile(rf"/(?:issues?|browse|tickets?|work_items|stor(?:y|ies))/(?:{_KEY}|(?P<number>\d+))\b")
_WORK = (
    r"(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|implement|start|continue|finish|address|review|refs?"
    r"|issue|bug|ticket|task)"
)
_ASKED = re.compile(
    rf"(?:^\W*|\b(?i:{_WORK}|do|see|for|on|plan|trace|jira|linear)\W{{1,3}}(?:(?i:issue|bug|ticket|task)\s+)?){_KEY_OF_TEXT}"
)
_ASKED_NUMBER = re.compile(rf"\b(?i:{_WORK})\s+(?:(?i:issue|bug|ticket|task)\s+)?(#\d+)\b")
_COMMITTED_NUMBER = re.compile(rf"\((#\d+)\)|{_ASKED_NUMBER.pattern}")
# A task within a plan: `task T02 of the workplan SHOP-WP-2`, `SHOP-WP-2, task T02`.
_STEP = r"\b(?P<step>T\d{1,3})\b"
_STEPS = [
    re.compile(text)
    for text in (
        rf"{_STEP}\s+(?:of|in|from)\s+(?:\w+\s+){{0,3}}\W?{_KEY_OF_TEXT}",
        rf"{_KEY_OF_TEXT}\W{{1,3}}(?:(?i:task)\s+)?{_STEP}",
    )
]


class Task(NamedTuple):
    """A task; `is_guess` if only a request mentions it, so that another session must know its project."""

    ref: str
    is_guess: bool = False


def find_task(branch: str | None, commits: Iterable[str], request: str | None) -> Task | None:
    """The task named by the branch, else by a commit the session made, else by its first request."""
    if ref := _in_branch(branch or ""):
        return Task(ref)
    for message in commits:
        number = _COMMITTED_NUMBER.search(message)
        if ref := _step(message) or _first_key(_IN_TEXT, message) or (number and (number[1] or number[2])):
            return Task(ref)
    return _in_request(request) if request else None


def project_of(ref: str) -> str:
    """What tasks of one tracker have in common: `SHOP` of `SHOP-12`, `#` of `#12`."""
    return ref.partition("-")[0] if "-" in ref else ref[:1]


def _in_branch(branch: str) -> str | None:
    if ref := _first_key(_IN_BRANCH, branch):
        return ref
    if number := _NUMBER.search(branch):
        return number[0]
    if issue := _ISSUE.search(branch):
        return f"#{issue['number']}"
    for key in _LOWER.finditer(branch):
        if key["project"] not in _NO_PROJECTS_IN_BRANCH:
            return f"{key['project']}-{key['number']}".upper()
    return None


def _in_request(request: str) -> Task | None:
    if address := _ADDRESS.search(request):
        return Task(f"#{address['number']}" if address["number"] else address[0].rpartition("/")[2])
    if ref := _step(request) or _first_key(_ASKED, request):
        return Task(ref)
    if number := _ASKED_NUMBER.search(request):
        return Task(number[1])
    mentioned = _first_key(_IN_TEXT, request)
    return Task(mentioned, is_guess=True) if mentioned else None


def _step(text: str) -> str | None:
    found = next((match for pattern in _STEPS if (match := pattern.search(text))), None)
    key = _first_key(_IN_TEXT, found[0]) if found else None
    return f"{key}-{found['step']}" if found and key else None


def _first_key(pattern: re.Pattern[str], text: str) -> str | None:
    keys = (key[0][key.start("project") - key.start() :] for key in pattern.finditer(text))
    return next((key for key in keys if project_of(key).lower() not in _NO_PROJECTS), None)
