"""Marks, documents, batches: what is replaced depends neither on the path nor on the engine."""

import json
import os
import random
import re
import sys
import time
import urllib.parse
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recollect.model.errors import BadConfig
from recollect.redact import AHO_CORASICK, HYPERSCAN, RULES, RedactionRules, Redactor, scanners
from recollect.redact.finder import expressions
from recollect.redact.marks import NEWER, OLDER, OTHER, SAME, UNSCANNABLE, compare_versions
from recollect.redact.redactor import BLOCK_BYTES
from recollect.redact.rules import required_literal
from recollect.redact.scanners import KEYWORDS
from tests.planted import DECOYS, KINDS, escaped, in_base64, in_colours, in_url, plant

KEY = bytes(range(32))
EXAMPLES, SHORTER = (100_000, 1) if os.environ.get("RECOLLECT_SOAK") else (2_000, 8)
MARK = re.compile(r"\[REDACTED:[a-z0-9-]+:[0-9a-f]{8}\]")

TOKEN = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL3oR6"
FAST = Redactor(RedactionRules(), KEY, HYPERSCAN)
PLAIN = Redactor(RedactionRules(), KEY, AHO_CORASICK)
BOTH = pytest.mark.parametrize("redactor", [FAST, PLAIN], ids=[HYPERSCAN, AHO_CORASICK])


def _planted(number: int) -> str:
    draw = random.Random(number)
    planted = plant(draw, draw.choice(list(KINDS)))
    form = draw.randrange(7)
    if form < 3:
        return escaped(planted.line, form)
    if form == 3:
        return in_colours(planted.line, planted.secret)
    if form == 4:
        return in_base64(planted.line)
    return in_url(planted.line) if form == 5 else planted.line


_QUOTES = ['"', "'", "`", '\\"', "\\" * 11 + '"', "&quot;", "&#39;", "%22", "", "", "\\u0022", "b'", 'rb"', '@"']
_ASSIGNS = [
    " = ",
    "=",
    ":",
    ": ",
    " := ",
    "=>",
    ">",
    "(",
    ", ",
    ", default=",
    ": str = ",
    "%3D",
    ": |\n  ",
    '"] = "',
    " ",
]
_RESTS = ["", "", "s", "_", "1", "izer", "_id", "sKey", ".x", "store", "_FILE", "_1234567890123456789012345678901"]
_ENDS = ["", "<", "(", ";", "\n", " ", "&x=1", "[", ".", ":", "]"]
_BEFORE = ["", "DB_", "my", "$", '"', "bypa", "define('", 'env("', "<", "['"]


def _assigned(number: int) -> str:
    """A name that may be a secret's, a sign and a value, each in one of the ways that people and programs write it."""
    draw = random.Random(number)
    keyword, quote = draw.choice(sorted(KEYWORDS)), draw.choice(_QUOTES)
    name = "".join(draw.choice((letter, letter.upper())) for letter in keyword) if draw.random() < 0.5 else keyword
    value = "".join(draw.choices("abcdefghXYZK0189_-.+/=~!#%@&; é密", k=draw.randrange(3, 16)))
    end = quote[-1:] if draw.random() < 0.9 else ""
    told = f"{draw.choice(_BEFORE)}{name}{draw.choice(_RESTS)}{draw.choice(_ASSIGNS)}{quote}{value}{end}"
    return escaped(told + draw.choice(_ENDS), draw.choice((0, 0, 0, 1, 2)))


_SIGNS = [*"=:\"'\\\n\t&@><(", "\\n", '\\\\"', ": ", "://", "%3D", "%22", "\x1b[31m", "\\u003d"]
_PIECES = st.one_of(
    st.integers(0, 2**32).map(_planted),
    st.integers(0, 2**32).map(_assigned),
    st.integers(0, 2**32).map(lambda number: random.Random(number).choice(DECOYS)(random.Random(number))[:400]),
    st.sampled_from([opener for rule in RULES for opener in rule.openers]),
    st.sampled_from(sorted(KEYWORDS)),
    st.sampled_from(_SIGNS),
    st.text(alphabet="abcdefXYZ0189_-.+/=~!#%", min_size=1, max_size=48),
    st.text(max_size=12),
)  # fmt: skip
TEXTS = st.lists(_PIECES, max_size=6).map("".join)


