"""The words of a query: which carry meaning, what a misspelt one stands for, what each weighs where."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from recollect.recall.query import Phrase
from recollect.store import Term
from recollect.text import Columns

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
