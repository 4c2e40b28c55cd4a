"""Every published format is found, wherever and however it is written; what only looks like one stays."""

import base64
import random
import re
import time
import urllib.parse
from collections.abc import Callable

import orjson
import pytest

from recollect.redact import AHO_CORASICK, HYPERSCAN, RULES, RedactionRules, Redactor
from tests.faults.rig import IS_SOAK
from tests.planted import (
    CONTEXTS,
    DECOYS,
    KINDS,
    LAYOUTS,
    Planted,
    escaped,
    in_base64,
    in_colours,
    in_url,
    named_decoy,
    named_value,
    plant,
)

KEY = bytes(range(32))
TIMES = 12 if IS_SOAK else 4
_COLOUR = re.compile("\x1b\\[[0-9;]*[A-Za-z]")
_LINE_END = re.compile(r"\n|\\+n")


@pytest.fixture(scope="module", params=[HYPERSCAN, AHO_CORASICK])
def redactor(request: pytest.FixtureRequest) -> Redactor:
    return Redactor(RedactionRules(), KEY, request.param)


def survives(secret: str, text: str) -> bool:
    """Whether any 12 characters of a secret are still in a text; those of a key's first and last line are no secret."""
    lines = [line for line in _LINE_END.split(secret) if not line.startswith("-----")]
    return any(
        line[start : start + 12] in text for line in lines if line for start in range(0, max(1, len(line) - 11), 3)
    )


def _decoded(text: str) -> str:
    runs = [run for run in re.findall(r"[A-Za-z0-9+/]{8,}", text) if len(run) % 4 != 1]
    return " ".join(base64.b64decode(run + "=" * (-len(run) % 4)).decode("latin-1") for run in runs)