@settings(max_examples=EXAMPLES, deadline=None)
@given(TEXTS)
def test_both_engines_reach_the_same_verdict(text: str) -> None:
    assert FAST.text(text) == PLAIN.text(text)
    assert FAST.functional(text) == PLAIN.functional(text)


_EXPRESSIONS = expressions([])
_SCANNER = scanners.HyperscanScanner(_EXPRESSIONS, None, KEY)


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(st.data())
def test_hyperscan_finds_whatever_an_expression_matches(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from([n for n, expression in enumerate(_EXPRESSIONS) if not expression.is_once]))
    expression = _EXPRESSIONS[number]
    matched = data.draw(st.from_regex(re.compile(expression.whole), fullmatch=True))
    assume(expression.fixed is not None or len(matched) <= expression.reach)
    before = data.draw(st.sampled_from([b"", b" - ", b"FROM node:20\n", b'{"a":"', b"x" * 40 + b"\n"]))

    hits = _SCANNER.hits(before + matched + b" x", scanners.Clock(0), is_exact=False)

    assert number in {hit for hit, _ in hits}


@BOTH
@pytest.mark.parametrize("name", ["PASSWORD", "TOKEN", "API_TOKEN", "DB_PASSWORD", "pwd"])
def test_a_variable_of_a_container_is_found_behind_other_lines(redactor: Redactor, name: str) -> None:
    text = f"FROM node:20\nWORKDIR /app\nENV {name} Tr7kQ9mZx2Lw8sd\nRUN x"

    assert "Tr7k" not in redactor.text(text)
    assert redactor.payloads([orjson.dumps({"text": text})])


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(TEXTS)
def test_a_second_pass_changes_nothing(text: str) -> None:
    once = FAST.text(text)

    assert FAST.text(once) == once


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_batch_of_documents_is_redacted_as_each_leaf_would_be(texts: list[str]) -> None:
    leaves = [text.encode("utf-8", "replace").decode() for text in texts]
    documents = {n: orjson.dumps({"text": leaf}) for n, leaf in enumerate(leaves)}

    changed = FAST.changes(list(documents.values()))

    assert changed == PLAIN.changes(list(documents.values()))
    alone = [orjson.dumps({"text": FAST.text(leaf)}) for leaf in leaves]
    stored = documents | {one.number: one.document for one in changed}
    learned = {one.number for one in changed if one.is_learned}
    assert [n for n in range(len(leaves)) if stored[n] != alone[n] and n not in learned] == []
    assert all(len(MARK.findall(stored[n].decode())) > len(MARK.findall(alone[n].decode())) for n in learned)
    assert {n: leaf for n, leaf in enumerate(map(FAST.text, leaves)) if leaf != leaves[n]} == FAST.texts(leaves)


_ODD = [
    pytest.param("password = " + "\\" * 11 + '"g%X9-fY0c~Q"', id="quotes escaped over and over"),
    pytest.param('master_key"] = "%22-e%+Zé8g=X-2my', id="a code for a quote between quotes"),
    pytest.param('signing-key1"] = "g%/Z0~X#.0 ', id="a per cent sign and no end"),
    pytest.param("'PassWord':\"d_.c~f ", id="cut off within quotes"),
]


@BOTH
@pytest.mark.parametrize("text", _ODD)
def test_what_a_leaf_hides_the_look_over_its_document_does_not_miss(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) != text

    document = orjson.dumps({"a": [text, "Ye", text]})

    assert redactor.payloads([document]) == {0: orjson.dumps(redactor.value(orjson.loads(document)))}


@BOTH
@pytest.mark.parametrize("before", [chr(code) for code in (*range(32), 127)], ids=ascii)
def test_a_control_character_before_hides_nothing_from_a_batch(redactor: Redactor, before: str) -> None:
    hidden = [before + in_base64(f"password = '{TOKEN}'"), before + TOKEN]

    changed = redactor.payloads([orjson.dumps({"text": text}) for text in hidden])

    assert sorted(changed) == [0, 1]


