"""How the page gets to its user's browser, and to no other: nothing secret in arguments, messages or others' pages."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from recollect.loopback import bind
from tests.conftest import swept
from tests.logs import CLAUDE, session_id
from tests.web.conftest import Served, served

# A browser that notes its arguments, what they lead to, and whether the server answers by now.
_BROWSER = """#!{python}
import json, socket, sys, urllib.parse
from pathlib import Path
path = Path(urllib.parse.unquote(sys.argv[1].removeprefix("file://")))
with socket.create_connection(("127.0.0.1", {port})):
    facts = [sys.argv[1:], path.read_text(), path.stat().st_mode & 0o777]
    Path({told!r}).write_text(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opening")
    CLAUDE.write(folder / "home", CLAUDE.content(3))
    swept(folder / "store", f"claude={folder / 'home'}").close()
    return folder / "store"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _opening(store: Path, place: Path, content: str, port: int) -> Iterator["subprocess.Popen[str]"]:
    """`recollect web` of a user whose browser is this script."""
    browser = place / "browser"
    browser.write_text(content)
    browser.chmod(0o700)
    variables = {"RECOLLECT_HOME": str(store), "BROWSER": f"{browser} %s", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "recollect", "web", "--read-only", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | variables)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


def _forwarders(store: Path) -> list[Path]:
    return list(store.glob(".web.*"))


def _until(is_so: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_browser_gets_a_file_that_forwards_and_no_secret_in_its_arguments(store: Path, tmp_path: Path) -> None:
    port, told = _free_port(), tmp_path / "told"
    content = _BROWSER.format(python=sys.executable, port=port, told=str(told))
    with _opening(store, tmp_path, content, port) as process:
        _until(lambda: told.exists() and told.stat().st_size)
        (argument,), page, mode = json.loads(told.read_text())
        address = re.search(r"url=(http://127[^\"]+)", page)
        assert address is not None
        code = address[1].partition("#code=")[2]
        token = Served(process, address[1]).token
        _until(lambda: not _forwarders(store))
        process.terminate()
        assert process.stdout is not None
        printed = process.stdout.read()

    assert argument.startswith("file://") and code and code not in argument
    assert mode == 0o600
    assert token
    assert printed == ""  # the address is nobody's business once the browser came


def test_where_the_browser_does_not_come_back_the_address_is_printed(store: Path, tmp_path: Path) -> None:
    begun = time.monotonic()
    with _opening(store, tmp_path, "#!/bin/sh\nexit 0\n", _free_port()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        address = process.stdout.readline().strip()
        waited = time.monotonic() - begun
        assert Served(process, address).token
        _until(lambda: not _forwarders(store))

    assert waited >= 5


def test_no_forwarder_is_left_when_the_page_is_stopped_unread(store: Path, tmp_path: Path) -> None:
    with _opening(store, tmp_path, "#!/bin/sh\nexit 0\n", _free_port()) as process:
        _until(lambda: _forwarders(store))
        process.terminate()
        process.wait(20)

        assert _forwarders(store) == []


def test_a_real_browser_opens_the_page_by_the_file(browser: Any, store: Path, tmp_path: Path) -> None:
    port, kept = _free_port(), tmp_path / "kept.html"
    with _opening(store, tmp_path, f'#!/bin/sh\ncp "${{1#file://}}" {kept}\n', port):
        _until(lambda: kept.exists() and kept.stat().st_size)
        page = browser.new_page()
        page.goto(kept.as_uri())
        page.wait_for_selector(".home")

        assert page.url == f"http://127.0.0.1:{port}/"
        page.close()


def test_no_other_program_can_take_a_port_that_was_bound() -> None:
    with bind(None, _free_port()) as ours, socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        with pytest.raises(OSError, match="in use"):
            thief.bind(ours.getsockname())


_SPY = b"""<!doctype html><title>spy</title><script>
  window.heard = [];
  const channel = new BroadcastChannel("recollect");
  channel.onmessage = async ({ data }) => {
    heard.push(data);
    if (data.asks) channel.postMessage("token?");
    if (data.admitted) {
      const answer = await fetch("/exchange", { method: "POST", headers: { "Recollect-Code": data.admitted } });
      heard.push(await answer.json());
    }
  };
  window.ask = async () => {
    channel.postMessage("token?");
    const page = await (await fetch("/", { headers: { Accept: "text/html" } })).text();
    const visit = page.match(/name="visit" content="([^"]*)"/)[1];
    channel.postMessage({ asks: visit.split(".")[0] });
    return visit;
  };
</script>"""


class _Spy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(_SPY)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_page_that_another_program_served_on_the_port_gets_no_token(browser: Any, store: Path) -> None:
    context = browser.new_context()
    spy, own, further = context.new_page(), context.new_page(), context.new_page()
    with HTTPServer(("127.0.0.1", 0), _Spy) as impostor:
        port = impostor.server_port
        threading.Thread(target=impostor.serve_forever, daemon=True).start()
        spy.goto(f"http://127.0.0.1:{port}/")
        impostor.shutdown()
    with served(store, "--read-only", "--port", str(port)) as running:
        own.goto(running.address)
        own.wait_for_selector(".home")
        visit = spy.evaluate("ask()")
        further.goto(f"{running.base}/sessions")
        further.wait_for_selector(".rows")
        spy.wait_for_function("heard.some((data) => data.error)")
        token = own.evaluate("sessionStorage.getItem('recollect.token')")
        heard = json.dumps(spy.evaluate("heard"))

    assert visit == ""  # a script's own request gets no secret
    assert token and token not in heard and '"token"' not in heard
    context.close()


def _navigate(server: Served, **changed: str) -> str:
    headers = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", **changed}
    found = re.search(r'name="visit" content="([^"]*)"', server.ask("GET", "/", headers)[2])
    assert found is not None
    return found[1]


def _exchange(server: Served, code: str) -> int:
    return server.ask("POST", "/exchange", {"Recollect-Code": code})[0]


def test_a_visit_gets_a_token_only_if_a_tab_that_has_one_admits_it_and_once(store: Path) -> None:
    with served(store, "--read-only") as server:
        visit = _navigate(server)
        number = visit.partition(".")[0]
        admit = {"Recollect-Visit": number}
        token = {"Authorization": f"Bearer {server.token}"}

        assert server.ask("POST", "/admit", admit)[0] == 401
        assert _exchange(server, visit) == 403
        assert server.ask("POST", "/admit", admit | token)[0] == 204
        assert _exchange(server, number) == 403
        assert _exchange(server, visit) == 200
        assert _exchange(server, visit) == 403
        assert server.ask("POST", "/admit", admit | token)[0] == 404
        assert _navigate(server, **{"Sec-Fetch-Mode": "cors"}) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_of_the_machine_gets_no_secret_of_a_visit(store: Path) -> None:
    asking = """
import os, socket, sys
port = int(sys.argv[1])
os.setuid(65534)
asked = f"GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nAccept: text/html\\r\\nSec-Fetch-Mode: navigate\\r\\n\\r\\n"
with socket.socket() as connection:
    connection.connect(("127.0.0.1", port))
    connection.sendall(asked.encode())
    answer = b""
    while b"</html>" not in answer:
        answer += connection.recv(65536)
print(answer.decode())
"""
    with served(store, "--read-only") as server:
        command = [sys.executable, "-c", asking, str(server.port)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)

        assert 'name="visit" content=""' in done.stdout
        assert _navigate(server)


def test_a_form_of_three_hundred_megabytes_is_refused_and_not_kept(store: Path) -> None:
    with served(store) as server:
        address = f"{server.base}/session/{session_id()}/note"
        headers = {"Authorization": f"Bearer {server.token}", "Accept": "application/json"}
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            lines = [f"POST {address.removeprefix(server.base)} HTTP/1.1", f"Host: 127.0.0.1:{server.port}"]
            lines += [f"{name}: {value}" for name, value in headers.items()] + [f"Content-Length: {300 << 20}"]
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + b"note=" + b"x" * 200_000)
            answer = ""
            while "bytes" not in answer:
                answer += connection.recv(65_536).decode()

        assert answer.startswith("HTTP/1.1 413")
        assert "Form longer than 65536 bytes" in answer
        urllib.request.urlopen(server.base + "/static/icon.svg").close()


def test_inside_a_group_the_page_does_not_start(store: Path) -> None:
    variables = {"RECOLLECT_HOME": str(store), "RECOLLECT_GROUP": "a"}
    command = [sys.executable, "-m", "recollect", "web", "--no-open"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "Not available inside group `a`" in done.stderr


def test_a_forget_whose_count_changed_since_it_was_shown_is_refused_with_the_reason(store: Path) -> None:
    with served(store) as server:
        headers = {"Authorization": f"Bearer {server.token}", "Accept": "application/json"}
        status, answered, body = server.ask("POST", f"/session/{session_id()}/forget", headers, "sessions=7")

    assert status == 409
    assert json.loads(body)["error"]["message"] == "What would be deleted has changed"
    assert "review it again" in answered["hx-trigger"]
