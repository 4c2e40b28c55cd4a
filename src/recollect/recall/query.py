"""The query language: words, "phrases", -not, OR, and filters such as `repo:shop-api`. See docs/search.md.

Reading a query never fails. Invalid syntax is searched for as words, with a note. Of its words: which carry meaning,
what a misspelt one stands for, what each weighs where.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from recollect.model.clock import parse_moment
from recollect.model.kinds import KINDS, OUTCOMES, SESSION_CLASSES
from recollect.model.text import Columns
from recollect.store import Term

MOST_WORDS = 64
MOST_CHARS = 4096

OF_SESSIONS_ONLY = ("open", "starred")  # of these: what sessions are, not events
OF_SESSIONS = ("agent", "repo", "branch", "model", "outcome", "class", "group", "channel", "user", "domain", "task")
OF_EVENTS = ("kind", "tool", "role", "is")  # filters that only events can answer
_ENUMERATED = ("kind", "outcome", "role", "is", "has", "class")

_ITEM = re.compile(
    r"""(?P<minus>-(?=[^\s-]))?          # -not; two of them begin a flag
        (?:(?P<name>[A-Za-z]+):(?=\S))?  # a filter's name
        (?:"(?P<quoted>[^"]*)"(?!\S)|(?P<open>"[^"]*$)|(?P<bare>\S+))""",
    re.VERBOSE,
)
# Compiled at their first use, and kept by `re`: most queries need none of them.
_FILTER = r'(?<!\S)(?P<minus>-)?(?P<name>[A-Za-z]+):(?:"(?P<quoted>[^"]*)"|(?P<bare>\S+))(?!\S)'
_LIKE_A_FILTER = r"[A-Za-z][\w.-]*"  # and not like a URL, a port, a line or a path
_FLAG = r"-[A-Za-z]{1,2}"  # `-v`, `-rf`: nobody excludes so short a word
# A pasted command, in which `-name` is an option: by what only a shell reads, or by how it begins.
_SHELL = r"[|;<>$`]|&&|(?<!\S)(?:--\w|-[A-Za-z]{1,2}(?!\S)|\.(?!\S)|(?:\.{1,2}|~)/|['\"]?\*\.)"
_PROGRAMS = (
    r"ansible|apt|aws|awk|az|bash|brew|bun|bundle|cargo|chmod|chown|cmake|composer|cp|curl|"
    r"deno|docker|dotnet|du|flutter|gcc|gcloud|gem|gh|git|gradle|grep|"
    r"helm|java|jq|journalctl|kubectl|ln|ls|mise|mv|mvn|mypy|npm|npx|"
    r"openssl|php|pip|pnpm|poetry|ps|psql|pytest|python3?|rails|rg|rm|rsync|ruby|ruff|scp|"
    r"sed|sh|sqlite3|ssh|sudo|swift|systemctl|tail|tar|terraform|tsc|uv|wget|xargs|"
    r"yarn"
)
# Of those that are plain verbs too, only with an option that has a value.
_VERBS = r"(?:diff|find|go|head|kill|make|node|touch)\s.*\s-\w+\s+[^-\s]"
_PUNCTUATION = ",;:!?\"'"
_BRACKETS = ("()", "[]", "{}")
_OTHER_WIDTH = "[\uff01-\uff9f]+"
_COMMAND = rf"{_SHELL}|\A\s*(?:(?:{_PROGRAMS})\s|{_VERBS})"


class Phrase(NamedTuple):
    """Words to look for, in this order and next to each other."""

    text: str
    is_prefix: bool = False
    is_quoted: bool = False


class Filter(NamedTuple):
    name: str
    value: str
    is_excluded: bool = False
    is_option: bool = False  # given by an option: what matches nothing is an error then


class Query(NamedTuple):
    """A query, read: every one of `needs` has a phrase that must be there; filters of one name are a choice."""

    text: str
    needs: tuple[tuple[Phrase, ...], ...] = ()
    excluded: tuple[Phrase, ...] = ()
    filters: tuple[Filter, ...] = ()
    notes: tuple[str, ...] = ()
    sentence: str = ""  # all of its words as they were typed; empty if it says more than words

    @property
    def is_empty(self) -> bool:
        return not (self.needs or self.filters)

    @property
    def has_of_events(self) -> bool:
        """Whether a filter asks for events, which a digest does not have."""
        return any(item.name in OF_EVENTS and item.value not in OF_SESSIONS_ONLY for item in self.filters)

    def values(self, name: str, *, is_excluded: bool = False) -> list[str]:
        return [item.value for item in self.filters if item.name == name and item.is_excluded == is_excluded]


