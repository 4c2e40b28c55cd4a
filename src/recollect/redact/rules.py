"""The published list: what each secret looks like, and where a scan may begin to look for it.

A rule is matched in two steps. A scanner looks for one of its `openers` followed by `least`, over whole blocks; then
Python's `re` matches the opener and `rest` at that offset, and a check of the value decides. A distinctive opener needs
no word boundary before it: in logs that byte is often the `n` of an escaped newline or the `m` of a colour.

`least` uses only syntax that Hyperscan and `re` share, and matches wherever `rest` does, both in the text and in the
same text as a JSON string. So it names no byte that JSON escapes, except behind backslashes.

Beside the published rules it has the user's own, and the texts they allow to stay.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from recollect.model.errors import BadConfig
from recollect.redact.named import COMMANDS, INNER_FIELDS, NAMED_VALUES
from recollect.redact.scanners import (
    ANY_KEYWORD,
    HIDDEN,
    PREFIX,
    QUOTE,
    QUOTE_OR_CODE,
    SPACE,
    SPACE_OR_CODE,
    STRUCTURE,
    Lead,
    Rule,
)

_ALNUM = "[A-Za-z0-9]"
_WORD = "[A-Za-z0-9_-]"
_DOTTED = "[A-Za-z0-9_.-]"
_HEX = "[0-9a-f]"
_BASE64 = "[A-Za-z0-9+/]"


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
    """An opener and a run of characters; without `most`, the run has exactly the least length."""
    words = tuple(openers.split())
    run = f"{characters}{{{least},{most}}}{end}" if most else f"{characters}{{{least}}}{end}(?!{characters})"
    reach = max(map(len, words)) + least
    return Rule(
        name, finds, PREFIX, words, f"{characters}{{{least}}}", run, reach,
        lead=lead, is_guarded=guarded, needs_digit=needs_digit,
    )  # fmt: skip


TOKENS = (
    _token("aws-access-key-id", "AWS access key ids (`AKIA…`, `ASIA…`)", "AKIA ASIA ABIA ACCA", "[A-Z2-7]", 16),
    _token("github-token", "GitHub tokens (`ghp_`, `gho_`, `ghu_`, `ghs_`, `ghr_`)", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 30, 255),
    _token("github-fine-grained", "GitHub fine-grained tokens (`github_pat_`)", "github_pat_", "[A-Za-z0-9_]", 30, 255),
    _token("gitlab-token", "GitLab tokens (`glpat-`, `gldt-`, `glrt-`, `glptt-`, `glsoat-`, `glcbt-`, `glimt-`, `glft-`, `glagent-`, `gloas-`, `glffct-`)", "glpat- gldt- glrt- glptt- glsoat- glcbt- glimt- glft- glagent- gloas- glffct-", _DOTTED, 16, 300),
    _token("gitlab-runner", "GitLab runner registration tokens (`GR1348941…`)", "GR1348941", _WORD, 20, 40),
    _token("openai", "OpenAI keys of projects, service accounts, admins (`sk-proj-` …)", "sk-proj- sk-svcacct- sk-admin- sk-None-", _WORD, 20, 300),
    _token("openai", "OpenAI keys that contain `T3BlbkFJ`", "T3BlbkFJ", _WORD, 20, 160, lead=Lead(_WORD, 20, 180, "sk-")),
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
    _token("slack-webhook", "Slack webhook addresses", "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/", "[A-Za-z0-9+/]", 20, 140),
    _token("discord-webhook", "Discord webhook addresses", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", "[A-Za-z0-9_/-]", 60, 140),
    _token("stripe", "Stripe keys (`sk_live_`, `rk_live_`, `sk_test_`, `rk_test_`)", "sk_live_ rk_live_ sk_test_ rk_test_ sk_prod_ rk_prod_", _ALNUM, 10, 250),
    _token("webhook-secret", "Webhook signing secrets (`whsec_`)", "whsec_", "[A-Za-z0-9+/=]", 24, 100),
    _token("google-api-key", "Google API keys (`AIza…`)", "AIza", _WORD, 35, end="(?![+/])"),
    _token("google-oauth", "Google OAuth tokens and client secrets (`ya29.`, `GOCSPX-`)", "ya29. GOCSPX-", _DOTTED, 20, 2000),
    _token("google-refresh-token", "Google refresh tokens (`1//0…`)", "1//0", _WORD, 36, 200, guarded=True, needs_digit=True, end="(?![A-Za-z0-9_+/=-])"),
    _token("npm-token", "npm tokens (`npm_`)", "npm_", _ALNUM, 36, 80),
    Rule("resend", "Resend keys (`re_…_…`)", PREFIX, ("re_",), f"{_ALNUM}{{8}}_{_ALNUM}{{16}}", rf"{_ALNUM}{{8}}_[A-Za-z0-9_]{{16,48}}", 28, is_guarded=True, needs_digit=True),
    _token("pypi-token", "PyPI tokens (`pypi-AgE…`)", "pypi-AgE", _WORD, 40, 2000),
    _token("sendgrid", "SendGrid keys (`SG.`)", "SG.", _WORD, 16, 32, end=rf"\.{_WORD}{{32,64}}"),
    _token("twilio", "Twilio API keys (`SK` and 32 hexadecimal digits)", "SK", _HEX, 32, guarded=True),
    _token("telegram-bot", "Telegram bot tokens (digits, then `:AA…`)", ":AA", _WORD, 32, 35, lead=Lead("[0-9]", 8, 10)),
    _token("azure-secret", "Microsoft Entra (Azure AD) client secrets (`…Q~…`)", "0Q~ 1Q~ 2Q~ 3Q~ 4Q~ 5Q~ 6Q~ 7Q~ 8Q~ 9Q~", "[A-Za-z0-9_~.-]", 31, 36, lead=Lead("[A-Za-z0-9_~.-]", 3, 3)),
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
    Rule(
        "password-hash",
        "Hashes of passwords: bcrypt (`$2b$…`), Argon2 (`$argon2id$…`), SHA-512 of `crypt` (`$6$…`)",
        PREFIX,
        ("$2a$", "$2b$", "$2y$", "$argon2id$", "$argon2i$", "$6$"),
        r"[A-Za-z0-9=,.$/+]{50}",
        r"(?:(?<=\$2[aby]\$)[0-9]{2}\$[A-Za-z0-9./]{53}|(?<=i\$|d\$)v=[0-9]+\$[a-z0-9=,]{5,40}\$[A-Za-z0-9+/]{8,90}\$[A-Za-z0-9+/]{20,180}"
        r"|(?<=\$6\$)(?:rounds=[0-9]{1,9}\$)?[A-Za-z0-9./]{1,16}\$[A-Za-z0-9./]{86})",
        62,
    ),
    _token("jwt", "JSON web tokens (`eyJ….eyJ….…`)", ".eyJ", _WORD, 8, 16000, lead=Lead(_WORD, 8, 4000, "eyJ"), end=rf"(?:\.{_WORD}{{4,4000}})?"),
)  # fmt: skip

_LEAST_OPENER = 3
_MOST_CHARS = 5000  # more than any token has
_OPENERS = sorted({word for rule in TOKENS for word in rule.openers if len(word) >= _LEAST_OPENER}, key=len)
# A few characters of a token are worth nothing; a run of small letters is a word.
_BEGINNING = re.compile(
    rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, reversed(_OPENERS)))})(?=\S*[A-Z0-9])[A-Za-z0-9_.~+/=-]{{8,}}\Z"
)


def find_beginning(text: str) -> str | None:
    """What may be the beginning of a token at the end of a text that is still being written."""
    match = _BEGINNING.search(text[-_MOST_CHARS:])
    return match[0] if match else None


VERSION = 11  # of this list; a store records which one it was redacted with

_BASE64_URL = "[A-Za-z0-9_-]"
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
        rf"{_BASE64_URL}{{23,28}}\.{_BASE64_URL}{{6}}\.{_BASE64_URL}{{27,45}}",
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


_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_LEAST_LITERAL = 3


@dataclass(frozen=True, slots=True)
class RedactionRules:
    """`rules` maps names to regular expressions: the group `secret`, the first group or the whole match is replaced.

    `allow` lists texts that are never replaced; between slashes, a regular expression for a whole secret.
    """

    rules: Mapping[str, str] = field(default_factory=dict)
    allow: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with the rules."""
        content = repr((sorted(self.rules.items()), sorted(self.allow)))
        return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


