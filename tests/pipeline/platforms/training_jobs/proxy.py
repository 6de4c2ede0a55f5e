"""Between a client and an API server: a TCP proxy whose connections can be cut, and a server that seems to restart."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.platforms.training_jobs.api_server import TOKEN, ApiServer, trusting


class Proxy:
    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        # `close` alone would leave it listening while `accept` waits.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> int:
        """Cuts all connections; returns how many sockets were open."""
        before, self._sockets = self._sockets, []
        for each in before:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        return len(before)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                try:
                    there = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    here.close()
                    continue
                self._sockets += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=_copy, args=(one, other), daemon=True).start()


@contextlib.contextmanager
def proxied(server: ApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy of an API server; the kubeconfig of this process, a file of the folder, leads to it."""
    with Proxy(server.port) as proxy:
        (config := folder / "kubeconfig").write_text(
            server.kubeconfig.read_text().replace(f":{server.port}", f":{proxy.port}")
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        yield proxy


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Restarting:
    """An HTTP server in front of an API server, which it passes all requests to, but for some time."""

    def __init__(self, server: ApiServer) -> None:
        self._answers: tuple[tuple[int, float], ...] = ()
        self._began = 0.0
        self.refused: list[int] = []
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def __getattr__(self, name: str) -> Any:
                # Of each method, as `do_GET`.
                if not name.startswith("do_"):
                    raise AttributeError(name)
                return self._forward

            def _forward(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else None
                if code := front.code():
                    front.refused.append(code)
                    message = f'pods is forbidden: User "me" cannot list resource "pods" ({code})'
                    return self._pass(code, [json.dumps({"kind": "Status", "code": code, "message": message}).encode()])
                headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": self.headers["Content-Type"] or ""}
                url = f"https://127.0.0.1:{server.port}{self.path}"
                request = urllib.request.Request(url, body, headers, method=self.command)
                try:
                    with urllib.request.urlopen(request, timeout=60, context=trusting()) as answer:
                        self._pass(answer.status, iter(lambda: answer.read1(65536), b""))
                except urllib.error.HTTPError as error:
                    self._pass(error.code, [error.read()])

            def _pass(self, code: int, parts: Iterable[bytes]) -> None:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for part in parts:
                        self.wfile.write(part)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True

    def __enter__(self) -> Restarting:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def begin(self, *answers: tuple[int, float]) -> None:
        """Seems to restart: from the next request on it answers with each error code for its seconds, in turn."""
        self._answers, self._began = answers, 0.0

    def code(self) -> int:
        """Returns the error code of now; 0 if it answers."""
        self._began = self._began or time.monotonic()
        passed = time.monotonic() - self._began
        for code, seconds in self._answers:
            if passed < seconds:
                return code
            passed -= seconds
        return 0
