"""As much of the hub as a push needs, served on this machine."""

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

COMMIT = "https://huggingface.co/me/models/commit/1234"
"""The client takes no other host's word."""


class Hub:
    """What was asked, and the files that were pushed, by their paths in the repository."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[tuple[str, str | None]] = []
        self.files: dict[str, bytes] = {}

    def answer(self, path: str, body: bytes) -> Any:
        """What the hub says to a POST."""
        if path.endswith("/create"):
            return {"url": "https://huggingface.co/me/models", "name": "me/models"}
        if "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            return {"files": [_plain(name) for name in names]}
        if "/commit/" in path:
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    file = line["value"]
                    self.files[file["path"]] = base64.b64decode(file["content"])
            return {"commitUrl": COMMIT, "commitOid": "1234", "success": True}
        return {"errors": [], "warnings": []}


def _plain(name: str) -> dict[str, Any]:
    return {"path": name, "uploadMode": "regular", "shouldIgnore": False}


def _listed(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}


@contextmanager
def stand_in_hub() -> Iterator[Hub]:
    """A hub at `address` (HF_ENDPOINT) for as long as the block runs."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "/tree/" in self.path:
                self._say([_listed(*file) for file in hub.files.items()])
            else:
                self._say({"id": "me/models", "sha": "0" * 40, "siblings": []})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._say(hub.answer(self.path, body))

        def _say(self, value: Any) -> None:
            hub.asked.append((self.path, self.headers.get("authorization")))
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Be silent."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub = Hub(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield hub
        server.shutdown()
