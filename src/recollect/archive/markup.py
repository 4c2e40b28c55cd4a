"""Text of a transcript as HTML that cannot act: no raw markup, no image, no script, no link but to the web."""

import re
from functools import lru_cache
from html import escape

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from recollect.text import TERMINAL_CONTROL

_HARMFUL = re.compile(rf"{TERMINAL_CONTROL}|[\u202a-\u202e\u2066-\u2069\ufeff]")
_PLAIN = re.compile(r"[\w ,.;:?!'()/-]*")  # nothing that Markdown gives a meaning in a line
_LISTED = re.compile(r"\s*(?:[-+]\s|\d+[.)]\s)")
_HIGHLIGHTED_CHARS = 20_000  # of one block: highlighting takes about a second for a megabyte
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre"),
    *("s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_FORMATTER = HtmlFormatter(nowrap=True)


def clean(text: str) -> str:
    """Text without terminal codes and characters that turn its direction."""
    return _HARMFUL.sub("", text)


@lru_cache(maxsize=2_000)
def markdown(text: str) -> Markup:
    """A message as its author meant it to look."""
    text = clean(text)
    if _PLAIN.fullmatch(text) and not _LISTED.match(text):
        return Markup(f"<p>{escape(text.strip())}</p>")
    safe = nh3.clean(
        _parser().render(text),
        tags=_TAGS,
        attributes={"a": {"href"}, "span": {"class"}, "ol": {"start"}},
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer",
    )
    return Markup(safe)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "highlight": _fenced}).enable(["table", "strikethrough"])
    return parser.disable("image")


def _fenced(text: str, language: str, _attributes: str) -> str:
    return str(_coloured(text, _lexer_named(language))) if language else escape(text)


@lru_cache(maxsize=200)
def _lexer_named(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None


@lru_cache(maxsize=200)
def _lexer_for(suffix: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(f"file.{suffix}")
    except ClassNotFound:
        return None


def code(text: str, path: str) -> Markup:
    """A piece of a file, highlighted by the file's name."""
    return _coloured(clean(text), _lexer_for(path.rpartition(".")[2].lower()))


def shell(command: str) -> Markup:
    return _coloured(clean(command), _lexer_named("bash"))


def json_text(text: str) -> Markup:
    return _coloured(clean(text), _lexer_named("json"))


def _coloured(text: str, lexer: Lexer | None) -> Markup:
    if lexer is None or len(text) > _HIGHLIGHTED_CHARS:
        return Markup(escape(text))
    return Markup(highlight(text, lexer, _FORMATTER).rstrip("\n"))
