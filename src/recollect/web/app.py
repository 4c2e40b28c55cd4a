"""The routes of the page as a table, how an answer becomes HTML or JSON, and the server: one socket, one user.

While a page is open, the server stores what agents write, and tells the pages that are looking.
"""

import asyncio
import re
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from queue import Empty, LifoQueue
from threading import BoundedSemaphore
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import orjson
import uvicorn
from jinja2 import Environment
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from recollect.api import Memory, open_memory
from recollect.archive import html
from recollect.config import freshness_mode
from recollect.loopback import HOST, read_body
from recollect.model.errors import Ambiguous, Busy, NeedsAnswer, NotFound, RecollectError, UsageError
from recollect.model.files import work_name, write_new
from recollect.model.kinds import signal_words
from recollect.model.schema import to_json
from recollect.model.text import session_counts
from recollect.web import charts, pages, session
from recollect.web.guard import CODE_HEADER, EXCHANGE_PATH, STATIC_PREFIX, VISIT_HEADER, Guard, Tokens
from recollect.web.pages import Params, Records
from recollect.web.session import ACTIONS, Action

_AT_ONCE = 4  # more would only wait for each other's interpreter lock


class Readers:
    """Lends memories, one to a request at a time: a connection cannot answer two at once."""

    def __init__(self, open_one: Callable[[], Memory]) -> None:
        self._open = open_one
        self._idle: LifoQueue[Memory] = LifoQueue()
        self._room = BoundedSemaphore(_AT_ONCE)

    @contextmanager
    def lend(self) -> Iterator[Memory]:
        """A memory for the block. One in which anything went wrong is closed, not lent again."""
        with self._room:
            try:
                memory = self._idle.get_nowait()
            except Empty:
                memory = self._open()
            try:
                yield memory
            except BaseException:
                memory.close()
                raise
            self._idle.put(memory)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()


_LOOK_SECONDS = 1.0
_TELL_SECONDS = 0.2
_HEARTBEAT_SECONDS = 15.0


