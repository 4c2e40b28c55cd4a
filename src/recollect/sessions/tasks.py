"""The task a session worked on, as its branch, its commits or its first request name it."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from recollect.agents import BUILT_IN


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What looks like a task and is none: encodings, standards, hardware, models, versions, and keys out of templates.
_NO_PROJECTS = _words(
    """
    utf ucs iso iec ieee ansi ascii koi windows cp ecma rfc pep jsr cve cwe ghsa sha md crc aes rsa ecdsa hmac tls ssl
    http ipv base utc gmt est pst cet avx sse mmx fma neon sve arm cortex amd intel ryzen epyc xeon core rtx gtx rx usb
    pcie ddr nvme hdmi mp dvd rs int uint float fp bf es ecmascript python py node go java jdk jre php ruby rust swift
    net clang gcc llvm cuda react vue angular next nuxt svelte django rails laravel spring tailwind vite electron
    flutter android ios macos win ubuntu debian fedora alpine centos pg postgres mysql mariadb redis mongo kafka
    gpt opus sonnet haiku gemini llama qwen mistral glm deepseek covid iphone
    abc xyz xxx foo bar baz key proj project jira ticket task todo example test demo
    """
) | frozenset(BUILT_IN)
# In a branch also words that are counted: `phase-2`, `release-2026`.
_NO_PROJECTS_IN_BRANCH = _NO_PROJECTS | _words(
    """
    phase step part stage round try attempt take version ver release rel rc alpha beta milestone sprint week day month
    year q option plan tier level chapter lesson day fix feat feature hotfix patch chore docs refactor wip tmp temp dev
    main master branch backup copy worktree wt agent run iteration iter draft rev pr page item batch chunk group set
    top add use all max min new old remove support update upgrade bump
    """
)

# Branch names join words with `_`, which `\b` takes for a part of the word.
_KEY = r"(?P<project>[A-Z][A-Z0-9]+)(?:-[A-Z0-9]+)*-\d+(?:-T\d+)?"
_BEGIN, _END = r"(?<![^\W_])", r"(?![^\W_])(?!\.\d)"
_UPPER = re.compile(rf"{_BEGIN}{_KEY}{_END}")
_LOWER = re.compile(r"(?:^|[/_])(?P<project>[a-z]{2}[a-z0-9]{0,8})-(?P<number>[1-9]\d{0,4})(?=$|[-_/])(?!-\d)")
_ISSUE = re.compile(r"(?:^|/)(?:issues?|gh|bug)[/_-]#?(?P<number>[1-9]\d{0,4})(?=$|[-_/])")
_NUMBER = re.compile(r"(?<![\w/&])(?<!Image )#\d+\b")
_ADDRESS = re.compile(rf"/(?:issues?|browse|tickets?|work_items|stor(?:y|ies))/(?:{_KEY}|(?P<number>\d+))\b")
_WORK = (
    r"(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|implement|do|see|for|on|start|continue|finish|address|review|refs?"
    r"|issue|bug|ticket|task|trace|jira|linear)"
)
_ASKED = re.compile(rf"(?:^\W*|\b(?i:{_WORK})\W{{1,3}}(?:(?i:issue|bug|ticket|task)\s+)?){_KEY}{_END}")
_ASKED_NUMBER = re.compile(rf"\b(?i:{_WORK})\s+(?:(?i:issue|bug|ticket|task)\s+)?(#\d+)\b")


class Task(NamedTuple):
    """A task; `is_guess` if only a request mentions it, so that another session must know its project."""

    ref: str
    is_guess: bool = False


def find_task(branch: str | None, commits: Iterable[str], request: str | None) -> Task | None:
    """The task named by the branch, else by a commit the session made, else by its first request."""
    if ref := _in_branch(branch or ""):
        return Task(ref)
    for message in commits:
        if ref := _upper(message) or _first(_NUMBER, message):
            return Task(ref)
    return _in_request(request) if request else None


def project_of(ref: str) -> str:
    """What tasks of one tracker have in common: `SHOP` of `SHOP-12`, `#` of `#12`."""
    return ref.partition("-")[0] if "-" in ref else ref[:1]


def _in_branch(branch: str) -> str | None:
    if ref := _upper(branch) or _first(_NUMBER, branch):
        return ref
    if issue := _ISSUE.search(branch):
        return f"#{issue['number']}"
    for key in _LOWER.finditer(branch):
        if key["project"] not in _NO_PROJECTS_IN_BRANCH:
            return f"{key['project']}-{key['number']}".upper()
    return None


def _in_request(request: str) -> Task | None:
    if address := _ADDRESS.search(request):
        return Task(f"#{address['number']}" if address["number"] else address[0].rpartition("/")[2])
    asked = next((key for key in _ASKED.finditer(request) if key["project"].lower() not in _NO_PROJECTS), None)
    if asked is not None:
        return Task(asked[0][asked.start("project") - asked.start() :])
    if number := _ASKED_NUMBER.search(request):
        return Task(number[1])
    mentioned = _upper(request)
    return Task(mentioned, is_guess=True) if mentioned else None


def _upper(text: str) -> str | None:
    return next((key[0] for key in _UPPER.finditer(text) if key["project"].lower() not in _NO_PROJECTS), None)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[0] if match else None
