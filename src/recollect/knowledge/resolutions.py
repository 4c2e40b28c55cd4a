"""Errors and what fixed them: an error opens when a run fails and closes when the same thing succeeds.

What was changed in between is the resolution, as far as it lasted and belongs to the error: it is of a line, a file or
a symbol that the error shows. The reason is the agent's sentence about it, if it wrote one.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from recollect.digest import one_line, sentences, shell, shortened
from recollect.knowledge.asking import has_word
from recollect.knowledge.demands import ASKED_CHANGE
from recollect.knowledge.material import UNDOES, Block, Change, Finding, Material, Run, Turn, standing
from recollect.knowledge.records import FAILS_WITH, FIXED_BY, GONE, PASSED
from recollect.knowledge.signature import error_in, fingerprint, place_below, place_of, placed_lines, telling_lines
from recollect.model import schema
from recollect.model.text import ELLIPSIS
from recollect.store import Step

# Names of code, as messages write them: in quotes, after a dot or the word for what it is, or with an underscore or a
# capital inside; rules of linters, by which they are switched off.
_SYMBOL = re.compile(
    r"[`'\"](?:[\w$@./:-]*[./:])?(?P<quoted>[A-Za-z_]\w{2,})(?:\(\))?[`'\"]|[`\"](?P<phrase>[^`\"\n]{4,60})[`\"]"
    r"|\b(?:undefined:|method|field|function|variable|module|package|attribute|parameter|argument|import) "
    r"(?P<noun>[A-Za-z_]\w{2,})"
    r"|\b\w+\.(?P<member>[A-Z]\w{2,})|\b(?P<joined>[A-Za-z]\w*_\w+|[A-Za-z]\w*[a-z0-9][A-Z]\w*)"
    r"|\b(?P<code>[A-Z]{1,4}\d{3,5}|[A-Z]{6,})\b"
)
_RULE_NAMED = re.compile(r"\((?P<linter>[\w/-]{3,})\)$|\b(?P<code>[A-Z]{1,4}\d{3,5})\b")
SUPPRESSES = re.compile(
    r"(?://|#|/\*|\{/\*)\s*(?:nolint|noqa|nosec|type: ?ignore|pylint: ?disable|eslint-disable|@ts-(?:ignore|expect))"
    r"(?P<rules>(?::?[\w ,/\[=-]*)).*"
)
_NAMES_A_KIND = re.compile(r"\w*(?:Error|Exception|Warning|Failure)")
_BEFORE_CODE = " \t>|E"  # marks before a line of code in an output
_LEAST_SHOWN_CHARS = 8
_GIST_CHARS = 160
_SHARED_CHARS = 20  # shown of what two lines share, before where they differ
_WORDS = re.compile(r"\w{2,}")
_REPORTS = re.compile(r"t\.(?:Error|Fatal|Log|Skip)f?\(|self\.fail\(|pytest\.fail\(")
_COMMENT = ("//", "# ", "/*", "*", "--", "<!--", "{/*")
_AT_LINE, _NEAR_LINE, _SHOWN, _SUPPRESSED, _MOST_SYMBOLS = 6, 3, 5, 12, 6  # what a block is worth for an error
_ASSERTION_LINES = 3  # between what a test compares and where it says that it failed
_FUNCTION_LINES = 25  # before which it may be said that a checker shall say nothing of it
_IN_HEADLINE, _IN_OUTPUT = 2, 1  # what it is worth that a file is named


@dataclass(frozen=True)
class Mentions:
    """What an error shows: a place and symbols in its headline, files and lines of code in its output."""

    headline: str = ""
    output: str = ""

    @cached_property
    def _place(self) -> tuple[str, int, str]:
        """The file, the line and the message of the headline; no line if a helper of tests says everything there."""
        file, line, message = place_of(self.headline) or ("", 0, self.headline)
        said = (shown.partition(f"{file}:{line}: ")[2].split() for shown in self.output.splitlines())
        return file, 0 if len({words[0] for words in said if words}) > 1 else line, message

    @cached_property
    def symbols(self) -> frozenset[str]:
        named = (found[found.lastgroup or 0] for found in _SYMBOL.finditer(self._place[2]))
        return frozenset(name for name in named if not _NAMES_A_KIND.fullmatch(name))

    @cached_property
    def _rules(self) -> frozenset[str]:
        return frozenset(found[found.lastgroup or 0] for found in _RULE_NAMED.finditer(self._place[2]))

    @cached_property
    def _shown(self) -> frozenset[str]:
        """The lines of the output, of a list of errors only those below the headline."""
        lines = self.output.splitlines()
        start = next((index for index, line in enumerate(lines) if self._place[0] and self.headline in line), None)
        if start is not None and len([line for line in lines if place_of(line.strip())]) > 1:
            after = lines[start + 1 :]
            end = next((index for index, line in enumerate(after) if place_of(line.strip())), len(after))
            lines = after[:end]
        code = (" ".join(line.strip(_BEFORE_CODE).split()) for line in lines)
        return frozenset(line for line in code if len(line) >= _LEAST_SHOWN_CHARS)

    def is_of_file(self, change: Change) -> bool:
        """Whether a change is of the file in which the headline places the error."""
        file = self._place[0].removeprefix("./")
        return bool(file) and (f"/{change.name}".endswith(f"/{file}") or f"/{file}".endswith(f"/{change.name}"))

    def weight(self, change: Change) -> int:
        """How strongly a change is tied to the error; 0 if not at all."""
        named = _IN_OUTPUT if _names(self.output, change.name) else 0
        named = _IN_HEADLINE if _names(self.headline, change.name) else named
        if change.blocks:
            return named + max(self.weight_of(change, block) for block in change.blocks)
        return named + self._symbols_in([change.name])

    def weight_of(self, change: Change, block: Block) -> int:
        """How much of what the error shows is in a block: its line, a line of its code, its symbols, its rule."""
        silenced = self._silenced(change, block)
        if silenced is not None:
            return silenced
        lines = [line for line in (*block.removed, *block.added) if line]
        if all(map(_REPORTS.match, lines)):
            return 0  # what a test says of its failure made it neither fail nor pass
        is_at_line = self.is_of_file(change) and block.covers(self._place[1])
        is_near = "test" in change.name.lower() and self._distance(change, block) <= _ASSERTION_LINES
        place = _AT_LINE if is_at_line else _NEAR_LINE if is_near else 0
        shown = _SHOWN if self._shown.intersection(block.removed) else 0
        return max(place, shown) + self._symbols_in(filter(_does, lines))

    def best(self, changes: Iterable[Change]) -> tuple[Change, Block] | None:
        """The block, among changes to one file, that fits the error best; None if none stands out."""
        blocks = [(change, block) for change in changes for block in change.blocks]
        most = max((self.weight_of(*pair) for pair in blocks), default=0)
        likely = [pair for pair in blocks if self.weight_of(*pair) == most]
        # At which column it is only exact ones say: that of a test says where the test noticed.
        is_exact = f":{self._place[1]}: " not in self.headline
        if len(likely) == 1 and (most or not is_exact or not self._is_placed(*likely[0])):
            return likely[0]
        near = [pair for pair in likely if self._distance(*pair) <= _FUNCTION_LINES]
        is_told = most or len(blocks) == 1
        return min(near, key=lambda pair: self._distance(*pair)) if near and is_told else None

    def _distance(self, change: Change, block: Block) -> int:
        """How many lines a block is away from the error; many if nobody knows."""
        return block.distance(self._place[1]) if self._is_placed(change, block) else sys.maxsize

    def _is_placed(self, change: Change, block: Block) -> bool:
        return self.is_of_file(change) and block.line is not None

    def gist(self, block: Block) -> str:
        """What a block did, in a line: the lines that went and came for the error, or the first ones."""
        gone, come = list(filter(None, block.removed)), list(filter(None, block.added))
        removed = max(  # lines in both moved, or were indented
            _without(gone, come),
            key=lambda line: (
                _REPORTS.match(line) is None,
                self._is_at(block, line),
                line in self._shown,
                _does(line),
                self._symbols_in([line]),
            ),
            default="",
        )
        words = set(_WORDS.findall(removed))
        added = max(
            _without(come, gone),
            key=lambda line: (
                self._is_silencing(line),
                _REPORTS.match(line) is None,
                _does(line),
                not removed.startswith(line),
                len(words & set(_WORDS.findall(line))) + self._symbols_in([line]),
            ),
            default="",
        )
        is_alike = bool(words & set(_WORDS.findall(added)))
        if not removed or (self._is_silencing(added) and not is_alike):
            return f"added `{shortened(added, _GIST_CHARS)}`" if added else ""
        is_in_place = len(gone) in (1, len(come)) or [removed, added] == [gone[0], *come[:1]]
        is_now_a_comment = _does(removed) and not _does(added)
        if not added or is_now_a_comment or not (is_alike or is_in_place):
            return f"removed `{shortened(removed, _GIST_CHARS)}`"
        if (appended := added.removeprefix(removed).strip()) not in ("", added):
            return f"added `{shortened(appended, _GIST_CHARS // 2)}` after `{shortened(removed, _GIST_CHARS // 2)}`"
        # Where they differ far from their beginning, from a little before that place on.
        pairs = enumerate(zip(removed, added, strict=False))
        start = next((index for index, (a, b) in pairs if a != b), min(len(removed), len(added))) - _SHARED_CHARS
        start = start if start > _GIST_CHARS // 2 - 2 * _SHARED_CHARS else 0
        removed, added = (f"{ELLIPSIS}{line[start:]}" if start else line for line in (removed, added))
        return f"`{shortened(removed, _GIST_CHARS // 2)}` became `{shortened(added, _GIST_CHARS // 2)}`"

    def deletes_check(self, change: Change, block: Block) -> bool:
        """Whether a block took away the line with which a test said that it failed, and no other says so instead."""
        if not self.is_of_file(change) or any(map(_REPORTS.match, block.added)):
            return False
        return any(_REPORTS.match(line) is not None and self._is_at(block, line) for line in block.removed)

    def _is_at(self, block: Block, line: str) -> bool:
        index = None if block.line is None else self._place[1] - block.line
        return index is not None and 0 <= index < len(block.removed) and block.removed[index] == line

    def _silenced(self, change: Change, block: Block) -> int | None:
        """What a block is worth that has a checker say nothing: much if it is of the error's rule, else none.

        None if it does anything else, too.
        """
        lines = [line for line in block.added if line not in block.removed]
        if any(map(self._is_silencing, lines)):
            is_near = not self._place[0] or self._distance(change, block) <= _FUNCTION_LINES
            return _SUPPRESSED if is_near else 0
        is_silencing = any(map(SUPPRESSES.search, lines))
        code = [
            [text for line in side if (text := SUPPRESSES.sub("", line).strip())]
            for side in (block.removed, block.added)
        ]
        return 0 if is_silencing and code[0] == code[1] else None

    def _is_silencing(self, line: str) -> bool:
        found = SUPPRESSES.search(line)
        return found is not None and any(rule in found["rules"] for rule in self._rules)

    def _symbols_in(self, lines: Iterable[str]) -> int:
        text = "\n".join(lines)
        return min(_MOST_SYMBOLS, sum(has_word(text, symbol) for symbol in self.symbols))


MOST_STEPS = 6  # of a resolution


def main_changes(changes: Iterable[Change], mentions: Mentions) -> list[Change]:
    """The changes that belong to the error, each file or command once; all of them if it shows none of them.

    Each has the gist of the block that belongs most to it, if one can be told from the others.
    """
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.kind, change.name), []).append(change)
    weighed = [(max(map(mentions.weight, made)), made) for made in groups.values()]
    weighed.sort(key=lambda one: (-one[0], "test" in one[1][0].name.lower(), one[1][0].name.endswith(".md")))
    most = weighed[0][0] if weighed else 0
    chosen = [made for weight, made in weighed if 2 * weight > most or not most][:MOST_STEPS]
    best = [mentions.best(made) for made in chosen]
    is_told = bool(best) and (best[0] is not None or not chosen[0][0].blocks)
    return [
        replace(found[0], gist=mentions.gist(found[1])) if found and is_told else made[-1]
        for made, found in zip(chosen, best, strict=True)
    ]


def _without(lines: list[str], others: list[str]) -> list[str]:
    """Lines that are not among others; all of them if each is."""
    known = set(others)
    return [line for line in lines if line not in known] or lines


def _does(line: str) -> bool:
    """Whether a line does something: a comment tells less of a change, unless it is all there is."""
    return not line.startswith(_COMMENT) or SUPPRESSES.match(line) is not None


def _names(text: str, path: str) -> bool:
    """Whether a text names a file, or the tests of it."""
    file = path.rpartition("/")[2]
    stem = file.rpartition(".")[0]
    return file in text or (bool(stem) and any(f"{stem}{mark}" in text for mark in ("_test.", ".test.", ".spec.")))


EXPLANATION_CHARS = 240
_MESSAGES_READ = 6
_LEAST_CHARS, _MOST_CHARS = 20, 400
_LEAST_SHARED = 2  # telling words

_EXPLAINS = re.compile(
    r"\b(?:because|since the|root cause|the (?:real |actual )?(?:issue|problem|bug|error|cause|fix|reason)\b|caused by"
    r"|due to|turns out|needs? to|must|missing|should (?:be|use|have)|was(?:n't| not)|is(?:n't| not)|are(?:n't| not)"
    r"|does(?:n't| not)|did(?:n't| not)|requires?|instead of|only (?:works|accepts)|no longer|too (?:long|short|small)"
    r"|expects?|conflicts?|unused|undefined)\b|原因|问题|因为|修复|причин|проблем|потому|weil|ursache"
    r"|parce que|porque",
    re.IGNORECASE,
)
_ANNOUNCES = re.compile(
    r"(?:(?:now|ok(?:ay)?|good|great|perfect)[,.!]? )?(?:let me|i'll|i will|now i|let's) (?:now )?(?:run|check|verify"
    r"|look|see|try|read|also|test|update|add|search|find|review|do|create|start|take|continue|rerun|re-run)\b"
    r"|(?:all )?(?:the )?(?:\w+ )?(?:tests?|checks?|lint(?:ing)?|build)\b[^.]{0,30}\b(?:pass|clean|green|succe)"
    r"|here(?:'s| is)",
    re.IGNORECASE,
)
# What an agent is about to do says nothing of why, unless it says so.
_PLANS = re.compile(
    r"\b(?:let me|let's|i(?:'ll| will|'m going to| need to| should| have to| want to| can see the)|now i"
    r"|now fix|also fix"
    r"|need to (?:update|fix|check|find|see|look|handle))\b|^(?:found it|wait)\b|^(?:update|fix|change|add) ",
    re.IGNORECASE,
)
_GIVES_REASON = re.compile(r"\b(?:because|since|so that|due to|as it)\b", re.IGNORECASE)
_COUNTS = re.compile(
    r"\b(?:\d+|one|two|three|few|some|all|only|these|pre-existing)\b[^.]{0,30}\b(?:tests?|failures?|failing|issues|errors|checks)\b"
    r"|\bpre-existing\b",
    re.IGNORECASE,
)
_TAKES_BACK = re.compile(
    r"(?:wait|hmm+|actually|no,|that(?:'s| is|'s) not|that did(?:n't| not)|still )\b"
    r"|(?:the )?original .{0,60}\bcorrect\b",
    re.IGNORECASE,
)
_RESTATES = re.compile(r"\b(?:fail(?:s|ed|ing)?|flag(?:s|ged|ging)|complain(?:s|ing)?)\b", re.IGNORECASE)
_GUESSES = re.compile(r"\b(?:might|maybe|perhaps|probably|possibly|may be|could be|i think)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{4,}")
_TELLS_NOTHING = re.compile(
    r"(?:error|errors|fail|fails|failed|failing|failure|issue|issues|test|tests|testing|problem|this|that|these|"
    r"those|with|from|have|been|which|what|when|where|because|since|should|could|would|must|need|needs|missing|"
    r"expected|unexpected|line|lines|file|files|code|call|calls|function|method|value|values|type|types|"
    r"variable|argument|return|returns|returned|returning|used|uses|using|change|changes|changed|added|removed|"
    r"cannot|does|doesn|didn|isn|wasn|aren|your|they|them|there|their|then|than|into|also|only|just|here|case|"
    r"cases|same|like|more|make|makes)"
)


def explanation(material: Material, start: int, end: int, error: str, change: str) -> tuple[Step, str] | None:
    """The agent's sentence between two places that says why an error came or a change helps; None if none does.

    A sentence counts if it is about them, and was not taken back by a later one.
    """
    spoken = (schema.ASSISTANT_MSG, schema.COMPLETION)
    messages = [step for step in material.trace.steps[start:end] if step.kind in spoken][:_MESSAGES_READ]
    chosen: tuple[Step, str] | None = None
    for step in messages:
        for sentence in sentences(material.text(step)):
            if _TAKES_BACK.match(sentence):
                chosen = None
            if chosen is None and _says_why(sentence) and is_about(sentence, error, change):
                chosen = step, shortened(one_line(sentence), EXPLANATION_CHARS)
    return chosen


def _says_why(sentence: str) -> bool:
    if not _LEAST_CHARS <= len(sentence) <= _MOST_CHARS or sentence.endswith(":") or not _EXPLAINS.search(sentence):
        return False
    if _ANNOUNCES.match(sentence) or _COUNTS.search(sentence) or _GUESSES.search(sentence):
        return False
    if _PLANS.search(sentence) is None and _RESTATES.search(sentence) is None:
        return True
    return _GIVES_REASON.search(sentence) is not None


def is_about(sentence: str, error: str, change: str) -> bool:
    """Whether a sentence is about an error or a change: it names code that they have, or shares telling words."""
    both = f"{error}\n{change}"
    if symbols := Mentions(sentence).symbols:
        named = f"{both}\n{both.replace('_', ' ')}"  # `test_add` is about `add`
        return any(has_word(named, symbol) for symbol in symbols)
    return len(_telling(sentence) & _telling(both)) >= _LEAST_SHARED


def _telling(text: str) -> frozenset[str]:
    return frozenset(word for word in map(str.lower, _WORD.findall(text)) if not _TELLS_NOTHING.fullmatch(word))


RULE = "resolution"
_LEAST_LISTED, _MOST_LISTED = 2, 6  # errors of one output that have fixes of their own
_FAR = 60  # events between failure and success
GUESS = 0.55  # too unsure to be shown unasked

# Words of a user that ask for nothing in particular.
_GOES_ON = re.compile(
    r"(?:(?:ok(?:ay)?|yes|yeah|yep|sure|done|continue|go on|go ahead|please|try again|proceed|thanks|great|good"
    r"|now|then"
    r"|fix (?:it|them|this)(?: up)?|commit|push|and)\b[\s,.!]*)+"
)
_ASKED_CHARS = 400
_HEADLINE_CHARS = 200
_MASKED, _LETTERS = re.compile(r"<\w+>"), re.compile(r"[A-Za-z]{2,}")  # in a signature
_DEFINES_TEST = re.compile(r"(?:func|(?:async )?def) (?P<name>[Tt]est\w+)\(")
_FAILED_TEST = re.compile(r"(?:--- FAIL: |FAILED \S*?(?:::\w+)?::)(?P<name>\w+)")
# Of a run of tests that ended before the first of them.
_NOT_BEGUN = re.compile(
    r"\[(?:build|setup) failed\]|could not compile|during collection|^SyntaxError|^ImportError|cannot find module"
    r"|: error TS\d+|exit (?:127|137|124)\b",
    re.IGNORECASE | re.MULTILINE,
)
_ADVISES = re.compile(r"\b(?:use|rewrite|replace|consider)\b")
_OF_ITS_TIME = re.compile(r"\bgit .*(?:\b[0-9a-f]{7,40}\b|\s[\w.-]+/[\w.-]+)")  # names a commit or a branch
_SKIPS_TEST = re.compile(
    r"\bt\.Skip|\bpytest\.(?:mark\.)?(?:skip|xfail)|@(?:unittest\.)?skip|@(?:Disabled|Ignore)\b"
    r"|\b(?:it|test|describe)\.(?:skip|todo)\b|\bx(?:it|describe)\(|#\[ignore"
)


@dataclass(slots=True)
class _Open:
    """An error nobody has fixed yet; `tried` are the changes after which it was still there."""

    first: Run
    last: Run
    tried: list[Change] = field(default_factory=list)
    failures: int = 1


def resolutions(
    material: Material, turns: Sequence[Turn], runs: Sequence[Run], changes: Sequence[Change]
) -> Iterator[Finding]:
    """The errors of a session's runs, and what fixed them."""
    open_errors: list[_Open] = []
    failed_tests: list[Run] = []
    for run in runs:
        if run.has_failed is None:
            continue
        if run.has_failed and run.is_test:
            failed_tests.append(run)
        still_open = []
        for error in open_errors:
            is_alike = run.doings & error.last.doings
            line = said_again(material, run, error.first.signature) if is_alike else None
            if line is not None and run.has_failed is False and run.shows_again(error.last):
                continue  # a line that successful runs print as well is no error
            if line is not None and run.has_failed:
                error.tried += _between(changes, error.last.position, run.position)
                error.last = replace(run, headline=line, signature=error.first.signature)
                error.failures += 1
                still_open.append(error)
            elif (
                run.shows_again(error.last) and not (run.has_failed and _may_hide(material, run, error.last))
            ) or _passes_suite(run, error, failed_tests):
                yield from _closed(material, turns, error, run, changes)
            else:
                still_open.append(error)
        open_errors = still_open
        if (
            run.has_failed
            and run.signature
            and not any(error.first.signature == run.signature for error in open_errors)
        ):
            open_errors.append(_Open(run, run))
    for error in open_errors:
        yield _failed(material, error, None)


