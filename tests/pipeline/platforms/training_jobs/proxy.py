"""A TCP proxy whose connections can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.platforms.training_jobs.api_server import ApiServer


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
