"""The routes of the page, as a table, and how an answer becomes HTML or JSON."""

import re
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import orjson
from jinja2 import Environment
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from recollect.amounts import session_counts
from recollect.api import Memory
from recollect.archive import html
from recollect.errors import Ambiguous, Busy, NeedsAnswer, NotFound, RecollectError, UsageError
from recollect.kinds import signal_words
from recollect.loopback import read_body
from recollect.schema import to_json
from recollect.web import charts, pages, session
from recollect.web.actions import ACTIONS, Action
from recollect.web.guard import CODE_HEADER, EXCHANGE_PATH, STATIC_PREFIX, VISIT_HEADER, Guard, Tokens
from recollect.web.live import Live
from recollect.web.pages import Params, Records
from recollect.web.readers import Readers

FOLDER = Path(__file__).parent
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
    return FileResponse(path, media_type=kind)


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
    environment = html.templates(FOLDER / "templates")
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
    pattern = re.compile("|".join(map(re.escape, chosen)), re.IGNORECASE)
    parts, place = [], 0
    for match in pattern.finditer(text):
        parts += [
            Markup.escape(text[place : match.start()]),
            Markup("<mark>"),
            Markup.escape(match[0]),
            Markup("</mark>"),
        ]
        place = match.end()
    return Markup("").join([*parts, Markup.escape(text[place:])])
