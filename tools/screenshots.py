"""Pictures of the ten main pages, light and dark, from made-up sessions: `make screenshots`.

Needs a Chromium: chromium-headless-shell (apt install chromium-headless-shell), or the path in CHROMIUM.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from demo_store import STORE, make_store

OUT = Path(__file__).parents[1] / "docs" / "screenshots"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium-headless-shell")
SIZE = {"width": 1100, "height": 640}


def pages(session: str) -> dict[str, str]:
    return {
        "home": "/",
        "search": "/search?q=pool",
        "sessions": "/sessions",
        "session": f"/session/{session}",
        "summary": f"/session/{session}?view=summary",
        "changes": f"/session/{session}?view=changes",
        "repository": "/repository/shop-api",
        "graph": "/graph",
        "stats": "/stats?since=90d",
        "care": "/care",
    }


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="recollect-") as folder:
        with make_store(Path(folder)) as memory:
            session = memory.sessions(text="checkout", limit=1)[0].native_session_id
        # With a home of its own the server finds no agent of this machine, and its paths begin with `~`.
        environment = {"HOME": folder, "RECOLLECT_HOME": f"{folder}/{STORE}", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "recollect", "web", "--no-open", "--read-only"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
            assert server.stdout is not None
            server.stdout.readline()
            try:
                take(server.stdout.readline().strip(), pages(session))
            finally:
                server.terminate()


def take(address: str, paths: dict[str, str]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page(viewport=SIZE)
        page.goto(address)
        page.wait_for_selector("#page .sheet")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            for name, path in paths.items():
                page.goto(address.partition("/#")[0] + path)
                page.wait_for_selector("#page:not([aria-busy]) .sheet")
                page.wait_for_timeout(200)
                page.wait_for_selector(".htmx-request", state="detached")  # what a page loads after itself
                page.screenshot(path=OUT / f"{name}-{theme}.png")
        browser.close()


if __name__ == "__main__":
    main()
