"""Secrets known by the flag of a program that takes them, in a command line or in a list of arguments."""

from recollect.redact.named import COOKIES, SOME_COOKIES
from recollect.redact.patterns import (
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
    KEYWORD, ("--",),
    rf"{FLAG_NAME}(?:[ ]{{1,3}}{QUOTE_OR_CODE}?{IN_QUOTES}{{6}}|(?:[ ]{{1,3}}|{_SOME_NEXT_ITEM}){SOME_QUOTE}{ANY}{{6}})",
    rf"(?P<name>{FLAG_NAME})(?:[ ]{{1,3}}|{_NEXT_ITEM})(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{0,512}})",
    360, check="flag", is_caseless=True,
)  # fmt: skip
# A command runs to the end of its line, across lines that end in a backslash, and across the lines of a list; never past
# `;`, `|` or `&`. After one, two or four backslashes `n` ends a line; after three or six the line continues.
_ARGUMENTS = (
    r"(?:[^\x00-\x08\x0a-\x1f;|&\\]|\\{1,16}(?![nr\\])|(?:\\{3})+(?:r\\{1,16})?n"
    r"|(?<=,)(?:\r?\n|(?:\\{1,16}r)?\\{1,16}n)|(?<=\\)\r?\n){0,400}?"
)
_SOME_ARGUMENTS = r"[^\x00]{0,400}[ \t\n\"'`;nt]"
_BEFORE_FLAG = rf"(?:[ \t]|{QUOTE}|\\{{1,16}}[nt]|(?<=\n))"
_SOME_VALUE = rf"(?:{QUOTE_OR_CODE}?{IN_QUOTES}{{6}}|{SOME_QUOTE}{ANY}{{6}})"
_VALUE = rf"(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{0,512}})"
_APART = (rf"(?:[ ]{{1,3}}|=|{_NEXT_ITEM})", rf"(?:[ =]{{1,3}}|{_SOME_NEXT_ITEM})")
_EITHER = (rf"(?:{_NEXT_ITEM}|[ =]{{0,3}})", rf"(?:[ =]{{0,3}}|{_SOME_NEXT_ITEM})")


_MYSQL = ("mysql", "mariadb")
_REDIS = ("redis-cli", "valkey-cli")
_OTHERS = "sshpass mongo mongosh mongodump mongorestore mongoexport mongoimport login useradd usermod".split()  # noqa: SIM905
_OF_TWO_WORDS = ("twine upload", "az sql", "az mysql", "az postgres", "az webapp", "cqlsh", "sqlcmd")


def _behind(words: tuple[str, ...]) -> str:
    return "(?:" + "|".join(f"(?<={word})" for word in words) + ")"