@BOTH
def test_the_same_secret_has_the_same_mark_in_every_form(redactor: Redactor) -> None:
    planted = plant(random.Random(11), "anthropic")
    forms = [planted.line, escaped(planted.line, 2), in_base64(planted.line), in_colours(planted.line, planted.secret)]

    marks = {MARK.findall(redactor.text(form))[0] for form in forms}

    assert len(marks) == 1


@BOTH
def test_a_private_key_has_one_mark_however_its_lines_end(redactor: Redactor) -> None:
    key = plant(random.Random(5), "private-key").secret

    assert MARK.findall(redactor.text(key)) == MARK.findall(redactor.text(escaped(key, 2)))


def test_another_key_gives_other_marks() -> None:
    other = Redactor(RedactionRules(), bytes(32), AHO_CORASICK)
    text = plant(random.Random(1), "github").secret

    assert other.text(text) != PLAIN.text(text)
    assert other.version != PLAIN.version


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        {"password": "gX8#kk2!"},
        {"env": [{"name": "API_KEY", "value": "f3Kd93kfQ02kd93kD"}]},
        {"value": "f3Kd93kfQ02kd93kD", "name": "SHOP_API_KEY"},
        {"a": {"b": [{"dbPassword": "gX8#kk2!"}]}},
        {"headers": {"X-Api-Key": "f3Kd93kfQ02kd93kD"}},
        {"passwords": ["f3Kd93kfQ02kd93kD", "gX8#kk2!"]},
        {"command": ["mysql", "--password", "gX8#kk2!", "shop"]},
        {"command": ["/usr/bin/sshpass", "-p", "gX8#kk2!", "ssh", "h"]},
        {"command": ["/usr/bin/mysql", "-u", "root", "-pgX8#kk2!", "shop"]},
        {"command": ["docker", "login", "-u", "ci", "-p", "gX8#kk2!"]},
        {"command": ["redis-cli", "-a", "gX8#kk2!"]},
        {"command": ["curl", "-s", "-u", "deploy:gX8#kk2!", "https://ci.test"]},
        {"command": ["keytool", "-storepass", "gX8#kk2!"]},
        {"command": ["openssl", "rsa", "-passin", "pass:gX8#kk2!"]},
        {"command": ["gh", "secret", "set", "DEPLOY", "--body", "gX8#kk2!"]},
        {"headers": {"Cookie": "lang=en; sessionid=f3Kd93kfQ02kd93kD"}},
        {"auths": {"registry.test": {"auth": "ZGVwbG95OmYzS2Q5M2tmUTAya2Q5M2tE"}}},
        {"arguments": ["tool", "--api-key", "f3Kd93kfQ02kd93kD"]},
        {"arguments": '{"command":["mysql","--password","gX8#kk2!"]}'},
        {"arguments": '{"command": ["sshpass", "-p", "gX8#kk2!", "ssh", "h"]}'},
    ],
)
def test_the_name_of_a_field_tells_of_what_it_holds(redactor: Redactor, value: Any) -> None:
    found = json.dumps(redactor.value(value))

    assert MARK.search(found)
    assert "gX8#kk2!" not in found
    assert "f3Kd93kfQ02kd93kD" not in found
    assert "ZGVwbG95OmYzS2Q5M2tmUTAya2Q5M2tE" not in found
    assert redactor.payloads([orjson.dumps(value)]) == {0: orjson.dumps(redactor.value(value))}


