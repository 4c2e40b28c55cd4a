"""Secrets made up at random in the published formats, the lines they stand in, and what only looks like them."""

import base64
import json
import random
import string
import urllib.parse
import uuid
from collections.abc import Callable
from dataclasses import dataclass

LETTERS = string.ascii_letters
ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "_-"
HEX = "0123456789abcdef"
LOWER = string.ascii_lowercase + string.digits
BASE32 = string.ascii_uppercase + "234567"
NAMES = ("amber", "basalt", "cedar", "dune", "estuary", "fjord", "glacier", "heron", "isthmus", "jasmine", "lagoon")
SCHEMES = ("postgres", "postgresql", "mysql", "mongodb+srv", "redis", "rediss", "amqp", "postgresql+psycopg", "mariadb")

QUOTES_AND_BLANKS = "\"'`\\ "

Draw = random.Random
Secret = tuple[str, str | None]  # the secret, and the line it stands in if it must stand in one


def _some(draw: Draw, characters: str, least: int, most: int | None = None) -> str:
    return "".join(draw.choices(characters, k=draw.randint(least, most or least)))


def _base64(draw: Draw, count: int) -> str:
    return base64.b64encode(draw.randbytes(count)).decode()


def password(draw: Draw) -> str:
    """As a generator makes them, and as people do."""
    style = draw.randrange(3)
    if style == 0:
        return _some(draw, ALNUM + "!#%*+-=?@^_", 12, 24)
    if style == 1:
        return _some(draw, ALNUM, 14, 32)
    return f"{draw.choice(NAMES).title()}{draw.choice('!#%*?')}{draw.randrange(100, 99999)}{draw.choice(NAMES)}"


def _token(prefix: str, characters: str, least: int, most: int | None = None) -> Callable[[Draw], Secret]:
    return lambda draw: (prefix + _some(draw, characters, least, most), None)


def _either(*makers: Callable[[Draw], Secret]) -> Callable[[Draw], Secret]:
    return lambda draw: draw.choice(makers)(draw)


def _lines(value: Callable[[Draw], str], *lines: str) -> Callable[[Draw], Secret]:
    def make(draw: Draw) -> Secret:
        secret = value(draw)
        return secret, draw.choice(lines).replace("{}", secret)

    return make


def _jwt(draw: Draw) -> Secret:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = part({"alg": draw.choice(["HS256", "RS256", "ES384"]), "typ": "JWT"})
    body = part({"sub": str(draw.getrandbits(64)), "exp": draw.randrange(2 * 10**9), "name": draw.choice(NAMES)})
    return f"{head}.{body}.{_some(draw, WORD, 43, 342)}", None


def _private_key(draw: Draw) -> Secret:
    name = draw.choice(["RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED ", "DSA "]) + "PRIVATE KEY"
    body = _base64(draw, draw.choice([118, 420, 1200]))
    lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
    key = f"-----BEGIN {name}-----\n{lines}\n-----END {name}-----"
    return key, key


def _service_account(draw: Draw) -> Secret:
    key = _private_key(draw)[0] + "\n"
    told = {"type": "service_account", "project_id": "meadow-1", "private_key": key, "client_email": "x@y.iam.test"}
    return json.dumps(key)[1:-1], json.dumps(told, indent=draw.choice([None, 2]))


def _discord(draw: Draw) -> Secret:
    user = base64.b64encode(_some(draw, string.digits[1:], 18, 19).encode()).decode().rstrip("=")
    return f"{user}.{_some(draw, WORD, 6)}.{_some(draw, WORD, 27, 38)}", None


def _database_url(draw: Draw) -> Secret:
    scheme = draw.choice(SCHEMES)
    user = "" if scheme.startswith("redis") else draw.choice(["app", "orders_rw", "root", "svc-billing"])
    secret = _some(draw, ALNUM + "-._~!*", 10, 24)
    return secret, f"{scheme}://{user}:{secret}@{draw.choice(['db.internal:5432', 'localhost', '10.1.2.3:6379'])}/app"


def _odd_password(draw: Draw) -> Secret:
    """One with a quote, a backslash, a backtick or a blank in it, as JSON writes it."""
    secret = f"{_some(draw, ALNUM, 0, 6)}7{draw.choice(QUOTES_AND_BLANKS)}{_some(draw, ALNUM, 12, 16)}Kq8v"
    name = draw.choice(["password", "dbPassword", "client_secret"])
    return json.dumps(secret)[1:-1], json.dumps({"user": "app", name: secret})


def _basic(draw: Draw) -> Secret:
    secret = base64.b64encode(f"svc:{_some(draw, ALNUM, 12, 20)}".encode()).decode()
    return secret, f"curl -H 'Authorization: Basic {secret}' https://api.internal/v2"


def _registry(draw: Draw) -> Secret:
    secret = base64.b64encode(f"deploy:{_some(draw, ALNUM, 12, 30)}".encode()).decode()
    lines = (
        '{"auths": {"registry.test": {"auth": "{}"}}}',
        "//registry.test/:_auth={}",
        '_auth = "{}"',
        'npmAuthIdent: "{}"',
    )
    return secret, draw.choice(lines).replace("{}", secret)