def _passes_suite(run: Run, error: _Open, failed_tests: Sequence[Run]) -> bool:
    """Whether tests pass that had failed as a whole before this error of one of them was looked at by itself."""
    if not error.first.is_test or run.has_failed:
        return False
    suites = (suite for suite in failed_tests if suite.position < error.first.position and run.shows_again(suite))
    return any(shell.covers_tests(suite.command, error.first.command) for suite in suites)


def said_again(material: Material, run: Run, signature: str) -> str | None:
    """The line of a run's output that reports this error, if there is one."""
    if run.signature == signature:
        return run.headline
    # Masks take the most time: only a line with the longest word of a signature can have it.
    word = max(_LETTERS.findall(_MASKED.sub(" ", signature)), key=len, default="")
    lines = (line.strip() for line in material.text(run.result).splitlines() if len(line) < 400 and word in line)
    return next((line for line in lines if fingerprint(line) == signature), None)


def _may_hide(material: Material, run: Run, earlier: Run) -> bool:
    """Whether a run that failed otherwise may not have come as far as the earlier error, or not show it."""
    is_part = shell.is_filtered(run.command) or shell.is_filtered(earlier.command)
    return (
        is_part or not run.signature or (earlier.is_test and _NOT_BEGUN.search(material.text(run.result)) is not None)
    )


