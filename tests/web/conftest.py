"""A headless browser and a running server, shared by the tests that look at pages."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Response

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium-headless-shell"))


@pytest.fixture(scope="package")  # its event loop counts as running until it is closed: others need one too
def browser() -> "Iterator[Browser]":
    if not CHROMIUM.exists():
        pytest.skip(f"needs a browser: apt install chromium-headless-shell, or set CHROMIUM; none at {CHROMIUM}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM)
        yield opened
        opened.close()


def _failure(answer: "Response") -> str:
    return f"{answer.status} {answer.url}"


class Watched:
    """A page with a record of what it did beyond showing text."""

    def __init__(self, page: "Page", own: str) -> None:
        self.page = page
        self.incidents: list[str] = []
        page.on("dialog", lambda dialog: (self.incidents.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith(own) or self.incidents.append(f"to {request.url}"))
        page.on("popup", lambda popup: self.incidents.append(f"popup {popup.url}"))
        page.on("response", lambda answer: self.incidents.append(_failure(answer)) if answer.status >= 500 else None)
        page.on("pageerror", lambda error: self.incidents.append(f"error {error}"))
        page.on(
            "console",
            lambda message: self.incidents.append(message.text) if message.type in ("error", "warning") else None,
        )

    def check(self) -> None:
        """Nothing happened that should not."""
        assert self.page.evaluate("window.hacked") is None
        assert self.incidents == []


class Served:
    """A running `recollect web`, as a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address
        self.base = address.partition("/#")[0]
        self.port = int(self.base.rpartition(":")[2])
        self._token: str | None = None

    @property
    def token(self) -> str:
        """The token, by exchanging the code of the address."""
        if self._token is None:
            code = self.address.partition("#code=")[2]
            status, _, body = self.ask("POST", "/exchange", {"Recollect-Code": code})
            assert status == 200
            self._token = json.loads(body)["token"]
        return self._token

    def ask(self, method: str, path: str, headers: dict[str, str], body: str = "") -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
            connection.putheader(name, value)
        connection.endheaders(body.encode())
        answer = connection.getresponse()
        # A stream of events never ends.
        text = "" if "event-stream" in (answer.getheader("content-type") or "") else answer.read().decode()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def json(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        status, _, body = self.ask("GET", path, headers)
        assert status == 200, body
        return json.loads(body)

    def visit(self, page: "Page", path: str = "/") -> None:
        """Open a page as its user would, with the token in the tab's storage."""
        page.add_init_script(f"sessionStorage.setItem('recollect.token', '{self.token}')")
        page.goto(self.base + path)
        page.wait_for_selector("#page .sheet")


@pytest.fixture
def page(browser: "Browser", server: Served) -> Iterator[Any]:
    """A page of the module's `server`, watched until the test ends."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    watched = Watched(opened, server.base)
    server.visit(opened)
    yield opened
    watched.check()
    opened.close()


@contextmanager
def served(store: Path, *options: str, home: Path | None = None) -> Iterator[Served]:
    """A server over a store, on any free port; `home` is where it finds the sessions of one agent."""
    environment = os.environ | {"RECOLLECT_HOME": str(store), "PYTHONUNBUFFERED": "1"}
    environment["CLAUDE_CONFIG_DIR"] = str(home or store / "no-such-home")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "recollect", "web", "--no-open", "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stderr is not None
    try:
        process.stdout.readline()
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr.read()
        server = Served(process, address)
        _wait_until_it_answers(server)
        yield server
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert "Traceback" not in said, said


def _wait_until_it_answers(server: Served) -> None:
    for _ in range(200):
        try:
            server.ask("GET", "/static/icon.svg", {})
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("the server does not answer")
