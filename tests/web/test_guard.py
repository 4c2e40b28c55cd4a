"""Only the user of this machine gets data, and only by the page that the server gave out."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.web.app import Site, routes
from recollect.web.guard import EXCHANGE_PATH, STATIC_PREFIX, Tokens
from tests.conftest import swept
from tests.faults.rig import IS_SOAK
from tests.logs import CLAUDE, claude_answer, claude_call, claude_result, lines, session_id
from tests.tally import count
from tests.web.conftest import Served, served

WORD = "quokkasaurus"
SECRET = "ghp_" + "Z9y8X7w6V5u4T3s2R1q0P9o8N7m6L5k4J3i2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guard")
    records = [
        CLAUDE.message(session_id(), 1, f"tell me of the {WORD}"),
        claude_call(session_id(), 2, f"curl -H 'Authorization: Bearer {SECRET}' example.org"),
        claude_result(session_id(), 3, f"token {SECRET} accepted"),
        claude_answer(session_id(), 4, f"It took {SECRET}."),
    ]
    CLAUDE.write(folder / "home", lines(records))
    swept(folder / "store", f"claude={folder / 'home'}").close()
    with served(folder / "store", "--read-only") as running:
        yield running


def _paths() -> list[tuple[str, str]]:
    """Every method and path that there is, with something in each parameter."""
    nothing: Any = None
    site = Site(nothing, Tokens(), nothing, False)
    values = {"uid": f"claude:{session_id()}", "name": "calc-demo", "page": "0", "count": "1"}
    return [
        (method, re.sub(r"\{(\w+)[^}]*\}", lambda match: values.get(match[1], "abcdef"), route.path))
        for route in routes(site)
        for method in sorted((route.methods or set()) - {"HEAD"})
        if route.path != EXCHANGE_PATH and not route.path.startswith(STATIC_PREFIX)
    ]


ATTACKS: dict[str, tuple[dict[str, str], int]] = {
    "no token": ({"HX-Request": "true", "Accept": "text/html"}, 401),
    "no token, for JSON": ({"Accept": "application/json"}, 401),
    "wrong token": ({"Authorization": "Bearer nonsense", "Accept": "text/html"}, 401),
    "empty token": ({"Authorization": "Bearer ", "Accept": "text/html"}, 401),
    "token as a cookie": ({"Cookie": "token={token}; recollect.token={token}", "Accept": "application/json"}, 401),
    "foreign host": ({"Host": "evil.example:{port}", "Authorization": "Bearer {token}"}, 421),
    "host without a port": ({"Host": "127.0.0.1", "Authorization": "Bearer {token}"}, 421),
    "host with a suffix": ({"Host": "127.0.0.1.evil.example:{port}", "Authorization": "Bearer {token}"}, 421),
    "host with a user": ({"Host": "127.0.0.1@evil.example:{port}", "Authorization": "Bearer {token}"}, 421),
    "foreign origin": ({"Origin": "https://evil.example", "Authorization": "Bearer {token}"}, 403),
    "origin of another port": ({"Origin": "http://localhost:3000", "Authorization": "Bearer {token}"}, 403),
    "origin null": ({"Origin": "null", "Authorization": "Bearer {token}"}, 403),
    "cross-site form": (
        {"Origin": "https://evil.example", "Content-Type": "application/x-www-form-urlencoded"},
        403,
    ),
    "cross-site picture": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    "script of another port": ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    "host of this machine in the network": ({"Host": "0.0.0.0:{port}", "Authorization": "Bearer {token}"}, 421),
    "host that resolves to here": ({"Host": "localtest.me:{port}", "Authorization": "Bearer {token}"}, 421),
    "token cut short": ({"Authorization": "Bearer {short}", "Accept": "application/json"}, 401),
    "token in other letters": ({"Authorization": "Bearer {swapped}", "Accept": "application/json"}, 401),
    "token with more behind it": ({"Authorization": "Bearer {token}x", "Accept": "application/json"}, 401),
    "token by another scheme": ({"Authorization": "Basic {token}", "Accept": "application/json"}, 401),
    "token in a header of its own": ({"X-Token": "{token}", "Accept": "application/json"}, 401),
    "origin that begins like ours": (
        {"Origin": "http://127.0.0.1:{port}.evil.example", "Authorization": "Bearer {token}"},
        403,
    ),
    "origin of ours over TLS": ({"Origin": "https://127.0.0.1:{port}", "Authorization": "Bearer {token}"}, 403),
}
# How a path may be written differently, and further methods: neither opens another way in.
SPELLINGS = ("{}", "{}?q=1&token={token}", "{}/", "/{}", "{}%00")


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_route_answers_an_attack(server: Served, attack: str) -> None:
    headers, expected = ATTACKS[attack]
    token = server.token
    known = {"port": server.port, "token": token, "short": token[:-1], "swapped": token.swapcase()}
    filled = {name: value.format(**known) for name, value in headers.items()}
    asked = [
        (method, spelling.format(path, token=token), spelling == "{}")
        for method, path in _paths()
        for spelling in (SPELLINGS if IS_SOAK else SPELLINGS[:1])
    ]
    answered = []
    for method, path, is_exact in asked:
        status, _, body = server.ask(method, path, filled)
        if WORD in body or (status != expected if is_exact else status < 300 or status >= 500):
            answered.append((method, path, status))

    count("web", len(asked), len(asked) - len(answered))
    assert answered == []


def test_a_token_in_the_address_opens_nothing(server: Served) -> None:
    for method, path in _paths():
        status, _, body = server.ask(method, f"{path}?token={server.token}", {"Accept": "application/json"})

        assert status == 401, path
        assert WORD not in body


def test_a_plain_visit_gets_the_same_page_without_data_everywhere(server: Served) -> None:
    bodies = {server.ask("GET", path, {"Accept": "text/html"})[2] for method, path in _paths() if method == "GET"}
    bodies.add(server.ask("GET", "/no/such/page", {"Accept": "text/html"})[2])

    (shell,) = bodies
    assert WORD not in shell
    assert "<script>" not in shell


def test_every_answer_shuts_the_page_in(server: Served) -> None:
    token = {"Authorization": f"Bearer {server.token}"}
    for headers in ({"Accept": "text/html"}, token, {"Accept": "application/json"}):
        for path in ("/", "/static/app.js", "/no/such/page"):
            _, answered, _ = server.ask("GET", path, headers)

            policy = answered["content-security-policy"]
            assert "script-src 'self';" in policy and "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert answered["cache-control"] == "no-store"
            assert answered["referrer-policy"] == "no-referrer"
            assert "set-cookie" not in answered and "access-control-allow-origin" not in answered


def test_with_the_token_every_page_has_its_json(server: Served) -> None:
    for path in ("/", f"/search?q={WORD}", "/sessions", f"/session/{session_id()}", "/stats", "/care", "/settings"):
        assert isinstance(server.json(path), dict)
    assert server.json(f"/search?q={WORD}")["answer"]["hits"][0]["title"] == f"tell me of the {WORD}"


def test_a_secret_of_a_log_is_on_no_page(server: Served) -> None:
    events = [part for exchange in server.json(f"/session/{session_id()}")["exchanges"] for part in exchange["parts"]]
    uid = next(step["call"]["event_uid"] for part in events for step in part.get("steps", []))
    paths = [path.replace("abcdef", uid[-12:]) for method, path in _paths() if method == "GET" and path != "/live"]
    paths += [f"/session/{session_id()}?view={view}" for view in ("summary", "changes", "cost", "related")]
    paths += ["/search?q=accepted", f"/session/{session_id()}?find=accepted", "/stats?by=command"]
    seen = ""
    for path in paths:
        for accept in ("text/html", "application/json"):
            headers = {"Authorization": f"Bearer {server.token}", "Accept": accept}
            status, _, body = server.ask("GET", path, headers)
            seen += body

            assert status in (200, 404), path
    assert "REDACTED" in seen
    assert SECRET not in seen


def test_a_code_opens_the_page_once_and_its_second_use_revokes_the_token() -> None:
    tokens = Tokens()
    token = tokens.exchange(tokens.code)

    assert token is not None and tokens.is_valid(token)
    assert tokens.exchange("another code") is None and tokens.is_valid(token)
    assert tokens.exchange(tokens.code) is None and not tokens.is_valid(token)


def test_the_server_listens_on_the_loopback_only(server: Served) -> None:
    inodes = {link.readlink().name for link in Path(f"/proc/{server.process.pid}/fd").iterdir() if link.is_symlink()}
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [fields[1] for fields in listening if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes]

    assert own == [f"0100007F:{server.port:04X}"]


def test_neither_the_code_nor_the_token_is_ever_in_an_address_that_is_asked_for(browser: Any, tmp_path: Path) -> None:
    CLAUDE.write(tmp_path / "home", CLAUDE.content(3))
    swept(tmp_path / "store", f"claude={tmp_path / 'home'}").close()
    with served(tmp_path / "store", "--read-only") as running:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer', '')}"))
        page.goto(running.address)
        page.wait_for_selector("#page .sheet")
        page.get_by_role("link", name="Sessions", exact=True).click()
        page.wait_for_selector(".rows")
        token = page.evaluate("sessionStorage.getItem('recollect.token')")

        assert len(asked) > 5
        assert not [line for line in asked if token in line or running.address.partition("#code=")[2] in line]
        assert "#" not in page.url
        assert page.context.cookies() == []
        page.close()
