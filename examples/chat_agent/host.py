"""A small agent host with two channels, the terminal and a local socket, and Recollect as its session store.

    python examples/chat_agent/host.py --socket /tmp/chat.sock
    nc -U /tmp/chat.sock          # in another terminal: the second channel

Its model only echoes. What matters is what it keeps: both sides of both channels are stored as they happen, and
`/history words`, `/sessions`, `/new` and `/compact` work in both. `/search` stays the host's own.
"""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from recollect import open_memory
from recollect.live import Live, route


def echo(history: list[dict[str, str]]) -> str:
    """The model: says how much it remembers, and repeats the last words."""
    return f"({len(history)}) {history[-1]['content']}"


class Host:
    """Answers one message at a time, wherever it comes from."""

    def __init__(self, live: Live) -> None:
        self.live = live

    async def answer(self, key: str, text: str) -> str:
        """Store what was said, answer it, store the answer."""
        reply = await self.live.aio.run(route, self.live, key, text)
        if reply is not None:
            return str(reply.text)
        if text.startswith("/search "):
            return "This host searches the web here"
        await self.live.aio.append_message(key, "user", text)
        messages = await self.live.aio.get_history(key, 20)
        said = echo([{"role": message.role, "content": str(message.content)} for message in messages])
        await self.live.aio.append_message(key, "assistant", said, model="echo-1", provider="example")
        return said

    async def serve(self, key: str, reader: asyncio.StreamReader, say: Callable[[str], None]) -> None:
        """One conversation, line by line, until the other side hangs up."""
        while line := await reader.readline():
            if text := line.decode().strip():
                say(await self.answer(key, text))


async def run(live: Live, socket_path: Path) -> None:
    host = Host(live)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # the host is about to end
            await host.serve("socket:local", reader, lambda text: writer.write(f"{text}\n".encode()))
        writer.close()

    server = await asyncio.start_unix_server(converse, socket_path)
    print(f"Talk here, or with: nc -U {socket_path}", flush=True)
    async with server:
        await host.serve("cli:terminal", _terminal(), partial(print, flush=True))


def _terminal() -> asyncio.StreamReader:
    """Standard input, be it a terminal, a pipe or a file. A thread reads it, and nobody waits for it at the end."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()

    def read() -> None:
        while data := os.read(sys.stdin.fileno(), 4096):
            loop.call_soon_threadsafe(reader.feed_data, data)
        loop.call_soon_threadsafe(reader.feed_eof)

    threading.Thread(target=read, daemon=True).start()
    return reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", type=Path, default=Path("chat.sock"), help="where the second channel listens")
    options = parser.parse_args()
    options.socket.unlink(missing_ok=True)
    with open_memory() as memory:
        live = Live(memory)
        try:
            asyncio.run(run(live, options.socket))
        finally:
            live.aio.close()
            options.socket.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