@BOTH
@pytest.mark.parametrize(
    "secret",
    [
        'a"Kq8vZx2LmT4w',
        "it'sKq8vZx2LmT4w",
        "`Kq8vZx2LmT4w",
        "\\Kq8vZx2LmT4w",
        'Kq8vZx"2LmT4w',
        '"Kq8vZx2LmT4w"',
        "Zq3vKp9Lm2 Wx8ttY",
        " Zq3 vKp9Lm2Wx8ttY",
        "Kq8vZx2LmT4w\\",
    ],
)
@pytest.mark.parametrize("name", ["password", "CLIENT_SECRET"])
def test_a_secret_field_is_taken_whole_whatever_characters_are_in_it(
    redactor: Redactor, name: str, secret: str
) -> None:
    forms = [
        {name: secret},
        {"name": name, "value": secret},
        ["run", f"--{name.lower()}", secret],
        {"arguments": json.dumps({"user": "x", name: secret, "n": 1})},
        {"arguments": json.dumps({"arguments": json.dumps({name: secret})}, indent=2)},
    ]

    for form in forms:
        found = json.dumps(redactor.value(form))

        assert MARK.search(found), form
        assert "2LmT4w" not in found and "8ttY" not in found
        assert redactor.payloads([orjson.dumps(form)]) == {0: orjson.dumps(redactor.value(form))}


@BOTH
@pytest.mark.parametrize("character", ["%5F", "%5f"])
def test_characters_that_need_no_percent_sign_hide_nothing(redactor: Redactor, character: str) -> None:
    text = TOKEN.replace(urllib.parse.unquote(character), character, 1)

    assert MARK.search(redactor.text(f"GET /x?k={text}&page=2"))
    assert redactor.payloads([orjson.dumps({"text": text})])


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        {"password": "password"},
        {"password": "please enter your password"},
        {"secret": "Must have 8 characters, 1 digit!"},
        {"password": "'$DB_PASSWORD'"},
        ["password", "f3Kd93kfQ02kd93kD"],
        ["mysql", "--password", "--host", "--passwords-file", "gX8#kk2!"],
        {"token_count": "f3Kd93kfQ02kd93kD"},
        {
            "nextPageToken": "f3Kd93kfQ02kd93kD",
            "page_token": "f3Kd93kfQ02kd93kD",
            "CONTINUATION-TOKEN": "f3Kd93kfQ02kd93kD",
        },
        {"session_key": "agent:main:telegram:dm:12345678"},
        ["docker", "run", "-p", "127.0.0.1:8080:80", "-a", "gX8#kk2!", "-w", "gX8#kk2!"],
        ["mysql", "-p", "gX8#kk2!"],
        {"auth": "dXNlcjpwYXNzd29yZA==", "cookie": "theme=f3Kd93kfQ02kd93kD"},
        {"name": "colour", "value": "f3Kd93kfQ02kd93kD"},
        {"input_tokens": 5, "token": None, "secret": ["a", 1.5, True]},
    ],
)
def test_other_fields_stay(redactor: Redactor, value: Any) -> None:
    assert redactor.value(value) == value
    assert redactor.payloads([orjson.dumps(value)]) == {}


@BOTH
def test_a_secret_in_a_key_is_replaced(redactor: Redactor) -> None:
    token = plant(random.Random(2), "github").secret

    assert token not in json.dumps(redactor.value({token: 1}))
    assert token.encode() not in redactor.payloads([orjson.dumps({token: 1})])[0]


NAMED = "Zq3vKp9Lm2Wx8"


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        f"then I typed {NAMED}, and it worked",
        f"{NAMED}",
        f"one\n{NAMED}\ttwo",
        f"user:{NAMED}@host",
        f'{{"stdout": "{NAMED}\\n"}}',
        f"k%3D{NAMED}&x=1",
    ],
)
def test_a_value_that_one_document_names_is_hidden_in_the_whole_batch(redactor: Redactor, text: str) -> None:
    documents = [orjson.dumps({"text": value}) for value in (text, "nothing", f"DB_PASSWORD={NAMED}", text)]

    changes = redactor.changes(documents)

    assert [(changed.number, changed.is_learned) for changed in changes] == [(0, True), (2, False), (3, True)]
    assert all(NAMED in changed.secrets for changed in changes)
    stored = b"".join(changed.document for changed in changes)
    assert NAMED.encode() not in stored
    assert len(set(MARK.findall(stored.decode()))) == 1
    assert [orjson.loads(changed.document)["text"] for changed in changes if changed.number != 2] == [
        text.replace(NAMED, MARK.findall(stored.decode())[0])
    ] * 2