def _cookie_value(draw: Draw) -> str:
    return draw.choice(
        (_some(draw, ALNUM, 24, 40), _some(draw, HEX, 32), f"s%3A{_some(draw, ALNUM, 32)}.{_some(draw, ALNUM, 43)}")
    )


KINDS: dict[str, Callable[[Draw], Secret]] = {
    "aws-key-id": _either(_token("AKIA", BASE32, 16), _token("ASIA", BASE32, 16)),
    "aws-secret": _lines(
        lambda draw: _some(draw, ALNUM + "/+", 40),
        "aws_secret_access_key = {}",
        "export AWS_SECRET_ACCESS_KEY={}",
        '"SecretAccessKey": "{}"',
    ),
    "github": _either(*(_token(prefix, ALNUM, 36) for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"))),
    "github-fine-grained": lambda draw: (f"github_pat_{_some(draw, ALNUM, 22)}_{_some(draw, ALNUM, 59)}", None),
    "gitlab": _either(_token("glpat-", WORD, 20), _token("gldt-", WORD, 20), _token("glrt-", WORD, 20)),
    "openai": _either(
        lambda draw: (f"sk-proj-{_some(draw, WORD, 74)}T3BlbkFJ{_some(draw, WORD, 74)}", None),
        lambda draw: (f"sk-{_some(draw, ALNUM, 20)}T3BlbkFJ{_some(draw, ALNUM, 20)}", None),
        _token("sk-svcacct-", WORD, 100),
    ),
    "anthropic": _either(
        *(_token(f"sk-ant-{kind}-", WORD, 95) for kind in ("api03", "oat01", "ort01", "admin01", "sid01"))
    ),
    "xai": _token("xai-", ALNUM, 80),
    "google-api-key": _token("AIza", WORD, 35),
    "google-oauth": _either(_token("ya29.", WORD, 100, 200), _token("GOCSPX-", WORD, 28)),
    "gcp-service-account": _service_account,
    "google-refresh": _token("1//0", WORD, 99),
    "azure-secret": lambda draw: (
        f"{_some(draw, ALNUM, 3)}{draw.randrange(10)}Q~{_some(draw, ALNUM + '_~.-', 31)}{_some(draw, ALNUM, 3)}",
        None,
    ),
    "azure-devops": lambda draw: (f"{_some(draw, ALNUM, 76)}AZDO{_some(draw, ALNUM, 4)}", None),
    "azure-registry": lambda draw: (f"{_some(draw, ALNUM + '+/', 42)}+ACR{_some(draw, ALNUM, 6)}", None),
    "azure-storage": _lines(
        lambda draw: _base64(draw, 64), "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=y.net"
    ),
    "slack": _either(
        lambda draw: (f"xoxb-{_some(draw, string.digits, 12)}-{_some(draw, string.digits, 13)}-{_some(draw, ALNUM, 24)}", None),
        _token("xapp-1-A0", ALNUM, 60),
        lambda draw: (f"https://hooks.slack.com/services/T{_some(draw, BASE32, 9)}/B{_some(draw, BASE32, 9)}/{_some(draw, ALNUM, 24)}", None),
    ),
    "stripe": _either(*(_token(prefix, ALNUM, 24, 99) for prefix in ("sk_live_", "rk_live_", "sk_test_", "whsec_"))),
    "twilio": _either(
        _token("SK", HEX, 32),
        _lines(lambda draw: _some(draw, HEX, 32), "TWILIO_AUTH_TOKEN={}", "twilio_auth_token: '{}'"),
    ),
    "sendgrid": lambda draw: (f"SG.{_some(draw, WORD, 22)}.{_some(draw, WORD, 43)}", None),
    "npm": _token("npm_", ALNUM, 36),
    "resend": lambda draw: (f"re_{_some(draw, ALNUM, 7)}7_{_some(draw, ALNUM, 24)}", None),
    "pypi": _token("pypi-AgEIcHlwaS5vcmc", WORD, 120, 180),
    "hugging-face": _token("hf_", LETTERS, 34),
    "telegram": lambda draw: (f"{_some(draw, '123456789', 9, 10)}:AA{_some(draw, WORD, 33)}", None),
    "discord": _discord,
    "database-url": _database_url,
    "bearer": _lines(
        lambda draw: draw.choice([_some(draw, ALNUM, 32, 64), _some(draw, HEX, 40)]),
        "Authorization: Bearer {}",
        'curl -H "Authorization: Bearer {}" https://api.internal',
        "{'Authorization': 'token {}'}",
        'headers["X-Api-Key"] = "{}"',
    ),
    "basic": _basic,
    "private-key": _private_key,
    "jwt": _jwt,
    "env-line": _lines(
        lambda draw: draw.choice([password(draw), _some(draw, HEX, 48), _base64(draw, 24)]),
        "DB_PASSWORD={}",
        "export SESSION_SECRET='{}'",
        'DJANGO_SECRET_KEY="{}"',
        "SMTP_PASS={}",
        "ACME_API_KEY={}",
        "INTERNAL_AUTH_TOKEN={}",
        "ENCRYPTION_KEY={}",
    ),
    "password": _lines(
        password,
        'password = "{}"',
        "passwd: '{}'",
        '"password": "{}",',
        "connect(user='root', password='{}')",
        "--password={}",
        "mysqldump --password {} shop",
        "client_secret: {}",
        'const apiSecret = "{}";',
        "<password>{}</password>",
        'db_password: str = "{}"',
        "Server=db;User Id=sa;Password={};Encrypt=yes",
    ),
    "digitalocean": _token("dop_v1_", HEX, 64),
    "groq": _token("gsk_", ALNUM, 52),
    "openrouter": _token("sk-or-v1-", HEX, 64),
    "vault": _token("hvs.", WORD, 90),
    "linear": _token("lin_api_", ALNUM, 40),
    "shopify": _token("shpat_", HEX, 32),
    "databricks": _token("dapi", HEX, 32),
    "docker": _token("dckr_pat_", WORD, 27),
    "grafana": _token("glsa_", ALNUM, 41),
    "mailgun": _token("key-", HEX, 32),
    "tailscale": _token("tskey-auth-", ALNUM, 30),
    "gitlab-others": _either(*(_token(prefix, WORD, 20, 26) for prefix in ("glptt-", "glsoat-", "glcbt-64_", "glimt-", "glft-", "glagent-", "gloas-", "glffct-"))),
    "gitlab-runner": _token("GR1348941", WORD, 20),
    "perplexity": _token("pplx-", ALNUM, 48),
    "cerebras": _token("csk-", LOWER, 48),
    "replicate": _token("r8_", ALNUM, 37),
    "sk-key": _either(_token("sk-", HEX, 32), _token("sk-", ALNUM, 48)),
    "discord-webhook": lambda draw: (f"https://discord.com/api/webhooks/{_some(draw, '123456789', 18, 19)}/{_some(draw, WORD, 68)}", None),
    "azure-storage-key": lambda draw: (f"{_some(draw, ALNUM + '+/', 76)}+ASt{_some(draw, ALNUM, 6)}==", None),
    "alibaba": _token("LTAI5t", ALNUM, 18),
    "heroku": _token("HRKU-AA", WORD, 58),
    "netlify": _token("nfp_", ALNUM, 36),
    "fly-io": _either(_token("fm2_", ALNUM + "+/", 200, 600), _token("fo1_", WORD, 43)),
    "cloudflare-ca": lambda draw: (f"v1.0-{_some(draw, HEX, 24)}-{_some(draw, HEX, 146)}", None),
    "terraform-cloud": lambda draw: (f"{_some(draw, ALNUM, 14)}.atlasv1.{_some(draw, WORD, 67)}", None),
    "doppler": _either(_token("dp.pt.", ALNUM, 43), _token("dp.st.dev.", ALNUM, 43)),
    "pulumi": _token("pul-", HEX, 40),
    "sentry": _either(_token("sntryu_", HEX, 64), _token("sntrys_eyJ", ALNUM, 100, 160)),
    "new-relic": _either(_token("NRAK-", string.ascii_uppercase + string.digits, 27), _token("NRJS-", HEX, 19), _token("NRII-", WORD, 32)),
    "notion": lambda draw: (f"ntn_{_some(draw, string.digits, 11)}{_some(draw, ALNUM, 35)}", None),
    "figma": _token("figd_", WORD, 40),
    "airtable": lambda draw: (f"pat{_some(draw, ALNUM, 14)}.{_some(draw, HEX, 64)}", None),
    "atlassian": _either(lambda draw: (f"ATATT3xFfGF0{_some(draw, WORD, 170)}={_some(draw, HEX.upper(), 8)}", None), _token("ATBB", ALNUM, 32)),
    "square": _either(_token("sq0atp-", WORD, 22), _token("sq0csp-", WORD, 43)),
    "postman": lambda draw: (f"PMAK-{_some(draw, HEX, 24)}-{_some(draw, HEX, 34)}", None),
    "planetscale": _either(_token("pscale_tkn_", WORD, 43), _token("pscale_pw_", WORD, 43)),
    "supabase": _either(_token("sbp_", HEX, 40), lambda draw: (f"sb_secret_{_some(draw, WORD, 22)}_{_some(draw, ALNUM, 8)}", None)),
    "rubygems": _token("rubygems_", HEX, 48),
    "crates-io": _token("cio", ALNUM, 32),
    "nvidia": _token("nvapi-", WORD, 64),
    "sourcegraph": _either(_token("sgp_", HEX, 40), lambda draw: (f"sgp_{_some(draw, HEX, 16)}_{_some(draw, HEX, 40)}", None)),
    "brevo": lambda draw: (f"xkeysib-{_some(draw, HEX, 64)}-{_some(draw, ALNUM, 16)}", None),
    "dynatrace": lambda draw: (f"dt0c01.{_some(draw, BASE32, 24)}.{_some(draw, BASE32, 64)}", None),
    "onepassword": _token("ops_eyJ", ALNUM, 300, 700),
    "contentful": _token("CFPAT-", WORD, 43),
    "age-key": _token("AGE-SECRET-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "connection-key": _lines(lambda draw: _base64(draw, 32), "Endpoint=sb://x.test/;SharedAccessKeyName=root;SharedAccessKey={}"),
    "shared-address": _lines(
        lambda draw: _base64(draw, 32).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
        "https://x.blob.core.windows.net/box/a.zip?sv=2024-11-04&sr=b&sig={}&se=2027-01-01",
    ),
    "environment-key": _lines(lambda draw: _some(draw, ALNUM, 32, 48), "MAPS_KEY={}", 'export SIGNUP_KEY="{}"'),
    "ssh-password": _lines(password, "sshpass -p '{}' ssh root@host"),
    "curl-user": _lines(
        password, "curl -s -u deploy:{} https://ci.example.com/api", "curl --user 'admin@corp.example:{}' http://localhost:8080"
    ),
    "arguments": _lines(
        password,
        '{"command":["mysql","--password","{}","shop"]}',
        '{"command": ["sshpass", "-p", "{}", "ssh", "h"]}',
        "run(['psql', '--db-password', '{}'])",
    ),
    "program-flag": _lines(
        password,
        "mysql -h db.test -u root -p{} shop",
        "docker exec -i db mysqldump -uroot -p'{}' shop > /tmp/shop.sql",
        "mariadb \\\n  --host=db.test \\\n  -p{} shop",
        "docker login -u ci -p {} registry.test",
        "podman login registry.test --username ci -p '{}'",
        "az login --service-principal -u http://ci -p {} --tenant t",
        "twine upload -u __token__ -p {} dist/*",
        "mongosh db.test -u admin -p '{}' --authenticationDatabase admin",
        "redis-cli -h cache.test -a {} ping",
        'ldapsearch -x -D "cn=admin,dc=x" -w {} -b dc=x',
        "gh secret set DEPLOY --body '{}' --repo o/r",
        "az keyvault secret set --vault-name v --name n --value {}",
    ),
    "program-arguments": _lines(
        password,
        '["mysql", "-uroot", "-p{}", "shop"]',
        '{"command":["docker","login","-u","ci","-p","{}"]}',
        "run(['redis-cli', '-a', '{}'])",
        '["curl", "-s", "-u", "deploy:{}", "https://ci.test"]',
        '["keytool", "-list", "-storepass", "{}"]',
        '["gh", "secret", "set", "DEPLOY", "--body", "{}"]',
        '["openssl", "rsa", "-passin", "pass:{}"]',
        '[\n  "redis-cli",\n  "-a",\n  "{}"\n]',
    ),
    "option": _lines(
        password,
        "keytool -genkeypair -storepass {} -alias a",
        "keytool -list -keypass '{}'",
        "plink -ssh -pw {} me@host",
        "New-Thing -Password '{}' -Force",
        "openssl rsa -in k.pem -passin pass:{} -out x.pem",
        'openssl enc -aes-256-cbc -pass "pass:{}"',
        "requirepass {}",
        "ConvertTo-SecureString '{}' -AsPlainText -Force",
        "wget --http-user=a --http-password {} https://x.test",
    ),
    "piped": _lines(
        password,
        "echo '{}' | docker login -u ci --password-stdin",
        "echo {} | sudo -S true",
        "printf '%s' \"{}\" | gh secret set DEPLOY",
    ),
    "set": _lines(
        password,
        "setx DB_PASSWORD {}",
        'setx /M DB_PASSWORD "{}"',
        "set -gx DB_PASSWORD '{}'",
        "npm config set db.password {}",
    ),
    "registry-auth": _registry,
    "session-cookie": _lines(
        _cookie_value,
        "Cookie: theme=dark; sessionid={}; lang=en",
        "< Set-Cookie: connect.sid={}; Path=/; HttpOnly",
        "curl -s -b 'JSESSIONID={}' https://x.test",
        'curl --cookie "lang=en; auth={}" https://x.test',
        'cookies = {"PHPSESSID": "{}"}',
        '{"headers": {"Cookie": "a=b; _session={}"}}',
    ),
    "password-hash": _either(
        lambda draw: (f"$2{draw.choice('aby')}$12${_some(draw, ALNUM + './', 53)}", None),
        lambda draw: (f"$argon2id$v=19$m=65536,t=3,p=4${_some(draw, ALNUM + '+/', 22)}${_some(draw, ALNUM + '+/', 43)}", None),
        lambda draw: (f"$6${_some(draw, ALNUM, 16)}${_some(draw, ALNUM + './', 86)}", None),
    ),
    "terraform": _lines(
        password,
        'variable "db_password" {\n  type    = string\n  default = "{}"\n}',
        'variable "admin_password" { default = "{}" }',
    ),
    "xml": _lines(
        password,
        '<add key="DbPassword" value="{}"/>',
        '<password type="plain">{}</password>',
        "<password><![CDATA[{}]]></password>",
        '<property name="hibernate.connection.password">{}</property>',
        "<name>db.password</name>\n  <value>{}</value>",
        "<key>DbPassword</key>\n  <string>{}</string>",
    ),
    "wrapped": _lines(
        password,
        'password: Some("{}".to_string()),',
        'let password = String::from("{}");',
        'password=SecretStr("{}")',
        "password: &pw {}",
        "db_password: !!str {}",
        'password: !!str "{}"',
    ),
    "odd-password": _odd_password,
    "literal": _lines(password, "password = b'{}'", 'PASSWORD = r"{}"', 'password=f"{}"', 'string password = @"{}";'),
    "call": _lines(
        password,
        "define('DB_PASSWORD', '{}');",
        'os.getenv("DB_PASSWORD", "{}")',
        "config('DB_PASSWORD', default='{}')",
    ),
    "declaration": _lines(
        password,
        '#define DB_PASSWORD "{}"',
        "FROM debian\nENV DB_PASSWORD {}\nRUN true",
        "ENV DB_PASSWORD '{}'",
    ),
    "sql": _lines(password, "CREATE USER shop WITH PASSWORD '{}';", "ALTER USER 'shop'@'%' IDENTIFIED BY '{}';"),
    "netrc": _lines(
        password,
        "machine api.test login shop password {}",
        "machine api.test\n  login shop\n  password {}\n",
    ),
    "block-scalar": _lines(password, "password: |\n  {}\n", "db:\n  password: >-\n    {}\nport: 1"),
    "name-and-value": _lines(
        password,
        '{"name": "DB_PASSWORD", "value": "{}"}',
        "env:\n- name: DB_PASSWORD\n  value: {}\n",
        '{\n  "name": "DB_PASSWORD",\n  "value": "{}"\n}',
    ),
}  # fmt: skip

# Lines for secrets that are known by their own look; `{}` is followed by each thing that ends a token.
CONTEXTS = (
    "use {} for now",
    "{}",
    'client = Client("{}")',
    "export SERVICE={}",
    "key: {}",
    "GET https://api.test/v1?k={}&page=2",
    '{"k":"{}","n":3}',
    "(it is {}).",
    "k={}, again",
    "`{}`",
    "| prod | {} |",
    "<td>{}</td>",
    "https://u:{}@git.test/x.git",
    'say \\"{}\\" twice',
    "first\n{}\nlast",
)


@dataclass(frozen=True)
class Planted:
    kind: str
    secret: str
    line: str


def plant(draw: Draw, kind: str) -> Planted:
    secret, line = KINDS[kind](draw)
    return Planted(kind, secret, line if line is not None else draw.choice(CONTEXTS).replace("{}", secret))


# Ways to give a value to a name, as formatters, languages and test tools write them; `{}` is the value.
LAYOUTS = (
    'api_tokens: ["{}", "other"]',
    "const tokens: string[] = ['{}']",
    "Password was: {}",
    "id,email,password" + ",a_long_column" * 24 + "\n1,bob@x.io,{}" + ",x" * 24,
    "bindpw {}",
    'new NetworkCredential("bob", "{}")',
    '"adminPassword": {"value": "{}"}',
    '"adminPassword": {\n    "value": "{}"\n  }',
    'resource "x" "y" {\n  username            = "app"\n  password            = "{}"\n}',
    'db_password                              = "{}"',
    'config := Config{\n\tHost:     "db",\n\tPassword: "{}",\n}',
    'Client{\n\tTimeoutSeconds:           3,\n\tAPIKey:                   "{}",\n}',
    "const (\n\tAPIToken        = `{}`\n)",
    'var password string = "{}"',
    "'connections' => [\n  'driver'        => 'mysql',\n  'password'      => '{}',\n]",
    "define( 'DB_PASSWORD',      '{}' );",
    "define('SECURE_AUTH_KEY',   '{}');",
    "$password       = '{}';",
    "$this->apiKey   =   '{}';",
    ':password       => "{}",',
    "config.secret_key_base     = '{}'",
    "password:                  {}",
    "db_password  :     '{}'",
    "DB_PASSWORD     =     {}",
    "spring.datasource.password      = {}",
    "DB_PASSWORD     ?= {}",
    "API_TOKEN\t\t\t\t\t= {}",
    '"password"          :          "{}"',
    "const secret = process.env.JWT_SECRET || '{}';",
    'const apiKey = process.env["API_KEY"] ?? "{}";',
    'password = os.environ.get("DB_PASSWORD") or "{}"',
    'val token = System.getenv("API_TOKEN") ?: "{}"',
    "export DB_PASSWORD=${DB_PASSWORD:-{}}",
    'if password == "{}":\n    pass',
    "if (req.headers.token !== '{}') return;",
    "await page.fill('#password', '{}');",
    "page.fill('input[name=\"password\"]', '{}')",
    "page.locator('#login-password').fill('{}')",
    "page.getByLabel('Password').fill('{}')",
    "page.getByLabel(/password/i).fill('{}')",
    "cy.get('[data-test=password]').type('{}')",
    'driver.find_element(By.ID, "password").send_keys("{}")',
    "fill_in 'Password', with: '{}'",
    "API key: {}",
    "Access Key:       {}",
    "SECRET KEY = '{}'",
    "export PRIVATE_KEY={}",
    "private_key: {}",
    "cast send --private-key {} 0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
    "const privateKey =\n    '{}';",
    'static const char *password   = "{}";',
    'char password[] = "{}";',
    'std::string password{"{}"};',
    'NSString *apiSecret    = @"{}";',
    'let password: &\'static str = "{}";',
    'let secret = r#"{}"#;',
    'private const val API_SECRET: String   = "{}"',
    'string password = """{}""";',
    "password = '''{}'''",
    'Dim password As String = "{}"',
    "$env:DB_PASSWORD    = '{}'",
    'password <- "{}"',
    "local password = [[{}]]",
    "my $password = q({});",
    '{:user "app" :password     "{}"}',
    'builder.password(     "{}"     )',
    'properties.put("password",       "{}");',
    "<password>      {}      </password>",
    "ALTER ROLE shop WITH ENCRYPTED PASSWORD       '{}';",
    "kubectl create secret generic db --from-literal=password={}",
    "CREATE LOGIN shop WITH PASSWORD = N'{}';",
    "ALTER USER 'root'@'localhost' IDENTIFIED WITH caching_sha2_password BY '{}';",
    "SET PASSWORD FOR 'shop'@'%' = '{}';",
    "INSERT INTO users (id, name, password) VALUES (1, 'ann', '{}'), (2, 'bob', 'x');",
    'const SECRET_KEY: &[u8] = b"{}";',
    'let password: String? = "{}"',
    'api_key: str = Field(default="{}")',
    "API_TOKEN: z.string().default('{}'),",
    'var jwtSecret = []byte("{}")',
    "PASSWORD = (\n    '{}'\n)",
    "process.env['API_TOKEN'] ??= '{}'",
    "ENV['API_TOKEN'] ||= '{}'",
    "$ENV{DB_PASSWORD} = '{}';",
    "password = %q({})",
    'auto token = R"({})";',
    "expect(config.password).toBe('{}')",
    '(setq my-api-key "{}")',
    'proxy_set_header X-Api-Key "{}";',
    '"//registry.test/:_authToken" "{}"',
    "spring.datasource.password {}",
    "Key         Value\n---         -----\npassword    {}\nuser        ann",
    "| key | value |\n|---|---|\n| password | {} |",
    "-[ RECORD 1 ]-----\nid       | 1\npassword | {}",
    "| user | password |\n|---|---|\n| ann | {} |",
    " id | name | api_token | age\n----+------+-----------+----\n  1 | ann  | {} |  4",
    "id,name,password\n1,ann,{}\n2,bob,secret",
    'user;"password";role\nann;"{}";admin',
    "user\tpassword\nann\t{}",
    "Passwort: {}",
    "mot de passe : {}",
    "contraseña: {}",
    "пароль: {}",
    "密码：{}",
    '"パスワード": "{}"',
    "**Password:** {}",
    "The password is {}",
    "password\u00a0=\u00a0{}",
    "DB_PW={}",
    '{"key": "api_token", "value": "{}", "type": "text"}',
    '<meta name="csrf-token" content="{}">',
    "jwt.sign(payload, '{}')",
    "createHmac('sha256', '{}')",
    "requests.get(url, auth=('ann', '{}'))",
    "db.test:5432:shop:ann:{}",
    'dotnet user-secrets set "Jwt:Secret" "{}"',
    "pulumi config set --secret dbPassword {}",
    "aws ssm put-parameter --name /shop/db --type SecureString --value {}",
    "echo -n '{}' | gcloud secrets create db-password --data-file=-",
    "echo 'ann:{}' | chpasswd",
    "useradd -m -p '{}' ann",
    "zip -P {} a.zip b",
    "htpasswd -b -c users ann {}",
    "rabbitmqctl add_user ann {}",
    "cargo login {}",
    "net user ann {} /add",
    "password = os.environ.get('PW') or '{}'",
    'api_key = config.key or "{}"',
    'self.api_key: str = settings.get("a", None) or "{}"',
    "password = ENV['K'] || '{}'",
    'const authToken = opts.auth ?? "{}";',
    "api_key = os.getenv('K', '{}')",
    'API_SECRET = ENV.fetch("K", "{}")',
    '"password": {"S": "{}"}',
    '"apiKey": {\n  "stringValue": "{}"\n}',
    'smtp.login("me", "{}")',
    "poetry config http-basic.corp me {}",
    "cqlsh db.test -u app -p {}",
    "mongo db.test/shop -u app -p {}",
    "sqlcmd -S db.test -U sa -P {} -Q x",
    "<password>\n    {}\n  </password>",
    "git config --global user.password {}",
)


def named_value(draw: Draw) -> str:
    """As generators, people, `openssl rand` and wallets make them."""
    return draw.choice(
        (
            password(draw),
            _some(draw, ALNUM, 24, 40),
            _some(draw, HEX, 48),
            _base64(draw, draw.choice((24, 32, 48))),
            f"0x{_some(draw, HEX, 64)}",
        )
    )


def named(draw: Draw) -> Planted:
    """A named value in one of the layouts, which is its kind."""
    secret, layout = named_value(draw), draw.choice(LAYOUTS)
    return Planted(layout, secret, layout.replace("{}", secret))


_WORDS = (
    "primary",
    "session",
    "refresh",
    "default",
    "required",
    "invalid",
    "payment",
    "customer",
    "staging",
    "expired",
)


def _plain_value(draw: Draw) -> str:
    """What code gives to such names and is no secret: names, references, stand-ins, paths, numbers, addresses."""
    one, two = draw.sample(_WORDS, 2)
    return draw.choice(
        (
            f"{one}_{two}",
            f"{one}{two.title()}",
            f"{one.upper()}_{two.upper()}",
            f"config.{one}.{two}",
            f"${{{one.upper()}_TOKEN}}",
            f"${one}_{two}",
            f"<your-{one}>",
            f"your_{one}_here",
            f"/run/secrets/{one}_{two}",
            f"./{one}/{two}.pem",
            f"~/.config/{one}/{two}",
            f"{{{{ {one}.{two} }}}}",
            f"env:{one.upper()}",
            "".join(draw.choices("0123456789", k=draw.randint(8, 14))),
            f"0x{draw.getrandbits(32):08x}",
            f"0x{_some(draw, HEX, 40)}",
            f"{one}-{two}",
            f"{one}.{two}.{draw.choice(_WORDS)}",
            "********",
            "xxxxxxxxxxxxxxxx",
            "changeme",
            f"https://{one}.test/{two}",
            f"{one}.{two}()",
            f"{draw.choice(_WORDS)}::{one}::{two}",
        )
    )


def named_decoy(draw: Draw) -> str:
    """Such a value in one of the layouts."""
    return draw.choice(LAYOUTS).replace("{}", _plain_value(draw))


def _hash(draw: Draw, count: int) -> str:
    return _some(draw, HEX, count)


DECOYS: tuple[Callable[[Draw], str], ...] = (
    lambda draw: f"commit {_hash(draw, 40)}",
    lambda draw: str(uuid.UUID(int=draw.getrandbits(128))),
    lambda draw: f"image@sha256:{_hash(draw, 64)}",
    lambda draw: f'"integrity": "sha512-{_base64(draw, 64)}"',
    lambda draw: f"toolu_01{_some(draw, ALNUM, 22)}",
    lambda draw: f"msg_01{_some(draw, ALNUM, 22)} req_011C{_some(draw, ALNUM, 20)}",
    lambda draw: f"call_{_some(draw, ALNUM, 24)}",
    lambda draw: f"data:image/png;base64,iVBORw0KGgo{_base64(draw, draw.randint(300, 9000))}",
    lambda draw: f'"signature":"{_base64(draw, draw.randint(200, 900))}"',
    lambda draw: f'"signature":"1//0{_base64(draw, draw.randint(200, 900))}"',
    lambda draw: f"index {_hash(draw, 7)}..{_hash(draw, 7)} 100644",
    lambda draw: f'ETag: "{_hash(draw, 32)}"',
    lambda draw: f"resolved https://mirror.test/x/-/x-1.2.3.tgz#{_hash(draw, 40)}",
    lambda draw: f"max_tokens={draw.randrange(9999)}, token_count: {draw.randrange(99999)}, total_tokens = {draw.randrange(10**6)}",
    lambda draw: "password = os.environ['DB_PASSWORD']",
    lambda draw: "api_key = get_secret('prod/api')",
    lambda draw: "export TOKEN=$(cat /run/token)",
    lambda draw: "password: ${{ secrets.DB_PASSWORD }}",
    lambda draw: "SECRET_KEY = config('SECRET_KEY')",
    lambda draw: "postgres://user:password@localhost/db and redis://:${REDIS_PASSWORD}@cache:6379/0",
    lambda draw: "Authorization: Bearer $TOKEN",
    lambda draw: "Authorization: Bearer <your-token>",
    lambda draw: "api_key=YOUR_API_KEY_HERE",
    lambda draw: "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    lambda draw: "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    lambda draw: 'tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")',
    lambda draw: "self.token = self._next_token(); if token == Token.STRING: pass",
    lambda draw: 'password_field = form["password"].label_tag()',
    lambda draw: "secret_name: prod/shop-api/stripe",
    lambda draw: "--- PASS: TestLogin/second_try (0.00s)",
    lambda draw: "The secret: never give up. A token of gratitude: flowers.",
    lambda draw: "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
    lambda draw: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + _some(draw, ALNUM, 43) + " me@host",
    lambda draw: f"partition_key = 'tenant#{draw.randrange(99)}' sort_key=\"created_at\"",
    lambda draw: "basic functionality, bearer authentication, authorization: required",
    lambda draw: '{"password": "please enter your password", "secret": "Must have 8 characters, 1 digit!"}',
    lambda draw: f'fields = ["password", "email{draw.randrange(9)}", "token", "Zip5Code"]; form.add("password", "field{draw.randrange(9)}")',
    lambda draw: 'TOKEN = r"[a-zA-Z_][a-zA-Z0-9_]*"; password = f"{user}+{os.getpid()}"; secret = rb"(?P<a>[0-9A-F]{2})"',
    lambda draw: '#define TOKEN_MASK 0xFF00FF00ul\n#define PASSWORD_LENGTH 64\n#define SECRET_KEY load_key2(1)',
    lambda draw: "ENV PASSWORD_FILE /run/secrets/db2\nENV DB_PASSWORD $DB_PASSWORD\nENV API_TOKEN ${API_TOKEN}",
    lambda draw: "ALTER USER shop WITH PASSWORD '$1'; unexpected token 'return' in password \"%s\"",
    lambda draw: "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: shop-db2\n      key: password",
    lambda draw: "password: |\n  Type the one you got on 2026-01-02.\ntoken: >-\n  {{ lookup('env', 'TOKEN') }}",
    lambda draw: 'os.getenv("DB_PASSWORD", "changeme"), env("API_TOKEN", "your-token-2"), getenv("PGPASSWORD", "")',
    lambda draw: "docker run -u 1000:1000 x; curl -u $USER:$PASSWORD https://a.example; curl -u user:password http://a.example:8080/x-u",
    lambda draw: f'next_page_token: {_some(draw, ALNUM, 24)} "pageToken": "{_some(draw, ALNUM, 40)}", NextToken={_base64(draw, 30)}',
    lambda draw: f"continuation-token: {_some(draw, ALNUM, 24)} syncToken={_some(draw, ALNUM, 24)} --starting-token {_some(draw, ALNUM, 24)}",
    lambda draw: f"session_key: agent:main:telegram:dm:{draw.randrange(10**9)}\nlicense-key: Apache-2.0\nencryption_key: KMS-default-2024",
    lambda draw: "private_key: ed25519.Ed25519PrivateKey, x: 1; password = password.encode('latin1'); TOKEN = /^Unexpected1 token/",
    lambda draw: 'mysql -p$MYSQL_PWD shop; mysql -u root -p shop2024db; mysqldump -p"${DB_PASS}" x; mariadb -pPASSWORD; mysql -p<password>',
    lambda draw: "docker run --name login -p 127.0.0.1:8080:80 -p localhost:8081:81 mongo; docker login -p $TOKEN; podman login -p ${TOKEN} r.test",
    lambda draw: 'redis-cli -a "$REDIS_PASSWORD"; ldapsearch -w $PW; keytool -storepass changeit; openssl rsa -passin env:KEY_PASS1 -pass stdin',
    lambda draw: f"Cookie: theme=dark; lang=en-US; _ga=GA1.2.{draw.randrange(10**9)}.{draw.randrange(10**9)}; session=expired; auth_token=none",
    lambda draw: '"auth": "dXNlcjpwYXNzd29yZA==", _auth=${NPM_AUTH}, auth: "basic_credentials_123", oauth = "client1234567890"',
    lambda draw: 'variable "token_count" {\n  default = "a1b2c3d4e5"\n}\nvariable "db_password" {\n  type = string\n}\nlocals { default = "Zq3vKp9Lm2" }',
    lambda draw: '<input name="password"> at least 8 characters</input> <password type="x">${db.password}</password> <add key="TokenCount" value="1234567890"/>',
    lambda draw: 'password: Some(env::var("DB_PASSWORD2")), token: &token_ref, secret: !Ref DbSecret1, password: !vault |',
    lambda draw: "echo hello12345 | grep x; echo \"$PASSWORD\" | docker login --password-stdin; setx PATH_TOKEN %TOKEN%; set -x TOKEN $TOKEN",
    lambda draw: "login with your password or log in by SSO; login form password field2",
    lambda draw: '["git", "commit", "--no-verify"], ["mysql", "--password", "$PASSWORD"], ["sshpass", "-p", "$SSH_PASS"]',
)  # fmt: skip


def escaped(text: str, times: int) -> str:
    """The text inside so many JSON strings, one in the other."""
    for _ in range(times):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return text


def in_colours(text: str, secret: str) -> str:
    return text.replace(secret, f"\x1b[01;31m\x1b[K{secret[:5]}\x1b[m\x1b[K{secret[5:]}\x1b[0m")


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def in_url(text: str) -> str:
    return urllib.parse.quote(text, safe="")