def _between(changes: Iterable[Change], start: int, end: int) -> list[Change]:
    return [change for change in changes if start < change.position < end]


def _closed(
    material: Material, turns: Sequence[Turn], error: _Open, success: Run, changes: Sequence[Change]
) -> Iterator[Finding]:
    made = standing(material, _between(changes, error.last.position, success.position), changes)
    output = material.text(error.last.result)  # a note in a document helps only where that is what was checked
    made = [change for change in made if not change.name.endswith(".md") or change.name.rpartition("/")[2] in output]
    if made and not _leaves_out_tests(material, error, made):
        yield _fixed(material, turns, error, success, made)
        yield from _others_fixed(material, turns, error, success, made)
        yield _failed(material, error, None if success.has_failed else success)
    else:
        yield _failed(material, error, None)  # nobody knows what made it go


def _others_fixed(
    material: Material, turns: Sequence[Turn], error: _Open, success: Run, made: Sequence[Change]
) -> Iterator[Finding]:
    """Of a list of errors, those beside the headline whose own file was changed, each with the changes of that file."""
    listed_errors = placed_lines(material.text(error.last.result))
    if len(listed_errors) < _LEAST_LISTED:
        return
    left = (
        {fingerprint(line) for line, _ in placed_lines(material.text(success.result))} if success.has_failed else set()
    )
    seen = left | {error.first.signature, error.last.signature}
    for line, _ in listed_errors:
        signature = fingerprint(line)
        if signature in seen or len(seen) - len(left) > _MOST_LISTED:
            continue
        run = replace(error.last, headline=line, signature=signature)
        mentions = Mentions(line, material.text(run.result))
        own = [change for change in made if mentions.is_of_file(change)]
        if own and mentions.best(own) is not None:  # which of several changes it was for, only what it names tells
            seen.add(signature)
            yield _fixed(material, turns, _Open(run, run), success, own, is_listed=True)