@BOTH
def test_a_text_that_names_a_value_has_it_nowhere(redactor: Redactor) -> None:
    assert NAMED not in redactor.text(f"it is {NAMED}\npassword: '{NAMED}'\n{NAMED}")


@BOTH
@pytest.mark.parametrize("value", ['Kq8"vZx2LmT4w', "Kq8\\vZx2LmT4w", "nKq8vZx2LmT4w", "Kq8é密vZx2LmT4w"])
def test_a_document_stays_one_whatever_characters_a_learned_value_has(redactor: Redactor, value: str) -> None:
    texts = [value, f"\n{value}", f"\\{value}", value[1:], f"\n{value[1:]} \x01{value}"]
    documents = [orjson.dumps({"password": value}), *(orjson.dumps({"text": text}) for text in texts)]

    changes = redactor.changes(documents)

    assert {changed.number for changed in changes} == {0, 1, 2, 3, 5}
    assert not any(value in orjson.loads(changed.document).get("text", "") for changed in changes)


@BOTH
@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("DB_PASSWORD=changeme1", "changeme1"),
        ("password = 'hunter2'", "hunter2"),
        ("password = 'shop-db-2024'", "shop-db-2024"),
        (f"DB_PASSWORD={NAMED}", f"x{NAMED}"),
        (f"DB_PASSWORD={NAMED}", f"{NAMED}7"),
    ],
)
def test_words_and_parts_of_words_stay_whatever_is_named(redactor: Redactor, named: str, text: str) -> None:
    documents = [orjson.dumps({"text": value}) for value in (named, text)]

    assert 1 not in redactor.payloads(documents)


@BOTH
def test_nothing_is_learned_from_one_batch_for_the_next(redactor: Redactor) -> None:
    redactor.payloads([orjson.dumps({"password": NAMED})])

    assert redactor.payloads([orjson.dumps({"text": NAMED})]) == {}


@BOTH
def test_only_documents_that_change_come_back(redactor: Redactor) -> None:
    token = plant(random.Random(2), "github").secret
    documents = [orjson.dumps({"text": f"number {n}" + (token if n % 7 == 3 else "")}) for n in range(100)]

    assert set(redactor.payloads(documents)) == {n for n in range(100) if n % 7 == 3}


@BOTH
def test_of_many_documents_each_that_hides_its_secret_in_escapes_is_found(redactor: Redactor) -> None:
    token = plant(random.Random(2), "github").secret
    hidden = token[:9] + f"\\u{ord(token[9]):04x}" + token[10:]
    documents = [orjson.dumps({"text": f"number {n} " + (hidden if n % 7 == 3 else "")}) for n in range(100)]

    assert set(redactor.payloads(documents)) == {n for n in range(100) if n % 7 == 3}


@BOTH
def test_a_document_larger_than_a_block_is_looked_through(redactor: Redactor) -> None:
    token = plant(random.Random(2), "github").secret
    large = "lorem ipsum dolor " * (BLOCK_BYTES // 16)
    documents = [orjson.dumps({"text": text}) for text in ("small", large + token, token, large)]

    changed = redactor.payloads(documents)

    assert set(changed) == {1, 2}
    assert token.encode() not in b"".join(changed.values())


def test_long_numbers_keep_their_digits() -> None:
    token = plant(random.Random(2), "github").secret
    document = b'{"n":123456789012345678901234567890,"text":"' + token.encode() + b'"}'

    assert b"123456789012345678901234567890" in FAST.payloads([document])[0]


@BOTH
def test_what_cannot_be_parsed_is_not_let_through(redactor: Redactor) -> None:
    token = plant(random.Random(2), "github").secret
    before = redactor.unscannable

    changed = redactor.payloads([b'{"text": "' + token.encode() + b'", broken', b"[" * 5000 + token.encode()])

    assert {orjson.loads(document)["text"] for document in changed.values()} == {UNSCANNABLE}
    assert redactor.unscannable == before + 2


def test_a_document_of_great_depth_is_redacted_or_left_out() -> None:
    token = plant(random.Random(2), "github").secret
    deep = b'{"a":' * 900 + b'"' + token.encode() + b'"' + b"}" * 900

    assert token.encode() not in FAST.payloads([deep])[0]


def test_a_document_that_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanners, "SECONDS", 0.0)
    monkeypatch.setattr(scanners, "SECONDS_PER_MB", 0.0)
    token = plant(random.Random(2), "github").secret
    before = FAST.unscannable

    assert FAST.payloads([orjson.dumps({"text": token})]) == {0: orjson.dumps({"text": UNSCANNABLE})}
    assert FAST.text(token) == UNSCANNABLE
    assert FAST.unscannable == before + 2


