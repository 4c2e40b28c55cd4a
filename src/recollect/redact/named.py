"""Secrets known by a name: of the field, variable, element or column that holds them, or of a program's flag.

A flag stands in a command line or in a list of arguments.
"""

from recollect.redact.scanners import (
    ANY,
    ANY_KEYWORD,
    IN_ANY,
    IN_QUOTES,
    KEYWORD,
    KEYWORDS,
    LINE,
    LINE_BREAK,
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

_JSON_FIELD = r"\\*\"[ ]?:[ ]?\\*\""  # a value follows for certain
# As in `password: str = "…"`, `password string = "…"`, `password As String = "…"`.
_TYPE = r"(?:\??:[ ]?[A-Za-z0-9&?\[\]|'<> ]{2,24}|(?<=[ ])(?:as[ ])?string[ ]?)="
_SOME_TYPE = r"(?:\??:[ ]?[A-Za-z0-9&?\[\]|'<> ]{2,24}|[ ](?:as[ ])?string[ ]?)="
# Attributes of a tag: `<password type="plain">…`.
_ATTRIBUTES = rf"(?:[ ][A-Za-z][A-Za-z0-9:_-]{{0,24}}={QUOTE}[^\x00-\x1f<>\"'`\\]{{0,40}}{QUOTE}){{1,3}}"
_SOME_ATTRIBUTES = r"[ ][A-Za-z][A-Za-z0-9:_-]{0,24}=[^\x00-\x1f<>]{0,160}"
# Fields that hold the value of the field they are in.
INNER_FIELDS = ("value", "S", "stringValue")
_VALUE_FIELD = rf"(?:{'|'.join(INNER_FIELDS)})"
# What wraps a value in Rust, Go, Java, Python (`Some("…")`), in JSON (`{"value": "…"}`), in YAML (`&anchor …`, `!!str …`)
# and in XML.
_WRAPPED = (
    r"(?:(?:Some|String::from|(?:Secret|SecretString)::(?:new|from)|SecretStr|(?:aws|pulumi)\.String|Optional\.of|\[\]byte"
    r"|Buffer\.from|Field|[a-z]{1,8}\.string\(\)\.default)\((?:default=)?|[(\[][ ]?"
    rf"|\{{(?:[ \t]|{LINE_BREAK}|\\{{1,16}}t){{0,40}}{QUOTE}{_VALUE_FIELD}{QUOTE}[ ]?:[ ]?)"  # of Azure, DynamoDB, Firestore
)
_SOME_WRAPPED = rf"(?:[A-Za-z.:\[\]()]*[(\[][ ]?(?:default=)?|\{{(?:[ \t\r\n]|\\+[nrt])*{SOME_QUOTE}{_VALUE_FIELD}{SOME_QUOTE}[ ]?:[ ]?)"
_MARKED = r"(?:&[A-Za-z0-9_-]{1,24}[ ]|!![a-z]{1,12}[ ])"
_CDATA = r"<!\[CDATA\["
_BRACKETED = r"(?:\[\[|qq?[({\[]|%[qQ]?[({\[]|R\\{0,16}\"\()"  # strings of Lua, Perl, Ruby and C++
# Before quotes, comparisons and defaults count too: `== "…"`, `|| "…"`, `or "…"`.
_COMPARED = r"(?:[=!]==?|\|\|=?|\?\?=?|\?:|or(?=[ ])|<-)"
_SOME_COMPARED = r"(?:[=!]=|\|\||\?\?|\?:|or[ ]|<-)=?"
# Browser tests type into a field that they find by its name: `page.locator("#password").fill("…")`.
_TYPED = r"/?i?\)\.(?:fill|type|val|set_?value|send_?keys|press_?sequentially|input|to_?(?:be|eq|(?:strict_?)?equal))\("
# In prose: `**Password:** …`, `the password is …`, `密码：…`.
_SAID = r"(?P<said>(?:is|was|ist|est):?(?=[ ])|是|为|は)"
_SOME_SAID = r"(?:(?:is|was|ist|est):?[ ]|是|为|は)"
_BARE_SIGN = rf"(?:=>|:=|:-|[?+]?=|(?:\*\*)?:(?:\*\*)?|：|＝|{_SAID}|(?:{_ATTRIBUTES})?>|,{SPACE}(?:default[ ]?=|with:)?|[({{]{SPACE})"
_SIGN_OR_CODE = rf"(?:=>|:=|[?+]?=|(?:\*\*)?:(?:\*\*)?|：|＝|{_SOME_SAID}|>|%3[adAD]|\\+u003[adAD])"
_BEFORE_QUOTE = rf"(?:{_SIGN_OR_CODE}|{_SOME_TYPE}|[({{])"
# Formatters put a long value on the next line.
_NEXT_LINE = LINE_BREAK + r"(?:[ \t+-]|\\{1,16}t){0,40}"
_SOME_NEXT_LINE = r"(?:\r?\n|(?:\\+r)?\\+n)(?:[ \t+-]|\\+t)*"
# A small letter after a keyword makes it another word (`tokenizer`), except for a plural `s`.
_REST = r"(?-i:s?(?:[A-Z0-9_.-][A-Za-z0-9_.-]{0,31})?)"
_BARE = rf"{PLAIN}{{8}}"  # without quotes, nothing shorter counts as a secret
_HTML_QUOTE = r"&(?:quot|#0?39|#x27);"  # may be a bare word too, so anything may follow

_NAMED_VALUE = (
    rf"(?P<rest>[A-Za-z0-9_.-]{{0,32}})(?:{SPACE}:{SPACE}[|>][0-9+-]{{0,2}}{SPACE}{LINE}(?P<block>{PLAIN}{{6,512}})(?={LINE_END})"
    rf"|>{SPACE}{LINE}(?P<inner>{PLAIN}{{6,512}}){SPACE}{LINE}</"
    rf"|(?:{QUOTE}?(?:[\]}}]{QUOTE}?)?|\[[0-9]{{0,5}}\])"
    rf"(?:(?P<compared>\)?{SPACE}{_COMPARED}|{_TYPED})(?={SPACE}{LITERAL}?{QUOTE})|{SPACE}(?P<sign>{_TYPE}(?={SPACE}(?:{_NEXT_LINE})?(?:{_WRAPPED})?{LITERAL}?{QUOTE})|{_BARE_SIGN}))"
    rf"{SPACE}(?:{_NEXT_LINE}(?={QUOTE}))?(?:{_WRAPPED}(?:{_NEXT_LINE})?(?={QUOTE})|(?P<marked>{_MARKED})|{_CDATA}|{_BRACKETED})?(?P<literal>{LITERAL}(?={QUOTE}))?(?:{QUOTE}{{2}}(?={QUOTE}))?(?P<quote>{QUOTE}?)"
    rf"(?P<s>(?:(?!&(?:[A-Za-z_][A-Za-z0-9_.-]*=|[a-z]{{2,4}};|#)){PLAIN}){{0,512}}))"
)  # fmt: skip
_ASSIGNMENT = Rule(
    "assignment",
    "Values given to names such as `password`, `passwd`, `pwd`, `pass`, `passphrase`, `secret`, `token`, `credential`, `api_key`, "
    "`access_key`, `auth_key`, `private_key`, `encryption_key`, `signing_key`, `master_key`: in code, JSON, YAML (also block scalars, behind anchors and types), XML (also `CDATA`), `.env` lines, "
    "connection strings, addresses, in calls (`define('DB_PASSWORD', '…')`, a variable's default), wrapped (`Some(\"…\")`), and in lists (`[\"…\"]`)",
    KEYWORD, tuple(KEYWORDS),
    rf"{_REST}(?:{QUOTE_OR_CODE}?[\]}}]?{SPACE_OR_CODE}"
    rf"(?:{_SIGN_OR_CODE}{SPACE_OR_CODE}(?:{_MARKED}|{_CDATA})?{_BARE}|{_SOME_ATTRIBUTES}>(?:{_CDATA})?{_BARE}"
    rf"|{_BEFORE_QUOTE}{SPACE_OR_CODE}(?:(?:{_SOME_WRAPPED}|{_MARKED}|{SOME_LITERAL}){QUOTE_OR_CODE}{IN_ANY}|{_HTML_QUOTE}))"
    rf"|{SOME_QUOTE}{SOME_SPACE},{SOME_SPACE}(?:default[ ]?=[ ]?)?{SOME_LITERAL}{SOME_QUOTE}{IN_ANY}"
    rf"|{_JSON_FIELD}{ANY}{{5}}|{SOME_SPACE}:{SOME_SPACE}[|>][0-9+-]{{0,2}}[ \t\r\n\\]|>{SOME_SPACE}(?:[\r\n]|\\+[rn])[^\x00<>]{{6,200}}</)",
    _NAMED_VALUE,
    400, check="assignment", is_caseless=True,
)  # fmt: skip
_OTHER_ASSIGNMENT = Rule(
    "assignment",
    "Values that such a name is compared with (`password == \"…\"`), defaults to (`|| \"…\"`, `?? \"…\"`, `or \"…\"`), or that are typed "
    "into its field (`page.fill('#password', '…')`); on the next line, and in other literals (triple quotes, Rust, Lua, Perl)",
    KEYWORD, tuple(KEYWORDS),
    rf"{_REST}(?:{SOME_QUOTE}?(?:[\]}}]{SOME_QUOTE}?)?(?:\)?{SOME_SPACE}{_SOME_COMPARED}|{_TYPED}){SOME_SPACE}{SOME_LITERAL}{SOME_QUOTE}"
    rf"|{SOME_QUOTE}(?:\]{SOME_QUOTE}{SOME_SPACE},|{SOME_SPACE},[ ]?with:){SOME_SPACE}{SOME_QUOTE}|\[[0-9]{{0,5}}\]{SOME_SPACE}={SOME_SPACE}{SOME_LITERAL}{SOME_QUOTE}"
    rf"|{SOME_QUOTE}?[\]}}]?{SOME_SPACE}(?:[:=]|=>|{_SOME_TYPE}){SOME_SPACE}(?:\(?{_SOME_NEXT_LINE}{SOME_QUOTE}|{SOME_LITERAL}(?:{SOME_QUOTE}){{3}}|{_BRACKETED})){IN_ANY}",
    _NAMED_VALUE,
    400, check="assignment", is_caseless=True,
)  # fmt: skip
# Repeated in each branch: after all of them together, Hyperscan 0.9.1 does not find `ENV PASSWORD …`.
_KEYWORD_END = rf"{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}[\"'`\\ \t\r\n,]"
_SOME_NAME = rf"[A-Za-z0-9_.-]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}"
_DECLARATION = Rule(
    "assignment",
    "Values of `#define DB_PASSWORD \"…\"`, of `ENV DB_PASSWORD …` in a Dockerfile, of `setx`, `set -gx` and `aws configure set`, and of "
    "`name: DB_PASSWORD` followed by `value: …`, in JSON, YAML, XML and code",
    KEYWORD, ("name", 'key"', "key'", "key\\", "key>", "add key", "define ", "env ", "setx ", "set -", "config set ", "configure set ", "secrets set "),
    rf"(?:(?:name|key[\"'\\]|add key)[\"'`\\ ]{{0,40}}[:=][\"'`\\ ]{{0,40}}[A-Za-z0-9_.-]{{0,40}}{_KEYWORD_END}"
    rf"|define [ ]{{0,2}}[A-Za-z0-9_]{{0,40}}{_KEYWORD_END}|env [A-Za-z0-9_]{{0,40}}{_KEYWORD_END}"
    rf"|setx (?:/m )?[A-Za-z0-9_]{{0,40}}{_KEYWORD_END}|set -[a-z]{{1,4}} [A-Za-z0-9_]{{0,40}}{_KEYWORD_END}"
    rf"|(?:config|configure|secrets) set [A-Za-z0-9_./: \"'`\\-]{{0,80}}{_KEYWORD_END}"
    rf"|name>[A-Za-z0-9_.-]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}<|key>[A-Za-z0-9_.-]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}<)",
    rf"(?:(?P<pair>(?:(?<=name){QUOTE}?|(?<=key[\"'])|(?<=key\\)\\{{0,15}}[\"']|(?<=add key))[ ]?[:=][ ]?{QUOTE}?)|(?P<tag>(?<=name)>|(?<=key>))|(?<=define )[ ]{{0,2}}|(?<=env )"
    rf"|(?<=setx )(?:/m[ ])?|(?<=set -)[a-z]{{1,4}}[ ]|(?<=[ges] set )(?:--[a-z]{{1,16}}[ ])?{QUOTE}?(?:[A-Za-z0-9_.-]{{0,40}}[:/]){{0,6}})(?P<name>{_SOME_NAME})"
    rf"(?(pair)(?:{QUOTE}?{SPACE},?{SPACE}(?:{LINE})?{QUOTE}?(?:val(?:ue)?|content){QUOTE}?{SPACE}[:=]{SPACE}|{QUOTE}(?:{_ATTRIBUTES})?>)"
    rf"|(?(tag)</(?:name|key)>(?:{LINE})?<(?:value|string)>|{QUOTE}?{WIDE_SPACE}))"
    rf"(?:{_WRAPPED}(?={QUOTE})|{_CDATA})?(?P<literal>{LITERAL}(?={QUOTE}))?(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{0,512}})",
    200, check="declaration", is_caseless=True, is_whole=True,
)  # fmt: skip
_TERRAFORM = Rule(
    "assignment",
    "The default of a Terraform variable with such a name",
    KEYWORD, ("variable",),
    rf"[ ]{SOME_QUOTE}[A-Za-z0-9_.-]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}{SOME_QUOTE}",
    rf"[ ]{QUOTE}(?P<name>{_SOME_NAME}){QUOTE}[ ]?\{{[^\x00{{}}]{{0,400}}?\bdefault[ ]{{0,40}}=[ ]{{0,40}}(?P<quote>{QUOTE})(?P<s>{PLAIN}{{0,512}})",
    160, check="default",
)  # fmt: skip
_SQL = Rule(
    "sql-password",
    "Passwords in SQL: `PASSWORD '…'`, `IDENTIFIED BY '…'`, `IDENTIFIED WITH … BY '…'`, `SET PASSWORD FOR … = '…'`",
    KEYWORD, ("password", "identified by", "identified with", "password for"),
    rf"[ ](?:[ ]{{0,63}}|[^\x00-\x20=]{{1,60}}[ ]?(?:by[ ]|=[ ]?)){SOME_QUOTE}{ANY}{{6}}",
    rf"[ ](?:(?<=with[ ])[^\x00-\x20=]{{1,60}}[ ]by[ ]|(?<=for[ ])[^\x00-\x20=]{{1,60}}[ ]?=[ ]?|[ ]{{0,63}})(?P<quote>{QUOTE})(?P<s>{PLAIN}{{0,512}})",
    220, check="flag", is_caseless=True,
)  # fmt: skip
_NETRC = Rule(
    "netrc",
    "Passwords in `.netrc` files (`login … password …`)",
    KEYWORD, ("login",),
    rf"{LINE_BYTES}{{1,60}}[^\x00-\x20]{{1,80}}{LINE_BYTES}{{1,60}}password{LINE_BYTES}{{1,60}}{PLAIN}{{6}}",
    rf"(?:[ \t]{{1,8}}|{LINE})[^\x00-\x20\\]{{1,80}}(?:[ \t]{{1,8}}|{LINE})password(?:[ \t]{{1,8}}|{LINE})"
    rf"(?P<quote>)(?P<s>{PLAIN}{{6,512}})",
    250, check="flag",
)  # fmt: skip
_CLEAR_KEYWORDS = tuple(keyword for keyword in KEYWORDS if keyword != "pass")  # `Pass` heads many a table
_SPACED = Rule(
    "assignment",
    "Random values separated from such a name only by spaces or the `|` of a table: on a line of their own in settings and in "
    "the output of `vault` and `psql`, or in quotes (`proxy_set_header X-Api-Key \"…\"`)",
    KEYWORD, _CLEAR_KEYWORDS,
    rf"{_REST}{SOME_QUOTE}?(?:[ \t|]|\\+t)+{SOME_QUOTE}?{PLAIN}{{0,40}}[0-9]",
    rf"(?P<rest>[A-Za-z0-9_.-]{{0,32}}){QUOTE}?(?P<sign>{WIDE_SPACE}(?:\|[ \t]{{1,64}})?)(?P<quote>{QUOTE}?)(?={PLAIN}{{0,40}}[0-9])(?P<s>{PLAIN}{{8,512}})",
    200, check="spaced", is_caseless=True,
)  # fmt: skip
# Found by its operator, because that is rare: its check looks back at the name.
_FALLBACK = Rule(
    "assignment",
    "Values that an expression given to such a name falls back on: `password = config.pw or \"…\"`, `|| \"…\"`, `?? \"…\"`, "
    "`token = getenv(\"K\", \"…\")`",
    KEYWORD, ("or ", "||", "??", "?:", "env(", "get(", "fetch(", "config("),
    rf"(?:or |\|\||\?\?|\?:|(?:env|get|fetch|config)\({SOME_QUOTE}[A-Za-z0-9_.-]{{1,60}}{SOME_QUOTE},){SOME_SPACE}{SOME_LITERAL}{SOME_QUOTE}[a-z_.-]{{0,40}}[^\x00-\x20\"'`\\a-z_.-]",
    rf"(?:(?<=\(){QUOTE}[A-Za-z0-9_.-]{{1,60}}{QUOTE},|(?<!\()){SPACE}(?P<literal>{LITERAL}(?={QUOTE}))?(?P<quote>{QUOTE})(?P<s>{PLAIN}{{0,512}})",
    100, check="fallback", is_whole=True,
)  # fmt: skip
_TABLE = Rule(
    "assignment",
    "Random values in the columns of such a name: CSV and similar formats, Markdown, `psql`, and `INSERT` (`(…, password) VALUES (…)`)",
    KEYWORD, _CLEAR_KEYWORDS,
    rf"{_REST}{SOME_QUOTE}?[ ]{{0,40}}(?:\|[A-Za-z0-9_. -]*|(?:[,;\t]|\\+t)[ ]?(?:[A-Za-z0-9_.\"'`-]|\\+[\"'`])*)*(?:\r?\n|(?:\\+r)?\\+n|\)[^\x00(]{{0,40}}VALUES)",
    rf"(?P<rest>[A-Za-z0-9_.-]{{0,32}}){QUOTE}?[ ]{{0,40}}(?P<after>(?:\|[A-Za-z0-9_. -]*|(?:[,;\t]|\\{{1,16}}t)[ ]?(?:[A-Za-z0-9_.\"'`-]|\\{{1,16}}(?=[\"'`]))*)*)"
    rf"(?P<end>{LINE_BREAK}|\)(?:[ \r\n]|\\+[nr]){{0,40}}VALUES)",
    440, check="table", is_caseless=True,
)  # fmt: skip
_ARGUMENT = Rule(
    "assignment",
    "The second argument of calls that sign or log in: `jwt.sign(payload, \"…\")`, `createHmac(\"sha256\", \"…\")`, `auth=(\"user\", \"…\")`, "
    "`new NetworkCredential(\"user\", \"…\")`, `smtp.login(\"user\", \"…\")`",
    KEYWORD, (".login(", "auth=(", "basicauth(", "networkcredential(", "jwt.sign(", "jwt.encode(", "jwt.verify(", "jwt.decode(", "hmac("),
    rf"[^\x00-\x1f()]{{1,100}},{SOME_SPACE}{SOME_LITERAL}{SOME_QUOTE}{ANY}{{6}}",
    rf"[^\x00-\x1f(),]{{1,80}},{SPACE}(?P<literal>{LITERAL}(?={QUOTE}))?(?P<quote>{QUOTE})(?P<s>{PLAIN}{{0,512}})",
    200, check="flag", is_caseless=True,
)  # fmt: skip
_PGPASS = Rule(
    "netrc",
    "Passwords in `.pgpass` files (`host:5432:database:user:…`)",
    KEYWORD, (":5432:", ":5433:", ":6432:", ":*:"),
    rf"[^\x00-\x20:\"'`]{{1,60}}:[^\x00-\x20:\"'`]{{1,60}}:{PLAIN}{{8}}",
    rf"[^\x00-\x20:\"'`]{{1,60}}:[^\x00-\x20:\"'`]{{1,60}}:(?P<quote>)(?P<s>{PLAIN}{{8,128}})",
    180, check="flag",
)  # fmt: skip
_SEED = Rule(
    "seed-phrase",
    "Seed phrases of wallets: 12 to 24 words given to `mnemonic`, `seed phrase` or `recovery phrase`",
    KEYWORD, ("mnemonic", "seed phrase", "seed_phrase", "seedphrase", "recovery phrase", "recovery_phrase"),
    rf"{SOME_QUOTE}?{SOME_SPACE}(?:[:=]|=>){SOME_SPACE}{SOME_QUOTE}?(?:[a-z]{{3,8}}[ ]){{11}}",
    rf"{QUOTE}?{SPACE}(?:=>|[:=]){SPACE}{QUOTE}?(?P<s>[a-z]{{3,8}}(?:[ ][a-z]{{3,8}}){{11,23}})",
    300, check="words", is_caseless=True,
)  # fmt: skip
_ENV_KEY = Rule(
    "environment-key",
    "Values of variables whose names end in `_KEY` or `_SALT`",
    KEYWORD, ("_KEY", "_SALT"),
    rf"(?:{SPACE_OR_CODE}(?:=|:|%3[adAD])|{SOME_QUOTE}{SOME_SPACE},){SPACE_OR_CODE}{QUOTE_OR_CODE}?[^\x00-\x20\"'`\\]{{4}}[^\x00-\x1f\"'`\\]{{12}}",
    rf"(?:{SPACE}[=:]|{QUOTE}{SPACE},(?={SPACE}{QUOTE})){SPACE}(?P<quote>{QUOTE}?)(?P<s>{PLAIN}{{4,512}})",
    300, check="environment-key",
)  # fmt: skip

_REGISTRY = Rule(
    "registry-auth",
    'User names and passwords of package and container registries in base64: `_auth=…`, `"auth": "…"`',
    KEYWORD, ("auth", "AuthIdent"),
    rf"{QUOTE_OR_CODE}?{SPACE_OR_CODE}(?:[:=]|%3[adAD]){SPACE_OR_CODE}{QUOTE_OR_CODE}?[A-Za-z0-9+/=%]{{12}}",
    rf"{QUOTE}?{SPACE}[:=]{SPACE}{QUOTE}?(?P<s>[A-Za-z0-9+/]{{12,1000}}={{0,2}})",
    280, check="registry",
)  # fmt: skip
_PAIR = rf"{QUOTE}?[A-Za-z0-9_.-]{{1,60}}(?:=|{QUOTE}[ ]?:[ ]?){QUOTE}?[^\x00-\x20\"'`\\;,{{}}]{{0,4000}}{QUOTE}?"
COOKIES = rf"(?P<s>{_PAIR}(?:[;,][ ]?{_PAIR}){{0,60}})"
SOME_COOKIES = rf"{QUOTE_OR_CODE}?[A-Za-z0-9_.-]{{1,60}}(?:=|%3[dD]|{SOME_QUOTE}[ ]?:)"
_COOKIE = Rule(
    "session-cookie",
    "Session cookies (`session…`, `…sid`, `auth…`, `…token`, `csrf…`, with a random value), in headers and code",
    KEYWORD, ("cookie",),
    rf"s?(?:{QUOTE_OR_CODE}?{SPACE_OR_CODE}(?:[:= ]|%3[adAD])|{SOME_QUOTE},){SPACE_OR_CODE}\{{?{SOME_COOKIES}",
    rf"s?(?:{QUOTE}?{SPACE}[:= ]|{QUOTE},){SPACE}\{{?{COOKIES}",
    360, check="cookie", is_caseless=True,
)  # fmt: skip

NAMED_VALUES = (
    _ASSIGNMENT,
    _OTHER_ASSIGNMENT,
    _DECLARATION,
    _TERRAFORM,
    _SQL,
    _NETRC,
    _PGPASS,
    _SPACED,
    _FALLBACK,
    _TABLE,
    _ARGUMENT,
    _SEED,
    _ENV_KEY,
    _REGISTRY,
    _COOKIE,
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
