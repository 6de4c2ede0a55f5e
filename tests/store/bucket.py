"""A bucket of Cloud Storage with its generations and preconditions, for Google's own client, in this process.

It has the part of the JSON API that a claim needs: an object's metadata are written, read and removed. Each request is
atomic, like in the real store: `ifGenerationMatch` is refused by 412 if the object has another generation, or none.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "some-bucket"
_OBJECTS = f"/storage/v1/b/{BUCKET}/o"


class Bucket(ThreadingHTTPServer):
    """A server of a bucket; `before` and `after` are called with the verb, before and after each request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.objects: dict[str, dict[str, Any]] = {}
        # Returns the status of a refusal; or whether the response is lost.
        self.before: Callable[[str], Optional[int]] = lambda verb: None
        self.after: Callable[[str], bool] = lambda verb: False
        self._generation = 0
        self._step = threading.Lock()

    @property
    def address(self) -> str:
        """The value of STORAGE_EMULATOR_HOST."""
        return f"http://127.0.0.1:{self.server_port}"

    def do(self, verb: str, name: str, condition: Optional[str], metadata: dict[str, Any]) -> tuple[int, Any]:
        """Executes a request atomically; returns the status and the response."""
        with self._step:
            stored = self.objects.get(name)
            if condition is not None and int(condition) != (int(stored["generation"]) if stored else 0):
                return 412, {"error": {"code": 412, "message": "conditionNotMet"}}
            if verb == "POST":
                self._generation += 1
                stored = {"kind": "storage#object", **metadata, "bucket": BUCKET, "generation": str(self._generation)}
                self.objects[name] = stored
            elif stored is None:
                return 404, {"error": {"code": 404, "message": "no such object"}}
            elif verb == "DELETE":
                del self.objects[name]
                return 204, None
            return 200, stored


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body, metadata = self.rfile.read(int(self.headers.get("Content-Length") or 0)), {}
        place = urlsplit(self.path)
        name = unquote(place.path).removeprefix("/upload").removeprefix(_OBJECTS)
        if self.command == "POST" and not name:
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            metadata = json.loads(message_from_bytes(head + body).get_payload(0).get_payload())
            name = f"/{metadata['name']}"
        if name.startswith("/storage/"):
            status, answer = 404, {"error": {"code": 404, "message": "The specified bucket does not exist."}}
        else:
            condition = parse_qs(place.query).get("ifGenerationMatch", [None])[0]
            status, answer = self.server.before(self.command), {"error": {"message": "told to refuse"}}
            if not status:
                status, answer = self.server.do(self.command, name.removeprefix("/"), condition, metadata)
            if self.server.after(self.command):
                self.close_connection = True
                return
        content = b"" if answer is None else json.dumps(answer).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def serving_bucket() -> Iterator[Bucket]:
    with Bucket() as bucket:
        thread = threading.Thread(target=bucket.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield bucket
        finally:
            bucket.shutdown()
            thread.join()