HOSTILE = {
    "marks and tokens": f"[REDACTED:jwt:01234567] {TOKEN} " * (25_000 // SHORTER),
    "blanks": ("password" + " " * 60) * (20_000 // SHORTER),
    "blanks around signs": ("token" + " " * 30 + "=" + " " * 30) * (20_000 // SHORTER),
    "comparisons": 'password == "' * (80_000 // SHORTER),
    "triple quotes": 'password = """' * (80_000 // SHORTER),
    "one letter": "a" * (2_000_000 // SHORTER),
    "assignments": "password=abcdefg1 " * (100_000 // SHORTER),
    "openings": "eyJhbGciOi.eyJ" * (100_000 // SHORTER),
    "begin": "-----BEGIN RSA PRIVATE KEY-----\n" * (50_000 // SHORTER),
    "quotes": 'password = "' * (100_000 // SHORTER),
    "backslashes after a sign": "password=" + "\\" * (1_000_000 // SHORTER),
    "backslashes on the next line": "password=\n" + "\\" * (1_000_000 // SHORTER),
    "escaped tabs": "password" + "\\t" * (300_000 // SHORTER) + "=",
    "encoded blanks": "token" + "%20" * (300_000 // SHORTER) + "=",
    "backslashes": "password" + "\\" * (1_000_000 // SHORTER) + '"=1',
    "addresses": "://a:b" * (200_000 // SHORTER),
    "percent": "%70" * (500_000 // SHORTER),
    "colours": "\x1b[31m" * (200_000 // SHORTER),
    "base64": in_base64("password: " * (100_000 // SHORTER)),
    "dashes": "--" * (500_000 // SHORTER) + "password ",
    "at signs": "://" + "a:" * (500_000 // SHORTER) + "@",
    "words": "pass" * (300_000 // SHORTER),
    "programs": "mysql -p" * (150_000 // SHORTER),
    "programs with arguments": "mysql login -x\\" * (80_000 // SHORTER) + "-pTr7kQ9mZx2",
    "cookies": "Cookie: sid=a; " * (80_000 // SHORTER),
    "variables": 'variable "password" { ' * (60_000 // SHORTER),
    "tags": 'password a="' * (100_000 // SHORTER),
    "columns": "password" + ",a" * (200_000 // SHORTER) + "$",
    "headings": "password," * (100_000 // SHORTER),
    "cells": "password" + " | a" * (100_000 // SHORTER) + " $",
    "pipes": "echo aaaaaaaa | " * (80_000 // SHORTER) + "sudo -S",
}


@BOTH
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_no_longer_than_it_may(redactor: Redactor, name: str) -> None:
    document = orjson.dumps({"text": HOSTILE[name]})
    may_take = scanners.SECONDS + len(document) * scanners.SECONDS_PER_MB / 1e6
    begun = time.thread_time()

    redactor.payloads([document])

    assert time.thread_time() - begun < 4 * may_take  # once in the block, once by itself, and no single step is long


def _steps(redactor: Redactor, text: str) -> int:
    """How many lines of Python run while a text is redacted."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return note

    sys.settrace(note)
    try:
        redactor.text(text)
    finally:
        sys.settrace(None)
    return count


@BOTH
@pytest.mark.parametrize(
    "unit",
    [
        f"[REDACTED:jwt:01234567] {TOKEN} ",
        "password=Zq3vKp9Lm2Wx8 Zq3vKp9Lm2Wx8 ",
        f"{TOKEN} ",
        "[REDACTED:jwt:01234567] password = 'Zq3vKp9Lm2Wx8' ",
    ],
)
def test_twice_the_text_takes_twice_the_work(redactor: Redactor, unit: str) -> None:
    redactor.text(unit * 10)  # whatever is compiled at first use

    assert _steps(redactor, unit * 800) < 2.2 * _steps(redactor, unit * 400)


def test_a_leaf_of_50_megabytes_is_redacted() -> None:
    token = plant(random.Random(2), "github").secret
    text = "the quick brown fox " * 2_500_000 + token + " end"

    changed = FAST.payloads([orjson.dumps({"text": text})])

    assert token.encode() not in changed[0]
    assert changed[0].endswith(b' end"}')


def test_rules_of_the_user_are_applied_and_counted() -> None:
    rules = RedactionRules({"badge": r"badge-(\d{6})", "any-order": r"[xyz]{9}"})
    redactor = Redactor(rules, KEY, AHO_CORASICK)

    found = redactor.value({"text": 'my badge-123456 "ünd" zyxzyxzyx'})["text"]

    assert re.fullmatch(r'my badge-\[REDACTED:badge:\w{8}\] "ünd" \[REDACTED:any-order:\w{8}\]', found)
    assert redactor.replaced == {"badge": 1, "any-order": 1}


def test_rules_of_the_user_find_in_batches_what_they_find_in_texts() -> None:
    text = 'x badge-123456 BADGE-654321 "y"'
    for rules in ({"badge": r"badge-(\d{6})"}, {"badge": r"(?i)badge-(\d{6})"}, {"badge": r'"y"'}):
        for engine in (HYPERSCAN, AHO_CORASICK):
            redactor = Redactor(RedactionRules(rules), KEY, engine)

            changed = redactor.payloads([orjson.dumps({"text": text})])

            assert orjson.loads(changed[0])["text"] == redactor.text(text) != text


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (r"acme_[0-9a-f]{32}", "acme_"),
        (r"(?i)ACME-(?P<secret>\w+)-END", "acme-"),
        (r"a|bcdef", None),
        (r"(?:abcd)+x", "abcd"),
        (r"(?:abcd)*xy", None),
        (r'say "hello"', "hello"),
    ],
)
def test_a_word_that_every_match_has_is_found_in_an_expression(pattern: str, literal: str | None) -> None:
    assert required_literal(pattern) == literal


@pytest.mark.parametrize("rules", [{"Bad Name": "x"}, {"open": "("}, {"nothing": "x*"}])
def test_rules_that_cannot_work_are_refused(rules: dict[str, str]) -> None:
    with pytest.raises(BadConfig):
        Redactor(RedactionRules(rules), KEY, AHO_CORASICK)


def test_what_the_user_allows_stays() -> None:
    draw = random.Random(4)
    one, two, three = (plant(draw, "github").secret for _ in range(3))
    redactor = Redactor(RedactionRules(allow=(one, f"/{two[:10]}.*/")), KEY, AHO_CORASICK)

    found = redactor.text(f"{one} {two} {three} password='{one}'")

    assert one in found and two in found and three not in found
    assert redactor.value({"password": one}) == {"password": one}


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("1.aaaaaaaa.k", "1.aaaaaaaa.k", SAME),
        ("1.aaaaaaaa.k", "2.bbbbbbbb.k", OLDER),
        ("10.aaaaaaaa.k", "9.aaaaaaaa.k", NEWER),
        ("1.aaaaaaaa.k", "1.bbbbbbbb.k", OTHER),
        ("1.aaaaaaaa.k", "1.aaaaaaaa.j", OTHER),
        ("nonsense", "1.aaaaaaaa.k", OTHER),
    ],
)
def test_versions_are_told_apart(one: str, other: str, verdict: str) -> None:
    assert compare_versions(one, other) == verdict


def test_the_version_changes_with_the_rules_of_the_user(tmp_path: Path) -> None:
    changed = Redactor(RedactionRules({"badge": r"badge-\d{6}"}), KEY, AHO_CORASICK)

    assert compare_versions(changed.version, PLAIN.version) == OTHER