class Live:
    """A thread that looks at the agents' files and at the store, and a number that grows with each change."""

    def __init__(self, readers: Readers, *, may_sweep: bool) -> None:
        self._readers = readers
        self._may_sweep = may_sweep
        self._commits: tuple[int, ...] | None = None
        self._stopped = threading.Event()
        self.changes = 0

    def start(self) -> None:
        threading.Thread(target=self._run, name="recollect-live", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            with suppress(RecollectError, OSError):  # busy or full now: the next look may find it otherwise
                self.look()

    def look(self) -> None:
        """Store what is new if that is quick, and count a change if the store has one."""
        with self._readers.lend() as memory:
            needs_sweep = self._may_sweep and _needs_sweep(memory)
        if needs_sweep:
            with open_memory(create=False) as writer:
                writer.sweep()
        with self._readers.lend() as memory:
            commits = memory.commits()
        if self._commits is not None and commits != self._commits:
            self.changes += 1
        self._commits = commits

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events: one for each change, and a comment now and then, by which a gone reader is noticed."""
        seen, silent = self.changes, 0.0
        yield ": connected\n\n"
        while not self._stopped.is_set():
            await asyncio.sleep(_TELL_SECONDS)
            silent += _TELL_SECONDS
            if self.changes != seen:
                seen, silent = self.changes, 0.0
                yield f"event: stored\ndata: {seen}\n\n"
            elif silent >= _HEARTBEAT_SECONDS:
                silent = 0.0
                yield ": still here\n\n"


def _needs_sweep(memory: Memory) -> bool:
    if freshness_mode() != "auto" or memory.is_sweeping():
        return False
    freshness = memory.freshness()
    return bool(freshness.files_changed) and freshness.is_quick


FOLDER = files("recollect.web")
LIVE_PATH = "/live"
_MOST_OF_A_FORM = 64 * 1024
_STATIC = {
    "style.css": (html.TEMPLATES / "style.css", "text/css"),
    "app.js": (FOLDER / "static" / "app.js", "text/javascript"),
    "htmx.js": (FOLDER / "static" / "vendor" / "htmx.min.js", "text/javascript"),
    "icon.svg": (FOLDER / "static" / "icon.svg", "image/svg+xml"),
}
_STATUS = {NotFound: 404, UsageError: 400, Ambiguous: 409, Busy: 409, NeedsAnswer: 409}


class Page(NamedTuple):
    """A path, what it shows, and the template that shows it. Of paths that match a request the first one counts."""

    path: str
    read: Callable[[Memory, Params], Records]
    template: str


PAGES = (
    Page("/", pages.home, "home.html"),
    Page("/search", pages.search, "search.html"),
    Page("/sessions", pages.sessions, "sessions.html"),
    Page("/sessions/views", pages.views, "views.html"),
    Page("/session/{uid:path}/pages/{page:int}", session.transcript_page, "transcript_page.html"),
    Page("/session/{uid:path}/steps/{event}/{count:int}", session.steps, "steps.html"),
    Page("/session/{uid:path}/event/{event}", session.event, "event.html"),
    Page("/session/{uid:path}/annotations", session.annotations, "annotations.html"),
    Page("/session/{uid:path}/forget", session.forgetting, "forget.html"),
    Page("/session/{uid:path}", session.session, "session.html"),
    Page("/repository/{name:path}", pages.repository, "repository.html"),
    Page("/file", pages.file, "file.html"),
    Page("/fixes", pages.fixes, "fixes.html"),
    Page("/decisions", pages.decisions, "decisions.html"),
    Page("/fact/{uid}", pages.fact, "fact.html"),
    Page("/graph", pages.graph, "graph.html"),
    Page("/workflows", pages.workflows, "workflows.html"),
    Page("/told", pages.told, "told.html"),
    Page("/told/lately", pages.lately, "lately.html"),
    Page("/stats", pages.stats, "stats.html"),
    Page("/care", pages.care, "care.html"),
    Page("/care/doctor", pages.doctor, "doctor.html"),
    Page("/care/secrets", pages.secrets, "secrets.html"),
    Page("/settings", pages.settings, "settings.html"),
)


@dataclass(frozen=True, slots=True)
class Site:
    """What the answers to requests are made from."""

    readers: Readers
    tokens: Tokens
    live: Live
    read_only: bool

    def show(self, page: Page, params: Params, *, as_json: bool) -> Response:
        with self.readers.lend() as memory:
            records = page.read(memory, params)
        if as_json:
            return JSONResponse(plain(records))
        template = templates().get_template(page.template)
        return HTMLResponse(template.render(records, params=params, read_only=self.read_only))


def routes(site: Site) -> list[Route]:
    """Every route there is."""
    return [
        Route(EXCHANGE_PATH, partial(_exchange, site), methods=["POST"]),
        Route("/admit", partial(_admit, site), methods=["POST"]),
        Route(f"{STATIC_PREFIX}{{name}}", _static, methods=["GET"]),
        Route(LIVE_PATH, partial(_live, site), methods=["GET"]),
        *(Route(page.path, partial(_answer, site, page), methods=["GET"]) for page in PAGES),
        *(
            Route(path, partial(_act, site, act), methods=["POST"])
            for path, act in ACTIONS.items()
            if not site.read_only
        ),
    ]


def make_app(site: Site, port: int) -> Guard:
    """The whole server: every route behind the guard."""
    shell = (FOLDER / "static" / "shell.html").read_bytes()
    return Guard(Starlette(routes=routes(site), exception_handlers={404: _unknown}), port, site.tokens, shell)


async def _exchange(site: Site, request: Request) -> Response:
    token = site.tokens.exchange(request.headers.get(CODE_HEADER, ""))
    if token is None:
        return JSONResponse({"error": "This link was already used"}, 403)
    return JSONResponse({"token": token})


async def _admit(site: Site, request: Request) -> Response:
    """Let in another tab, as one that has the token asks."""
    return Response(status_code=204 if site.tokens.admit(request.headers.get(VISIT_HEADER, "")) else 404)


async def _static(request: Request) -> Response:
    if request.path_params["name"] not in _STATIC:
        return Response(status_code=404)
    path, kind = _STATIC[request.path_params["name"]]
    return Response(path.read_bytes(), media_type=kind)


async def _live(site: Site, request: Request) -> Response:
    return StreamingResponse(site.live.stream(), media_type="text/event-stream")


async def _answer(site: Site, page: Page, request: Request) -> Response:
    params = Params({name: str(value) for name, value in request.path_params.items()}, dict(request.query_params))
    as_json = wants_json(request)
    try:
        return await run_in_threadpool(site.show, page, params, as_json=as_json)
    except RecollectError as error:
        return refused(error, as_json=as_json)


async def _act(site: Site, act: Action, request: Request) -> Response:
    """Change something as the user asked, and show what is so now."""
    as_json = wants_json(request)
    body = await read_body(request.receive, _MOST_OF_A_FORM)
    if body is None:
        return refused(UsageError(f"Form longer than {_MOST_OF_A_FORM} bytes"), as_json=as_json, status=413)
    form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    params = Params(dict(request.path_params), {name: values[-1] for name, values in form.items()})
    try:
        done = await run_in_threadpool(act, params)
    except RecollectError as error:
        answer = refused(error, as_json=as_json)
        said = f"{error.message}: {error.hint}" if error.hint else error.message
        answer.headers["HX-Trigger"] = orjson.dumps({"said": said}).decode()
        return answer
    shown = done.page and next(page for page in PAGES if page.read is done.page)
    if shown is None:
        answer = JSONResponse({"said": done.said}) if as_json else HTMLResponse("")
    else:
        answer = await run_in_threadpool(site.show, shown, params, as_json=as_json)
    events = {"said": done.said, "moved": done.moved, "refresh": done.refreshes}
    answer.headers["HX-Trigger"] = orjson.dumps({name: value for name, value in events.items() if value}).decode()
    return answer


def wants_json(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


def refused(error: RecollectError, *, as_json: bool, status: int | None = None) -> Response:
    """An error the user can act on: what, which, what to do next."""
    status = status or next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    if as_json:
        return JSONResponse({"error": {"code": error.code, "message": error.message, "hint": error.hint}}, status)
    return HTMLResponse(templates().get_template("error.html").render(error=error), status)


async def _unknown(request: Request, error: Exception) -> Response:
    missing = NotFound(f"No such page: {request.url.path}", "the menu lists all pages")
    return refused(missing, as_json=wants_json(request))


def plain(value: Any) -> Any:
    """Records as JSON has them: each by its own `to_json`, named tuples by their names."""
    if hasattr(value, "to_json") or is_dataclass(value):
        return orjson.loads(orjson.dumps(to_json(value), default=plain, option=orjson.OPT_NON_STR_KEYS))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def templates() -> Environment:
    environment = html.templates("recollect.web")
    environment.globals.update(
        charts=charts,
        link=link,
        session_link=session_link,
        PERIODS=pages.PERIODS,
        ROWS=pages.ROWS,
        session_counts=session_counts,
    )
    environment.filters.update(marked=marked, from_home=from_home, signal_words=signal_words)
    return environment


def link(path: str, query: "dict[str, str] | None" = None, **changes: str | int | None) -> str:
    """A path with a query in which some parameters are changed; None drops one."""
    merged = {name: value for name, value in {**(query or {}), **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(merged)}" if merged else path


def session_link(session_uid: str, **query: str | None) -> str:
    return link(f"/session/{quote(session_uid, safe=':/')}", None, **query)


def from_home(text: str) -> str:
    """Paths as their owner would write them: those below the home folder begin with `~`."""
    return text.replace(f"{Path.home()}/", "~/")


def marked(text: str, words: "tuple[str, ...] | str") -> Markup:
    """A text with the words that were looked for marked."""
    chosen = sorted((word for word in words if word), key=len, reverse=True) if not isinstance(words, str) else [words]
    if not chosen:
        return Markup.escape(text)
    pieces = re.split(f"({'|'.join(map(re.escape, chosen))})", text, flags=re.IGNORECASE)
    mark = Markup("<mark>{}</mark>").format
    return Markup("").join(mark(piece) if index % 2 else piece for index, piece in enumerate(pieces))


USUAL_PORT = 7391
_PATIENCE_S = 5  # with a browser that was started


def serve(opened: socket.socket, tell: Callable[[str], None], *, opens: bool, read_only: bool = False) -> None:
    """Answer until interrupted. `tell` gets the address that works once, unless a browser `opens` it."""
    tokens, port = Tokens(), opened.getsockname()[1]
    readers = Readers(lambda: open_memory(read_only=True))
    with readers.lend() as memory:  # raises now, in the terminal, if there is no store
        forwarder = memory.settings.folder / f"{work_name('web')}.html"
    live = Live(readers, may_sweep=not read_only)
    app = make_app(Site(readers, tokens, live, read_only), port)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    live.start()
    address = f"http://{HOST}:{port}/#code={tokens.code}"
    if opens:
        threading.Thread(target=_open, args=(address, forwarder, tokens, tell), daemon=True).start()
    else:
        tell(address)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # uvicorn ends by it, and raises it again
    try:
        _Server(config, live).run(sockets=[opened])
    finally:
        forwarder.unlink(missing_ok=True)
        readers.close()


class _Server(uvicorn.Server):
    """Ends the streams to open pages before it waits for what is being answered."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._live.stop()
        await super().shutdown(sockets)


def _open(address: str, forwarder: Path, tokens: Tokens, tell: Callable[[str], None]) -> None:
    """Have the browser open a file that only this user may read; its arguments are for every user to see."""
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}"><title>Recollect</title>'
    write_new(forwarder, page.encode())

    def start() -> None:  # returns when the browser of a terminal ends
        if not webbrowser.open(forwarder.as_uri()):
            tokens.settled.set()

    threading.Thread(target=start, daemon=True).start()
    if not (tokens.settled.wait(_PATIENCE_S) and tokens.is_used):
        tell(address)
    tokens.settled.wait()
    forwarder.unlink(missing_ok=True)
