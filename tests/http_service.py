"""HTTP servers for tests, on ports of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Request(BaseHTTPRequestHandler):
    """A request that is read and answered, and not logged."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, code: int, content: Any, kind: str = "application/json", **headers: str) -> None:
        """Answers with bytes, or with a value as JSON."""
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(sent)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *arguments: object) -> None:
        """Logs nothing."""


class Service:
    """A server that runs inside its context; `respond` gets each request."""

    respond: Callable[[Any], None]

    def __enter__(self) -> Any:
        methods = dict.fromkeys(("do_GET", "do_POST", "do_PATCH", "do_DELETE"), lambda request: self.respond(request))
        self._server = ThreadingHTTPServer(("localhost", 0), type("Handler", (Request,), methods))
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.address = f"http://localhost:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