FORMS: dict[str, tuple[Callable[[Planted], str], Callable[[str], str]]] = {
    "plain": (lambda planted: planted.line, str),
    "JSON": (lambda planted: escaped(planted.line, 1), str),
    "JSON in JSON": (lambda planted: escaped(planted.line, 2), str),
    "JSON in JSON in JSON": (lambda planted: escaped(planted.line, 3), str),
    "colours": (lambda planted: in_colours(planted.line, planted.secret), lambda text: _COLOUR.sub("", text)),
    "base64": (lambda planted: in_base64(planted.line), _decoded),
    "address": (lambda planted: in_url(planted.line), urllib.parse.unquote),
    "difference": (lambda planted: "\n".join("+" + line for line in planted.line.split("\n")), str),
    "numbered": (
        lambda planted: "\n".join(f"{number:6}\t{line}" for number, line in enumerate(planted.line.split("\n"), 1)),
        str,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_found_in_every_form(redactor: Redactor, kind: str) -> None:
    for form, (write, read) in FORMS.items():
        draw = random.Random(f"{kind} {form}")
        for planted in (plant(draw, kind) for _ in range(TIMES)):
            text = redactor.text(write(planted))

            assert not survives(planted.secret, read(text)), (form, planted.line, text)
            assert "[REDACTED:" in text, form


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_named_value_is_found_in_every_layout(redactor: Redactor, layout: str) -> None:
    draw = random.Random(layout)

    for _ in range(TIMES):
        secret = named_value(draw)
        text = f"before\n{layout.replace('{}', secret)}\nafter"

        for times in range(3):
            assert not survives(escaped(secret, times), redactor.text(escaped(text, times))), text
        assert not survives(secret, redactor.payloads([orjson.dumps({"text": text})])[0].decode()), text


def test_values_that_are_no_secrets_stay_in_every_layout(redactor: Redactor) -> None:
    draw = random.Random(6)

    for decoy in (named_decoy(draw) for _ in range(2000)):
        assert redactor.text(decoy) == decoy


@pytest.mark.parametrize(
    "text",
    [
        "API key: f3Kd93kfQ02kd97bT",
        "PRIVATE_KEY=0x" + "4f3edf983ac636a65a842ce7c78d9aa706d3b113bce9c46f30d7d21715b23b1d",
        "SIGNER_KEY=0x" + "4f3edf983ac636a65a842ce7c78d9aa706d3b113bce9c46f30d7d21715b23b1d",
        "encryption_key: /KHY3PdokK13rxmBUDvK3vJHeHJNL3X/",
        "token = '/f/GVUI9dBGrb1bUHWDSO5XvWn76D9QW'",
        "password = 'hRyBhFohNQM='",
        "define('NONCE_SALT',       'k2|Wq(8v ,Zx%2Lm:T4w[sd9f{ 7gH3!jK5');",
        "RESEND=re_aB3dE6gH_9jK2mN5pQ8sT1vW4yZ7cF0iL",
    ],
)
def test_what_an_attacker_found_is_hidden(redactor: Redactor, text: str) -> None:
    assert "[REDACTED:" in redactor.text(text)
    assert redactor.payloads([orjson.dumps({"text": text})])


@pytest.mark.parametrize(
    "text",
    [
        "token: 0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
        "re_compiled_patternforsomething re_match2x_groups",
        "secret: /run/secrets/OAuth2Client/db2",
        "if token == 'STRING2' or password != 'field1': pass",
        "API key: required. Private key: ed25519",
        "if token._value is _NoValueSet.NO_VALUE_SET: the token is base64url-encoded",
        "names = [\n    'ssh2_auth_password',\n    'ssh2_auth_pubkey_file',\n    'X25519PublicKey',\n]",
        "from x import (\n    Ed448PrivateKey,\n    Ed448PublicKey,\n)\nkey: Ed25519PrivateKey|Ed25519PublicKey",
        "| test | pass | token |\n|---|---|---|\n| login_v2_flow | 12/14 | required |",
        "invalid token v2.local.name near password field2\ntoken v2024.11.3-rc1",
        'jwt.sign(payload, "HS256"); createHmac("sha256", "secret"); HEX_PAT = "[0-9A-F]{1,4}"',
        "password || 'undefined', token ?? 'none'",
        "t('WELCOME_KEY', 'Hello World, 2 new messages'); CACHE_KEY=Abc123Def456x",
        "4\t- 1Password\n5\t- x\n6\tSee `docs/SETUP-2.md` for:\n",
        '10\tfunction login(\n11\t  email,\n12\t  password\n13\t) {\n14\t  return fetch("/v1/login?x=2", {email})\n15\t}\n',  # noqa: E501
        "     1→  password,\n     2→  return post(`/v1/login?x=2`, {email}),\n",
        "secrets.py:7:import re\ntokens.ts-8-export:9\ncredentials.py:24:_URL_2 = 'https://x.test'",
        "First token: TTFT=1234ms, secret: `ACCOUNT_SID=AC1a2b3c4d5e6f7a8b9c0d1e`",
        "password_encryption = scram-sha-256\ntoken_algorithm: RS-256-pss2\nsecret_namespace='oauth2:secrets#ns1'",
        "Set `ACME_API_KEY`, `ACME_CHAT_MODEL=acme-4.6-air` and `ACME_PUBLISHABLE_KEY=pk_acme_51NzQr3LkH8mPqR3nT5w`",
        "x{Tokens: &acme.TokenUsage{}, RedactSecrets: !noRedactSecrets2, Secret: *resp.JSON200.Key, APIKey: AcmeAPIKey}",  # noqa: E501
        'b := []byte("secret: "+highEntropySecret2), "S3_ACCESS_KEY="+utils.Config.S3AccessKey2,',
        "credentials._private_key_pkcs12 = pkcs12_val\n{'private_key': self._key_pkcs8_pem, 'secretKey': secretKey1}",
        '| Shadow branch | PASS (`acme/a23136d`) |\n- All tests pass: `make test -- -run "TestOne|TestTwo2"`',
        "branch.20260206-secrets-redaction.merge=refs/heads/20260206-secrets-redaction",
        'url = "postgres://user:(password|pass)@host"; s#(postgres://[^:]+:)[^@]+@#x#; http://userName:userPassword@10.0.0.1',
        "login / password\nutils.py:243: login_i = 0; ${DB_PASSWORD:?DB_PASSWORD must be set}; secret = `test-key-2-${v4()}`",  # noqa: E501
        'credentials.with_quota_project(\'myproject-123\'); "password_forgot": "Forgot Password?"',
        "docker build --secret id=API_TOKEN . && docker service update --secret-add source=ssh-2,target=ssh-2",
        "authMechanismProperties=ENVIRONMENT:azure,TOKEN_RESOURCE:abcd%25ef%3Ag%26hi",
        "isEmail: {\n  fail: 'a',\n  pass: 'abc@abc.com',\n}\n'@inquirer/password': 'npm:^4.0.23'",
        "module.exports.PassThrough = CollectPassThrough\ntokenGenerator = OAuth2ConfigurerUtils\n.getTokenGenerator()",
        'ENV["SMTP_PASSWORD"] = @previous_password\nsecret = @old_secret\npassword: @user.password)',
        "secret: '%env(string:APP_SECRET)%'\n'password' => 'required|min:8|confirmed'\npassword = '%s:cert=%s'",
        'this.credentials=r.credentials||this.credentials;"password"===e.type;x.tokenTable=t.tokenTable?new T',
        "gshared.PrivateKeySignerPyWrapper::~PrivateKeySignerPyWrapper() TOKEN = DataType::TOKEN;",
        "lastTieToken: ABCTie|None = None\ndef setBearerToken(self, token: QtCore.QByteArray|bytes) -> None: ...",
        'assert _looks_like_secret("507f1f77bcf86cd799439011"); normalize_token_spacing("foo(a=bar.baz[1:])")',
        'password2 = local_tree_pass2\nself.validate_passwords("new_password1", "new_password2")',
        'TOKEN_MALFORMED_SD_JWT = "TokenMalformedSdJwt"\n(".api_keys", "AsyncAPIKeysWithStreamingResponse")',
        '<x publicKeyToken="1fc8b3b9a1e18e3b">\narn:aws:secretsmanager:us-west-2:123456789012:secret:DbLogin-a1b2c3',
        "OAuth2Authorization foundAuthorization1 = this.service.find(x)\nhttp_proxy=[protocol://][user[:password]@]host",
        '--set-secrets=/secrets/secret_foo=SECRET_FOO:latest\nTENSOR_PW1: "a.blk.{bid}.conv_pw1"',
    ],
)
def test_what_looks_like_it_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text


@pytest.mark.parametrize("kind", [kind for kind, make in KINDS.items() if make(random.Random(1))[1] is None])
def test_a_token_ends_where_its_characters_do(redactor: Redactor, kind: str) -> None:
    for context in CONTEXTS:
        before, _, after = context.partition("{}")
        secret, line = KINDS[kind](random.Random(context))
        if line is not None or secret.startswith("https:"):
            continue

        text = redactor.text(context.replace("{}", secret))

        mark = re.escape(before) + r"\[REDACTED:[a-z0-9-]+:[0-9a-f]{8}\]" + re.escape(after)
        assert re.fullmatch(mark, text), context


@pytest.mark.parametrize("number", range(len(DECOYS)))
def test_what_only_looks_like_a_secret_stays(redactor: Redactor, number: int) -> None:
    draw = random.Random(number)

    for _ in range(TIMES):
        decoy = DECOYS[number](draw)
        for text in (decoy, f"before\n{decoy}\nafter", escaped(decoy, 1), in_url(decoy), in_base64(decoy)):
            assert redactor.text(text) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('password = "hunter2"', "hunter2"),
        ("DB_PASS=Tr0ub4dor&3", "Tr0ub4dor&3"),
        ("https://ci-bot:9sd8f7s9d8f7@git.test/x.git", "9sd8f7s9d8f7"),
        ("?access_token=f3Kd93kfQ02kd97bT&page=2", "f3Kd93kfQ02kd97bT"),
        ("sshpass -p 'S3cr3t!pw' ssh host", "S3cr3t!pw"),
        ("setPassword(\"gX8#kk2!\")", "gX8#kk2!"),
        ("password: &quot;gX8#kk2!&quot;", "gX8#kk2!"),
        ("Pwd=gX8#kk2!;Database=x", "gX8#kk2!"),
    ],
)  # fmt: skip
def test_a_secret_is_taken_whole_and_nothing_else(redactor: Redactor, text: str, secret: str) -> None:
    found = redactor.text(text)

    assert secret not in found
    assert found.startswith(text[:3])


