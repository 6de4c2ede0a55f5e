"""Between a client and an API server: a TCP proxy whose connections can be cut, and a server that seems to restart."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.http_service import Request, Service
from tests.pipeline.platforms.training_jobs.api_server import TOKEN, ApiServer, trusting

T = TypeVar("T", "Proxy", "Restarting")


class Proxy:
    def __init__(self, server: ApiServer) -> None:
        self._to = server.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
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
def between(
    server: ApiServer, make: Callable[[ApiServer], T], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[T]:
    """Makes a Proxy or a Restarting; the kubeconfig of this process, a file of the folder, leads to it."""
    with make(server) as made:
        (config := folder / "kubeconfig").write_text(
            server.kubeconfig.read_text().replace(f"https://127.0.0.1:{server.port}", made.address)
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        yield made


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Restarting(Service):
    """An HTTP server in front of an API server, which it passes all requests to, but for some time."""

    def __init__(self, server: ApiServer) -> None:
        self._to = server.port
        self._answers: tuple[tuple[int, float], ...] = ()
        self._began = 0.0
        self.refused: list[int] = []

    def respond(self, request: Request) -> None:
        body = request.body() or None
        if code := self.code():
            self.refused.append(code)
            message = f'pods is forbidden: User "me" cannot list resource "pods" ({code})'
            return request.answer(code, {"kind": "Status", "code": code, "message": message})
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": request.headers["Content-Type"] or ""}
        url = f"https://127.0.0.1:{self._to}{request.path}"
        passed = urllib.request.Request(url, body, headers, method=request.command)
        try:
            with urllib.request.urlopen(passed, timeout=60, context=trusting()) as answer:
                # A watch has no length.
                request.send_response(answer.status)
                request.send_header("Content-Type", "application/json")
                request.end_headers()
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for part in iter(lambda: answer.read1(65536), b""):
                        request.wfile.write(part)
        except urllib.error.HTTPError as error:
            request.answer(error.code, error.read())

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
