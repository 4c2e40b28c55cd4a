"""Which requests can name a session: a greeting, a yes or a bare command says nothing of the work."""

import re

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