def parse_query(text: str, now: datetime) -> Query:
    """Read a query; `now` is what `since:7d` counts from."""
    notes: list[str] = []
    text = _cut(text, notes)
    items = list(_items(text, now, notes))
    if any(isinstance(item, Phrase) and is_excluded for item, is_excluded in items) and re.search(_COMMAND, text):
        typed = items
        items = [
            (item._replace(text=f"-{item.text}") if is_excluded and isinstance(item, Phrase) else item, False)
            for item, is_excluded in typed
        ]
        option = next(item.text for item, is_excluded in typed if is_excluded and isinstance(item, Phrase))
        notes.append(f"Treated as a command: `-{option}` excludes nothing")
    needs: list[tuple[Phrase, ...]] = []
    excluded: list[Phrase] = []
    is_choice = False
    for place, (item, is_excluded) in enumerate(items):
        if item == Phrase("OR"):
            is_choice = bool(needs) and _is_needed(items, place - 1) and _is_needed(items, place + 1)
            if not is_choice:
                notes.append("`OR` needs a word on each side: searched for as a word")
                needs.append((item,))
        elif isinstance(item, Phrase) and is_excluded:
            excluded.append(item)
        elif isinstance(item, Phrase):
            if is_choice:
                needs[-1] = (*needs[-1], item)
            elif (item,) not in needs:
                needs.append((item,))
            is_choice = False
    filters = tuple(item for item, _ in items if isinstance(item, Filter))
    if excluded and not needs and not filters:
        notes.append("Only exclusions: searched for as words")
        needs, excluded = [(phrase,) for phrase in excluded], []
    phrases = [item for item, _ in items if isinstance(item, Phrase)]
    is_plain = not (excluded or any(phrase.is_quoted or phrase.is_prefix for phrase in phrases))
    sentence = " ".join(phrase.text for phrase in phrases) if is_plain else ""
    return Query(text, tuple(needs), tuple(excluded), filters, tuple(notes), sentence)


def without_filters(text: str, now: datetime) -> tuple[str, tuple[Filter, ...]]:
    """A text to be found as it is, without the filters in it; if there is nothing else in it, they are the text."""
    filters: list[Filter] = []

    def taken_out(match: re.Match[str]) -> str:
        value = match["bare"] if match["quoted"] is None else match["quoted"]
        found = _filter(match["name"], value, bool(match["minus"]), now)
        if found is None:
            return match[0]
        filters.append(found)
        return ""

    rest = re.sub(_FILTER, taken_out, text).strip()
    return (rest, tuple(filters)) if filters and rest else (text, ())


def _is_needed(items: list[tuple[Phrase | Filter, bool]], place: int) -> bool:
    if not 0 <= place < len(items):
        return False
    item, is_excluded = items[place]
    return isinstance(item, Phrase) and item != Phrase("OR") and not is_excluded