class UserRule:
    """A compiled rule, and a word that is part of every match, if the expression has one."""

    def __init__(self, name: str, pattern: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadConfig(f"Invalid name for a redaction rule: {name}", "use lower-case letters, digits and dashes")
        self.name = name
        self.pattern = compiled(pattern, f"redact.rules.{name}")
        if self.pattern.search(""):
            raise BadConfig(f"Redaction rule matches the empty text: {name}", "make it require at least one character")
        self.literal = required_literal(pattern)
        groups = self.pattern.groupindex
        self.group = groups.get("secret", min(1, self.pattern.groups))


class AllowList:
    """The texts that stay."""

    def __init__(self, allow: tuple[str, ...]) -> None:
        self._texts = frozenset(text.encode() for text in allow if not _is_expression(text))
        expressions = [text[1:-1] for text in allow if _is_expression(text)]
        self._patterns = [compiled(pattern, "redact.allow") for pattern in expressions]

    def has(self, secret: bytes) -> bool:
        if secret in self._texts:
            return True
        return any(pattern.fullmatch(secret.decode("utf-8", "replace")) for pattern in self._patterns)


def _is_expression(text: str) -> bool:
    return len(text) > 2 and text[0] == text[-1] == "/"


def compiled(pattern: str, setting: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadConfig(f"Invalid regular expression in `{setting}` ({error}): {pattern}") from error


def required_literal(pattern: str) -> str | None:
    """The longest plain word that is part of every match, in lower case; None if there is none.

    Only characters that JSON writes as they are count, so that the word can be searched for in JSON too.
    """
    from re import _parser  # type: ignore[attr-defined]

    best = max(_words(_parser.parse(pattern)), key=len, default="")
    return best if len(best) >= _LEAST_LITERAL else None


def _words(nodes: object) -> list[str]:
    words, word = [], ""
    for kind, value in nodes:  # type: ignore[attr-defined]
        name = str(kind)
        if name == "LITERAL" and 32 < value < 127 and chr(value) not in '"\\/':
            word += chr(value).lower()
            continue
        words.append(word)
        word = ""
        if name == "SUBPATTERN":
            words += _words(value[3])
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] > 0:
            words += _words(value[2])
    return [*words, word]