def _fixed(
    material: Material,
    turns: Sequence[Turn],
    error: _Open,
    success: Run,
    made: Sequence[Change],
    *,
    is_listed: bool = False,
) -> Finding:
    """What was changed before the next run without the error, which passed, or failed for another reason."""
    headline, output = error.last.headline, material.text(error.last.result)
    mentions = Mentions(place_below(headline, output), output)
    steps = main_changes(made, mentions)
    blocks = [block for change in steps for block in change.blocks]
    wording = [change.name for change in steps] + [line for block in blocks for line in block.removed + block.added]
    why = explanation(material, error.last.position, success.position, headline, "\n".join(wording))
    chooser = _asked_between(material, turns, error.last.position, made[-1].position)
    quote = shortened(one_line(material.text(chooser)), 160) if chooser is not None else None
    confidence = _confidence(error, success, steps, made, mentions, has_why=why is not None)
    named = [change.sentence for change in steps[:3]]
    changed = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    text, receipt = f"`{shortened(headline, _HEADLINE_CHARS)}` was fixed by {changed}", f"{PASSED}{success.command}"
    if success.has_failed:
        text = f"`{shortened(headline, _HEADLINE_CHARS)}` was gone after {changed}; the next run failed otherwise"
        receipt = f"{GONE}: {success.headline}"
    evidence = [(error.first.result, error.first.headline), (success.result, receipt)]
    evidence[1:1] = [(change.step, change.sentence) for change in steps[:2]]
    evidence += [(why[0], why[1])] if why else []
    # It is also known by lines of its output that the run after the fix did not print.
    left = {error.first.signature, *(telling_lines(material.text(success.result)) if success.has_failed else ())}
    details = {
        "headline": shortened(headline, 300),
        "steps": [{"kind": change.kind, "name": change.name, "gist": change.gist} for change in steps],
        "step_count": len(steps),
        "why": why[1] if why else None,
        "chosen_by": "user" if quote else "agent",
        "quote": quote,
        "tried": [change.sentence for change in main_changes(error.tried, mentions)],
        "fixed_ms": success.result.ts_ms,
        "lines": [] if is_listed else [line for line in telling_lines(output) if line not in left],
        "command": shortened(one_line(error.first.command), 200),
        "passed": None if success.has_failed else shortened(one_line(success.command), 200),
    }
    first = steps[0]
    return Finding(
        RULE, FIXED_BY, ("error", error.first.signature), (first.kind, first.name), text, confidence, evidence, details
    )


