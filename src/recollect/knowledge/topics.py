"""What people ask about: the words of a question that count, and how well a fact answers to them."""

import re
from collections.abc import Iterable

from recollect.distill import word_set
from recollect.text import CJK_RUN, spaced

_WORD = re.compile(r"[^\W_][\w'’-]*")
_COMMON = word_set(
    "a an the and or of to in on for with from by at as is are was were be been do does did we i you it our your my "
    "this that these those what why how when where which who whose can could should would will shall may might not no "
    "have has had there here about into out over issue problem error bug fix fixed fixing get got make made use used "
    "using last time session changes change thing things again before after"
)
# What only holds a Chinese or Japanese question together, and the particles between two of its words.
_CJK_COMMON = re.compile(
    r"(?:为什么|為什麼|为何)(?:不[用要选選]|没用)?|怎么(?:样|办)?|怎麼|怎样|如何|什么|什麼|哪(?:一?[种个些里]|裡)|是否|要不要|还是|還是|我们|我們|关于|[的了吗呢呀吧啊]"
    r"|なぜ|どう(?:して|やって)?|どの|どれ|何故|について|(?:する|した|している)?(?:方法|理由)|ください|です(?:か)?|ます(?:か)?"
    r"|(?<![ぁ-ゖ])[のをはがにでとへも](?![ぁ-ゖ])|왜|어떻게|무엇"
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ers", "ed", "er", "es", "s", "e")
_STEM_CHARS = 4
_APART, _LEAST_JOINED = re.compile(r"[ _-]"), 6


def topic_words(text: str) -> list[str]:
    """The words that say what a question is about, CJK as it is indexed; all of its words if every one is common."""
    if not text.isascii():
        text = _spaced(_CJK_COMMON.sub(" ", text)) or _spaced(text)
    words = [word.strip("'’-").lower() for word in _WORD.findall(text)]
    return [word for word in dict.fromkeys(words) if word and word not in _COMMON] or list(dict.fromkeys(words))


def _spaced(text: str) -> str:
    """CJK as it is indexed, without letters that stand by themselves unless there is nothing else."""
    words = spaced(text).split()
    longer = [word for word in words if len(word) > 1 or not re.fullmatch(CJK_RUN, word)]
    return " ".join(longer or words)


def fulltext_query(words: Iterable[str]) -> str:
    """A full-text query for facts that have any of these words."""
    return " OR ".join(f'"{word}"' for word in words)


def relevance(words: list[str], text: str) -> float:
    """The share of the words that a text has, in whatever form, or apart (`roll back` for `rollback`)."""
    asked, lowered = [stem(word) for word in words], (text if text.isascii() else spaced(text)).lower()
    # Only a word that begins with a stem can have it, and most texts have few of them.
    begun = tuple(word for word in asked if word in lowered)
    stems = {stem(word) for word in _WORD.findall(lowered) if word.startswith(begun)} if begun else set()
    joined = _APART.sub("", lowered)
    present = [
        word in stems or (len(word) >= _LEAST_JOINED and word not in lowered and word in joined) for word in asked
    ]
    return sum(present) / len(words) if words else 0.0


def stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_CHARS:
            return word.removesuffix(ending)
    return word


def has_word(text: str, word: str) -> bool:
    return word in text and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None
