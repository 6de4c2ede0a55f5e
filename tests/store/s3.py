"""A server of S3's protocol in this process, moto, with faults."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional
from unittest import mock

from werkzeug.serving import WSGIRequestHandler, make_server

from tfx_estimator.pipeline.base.s3 import asking, store

BUCKET = "some-bucket"
ADDRESS = f"s3://{BUCKET}"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>told to fail</Message></Error>"


class _Handler(WSGIRequestHandler):
    def handle(self) -> None:
        if not self.server.away:
            super().handle()

    def log(self, *_: Any) -> None: ...


class S3:
    """The server.

    It is away by a closed port, as a server that restarts is.

    Attributes:
        environment: Of its clients.
        share: Share of requests that are answered by SlowDown.
        conditions: Whether it heeds If-Match and If-None-Match.
        before: Called with each request's method and path.
        requests: How many it got.
        page: How many names it lists at once.
    """

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self.share, self.conditions, self.requests, self.page = 0.0, True, 0, 1000
        self.before: Callable[[str, str], Any] = lambda method, path: None
        self._chance, self._step = random.Random(7), threading.Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._start(0)

    def _start(self, port: int) -> None:
        self._server: Any = make_server("127.0.0.1", port, self._serve, threaded=True, request_handler=_Handler)
        self._server.away = False
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "some",
            "AWS_SECRET_ACCESS_KEY": "some",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Refuses and closes all connections in the context, as a server that restarts does."""
        port = self._server.server_port
        self._server.away = True
        self.stop()
        try:
            yield
        finally:
            self._start(port)

    def stop(self) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()

    def names(self, prefix: str = "") -> list[str]:
        found = asking.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
        return [each["Key"] for each in found]

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._step:
            self.requests += 1
            fails = self._chance.random() < self.share
        self.before(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if fails:
            start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_SLOW_DOWN)))])
            return [_SLOW_DOWN]
        if "list-type" in environ["QUERY_STRING"] and "max-keys" not in environ["QUERY_STRING"]:
            environ["QUERY_STRING"] += f"&max-keys={self.page}"
        if not self.conditions:
            for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
                environ.pop(name, None)
        # moto checks a condition and writes in two steps.
        changes = self._step if {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"} & environ.keys() else contextlib.nullcontext()
        with changes:
            return list(self._app(environ, start))


@contextlib.contextmanager
def serving() -> Iterator[S3]:
    """Serves an empty bucket, for this process and its children."""
    os.environ.pop("AWS_PROFILE", None)
    server = S3()
    try:
        with mock.patch.dict(os.environ, server.environment), fresh():
            asking.client().create_bucket(Bucket=BUCKET)
            yield server
            empty()
    finally:
        server.stop()


@contextlib.contextmanager
def fresh(patience: Optional[float] = None) -> Iterator[None]:
    """Makes this process as if it had asked no store yet."""
    with (
        mock.patch.object(asking, "_clients", {}),
        mock.patch.object(asking, "_given_up", []),
        mock.patch.dict(os.environ, {} if patience is None else {asking.PATIENCE: str(patience)}),
    ):
        yield


def empty() -> None:
    """Removes all objects."""
    with contextlib.suppress(asking.AbsentError):
        store.remove_tree(store.Place(BUCKET, ""))
