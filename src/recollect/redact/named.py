"""Secrets that are known by the name they are given."""

from recollect.redact.pieces import (
    ANY,
    ANY_KEYWORD,
    IN_ANY,
    KEYWORD,
    KEYWORDS,
    LINE,
    LINE_BYTES,
    LINE_END,
    LITERAL,
    PLAIN,
    QUOTE,
    QUOTE_OR_CODE,
    SOME_LITERAL,
    SOME_QUOTE,
    SOME_SPACE,
    SPACE,
    SPACE_OR_CODE,
    WIDE_SPACE,
    Rule,
)

_JSON_FIELD = r"\\*\"[ ]?:[ ]?\\*\""  # what begins after it is a value for sure
_TYPE = r"[ ]?:[ ]?[A-Za-z&\[\]|' ]{2,24}[ ]?="  # as in `password: str = "…"`
_BARE_SIGN = rf"(?:=>|:=|=|:|>|,{SPACE}(?:default[ ]?=)?|\({SPACE})"
_SIGN_OR_CODE = r"(?:=>|:=|=|:|>|%3[adAD]|\\+u003[adAD])"
_BEFORE_QUOTE = rf"(?:{_SIGN_OR_CODE}|{_TYPE}|\({SOME_SPACE})"
# A small letter after a keyword makes another word of it (`tokenizer`), but for the `s` of many.
_REST = r"(?-i:s?(?:[A-Z0-9_.-][A-Za-z0-9_.-]{0,31})?)"
_BARE = rf"{PLAIN}{{8}}"  # without quotes no shorter one is taken for a secret
_HTML_QUOTE = r"&(?:quot|#0?39|#x27);"  # a bare word too, so anything may follow

_ASSIGNMENT = Rule(
    "assignment",
    "Values given to names such as `password`, `passwd`, `pwd`, `pass`, `passphrase`, `secret`, `token`, `credential`, `api_key`, "
    "`access_key`, `auth_key`, `private_key`, `encryption_key`, `signing_key`, `master_key`: in code, JSON, YAML (also block scalars), XML, `.env` lines, "
    "connection strings, addresses, and in calls (`define('DB_PASSWORD', '…')`, a variable's default)",
    KEYWORD,
    tuple(KEYWORDS),
    rf"{_REST}(?:{QUOTE_OR_CODE}?\]?{SPACE_OR_CODE}"
    rf"(?:{_SIGN_OR_CODE}{SPACE_OR_CODE}{_BARE}"
    rf"|{_BEFORE_QUOTE}{SPACE_OR_CODE}(?:{SOME_LITERAL}{QUOTE_OR_CODE}{IN_ANY}|{_HTML_QUOTE}))"
    rf"|{SOME_QUOTE}{SOME_SPACE},{SOME_SPACE}(?:default[ ]?=[ ]?)?{SOME_LITERAL}{SOME_QUOTE}{IN_ANY}"
    rf"|{_JSON_FIELD}{ANY}{{5}}|{SOME_SPACE}:{SOME_SPACE}[|>][0-9+-]{{0,2}}[ \t\r\n\\])",
    rf"(?P<rest>[A-Za-z0-9_.-]{{0,32}})(?:{SPACE}:{SPACE}[|>][0-9+-]{{0,2}}{SPACE}{LINE}(?P<block>{PLAIN}{{6,512}})(?={LINE_END})"
    rf"|{QUOTE}?\]?{SPACE}(?P<sign>{_TYPE}(?={SPACE}{QUOTE})|{_BARE_SIGN}){SPACE}(?P<literal>{LITERAL}(?={QUOTE}))?(?P<quote>{QUOTE}?)"
    rf"(?P<s>(?:(?!&(?:[A-Za-z_][A-Za-z0-9_.-]*=|[a-z]{{2,4}};|#)){PLAIN}){{0,512}}))",
    150,
    test="assignment",
    is_caseless=True,
)  # fmt: skip
# In each branch by itself: behind all of them together Hyperscan 0.9.1 does not find `ENV PASSWORD …`.
_KEYWORD_END = rf"{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}[\"'`\\ \t\r\n,]"
_SOME_NAME = rf"[A-Za-z0-9_.-]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}"
_DECLARATION = Rule(
    "assignment",
    "Values of `#define DB_PASSWORD \"…\"`, of `ENV DB_PASSWORD …` in a Dockerfile, and of `name: DB_PASSWORD` followed by `value: …`, "
    "in JSON, YAML and code",
    KEYWORD,
    ("name", "define ", "env "),
    rf"(?:name[\"'`\\ ]{{0,40}}[:=][\"'`\\ ]{{0,40}}[A-Za-z0-9_.-]{{0,40}}{_KEYWORD_END}"
    rf"|define [ ]{{0,2}}[A-Za-z0-9_]{{0,40}}{_KEYWORD_END}|env [A-Za-z0-9_]{{0,40}}{_KEYWORD_END})",
    rf"(?:(?P<pair>(?<=name){QUOTE}?[ ]?[:=][ ]?{QUOTE}?)|(?<=define )[ ]{{0,2}}|(?<=env ))(?P<name>{_SOME_NAME})"
    rf"(?(pair){QUOTE}?{SPACE},?{SPACE}(?:{LINE})?{QUOTE}?val(?:ue)?{QUOTE}?{SPACE}[:=]{SPACE}|{WIDE_SPACE})"
    rf"(?P<literal>{LITERAL}(?={QUOTE}))?(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{0,512}})",
    150,
    test="declaration",
    is_caseless=True,
    is_whole=True,
)  # fmt: skip
_SQL = Rule(
    "sql-password",
    "Passwords in SQL: `PASSWORD '…'`, `IDENTIFIED BY '…'`",
    KEYWORD,
    ("password", "identified by"),
    rf"[ ]{{1,3}}{SOME_QUOTE}{ANY}{{6}}",
    rf"[ ]{{1,3}}(?P<quote>{QUOTE})(?P<s>{PLAIN}{{0,512}})",
    60,
    test="flag",
    is_caseless=True,
)
_NETRC = Rule(
    "netrc",
    "Passwords in `.netrc` files (`login … password …`)",
    KEYWORD,
    ("login",),
    rf"{LINE_BYTES}{{1,60}}[^\x00-\x20]{{1,80}}{LINE_BYTES}{{1,60}}password{LINE_BYTES}{{1,60}}{PLAIN}{{6}}",
    rf"(?:[ \t]{{1,8}}|{LINE})[^\x00-\x20\\]{{1,80}}(?:[ \t]{{1,8}}|{LINE})password(?:[ \t]{{1,8}}|{LINE})"
    rf"(?P<quote>)(?P<s>{PLAIN}{{6,512}})",
    250,
    test="flag",
)
_ENV_KEY = Rule(
    "environment-key",
    "Values of variables whose names end in `_KEY`",
    KEYWORD,
    ("_KEY",),
    rf"{SPACE_OR_CODE}(?:=|:|%3[adAD]){SPACE_OR_CODE}{QUOTE_OR_CODE}?[^\x00-\x20\"'`\\]{{16}}",
    rf"{SPACE}(?:=|:){SPACE}(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{16,512}})",
    80,
    test="environment-key",
)

NAMED_VALUES = (_ASSIGNMENT, _DECLARATION, _SQL, _NETRC, _ENV_KEY)
