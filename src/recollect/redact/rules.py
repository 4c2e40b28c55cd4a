"""The published list: what each secret looks like, and where a scan may begin to look for it.

A rule is matched in two steps. A scanner looks for one of its `openers` followed by `least`, over whole blocks; then
Python's `re` matches the opener and `rest` at that offset, and a check of the value decides. A distinctive opener needs
no word boundary before it: in logs that byte is often the `n` of an escaped newline or the `m` of a colour.

`least` uses only syntax that Hyperscan and `re` share, and matches wherever `rest` does, both in the text and in the
same text as a JSON string. So it names no byte that JSON escapes, except behind backslashes.
"""

from recollect.redact.commands import COMMANDS
from recollect.redact.formats import TOKENS
from recollect.redact.named import INNER_FIELDS, NAMED_VALUES
from recollect.redact.patterns import ANY_KEYWORD, HIDDEN, QUOTE, QUOTE_OR_CODE, SPACE, SPACE_OR_CODE, STRUCTURE, Rule

VERSION = 10  # of this list; a store records which one it was redacted with

_WORD = "[A-Za-z0-9_-]"
# The digits of a user id in base64 are easy to spot: each group of three has a narrow shape.
_DIGITS_IN_BASE64 = "[MNO][DTjz][AEIMQUYcgk][w-z0-5]"
# So does text: no byte of ASCII has its highest bit set, and few are control characters.
_TEXT_IN_BASE64 = "[CDI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"

_STRUCTURES = (
    Rule(
        "private-key",
        "Private keys: PEM (RSA, EC, DSA, OpenSSH, PKCS#8, encrypted or not) and PGP, also inside service-account JSON",
        STRUCTURE, ("-----BEGIN",),
        r"[ A-Z0-9+%]{0,40}PRIVATE(?:[ +]|%20)KEY",
        r"[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        80, check="private-key",
    ),
    Rule(
        "url-password",
        "Passwords and tokens in addresses, `scheme://user:password@host`: PostgreSQL, MySQL, MongoDB, Redis, AMQP, git remotes …",
        STRUCTURE, ("://", "%3a%2f%2f"),
        r"(?:[^\x00-\x20/@\"'<>\\`{}]{3,200}@|[^\x00-\x20/@\"'<>\\`{}]{3,200}%40)",
        r"(?:[^\x00-\x20:/@\"'<>\\`{}]{0,64}:(?P<s>[^\x00-\x20/@\"'<>\\`]{3,128})|(?P<user>[A-Za-z0-9_.~-]{16,128}))@",
        220, check="url", is_caseless=True,
    ),
    Rule(
        "auth-header",
        "`Authorization` headers, bearer tokens, and basic credentials",
        STRUCTURE, ("authorization", "bearer", "basic"),
        rf"(?:{QUOTE_OR_CODE}?{SPACE_OR_CODE}(?:[:=]|%3[adAD]){SPACE_OR_CODE}{QUOTE_OR_CODE}?"
        r"(?:(?:bearer|basic|token|apikey|key)(?:[ +]|%20){1,3})?|(?:[ +]|%20){1,3})[A-Za-z0-9._~+/%=-]{12}",
        rf"(?:(?<=[nr]){QUOTE}?{SPACE}[:=]{SPACE}{QUOTE}?(?:(?:bearer|basic|token|apikey|key)[ ]{{1,3}})?|[ ]{{1,3}})"
        r"(?P<s>[A-Za-z0-9._~+/=-]{12,4000})",
        320, check="header", is_caseless=True,
    ),
    Rule(
        "connection-key",
        "Keys in Azure connection strings (`AccountKey=`, `SharedAccessKey=`) and signatures of shared addresses (`sig=`)",
        STRUCTURE, ("accountkey", "sharedaccesskey", "sig"),
        r"(?:=|%3d)[A-Za-z0-9+/%]{40}",
        r"=(?P<s>[A-Za-z0-9+/%]{40,100}={0,2})",
        60, is_caseless=True,
    ),
    Rule(
        "discord-token",
        "Discord bot tokens",
        STRUCTURE, (),
        f"(?:{_DIGITS_IN_BASE64}){{5}}",
        rf"{_WORD}{{23,28}}\.{_WORD}{{6}}\.{_WORD}{{27,45}}",
        20,
    ),
)  # fmt: skip

_BASE64_TEXT = Rule(
    "base64",
    "Any of these inside base64 that decodes to text",
    HIDDEN, (),
    rf"(?:^|[^A-Za-z0-9+/_-]|\\[nrtbf])(?:{_TEXT_IN_BASE64}){{5}}",
    r"[A-Za-z0-9+/_-]{20,}={0,2}",
    20, check="base64",
)  # fmt: skip

RULES = (*TOKENS, *_STRUCTURES, *NAMED_VALUES, *COMMANDS, _BASE64_TEXT)

# Where percent signs may hide one of the above; the signs alone are everywhere.
PERCENT = (
    rf"{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}%(?:2[027c]|3[acde]|5d|0[9ad])"
    r"|key(?:%3[ad])|%3a%2f%2f|:%2f%2f|%40|%3aaa|q%7e|begin%20|(?:bearer|basic|authorization)(?:%20|%3a|%2[27])"
    r"|hooks\.slack\.com%2f|discord(?:app)?\.com%2fapi|(?:accountkey|sharedaccesskey|sig)%3d|1%2f%2f0|%2bac|%2bas"
    r"|(?:sshpass|login|mongo[a-z]{2,7}|twine|az|(?:redis|valkey)-cli|(?:mysql|mariadb|ldap)[a-z_-]{0,12}|setx?|curl|echo|printf)%2[027]"
    r"|identified%20by|masterauth%20|securestring%20|auth(?:ident)?%(?:2[02]|3[ad])|cookies?%(?:2[02]|3[ad])|%242[aby]%24|%24(?:argon2id?|6)%24"
    r"|%(?:5f|2[de]|7e)[a-z0-9]{6}"  # `_-.~` need no percent sign; some programs write them with one
)

# A pair {"name": "API_KEY", "value": "…"}, of which a scanner sees the first half.
NAME_FIELDS = ("name", "key", "variable", "env")
VALUE_FIELDS = (*INNER_FIELDS, "val", "default")
NAMED = rf"[ ]?:[ ]?\"[A-Za-z0-9_. -]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}\""