def sound(text: str) -> str:
    """The text without what no store can hold: NUL, and halves of characters."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _of_usual_width(text: str) -> str:
    """Full-width letters and half-width kana, which input methods make, as logs have them: `ｃｓｖ` is `csv`."""
    if not re.search(_OTHER_WIDTH, text):
        return text
    import unicodedata  # few queries need it

    return re.sub(_OTHER_WIDTH, lambda match: unicodedata.normalize("NFKC", match[0]), text)


def _cut(text: str, notes: list[str]) -> str:
    text = _of_usual_width(sound(text))
    if len(text) > MOST_CHARS:
        notes.append(f"Only the first {MOST_CHARS} characters were searched for")
        text = text[:MOST_CHARS].rpartition(" ")[0] or text[:MOST_CHARS]
    return text


def _items(
    text: str, now: datetime, notes: list[str], most: int = MOST_WORDS
) -> Iterator[tuple[Phrase | Filter, bool]]:
    for number, match in enumerate(_ITEM.finditer(text)):
        if number >= most:
            notes.append(f"Only the first {MOST_WORDS} words were searched for")
            return
        if match["open"]:
            notes.append("Missing closing quotation mark: the rest was searched for as words")
            yield from _items(match["open"][1:], now, notes, most - number)
            return
        yield _item(match, now, notes)


def _item(match: re.Match[str], now: datetime, notes: list[str]) -> tuple[Phrase | Filter, bool]:
    name, value, whole = match["name"], match["quoted"], match[0]
    is_quoted = value is not None
    value = match["bare"] if value is None else value
    is_excluded = bool(match["minus"]) and not re.fullmatch(_FLAG, whole)
    if name and (found := _filter(name, value, is_excluded, now)):
        return found, is_excluded
    if name:
        if name.lower() in FILTERS:
            notes.append(f"Invalid value for `{name}:`, searched for as words: {value}")
        elif name.islower():
            from difflib import get_close_matches  # few queries need it

            near = get_close_matches(name, FILTERS, 1, 0.75)
            if near or re.fullmatch(_LIKE_A_FILTER, value):
                meant = f"; did you mean `{near[0]}:`?" if near else ""
                notes.append(f"No such filter, searched for as words: `{name}:`{meant}")
        return Phrase(f"{name}:{value}", is_quoted=is_quoted), is_excluded
    if is_quoted:
        return Phrase(value, is_quoted=True), is_excluded
    return _word(value if is_excluded or not match["minus"] else whole), is_excluded


def _filter(name: str, value: str, is_excluded: bool, now: datetime) -> Filter | None:
    """A filter, whatever the case of its name and of a value that is one of a few; None if it is none."""
    name = name.lower()
    value = value.lower() if name in _ENUMERATED else value
    return Filter(name, value, is_excluded) if name in FILTERS and FILTERS[name](value, now) else None


def _word(text: str) -> Phrase:
    is_prefix = len(text) > 1 and text.endswith("*")
    return Phrase(text.rstrip("*") if is_prefix else text, is_prefix)


def bare(text: str) -> str:
    """A word to show, without what a sentence or a line of code has around it: `panic:`, `(0.03s)`, `"src/app.py",`.

    It is searched for as typed: a bracket in the same place tells the session that it was copied from.
    """
    word = text.strip(_PUNCTUATION)
    for pair in _BRACKETS:
        is_around = word[:1] + word[-1:] == pair and not set(pair) & set(word[1:-1])
        word = word.strip(pair) if is_around or word.count(pair[0]) != word.count(pair[1]) else word
    return word.strip(_PUNCTUATION) or text


def _is_time(value: str, now: datetime) -> bool:
    try:
        time_ms(value, now)
    except (ValueError, OverflowError):
        return False
    return True


def time_ms(value: str, now: datetime) -> int:
    return round(parse_moment(value, now).timestamp() * 1000)


def _one_of(*values: str) -> Callable[[str, datetime], bool]:
    return lambda value, now: value in values


# Every filter there is, and whether it takes a value.
FILTERS: dict[str, Callable[[str, datetime], bool]] = {
    **dict.fromkeys((*OF_SESSIONS, "file", "tool", "session", "tag"), lambda value, now: bool(value.strip())),
    "kind": _one_of(*KINDS),
    "outcome": _one_of(*OUTCOMES),
    "role": _one_of("user", "assistant", "tool", "system"),
    "class": _one_of(*SESSION_CLASSES),
    "since": _is_time,
    "before": _is_time,
    "is": _one_of("error", "decision", *OF_SESSIONS_ONLY),
    "has": _one_of("edit"),
}


_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LEAST_CHARS = 4  # shorter words are one letter away from too many others
_MOST_CHARS = 40

# Words that only hold a question together, as the index has them: small and without accents.
# English comes first and wins a tie: `die` and `war` are English words too.
_STOP_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "English": "a about again all also am an and any anyone are as at be been before being but by can could did do"
        " does doing done ever for from get got had has have he her here him his how i if in into is it its"
        " just let many may me my no not of on once or our out over please s should so some t than that the"
        " their them then there these they this those to too up us use used was we were what when where"
        " which while who whom why will with would yet you your",
        "German": "aber als am an auch auf aus bei bin bitte da das dass dem den denn der des die dies diese dieser"
        " du ein eine einem einen einer eines er es fur gibt habe haben hat hatte hatten ich ihr im in ist"
        " ja kann konnen man mein mich mir mit nach nicht noch nur ob oder schon sich sie sind so uber um"
        " und uns unser unsere vom von vor wann war waren warum was weil welche welcher welches wenn wer"
        " werden wie wieso wir wird wo wurde wurden zu zum zur",
        "French": "a au aux avec avez avons ce ces cette comment dans de des du elle en est et etait etre fait il ils"
        " je la le les leur lui ma mais mes mon ne nos notre nous on ont ou par pas plus pour pourquoi qu"
        " quand que quel quelle quelles quels qui quoi sa se ses son sont sur ta te tes ton tu un une vos"
        " votre vous",
        "Spanish": "a al algo ante como con cual cuando de del desde donde el ella ellos en entre era es esa ese eso"
        " esta este esto fue fueron ha hace han hasta hay hemos la las le les lo los me mi muy no nos"
        " nosotros o para pero por porque que quien se si sin sobre son su sus te tiene un una unas uno unos"
        " y ya yo",
        "Portuguese": "a ao aos as com como da das de do dos e ela ele em entre era essa esse esta este eu fizemos foi"
        " foram ha isso ja mais mas me meu na nao nas no nos o onde os ou para pela pelo por porque quando"
        " que quem sao se sem seu sua tambem te tem um uma voce",
        "Italian": "a al alla anche che chi ci come con cosa da dal dalla dei del della delle di dove e ed era gli ha"
        " hanno ho i il in io la le lo ma mi nel nella noi non o per perche piu quale quando questa questo"
        " se si sono su sul tra un una uno",
        "Dutch": "aan als bij dat de den der deze die dit door een en er heb hebben heeft het hij hoe ik in is je"
        " kan maar met naar niet nog of om onze ook op over te toen uit van voor waar waarom wanneer was wat"
        " we welke werd wie wij worden wordt zijn zo",
        "Russian": "а бы был была были было в вы где да для до его ее если есть же за и из или как какои когда кто ли"
        " мы на нас не но о об он она они от по почему при с так то ты у уже что чтобы это я",
        "Indonesian": "ada apa apakah atau bagaimana bisa dan dari dengan di ini itu juga kami kapan ke kenapa kita"
        " mana mengapa oleh pada saya sudah telah untuk yang",
        "Vietnamese": "bi cac cai cho co cua gi khi khong la lai lam ma mot nao nay o ra sao tai the thi trong tu va"
        " vao voi đa đang đe đen đuoc",
        "Turkish": "acaba ama bir biz bu da daha de degil en gibi icin ile mi mı nasıl ne neden nerede ve veya ya",
        "Polish": "a ale byc co czy dla do gdzie i jak jego jest kiedy ktora ktory na nie o od po przez sa sie tak to"
        " w z za ze",
    }.items()
}
# The same of scripts without spaces between words, in pairs of letters.
_STOP_PAIRS = (
    "怎么 么样 如何 为什 什么 哪里 哪个 我们 你们 他们 这个 那个 一个 可以 是否 怎麼 為什 什麼 哪裡 我們"
    " どこ どう どの なぜ です ます した して する から こと もの では には 어디 어떻 떻게 언제 무엇 우리 하는"
)


def meaningful(words: Sequence[str]) -> list[str]:
    """The words that do not just hold a question together; all, if none is left."""
    known = set(words)
    language = max(_STOP_WORDS, key=lambda name: len(known & _STOP_WORDS[name]))
    stop_words = _STOP_WORDS[language].union(_STOP_PAIRS.split())
    return [word for word in words if word not in stop_words] or list(words)


def suggestion(counts: Callable[[Collection[str]], Mapping[str, int]], word: str) -> str | None:
    """The most common word one letter away: left out, added, changed, or swapped with the next."""
    if not _LEAST_CHARS <= len(word) <= _MOST_CHARS:
        return None
    known = counts(set(_neighbours(word)))
    return max(known, key=lambda other: (known[other], other), default=None)


def _neighbours(word: str) -> Iterator[str]:
    for place in range(len(word) + 1):
        head, tail = word[:place], word[place:]
        yield from (head + letter + tail for letter in _LETTERS)
        if tail:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in _LETTERS if letter != tail[0])
        if len(tail) > 1 and tail[0] != tail[1]:
            yield head + tail[1] + tail[0] + tail[2:]


_WEIGHTS = {"got": 1.0, "said": 2.0, "did": 1.5, "asked": 3.0, "parts": 0.7}
WEIGHTS = tuple(_WEIGHTS[column] for column in Columns._fields)
FEW_WORDS = 4  # up to so many, it is said of each session which of them it lacks
COMMON_EVENTS = 20_000  # a word in more events is taken to be in every session


class Word(NamedTuple):
    """A word or phrase to rank by, or a choice of them, with the number of events and digests that have it."""

    choice: tuple[Phrase, ...]
    events: Mapping[str, int]  # by month
    digests: int
    is_repo: bool = False  # also the name of a repository

    @property
    def text(self) -> str:
        return self.choice[0].text

    @property
    def total(self) -> int:
        return sum(self.events.values())

    @property
    def is_known(self) -> bool:
        return bool(self.total or self.digests or self.is_repo)

    @property
    def is_required(self) -> bool:
        return any(phrase.is_quoted for phrase in self.choice)


class Terms(NamedTuple):
    """What to rank by: the words of a query, parts of them that only add to the score, and the query as a sentence."""

    words: Sequence[Word]
    parts: Sequence[Word] = ()
    sentence: Word | None = None
    excluded: Sequence[Phrase] = ()


def terms_of(choices: Sequence[Sequence[Phrase]]) -> tuple[tuple[Term, ...], ...]:
    return tuple(tuple(Term(phrase.text, phrase.is_prefix) for phrase in choice) for choice in choices)
