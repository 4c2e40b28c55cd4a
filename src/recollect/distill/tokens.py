"""How many tokens a text is, without a model's own tokenizer.

Tokenizers cut English and code into pieces of about four characters. Scripts without spaces take nearly a token
a character, other alphabets about one for every two and a half. Within a quarter of the truth, which is
enough to size things by.
"""

import re

ASCII_CHARS = 4.0
WIDE_CHARS = 1.2  # Han, kana, Hangul
OTHER_CHARS = 2.5  # Cyrillic, Greek, Arabic, Devanagari, accented Latin, symbols

_WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_ASCII = re.compile("[\x00-\x7f]+")


def estimate_tokens(text: str) -> int:
    """Tokens of a text, rounded up: only an empty one has none."""
    if text.isascii():
        return -int(-len(text) // ASCII_CHARS)
    rest = _ASCII.sub("", text)
    wide = len(_WIDE.findall(rest))
    plain = (len(text) - len(rest)) / ASCII_CHARS
    return int(plain + wide / WIDE_CHARS + (len(rest) - wide) / OTHER_CHARS) + 1