# One rule for all of them: each one more would cost the scanner an automaton.
_PROGRAM = Rule(
    "command-line-flag",
    "Passwords that programs take with their own flags: `mysql -p…` (also `mysqldump`, `mariadb`), `docker login -p` and any other `login`, "
    "`sshpass -p`, `mongo -p`, `mongosh -p`, `cqlsh -p`, `sqlcmd -P`, `twine upload -p`, `az sql … -p`, `useradd -p`, `7z -p…`, `zip -P`, `redis-cli -a`, `ldapsearch -w`, "
    "`gh secret set --body`, `aws ssm put-parameter --value`",
    KEYWORD, (*_MYSQL, "7z", *_REDIS, *_OTHERS, *_OF_TWO_WORDS, "ldap", "zip", "secret", "put-parameter"),
    rf"{_SOME_ARGUMENTS}(?:-p|-P|-a|-w|-b|--body|--value){_EITHER[1]}{_SOME_VALUE}",
    rf"(?:(?P<mysql>{_behind((*_MYSQL, '7z'))}[a-z_-]{{0,12}})|(?P<zip>(?<=zip)|(?<=sqlcmd))|(?P<redis>{_behind(_REDIS)})|(?P<ldap>(?<=ldap)[a-z]{{3,8}})"
    rf"|(?P<vault>(?<=put-parameter)|(?<=secret)(?:[ ]|{_NEXT_ITEM}{QUOTE})set)|(?!(?<=ldap)|(?<=secret)))(?={QUOTE}|[ \t\\])"
    rf"{_ARGUMENTS}{_BEFORE_FLAG}(?P<flag>(?(redis)-a|(?(ldap)-w|(?(vault)(?:--body|--value|-b)|(?(zip)-P|-p)))))(?(mysql)|{_EITHER[0]})"
    rf"{_VALUE}",
    720, check="program", is_guarded=True,
)  # fmt: skip
_CURL_COOKIE = Rule(
    "session-cookie",
    "Session cookies after `curl -b`",
    KEYWORD, ("curl",),
    rf"{_SOME_ARGUMENTS}-b{_EITHER[1]}{SOME_COOKIES}",
    rf"(?={QUOTE}|[ ]){_ARGUMENTS}{_BEFORE_FLAG}(?P<flag>-b){_EITHER[0]}{COOKIES}",
    740, check="cookie", is_guarded=True,
)  # fmt: skip
_OPTIONS = "pass passwd password storepass keypass srcstorepass deststorepass srckeypass destkeypass pw token secret apikey api-key".split()  # noqa: SIM905
_OPTION = Rule(
    "command-line-flag",
    "Values of flags with one dash: `keytool -storepass`, `-keypass`, `plink -pw`, `-Password`, `-token` …",
    KEYWORD, tuple(f"-{name}" for name in _OPTIONS),
    rf"{_APART[1]}{_SOME_VALUE}",
    rf"{_APART[0]}{_VALUE}",
    300, check="option", is_caseless=True, is_guarded=True,
)  # fmt: skip
_OPENSSL = Rule(
    "command-line-flag",
    "The password of `openssl … -passin pass:…`, `-passout`, `-pass`",
    KEYWORD, ("-passin", "-passout", "-pass"),
    rf"{_APART[1]}{QUOTE_OR_CODE}?pass(?::|%3[aA]){IN_QUOTES}{{6}}",
    rf"{_APART[0]}(?P<quote>{QUOTE}?)pass:(?P<s>{PLAIN}{{0,512}})",
    300, check="program",
)  # fmt: skip
_DIRECTIVE = Rule(
    "command-line-flag",
    "Passwords after `requirepass` and `masterauth` of Redis, `bindpw` of LDAP, and after `ConvertTo-SecureString`",
    KEYWORD, ("requirepass", "masterauth", "bindpw", "ConvertTo-SecureString"),
    rf"[ ]{{1,3}}(?:-String[ ]{{1,3}})?{_SOME_VALUE}",
    rf"[ ]{{1,3}}(?:-String[ ]{{1,3}})?{_VALUE}",
    60, check="program", is_caseless=True,
)  # fmt: skip
_PIPED = Rule(
    "command-line-flag",
    "What `echo` and `printf` pass to a program that reads a secret: `echo … | docker login --password-stdin`, `| sudo -S`, "
    "`| gcloud secrets create`, `| vercel env add`, `| chpasswd`",
    KEYWORD, ("echo", "printf"),
    rf"[ ](?:-[neE]{{1,3}}[ ])?(?:{SOME_QUOTE}%s(?:\\+n)?{SOME_QUOTE}[ ])?{_SOME_VALUE}[^\x00\r\n]{{0,240}}"
    r"(?:password-stdin|with-token|sudo -S|secrets? (?:set|put|create|versions)|env add|pass-stdin|passwd)",
    rf"[ ](?:-[neE]{{1,3}}[ ])?(?:{QUOTE}%s(?:\\{{1,16}}n)?{QUOTE}[ ])?(?P<quote>{QUOTE}?)(?:[A-Za-z0-9_.-]{{1,32}}:(?=[^\x00-\x1f|]{{1,200}}\|[ ]?(?:sudo[ ])?chpasswd))?(?P<s>{PLAIN}{{0,512}}){QUOTE}?[ ]?\|[^\x00\r\n;|]{{0,100}}?"
    r"(?:--password-stdin|--with-token|sudo -S|secrets? (?:set|put|create|versions add)|env add|--pass-stdin|passwd --stdin|chpasswd)",
    340, check="piped", is_guarded=True,
)  # fmt: skip
_CURL_USER = Rule(
    "command-line-flag",
    "The password of `curl -u user:…`",
    KEYWORD, ("-u", "--user"),
    rf"{_EITHER[1]}{QUOTE_OR_CODE}?[^\x00-\x20\"'`\\:]{{1,60}}:{IN_QUOTES}{{6}}",
    rf"{_EITHER[0]}(?P<quote>{QUOTE}?)[^\x00-\x20\"'`\\:]{{1,60}}:(?P<s>{PLAIN}{{0,512}})",
    360, check="curl-user",
)  # fmt: skip

_LAST_ARGUMENT = Rule(
    "command-line-flag",
    "Random values that programs take as their last argument: `htpasswd -b`, `rabbitmqctl add_user`, `change_password`, `cargo login`, "
    "`poetry config http-basic.… user`, `git config user.password`, "
    "`vault login`, `net user`, `redis-cli` `AUTH`, `nmcli … password`",
    KEYWORD, ("htpasswd", "add_user", "change_password", "poetry config", "user.password", "cargo login", "vault login", "net user", "AUTH", "nmcli"),
    rf"(?:[ ]{{1,3}}[A-Za-z0-9_./@:-]{{1,40}}){{0,8}}[ ]{{1,3}}{QUOTE_OR_CODE}?{PLAIN}{{8}}",
    rf"(?:[ ]{{1,3}}[A-Za-z0-9_./@:-]{{1,40}}){{0,8}}?[ ]{{1,3}}(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{8,512}}){QUOTE}?(?:[ ]/add)?(?=[ ]?(?:[;&|\r\n\\\"]|\Z))",
    460, check="argument", is_guarded=True,
)  # fmt: skip

COMMANDS = (_FLAG, _PROGRAM, _OPTION, _OPENSSL, _DIRECTIVE, _PIPED, _CURL_USER, _CURL_COOKIE, _LAST_ARGUMENT)