def _leaves_out_tests(material: Material, error: _Open, made: Sequence[Change]) -> bool:
    """Whether a test that had failed, or its check, was deleted or skipped: it was not repaired."""
    output, blocks = material.text(error.last.result), [block for change in made for block in change.blocks]
    mentions = Mentions(place_below(error.last.headline, output), output)
    removed = [path for change in made if change.kind == "command" for path in shell.removed_files(change.name)]
    gone, come = (
        {match["name"] for side in sides for line in side if (match := _DEFINES_TEST.match(line))}
        for sides in ([block.removed for block in blocks], [block.added for block in blocks])
    )
    return (
        any(mentions.deletes_check(change, block) for change in made for block in change.blocks)
        or (error.last.is_test and any(path.rpartition("/")[2] in output for path in removed))
        or any(_SKIPS_TEST.search(line) for block in blocks for line in block.added if line not in block.removed)
        or not (gone - come).isdisjoint(match["name"] for match in _FAILED_TEST.finditer(output))
    )


def _confidence(
    error: _Open, success: Run, steps: Sequence[Change], made: Sequence[Change], mentions: Mentions, *, has_why: bool
) -> float:
    """How sure it is that these changes made the error go, and would again."""
    main = steps[0]
    is_same = success.command == error.last.command or (success.is_test and error.last.is_test)
    confidence = (
        0.55 + (0.15 if is_same else 0.05) + (0.1 if has_why else 0.0) + (0.1 if mentions.weight(main) else 0.0)
    )
    is_guess = (
        success.has_failed
        or all(change.kind == "command" and UNDOES.search(change.name) for change in made)
        or (len({change.name for change in made}) > 1 and not any(map(mentions.weight, made)))
        or (main.kind == "command" and _OF_ITS_TIME.search(main.name))
        # Nobody knows which of its changes it was, or what came instead.
        or (main.kind == "edit" and (not main.gist or main.gist.startswith("removed ")))
        # A checker that says what to do was only silenced.
        or (_ADVISES.search(error.last.headline) and SUPPRESSES.search(main.gist))
    )
    return min(confidence, GUESS if is_guess else 1.0) - (0.1 if success.position - error.last.position > _FAR else 0.0)


