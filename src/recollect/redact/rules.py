"""The published list: what each secret looks like, and where a scan may begin to look for it.

A rule is found in two steps. A scanner looks for one of its `openers` followed by `least`, over whole blocks; then
`whole` is matched at that place by Python's `re`, and a test of the value decides. No left word boundary is asked
of a distinctive opener: in logs the byte before a token is often the `n` of an escaped newline or the `m` of a colour.

`least` is written in what Hyperscan and `re` both understand and mean alike, and holds wherever `whole` does: in
the text itself, and in that text as a JSON string. So it names no byte that JSON escapes but behind backslashes.
"""

from dataclasses import dataclass

VERSION = 4  # of this list; a store says which one it was redacted with

PREFIX = "prefix"  # an opener that nothing else has
STRUCTURE = "structure"  # known by the text around it
KEYWORD = "keyword"  # known by the name it is given; only as good as the test of the value
HIDDEN = "hidden"  # base64 of text, to be looked into

_ALNUM = "[A-Za-z0-9]"
_WORD = "[A-Za-z0-9_-]"
_DOTTED = "[A-Za-z0-9_.-]"
_HEX = "[0-9a-f]"
_BASE64 = "[A-Za-z0-9+/]"


@dataclass(frozen=True, slots=True)
class Lead:
    """What stands before an opener and belongs to the secret: a run of bytes, or the part of it from `first` on."""

    characters: str
    least: int
    most: int
    first: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One format. The secret is the group `s` of `whole`, or all of the match."""

    name: str
    finds: str
    kind: str
    openers: tuple[str, ...]
    least: str
    rest: str
    reach: int  # bytes from an opener to the end of `least`, at most
    test: str = "token"
    lead: Lead | None = None
    is_caseless: bool = False
    is_whole: bool = False  # `least` begins with the openers, each followed by what may follow it: that scans faster
    is_guarded: bool = False  # no letter or digit may stand before it
    needs_digit: bool = False


def _token(
    name: str,
    finds: str,
    openers: str,
    characters: str,
    least: int,
    most: int | None = None,
    *,
    guarded: bool = False,
    needs_digit: bool = False,
    lead: Lead | None = None,
    end: str = "",
) -> Rule:
    """An opener and a run of characters. If `most` is left out the run has exactly the least length and then ends."""
    words = tuple(openers.split())
    run = f"{characters}{{{least},{most}}}{end}" if most else f"{characters}{{{least}}}{end}(?!{characters})"
    return Rule(
        name,
        finds,
        PREFIX,
        words,
        f"{characters}{{{least}}}",
        run,
        max(map(len, words)) + least,
        lead=lead,
        is_guarded=guarded,
        needs_digit=needs_digit,
    )


_TOKENS = (
    _token("aws-access-key-id", "AWS access key ids (`AKIA…`, `ASIA…`)", "AKIA ASIA ABIA ACCA", "[A-Z2-7]", 16),
    _token("github-token", "GitHub tokens (`ghp_`, `gho_`, `ghu_`, `ghs_`, `ghr_`)", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 30, 255),
    _token("github-fine-grained", "GitHub fine-grained tokens (`github_pat_`)", "github_pat_", "[A-Za-z0-9_]", 30, 255),
    _token(
        "gitlab-token",
        "GitLab tokens (`glpat-`, `gldt-`, `glrt-`, `glptt-`, `glsoat-`, `glcbt-`, `glimt-`, `glft-`, `glagent-`, `gloas-`, `glffct-`)",
        "glpat- gldt- glrt- glptt- glsoat- glcbt- glimt- glft- glagent- gloas- glffct-",
        _DOTTED,
        16,
        300,
    ),
    _token("gitlab-runner", "GitLab runner registration tokens (`GR1348941…`)", "GR1348941", _WORD, 20, 40),
    _token("openai", "OpenAI keys of projects, service accounts, admins (`sk-proj-` …)", "sk-proj- sk-svcacct- sk-admin- sk-None-", _WORD, 20, 300),
    _token(
        "openai",
        "OpenAI keys with the mark `T3BlbkFJ` in them",
        "T3BlbkFJ",
        _WORD,
        20,
        160,
        lead=Lead(_WORD, 20, 180, "sk-"),
    ),
    _token("openrouter", "OpenRouter keys (`sk-or-v1-`)", "sk-or-v1-", _WORD, 20, 160),
    _token("anthropic", "Anthropic keys and OAuth tokens (`sk-ant-api…`, `-oat…`, `-ort…`, `-admin…`, `-sid…`)", "sk-ant-", _WORD, 24, 300),
    _token("xai", "xAI keys (`xai-`)", "xai-", _ALNUM, 40, 160),
    _token("groq", "Groq keys (`gsk_`)", "gsk_", _ALNUM, 40, 80),
    _token("perplexity", "Perplexity keys (`pplx-`)", "pplx-", _ALNUM, 40, 80),
    _token("cerebras", "Cerebras keys (`csk-`)", "csk-", _ALNUM, 40, 80, guarded=True),
    _token("replicate", "Replicate tokens (`r8_`)", "r8_", _ALNUM, 37, 40, guarded=True),
    _token("hugging-face", "Hugging Face tokens (`hf_`, `api_org_`)", "hf_ api_org_", "[A-Za-z]", 34),
    _token("sk-key", "Keys of many services that begin with `sk-`", "sk-", _ALNUM, 32, 100, guarded=True, needs_digit=True),
    _token("slack-token", "Slack tokens (`xoxb-`, `xoxp-` …, `xapp-`)", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", "[A-Za-z0-9.%/+-]", 10, 400),
    _token(
        "slack-webhook",
        "Slack webhook addresses",
        "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/",
        "[A-Za-z0-9+/]",
        20,
        140,
    ),
    _token("discord-webhook", "Discord webhook addresses", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", "[A-Za-z0-9_/-]", 60, 140),
    _token("stripe", "Stripe keys (`sk_live_`, `rk_live_`, `sk_test_`, `rk_test_`)", "sk_live_ rk_live_ sk_test_ rk_test_ sk_prod_ rk_prod_", _ALNUM, 10, 250),
    _token("webhook-secret", "Webhook signing secrets (`whsec_`)", "whsec_", "[A-Za-z0-9+/=]", 24, 100),
    _token("google-api-key", "Google API keys (`AIza…`)", "AIza", _WORD, 35, end="(?![+/])"),
    _token("google-oauth", "Google OAuth tokens and client secrets (`ya29.`, `GOCSPX-`)", "ya29. GOCSPX-", _DOTTED, 20, 2000),
    _token("google-refresh-token", "Google refresh tokens (`1//0…`)", "1//0", _WORD, 36, 200, guarded=True, needs_digit=True, end="(?![A-Za-z0-9_+/=-])"),
    _token("npm-token", "npm tokens (`npm_`)", "npm_", _ALNUM, 36, 80),
    _token("pypi-token", "PyPI tokens (`pypi-AgE…`)", "pypi-AgE", _WORD, 40, 2000),
    _token("sendgrid", "SendGrid keys (`SG.`)", "SG.", _WORD, 16, 32, end=rf"\.{_WORD}{{32,64}}"),
    _token("twilio", "Twilio API keys (`SK` and 32 hexadecimal digits)", "SK", _HEX, 32, guarded=True),
    _token(
        "telegram-bot",
        "Telegram bot tokens (digits, then `:AA…`)",
        ":AA",
        _WORD,
        32,
        35,
        lead=Lead("[0-9]", 8, 10),
    ),
    _token(
        "azure-secret",
        "Microsoft Entra (Azure AD) client secrets (`…Q~…`)",
        "0Q~ 1Q~ 2Q~ 3Q~ 4Q~ 5Q~ 6Q~ 7Q~ 8Q~ 9Q~",
        "[A-Za-z0-9_~.-]",
        31,
        36,
        lead=Lead("[A-Za-z0-9_~.-]", 3, 3),
    ),
    _token("azure-devops", "Azure DevOps tokens (`…AZDO…`)", "AZDO", _ALNUM, 4, lead=Lead(_ALNUM, 76, 76), end="(?![+/=])"),
    _token("azure-registry", "Azure container registry passwords (`…+ACR…`)", "+ACR", _ALNUM, 6, lead=Lead(_BASE64, 42, 42), end="(?![+/=])"),
    _token("azure-storage-key", "Azure storage and database keys (`…+ASt…`, `…ACDb…`)", "+ASt ACDb", _BASE64, 6, lead=Lead(_BASE64, 76, 76), end="=="),
    _token("alibaba-key-id", "Alibaba Cloud access key ids (`LTAI…`)", "LTAI", _ALNUM, 16, 26, guarded=True, needs_digit=True),
    _token("digitalocean", "DigitalOcean tokens (`dop_v1_`, `doo_v1_`, `dor_v1_`)", "dop_v1_ doo_v1_ dor_v1_", _HEX, 64),
    _token("heroku", "Heroku keys (`HRKU-`)", "HRKU-", _WORD, 36, 80),
    _token("netlify", "Netlify tokens (`nfp_` …)", "nfp_ nfc_ nfo_ nfu_", _ALNUM, 36, 60, guarded=True, needs_digit=True),
    _token("fly-io", "Fly.io tokens (`fm1_`, `fm2_`, `fo1_`)", "fm1r_ fm1a_ fm2_ fo1_", "[A-Za-z0-9+/_=%-]", 40, 2000, guarded=True),
    _token("cloudflare-ca", "Cloudflare origin CA keys (`v1.0-`)", "v1.0-", "[0-9a-f-]", 140, 200),
    _token("vault", "HashiCorp Vault tokens (`hvs.`, `hvb.`, `hvr.`)", "hvs. hvb. hvr.", _WORD, 24, 400, guarded=True),
    _token("terraform-cloud", "Terraform Cloud tokens (`….atlasv1.…`)", ".atlasv1.", _WORD, 60, 80, lead=Lead(_ALNUM, 14, 14)),
    _token("databricks", "Databricks tokens (`dapi`)", "dapi", _HEX, 32, guarded=True),
    _token("doppler", "Doppler tokens (`dp.pt.`, `dp.st.` …)", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim.", _DOTTED, 40, 80, guarded=True),
    _token("pulumi", "Pulumi tokens (`pul-`)", "pul-", _HEX, 40, guarded=True),
    _token("grafana", "Grafana tokens (`glsa_`, `glc_`)", "glsa_ glc_", "[A-Za-z0-9+/_=%]", 32, 400, guarded=True),
    _token("sentry", "Sentry tokens (`sntrys_`, `sntryu_`)", "sntrys_ sntryu_", "[A-Za-z0-9+/_=%-]", 40, 400),
    _token("new-relic", "New Relic keys (`NRAK-`, `NRII-`, `NRJS-`)", "NRAK- NRII- NRJS-", _WORD, 19, 40),
    _token("linear", "Linear keys (`lin_api_`, `lin_oauth_`)", "lin_api_ lin_oauth_", _ALNUM, 32, 80),
    _token("notion", "Notion tokens (`ntn_`)", "ntn_", _ALNUM, 40, 60, guarded=True),
    _token("figma", "Figma tokens (`figd_`)", "figd_ figdr_ figu_ figor_ figo_", _WORD, 40, 60, guarded=True),
    Rule(
        "airtable",
        "Airtable tokens (`pat….…`)",
        PREFIX,
        ("pat",),
        r"[A-Za-z0-9]{14}\.[0-9a-f]{64}",
        r"[A-Za-z0-9]{14}\.[0-9a-f]{64}",
        82,
    ),
    _token("atlassian", "Atlassian tokens (`ATATT3`, `ATCTT3`)", "ATATT3 ATCTT3", "[A-Za-z0-9_=.-]", 24, 400, needs_digit=True),
    _token("atlassian", "Atlassian tokens (`ATBB`)", "ATBB", "[A-Za-z0-9_=.-]", 24, 400, guarded=True, needs_digit=True),
    _token("shopify", "Shopify tokens (`shpat_`, `shpss_`, `shppa_`, `shpca_`)", "shpat_ shpss_ shppa_ shpca_", "[a-fA-F0-9]", 32, 64),
    _token("square", "Square tokens (`sq0atp-`, `sq0csp-`)", "sq0atp- sq0csp- sq0idp-", _WORD, 22, 60),
    _token("postman", "Postman keys (`PMAK-`)", "PMAK-", "[a-f0-9-]", 50, 70),
    _token("planetscale", "PlanetScale passwords and tokens (`pscale_`)", "pscale_tkn_ pscale_pw_ pscale_oauth_", "[A-Za-z0-9_=.-]", 32, 80),
    _token("supabase", "Supabase tokens (`sbp_`, `sb_secret_`)", "sbp_ sb_secret_", _WORD, 24, 60, guarded=True, needs_digit=True),
    _token("rubygems", "RubyGems keys (`rubygems_`)", "rubygems_", _HEX, 48),
    _token("crates-io", "crates.io tokens (`cio`)", "cio", _ALNUM, 32, guarded=True, needs_digit=True),
    _token("docker-hub", "Docker Hub tokens (`dckr_pat_`, `dckr_oat_`)", "dckr_pat_ dckr_oat_", _WORD, 24, 60),
    _token("nvidia", "NVIDIA keys (`nvapi-`)", "nvapi-", _WORD, 40, 120),
    _token("sourcegraph", "Sourcegraph tokens (`sgp_`)", "sgp_", "[A-Za-z0-9_]", 40, 80, guarded=True, needs_digit=True),
    _token("tailscale", "Tailscale keys (`tskey-`)", "tskey-", _WORD, 20, 120),
    _token("mailgun", "Mailgun keys (`key-` and 32 hexadecimal digits)", "key-", _HEX, 32, guarded=True),
    _token("brevo", "Brevo keys (`xkeysib-`)", "xkeysib-", _WORD, 64, 100),
    _token("dynatrace", "Dynatrace tokens (`dt0c01.`)", "dt0c01. dt0s01. dt0s16.", r"[A-Z2-7.]", 80, 100),
    _token("onepassword", "1Password service account tokens (`ops_eyJ…`)", "ops_eyJ", "[A-Za-z0-9_=-]", 100, 2000),
    _token("contentful", "Contentful tokens (`CFPAT-`)", "CFPAT-", _WORD, 40, 60),
    _token("age-key", "age secret keys (`AGE-SECRET-KEY-1`)", "AGE-SECRET-KEY-1", "[A-Z0-9]", 50, 64),
    _token(
        "jwt",
        "JSON web tokens (`eyJ….eyJ….…`)",
        ".eyJ",
        _WORD,
        8,
        16000,
        lead=Lead(_WORD, 8, 4000, "eyJ"),
        end=rf"(?:\.{_WORD}{{4,4000}})?",
    ),
)  # fmt: skip

# The digits of a user id in base64 give themselves away: each group of three has a narrow shape.
_DIGITS_IN_BASE64 = "[MNO][DTjz][AEIMQUYcgk][w-z0-5]"
# So does text: no byte of ASCII has its highest bit set, and few are control characters.
_TEXT_IN_BASE64 = "[CDI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"

QUOTE = r"(?:\\{0,16}[\"'`]|&quot;|&#0?39;|&#x27;)"
_SPACE = r"(?:[ \t]|\\{1,16}t){0,3}"
_SOME_SPACE = r"[ \t\\t]{0,8}"
_WIDE_SPACE = r"(?:[ \t]|\\{1,16}t){1,12}"
# As many backslashes as there are: a scanner need not count them.
_SOME_QUOTE = r"(?:\\*[\"'`]|&quot;|&#0?39;|&#x27;)"
_SPACE_OR_CODE = r"(?:[ \t+]|\\+t|%20){0,3}"
_QUOTE_OR_CODE = r"(?:\\*[\"'`]|&quot;|&#0?39;|&#x27;|%2[27]|\\+u002[27])"
_PLAIN = r"[^\x00-\x20\"'`<>(){}\[\],;$\\\x7f]"
_IN_QUOTES = r"[^\x00-\x20\"'`\\]"
_ANY = r"[^\x00-\x1f]"  # between quotes; quotes and backslashes may be escaped there
# After a quote that opens; after one that closes there is mostly a sign, a blank or the end of a line.
_IN_ANY = rf"(?:{_IN_QUOTES}{{5}}|[^\x00-\x20\"'`\\,;:.)\]}}+=]{_ANY}{{4}})"
# Before a quote: the kinds of literals of Python, C, C# (`b'…'`, `rb"…"`, `L"…"`, `@"…"`).
_LITERAL = r"(?:[bru]|[rf][bf]?|br|fr|u8|L|@\$?|\$@?)"
_SOME_LITERAL = r"[A-Za-z@$]?[A-Za-z8@$]?"
# The next line, and what stands before its text: indentation, the sign of a difference, a number.
_ARROW = r"(?:→|\\{1,16}u2192)"
_LINE = (
    r"(?:\r?\n|(?:\\{1,16}r)?\\{1,16}n)"
    rf"(?:[ \t+-]|\\{{1,16}}t|[0-9]{{1,6}}(?:\t|\\{{1,16}}t|[:|]|{_ARROW})){{0,40}}"
)
_LINE_END = r"[ \t]{0,8}(?:[\r\n\\\"]|\Z)"
_LINE_BYTES = r"[\t\r\n 0-9+:|\\nrtu\xe2\x86\x92-]"  # all that it is made of

_KEYS = "api access auth encryption private signing master account session license deploy shared".split()  # noqa: SIM905
KEYWORDS = (
    *("pass", "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential"),
    *(f"{word}{joint}key" for word in (*_KEYS, "secret") for joint in ("_", "-", "")),
)
# The same, in as few branches as can be: it is tried at many places.
ANY_KEYWORD = (
    rf"(?:pass(?:word|wd|phrase|code)?|pwd|secret(?:[_-]?key)?|token|credential|(?:{'|'.join(_KEYS)})[_-]?key)"
)

_JSON_FIELD = r"\\*\"[ ]?:[ ]?\\*\""  # what begins after it is a value for sure
_TYPE = r"[ ]?:[ ]?[A-Za-z&\[\]|' ]{2,24}[ ]?="  # as in `password: str = "…"`
_BARE_SIGN = rf"(?:=>|:=|=|:|>|,{_SPACE}(?:default[ ]?=)?|\({_SPACE})"
_SIGN_OR_CODE = r"(?:=>|:=|=|:|>|%3[adAD]|\\+u003[adAD])"
_BEFORE_QUOTE = rf"(?:{_SIGN_OR_CODE}|{_TYPE}|\({_SOME_SPACE})"
# A small letter after a keyword makes another word of it (`tokenizer`), but for the `s` of many.
_REST = r"(?-i:s?(?:[A-Z0-9_.-][A-Za-z0-9_.-]{0,31})?)"
_BARE = rf"{_PLAIN}{{8}}"  # without quotes no shorter one is taken for a secret
_HTML_QUOTE = r"&(?:quot|#0?39|#x27);"  # a bare word too, so anything may follow

_ASSIGNMENT = Rule(
    "assignment",
    "Values given to names such as `password`, `passwd`, `pwd`, `pass`, `passphrase`, `secret`, `token`, `credential`, `api_key`, "
    "`access_key`, `auth_key`, `private_key`, `encryption_key`, `signing_key`, `master_key`: in code, JSON, YAML (also block scalars), XML, `.env` lines, "
    "connection strings, addresses, and in calls (`define('DB_PASSWORD', '…')`, a variable's default)",
    KEYWORD,
    tuple(KEYWORDS),
    rf"{_REST}(?:{_QUOTE_OR_CODE}?\]?{_SPACE_OR_CODE}"
    rf"(?:{_SIGN_OR_CODE}{_SPACE_OR_CODE}{_BARE}"
    rf"|{_BEFORE_QUOTE}{_SPACE_OR_CODE}(?:{_SOME_LITERAL}{_QUOTE_OR_CODE}{_IN_ANY}|{_HTML_QUOTE}))"
    rf"|{_SOME_QUOTE}{_SOME_SPACE},{_SOME_SPACE}(?:default[ ]?=[ ]?)?{_SOME_LITERAL}{_SOME_QUOTE}{_IN_ANY}"
    rf"|{_JSON_FIELD}{_ANY}{{5}}|{_SOME_SPACE}:{_SOME_SPACE}[|>][0-9+-]{{0,2}}[ \t\r\n\\])",
    rf"(?P<rest>[A-Za-z0-9_.-]{{0,32}})(?:{_SPACE}:{_SPACE}[|>][0-9+-]{{0,2}}{_SPACE}{_LINE}(?P<block>{_PLAIN}{{6,512}})(?={_LINE_END})"
    rf"|{QUOTE}?\]?{_SPACE}(?P<sign>{_TYPE}(?={_SPACE}{QUOTE})|{_BARE_SIGN}){_SPACE}(?P<literal>{_LITERAL}(?={QUOTE}))?(?P<quote>{QUOTE}?)"
    rf"(?P<s>(?:(?!&(?:[A-Za-z_][A-Za-z0-9_.-]*=|[a-z]{{2,4}};|#)){_PLAIN}){{0,512}}))",
    150,
    test="assignment",
    is_caseless=True,
)  # fmt: skip
FLAG_NAME = rf"(?:[A-Za-z][A-Za-z0-9_-]{{0,23}})?{ANY_KEYWORD}[A-Za-z0-9_-]{{0,16}}"
_NEXT_ITEM = rf"{QUOTE}{_SPACE},{_SPACE}(?:{_LINE})?(?={QUOTE})"  # of a list of arguments
_SOME_NEXT_ITEM = rf"{_SOME_QUOTE}{_SOME_SPACE},{_LINE_BYTES}{{0,60}}"
_FLAG = Rule(
    "command-line-flag",
    "Values of command-line flags such as `--password` and `--api-key`, also as items of a list of arguments",
    KEYWORD,
    ("--",),
    rf"{FLAG_NAME}(?:[ ]{{1,3}}{_QUOTE_OR_CODE}?{_IN_QUOTES}{{6}}|(?:[ ]{{1,3}}|{_SOME_NEXT_ITEM}){_SOME_QUOTE}{_ANY}{{6}})",
    rf"(?P<name>{FLAG_NAME})(?:[ ]{{1,3}}|{_NEXT_ITEM})(?P<quote>{QUOTE}?)(?P<s>{_PLAIN}{{0,512}})",
    160,
    test="flag",
    is_caseless=True,
)
_SSHPASS = Rule(
    "command-line-flag",
    "The password of `sshpass -p`, in a line or in a list of arguments",
    KEYWORD,
    ("sshpass",),
    rf"(?:[ ]-p[ ]?{_QUOTE_OR_CODE}?{_IN_QUOTES}{{6}}|(?:[ ]-p[ ]?|{_SOME_NEXT_ITEM}{_SOME_QUOTE}-p{_SOME_NEXT_ITEM}){_SOME_QUOTE}{_ANY}{{6}})",
    rf"(?:[ ]-p[ ]?|{_NEXT_ITEM}{QUOTE}-p{_NEXT_ITEM})(?P<quote>{QUOTE}?)(?P<s>{_PLAIN}{{0,512}})",
    200,
    test="flag",
)
_CURL_USER = Rule(
    "command-line-flag",
    "The password of `curl -u user:…`",
    KEYWORD,
    ("-u", "--user"),
    rf"[ =]{{0,3}}{_QUOTE_OR_CODE}?[^\x00-\x20\"'`\\:]{{1,60}}:{_IN_QUOTES}{{6}}",
    rf"[ =]{{0,3}}(?P<quote>{QUOTE}?)[^\x00-\x20\"'`\\:]{{1,60}}:(?P<s>{_PLAIN}{{0,512}})",
    160,
    test="curl-user",
)
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
    rf"(?(pair){QUOTE}?{_SPACE},?{_SPACE}(?:{_LINE})?{QUOTE}?val(?:ue)?{QUOTE}?{_SPACE}[:=]{_SPACE}|{_WIDE_SPACE})"
    rf"(?P<literal>{_LITERAL}(?={QUOTE}))?(?P<quote>{QUOTE}?)(?P<s>{_PLAIN}{{0,512}})",
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
    rf"[ ]{{1,3}}{_SOME_QUOTE}{_ANY}{{6}}",
    rf"[ ]{{1,3}}(?P<quote>{QUOTE})(?P<s>{_PLAIN}{{0,512}})",
    60,
    test="flag",
    is_caseless=True,
)
_NETRC = Rule(
    "netrc",
    "Passwords in `.netrc` files (`login … password …`)",
    KEYWORD,
    ("login",),
    rf"{_LINE_BYTES}{{1,60}}[^\x00-\x20]{{1,80}}{_LINE_BYTES}{{1,60}}password{_LINE_BYTES}{{1,60}}{_PLAIN}{{6}}",
    rf"(?:[ \t]{{1,8}}|{_LINE})[^\x00-\x20\\]{{1,80}}(?:[ \t]{{1,8}}|{_LINE})password(?:[ \t]{{1,8}}|{_LINE})"
    rf"(?P<quote>)(?P<s>{_PLAIN}{{6,512}})",
    250,
    test="flag",
)
_ENV_KEY = Rule(
    "environment-key",
    "Values of variables whose names end in `_KEY`",
    KEYWORD,
    ("_KEY",),
    rf"{_SPACE_OR_CODE}(?:=|:|%3[adAD]){_SPACE_OR_CODE}{_QUOTE_OR_CODE}?[^\x00-\x20\"'`\\]{{16}}",
    rf"{_SPACE}(?:=|:){_SPACE}(?P<quote>{QUOTE}?)(?P<s>{_PLAIN}{{16,512}})",
    80,
    test="environment-key",
)

_STRUCTURES = (
    Rule(
        "private-key",
        "Private keys: PEM (RSA, EC, DSA, OpenSSH, PKCS#8, encrypted or not) and PGP, also inside service-account JSON",
        STRUCTURE,
        ("-----BEGIN",),
        r"[ A-Z0-9+%]{0,40}PRIVATE(?:[ +]|%20)KEY",
        r"[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        80,
        test="private-key",
    ),
    Rule(
        "url-password",
        "Passwords and tokens in addresses, `scheme://user:password@host`: PostgreSQL, MySQL, MongoDB, Redis, AMQP, git remotes …",
        STRUCTURE,
        ("://", "%3a%2f%2f"),
        r"(?:[^\x00-\x20/@\"'<>\\`{}]{3,200}@|[^\x00-\x20/@\"'<>\\`{}]{3,200}%40)",
        r"(?:[^\x00-\x20:/@\"'<>\\`{}]{0,64}:(?P<s>[^\x00-\x20/@\"'<>\\`]{3,128})|(?P<user>[A-Za-z0-9_.~-]{16,128}))@",
        220,
        test="url",
        is_caseless=True,
    ),
    Rule(
        "auth-header",
        "`Authorization` headers, bearer tokens, and basic credentials",
        STRUCTURE,
        ("authorization", "bearer", "basic"),
        rf"(?:{_QUOTE_OR_CODE}?{_SPACE_OR_CODE}(?:[:=]|%3[adAD]){_SPACE_OR_CODE}{_QUOTE_OR_CODE}?"
        r"(?:(?:bearer|basic|token|apikey|key)(?:[ +]|%20){1,3})?|(?:[ +]|%20){1,3})[A-Za-z0-9._~+/%=-]{12}",
        rf"(?:(?<=n){QUOTE}?{_SPACE}[:=]{_SPACE}{QUOTE}?(?:(?:bearer|basic|token|apikey|key)[ ]{{1,3}})?|[ ]{{1,3}})"
        r"(?P<s>[A-Za-z0-9._~+/=-]{12,4000})",
        120,
        test="header",
        is_caseless=True,
    ),
    Rule(
        "connection-key",
        "Keys in Azure connection strings (`AccountKey=`, `SharedAccessKey=`) and signatures of shared addresses (`sig=`)",
        STRUCTURE,
        ("accountkey", "sharedaccesskey", "sig"),
        r"(?:=|%3d)[A-Za-z0-9+/%]{40}",
        r"=(?P<s>[A-Za-z0-9+/%]{40,100}={0,2})",
        60,
        is_caseless=True,
    ),
    Rule(
        "discord-token",
        "Discord bot tokens",
        STRUCTURE,
        (),
        f"(?:{_DIGITS_IN_BASE64}){{5}}",
        rf"{_WORD}{{23,28}}\.{_WORD}{{6}}\.{_WORD}{{27,45}}",
        20,
    ),
)  # fmt: skip

_BASE64_TEXT = Rule(
    "base64",
    "Any of these inside base64 that decodes to text",
    HIDDEN,
    (),
    rf"(?:^|[^A-Za-z0-9+/_-]|\\[nrtbf])(?:{_TEXT_IN_BASE64}){{5}}",
    r"[A-Za-z0-9+/_-]{20,}={0,2}",
    20,
    test="base64",
)

RULES = (
    *(*_TOKENS, *_STRUCTURES, _ASSIGNMENT, _DECLARATION, _FLAG, _SSHPASS, _CURL_USER, _SQL, _NETRC, _ENV_KEY),
    _BASE64_TEXT,
)

# Where percent signs may hide one of the above; the signs themselves are everywhere.
PERCENT = (
    rf"{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}%(?:2[027c]|3[ade]|5d|0[9ad])"
    r"|_key(?:%3[ad])|%3a%2f%2f|:%2f%2f|%40|%3aaa|q%7e|begin%20|(?:bearer|basic|authorization)(?:%20|%3a|%2[27])"
    r"|hooks\.slack\.com%2f|discord(?:app)?\.com%2fapi|(?:accountkey|sharedaccesskey|sig)%3d|1%2f%2f0|%2bac|%2bas"
    r"|sshpass%|identified%20by"
    r"|%(?:5f|2[de]|7e)[a-z0-9]{6}"  # `_-.~` need no percent sign; some programs write them with one
)

# A pair {"name": "API_KEY", "value": "…"}, of which the scanner sees the first half.
NAME_FIELDS = ("name", "key", "variable", "env")
VALUE_FIELDS = ("value", "val", "default")
NAMED = (
    rf"[ ]?:[ ]?\"[A-Za-z0-9_. -]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}\""  # what follows the name of the first
)
