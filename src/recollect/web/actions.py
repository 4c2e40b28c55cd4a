"""What a page can change: each by a POST with the token, and none with `--read-only`."""

from collections.abc import Callable
from typing import NamedTuple

from recollect.api import Memory, make_room, open_memory
from recollect.errors import NeedsAnswer
from recollect.schema import Session
from recollect.web import pages, session
from recollect.web.pages import Params, Records


class Done(NamedTuple):
    """What to say, and what shows it: a part of this page, all of it (`refreshes`), or another address."""

    said: str
    page: Callable[[Memory, Params], Records] | None = None
    moved: str | None = None
    refreshes: bool = False


Action = Callable[[Params], Done]


def _annotate(said: str, change: Callable[[Memory, Session, Params], object], *, refreshes: bool = False) -> Action:
    def act(params: Params) -> Done:
        with open_memory(create=False) as memory:
            change(memory, memory.session(params.path["uid"]), params)
        return Done(said, session.annotations, refreshes=refreshes)

    return act


def _forget(params: Params) -> Done:
    """Forget a session for good; it must have been confirmed by what the dry run showed."""
    make_room()
    with open_memory(create=False) as memory:
        planned = memory.plan_forgetting(params.path["uid"])
        if params.text("sessions") != str(len(planned.sessions)):
            raise NeedsAnswer("What would be deleted has changed", "review it again")
        memory.forget(planned, keep_forks=params.text("keep_forks") == "1")
    return Done(f"Forgotten: {len(planned.sessions)}", moved="/sessions")


def _judge(verdict: str) -> Action:
    def act(params: Params) -> Done:
        with open_memory(create=False) as memory:
            memory.knowledge.judge(params.path["uid"], verdict)
        return Done(verdict.capitalize(), pages.fact)

    return act


def _save_view(params: Params) -> Done:
    with open_memory(create=False) as memory:
        memory.annotations.save_view(params.text("name"), params.text("query"))
    return Done("Saved", pages.views)


def _drop_view(params: Params) -> Done:
    with open_memory(create=False) as memory:
        memory.annotations.drop_view(params.text("name"))
    return Done("Removed", pages.views)


_SESSION = "/session/{uid:path}"
ACTIONS: dict[str, Action] = {
    f"{_SESSION}/star": _annotate("Starred", lambda memory, chosen, _: memory.annotations.star(chosen)),
    f"{_SESSION}/unstar": _annotate("Star removed", lambda memory, chosen, _: memory.annotations.star(chosen, False)),
    f"{_SESSION}/tag": _annotate(
        "Tagged", lambda memory, chosen, params: memory.annotations.tag(chosen, params.text("tag"))
    ),
    f"{_SESSION}/untag": _annotate(
        "Tag removed", lambda memory, chosen, params: memory.annotations.untag(chosen, params.text("tag"))
    ),
    f"{_SESSION}/note": _annotate(
        "Noted", lambda memory, chosen, params: memory.annotations.note(chosen, params.text("note"))
    ),
    f"{_SESSION}/drop-note": _annotate(
        "Note removed", lambda memory, chosen, params: memory.annotations.drop_note(chosen, params.text("note"))
    ),
    f"{_SESSION}/rename": _annotate(
        "Renamed",
        lambda memory, chosen, params: memory.annotations.rename(chosen, params.text("name")),
        refreshes=True,
    ),
    f"{_SESSION}/forget": _forget,
    "/sessions/views/save": _save_view,
    "/sessions/views/drop": _drop_view,
    "/fact/{uid}/promote": _judge("promoted"),
    "/fact/{uid}/pin": _judge("pinned"),
    "/fact/{uid}/reject": _judge("rejected"),
}
