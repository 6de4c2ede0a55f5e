"""As much of a server of Kubeflow Pipelines 1 as `tfx pipeline create` and `update` ask of one."""

from __future__ import annotations

import json
import threading
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_API = "/apis/v1beta1"
_WHEN = "2024-01-01T00:00:00Z"


class PipelinesServer:
    """A server on a port of this machine, as long as the context lasts."""

    def __init__(self) -> None:
        # Name of the upload, and what was uploaded, in turn.
        self.uploads: list[tuple[str, str]] = []
        self._pipelines: list[dict[str, str]] = []
        self._experiments: list[dict[str, str]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place = urlsplit(self.path).path
                if place == f"{_API}/pipelines":
                    self._answer({"pipelines": served._pipelines, "total_size": len(served._pipelines)})
                elif place == f"{_API}/experiments":
                    self._answer({"experiments": served._experiments, "total_size": len(served._experiments)})
                else:
                    self._answer({})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                place, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
                made = {"id": "one", "name": query.get("name", [""])[0], "created_at": _WHEN}
                if "/upload" in place:
                    head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
                    (part,) = message_from_bytes(head + body).get_payload()
                    served.uploads.append((made["name"], part.get_payload(decode=True).decode()))
                    if place.endswith("/upload"):
                        served._pipelines.append(made)
                if place == f"{_API}/experiments":
                    made["name"] = json.loads(body)["name"]
                    served._experiments.append(made)
                self._answer(made)

            def _answer(self, told: object) -> None:
                data = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> PipelinesServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
