"""Who may ask for what: only this machine's user, in a page that this server gave out.

Every path answers a plain visit with the same page without data. That page exchanges the one-time code of its address
for a token, and sends the token in a header with each request. A header that only our own script can set is no use to
another site: there is no cookie that a browser would add by itself.

A further tab has no code. The page that it gets contains a secret of this visit, and a tab that has the token admits
the visit by its public number. So no page that another program served on this port gets a token from ours: its script
cannot read an answer to a navigation, and other users of the machine get pages without a secret.
"""

import hmac
import os
import secrets
import threading
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.loopback import has_own_host, has_own_origin, headers_of

CODE_HEADER = "recollect-code"
VISIT_HEADER = "recollect-visit"
EXCHANGE_PATH = "/exchange"
STATIC_PREFIX = "/static/"
_MOST_VISITS = 100  # that wait to be admitted
_VISIT_PLACE = b'<meta name="visit" content="'
_CONNECTIONS = Path("/proc/net/tcp")
_SAME_SITE = ("same-origin", "none")
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types recollect"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Tokens:
    """The code that opens the page once, the visits that may open it too, and the token both are exchanged for."""

    def __init__(self) -> None:
        self.code = secrets.token_urlsafe(24)
        self.is_used = False
        self.settled = threading.Event()  # the browser came, or cannot be started
        self._token: str | None = secrets.token_urlsafe(32)
        self._visits: dict[str, str] = {}  # by public number: the secret
        self._admitted: set[str] = set()  # each as its page knows it

    def exchange(self, code: str) -> str | None:
        """The token for an unused code. A second use means that somebody else read the code: the token is revoked."""
        if code in self._admitted:
            self._admitted.discard(code)
            return self._token
        if not hmac.compare_digest(code.encode(), self.code.encode()):
            return None
        if self.is_used:
            self._token = None
        self.is_used = True
        self.settled.set()
        return self._token

    def new_visit(self) -> str:
        """Number and secret of a visit, for the page that it gets."""
        number, secret = secrets.token_urlsafe(12), secrets.token_urlsafe(24)
        self._visits[number] = secret
        if len(self._visits) > _MOST_VISITS:
            del self._visits[next(iter(self._visits))]
        return f"{number}.{secret}"

    def admit(self, number: str) -> bool:
        """Let the page of a visit have the token; False if there is no such visit."""
        secret = self._visits.pop(number, None)
        if secret is not None:
            self._admitted.add(f"{number}.{secret}")
        return secret is not None

    def is_valid(self, token: str) -> bool:
        return self._token is not None and hmac.compare_digest(token.encode(), self._token.encode())


class Verdict(Enum):
    """What becomes of a request."""

    ANSWER = 200
    SHELL = 0  # the page without data
    NO_TOKEN = 401
    FOREIGN = 403
    WRONG_HOST = 421


def judge(method: str, path: str, headers: Mapping[str, str], port: int, tokens: Tokens) -> Verdict:
    """Decide about a request by its headers alone."""
    if not has_own_host(headers, port):
        return Verdict.WRONG_HOST
    if not has_own_origin(headers, port):
        return Verdict.FOREIGN
    is_visit = method == "GET" and "authorization" not in headers and "text/html" in headers.get("accept", "")
    is_navigation = is_visit and headers.get("sec-fetch-mode", "navigate") == "navigate"
    if headers.get("sec-fetch-site", "none") not in _SAME_SITE and not is_navigation:
        return Verdict.FOREIGN
    if path == EXCHANGE_PATH or path.startswith(STATIC_PREFIX):
        return Verdict.ANSWER
    if tokens.is_valid(headers.get("authorization", "").removeprefix("Bearer ")):
        return Verdict.ANSWER
    return Verdict.SHELL if is_visit and "hx-request" not in headers else Verdict.NO_TOKEN


class Guard:
    """Lets through what `judge` allows, and adds the headers that keep a page shut in."""

    def __init__(self, app: ASGIApp, port: int, tokens: Tokens, shell: bytes) -> None:
        self._app, self._port, self._tokens, self._shell = app, port, tokens, shell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_RAW_HEADERS]
            await send(message)

        verdict = Verdict.WRONG_HOST
        if headers := headers_of(scope["headers"]):
            verdict = judge(scope["method"], scope["path"], headers, self._port, self._tokens)
        is_from_user = headers is not None and headers.get("sec-fetch-mode") == "navigate" and _has_own_client(scope)
        answer = self._app if verdict is Verdict.ANSWER else self._refusal(verdict, is_from_user)
        await answer(scope, receive, send_guarded)

    def _refusal(self, verdict: Verdict, is_from_user: bool) -> Response:
        if verdict is Verdict.SHELL:
            visit = self._tokens.new_visit().encode() if is_from_user else b""
            return Response(self._shell.replace(_VISIT_PLACE, _VISIT_PLACE + visit), media_type="text/html")
        return PlainTextResponse(f"{verdict.name.lower().replace('_', ' ')}\n", verdict.value)


def _has_own_client(scope: Scope) -> bool:
    """Whether a request comes from a process of this user, as Linux knows it. Elsewhere nobody can tell."""
    if not scope["client"] or not _CONNECTIONS.exists():
        return False
    port = f":{scope['client'][1]:04X}"
    rows = (line.split() for line in _CONNECTIONS.read_text().splitlines()[1:])
    ours = f":{scope['server'][1]:04X}"
    return any(row[1].endswith(port) and row[2].endswith(ours) and row[7] == str(os.getuid()) for row in rows)


_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
