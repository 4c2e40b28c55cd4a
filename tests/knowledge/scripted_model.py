"""A model on loopback that speaks OpenAI's protocol and answers Graphiti's questions by rule, and counts its tokens."""

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

CHARS_PER_TOKEN = 4
_MOST_ENTITIES = 5


class ScriptedModel:
    """The server, while the block runs. `calls` are the questions in order, `tokens` what it says they took.

    A `greedy` one takes as many tokens as anything could: one for each byte read, and all it is allowed to write.
    `hangs_after` so many calls it never answers; `is_broken` it answers nonsense; `has_usage` it says what it took.
    """

    def __init__(
        self, *, greedy: bool = False, hangs_after: int | None = None, is_broken: bool = False, has_usage: bool = True
    ) -> None:
        self.greedy, self.hangs_after, self.is_broken, self.has_usage = greedy, hangs_after, is_broken, has_usage
        self.calls: list[str] = []
        self.texts: list[str] = []
        self.tokens = 0
        self.hanging = threading.Event()

    def __enter__(self) -> "ScriptedModel":
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = json.dumps(model.answer(request)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "input" in request:
            texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
            usage = self._count("embedding", " ".join(texts), "", 0)
            vectors = [
                {"object": "embedding", "index": i, "embedding": [1.0] + [0.0] * 1023} for i in range(len(texts))
            ]
            return {"object": "list", "model": "m", "data": vectors, "usage": usage}
        asked = "\n".join(message["content"] for message in request["messages"])
        schema = request["response_format"]["json_schema"]
        said = "{}" if self.is_broken else json.dumps(_said(schema["name"], asked))
        usage = self._count(schema["name"], asked + json.dumps(schema), said, request["max_tokens"])
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return answer | ({"usage": usage} if self.has_usage else {})

    def _count(self, call: str, asked: str, said: str, most: int) -> dict[str, int]:
        self.calls.append(call)
        self.texts.append(asked)
        if self.hangs_after is not None and len(self.calls) > self.hangs_after:
            self.hanging.set()
            threading.Event().wait()
        read = len(asked.encode()) if self.greedy else -(-len(asked) // CHARS_PER_TOKEN)
        written = most if self.greedy else -(-len(said) // CHARS_PER_TOKEN)
        self.tokens += read + written
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.calls)


def _said(schema: str, asked: str) -> dict[str, Any]:
    if schema == "ExtractedEntities":
        text = _between(asked, "CURRENT MESSAGE")
        names = list(dict.fromkeys(re.findall(r"\w+\.(?:py|ts|json|toml)\b|\b[A-Z]\w{4,}", text)))[:_MOST_ENTITIES]
        return {"extracted_entities": [{"name": name, "entity_type_id": 0} for name in names or ["work"]]}
    if schema == "ExtractedEdges":
        names = re.findall(r'"name": "([^"]+)"', _between(asked, "ENTITIES"))
        pairs = pairwise(names)
        edges = [{"source_entity_name": a, "target_entity_name": b, "fact": f"{a} needs {b}"} for a, b in pairs]
        return {"edges": [edge | {"relation_type": "NEEDS"} for edge in edges]}
    if schema == "NodeResolutions":
        found = re.findall(r'"id": (\d+),\s*"name": "([^"]+)"', _between(asked, "ENTITIES"))
        return {"entity_resolutions": [{"id": int(i), "name": n, "duplicate_candidate_id": -1} for i, n in found]}
    if schema == "SummarizedEntities":
        return {"summaries": []}
    if schema == "EdgeDuplicate":
        return {"duplicate_facts": [], "contradicted_facts": []}
    return {"valid_at": None, "invalid_at": None}  # EdgeTimestamps


def _between(text: str, tag: str) -> str:
    match = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return match[1] if match else ""
