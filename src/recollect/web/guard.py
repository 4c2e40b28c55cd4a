"""Who may ask for what: only this machine's user, in a page that this server gave out.

Every path answers a plain visit with the same page without data. That page exchanges the one-time code of its address
for a token, and sends the token in a header with each request. A header that only our own script can set is no use to
another site: there is no cookie that a browser would add by itself.
"""

import hmac
import secrets
from collections.abc import Mapping
from enum import Enum

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.loopback import has_own_host, has_own_origin

CODE_HEADER = "recollect-code"
EXCHANGE_PATH = "/exchange"
STATIC_PREFIX = "/static/"
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
    """The code that opens the page once, and the token it is exchanged for."""

    def __init__(self) -> None:
        self.code = secrets.token_urlsafe(24)
        self._token: str | None = secrets.token_urlsafe(32)
        self._is_used = False

    def exchange(self, code: str) -> str | None:
        """The token for an unused code. A second use means that somebody else read the code: the token is revoked."""
        if not hmac.compare_digest(code.encode(), self.code.encode()):
            return None
        if self._is_used:
            self._token = None
        self._is_used = True
        return self._token

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

        raw = scope["headers"]
        names = [name for name, _ in raw if name in (b"host", b"origin", b"authorization")]
        has_twins = len(names) != len(set(names))
        headers = dict(Headers(raw=raw).items())
        verdict = (
            Verdict.WRONG_HOST
            if has_twins
            else judge(scope["method"], scope["path"], headers, self._port, self._tokens)
        )
        answer = self._app if verdict is Verdict.ANSWER else self._refusal(verdict)
        await answer(scope, receive, send_guarded)

    def _refusal(self, verdict: Verdict) -> Response:
        if verdict is Verdict.SHELL:
            return Response(self._shell, media_type="text/html")
        return PlainTextResponse(f"{verdict.name.lower().replace('_', ' ')}\n", verdict.value)


_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