def test_a_private_key_that_is_cut_off_is_taken_to_its_end(redactor: Redactor) -> None:
    lines = plant(random.Random(8), "private-key").secret.split("\n")

    found = redactor.text("\n".join(["see", *lines[:2], "and so on"]))

    assert re.fullmatch(r"see\n\[REDACTED:private-key:\w{8}\]\nand so on", found)


def test_what_follows_a_parameter_of_an_address_stays(redactor: Redactor) -> None:
    assert redactor.text("?access_token=f3Kd93kfQ02kd97bT&page=2").endswith("&page=2")


@pytest.mark.parametrize(
    "name",
    ["/home/me/project/tokens/secret_key.py", "feature/password-reset-v2", "toolu_01A09q90qw90lq917835lq9"],
)
def test_names_and_paths_stay(redactor: Redactor, name: str) -> None:
    assert redactor.functional(name) == name


def test_a_token_in_a_path_or_remote_is_replaced(redactor: Redactor) -> None:
    token = plant(random.Random(3), "github").secret

    found = redactor.functional(f"https://x-access-token:{token}@github.test/o/r.git")

    assert token not in found
    assert found.endswith("@github.test/o/r.git")


def test_assignments_are_no_matter_of_names(redactor: Redactor) -> None:
    assert redactor.functional("password=hunter2hunter2") == "password=hunter2hunter2"


def test_every_rule_of_the_list_has_words_for_the_docs() -> None:
    assert all(rule.finds and rule.name for rule in RULES)


def test_no_value_takes_long(redactor: Redactor) -> None:
    ends = ("1!", "!", "?")
    values = [part * 100 + end for part in ("abc-", "Abc", "a.b", "*a", "x_", "a|", "%s", "{a", "aaa") for end in ends]
    begun = time.process_time()

    redactor.text("\n".join(f'password = "{value}"\npassword: {value}' for value in values))

    assert time.process_time() - begun < 2