def _failed(material: Material, error: _Open, end: Run | None) -> Finding:
    """That a command failed with an error, and what it took until it did not any more: time, without long pauses."""
    family = shell.test_family(error.first.command) if error.first.is_test else shell.family(error.first.command)
    if len(error.first.failing) == 1 and not error.first.is_test:
        family = min(error.first.failing)
    began, ended = error.first.result.ts_ms, end.result.ts_ms if end is not None else None
    text = f"`{family}` failed with `{error.first.headline}`"
    said = telling_lines(material.text(error.first.result))
    details = {
        "headline": shortened(error.first.headline, 300),
        "command": shortened(one_line(error.first.command), 200),
        "failures": error.failures,
        "lines": [line for line in said if line != error.first.signature],
        "active_ms": None if end is None else material.active_ms(error.first.position, end.position),
        **material.spending.between(began, ended),
    }
    evidence = [(error.first.result, error.first.headline)]
    return Finding(
        RULE, FAILS_WITH, ("command", family), ("error", error.first.signature), text, 0.9, evidence, details
    )


def _asked_between(material: Material, turns: Sequence[Turn], start: int, end: int) -> Step | None:
    """The user's words after a failure and before the change that ended it, if they ask for a change."""
    asked = [turn.request for turn in turns if turn.request is not None and start < turn.start < end]
    said = material.text(asked[-1]).strip().lower() if asked else ""
    if not 0 < len(said) <= _ASKED_CHARS or said.startswith(("/", "<", "[")) or _GOES_ON.fullmatch(said):
        return None
    is_question = "?" in said and not ASKED_CHANGE.search(said)
    return None if is_question or "\n--- fail" in f"\n{said}" or error_in(said) else asked[-1]
