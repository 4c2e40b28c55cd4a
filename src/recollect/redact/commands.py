"""Secrets that are known by the flag of a program that takes them, in a line or as items of a list of arguments."""

from recollect.redact.pieces import (
    ANY,
    ANY_KEYWORD,
    IN_QUOTES,
    KEYWORD,
    LINE,
    LINE_BYTES,
    PLAIN,
    QUOTE,
    QUOTE_OR_CODE,
    SOME_QUOTE,
    SOME_SPACE,
    SPACE,
    Rule,
)

FLAG_NAME = rf"(?:[A-Za-z][A-Za-z0-9_-]{{0,23}})?{ANY_KEYWORD}[A-Za-z0-9_-]{{0,16}}"
_NEXT_ITEM = rf"{QUOTE}{SPACE},{SPACE}(?:{LINE})?(?={QUOTE})"  # of a list of arguments
_SOME_NEXT_ITEM = rf"{SOME_QUOTE}{SOME_SPACE},{LINE_BYTES}{{0,60}}"
_FLAG = Rule(
    "command-line-flag",
    "Values of command-line flags such as `--password` and `--api-key`, also as items of a list of arguments",
    KEYWORD,
    ("--",),
    rf"{FLAG_NAME}(?:[ ]{{1,3}}{QUOTE_OR_CODE}?{IN_QUOTES}{{6}}|(?:[ ]{{1,3}}|{_SOME_NEXT_ITEM}){SOME_QUOTE}{ANY}{{6}})",
    rf"(?P<name>{FLAG_NAME})(?:[ ]{{1,3}}|{_NEXT_ITEM})(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{0,512}})",
    160,
    test="flag",
    is_caseless=True,
)
_SSHPASS = Rule(
    "command-line-flag",
    "The password of `sshpass -p`, in a line or in a list of arguments",
    KEYWORD,
    ("sshpass",),
    rf"(?:[ ]-p[ ]?{QUOTE_OR_CODE}?{IN_QUOTES}{{6}}|(?:[ ]-p[ ]?|{_SOME_NEXT_ITEM}{SOME_QUOTE}-p{_SOME_NEXT_ITEM}){SOME_QUOTE}{ANY}{{6}})",
    rf"(?:[ ]-p[ ]?|{_NEXT_ITEM}{QUOTE}-p{_NEXT_ITEM})(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{0,512}})",
    200,
    test="flag",
)
_CURL_USER = Rule(
    "command-line-flag",
    "The password of `curl -u user:…`",
    KEYWORD,
    ("-u", "--user"),
    rf"[ =]{{0,3}}{QUOTE_OR_CODE}?[^\x00-\x20\"'`\\:]{{1,60}}:{IN_QUOTES}{{6}}",
    rf"[ =]{{0,3}}(?P<quote>{QUOTE}?)[^\x00-\x20\"'`\\:]{{1,60}}:(?P<s>{PLAIN}{{0,512}})",
    160,
    test="curl-user",
)

COMMANDS = (_FLAG, _SSHPASS, _CURL_USER)
